# SPDX-License-Identifier: Apache-2.0
"""Gangs under other settings of the operator, and when pods cannot be created."""

from __future__ import annotations

import pytest

from support.e2e.gangs import holders, moments, unschedulable, wait_reason
from support.e2e.harness import (
    Api,
    Json,
    StartOperator,
    add_nodes,
    condition,
    node_of,
    of_job,
    tfjob,
    verdict,
)

pytestmark = pytest.mark.e2e


def wait_marked(api: Api, count: int) -> None:
    """Return once exactly so many pods wait for a node, and say why."""

    def marked(pods: dict[str, Json]) -> bool:
        waiting = [p for p in pods.values() if not node_of(p)]
        return len(waiting) == count and all(map(unschedulable, waiting))

    api.wait("Pod", marked, what=f"{count} pods that wait")


def test_a_budget_of_pending_pods(api: Api, start_operator: StartOperator) -> None:
    """Only the head of the queue shows its pods; when it starts, the next one does."""
    start_operator("--pending-pods-budget=4")
    add_nodes(api, {"cpu": "2"})
    api.create(tfjob("first", run="forever"))
    api.wait_pods(2, "Running", "first")
    since = api.revision("Pod")
    for index in range(5):
        api.create(tfjob(f"job-{index}", run="forever"))
        wait_reason(api, f"job-{index}", "NotEnoughResources")
    wait_marked(api, 4)
    assert len(api.list("PodGroup")) == 6
    assert len(api.pods()) == 6
    api.patch("TFJob", "first", {"spec": {"runPolicy": {"suspend": True}}})
    api.wait_pods(2, "Running")
    wait_marked(api, 4)
    for pods in moments(api, since):
        assert sum(not node_of(p) for p in pods.values()) <= 4


def test_pods_that_a_broken_webhook_keeps_from_being_created(
    api: Api, start_operator: StartOperator
) -> None:
    """The job gives its places back and says why; it follows when the webhook is mended."""
    start_operator()
    add_nodes(api, {"cpu": "2"})
    hook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "broken"},
        "webhooks": [
            {
                "name": "broken.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/nobody"},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
                "objectSelector": {"matchLabels": {"training.kubeflow.org/job-name": "hooked"}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
            }
        ],
    }
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    api.send("POST", hooks, hook)
    try:
        api.create(tfjob("hooked", run="forever"))
        api.wait_job("hooked", lambda j: verdict(j).get("reason"))
        api.create(tfjob("other", run="1"))
        api.wait_condition("other", "Succeeded")
        said = verdict(wait_reason(api, "hooked", "CreationRefused"))
        assert "failed calling webhook" in said["message"]
        assert not list(of_job(api.list("Pod"), "hooked"))
    finally:
        api.send("DELETE", f"{hooks}/broken")
    api.wait_pods(2, "Running", "hooked")


def test_a_gang_that_cannot_be_made_whole_begins_anew(
    api: Api, start_operator: StartOperator
) -> None:
    """When the hold is over all members go, others get the room, and the gang waits whole (S1)."""
    start_operator("--member-hold=2s", "--on-hold-expired=restart")
    add_nodes(api, {"cpu": "2"}, {"cpu": "2"})
    api.create(tfjob("gang", workers=4, run="forever", restart_policy="OnFailure"))
    api.wait_pods(4, "Running", "gang")
    api.create(tfjob("filler", workers=1, run="forever"))
    wait_reason(api, "filler", "NotEnoughResources")
    # Nothing runs on a node that is gone, so that its pods go without anybody's doing.
    api.delete("Node", "node-1")
    api.wait_pods(1, "Running", "filler")
    job = api.wait_job("gang", lambda j: verdict(j).get("state") == "Waiting")
    assert condition(job, "Failed") is None
    assert condition(job, "Restarting") == "True"
    assert not holders(api.pods(), "gang")
    add_nodes(api, {"cpu": "4"}, prefix="more")
    api.wait_pods(4, "Running", "gang")
