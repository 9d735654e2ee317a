# SPDX-License-Identifier: Apache-2.0
"""Nodes that do not answer, and from when on the pods there count as lost."""

from __future__ import annotations

import math

import pytest

from muster.api import edge
from muster.api.tolerations import NodeTolerations
from muster.cluster.nodes import parse_node
from muster.store.away import (
    EVICTION_SECONDS,
    EVICTION_SECONDS_PER_POD,
    EVICTION_TIMEOUT_SECONDS,
    AwayNodes,
)
from support.builders.objects import make_job, make_pod, make_replica, make_template
from support.builders.scheduler import make_node

DOWN = 1_700_000_000.0
AFTER = 60.0
OUT = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
FENCE = OUT | {"effect": "NoSchedule"}
"""As OUT, but nobody takes away the pods that are there."""


def node(status="True", *, taints=()):
    """Return a node whose condition Ready has been so for a while."""
    document = make_node(name="n1")
    at = edge.format_time(DOWN)
    document["status"]["conditions"] = [
        {"type": "Ready", "status": status, "lastTransitionTime": at}
    ]
    document["spec"] = {"taints": list(taints)}
    return parse_node(document)


SURE = "the server has no such node"
OTHER = parse_node(make_node(name="n2"))
"""A node that is reachable: without it, all of the cluster were unreachable."""


def away(*views, inhabited=True):
    """Return the nodes that do not answer, after one node was seen so."""
    made, before = AwayNodes(lambda _name: ("pod",) * inhabited, AFTER, clock=lambda: DOWN), None
    made.node_changed(None, OTHER)
    for view in views:
        if view is SURE:
            made.confirm("n1")
            continue
        made.node_changed(before, view)
        before = view
    return made


def observed(nodes, now, *, job=None, **fields):
    """Return a pod as it is observed, and when that will change."""
    pod = make_pod(node="n1", role="worker", **{"phase": "Running", **fields})
    found, due = nodes.look(job, {"p": pod}, now)
    return found.get("p", pod), due


def state(nodes, now, *, job=None, **fields):
    """Return whether a pod is lost, whether it may make place, and when that will change."""
    pod, due = observed(nodes, now, job=job, **fields)
    return pod.lost, pod.fenced, due


JOB = make_job()
NEVER = math.inf


@pytest.mark.parametrize(
    ("nodes", "now", "expected"),
    [
        (away(node()), DOWN + 999, (False, False, NEVER)),
        (away(node("Unknown")), DOWN + 59, (False, False, DOWN + AFTER)),
        (away(node("Unknown")), DOWN + 60, (True, False, NEVER)),
        (away(node("False")), DOWN + 999, (False, False, NEVER)),
        (away(node("False", taints=[FENCE])), DOWN, (True, True, NEVER)),
        (away(node("Unknown"), node()), DOWN + 999, (False, False, NEVER)),
        (away(node("Unknown", taints=[FENCE])), DOWN, (True, True, NEVER)),
        (away(node(taints=[OUT])), DOWN, (False, False, NEVER)),
        (away(node(), None), DOWN + 999, (False, False, NEVER)),
        (away(node(), None, SURE), DOWN, (True, True, NEVER)),
        (away(node(), None, node()), DOWN, (False, False, NEVER)),
        (away(node(), None, SURE, node()), DOWN, (False, False, NEVER)),
        (away(node("Unknown"), None), DOWN + 60, (True, False, NEVER)),
        (away(node("Unknown", taints=[FENCE]), None), DOWN, (True, True, NEVER)),
        (away(SURE), DOWN, (True, True, NEVER)),
        (away(), DOWN, (False, False, NEVER)),
    ],
    ids=[
        *("ready", "not-for-long", "silent", "not-ready", "not-ready-and-out-of-service"),
        *("back", "out-of-service"),
        *("out-of-service-but-ready", "unseen", "gone", "made-anew", "gone-and-made-anew"),
        *("silent-and-unseen", "out-of-service-and-unseen", "never-seen-and-gone", "never-seen"),
    ],
)
def test_a_pod_of_a_job(nodes, now, expected):
    """By what its node says, or does not."""
    assert state(nodes, now, job=JOB) == expected


@pytest.mark.parametrize(
    ("views", "loses"),
    [
        ([node()], False),
        ([node("False")], False),
        ([node("Unknown")], True),
        ([node("Unknown"), node()], False),
        ([node("Unknown", taints=[FENCE])], True),
        ([node(), SURE], True),
    ],
)
def test_pods_may_be_lost_from_the_moment_that_their_node_is_unreachable(views, loses):
    """Long before they are treated as lost."""
    assert away(*views).loses("n1") == loses


def test_what_kubernetes_takes_away_is_lost_at_once():
    """One that has ended is not lost; how long pods of no job are missed, their maker knows."""
    nodes = away(node("Unknown"))
    assert state(nodes, DOWN, job=JOB, deleting=True) == (True, False, NEVER)
    assert state(nodes, DOWN + 99, job=JOB, phase="Failed") == (False, False, NEVER)
    assert state(nodes, DOWN + 999) == (False, False, NEVER)
    assert state(nodes, DOWN, deleting=True) == (True, False, NEVER)


EVICTED_AT = DOWN + EVICTION_SECONDS + 3 * EVICTION_SECONDS_PER_POD
"""When Kubernetes has evicted the pods of a node with three pods that was fenced at DOWN."""


def test_replacement_waits_until_kubernetes_has_evicted_the_pods_of_the_node():
    """Kubernetes deletes pods by name, replacements as well; after the timeout it is off.

    It evicts all of them again after each change of such a taint.
    """
    now, late = [DOWN], EVICTED_AT + EVICTION_TIMEOUT_SECONDS
    nodes = AwayNodes(lambda _name: ("a", "b", "c"), AFTER, clock=lambda: now[0])
    out = node("Unknown", taints=[OUT])
    nodes.node_changed(None, OTHER)
    nodes.node_changed(None, out)
    assert state(nodes, DOWN, job=JOB, deleting=True) == (True, False, EVICTED_AT)
    assert state(nodes, EVICTED_AT, job=JOB, deleting=True) == (True, True, NEVER)
    assert state(nodes, EVICTED_AT, job=JOB) == (True, False, late)
    assert state(nodes, late, job=JOB) == (True, True, NEVER)
    now[0] = DOWN + 4
    nodes.node_changed(out, out)
    assert state(nodes, now[0], job=JOB, deleting=True)[2] == EVICTED_AT
    unreachable = OUT | {"key": "node.kubernetes.io/unreachable"}
    nodes.node_changed(out, node("Unknown", taints=[OUT, unreachable]))
    assert state(nodes, now[0], job=JOB, deleting=True) == (True, False, EVICTED_AT + 4)


def test_pod_that_tolerates_out_of_service_is_replaced_at_once():
    """Kubernetes does not evict such a pod; pods of no job are not replaced by Muster."""
    nodes = away(node("Unknown", taints=[OUT]))
    tolerates = NodeTolerations(out_of_service=True)
    assert state(nodes, DOWN, job=JOB, tolerates=tolerates) == (True, True, NEVER)
    assert state(nodes, DOWN) == (True, True, NEVER)


def test_a_job_that_does_not_want_to_wait():
    """Its pods make place as soon as they are lost, and not before."""
    job = make_job(annotations={"muster.kubeflow.org/replace-unreachable": "force"})
    nodes = away(node("Unknown"))
    assert state(nodes, DOWN + 59, job=job) == (False, False, DOWN + AFTER)
    assert state(nodes, DOWN + 60, job=job) == (True, True, NEVER)
    # A drained pod has its grace period, and its kubelet may answer again.
    assert state(nodes, DOWN + 59, job=job, deleting=True) == (False, False, DOWN + AFTER)
    assert state(nodes, DOWN + 60, job=job, deleting=True) == (True, True, NEVER)
    # A batch Job creates no other pod, so that no place becomes free.
    assert state(nodes, DOWN + 60, job=job, maker="launcher") == (True, False, NEVER)
    fenced = away(node("Unknown", taints=[FENCE]))
    assert state(fenced, DOWN, job=job, maker="launcher") == (True, True, NEVER)


@pytest.mark.parametrize("tolerated", [300.0, 20.0])
def test_unreachable_pod_is_reported_before_it_is_lost(tolerated):
    """It is lost at the later of the flag and the toleration of the pod."""
    nodes, tolerates = away(node("Unknown")), NodeTolerations(tolerated)
    lost_at = DOWN + max(AFTER, tolerated)

    def at(now):
        pod, due = observed(nodes, now, job=JOB, tolerates=tolerates)
        return pod.unreachable, pod.lost, due

    assert at(DOWN + 59) == (False, False, DOWN + AFTER)
    assert at(lost_at) == (True, True, NEVER)
    if tolerated > AFTER:
        assert at(DOWN + 60) == (True, False, lost_at)
        assert at(lost_at - 1) == (True, False, lost_at)


def test_pod_that_tolerates_unreachable_without_limit_is_lost_when_it_is_deleted():
    """Until then the pod is reported as unreachable."""
    nodes, tolerates = away(node("Unknown")), NodeTolerations(math.inf)
    pod, due = observed(nodes, DOWN + 999, job=JOB, tolerates=tolerates)
    assert (pod.unreachable, pod.lost, due) == (True, False, NEVER)
    lost = state(nodes, DOWN + 999, job=JOB, tolerates=tolerates, deleting=True)
    assert lost == (True, False, NEVER)


@pytest.mark.parametrize(("own", "lost_at"), [(None, DOWN + 60), (20, DOWN + 60), (90, DOWN + 90)])
def test_forced_replacement_heeds_the_toleration_of_the_template_only(own, lost_at):
    """The API server adds 300 seconds to a pod whose template does not tolerate the taint."""
    key, effect = "node.kubernetes.io/unreachable", "NoExecute"
    given = {"operator": "Exists", "key": key, "effect": effect, "tolerationSeconds": own}
    template = make_template(tolerations=[given] if own else [])
    job = make_job(
        annotations={"muster.kubeflow.org/replace-unreachable": "force"},
        replicas=[make_replica(template=template)],
    )
    nodes, tolerates = away(node("Unknown")), NodeTolerations(own or 300.0)
    assert not state(nodes, lost_at - 1, job=job, tolerates=tolerates)[0]
    assert state(nodes, lost_at, job=job, tolerates=tolerates) == (True, True, NEVER)


def test_nodes_that_are_gone_are_not_remembered_for_ever():
    """Only while there are pods on them; nobody asks for one that had none."""
    nodes, other = away(node(), None, SURE), parse_node(make_node(name="n2"))
    assert list(nodes) == ["n1"]
    assert nodes.gone("n1")
    assert not away(node("Unknown", taints=[FENCE])).gone("n1")
    asked: list[str] = []
    nodes.vanished = asked.append
    nodes._inhabited = lambda name: name == "n2"
    nodes.node_changed(other, None)
    assert (list(nodes), asked) == ([], ["n2"])
    nodes.confirm("n2")
    assert list(nodes) == ["n2"]
    nodes._inhabited = lambda _name: False
    nodes.node_changed(other, None)
    assert (list(nodes), asked) == ([], ["n2"])
    assert not list(away(node("Unknown"), None, inhabited=False))


def test_node_is_unreachable_while_its_condition_ready_is_unknown():
    """A node that reports NotReady, or never reported, has a kubelet or had none."""
    assert node("Unknown").unreachable_since == DOWN
    assert node("False").unreachable_since is None
    assert node("True").unreachable_since is None
    document = make_node(name="n1")
    document["status"]["conditions"] = []
    assert parse_node(document).unreachable_since is None
    document["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert parse_node(document).unreachable_since == 0.0
    document["metadata"]["creationTimestamp"] = edge.format_time(DOWN)
    assert parse_node(document).unreachable_since == DOWN
