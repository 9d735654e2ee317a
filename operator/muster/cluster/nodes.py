# SPDX-License-Identifier: Apache-2.0
"""Nodes: parsed, matched by kube-scheduler's rules, kept in growing arrays of reused slots."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from muster.api import edge, names, quantity
from muster.api.model import Json
from muster.cluster.pods import PodShape, Requests, Taint, Term, Toleration
from muster.cluster.selectors import PodAffinityTerm, meets
from muster.scheduler.model import (
    BASE_RESOURCES,
    PODS,
    SLOT,
    CodeArray,
    FloatArray,
    IntArray,
    Link,
    Nodes,
)

CLOSING: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
"""Beginnings of taint keys that are meant against everybody."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """What the scheduler needs of a node."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    pressure: tuple[bool, bool, bool]
    """Of memory, disk, process ids."""
    allocatable: Requests
    """`pods` included."""
    unreachable_since: float | None = None
    """When its condition Ready became Unknown; None: it is True or False."""

    @property
    def usable(self) -> bool:
        """Say whether anybody's pods may come here; nodes set apart for some are for somebody."""
        # Other taints reserve a node for pods that tolerate them: it counts for shared totals.
        closed = any(taint.key.startswith(CLOSING) for taint in self.taints)
        return self.ready and not self.unschedulable and not closed

    @property
    def out_of_service(self) -> bool:
        """Say whether an administrator has seen to it that it runs nothing."""
        fenced = any(taint.key == names.OUT_OF_SERVICE_TAINT for taint in self.taints)
        return not self.ready and fenced

    @property
    def evicts(self) -> bool:
        """Say whether by the same taint Kubernetes takes away every pod that does not bear it."""
        keys = {taint.key for taint in self.evictions}
        return self.out_of_service and names.OUT_OF_SERVICE_TAINT in keys

    @property
    def evictions(self) -> tuple[Taint, ...]:
        """The taints for which Kubernetes evicts pods that do not tolerate them."""
        return tuple(taint for taint in self.taints if taint.effect == "NoExecute")


def parse_node(doc: Json) -> NodeView:
    """Return what the scheduler needs of a node. ValueError for what is no quantity."""
    spec, status = doc.get("spec") or {}, doc.get("status") or {}
    states = {c["type"]: c["status"] == "True" for c in status.get("conditions") or ()}
    amounts = status.get("allocatable") or {}
    return NodeView(
        name=doc["metadata"]["name"],
        labels=doc["metadata"].get("labels") or {},
        taints=tuple(
            Taint(t["key"], t.get("value") or "", t["effect"])
            for t in spec.get("taints") or ()
            # It keeps nobody away, it only lowers a score.
            if t["effect"] != "PreferNoSchedule"
        ),
        unschedulable=bool(spec.get("unschedulable")),
        ready=states.get("Ready", False),
        unreachable_since=_unreachable_since(doc, status),
        pressure=(
            states.get("MemoryPressure", False),
            states.get("DiskPressure", False),
            states.get("PIDPressure", False),
        ),
        allocatable=tuple(sorted((r, quantity.units(r, text)) for r, text in amounts.items())),
    )


def _unreachable_since(doc: Json, status: Json) -> float | None:
    found = (c for c in status.get("conditions") or () if c["type"] == "Ready")
    ready: Json = next(found, {})
    if ready.get("status") != "Unknown":
        return None
    times = ready.get("lastTransitionTime"), doc["metadata"].get("creationTimestamp")
    return next((at for at in map(edge.parse_time, times) if at is not None), 0.0)


NOT_READY: Final = "node(s) were not ready"
UNSCHEDULABLE: Final = "node(s) were unschedulable"
OTHER_NAME: Final = "node(s) didn't match the requested node name"
NO_MATCH: Final = "node(s) didn't match Pod's node affinity/selector"
NOT_NEAR: Final = "node(s) didn't match pod affinity rules"
NO_DOMAIN: Final = "node(s) didn't match pod topology spread constraints (missing required label)"
_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def barrier(shape: PodShape, node: NodeView) -> str:
    """Return kube-scheduler's reason against the node, else empty; usage does not matter."""
    if not node.ready:
        return NOT_READY
    # In the order of kube-scheduler's filters, so that both name the same reason.
    if node.unschedulable and not _tolerated(_CORDON, shape.tolerations):
        return UNSCHEDULABLE
    if shape.node_name and shape.node_name != node.name:
        return OTHER_NAME
    for taint in node.taints:
        if not _tolerated(taint, shape.tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not _selected(shape, node):
        return NO_MATCH
    ties = (tie for tie in shape.ties if tie.link in _MISSING)
    return next((_MISSING[tie.link] for tie in ties if tie.key not in node.labels), "")


def selected(shape: PodShape) -> Mapping[str, frozenset[str]]:
    """Return the node labels that the shape requires, each with the values that it accepts.

    Terms of a node affinity are alternatives, so they count only if there is exactly one.
    """
    found = {key: frozenset({value}) for key, value in shape.selector}
    for one in shape.affinity[0].labels if shape.affinity and len(shape.affinity) == 1 else ():
        if one.operator == "In":
            found[one.key] = frozenset(one.values) & found.get(one.key, frozenset(one.values))
    return found


def counts(shape: PodShape, term: PodAffinityTerm, node: NodeView) -> bool:
    """Say whether the policies of a spread constraint let pods on the node count."""
    if term.honours_affinity and not _selected(shape, node):
        return False
    return not term.honours_taints or all(_tolerated(t, shape.tolerations) for t in node.taints)


def preference(shape: PodShape, node: NodeView) -> float:
    """Return the share of the shape's preferred terms that the node matches, 0 - 100."""
    weights = sum(weight for weight, _ in shape.preferred)
    matched = sum(weight for weight, term in shape.preferred if holds(term, node))
    return 100 * matched / weights if weights else 0.0


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(toleration.covers(taint) for toleration in tolerations)


def _selected(shape: PodShape, node: NodeView) -> bool:
    if any(node.labels.get(key) != value for key, value in shape.selector):
        return False
    return shape.affinity is None or any(holds(term, node) for term in shape.affinity)


def holds(term: Term, node: NodeView) -> bool:
    """Say whether all requirements of a term hold for a node; false for a term without any."""
    if not term.labels and not term.fields:
        return False
    fields = {"metadata.name": node.name}
    return all(meets(e, node.labels) for e in term.labels) and all(
        meets(e, fields) for e in term.fields
    )


_MISSING: Final = {Link.NEAR: NOT_NEAR, Link.EVEN: NO_DOMAIN}
"""Why a node without the label of such a term is out."""


ALWAYS: Final = frozenset({*BASE_RESOURCES, "ephemeral-storage"})
"""The resources that are read whether or not a gang requests them."""
SHARED: Final = "resources that no node offers"
"""The column of those beyond the first `MOST_INVENTED`: each that is asked for counts once."""
MAX_IDLE_DEVICES: Final = 8
"""Maximum number of extended resources that have a column though no gang requests them."""
_ONE_POD: Final = (BASE_RESOURCES[PODS], SLOT)
MOST_INVENTED: Final = 64
"""How many resources that no node offers have a column, and so are told by their name."""

MAX_GROUPINGS: Final = 64
"""Maximum number of sets of labels by which the groups of nodes are stored."""


class Vocabulary:
    """The columns of resource names, only added until `begin`, and the vectors of amounts.

    A name has a column if a gang requests it, a queue limits it, or it is one of `ALWAYS` that a
    node offers; so have the `MAX_IDLE_DEVICES` devices that most nodes offer, for the dashboard.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Remove all names but the base resources."""
        self.names = list(BASE_RESOURCES)
        self.columns = {name: column for column, name in enumerate(self.names)}
        self._offered = Counter[str]()
        """The names that nodes offer, with the number of these nodes."""
        self._devices: tuple[str, ...] | None = ()
        """The devices that most nodes offer; None: to be counted again."""
        self._invented: set[str] = set()
        """The names with a column that a gang requests and no node offers."""
        self._shared: set[str] = set()
        """The names that the column `SHARED` counts."""

    def withdraw(self, amounts: Requests) -> None:
        """Record that one node less offers the names."""
        for name, _ in amounts:
            self._offered[name] -= 1
            if not self._offered[name]:
                del self._offered[name]
        self._devices = None

    @property
    def devices(self) -> Sequence[str]:
        """The devices that most nodes offer."""
        if self._devices is None:
            found = ((-count, name) for name, count in self._offered.items() if "/" in name)
            self._devices = tuple(name for _, name in heapq.nsmallest(MAX_IDLE_DEVICES, found))
        return self._devices

    def observe(self, amounts: Requests) -> None:
        """Record the names that one more node offers."""
        self._devices = None
        for name, _ in amounts:
            self._offered[name] += 1
            self._invented.discard(name)
            if name in ALWAYS or name in self._shared:
                self._add(name)

    def reserve(self, amounts: Iterable[tuple[str, int]]) -> None:
        """Add a column for each name, whether or not a node offers it."""
        for name, _ in amounts:
            self._invented.discard(name)
            self._add(name)

    def learn(self, amounts: Requests) -> None:
        """Add a column for each name that a gang requests; names beyond the limit share one."""
        for name, _ in amounts:
            if name in self.columns or name in self._shared:
                continue
            if name not in self._offered:
                if len(self._invented) >= MOST_INVENTED:
                    self._share(name)
                    continue
                self._invented.add(name)
            self._add(name)

    def _share(self, name: str) -> None:
        self._add(SHARED)
        self._shared.add(name)

    def _add(self, name: str) -> None:
        if name in self.columns:
            return
        self._shared.discard(name)
        self.columns[name] = len(self.names)
        self.names.append(name)

    def vector(self, amounts: Requests) -> IntArray:
        """Return (R,) amounts; resources left out are 0, names without a column are not read."""
        made = np.zeros(len(self.names), np.int64)
        for name, amount in amounts:
            column = self.columns.get(name)
            if column is not None:
                made[column] = amount
            elif amount and name in self._shared:
                # Of any size: no node offers it, so one is as far out of reach as a million.
                made[self.columns[SHARED]] += SLOT
        return made

    def request(self, amounts: Requests) -> IntArray:
        """Return (R,) what a pod with these requests takes, its slot included."""
        return self.vector((*amounts, _ONE_POD))


Groups = tuple[IntArray, Sequence[NodeView]]
"""The number of each slot's group (those without a node have any), and a node of each group."""


class NodeColumns:
    """Allocatable, used, releasing and load of every node, by slot."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.views: dict[str, NodeView] = {}
        self.slots: dict[str, int] = {}
        self.population = 0
        """Grows with every node that comes or goes."""
        self.begun = False
        """Whether the arrays are new, so that all pods are to be counted again."""
        self._vocabulary = vocabulary
        self._free: list[int] = []
        self.allocatable = np.zeros((16, len(vocabulary.names)), np.int64)
        self.used = self.allocatable.copy()
        self.releasing = self.allocatable.copy()
        self.load = np.zeros((16, 2), np.int64)
        self._order: tuple[tuple[str, ...], Mapping[str, int], IntArray] | None = None
        self._fixed: Nodes | None = None
        self._alike: dict[Hashable, Groups] = {}

    def put(self, view: NodeView) -> int:
        """Take in a node and return its slot; a new one has nothing used."""
        self._fixed = None
        self._alike.clear()
        before = self.views.get(view.name)
        if before is None or before.allocatable != view.allocatable:
            if before is not None:
                self._vocabulary.withdraw(before.allocatable)
            self._vocabulary.observe(view.allocatable)
        slot = self.slots.get(view.name)
        if slot is None:
            # A slot of a node that has gone is used again: rows of all shapes stay as they are.
            slot = self._free.pop() if self._free else len(self.slots)
            self.slots[view.name] = slot
            self.population += 1
            self._order = None
        self.views[view.name] = view
        self.fit()
        self.allocatable[slot] = self._vocabulary.vector(view.allocatable)
        return slot

    def drop(self, name: str) -> None:
        """Forget a node."""
        slot = self.slots.pop(name)
        self.population += 1
        self._vocabulary.withdraw(self.views.pop(name).allocatable)
        for array in (self.allocatable, self.used, self.releasing, self.load):
            # The slot's next node begins with nothing used; an empty slot is never read.
            array[slot] = 0
        self._free.append(slot)
        self._order = self._fixed = None
        self._alike.clear()

    def begin(self) -> None:
        """Make the arrays for all columns, with nothing in use."""
        self.begun = True
        self.allocatable = np.zeros((len(self.load), len(self._vocabulary.names)), np.int64)
        self.used, self.releasing = self.allocatable.copy(), self.allocatable.copy()
        self.load = np.zeros_like(self.load)
        self._fixed = None
        for name, slot in self.slots.items():
            self.allocatable[slot] = self._vocabulary.vector(self.views[name].allocatable)

    def fit(self) -> None:
        """Make the arrays as large as the slots need, and again for new columns."""
        rows, columns = self.allocatable.shape
        wanted = len(self.slots) + len(self._free)
        if wanted > rows:
            self._fixed = None
            # Twice what is needed: to copy all at every new node would take quadratic time.
            self.allocatable = grown(self.allocatable, (2 * wanted, columns))
            self.used = grown(self.used, (2 * wanted, columns))
            self.releasing = grown(self.releasing, (2 * wanted, columns))
            self.load = grown(self.load, (2 * wanted, 2))
        if len(self._vocabulary.names) != columns:
            self.begin()

    def order(self) -> tuple[tuple[str, ...], Mapping[str, int], IntArray]:
        """Return the names in order, their positions, and the slot at each position."""
        if self._order is None:
            # By name, so that ties between nodes do not depend on the order in which they came.
            names = tuple(sorted(self.slots))
            index = {name: position for position, name in enumerate(names)}
            slots = np.array([self.slots[name] for name in names], np.int64)
            self._order = (names, index, slots)
        return self._order

    def alike(self, values: frozenset[str], presence: frozenset[str], *, names: bool) -> Groups:
        """Return groups of nodes equal in state, taints, label `values`, label `presence`."""
        key = (values, presence, names)
        if key not in self._alike:
            if len(self._alike) == MAX_GROUPINGS:
                self._alike.clear()
            numbers = np.zeros(len(self.allocatable), np.int64)
            groups: dict[Hashable, int] = {}
            examples = list[NodeView]()
            for name, slot in self.slots.items():
                view = self.views[name]
                seen = (
                    *(view.ready, view.unschedulable, view.taints),
                    names and view.name,
                    *(view.labels.get(label) for label in values),
                    *(label in view.labels for label in presence),
                )
                numbers[slot] = group = groups.setdefault(seen, len(groups))
                if group == len(examples):
                    examples.append(view)
            self._alike[key] = numbers, examples
        return self._alike[key]

    def free(self, name: str) -> IntArray:
        """Return (R,) what a node has left."""
        free: IntArray = self.allocatable[self.slots[name]] - self.used[self.slots[name]]
        return free

    def freeze(self) -> Nodes:
        """Return all nodes in order; what it returns shares nothing that is written later."""
        names, index, slots = self.order()
        used, releasing, load = self.used[slots], self.releasing[slots], self.load[slots]
        if self._fixed is None:
            views = [self.views[name] for name in names]
            self._fixed = Nodes(
                names=names,
                index=index,
                allocatable=self.allocatable[slots],
                used=used,
                releasing=releasing,
                load=load,
                usable=np.array([view.usable for view in views], np.bool_),
                pressure=np.array([view.pressure for view in views], np.bool_).reshape(-1, 3),
                labels=tuple(view.labels for view in views),
            )
            return self._fixed
        return replace(self._fixed, used=used, releasing=releasing, load=load)


class ShapeRow:
    """Which nodes suit one pod shape, and how well they meet its preferences, by slot."""

    def __init__(self, shape: PodShape, nodes: NodeColumns) -> None:
        # Of the terms about other pods only the keys matter here, and many terms have the same.
        ties = {(tie.link, tie.key): tie for tie in shape.ties if tie.link in _MISSING}
        self.shape = shape = replace(shape, ties=tuple(ties.values()))
        self.size = shape.size
        self.texts: list[str] = []
        self._codes = {"": 0}
        numbers, examples = _groups(shape, nodes)
        codes = [self.code(barrier(shape, node)) for node in examples] or [0]
        self.barred: CodeArray = np.array(codes, np.int16)[numbers]
        self.preferred: FloatArray | None = None
        if shape.preferred:
            liked = [preference(shape, node) for node in examples] or [0.0]
            self.preferred = np.array(liked)[numbers]

    def put(self, slot: int, node: NodeView) -> None:
        """Look at a node that is new or has changed."""
        if slot >= len(self.barred):
            self.barred = grown(self.barred, (2 * slot,))
            if self.preferred is not None:
                self.preferred = grown(self.preferred, (2 * slot,))
        self.barred[slot] = self.code(barrier(self.shape, node))
        if self.preferred is not None:
            self.preferred[slot] = preference(self.shape, node)

    def code(self, text: str) -> int:
        """Return the number that stands for the text in `barred`."""
        if text not in self._codes:
            self.texts.append(text)
            self._codes[text] = len(self.texts)
        return self._codes[text]


def _groups(shape: PodShape, nodes: NodeColumns) -> Groups:
    terms = [*(shape.affinity or ()), *(term for _, term in shape.preferred)]
    values = {key for key, _ in shape.selector} | {e.key for term in terms for e in term.labels}
    ties = frozenset(term.key for term in shape.ties if term.link in _MISSING)
    names = bool(shape.node_name) or any(term.fields for term in terms)
    return nodes.alike(frozenset(values), ties, names=names)


def grown(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return a larger array that begins with this one and is 0 elsewhere."""
    larger = np.zeros(tuple(shape), array.dtype)
    larger[tuple(slice(0, length) for length in array.shape)] = array
    return larger
