# SPDX-License-Identifier: Apache-2.0
"""What a cycle saw, as the tests of recordings want it."""

from muster.api.reasons import Reason
from muster.cluster import recording
from muster.cluster.gangs import GangRules
from muster.scheduler import cycle, policy
from muster.scheduler.model import Refusal
from support.builders.scheduler import (
    make_columns,
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
)

RULES = GangRules(frozenset({"muster", "kube-batch"}), "default", {"high": 1000})
PORT = {"containerPort": 80, "hostPort": 80}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}


def moving(mode="move"):
    """Return a policy that moves gangs, or proposes it."""
    given = {"name": "defragment", "arguments": {"defragment.mode": mode}}
    return policy.parse({"actions": "allocate, defragment", "configurations": [given]})


def seen(
    *,
    gangs,
    nodes=None,
    pods=(),
    queues=None,
    quotas=(),
    ranges=(),
    runtimes=(),
    chosen=policy.DEFAULT,
):
    """Return what a cycle saw, and what it decided."""
    columns = make_columns(nodes=[make_node()] if nodes is None else nodes, pods=pods)
    for quota in quotas:
        columns.quotas.quota_changed(None, quota)
    for limits in ranges:
        columns.quotas.limits_changed(None, limits)
    for runtime in runtimes:
        columns.quotas.runtime_changed(None, runtime)
    queues = [make_queue()] if queues is None else queues
    snapshot = columns.snapshot(gangs, queues, 1000.0, () if chosen.moves else None)
    made = recording.take(columns, gangs, queues, RULES, snapshot, chosen)
    return made, cycle.schedule(snapshot, chosen)


def rich(*, chosen=policy.DEFAULT):
    """Return a view with something of everything."""
    zoned = make_role(
        role="ps", replicas=1, cpu=1, ports=[PORT], affinity=APART, previous={0: "n1"}
    )
    return seen(
        nodes=[
            make_node(name="n2", gpu=4, labels={"zone": "a"}),
            make_node(labels={"zone": "b"}, conditions={"DiskPressure": True}),
        ],
        pods=[make_pod(cpu=1, ports=[PORT, {"containerPort": 81, "hostPort": 81}])],
        queues=[make_queue(gpu=8), make_queue(name="other", weight=3)],
        gangs=[
            make_gang(key="team/a", roles=[make_role(replicas=4, gpu=2), zoned]),
            make_gang(key="team/b", queue="other", min_resources={"cpu": 2000}),
            make_gang(key="team/c", refusal=Refusal(Reason.GROUP_MISSING, "no group")),
            make_gang(key="team/d", roles=[make_role(held=[(0, "n2")], waiting=[1], cpu=1)]),
        ],
        chosen=chosen,
    )
