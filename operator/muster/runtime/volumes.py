# SPDX-License-Identifier: Apache-2.0
"""Where the volumes of a pod let it go: bound ones by where they are, others by their class.

A claim that waits for its first consumer is provisioned for the node that the pod gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from muster.api.model import Json
from muster.runtime.matching import holds
from muster.runtime.shapes import NodeView, PodShape, PodUse, Term, term
from muster.runtime.ties import Expression
from muster.scheduler.model import Bond, CodeArray, Link, Reason, Refusal

Key = tuple[str, str]
"""(namespace, name) of a claim."""

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BOUND: Final = "pv.kubernetes.io/bind-completed"
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_NOBODY: Final = "kubernetes.io/no-provisioner"
_ZONES: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Label of a volume -> the newer name under which a node may carry it."""

ELSEWHERE: Final = "node(s) didn't match PersistentVolume's node affinity"
OTHER_ZONE: Final = "node(s) had no available volume zone"
NOT_SERVED: Final = "node(s) didn't find available persistent volumes to bind"
IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A PersistentVolumeClaim."""

    namespace: str
    name: str
    volume: str
    bound: bool
    lost: bool
    deleting: bool
    storage_class: str
    alone: bool
    """One pod at a time (ReadWriteOncePod)."""
    node: str
    """For which it is to be provisioned; empty: not said yet."""


@dataclass(frozen=True, slots=True)
class VolumeView:
    """A PersistentVolume."""

    name: str
    affinity: tuple[Term, ...] | None
    zones: tuple[tuple[str, tuple[str, ...]], ...]
    """(label, values)"""


@dataclass(frozen=True, slots=True)
class ClassView:
    """A StorageClass."""

    name: str
    waits: bool
    """For the first consumer."""
    provisions: bool
    topologies: tuple[Term, ...] | None


def parse_claim(doc: Json) -> ClaimView:
    """Return what is needed of a claim."""
    metadata, spec = doc["metadata"], doc.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    return ClaimView(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        volume=spec.get("volumeName") or "",
        bound=bool(spec.get("volumeName")) and _BOUND in annotations,
        lost=(doc.get("status") or {}).get("phase") == "Lost",
        deleting="deletionTimestamp" in metadata,
        storage_class=annotations.get(_OLD_CLASS) or spec.get("storageClassName") or "",
        alone="ReadWriteOncePod" in (spec.get("accessModes") or ()),
        node=annotations.get(SELECTED_NODE) or "",
    )


def parse_volume(doc: Json) -> VolumeView:
    """Return what is needed of a volume."""
    metadata, spec = doc["metadata"], doc.get("spec") or {}
    required = (spec.get("nodeAffinity") or {}).get("required")
    labels = metadata.get("labels") or {}
    return VolumeView(
        name=metadata["name"],
        affinity=None
        if required is None
        else tuple(map(term, required.get("nodeSelectorTerms") or ())),
        zones=tuple((key, tuple(labels[key].split("__"))) for key in _ZONES if key in labels),
    )


def parse_class(doc: Json) -> ClassView:
    """Return what is needed of a storage class."""
    listed = [t.get("matchLabelExpressions") or () for t in doc.get("allowedTopologies") or ()]
    topologies = tuple(
        Term(tuple(Expression(e["key"], "In", tuple(e.get("values") or ())) for e in part))
        for part in listed
    )
    return ClassView(
        name=doc["metadata"]["name"],
        waits=doc.get("volumeBindingMode") == "WaitForFirstConsumer",
        provisions=doc.get("provisioner") not in ("", _NOBODY, None),
        topologies=topologies or None,
    )


Stored = ClaimView | VolumeView | ClassView


@dataclass(slots=True)
class Volumes:
    """Claims, volumes and classes as they are, and who uses which claim."""

    claims: dict[Key, ClaimView] = field(default_factory=dict)
    volumes: dict[str, VolumeView] = field(default_factory=dict)
    classes: dict[str, ClassView] = field(default_factory=dict)
    users: dict[Key, dict[Key, str]] = field(default_factory=dict)
    """Claim -> pod -> its node."""
    going: set[Key] = field(default_factory=set)
    """Pods with claims that are being deleted."""

    def changed(self, before: Stored | None, after: Stored | None) -> None:
        """Take in that one of them came (before None), changed, or went (after None)."""
        for view, there in ((before, False), (after, True)):
            if isinstance(view, ClaimView):
                _put(self.claims, (view.namespace, view.name), view, there=there)
            elif isinstance(view, VolumeView):
                _put(self.volumes, view.name, view, there=there)
            elif isinstance(view, ClassView):
                _put(self.classes, view.name, view, there=there)

    def put(self, use: PodUse, sign: int) -> None:
        """Note that a pod came to its node (sign 1), or went (-1)."""
        for claim in use.claims:
            users = self.users.setdefault(claim, {})
            _put(users, (use.namespace, use.name), use.node, there=sign > 0)
            if not users:
                del self.users[claim]
        if use.claims and use.deleting:
            (self.going.add if sign > 0 else self.going.discard)((use.namespace, use.name))

    def refusal(self, shape: PodShape) -> Refusal | None:
        """Return why pods of the shape cannot be placed anywhere at present."""
        for key in shape.claims:
            sentence = self._missing(key)
            if sentence:
                return Refusal(Reason.WAITING_FOR_VOLUME, sentence)
            claim = self.claims[key]
            if not claim.bound and not self.classes[claim.storage_class].provisions:
                sentence = f'claim "{claim.name}" is unbound, and its class provisions nothing'
                return Refusal(Reason.UNSUPPORTED_CONSTRAINT, sentence)
        return None

    def barred(
        self, shape: PodShape, nodes: Sequence[NodeView], codes: CodeArray, texts: Sequence[str]
    ) -> tuple[CodeArray, tuple[str, ...]]:
        """Return `codes` (N,) and texts, with the nodes that the volumes rule out added."""
        numbers = {text: i for i, text in enumerate(texts, 1)}
        codes = codes.copy()
        for i, node in enumerate(nodes):
            against = "" if codes[i] else self._against(shape, node)
            if against:
                codes[i] = numbers.setdefault(against, len(numbers) + 1)
        return codes, tuple(numbers)

    def bonds(
        self, shape: PodShape, nodes: int, known: Mapping[int, PodShape]
    ) -> tuple[Bond, ...]:
        """Return what keeps two pods with such a claim from being there at once, wherever.

        `known`: the shapes of pods that wait, and of those that could be evicted.
        """
        return tuple(
            Bond(
                Link.APART,
                np.zeros(nodes, np.int64),
                np.array([len(self.users.get(key, ()))]),
                IN_USE,
                {id_: 1 for id_, other in known.items() if key in other.claims},
                going=np.array([len(self.going.intersection(self.users.get(key, ())))]),
            )
            for key in shape.claims
            if key in self.claims and self.claims[key].alone
        )

    def allow(self, shape: PodShape, node: NodeView) -> bool:
        """Say whether the volumes let a pod of the shape go there at this moment."""
        if not shape.claims:
            return True
        used = any(
            self.claims[k].alone for k in shape.claims if k in self.claims and k in self.users
        )
        return not used and self.refusal(shape) is None and not self._against(shape, node)

    def consumers(self) -> Iterator[tuple[ClaimView, str]]:
        """Yield the claims that wait to be told for which node they are, and the node."""
        for key, users in self.users.items():
            claim = self.claims.get(key)
            if claim is None or claim.volume or claim.node:
                continue
            known = self.classes.get(claim.storage_class)
            if known is not None and known.waits and known.provisions:
                yield claim, next(iter(users.values()))

    def _missing(self, key: Key) -> str:
        claim = self.claims.get(key)
        if claim is None:
            return f'claim "{key[1]}" does not exist'
        if claim.lost:
            return f'claim "{claim.name}" has lost its volume'
        if claim.deleting:
            return f'claim "{claim.name}" is being deleted'
        if claim.bound:
            known = claim.volume in self.volumes
            return "" if known else f'volume "{claim.volume}" does not exist'
        of = self.classes.get(claim.storage_class)
        if claim.volume or of is None or not of.waits:
            return f'claim "{claim.name}" is not bound yet'
        return ""

    def _against(self, shape: PodShape, node: NodeView) -> str:
        claims = [self.claims[key] for key in shape.claims if key in self.claims]
        # As kube-scheduler: all affinities, then the claims to be bound, then all zones.
        for claim in claims:
            volume = self.volumes.get(claim.volume) if claim.bound else None
            if volume is not None and not _suits(volume.affinity, node):
                return ELSEWHERE
        for claim in claims:
            if not claim.bound and claim.node and claim.node != node.name:
                return NOT_SERVED
            known = self.classes.get(claim.storage_class)
            if not claim.bound and known is not None and not _suits(known.topologies, node):
                return NOT_SERVED
        bound = (self.volumes.get(claim.volume) for claim in claims if claim.bound)
        zones = [zone for volume in bound if volume is not None for zone in volume.zones]
        return OTHER_ZONE if not _in_zones(zones, node) else ""


def _put(table: dict[Any, Any], key: object, value: object, *, there: bool) -> None:
    if there:
        table[key] = value
    else:
        table.pop(key, None)


def _suits(terms: tuple[Term, ...] | None, node: NodeView) -> bool:
    return terms is None or any(holds(part, node) for part in terms)


def _in_zones(zones: Iterable[tuple[str, tuple[str, ...]]], node: NodeView) -> bool:
    if not any(key in node.labels for key in _ZONES):
        return True
    return all(
        node.labels.get(key, node.labels.get(_ZONES[key], "")) in values for key, values in zones
    )
