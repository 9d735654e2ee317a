# SPDX-License-Identifier: Apache-2.0
"""Gangs whose pod names are still used by pods that are being deleted."""

import pytest

from muster import gang
from muster.api import edge
from muster.api.reasons import GangPhase, Reason
from muster.api.status import Verdict
from support.apiserver.memory import START, World, tfjob

NODES = {f"mnist-worker-{i}": f"n{i}" for i in range(3)}


def again(*, used, backend=gang.EMBEDDED, policy=None):
    """Return the world of a job that was deleted and applied again while pods terminate."""
    old = World(tfjob(Worker=3), backend=gang.NONE).settle().start()
    world = World(tfjob(Worker=3, policy=policy), backend=backend, placements=NODES)
    for number in used:
        pod = old.pod(f"mnist-worker-{number}")
        pod["metadata"]["ownerReferences"][0]["uid"] = "uid-of-the-first-job"
        pod["metadata"]["deletionTimestamp"] = edge.format_time(START)
        pod["spec"]["nodeName"] = "n9"
        world.objects["Pod", pod["metadata"]["name"]] = pod
    return world


@pytest.mark.parametrize("backend", [gang.EMBEDDED, gang.VOLCANO])
def test_gang_with_name_in_use_creates_no_pod(backend):
    """All are created in one reconcile after the last old pod is removed."""
    world = again(used=[1], backend=backend)
    world.extra |= {} if backend is gang.EMBEDDED else {"placements": None}
    assert world.creates() == []
    if backend.embedded:
        world.settle().lose("mnist-worker-1")
        assert world.creates() == [*NODES]


def test_gang_with_name_in_use_reports_pod_and_node():
    """The verdict names the count, the oldest pod and its node; the job is Queued."""
    world = again(used=[1, 2])
    world.pod("mnist-worker-1")["metadata"]["creationTimestamp"] = edge.format_time(START)
    world.pod("mnist-worker-2")["metadata"]["creationTimestamp"] = edge.format_time(START - 9)
    status = world.give(placements={}).settle().status
    assert status["state"] == "Queued"
    assert status["gang"]["reason"] == "NamesInUse"
    assert "2 pod(s)" in status["gang"]["message"]
    assert "mnist-worker-2 on node n9" in status["gang"]["message"]


@pytest.mark.parametrize("process", ["same", "next"])
def test_preempted_gang_reports_the_preemptor_while_its_pods_terminate(process):
    """The names of its own pods are no reason of their own, also after a kill of the operator."""
    told = Verdict("muster", GangPhase.RELEASED, reason=Reason.PREEMPTED, message="evicted for hi")
    world = again(used=[]).run().give(verdict=told, placements={}).settle()
    world.terminate(*NODES).give(verdict=told if process == "same" else None).settle()
    found = world.status["gang"]
    assert (found["state"], found["reason"]) == ("Released", "Preempted")
    assert found["message"] == "evicted for hi"
    assert world.creates() == []


def test_name_beyond_the_minimum_does_not_delay_the_gang():
    """Surplus members wait for their own names."""
    world = again(used=[2], policy={"schedulingPolicy": {"minAvailable": 2}})
    assert world.creates() == ["mnist-worker-0", "mnist-worker-1"]


def test_replacement_of_single_member_waits_for_its_own_name_only():
    """A terminating member does not delay the replacement of another one."""
    world = again(used=[])
    world.run().terminate("mnist-worker-1").lose("mnist-worker-2")
    assert world.creates() == ["mnist-worker-2"]
