# SPDX-License-Identifier: Apache-2.0
"""Who holds what on which node, in rows that are made once per change of a gang."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from muster.api.reasons import Reason
from muster.cluster import queuetree, tables
from muster.cluster.gangs import GangInput
from muster.cluster.hostports import HostPorts, meet
from muster.cluster.nodes import (
    ALWAYS,
    NodeColumns,
    NodeView,
    ShapeRow,
    Vocabulary,
    barrier,
    selected,
)
from muster.cluster.podaffinity import PodAffinity, Prices, Profile, too_expensive
from muster.cluster.pods import PodKey, PodShape, PodUse, Requests
from muster.cluster.queues import FLAT, QueueInput, QueueShape
from muster.cluster.quota import QuotaBook
from muster.cluster.selectors import Identity, chosen, unused
from muster.cluster.storage import Consumer, Reach
from muster.cluster.volumebinding import Volumes
from muster.scheduler.budget import NODES, VOLUME
from muster.scheduler.model import (
    CEILING,
    PODS,
    UNLIMITED,
    BaseGang,
    BasePodSet,
    BaseQueue,
    Deferred,
    FloatArray,
    Gang,
    Holding,
    IntArray,
    Nomination,
    PastMove,
    PodSet,
    Queue,
    QueueHistory,
    Refusal,
    Shape,
    Snapshot,
    Stake,
    times,
)

FREEZES: Final = 1024
"""After so many, columns that nobody asks for any more are given back."""
IDLE_SHAPES: Final = 64
"""Total size of the shapes without pods that wait whose rows are stored for equal jobs."""

IDLE_TEXTS: Final = 64
"""A row with more than this number of reasons, plus two per node, is created again."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A gang as it was taken in, and what it was made into."""

    source: GangInput
    gang: Gang
    request: list[int]
    """R: allocated and wanted."""
    shapes: tuple[tuple[int, PodShape], ...]
    """Of the pod sets with tasks that wait or return."""

    @property
    def held(self) -> Iterator[tuple[int, PodShape]]:
        """Those of the pod sets with tasks that have a node."""
        for pod_set, role in zip(self.gang.pod_sets, self.source.roles, strict=True):
            if pod_set.held:
                yield pod_set.shape, role.shape


SENT: Final = "sent-"
"""Begins what stands for the uid of pods of which nobody knows theirs."""


@dataclass(slots=True, eq=False)
class Flight:
    """A pod on its way to the server: nobody knows yet whether it has come to its node."""

    use: PodUse
    """The room that it will take; under the name of its place, and a uid that no pod has."""
    pod: str
    """Its own name."""
    answered: bool = False
    """No more will be said of it: where it has come to its node, it will be seen there."""

    @property
    def names(self) -> set[tuple[str, str]]:
        """What concerns it: its place, and the pods of its name."""
        return {(self.use.namespace, self.use.name), (self.use.namespace, self.pod)}


class ClusterColumns:
    """The incremental mirror of nodes, pods and gangs."""

    def __init__(self, resources: Iterable[str] = ()) -> None:
        """Begin empty; `resources` have their columns from the start, in that order."""
        self.assumed: dict[tuple[str, str], str] = {}
        """(namespace, place) -> node, of wanted pods that have not been seen on it yet."""
        self.alterations = 0
        """Grows with every change of a node that stays."""
        self._altered: set[str] = set()
        """The nodes that were changed since they came, or went from under pods."""
        self._flights: dict[tuple[str, str], list[Flight]] = {}
        """By each of their names."""
        self._sent = itertools.count(1)
        self.changes = 0
        """Grows with everything that may take room away, assumptions aside."""
        self._vocabulary = Vocabulary()
        self._first = tuple((name, 0) for name in resources)
        self._vocabulary.reserve(self._first)
        self._freezes = 0
        self._width = len(self._vocabulary.names)
        self._nodes = NodeColumns(self._vocabulary)
        self._uses: dict[PodKey, PodUse] = {}
        self._nominated: dict[PodKey, PodUse] = {}
        """Pods for which other schedulers keep room."""
        self._residents: dict[str, dict[PodKey, PodUse]] = {}
        self._changed: set[str] = set()
        """Nodes that are new, or on which pods came or went, since their sums were made."""
        self._ports = HostPorts()
        self.volumes = Volumes()
        self.quotas = QuotaBook()
        self.device_resources: frozenset[str] = frozenset()
        """Extended resources that DeviceClasses offer."""
        self._reach: Reach | None = None
        self._affinity = PodAffinity(self._nodes)
        self._shapes: dict[tuple[PodShape, Profile], int] = {}
        self._last_shape = self._new_shapes = 0
        self._plain: dict[int, int] = {}
        """Shape that has a profile -> the same one without."""
        self._rows: dict[int, ShapeRow] = {}
        self._frozen: dict[int, Shape] = {}
        self._gangs: dict[str, _Known] = {}
        self._sums: dict[str, tuple[list[int], list[int]]] = {}
        """Queue -> what its gangs hold, and want with that."""
        self._lying = 0
        """How many of the gangs say where they are to lie."""
        self._holdings: dict[str, Holding] = {}
        self._index: Mapping[str, int] = {}
        """The positions in `_holdings`."""

    def node_changed(self, before: NodeView | None, after: NodeView | None) -> None:
        """Take in that a node came (before None), changed, or went (after None)."""
        if before == after:
            return
        self.changes += 1
        self._affinity.nodes_changed()
        self._reach = None
        self._frozen.clear()
        if before is not None:
            self.alterations += 1
            (self._altered.add if after or self.on(before.name) else self._altered.discard)(
                before.name
            )
        if after is None:
            if before is not None and before.name in self._nodes.slots:
                self._nodes.drop(before.name)
            return
        # Pods may be seen before their node: what they take is counted when it comes.
        if self.on(after.name) and after.name not in self._nodes.slots:
            self._changed.add(after.name)
        slot = self._nodes.put(after)
        for row in self._rows.values():
            row.put(slot, after)

    def pod_changed(self, before: PodUse | None, after: PodUse | None) -> None:
        """Take in what a pod holds now. Where it is the one that is wanted, `forget` that one."""
        if before is not None and (after is None or before.key != after.key):
            self._remove(before.key)
        if after is not None:
            # Where one of its name is expected, its room is taken already.
            expected = self.assumed.get((after.namespace, after.name)) == after.node
            if not expected and after.key not in self._uses:
                self.changes += 1
            self._put(after)
        for use in (before, after):
            if use is not None and self._flights:
                self._settle(use.namespace, use.name)

    def lets_start(self, use: PodUse) -> bool:
        """Return whether the pod may let pods start that must be near it; not if expected."""
        if self.assumed.get((use.namespace, use.name)) == use.node:
            return False
        return self._affinity.is_friend(Identity(use.namespace, use.labels))

    def space_changed(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Take in the labels of a namespace; None: it is gone."""
        self._affinity.counts.space_changed(name, labels)

    def assume(self, namespace: str, name: str, node: str, shape: PodShape) -> None:
        """Count the room of a wanted pod as used until `forget`, beside any pod of that name."""
        # A key without a uid: it stands beside a pod of the same name that is still terminating.
        self._put(shape.use(namespace, name, node))
        self.assumed[namespace, name] = node
        self._settle(namespace, name)

    def takes(self, node: str, shape: PodShape) -> bool:
        """Return whether a node takes a pod of the shape that was given it.

        Not if it is gone, no longer suits or is overcommitted. One that is not ready may recover.
        """
        view = self._nodes.views.get(node)
        if view is None or not view.ready or node not in self._altered:
            return view is not None
        request = self._request(shape)
        fits = bool((self._free(node) >= 0)[request > 0].all())
        return fits and not barrier(shape, view)

    @property
    def population(self) -> int:
        """A number that grows with every node that comes or goes."""
        return self._nodes.population

    def inhabited(self) -> Iterable[str]:
        """Return the names of all nodes, known or not, that pods take room on."""
        return self._residents

    def on(self, node: str) -> Collection[PodUse]:
        """Return the pods that take room on a node, or would if it were there."""
        return self._residents.get(node, {}).values()

    def fits(self, node: str, shape: PodShape) -> bool:
        """Return whether the node has resources, ports and volumes for such a pod now."""
        if node not in self._nodes.slots:
            return False
        request = self._request(shape)
        # Only requested resources have to fit: the node may be overcommitted in any other.
        free = self._free(node)
        if not (request <= free)[request > 0].all():
            return False
        if shape.ports and meet(self.on(node), shape.ports):
            return False
        return self.volumes.allow(shape, self._nodes.views[node])

    def _request(self, shape: PodShape) -> IntArray:
        # A resource that is requested for the first time needs its column before the vector.
        self._vocabulary.learn(shape.requests)
        self._fit()
        return self._vocabulary.request(shape.requests)

    def _free(self, node: str) -> IntArray:
        if node in self._changed:
            self._add_up(node)
        return self._nodes.free(node)

    def consumers(self) -> Iterable[Consumer]:
        """Return the claims that are to get their volume, as a pod has come to its node."""
        return self.volumes.consumers(self._nodes.views)

    def forget(self, namespace: str, name: str) -> None:
        """Give up an assumption; without effect if there is none."""
        if self.assumed.pop((namespace, name), None) is not None:
            self._remove((namespace, name, ""))
            self._settle(namespace, name)

    def send(self, namespace: str, name: str, pod: str) -> Flight:
        """Count an assumed pod until seen or `landed`, even if forgotten: it may exist by then."""
        # A unique uid: several pods of one name may be on their way, and each may have arrived.
        use = replace(self._uses[namespace, name, ""], uid=f"{SENT}{next(self._sent)}")
        flight = Flight(use, pod)
        for key in flight.names:
            self._flights.setdefault(key, []).append(flight)
        return flight

    def landed(self, flight: Flight) -> bool:
        """Take in that a pod is seen where it was sent, or nowhere; say if room came free."""
        for key in flight.names:
            others = [other for other in self._flights.pop(key, ()) if other is not flight]
            if others:
                self._flights[key] = others
        free = flight.use.key in self._uses
        self._remove(flight.use.key)
        return free

    def _settle(self, namespace: str, name: str) -> None:
        """Count the room of pods under way that nothing else stands for."""
        for flight in tuple(self._flights.get((namespace, name), ())):
            use = flight.use
            if self.assumed.get((use.namespace, use.name)) == use.node:
                self._remove(use.key)
            # Its room is counted once: by the assumption, else the pod seen, else the flight.
            elif not self._is_seen(flight):
                self._put(use)
            elif flight.answered:
                self.landed(flight)
            else:
                self._remove(use.key)

    def _is_seen(self, flight: Flight) -> bool:
        """Say whether a pod of that name is on the node, and is not an older one that goes."""
        pod = flight.use.namespace, flight.pod
        there = (use for use in self.on(flight.use.node) if (use.namespace, use.name) == pod)
        living = (use for use in there if not (use.deleting or use.lingers))
        return any(use.uid and not use.uid.startswith(SENT) for use in living)

    def contents(self) -> tuple[list[NodeView], list[PodUse], Mapping[str, Mapping[str, str]]]:
        """Return all nodes, all that pods take of them, and the labels of namespaces."""
        spaces = dict(self._affinity.counts.spaces)
        uses = [*self._uses.values(), *self._nominated.values()]
        return list(self._nodes.views.values()), uses, spaces

    def snapshot(
        self,
        gangs: Sequence[GangInput],
        queues: Sequence[QueueInput],
        now: float,
        moves: tuple[PastMove, ...] | None = None,
        deferred: Deferred | None = None,
    ) -> Snapshot:
        """Return what a cycle sees of these gangs in the present state of the cluster.

        Unchanged gang objects cost nothing. Quotas are less what pods to be created take. `moves`:
        of the last hour, if more are wanted. `deferred`: searches that earlier cycles cut off.
        """
        movable, deferred = moves is not None, deferred or Deferred()
        # First of all: a column that came later would not be in the vectors made before.
        self._freezes += 1
        if self._freezes % FREEZES == 0:
            self._release_columns(gangs, queues)
        self._learn(gangs, queues)
        self.volumes.choose(self._nodes.views)
        known = [self._gang(gang) for gang in gangs]
        # Every gang asked for is in the table by now: only one that has gone makes a difference.
        if len(known) != len(self._gangs):
            for key in self._gangs.keys() - {gang.key for gang in gangs}:
                self._account(self._gangs.pop(key), -1)
        made = [entry.gang for entry in known]
        wanted = {id_: shape for entry in known for id_, shape in entry.shapes}
        moving = [entry for entry in known if entry.gang.relocates(moves=movable)]
        wanted |= {id_: shape for entry in moving for id_, shape in entry.held}
        # Terms about other pods give equal templates different shapes, which are known only now.
        cut = self._too_expensive(known, moving, gangs, (now, deferred))
        rest: dict[int, PodShape] = {}
        if wanted and (self._affinity.matter(wanted.values()) or cut):
            shapes_of = [[role.shape for role in gang.roles] for gang in gangs]
            made, wanted, rest = self._affinity.resolve(
                made, shapes_of, self._shape_id, self._uses.values(), cut, movable=movable
            )
        else:
            self._affinity.idle()
        # Holders count too: if they are evicted, their claims come free.
        users = _claimants(made, gangs) if any(s.stored for s in wanted.values()) else {}
        self.volumes.survey(users, self._nodes.order()[1])
        # No task of a deferred gang is placed: its volumes are evaluated by a later cycle.
        bare = rest.keys() - wanted.keys()
        wanted |= rest
        shapes = {
            id_: self._shape(id_, shape, stored=id_ not in bare)
            for id_, shape in sorted(wanted.items())
        }
        self._prune(wanted, made)
        waited_in, divisions = self._queues(queues, known)
        _, index, _ = self._nodes.order()
        for node in tuple(self._changed):
            self._add_up(node)
        return Snapshot(
            now=now,
            resources=tuple(self._vocabulary.names),
            nodes=self._nodes.freeze(),
            shapes=shapes,
            gangs=tuple(made),
            queues=waited_in,
            divisions=divisions,
            holdings=self._held(known),
            nominations=tuple(
                Nomination(
                    use.nominated or 0,
                    index[use.node],
                    self._vocabulary.request(use.requests),
                )
                for _, use in sorted(self._nominated.items())
                if use.node in index
            ),
            quotas=self.quotas.dimensions(
                (gang.pending for gang in gangs if gang.pending), {gang.namespace for gang in made}
            ),
            device_resources=self.device_resources,
            moves=moves,
            deferred=deferred,
            topologies=self._lying > 0,
        )

    def _too_expensive(
        self,
        known: Iterable[_Known],
        moving: Iterable[_Known],
        gangs: Iterable[GangInput],
        cycle: tuple[float, Deferred],
    ) -> Collection[str]:
        """Return the gangs whose terms and volumes cost more than their share of the cycle."""
        bound = dict[str, tuple[Gang, dict[int, PodShape]]]()
        listed = [(entry, entry.shapes) for entry in known if entry.shapes]
        for entry, shapes in (*listed, *((entry, entry.held) for entry in moving)):
            if own := {id_: shape for id_, shape in shapes if shape.ties or shape.stored}:
                bound.setdefault(entry.gang.key, (entry.gang, {}))[1].update(own)
        if not bound:
            return ()
        tied = any(shape.ties for _, own in bound.values() for shape in own.values())
        all_of = [role.shape.identity for gang in gangs for role in gang.roles] if tied else []
        unit = VOLUME + len(self._nodes.slots) // NODES

        def volumes(shape: PodShape) -> int:
            return unit * self.volumes.price(shape) if shape.stored else 0

        return too_expensive(bound, Prices(all_of, len(self._uses)), volumes, cycle)

    def _held(self, known: Sequence[_Known]) -> tuple[Holding, ...]:
        # Who holds what is asked only to make room for somebody.
        if not any(entry.gang.missing for entry in known):
            return ()
        _, index, _ = self._nodes.order()
        # Positions shift when nodes come or go: only then there is another index.
        before = self._holdings if index is self._index else {}
        self._holdings, self._index = {}, index
        for gang in (entry.gang for entry in known if entry.gang.allocated[PODS]):
            holding = before.get(gang.key)
            if holding is None or holding.gang is not gang:
                holding = Holding.of(gang, index)
            self._holdings[gang.key] = holding
        return tuple(self._holdings.values())

    def _put(self, use: PodUse) -> None:
        key = use.key
        # Most updates of a pod change nothing that is counted here.
        if self._uses.get(key) == use:
            return
        self._remove(key)
        # Nominated room is not used, and kept apart: gangs of a higher rank may take it.
        if use.nominated is not None:
            self._nominated[key] = use
            return
        self._uses[key] = use
        tables.put(self._residents, use.node, key, use)
        self._ports.put(use, 1)
        self._affinity.counts.put(use, 1)
        self.volumes.put(use, 1)
        self._changed.add(use.node)

    def _remove(self, key: PodKey) -> None:
        self._nominated.pop(key, None)
        use = self._uses.pop(key, None)
        if use is None:
            return
        tables.put(self._residents, use.node, key, None)
        self._ports.put(use, -1)
        self._affinity.counts.put(use, -1)
        self.volumes.put(use, -1)
        self._changed.add(use.node)

    def _add_up(self, node: str) -> None:
        """Sum what a node's pods request: a sum capped at CEILING could not follow a removal."""
        uses, slot = self.on(node), self._nodes.slots.get(node)
        if slot is not None:
            self._nodes.used[slot] = self._total(uses)
            self._nodes.releasing[slot] = self._total([use for use in uses if use.deleting])
            self._nodes.load[slot] = _capped(2, (use.load for use in uses))
        self._changed.discard(node)

    def _total(self, uses: Collection[PodUse]) -> list[int]:
        width, request = len(self._vocabulary.names), self._vocabulary.request
        if any(use.whole for use in uses):
            return [CEILING] * width
        return _capped(width, (request(use.requests).tolist() for use in uses))

    def _fit(self) -> None:
        """Make room for all columns; where they are new, all pods are counted again."""
        self._nodes.fit()
        if self._nodes.begun:
            self._nodes.begun = False
            self._changed.update(self._residents)

    def _release_columns(self, gangs: Iterable[GangInput], queues: Iterable[QueueInput]) -> None:
        """Begin with new columns if some names are no longer requested; `_learn` has to follow."""
        used = {*ALWAYS, *self._vocabulary.devices, *(name for name, _ in self._first)}
        used |= {name for queue in queues for amounts in _limits_of(queue) for name, _ in amounts}
        used |= {name for gang in gangs for amounts in _requests_of(gang) for name, _ in amounts}
        if used.issuperset(self._vocabulary.names):
            return
        self._vocabulary.begin()
        self._vocabulary.reserve(self._first)
        for view in self._nodes.views.values():
            self._vocabulary.observe(view.allocatable)
        self._nodes.begin()
        self._width = 0

    def _learn(self, gangs: Iterable[GangInput], queues: Iterable[QueueInput]) -> None:
        self._vocabulary.reserve([(name, 0) for name in self._vocabulary.devices])
        for queue in queues:
            for amounts in _limits_of(queue):
                self._vocabulary.reserve(amounts)
        # The columns were made anew, so that all vectors of gangs are of other columns.
        if not self._width:
            self._gangs.clear()
        for gang in gangs:
            # By identity: inputs are recreated only on a change, and comparing every field of ten
            # thousand gangs would cost more than the cycle.
            if (known := self._gangs.get(gang.key)) is None or known.source is not gang:
                for amounts in _requests_of(gang):
                    self._vocabulary.learn(amounts)
        self._fit()
        if len(self._vocabulary.names) != self._width:
            # Vectors of all kinds got longer.
            self._width = len(self._vocabulary.names)
            self._gangs.clear()
            self._sums.clear()
            self._lying = 0
            self._frozen.clear()

    def _gang(self, source: GangInput) -> _Known:
        known = self._gangs.get(source.key)
        if known is not None and known.source is source:
            return known
        allocated = np.zeros(self._width, np.int64)
        request = [0] * self._width
        pod_sets, shapes = [], []
        ready = missing = 0
        for role in source.roles:
            vector = self._vocabulary.request(role.allocated)
            # Without a profile: terms of other pods give it another shape only later, if at all.
            shape = self._shape_id(role.shape, frozenset())
            same = {name: getattr(role, name) for name in _OF_ROLES}
            pod_set = PodSet(shape=shape, request=vector, ports=role.shape.ports, **same)
            wanted = len(pod_set.waiting) + len(pod_set.returning)
            allocated = np.minimum(allocated + times(len(pod_set.held), vector), CEILING)
            request = _plus(request, vector.tolist(), len(pod_set.held) + wanted)
            pod_sets.append(pod_set)
            ready += len(pod_set.held) + pod_set.succeeded
            missing += wanted + pod_set.gated
            if wanted:
                shapes.append((pod_set.shape, role.shape))
        gang = Gang(
            pod_sets=tuple(pod_sets),
            allocated=allocated,
            ready=ready,
            missing=missing,
            min_resources=self._vocabulary.vector(_sorted(source.min_resources)),
            **{name: getattr(source, name) for name in _OF_GANGS},
        )
        # Sums by queue follow the differences, so that an idle gang costs a cycle nothing.
        if known is not None:
            self._account(known, -1)
        known = self._gangs[source.key] = _Known(source, gang, request, tuple(shapes))
        self._account(known, 1)
        return known

    def _account(self, known: _Known, sign: int) -> None:
        self._lying += sign * known.gang.lies
        queue, zero = known.gang.queue, [0] * self._width
        allocated, request = self._sums.pop(queue, (zero, zero))
        allocated = _plus(allocated, known.gang.allocated.tolist(), sign)
        request = _plus(request, known.request, sign)
        # Queues may be named that never were there: nothing is kept of one without gangs.
        if any(request):
            self._sums[queue] = allocated, request

    def _shape_id(self, shape: PodShape, profile: Profile) -> int:
        id_ = self._shapes.get((shape, profile))
        if id_ is None:
            self._last_shape += 1
            id_ = self._shapes[shape, profile] = self._last_shape
            self._new_shapes += shape.size
            if profile:
                self._plain[id_] = self._shape_id(shape, frozenset(()))
        return id_

    def _queues(
        self, queues: Sequence[QueueInput], known: Sequence[_Known]
    ) -> tuple[Mapping[str, Queue], Mapping[str, Queue]]:
        """Return the queues in which gangs wait, and those that are divided among others."""
        # Sorted: the order of a float sum changes its last digit, which decides between equals.
        queues = sorted(queues, key=lambda queue: queue.name)
        # As settled, not as asked: a queue whose place cannot be had keeps the one it had.
        shapes = {name: settled.shape for name, settled in queuetree.settle(queues).items()}
        divided = {shape.parent for shape in shapes.values() if shape.parent}
        # Only of queues that choose whom they let in does it matter who asks.
        asking = {queue.name: list[_Known]() for queue in queues if queue.namespaces is not None}
        for entry in known if asking else ():
            for name in (entry.gang.queue, *queuetree.lineage(shapes, entry.gang.queue)[1:]):
                if name in asking:
                    asking[name].append(entry)
        made = {
            queue.name: self._queue(
                queue, shapes.get(queue.name, FLAT), asking.get(queue.name, ())
            )
            for queue in queues
        }
        # Gangs that name a queue which is divided are together one more part of it.
        zero, divisions = np.zeros(self._width, np.float64), dict[str, Queue]()
        for queue in queues:
            if queue.name in divided:
                whole = made[queue.name]
                divisions[queue.name] = replace(
                    whole, allocated=zero, request=zero, usage=0.0, history=QueueHistory()
                )
                own = QueueInput(
                    queue.name,
                    reservable=queue.reservable,
                    spent=queue.spent,
                    usage=queue.usage,
                    history=queue.history,
                )
                made[queue.name] = self._queue(own, QueueShape(queue.name), ())
        return made, divisions

    def _queue(self, source: QueueInput, shape: QueueShape, asking: Sequence[_Known]) -> Queue:
        zero = [0] * self._width
        allocated, request = self._sums.get(source.name, (zero, zero))
        refusal = None
        if source.unreadable:
            text = f'queue "{source.name}" cannot be read: {source.unreadable}'
            refusal = Refusal(Reason.UNREADABLE, text)
        spaces = self._affinity.counts.spaces
        barred = frozenset(
            space
            for space in {entry.gang.namespace for entry in asking}
            if not chosen(source.namespaces or (), spaces.get(space, {}))
        )
        same = {name: getattr(source, name) for name in _OF_QUEUES}
        return Queue(
            **same | {"weight": max(source.weight, 1)},
            capability=self._limits(source.capability),
            allocated=np.array(allocated, np.float64),
            request=np.array(request, np.float64),
            refusal=refusal,
            barred=barred,
            reservable=self._limits(source.reservable) if source.reservable else None,
            parent=shape.parent,
            displaced=bool(source.shape.parent) and not shape.parent,
            stake=self._stake(shape),
        )

    def _stake(self, shape: QueueShape) -> Stake | None:
        # Most queues have only a weight; without stakes the tree is divided in one pass.
        if replace(shape, parent="") == FLAT:
            return None
        guarantee = self._limits(shape.guarantee)
        return Stake(
            np.where(guarantee < UNLIMITED, guarantee, 0.0),
            self._limits(shape.deserved),
            self._limits(shape.borrowing),
            self._limits(shape.lending),
        )

    def _limits(self, amounts: Mapping[str, int]) -> FloatArray:
        limits: FloatArray = np.full(self._width, UNLIMITED)
        for name, amount in amounts.items():
            limits[self._vocabulary.columns[name]] = amount
        return limits

    def _shape(self, id_: int, source: PodShape, *, stored: bool) -> Shape:
        # By node alone: the row stays valid until a node changes, whichever pods and terms change.
        plain = self._plain.get(id_, id_)
        row, frozen = self._row(plain, source), self._frozen.get(plain)
        _, index, slots = self._nodes.order()
        if frozen is None:
            frozen = self._frozen[plain] = Shape(
                request=self._vocabulary.request(source.requests),
                load=np.array(source.load, np.int64),
                barred=row.barred[slots],
                texts=tuple(row.texts),
                preferred=None if row.preferred is None else row.preferred[slots],
                ports=source.ports,
                unsupported=source.unsupported,
                selected=selected(source),
            )
        terms = self._affinity.terms(id_)
        if source.stored and stored:
            nodes = [self._nodes.views[name] for name in self._nodes.order()[0]]
            self._reach = self._reach or Reach(nodes)
            frozen = self.volumes.constrain(id_, frozen, source, nodes, self._reach)
            terms = (*terms, *frozen.affinity)
        # What follows depends on pods that run, and is made each time.
        if not (source.ports or terms):
            return frozen
        taken, ending = self._ports.taken(source.ports, index)
        return replace(frozen, taken=taken, ending=ending, affinity=terms)

    def _row(self, id_: int, source: PodShape) -> ShapeRow:
        row = self._rows.pop(id_, None)
        # Taints whose value is a time leave one reason each behind.
        if row is None or len(row.texts) > 2 * len(self._nodes.slots) + IDLE_TEXTS:
            row = ShapeRow(source, self._nodes)
        self._rows[id_] = row  # the last one is the youngest
        return row

    def _prune(self, wanted: Mapping[int, PodShape], made: Sequence[Gang]) -> None:
        # This very snapshot moved all that are wanted to the end, so that only idle ones go.
        for id_ in unused(self._rows, len(wanted), IDLE_SHAPES, lambda i: self._rows[i].size):
            del self._rows[id_]
            self._frozen.pop(id_, None)
        # Numbers are never reused: a dropped shape, requested again, is new. So drop all, rarely.
        if self._new_shapes > len(self._gangs) + 4 * IDLE_SHAPES:
            gangs = (*made, *(entry.gang for entry in self._gangs.values()))
            living = {pod_set.shape for gang in gangs for pod_set in gang.pod_sets}
            living |= wanted.keys() | self._rows.keys()
            self._shapes = {s: id_ for s, id_ in self._shapes.items() if id_ in living}
            self._plain = {id_: plain for id_, plain in self._plain.items() if id_ in living}
            self._new_shapes = 0


_OF_ROLES: Final = tuple(one.name for one in fields(BasePodSet))
_OF_GANGS: Final = tuple(one.name for one in fields(BaseGang))
_OF_QUEUES: Final = tuple(one.name for one in fields(BaseQueue))


def _claimants(gangs: Iterable[Gang], sources: Iterable[GangInput]) -> dict[int, PodShape]:
    """Return the shapes of pods that have claims, also of those that are on their nodes."""
    pairs = (zip(g.pod_sets, s.roles, strict=True) for g, s in zip(gangs, sources, strict=True))
    return {
        pod_set.shape: r.shape for pod_sets in pairs for pod_set, r in pod_sets if r.shape.stored
    }


def _limits_of(queue: QueueInput) -> Iterator[Requests]:
    limits = queue.capability, queue.reservable, *queue.shape.amounts, *queue.kept.amounts
    return map(_sorted, limits)


def _requests_of(gang: GangInput) -> Iterator[Requests]:
    yield _sorted(gang.min_resources)
    for role in gang.roles:
        yield role.shape.requests
        yield role.allocated


def _plus(sums: list[int], amounts: list[int], count: int) -> list[int]:
    # In integers of any length: one gang's huge floats would lose the requests of all others.
    return [total + count * each for total, each in zip(sums, amounts, strict=True)]


def _capped(width: int, rows: Iterable[Sequence[int]]) -> list[int]:
    return [min(sum(column), CEILING) for column in zip([0] * width, *rows, strict=True)]


def _sorted(amounts: Mapping[str, int] | None) -> Requests:
    return tuple(sorted((amounts or {}).items()))
