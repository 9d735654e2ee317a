# SPDX-License-Identifier: Apache-2.0
"""The main job: a TFJob from apply to Succeeded."""

from __future__ import annotations

import pytest

from support.e2e.harness import Api, Operator, add_nodes, condition_types, node_of, tfjob

pytestmark = pytest.mark.e2e


def test_a_tfjob_runs_as_a_gang_and_succeeds(api: Api, operator: Operator) -> None:
    """Pods are born on their nodes, run, end; the conditions tell the same story (S17, M1)."""
    add_nodes(api, {"cpu": "4"}, {"cpu": "4"})
    api.create(tfjob("mnist", workers=2, ps=1, run="forever"))
    api.wait_pods(3, "Running", "mnist")
    assert all(node_of(pod) for pod in api.pods("mnist"))
    api.wait("Service", lambda services: len(services) == 3)
    assert api.get("PodGroup", "mnist")["spec"]["minMember"] == 3
    api.wait_condition("mnist", "Running")
    for worker in range(2):
        api.finish(f"mnist-worker-{worker}")
    job = api.wait_condition("mnist", "Succeeded")
    assert condition_types(job) == [
        ("Created", "True"),
        ("Running", "False"),
        ("Succeeded", "True"),
    ]
    assert job["status"]["state"] == "Succeeded"
