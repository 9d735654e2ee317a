# SPDX-License-Identifier: Apache-2.0
"""How many volumes of which CSI driver a node takes; without cost where no node has a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from muster.api.reasons import Reason
from muster.cluster import tables
from muster.cluster.nodes import NodeView, holds
from muster.cluster.pods import PodKey, PodShape, PodUse, Scratch, Term
from muster.cluster.storage import (
    AttachView,
    CapacityView,
    ClaimView,
    ClassView,
    Consumer,
    DriverView,
    Reach,
    Stored,
    VolumeView,
)
from muster.scheduler.affinity import NOT_SERVED, AffinityState, Stock
from muster.scheduler.model import (
    ENDLESS,
    AffinityTerm,
    BoolArray,
    CodeArray,
    Driver,
    IntArray,
    Link,
    Refusal,
    Shape,
    Want,
)

Volume = tuple[str, str]
"""(driver, the name of a volume that no other of the driver's has)."""


Seat = tuple[Volume, str, bool]
"""A volume, the node of a pod that uses it, and whether that pod is being deleted."""
_Said = tuple[dict[str, dict[str, int]], dict[str, tuple[str, ...]]]
"""Driver -> node -> volumes; driver -> the labels of nodes that reach the same volumes."""
_Users = dict[str, Counter[int]]
"""Volume -> position of a node -> pods."""


@dataclass(slots=True)
class Limits:
    """The limits of all nodes."""

    views: dict[str, AttachView] = field(default_factory=dict)
    """By node."""
    _said: _Said | None = None
    """By driver; None: to be read again."""

    def put(self, view: AttachView, *, there: bool) -> None:
        """Take in the limits of a node, or that they went."""
        _put(self.views, view.node, view, there=there)
        self._said = None

    def _by_driver(self) -> _Said:
        if self._said is None:
            self._said = {}, {}
            most, labels = self._said
            for node, view in self.views.items():
                for driver, count in view.most:
                    most.setdefault(driver, {})[node] = count
                for driver, keys in view.topology:
                    labels[driver] = max(keys, labels.get(driver, ()))
        return self._said

    def labels(self, driver: str) -> tuple[str, ...]:
        """Return the labels of nodes that reach the same volumes; none: no CSINode has any."""
        return self._by_driver()[1].get(driver, ())

    def drivers(
        self,
        volumes: Mapping[int, Iterable[Volume]],
        own: Mapping[int, Iterable[str]],
        seats: Iterable[Seat],
        index: Mapping[str, int],
    ) -> dict[int, tuple[Driver, ...]]:
        """Return the drivers that limit each shape, all seats counted.

        `volumes`: shared by its pods; `own`: drivers of each pod's own. `index`: node positions.
        """
        limits, asked = self._by_driver()[0], dict[str, dict[int, dict[str, None]]]()
        for shape, shared in volumes.items():
            for driver, volume in shared:
                if driver in limits:
                    asked.setdefault(driver, {}).setdefault(shape, {})[volume] = None
            for driver in own[shape]:
                if driver in limits:
                    asked.setdefault(driver, {}).setdefault(shape, {})
        users = {driver: (_Users(), _Users()) for driver in asked}
        for (driver, volume), node, going in seats if asked else ():
            for table in users[driver][: 1 + going] if driver in users else ():
                table.setdefault(volume, Counter())[index[node]] += 1
        made = {
            driver: Driver(
                _column(limits[driver], index),
                *users[driver],
                {shape: tuple(shared) for shape, shared in shapes.items()},
                {shape: list(own[shape]).count(driver) for shape in shapes},
            )
            for driver, shapes in asked.items()
        }
        return {
            shape: found
            for shape in volumes
            if (found := tuple(made[driver] for driver in asked if shape in asked[driver]))
        }


def _column(limits: Mapping[str, int], index: Mapping[str, int]) -> IntArray:
    most = np.full(len(index), ENDLESS)
    for node, count in limits.items():
        if node in index:
            most[index[node]] = count
    return most


Key = tuple[str, str]
"""(namespace, name) of a claim."""
Options = tuple[tuple[str, BoolArray], ...]
"""(volume, (N,) where it can be had)"""
MAX_WAITING: Final = 16
"""Maximum number of a pod's unbound claims: the volumes of each are compared with all nodes."""
ELSEWHERE: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_SPACE: Final = "node(s) did not have enough free storage"
OTHER_ZONE: Final = "node(s) had no available volume zone"
IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)


@dataclass(slots=True)
class Volumes:
    """Claims, volumes and classes as they are, and who uses which claim."""

    claims: dict[Key, ClaimView] = field(default_factory=dict)
    volumes: dict[str, VolumeView] = field(default_factory=dict)
    classes: dict[str, ClassView] = field(default_factory=dict)
    users: dict[Key, dict[PodKey, str]] = field(default_factory=dict)
    """Claim -> pod -> its node."""
    chosen: dict[Key, str] = field(default_factory=dict)
    """Claim that has users -> the volume that is for it, empty if one is made."""
    _default: ClassView | None = None
    """Of claims that name no class."""
    _by_use: dict[Key | str, dict[str, VolumeView]] = field(default_factory=dict)
    """Claim, or class of those that no claim has -> its volumes by name."""
    _options: dict[Key, tuple[VolumeView, ...]] = field(default_factory=dict)
    _reached: dict[Key, tuple[Reach, Options]] = field(default_factory=dict)
    """Claim -> its options, and where they are for these nodes."""
    going: set[PodKey] = field(default_factory=set)
    """Pods with claims that are being deleted."""
    limits: Limits = field(default_factory=Limits)
    unserved: str = ""
    """Why no claim that waits for its first consumer gets a volume, in a sentence."""
    _scratch: dict[Key, dict[str, Scratch]] = field(default_factory=dict)
    """Claim that is made for a pod on a node -> the pod's uid -> the volume that it asks for."""
    _claimants: dict[Key, list[int]] = field(default_factory=dict)
    """Claim -> the shapes that were surveyed and mount it."""
    _drivers: Mapping[int, tuple[Driver, ...]] = field(default_factory=dict)
    drivers: dict[str, DriverView] = field(default_factory=dict)
    capacities: dict[str, dict[Key, CapacityView]] = field(default_factory=dict)
    """Class -> where storage is left for new volumes."""
    _largest: dict[str, tuple[Reach, IntArray]] = field(default_factory=dict)
    """Class -> (N,) the largest volume that can be made on each of these nodes."""

    def changed(self, before: Stored | None, after: Stored | None) -> None:
        """Take in that one of them came (before None), changed, or went (after None)."""
        # Which volumes suit a claim depends on the claim and on all volumes.
        if isinstance(before or after, VolumeView):
            self._options.clear()
            self._reached.clear()
        for view, there in ((before, False), (after, True)):
            if isinstance(view, ClaimView):
                key = view.namespace, view.name
                _put(self.claims, key, view, there=there)
                self._options.pop(key, None)
                self._reached.pop(key, None)
            elif isinstance(view, VolumeView):
                _put(self.volumes, view.name, view, there=there)
                use = view.owner[:2] if view.owner else view.storage_class
                tables.put(self._by_use, use, view.name, view if there else None)
            elif isinstance(view, ClassView):
                _put(self.classes, view.name, view, there=there)
                # The newest default, as the API server's admission has it; else the first by name.
                listed = sorted(self.classes.values(), key=lambda of: of.name)
                self._default = max(
                    (of for of in listed if of.default), key=lambda of: of.created, default=None
                )
            elif isinstance(view, AttachView):
                self.limits.put(view, there=there)
            elif isinstance(view, DriverView):
                _put(self.drivers, view.name, view, there=there)
            elif isinstance(view, CapacityView):
                of = view.storage_class
                tables.put(self.capacities, of, view.key, view if there else None)
                self._largest.pop(of, None)

    def put(self, use: PodUse, sign: int) -> None:
        """Note that a pod came to its node (sign 1), or went (-1)."""
        if not (use.claims or use.scratch):
            return
        for claim in use.mounts:
            tables.put(self.users, claim, use.key, use.node if sign > 0 else None)
        for own in use.scratch:
            key = own.key(use.namespace, use.name)
            tables.put(self._scratch, key, use.uid, own if sign > 0 else None)
        if use.deleting:
            (self.going.add if sign > 0 else self.going.discard)(use.key)

    def refusal(self, shape: PodShape) -> Refusal | None:
        """Return why pods of the shape cannot be placed anywhere at present."""
        if (count := len(self._waiting(shape.claims))) > MAX_WAITING:
            sentence = f"{count} claims without a volume; at most {MAX_WAITING} are supported"
            return Refusal(Reason.UNSUPPORTED_CONSTRAINT, sentence)
        for key in shape.claims:
            sentence = self._missing(key)
            if sentence:
                return Refusal(Reason.WAITING_FOR_VOLUME, sentence)
        for key, pod in shape.owned:
            # As kube-scheduler's: a claim of the right name may belong to an earlier pod.
            if self.claims[key].owner != pod:
                sentence = f'claim "{key[1]}" was not made for the pod'
                return Refusal(Reason.WAITING_FOR_VOLUME, sentence)
        return next(filter(None, map(self._unmade, shape.scratch)), None)

    def _unmade(self, own: Scratch) -> Refusal | None:
        """Return why pods with such a volume of their own cannot be placed before they exist."""
        volume, of = f'the ephemeral volume "{own.name}"', self._class_of(own)
        if own.made and of is None:
            sentence = f'the storage class "{own.storage_class}" of {volume} does not exist'
            if own.storage_class is None:
                sentence = f"{volume} names no storage class, and there is no default"
            return Refusal(Reason.WAITING_FOR_VOLUME, sentence)
        if not own.made or of is None:
            what = "that is there already"
        elif not of.waits:
            # It might be made where the pod is not.
            what = f'of the storage class "{of.name}", which does not wait for the first consumer'
        elif not of.provisions:
            what = f'of the storage class "{of.name}", which makes no volumes'
        elif self.unserved:
            return Refusal(Reason.WAITING_FOR_VOLUME, _unserved(volume, self.unserved))
        else:
            return None
        sentence = f"{volume} is to be one {what}; that is not supported"
        return Refusal(Reason.UNSUPPORTED_CONSTRAINT, sentence)

    def _class_of(self, own: Scratch) -> ClassView | None:
        named = own.storage_class
        return self._default if named is None else self.classes.get(named)

    def survey(self, shapes: Mapping[int, PodShape], index: Mapping[str, int]) -> None:
        """Survey all shapes that wait or could be evicted. `index`: positions of the nodes."""
        # Limits count volumes, not pods: two shapes that share a volume take one place together.
        # So the table of each driver is made over all shapes at once, and `constrain` reads it.
        self._claimants, self._drivers = {}, {}
        for id_, shape in shapes.items():
            for key in shape.claims:
                self._claimants.setdefault(key, []).append(id_)
        if shapes and self.limits.views:
            volumes = {id_: list(map(self._attached, s.claims)) for id_, s in shapes.items()}
            own = {id_: list(map(self._maker, s.scratch)) for id_, s in shapes.items()}
            seats = (
                (self._attached(key), node, pod in self.going)
                for key, users in self.users.items()
                for pod, node in users.items()
                if node in index
            )
            self._drivers = self.limits.drivers(volumes, own, seats, index)

    def constrain(
        self, id_: int, frozen: Shape, shape: PodShape, nodes: Sequence[NodeView], reach: Reach
    ) -> Shape:
        """Return the frozen shape, surveyed before, with all that its volumes mean."""
        wants = self.wants(shape, reach)
        barred, texts = self._barred(shape, reach, wants, frozen)
        return replace(
            frozen,
            barred=barred,
            texts=texts,
            refusal=self.refusal(shape),
            wants=wants,
            drivers=self._drivers.get(id_, ()),
            affinity=tuple(self._alone(shape, len(nodes))),
        )

    def _barred(
        self, shape: PodShape, reach: Reach, wants: tuple[Want, ...], frozen: Shape
    ) -> tuple[CodeArray, tuple[str, ...]]:
        """Return codes (N,) and texts, with the nodes that the volumes rule out added."""
        numbers = {text: i for i, text in enumerate(frozen.texts, 1)}
        codes = frozen.barred.copy()
        against = [*self._against(shape, reach)]
        # As the scheduler: whether claims can be served together, no claim's answer alone shows.
        served = Stock({0: wants}).open(0)
        if served is not None:
            against.append((NOT_SERVED, ~served))
        for text, excluded in against:
            new = excluded & (codes == 0)
            if new.any():
                codes[new] = numbers.setdefault(text, len(numbers) + 1)
        return codes, tuple(numbers)

    def wants(self, shape: PodShape, reach: Reach) -> tuple[Want, ...]:
        """Return what the shape's claims ask of volumes that are not theirs yet."""
        waiting, found, taken = self._waiting(shape.claims), [], set(self.chosen.values())
        # The refusal says why no node is evaluated for so many.
        for key, claim in waiting if len(waiting) <= MAX_WAITING else ():
            kept, options = self.chosen.get(key), self._reach_of(key, claim, reach)
            # Once a pod has come to its node the choice is made, for all that share the claim, and
            # no other claim gets the volume.
            free = {kept} if kept is not None else {name for name, _ in options} - taken
            options = tuple(option for option in options if option[0] in free)
            labels = self._labels(claim)
            domain = reach.domains(labels) if labels else None
            room = self._room(key, claim, domain, reach)
            found.append(Want("/".join(key), options, room, domain))
        return tuple(found)

    def price(self, shape: PodShape) -> int:
        """Return how many conditions of volumes are compared with all nodes for the shape."""
        waiting = self._waiting(shape.claims)
        free = (len(self._by_use.get(claim.storage_class, ())) for _, claim in waiting)
        options = sum(free) if len(waiting) <= MAX_WAITING else 0
        return len(shape.claims) + len(shape.scratch) + options

    def _reach_of(self, key: Key, claim: ClaimView, reach: Reach) -> Options:
        """Return the volumes that the claim may get, and (N,) where each of them can be had."""
        known = self._reached.get(key)
        if known is None or known[0] is not reach:
            choice = self._choice(claim)
            known = reach, tuple((volume.name, reach.of(volume.affinity)) for volume in choice)
            self._reached[key] = known
        return known[1]

    def _room(
        self, key: Key, claim: ClaimView, domain: IntArray | None, reach: Reach
    ) -> BoolArray:
        """Return (N,) where a volume can be made for the claim, or is for a pod that is there."""
        kept = self.chosen.get(key)
        if kept:
            return reach.of(())
        made = reach.of(self._made(claim))
        if kept is None:
            return made & self._spacious(claim.storage_class, claim.size, reach)
        if domain is None:
            return made
        # All users of a claim reach one volume, so any of them tells where it is.
        here = self._home(key, reach.index)
        return made & (domain == domain[reach.index[here]]) if here else made

    def _spacious(self, of: str, size: int, reach: Reach) -> BoolArray:
        """Return (N,) where storage is left for a volume of the class, as far as anybody says."""
        known, there = self.classes.get(of), self.capacities.get(of)
        driver = None if known is None else self.drivers.get(known.driver)
        # Of a driver that does not opt in the amounts are no bound, as for kube-scheduler.
        if not (there and size) or driver is None or not driver.tracks:
            return reach.of(None)
        if of not in self._largest or self._largest[of][0] is not reach:
            amounts = reach.largest((view.nodes, view.most) for view in there.values())
            self._largest[of] = reach, amounts
        return self._largest[of][1] >= size

    def _labels(self, claim: ClaimView) -> tuple[str, ...]:
        of = self.classes.get(claim.storage_class)
        if of is None:
            return ()
        own = {e.key for term in of.topologies or () for e in term.labels}
        # The labels that the driver reports on nodes come before those that the class allows.
        # Without either all nodes count as one domain.
        return self.limits.labels(of.driver) or tuple(sorted(own))

    def choose(self, views: Mapping[str, NodeView]) -> None:
        """Choose the volumes of claims of which a pod has come to its node; `views` by name."""
        # A choice stands until the binding is seen, or two cycles would choose two volumes.
        for key in list(self.chosen):
            claim, volume = self.claims.get(key), self.volumes.get(self.chosen[key])
            gone = self.chosen[key] and (
                volume is None or claim is None or not volume.suits(claim)
            )
            if key not in self.users or claim is None or claim.bound or gone:
                del self.chosen[key]
        taken = set(self.chosen.values())
        for key, claim in self._waiting(self.users):
            node = views.get(self._home(key, views))
            # A successor of the same name waits until the old pod's claim has been collected.
            if node is None or key in self.chosen or not self._owned(key, claim):
                continue
            free = (v for v in self._choice(claim) if v.name not in taken)
            found = next((v for v in free if _suits(v.affinity, node)), None)
            if found is not None:
                self.chosen[key] = found.name
                taken.add(found.name)
            # Only where none is there already, as kube-scheduler has it: a volume is made last.
            elif _suits(self._made(claim), node):
                self.chosen[key] = ""

    def _waits(self, claim: ClaimView) -> bool:
        """Say whether the claim gets its volume when its first consumer has a node."""
        known = self.classes.get(claim.storage_class)
        return not (claim.bound or claim.volume) and known is not None and known.waits

    def _waiting(self, keys: Iterable[Key]) -> list[tuple[Key, ClaimView]]:
        claims = [(key, self.claims[key]) for key in keys if key in self.claims]
        # A claim with a selected node is the provisioner's: what it makes cannot be chosen here.
        waiting = [pair for pair in claims if self._waits(pair[1]) and not pair[1].node]
        # Smallest first, then mount order, as kube-scheduler: large volumes stay for large claims.
        return sorted(waiting, key=lambda pair: pair[1].size)

    def _choice(self, claim: ClaimView) -> tuple[VolumeView, ...]:
        """Return the volumes that the claim may get: its own, or the smallest first."""
        key = claim.namespace, claim.name
        if key not in self._options:
            listed = (self._by_use.get(use, {}) for use in (key, claim.storage_class))
            fit = [volume for part in listed for volume in part.values() if volume.suits(claim)]
            # Where a volume's claimRef names the claim already, Kubernetes takes no other.
            own = [volume for volume in fit if volume.owner is not None]
            order = sorted(own or fit, key=lambda volume: (volume.size, volume.name))
            self._options[key] = tuple(order[:1] if own else order)
        return self._options[key]

    def _made(self, claim: ClaimView) -> tuple[Term, ...] | None:
        of = self.classes.get(claim.storage_class)
        return of.topologies if of is not None and of.provisions else ()

    def _alone(self, shape: PodShape, nodes: int) -> Iterator[AffinityTerm]:
        """Yield what keeps two pods with such a claim from being there at once, wherever."""
        for key in shape.claims:
            if key in self.claims and self.claims[key].alone:
                users = self.users.get(key, {})
                # One domain for the whole cluster: the claim is for one pod, wherever it is.
                yield AffinityTerm(
                    Link.APART,
                    np.zeros(nodes, np.int64),
                    np.array([len(users)]),
                    IN_USE,
                    dict.fromkeys(self._claimants.get(key, ()), 1),
                    going=np.array([len(self.going.intersection(users))]),
                )

    def _attached(self, key: Key) -> Volume:
        """Return the volume that a pod with the claim has on its node; no driver: it is none."""
        claim = self.claims.get(key)
        # The claim is not there yet, or is an earlier pod's: the volume will be a new one.
        if key in self._scratch and (claim is None or not self._owned(key, claim)):
            return self._maker(next(iter(self._scratch[key].values()))), _name(key)
        if claim is None:
            return "", ""
        volume = self.volumes.get(claim.volume)
        if volume is not None:
            return volume.driver if volume.handle else "", volume.handle
        of = self.classes.get(claim.storage_class)
        return "" if of is None else of.driver, _name(key)

    def _maker(self, own: Scratch) -> str:
        """Return the driver of a volume that is made for a pod; empty if that is not known."""
        of = self._class_of(own)
        return "" if of is None else of.driver

    def allow(self, shape: PodShape, node: NodeView) -> bool:
        """Say whether the volumes let a pod of the shape go there at this moment."""
        if not shape.stored:
            return True
        used = any(term.counts.any() for term in self._alone(shape, 1))
        if used or self.refusal(shape) is not None:
            return False
        if any(excluded.any() for _, excluded in self._against(shape, Reach([node]))):
            return False
        self.survey({0: shape}, {node.name: 0})
        room = AffinityState({}, {}, self._drivers.get(0, ())).attached(0)
        if room is not None and not room[0]:
            return False
        # Not by columns as in a cycle: of thousands of volumes the first that suits is enough.
        taken = set(self.chosen.values())
        return all(
            self._serve(key, claim, node, taken) for key, claim in self._waiting(shape.claims)
        )

    def _serve(self, key: Key, claim: ClaimView, node: NodeView, taken: set[str]) -> bool:
        """Return whether the claim's volume can be had on the node; add it to those `taken`."""
        kept = self.chosen.get(key)
        for volume in self._choice(claim):
            free = volume.name == kept if kept is not None else volume.name not in taken
            if free and _suits(volume.affinity, node):
                taken.add(volume.name)
                return True
        return not kept and bool(self._room(key, claim, None, Reach([node]))[0])

    def consumers(self, views: Mapping[str, NodeView]) -> Iterator[Consumer]:
        """Yield the claims of which a pod has come to its node, and are to get their volume."""
        self.choose(views)
        for key, name in () if self.unserved else self.chosen.items():
            claim = self.claims[key]
            if not self._owned(key, claim):
                continue
            # Reserved by the volume's claimRef; the volume controller completes the binding.
            if name and not self.volumes[name].belongs_to(claim):
                yield Consumer(claim, self.volumes[name], "")
            known = self.classes.get(claim.storage_class)
            # Said by the claim's annotation, for which external provisioners wait.
            node = self._home(key, views)
            if node and not (name or claim.node) and known is not None and known.provisions:
                yield Consumer(claim, None, node)

    def _home(self, key: Key, there: Container[str]) -> str:
        """Return the node of a pod that uses the claim, of those that are there; else empty."""
        return next((node for node in self.users[key].values() if node in there), "")

    def _owned(self, key: Key, claim: ClaimView) -> bool:
        """Say whether the claim is not that of a pod which had the name before."""
        return key not in self._scratch or claim.owner in self._scratch[key]

    def _missing(self, key: Key) -> str:
        claim = self.claims.get(key)
        if claim is None:
            return f'claim "{key[1]}" does not exist'
        if claim.unreadable:
            return f'claim "{claim.name}" cannot be read: {claim.unreadable}'
        if claim.lost:
            return f'claim "{claim.name}" has lost its volume'
        if claim.deleting:
            return f'claim "{claim.name}" is being deleted'
        return self._lacking(claim)

    def _lacking(self, claim: ClaimView) -> str:
        """Return what the claim lacks of a volume, whichever node its pod goes to."""
        if claim.bound:
            volume = self.volumes.get(claim.volume)
            return f'volume "{claim.volume}" does not exist' if volume is None else ""
        of = self.classes.get(claim.storage_class)
        if claim.volume or of is None or not of.waits:
            return f'claim "{claim.name}" is not bound yet'
        if self.unserved and not claim.node:
            return _unserved(f'claim "{claim.name}"', self.unserved)
        return ""

    def _against(self, shape: PodShape, reach: Reach) -> Iterator[tuple[str, BoolArray]]:
        """Yield why nodes do not suit the volumes, and (N,) these nodes; the first reason counts.

        Equal conditions of many volumes are evaluated once: that is linear in the nodes.
        """
        claims = [self.claims[key] for key in shape.claims if key in self.claims]
        bound = [self.volumes[c.volume] for c in claims if c.bound and c.volume in self.volumes]
        # As kube-scheduler: all affinities, then the claims to be bound, then all zones.
        for affinity in {volume.affinity for volume in bound}:
            yield ELSEWHERE, ~reach.of(affinity)
        chosen_for = [claim for claim in claims if not claim.bound and claim.node]
        for node in {claim.node for claim in chosen_for}:
            yield NOT_SERVED, ~reach.named(node)
        own = [(of, each.size) for each in shape.scratch if (of := self._class_of(each))]
        topologies = {self._made(claim) for claim in chosen_for}
        for terms in topologies | {of.topologies for of, _ in own}:
            yield NOT_SERVED, ~reach.of(terms)
        asked = {(claim.storage_class, claim.size) for claim in chosen_for}
        for name, size in asked | {(of.name, size) for of, size in own}:
            yield NO_SPACE, ~self._spacious(name, size, reach)
        for zone in {zone for volume in bound for zone in volume.zones}:
            yield OTHER_ZONE, ~reach.in_zone(*zone)


def _put(table: dict[Any, Any], key: object, value: object, *, there: bool) -> None:
    if there:
        table[key] = value
    else:
        table.pop(key, None)


def _unserved(what: str, why: str) -> str:
    return f"{what} waits for its first consumer, and {why}"


def _name(key: Key) -> str:
    """Return a name for the volume that a claim is to get, which is not there yet."""
    return f"for the claim {'/'.join(key)}"


def _suits(terms: tuple[Term, ...] | None, node: NodeView) -> bool:
    return terms is None or any(holds(part, node) for part in terms)
