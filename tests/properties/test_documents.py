# SPDX-License-Identifier: Apache-2.0
"""Whatever an API server stores: it is read, and what one writes stops nobody else's work.

The documents come from `tests/support/chaos/random_documents.py`: all kinds that are watched,
drawn from their schemas.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from muster import gang
from muster.allocator.members import GangSettings
from muster.cluster import recording
from muster.cluster.assemble import assemble
from muster.cluster.gangs import GangRules
from muster.frameworks import FRAMEWORKS
from muster.scheduler import cycle, policy
from muster.store.store import Callbacks, Store
from support.apiserver.memory import tfjob
from support.builders.scheduler import make_node
from support.chaos import random_documents
from support.rehearsal.gang_tracking import Shown, reconcile_all, tracked

NOW = 1_800_000_000.0
DRAWN = (random_documents.document, random_documents.mutated)
SEEDS = st.integers(0, 2**40)
BATCH = 24
"""Documents of one cluster."""
CLUSTERS = settings(max_examples=max(25, settings().max_examples // 4))
PLAIN = policy.parse({"tiers": [{"plugins": [{"name": "gang"}, {"name": "predicates"}]}]})
"""No share of a queue and no priority: who has room gets it."""
ALL = policy.parse({"actions": "allocate, backfill, preempt, reclaim, defragment"})
QUIET = "TFJob/quiet/mnist"


class Cluster(Shown):
    """A store with one job that has a node for itself, and whatever else is shown to it."""

    def __init__(self):
        """Begin with the quiet job."""
        self.told = []
        callbacks = Callbacks(unreadable=lambda about, why: self.told.append((about, why)))
        self.store = Store(gang.EMBEDDED, FRAMEWORKS.values(), callbacks=callbacks)
        self.store.groups.use(gang.EMBEDDED.apis[0])
        for groups in self.store.podgroups.others.values():
            groups.use(groups.backend.apis[0])
        settings = GangRules(frozenset({"muster"}), "default", self.store.priorities)
        self.settings = GangSettings(settings)
        self.gangs = tracked(self.store)
        self.store.arrived = lambda pod: self.gangs.arrived(pod, NOW)
        self.shown = {}
        self._begin()

    def _begin(self):
        node = make_node(name="quiet-node", cpu=2, labels={"quiet": "yes"})
        node["spec"]["taints"] = [{"key": "quiet", "value": "yes", "effect": "NoSchedule"}]
        self.put({"kind": "Node", **node})
        self.put({"kind": "Queue", "metadata": {"name": "default"}})
        self.put({"kind": "Queue", "metadata": {"name": "quiet"}})
        spec = {
            "nodeSelector": {"quiet": "yes"},
            "tolerations": [{"key": "quiet", "operator": "Exists"}],
            "containers": [
                {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": "1"}}}
            ],
        }
        job = tfjob(name="mnist", Worker={"replicas": 2, "template": {"spec": spec}})
        job["spec"]["runPolicy"] = {"schedulingPolicy": {"queue": "quiet"}}
        job["metadata"] |= {"namespace": "quiet", "creationTimestamp": "2024-01-01T00:00:00Z"}
        self.put(job)

    def show(self, seed, count=BATCH):
        """Show documents of many kinds, some of them in the place of others."""
        dice = random.Random(seed)
        kinds = [*random_documents.KINDS, *["Pod", "Node"] * 4, *random_documents.JOBS]
        for kind in dice.choices(kinds, k=count):
            made = dice.choice(DRAWN)(kind, dice.randrange(2**40))
            made["metadata"]["generation"] = self.version + 1
            if made["kind"] != "PodGroup":
                self.put(made)
            else:
                self._group(made)
            meta = made["metadata"]
            self.shown[made["kind"], meta.get("namespace", ""), meta["name"]] = meta["uid"]

    def _group(self, made):
        """Show a group to the collection of its API: all are called the same."""
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        for groups in (self.store.groups, *self.store.podgroups.others.values()):
            for _, collection in groups.collections():
                if groups.api.api_version == made["apiVersion"]:
                    collection.apply(made)

    def cycle(self, chosen):
        """Return what a cycle sees, and what it decides by that policy."""
        inputs = self.gangs.inputs(self.settings, NOW)
        queues, columns = list(self.store.queues.values()), self.store.columns
        moves = () if "defragment" in chosen.actions else None
        snapshot = assemble(columns, inputs, queues, NOW, moves)
        decisions = cycle.schedule(snapshot, chosen)
        saw = recording.take(columns, inputs, queues, self.settings.rules, snapshot, chosen)
        return inputs, decisions, saw

    def overfull(self, inputs, decisions):
        """Yield (node, resource) of which more was given than there is, in numbers of any size."""
        nodes, uses, _ = self.store.columns.contents()
        there = {node.name: dict(node.allocatable) for node in nodes}
        used, given = {name: Counter() for name in there}, {name: set() for name in there}
        for use in uses:
            if use.node in there:
                used[use.node].update(dict(use.requests))
                if use.whole:
                    used[use.node].update(dict.fromkeys(("cpu", "memory", "pods"), 10**60))
        roles = {(g.key, i, r.role): r.shape for g in inputs for i, r in enumerate(g.roles)}
        for decision in decisions:
            for placed in decision.placements:
                shapes = [
                    s
                    for (k, _, role), s in roles.items()
                    if (k, role) == (decision.gang, placed.role)
                ]
                if len(shapes) == 1:
                    used[placed.node].update(dict(shapes[0].requests))
                    given[placed.node] |= dict(shapes[0].requests).keys()
        for name, resources in given.items():
            for resource in resources:
                if used[name][resource] > there[name].get(resource, 0):
                    yield name, resource


@contextlib.contextmanager
def unforeseen():
    """Yield what is logged with a traceback meanwhile: what no parser has foreseen."""
    found, logger, handler = [], logging.getLogger("muster"), logging.Handler()
    handler.emit = lambda record: found.append(str(record.exc_info)) if record.exc_info else None
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


@given(seed=SEEDS)
@CLUSTERS
def test_every_document_is_read(seed):
    """By a parser that foresees it; what it cannot understand is told on that object alone."""
    dice, cluster = random.Random(seed), Cluster()
    for kind in dice.choices(random_documents.KINDS, k=BATCH):
        made = dice.choice(DRAWN)(kind, dice.randrange(2**40))
        with unforeseen() as found:
            if made["kind"] == "PodGroup":
                cluster._group(made)
            else:
                cluster.put(made)
        assert not found, (kind, found, made)
    for job in cluster.store.jobs:
        assert job.name
    counted = cluster.store.unreadable()
    assert sum(counted.values()) <= len(cluster.told)
    assert {about["kind"] for about, _ in cluster.told} >= set(counted)
    assert all(about["apiVersion"] and why.reason for about, why in cluster.told)


@given(seed=SEEDS)
@CLUSTERS
def test_a_cycle_and_a_pass_go_on(seed):
    """Whatever there is, nobody gets more than there is, and the quiet job has its room."""
    cluster = Cluster()
    for part in range(3):
        cluster.show(seed + part, BATCH // 3)
        for chosen in (PLAIN, policy.DEFAULT, ALL):
            inputs, decisions, saw = cluster.cycle(chosen)
            assert not list(cluster.overfull(inputs, decisions)), chosen.actions
        _, decisions, saw = cluster.cycle(PLAIN)
        placed = {d.gang: {p.node for p in d.placements} for d in decisions}
        elsewhere = [g for g, nodes in placed.items() if "quiet-node" in nodes and g != QUIET]
        assert placed[QUIET] == {"quiet-node"} or elsewhere, (placed, saw)
        reconcile_all(cluster.store, NOW)
    again, _ = recording.load(recording.dump(saw, decisions))
    assert recording.plain(again.decide()) == recording.plain(decisions)


@given(seed=SEEDS)
@CLUSTERS
def test_what_goes_leaves_nothing_behind(seed):
    """Sums that were beyond all bounds are back at what is there."""
    cluster = Cluster()
    cluster.show(seed)
    cluster.cycle(PLAIN)
    for (kind, namespace, name), uid in cluster.shown.items():
        cluster.store.gone(kind, namespace, name, uid)
    for groups in (cluster.store.groups, *cluster.store.podgroups.others.values()):
        for _, collection in groups.collections():
            for namespace, name in list(collection.objects):
                collection.discard(namespace, name, f"uid-PodGroup-{name}")
    inputs, decisions, _ = cluster.cycle(PLAIN)
    (decision,) = decisions
    assert {p.node for p in decision.placements} == {"quiet-node"}
    nodes = assemble(cluster.store.columns, inputs, [], NOW).nodes
    assert nodes.names == ("quiet-node",)
    assert not nodes.used.any()
    assert not nodes.load.any()
