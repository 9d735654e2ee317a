# SPDX-License-Identifier: Apache-2.0
"""Who holds what of which node: GPUs and other devices, by job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster.api import names
from muster.api.model import PodView
from muster.cluster.nodes import NodeView
from muster.kube.client import Kube
from muster.kube.informer import Informer
from muster.kube.resources import BATCH_JOBS, NODES, PODS
from muster.store.informers import OURS
from muster.store.store import Store

Amounts = Mapping[str, int]
"""By resource, in the units of `api.quantity`."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What of a node is held, and by whom."""

    node: NodeView
    by: Mapping[str, Amounts]
    """KIND/NAMESPACE/NAME of a job, a group, or whatever else makes pods."""

    @property
    def state(self) -> str:
        """The word for whether pods may come here."""
        words = ["Ready" if self.node.ready else "NotReady"]
        return ",".join(words + ["Cordoned"] * self.node.unschedulable)

    @property
    def held(self) -> Amounts:
        """What all together hold."""
        total = Counter[str]()
        for amounts in self.by.values():
            total.update(amounts)
        return total


def devices(amounts: Amounts) -> dict[str, int]:
    """Return those of GPUs and other devices, by name."""
    return {name: amounts[name] for name in sorted(amounts) if "/" in name}


def informers(kube: Kube, store: Store) -> list[Informer]:
    """Return what has to be read or followed for that."""
    return [
        Informer(kube, NODES, store.collections["Node"]),
        Informer(kube, PODS, store.collections["Pod"]),
        Informer(kube, BATCH_JOBS, store.collections[names.BATCH_JOB], params=OURS),
    ]


def holdings(store: Store) -> Iterator[Holding]:
    """Yield what is held of each node, by name."""
    for (_, name), node in sorted(store.collections["Node"].objects.items()):
        by: dict[str, Counter[str]] = defaultdict(Counter)
        for use in store.columns.on(name):
            pod = store.children.pod(use.namespace, use.name)
            if pod is not None and use.nominated is None:
                amounts = dict(node.allocatable) if use.whole else dict(use.requests)
                by[holder(store, pod)].update(amounts)
        yield Holding(node, by)


def holder(store: Store, pod: PodView) -> str:
    """Return for whom a pod is there: its job, its gang, what controls it, or itself."""
    owner, group = store.children.job_of(pod.owner), store.foreign.key_of(pod)
    if owner is not None and owner.group == names.GROUP:
        return f"{owner.kind}/{owner.namespace}/{owner.name}"
    if group:
        return group
    if owner is not None:
        return f"{owner.kind}/{owner.namespace}/{owner.name}"
    return f"Pod/{pod.namespace}/{pod.name}"
