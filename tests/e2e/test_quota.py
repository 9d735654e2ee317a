# SPDX-License-Identifier: Apache-2.0
"""Quotas are looked at before a gang has any pod."""

from __future__ import annotations

import pytest

from support.e2e.gangs import moments
from support.e2e.harness import Api, Operator, add_nodes, of_job, phase_of, tfjob, verdict

pytestmark = pytest.mark.e2e

QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}


def test_quota_for_one_of_two_jobs(api: Api, operator: Operator) -> None:
    """One runs whole; the other waits whole, without a pod, and follows (U2)."""
    add_nodes(api, {"cpu": "8"})
    api.create({**QUOTA, "spec": {"hard": {"pods": "4"}}})
    since = api.revision("Pod")
    api.create(tfjob("first", workers=3, run="forever"))
    api.wait_job("first", lambda j: verdict(j).get("placed"))
    api.create(tfjob("second", workers=3, run="1"))
    job = api.wait_job("second", lambda j: verdict(j).get("blockedBy"), what="second is told")
    said = verdict(job)
    assert said["blockedBy"] == [f"resourcequota/{api.namespace}/few"]
    assert (said["state"], said["reason"]) == ("Waiting", "NotEnoughResources")
    assert "takes 3 pods more" in said["message"]
    assert said.get("everPossible", True)
    for pod in api.wait_pods(3, "Running", "first"):
        api.finish(pod["metadata"]["name"])
    api.wait_condition("first", "Succeeded")
    api.wait_condition("second", "Succeeded")
    for pods in moments(api, since):
        living = [p for p in pods.values() if phase_of(p) not in ("Succeeded", "Failed")]
        assert len(living) <= 4
        assert not (list(of_job(living, "first")) and list(of_job(living, "second")))
    assert not api.events("FailedCreatePod")
