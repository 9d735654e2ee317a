# SPDX-License-Identifier: Apache-2.0
"""The corpus of broken manifests on a real API server, all at once, beside jobs that are good."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import pytest

from support.builders import invalid_jobs
from support.builders.invalid_jobs import Broken
from support.builders.job_kinds import SORTS
from support.e2e.harness import Api, Json, Operator, Refused, phase_of, verdict

pytestmark = [pytest.mark.e2e, pytest.mark.full]

OVERLAY = "mpi"

WHOLE = "MUSTER_CORPUS" in os.environ
"""What is wrong in every kind is asked of every kind by `make nightly`, else of one in turns."""
STRICT = "?fieldValidation=Strict"
"""As kubectl asks for it."""
FOR_EVER = {"local.muster.kubeflow.org/run-seconds": "forever"}


def send(api: Api, row: Broken) -> str:
    """Apply a manifest; return what the API server said against it, or nothing."""
    document = row.document
    document["metadata"]["namespace"] = api.namespace
    if row.by == "pods":
        # One that ended well before the operator heard that another is refused would be the job's
        # success.
        for replica in document["spec"][SORTS[row.sort].spec_field].values():
            replica["template"].setdefault("metadata", {})["annotations"] = FOR_EVER
    try:
        api.send("POST", api.path(row.sort) + STRICT, document)
    except Refused as error:
        return str(error)
    return ""


def lacks(row: Broken, said: str) -> list[str]:
    """Return the words that were not said."""
    return [word for word in row.says if word.lower() not in said.lower()]


def complaint(row: Broken, job: Json) -> str:
    """Return why the job does not run, from where its kind of mistake is told."""
    status = job.get("status") or {}
    if row.by == "verdict":
        gang = verdict(job)
        return f"{gang.get('reason', '')}: {gang.get('message', '')}" if gang.get("reason") else ""
    return str(status["reason"]) if status.get("state") in ("Invalid", "Blocked") else ""


def test_what_cannot_be_meant_is_told_and_hurts_nobody(
    shared_api: Api, shared_operator: Operator
) -> None:
    """Broken jobs in great number, each refused or told why; good ones run beside them.

    That the rules of all kinds say the same of what they share is told without a cluster.
    """
    api = shared_api
    wrong: list[str] = []
    stored: dict[str, list[Broken]] = {sort: [] for sort in invalid_jobs.sorts()}
    for row in invalid_jobs.corpus() if WHOLE else invalid_jobs.sample():
        said = send(api, row)
        if bool(said) != (row.by == "apply"):
            wrong.append(f"{row.id}: refused by {row.by}? the server: {said or 'takes it'}")
        elif said and (missing := lacks(row, said)):
            wrong.append(f"{row.id}: {missing} not in: {said}")
        elif not said:
            stored[row.sort].append(row)
    for sort in invalid_jobs.sorts():
        api.create(invalid_jobs.good(sort))
    for sort in invalid_jobs.sorts():
        api.wait_condition(f"good-{sort.lower()}", "Succeeded", of=sort)
    for sort, rows in stored.items():
        wrong += told(api, sort, rows)
    assert not wrong, "\n".join(wrong)
    assert shared_operator.readiness() == "ok"
    quiet = {"Pending", "Succeeded"}
    api.wait("Pod", lambda pods: {phase_of(p) for p in pods.values()} <= quiet, what="calm")


def told(api: Api, sort: str, rows: list[Broken]) -> list[str]:
    """Return the mistakes of one sort of job that are not told as they should be."""
    warned = [row for row in rows if row.by == "event"]
    waited = {row.document["metadata"]["name"]: row for row in rows if row not in warned}
    found: dict[str, Json] = {}

    def each(jobs: Mapping[str, Json]) -> bool:
        found.update(jobs)
        return all(complaint(row, jobs[name]) for name, row in waited.items())

    with contextlib.suppress(AssertionError):  # which ones it is stands below
        api.wait(sort, each)
    telling = {row.document["metadata"]["name"] for row in warned}

    def heard(events: Mapping[str, Json]) -> bool:
        warnings = (e for e in events.values() if e["type"] != "Normal")
        return telling <= {e["involvedObject"]["name"] for e in warnings}

    with contextlib.suppress(AssertionError):
        api.wait("Event", heard)
    said = {name: complaint(row, found[name]) for name, row in waited.items()}
    for row in warned:
        name = row.document["metadata"]["name"]
        said[name] = " ".join(e["message"] for e in api.events(name=name) if e["type"] != "Normal")
    return [
        f"{row.id}: {row.says} not in: {words or found[name].get('status')}"
        for row in rows
        if lacks(row, words := said[name := row.document["metadata"]["name"]]) or not words
    ]
