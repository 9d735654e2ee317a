# SPDX-License-Identifier: Apache-2.0
"""What is said of a reservation to those who ask. How it is kept is told in test_gang_settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support.e2e.harness import Api, Operator, add_nodes, own_namespace, tfjob, verdict
from support.e2e.muster_cli import ask

pytestmark = pytest.mark.e2e

StartOperator = Callable[..., Operator]


def test_a_reservation_is_explained_as_the_operator_keeps_it(
    api: Api, start_operator: StartOperator, tmp_path: Path
) -> None:
    """To those who ask before they submit a job, and while it waits."""
    patience = "--reservation-after=2s"
    start_operator(patience)
    add_nodes(api, {"cpu": "4"}, {"cpu": "4"})
    for name in ("a", "b"):
        api.create(tfjob(name, workers=1, resources={"cpu": "2"}, run="forever"))
    api.wait_pods(2, "Running")
    api.create(tfjob("large", workers=2, resources={"cpu": "4"}))
    api.wait_job("large", lambda j: verdict(j).get("state") == "Reserved")
    file, where = tmp_path / "job.yaml", ("-n", api.namespace, patience)
    file.write_text(yaml.safe_dump(tfjob("late", workers=1)))
    answers = [ask(api, "simulate", "-f", str(file), *where)]
    api.create(tfjob("late", workers=1))
    late = verdict(api.wait_job("late", lambda j: verdict(j).get("reason")))
    answers.append(ask(api, "explain", "tfjob/late", *where))
    for code, text in answers:
        assert code == 1, text
        assert text.splitlines()[0].endswith(f"/late: waiting, not now: {late['reason']}")
        assert f"  behind TFJob/{api.namespace}/large" in text.splitlines()
    code, text = ask(api, "explain", "tfjob/large", *where)
    assert (code, text.splitlines()[0].rpartition("/")[2]) == (
        1,
        "large: reserved, not now: NotEnoughResources",
    )


def test_jobs_of_other_namespaces_are_not_named(api: Api, start_operator: StartOperator) -> None:
    """Where they are hidden: neither in the status of a job that they are in the way of, nor in
    its pods or events; those of its own namespace are.
    """
    operator = start_operator("--reservation-after=2s", "--hide-other-namespaces")
    add_nodes(api, {"cpu": "4"}, {"cpu": "4"})
    with own_namespace(api.cluster, "stranger") as stranger:
        for name in ("a", "b"):
            stranger.create(tfjob(name, workers=1, resources={"cpu": "2"}, run="forever"))
        stranger.wait_pods(2, "Running")
        stranger.create(tfjob("large", workers=2, resources={"cpu": "4"}))
        stranger.wait_job("large", lambda j: verdict(j).get("state") == "Reserved")
        for there in (api, stranger):
            there.create(tfjob("late", workers=1))
            there.wait_job("late", lambda j: verdict(j).get("blockedBy"))
        told = [verdict(there.get("TFJob", "late")) for there in (api, stranger)]
        names = ["a job of another namespace", f"TFJob/{stranger.namespace}/large"]
        assert [said["blockedBy"] for said in told] == [[name] for name in names]
        for said, name in zip(told, names, strict=True):
            sentence = f"the free room is kept for {name}, which comes first"
            assert said["message"].endswith(sentence)
        for kind in ("TFJob", "Pod", "PodGroup", "Event"):
            assert stranger.namespace not in json.dumps(api.list(kind)), kind
        assert f"{stranger.namespace}/" not in operator.scrape()
