# SPDX-License-Identifier: Apache-2.0
"""Builders of what the scheduler sees: keyword-only, with sane defaults, quantities as in YAML."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from muster.api import quantity
from muster.api.reasons import QueuePhase
from muster.cluster import storage
from muster.cluster.gangs import GangInput
from muster.cluster.nodes import parse_node
from muster.cluster.pods import parse_use, shape_of
from muster.cluster.queues import QueueInput, QueueShape
from muster.cluster.quota import views_of
from muster.cluster.state import ClusterColumns
from muster.cluster.tasks import RoleInput, lying
from muster.scheduler import cycle, policy
from muster.scheduler.affinity import AffinityState
from muster.scheduler.ask import Ask
from muster.scheduler.session import Session

STORED = {
    "claims": storage.parse_claim,
    "volumes": storage.parse_volume,
    "classes": storage.parse_class,
    "limits": storage.parse_attach,
    "drivers": storage.parse_driver,
    "capacities": storage.parse_capacity,
}


def make_node(
    *, name="n1", labels=None, taints=(), unschedulable=False, conditions=None, **amounts
):
    """Return a node document; amounts are allocatable, `gpu` is short for nvidia.com/gpu."""
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110"} | _named(amounts)
    states = {"Ready": True} | (conditions or {})
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {
            "allocatable": {r: str(amount) for r, amount in allocatable.items()},
            "conditions": [
                {"type": kind, "status": "True" if state else "False"}
                for kind, state in states.items()
            ],
        },
    }


def make_template(*, ports=(), labels=None, **fields):
    """Return a pod template; fields that are no part of a pod's spec are requests."""
    spec = {name: fields.pop(name) for name in list(fields) if name in _SPEC}
    container = {"name": "main", "ports": list(ports)}
    if fields:
        container["resources"] = {"requests": {r: str(v) for r, v in _named(fields).items()}}
    metadata = {"labels": labels} if labels else {}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}}


def make_pod(*, name="pod", node="n1", namespace="other", uid="", phase="Running", **fields):
    """Return a document of a pod that runs on a node, or for which one is nominated."""
    deleting, nominated = fields.pop("deleting", False), fields.pop("nominated", "")
    pod = make_template(**fields)
    pod["metadata"] |= {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"}
    if deleting:
        pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": phase}
    if nominated:
        pod["status"]["nominatedNodeName"] = nominated
    return pod


def make_role(*, role="worker", replicas=None, template=None, namespace="team", **fields):
    """Return a role; `replicas` tasks wait; fields beside a role's own are requests."""
    known = RoleInput.__dataclass_fields__
    own = {name: fields.pop(name) for name in list(fields) if name in known}
    if replicas is not None:
        own["waiting"] = range(replicas)
    if "charge" in own:
        own["absent"] = frozenset(own.get("absent", own.get("waiting", ())))
    shape = shape_of(template or make_template(**fields), namespace)
    made = RoleInput(role=role, shape=shape, **own)
    return made if made.topology is None else lying(made, made.topology)


def make_gang(*, key="team/a", roles=None, min_member=None, **fields):
    """Return a gang of all its roles' tasks, by default two workers of one cpu."""
    roles = tuple(roles if roles is not None else [make_role(replicas=2, cpu=1)])
    total = sum(
        len(r.waiting) + len(r.returning) + r.gated + len(r.held) + r.succeeded for r in roles
    )
    values = {"uid": key, "queue": "default", "created": 0.0} | fields
    least = total if min_member is None else min_member
    return GangInput(key=key, min_member=least, roles=roles, **values)


def make_queue(*, name="default", weight=1, **fields):
    """Return a queue; fields beside a queue's own are its capability, in quantities."""
    own = {one: fields.pop(one) for one in list(fields) if one in QueueInput.__dataclass_fields__}
    shape = {one: fields.pop(one) for one in list(fields) if one in QueueShape.__slots__}
    if shape:
        own["shape"] = QueueShape(
            shape.pop("parent", ""), **{one: _units(amounts) for one, amounts in shape.items()}
        )
    if "state" in own:
        own["state"] = QueuePhase(own["state"])
    if "priority_classes" in own:
        own["priority_classes"] = frozenset(own["priority_classes"])
    return QueueInput(name, weight, capability=_units(fields), **own)


def _units(amounts):
    return {r: quantity.units(r, str(v)) for r, v in _named(amounts).items()}


def make_columns(*, nodes=(), pods=(), stored=()):
    """Return the columns of these documents, and of views of claims, volumes and their classes."""
    columns = ClusterColumns()
    for node in nodes:
        columns.node_changed(None, parse_node(node))
    for pod in pods:
        columns.pod_changed(None, parse_use(pod, foreign=True))
    for view in stored:
        columns.volumes.changed(None, view)
    return columns


def make_snapshot(
    *, nodes=None, pods=(), gangs=(), queues=None, quotas=None, stored=(), now=1000.0, moves=None,
    devices=frozenset(),
):  # fmt: skip
    """Return what a cycle sees; by default one node and the default queue.

    `stored`: views of claims, volumes and storage classes. `moves`: those of the last hour, if
    more are asked for. `devices`: the resources that DeviceClasses offer.
    """
    nodes = [make_node()] if nodes is None else nodes
    columns = make_columns(nodes=nodes, pods=pods, stored=stored)
    for quota in views_of(quotas or {}, {}):
        columns.quotas.quota_changed(None, quota)
    queues = [make_queue()] if queues is None else queues
    seen = columns.snapshot(list(gangs), queues, now, moves)
    return replace(seen, device_resources=devices)


def run(*, with_policy=policy.DEFAULT, **parts):
    """Return gang key -> its decision, on a snapshot of the parts."""
    decisions = cycle.schedule(make_snapshot(**parts), with_policy)
    return {decision.gang: decision for decision in decisions}


def make_session(*, with_policy=policy.DEFAULT, **parts):
    """Return the session of a cycle on a snapshot of the parts."""
    return Session(make_snapshot(**parts), with_policy.openers())


def admits(columns, node, shape):
    """Return whether a pod of the shape fits the node, and terms about other pods let it."""
    probe = make_gang(key="other/probe", roles=[RoleInput("", 0, shape=shape, waiting=range(1))])
    snapshot = columns.snapshot([probe], [make_queue()], 0.0)
    id_ = snapshot.gangs[0].pod_sets[0].shape
    allowed = AffinityState({id_: snapshot.shapes[id_].affinity}).open(id_)
    let = allowed is None or bool(allowed[snapshot.nodes.index[node]])
    return let and columns.fits(node, shape)


def nodes_of(decision):
    """Return `role-index` -> node of the placements."""
    return {f"{p.role}-{p.index}": p.node for p in decision.placements}


_SPEC = frozenset(
    {
        "nodeSelector",
        "affinity",
        "tolerations",
        "nodeName",
        "hostNetwork",
        "topologySpreadConstraints",
        "resourceClaims",
        "initContainers",
        "overhead",
        "priority",
        "volumes",
    }
)


def _named(amounts):
    return {"nvidia.com/gpu" if r == "gpu" else r: v for r, v in amounts.items()}


def place_and_undo(session: Session) -> None:
    """Place the tasks of all gangs, as many as there is room for, and take all of it back."""
    for gang in session.gangs:
        for tasks in gang.tasks:
            picks = session.fit(Ask(gang), tasks).choose(tasks.left)
            if picks.order:
                session.place(gang, tasks, picks)
    session.undo(0)


def check_batch(snapshot, rules, count):
    """Assert that so many tasks chosen at once get the nodes that one at a time gives."""
    together, apart = Session(snapshot, rules.openers()), Session(snapshot, rules.openers())
    batch = together.fit(Ask(together.gangs[0]), together.gangs[0].tasks[0]).choose(count)
    gang, order = apart.gangs[0], []
    for _ in range(count):
        picks = apart.fit(Ask(gang), gang.tasks[0]).choose(1)
        if not picks.order:
            break
        apart.place(gang, gang.tasks[0], picks)
        order += picks.order
    assert batch.order == order
    assert Counter(order) == dict(zip(batch.nodes.tolist(), batch.counts.tolist(), strict=True))
