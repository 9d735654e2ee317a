# SPDX-License-Identifier: Apache-2.0
"""What the scheduler has to do with each task of a gang."""

import pytest

from muster.cluster import tasks
from muster.cluster.pods import PodShape
from muster.cluster.tasks import Plan, TaskSet
from support.builders.objects import make_pod

PLACE = "mnist-worker-0"


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(
    "ended",
    [{"phase": "Failed"}, {"node": "n1", "deleting": True}, {"gated": True, "deleting": True}],
    ids=["failed", "going", "going-gated"],
)
def test_who_follows_a_pod_that_ends_has_the_gates_of_the_template(gated, ended):
    """Room that is kept for one that may not have it yet is kept from all others."""
    worker = TaskSet("worker", PodShape((("cpu", 1000),)), 0, {0: PLACE}, gated=gated)
    (role,), _ = tasks.roles([worker], {PLACE: make_pod(name=PLACE, **ended)}, Plan())
    assert (role.gated, role.returning) == ((1, ()) if gated else (0, (0,)))


@pytest.mark.parametrize("later", [True, False])
def test_successor_of_a_failed_pod_is_placed_by_the_template(later):
    """The failed pod stays until then: neither its selector nor its quota applies."""
    worker = TaskSet(
        "worker", PodShape((("cpu", 1000),)), 0, {0: PLACE}, selector={"a": "b"}, charge={"q": 1}
    )
    failed = make_pod(name=PLACE, phase="Failed", node="n1")
    plan = Plan(replaced={PLACE}, later={PLACE} if later else ())
    (role,), coming = tasks.roles([worker], {PLACE: failed}, plan)
    assert (list(role.waiting), list(role.returning)) == (([], [0]) if later else ([0], []))
    assert role.absent == (frozenset() if later else {0})
    assert coming == {"q": 0}


def test_successor_is_not_charged_for_what_a_quota_still_counts_of_the_failed_pod():
    """The failed pod and its claims count until the successor, whose turn is then, has a node."""
    charge = {f"team/q/{each}": 1 for each in ("pods", "count/pods", "requests.storage")}
    places, names = {0: PLACE, 1: "new", 2: "ours"}, {PLACE: "n1"}
    worker = TaskSet("worker", PodShape((("cpu", 1000),)), 0, places, charge=charge)
    pods = {PLACE: make_pod(name=PLACE, phase="Failed", node="n1"), "ours": make_pod(name="ours")}
    roles, _ = tasks.roles([worker], pods, Plan(replaced={PLACE}, previous=names))
    assert [(role.waiting, role.absent) for role in roles] == [((1, 2), {1}), ((0,), {0})]
    assert [role.charge for role in roles] == [charge, {"team/q/pods": 1}]
    assert roles[1].previous == {0: "n1"}


def test_pods_with_other_requests_than_their_template_are_a_role_apart():
    """A template that is edited does not change the pods that were created from it."""
    worker = TaskSet("worker", PodShape((("cpu", 8000),)), 0, {i: f"w-{i}" for i in range(5)})
    small, large = (("cpu", 1000),), (("cpu", 8000),)
    pods = {
        "w-0": make_pod(name="w-0", node="n1", requests=small),
        "w-1": make_pod(name="w-1", node="n2", requests=large),
        "w-2": make_pod(name="w-2", node="n3", requests=small),
        "w-3": make_pod(name="w-3", deleting=True, node="n3", requests=small),
    }
    roles, _ = tasks.roles([worker], pods, Plan(assumed={"w-3": "n4"}))
    held = [(role.allocated, role.held, len(role.started)) for role in roles]
    assert held == [(large, ((1, "n2"), (3, "n4")), 2), (small, ((0, "n1"), (2, "n3")), 2)]
    assert [role.shape.requests for role in roles] == [large, large]
    assert [list(role.waiting) for role in roles] == [[4], []]
