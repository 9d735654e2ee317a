# SPDX-License-Identifier: Apache-2.0
"""Jobs in flight that another operator created, on a real API server."""

from __future__ import annotations

import copy

from muster.api import names
from support.builders import recorded_jobs
from support.e2e.harness import Api, Json, condition, phase_of
from support.e2e.kinds import LAUNCHED

UNSTORED = ("uid", "creationTimestamp", "generation", "namespace")
PARTS = ("Pod", "Service", "ConfigMap", "HorizontalPodAutoscaler", "Job", "Secret", "Role")


def sort_of(job: Json) -> str:
    """Return the sort of a recorded job."""
    version = job["apiVersion"].rpartition("/")[2]
    return job["kind"] if version == "v1" else f"{job['kind']}-{version}"


def in_flight(api: Api, name: str) -> Json:
    """Create a recorded job as another operator left it, its pods running; return the job."""
    job, others = recorded_jobs.read(name)
    made = store(api, job, {})
    uids = {"job-uid": made["metadata"]["uid"]}
    # A batch Job's own controller makes its pods.
    batch = {o["metadata"]["uid"] for o in others if o["kind"] == "Job"}
    for other in others:
        owner = other["metadata"]["ownerReferences"][0]["uid"]
        if owner not in batch:
            stored = store(api, other, uids)
            uids[other["metadata"]["uid"]] = stored["metadata"]["uid"]
    path = api.path(sort_of(job), "mnist", "status")
    api.send("PATCH", path, {"status": job["status"]}, "application/merge-patch+json")
    count = sum(other["kind"] == "Pod" for other in others)
    api.wait(
        "Pod",
        lambda pods: [phase_of(p) for p in pods.values()] == ["Running"] * count,
        what="all run",
    )
    return made


def store(api: Api, document: Json, uids: dict[str, str]) -> Json:
    """Create a recorded object, as its owner is called now."""
    document = copy.deepcopy(document)
    document.pop("status", None)
    metadata = document["metadata"]
    for key in UNSTORED:
        metadata.pop(key, None)
    for owner in metadata.get("ownerReferences", ()):
        owner["uid"] = uids[owner["uid"]]
    return api.create(document)


def parts(api: Api) -> dict[tuple[str, str], str]:
    """Return the uid of all that belongs to jobs, by kind and name."""
    found = {}
    for kind in PARTS:
        for document in api.list(kind):
            if document["metadata"].get("ownerReferences"):
                found[kind, document["metadata"]["name"]] = document["metadata"]["uid"]
    return found


class Flight:
    """A recorded job, in a namespace of its own."""

    def __init__(self, name: str, api: Api) -> None:
        """Bring it there."""
        self.name, self.api = name, api
        self.sort = sort_of(in_flight(api, name))
        self.before, self.since = parts(api), api.revision("Pod")

    def wait_found(self, *kinds: str) -> None:
        """Return once it has its state, and what belongs to it our label."""
        running = "Running"
        self.api.wait_job(
            "mnist",
            lambda job: job["status"].get("state") == running,
            of=self.sort,
            what=self.name,
        )
        for kind in kinds:
            self.api.wait(kind, all_ours, what=f"{kind} of {self.name} labelled")

    def has_lost_nothing(self) -> None:
        """Check that all is there that was, and nothing twice."""
        now = parts(self.api)
        assert self.before.items() <= now.items(), self.name
        assert now.keys() == self.before.keys(), self.name
        pods = self.api.history("Pod", self.since)
        assert not [p for p in pods if "deletionTimestamp" in p["metadata"]], self.name

    def ends_well(self) -> None:
        """Let its programs end and see it succeed with the pods that it had."""
        for pod in self.api.list("Pod"):
            if self.sort not in LAUNCHED or "launcher" in pod["metadata"]["name"]:
                self.api.finish(pod["metadata"]["name"])
        found = self.api.wait_condition("mnist", "Succeeded", of=self.sort)
        assert found["status"]["state"] == "Succeeded", self.name
        assert condition(found, "Running") == "False", self.name
        assert work(parts(self.api)) <= work(self.before), self.name


def work(found: dict[tuple[str, str], str]) -> set[str]:
    """Return the uids of what does the job's work."""
    return {uid for (kind, _), uid in found.items() if kind in ("Pod", "Job")}


def all_ours(found: dict[str, Json]) -> bool:
    """Say whether all of these that belong to a job have our label."""
    owned = [o["metadata"] for o in found.values() if o["metadata"].get("ownerReferences")]
    # A pod that a batch Job has made carries what the launcher's template gave it.
    return all(names.OPERATOR_NAME in metadata.get("labels", {}) for metadata in owned)
