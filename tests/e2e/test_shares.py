# SPDX-License-Identifier: Apache-2.0
"""Who may use which queue, and what admission makes of pods before there are any."""

from __future__ import annotations

import pytest

from support.e2e.admission import mutation, policy, there, tried, until
from support.e2e.gangs import wait_reason
from support.e2e.harness import (
    Api,
    Operator,
    add_nodes,
    node_of,
    tfjob,
    verdict,
)

pytestmark = pytest.mark.e2e


def test_what_admission_makes_of_pods_before_there_are_any(api: Api, operator: Operator) -> None:
    """A limit range and a policy that changes pods: the first one already has its right place."""
    _, chosen, _ = add_nodes(api, {"cpu": "8"}, {"cpu": "4"}, {"cpu": "8"})
    api.patch("Node", chosen, {"metadata": {"labels": {"story-disk": "ssd"}}})
    limits = {"type": "Container", "defaultRequest": {"cpu": "2"}, "default": {"cpu": "2"}}
    document = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"}}
    api.create({**document, "spec": {"limits": [limits]}})
    patch = '[JSONPatch{op: "add", path: "/spec/nodeSelector", value: {"story-disk": "ssd"}}]'
    since = api.revision("Pod")
    with there(api, *policy(api, "MutatingAdmissionPolicy", mutation(patch))):
        until(lambda: "nodeSelector" in tried(api)["spec"])
        api.create(tfjob("bare", workers=2, resources={"memory": "1Mi"}, run="forever"))
        pods = api.wait_pods(2, "Running", "bare")
        assert {node_of(pod) for pod in pods} == {chosen}
        assert {pod["spec"]["nodeSelector"]["story-disk"] for pod in pods} == {"ssd"}
        api.create(tfjob("more", workers=1, resources={"memory": "1Mi"}))
        said = verdict(wait_reason(api, "more", "NotEnoughResources"))
        assert "cpu" in said["message"]
        # Before the policy goes: without it there is a node for the second job too. Its pod may
        # stand there by now, for people and autoscalers to see, but has none.
        pods = api.history("Pod", since)
    placed = [pod for pod in pods if node_of(pod)]
    assert len({pod["metadata"]["uid"] for pod in placed}) == 2
    assert {pod["metadata"]["name"] for pod in placed} == {"bare-worker-0", "bare-worker-1"}
    assert {node_of(pod) for pod in placed} == {chosen}
