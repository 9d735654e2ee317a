# SPDX-License-Identifier: Apache-2.0
"""Claims, volumes and storage classes: documents in, narrow values out; and where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np

from muster.api import quantity
from muster.api.model import Json
from muster.cluster.nodes import NodeView, holds
from muster.cluster.pods import Term, term
from muster.cluster.selectors import Expression, Labels, Selector, bounded, chosen, selector
from muster.scheduler.model import BoolArray, IntArray

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BOUND_BY: Final = "pv.kubernetes.io/bound-by-controller"
_BOUND: Final = "pv.kubernetes.io/bind-completed"
_DEFAULT: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_NOBODY: Final = "kubernetes.io/no-provisioner"
_MOVED: Final[Mapping[str, tuple[str, str, str]]] = {
    "kubernetes.io/aws-ebs": ("ebs.csi.aws.com", "awsElasticBlockStore", "volumeID"),
    "kubernetes.io/azure-disk": ("disk.csi.azure.com", "azureDisk", "diskURI"),
    "kubernetes.io/cinder": ("cinder.csi.openstack.org", "cinder", "volumeID"),
    "kubernetes.io/gce-pd": ("pd.csi.storage.gke.io", "gcePersistentDisk", "pdName"),
    "kubernetes.io/portworx-volume": ("pxd.portworx.com", "portworxVolume", "volumeID"),
}
"""Provisioner of old -> the CSI driver in its place, its field of a volume, the name in there."""
ZONES: Final[Mapping[str, str]] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Label of a volume -> the newer name under which a node may carry it."""


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
    """For which it is to be provisioned; empty: not known yet."""
    uid: str = ""
    size: int = 0
    """In bytes, at least."""
    modes: frozenset[str] = frozenset()
    """How it is to be used: `ReadWriteOnce` …"""
    block: bool = False
    """A raw device is wanted."""
    attributes: str = ""
    """Its VolumeAttributesClass."""
    selector: Selector = ()
    """Of the volume's labels."""
    owner: str = ""
    """The uid of the pod for which it was made, if it was."""
    unreadable: str = ""
    """Why nothing is known of it."""


@dataclass(frozen=True, slots=True)
class VolumeView:
    """A PersistentVolume."""

    name: str
    affinity: tuple[Term, ...] | None
    zones: tuple[tuple[str, tuple[str, ...]], ...]
    """(label, values)"""
    storage_class: str = ""
    size: int = 0
    modes: frozenset[str] = frozenset()
    block: bool = False
    attributes: str = ""
    labels: Labels = field(default_factory=dict, hash=False)
    available: bool = False
    deleting: bool = False
    owner: tuple[str, str, str] | None = None
    """(namespace, name, uid) of the claim that it is kept for."""
    driver: str = ""
    """Of CSI; empty: another kind of volume."""
    handle: str = ""
    """How the driver knows it."""
    version: str = field(default="", compare=False)

    def belongs_to(self, claim: ClaimView) -> bool:
        """Say whether it is kept for that claim."""
        if self.owner is None or self.owner[:2] != (claim.namespace, claim.name):
            return False
        return self.owner[2] in ("", claim.uid)

    def suits(self, claim: ClaimView) -> bool:
        """Say whether the claim may get it, wherever it is."""
        if self.deleting or self.storage_class != claim.storage_class:
            return False
        if (self.block, self.attributes) != (claim.block, claim.attributes):
            return False
        if self.size < claim.size:
            return False
        if self.owner is not None:
            # Kept for one claim, a volume is that claim's even while its phase says otherwise.
            return self.belongs_to(claim)
        wanted = claim.selector is not None and chosen(claim.selector, self.labels)
        return self.available and wanted and claim.modes <= self.modes


@dataclass(frozen=True, slots=True)
class ClassView:
    """A StorageClass."""

    name: str
    waits: bool
    """For the first consumer."""
    provisions: bool
    topologies: tuple[Term, ...] | None
    driver: str = ""
    """Of CSI, or what else makes the volumes."""
    default: bool = False
    """Claims that name no class are of this one."""
    created: str = ""


@dataclass(frozen=True, slots=True)
class AttachView:
    """A CSINode: how many volumes can be attached to a node."""

    node: str
    most: tuple[tuple[str, int], ...]
    """(driver, count)"""
    topology: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(driver, labels): nodes with the same values of these reach the same volumes."""


@dataclass(frozen=True, slots=True)
class DriverView:
    """A CSIDriver."""

    name: str
    tracks: bool
    """Its volumes are made only where it reports that storage is left for them."""


@dataclass(frozen=True, slots=True)
class CapacityView:
    """A CSIStorageCapacity: how large a volume of a class can be made on some nodes."""

    key: tuple[str, str]
    """(namespace, name)"""
    storage_class: str
    nodes: tuple[Term, ...] | None
    most: int
    """In bytes."""


def parse_claim(doc: Json) -> ClaimView:
    """Return what is needed of a claim."""
    metadata, spec = doc["metadata"], doc.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    asked = (spec.get("resources") or {}).get("requests") or {}
    owners = metadata.get("ownerReferences") or ()
    return ClaimView(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        volume=spec.get("volumeName") or "",
        # kube-scheduler's test: a name without the annotation is a binding that is not completed.
        bound=bool(spec.get("volumeName")) and _BOUND in annotations,
        lost=(doc.get("status") or {}).get("phase") == "Lost",
        deleting="deletionTimestamp" in metadata,
        alone="ReadWriteOncePod" in (spec.get("accessModes") or ()),
        node=annotations.get(SELECTED_NODE) or "",
        uid=metadata.get("uid", ""),
        **_kind(spec, annotations, asked),
        selector=() if spec.get("selector") is None else bounded(spec["selector"]),
        owner=next((o["uid"] for o in owners if o.get("controller") and o["kind"] == "Pod"), ""),
    )


def _kind(spec: Json, annotations: Json, amounts: Json) -> dict[str, Any]:
    """Return, by field, the values in which a claim and its volume must agree."""
    return {
        "storage_class": annotations.get(_OLD_CLASS) or spec.get("storageClassName") or "",
        "size": quantity.units("storage", amounts.get("storage", 0)),
        "modes": frozenset(spec.get("accessModes") or ()),
        "block": spec.get("volumeMode") == "Block",
        "attributes": spec.get("volumeAttributesClassName") or "",
    }


def parse_volume(doc: Json) -> VolumeView:
    """Return what is needed of a volume."""
    metadata, spec = doc["metadata"], doc.get("spec") or {}
    required = (spec.get("nodeAffinity") or {}).get("required")
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    owner = spec.get("claimRef")
    driver, handle = _attached(spec, labels)
    return VolumeView(
        name=metadata["name"],
        affinity=None
        if required is None
        else tuple(map(term, required.get("nodeSelectorTerms") or ())),
        zones=tuple((key, tuple(labels[key].split("__"))) for key in ZONES if key in labels),
        **_kind(spec, annotations, spec.get("capacity") or {}),
        labels=labels,
        available=(doc.get("status") or {}).get("phase") == "Available",
        deleting="deletionTimestamp" in metadata,
        owner=(owner.get("namespace", ""), owner.get("name", ""), owner.get("uid", ""))
        if owner
        else None,
        driver=driver,
        handle=handle,
        version=metadata.get("resourceVersion", ""),
    )


def _attached(spec: Json, labels: Labels) -> tuple[str, str]:
    if "csi" in spec:
        return spec["csi"]["driver"], spec["csi"]["volumeHandle"]
    for driver, source, key in _MOVED.values():
        if source in spec:
            name = spec[source].get(key) or ""
            # Written as aws://ZONE/NAME, too; of Google's a name is one in its zone.
            bare = name.rpartition("/")[2] if name.startswith("aws://") else name
            zone = "".join(str(labels.get(label, "")) for label in ZONES)
            return driver, f"{zone}/{name}" if source == "gcePersistentDisk" else bare
    return "", ""


def parse_class(doc: Json) -> ClassView:
    """Return what is needed of a storage class."""
    listed = [t.get("matchLabelExpressions") or () for t in doc.get("allowedTopologies") or ()]
    topologies = tuple(
        Term(tuple(Expression(e["key"], "In", frozenset(e.get("values") or ())) for e in part))
        for part in listed
    )
    provisioner, notes = doc.get("provisioner") or "", doc["metadata"].get("annotations") or {}
    return ClassView(
        name=doc["metadata"]["name"],
        waits=doc.get("volumeBindingMode") == "WaitForFirstConsumer",
        provisions=provisioner not in ("", _NOBODY),
        topologies=topologies or None,
        driver=_MOVED[provisioner][0] if provisioner in _MOVED else provisioner,
        default=any(notes.get(key) == "true" for key in _DEFAULT),
        created=doc["metadata"].get("creationTimestamp") or "",
    )


def parse_attach(doc: Json) -> AttachView:
    """Return what is needed of a CSINode."""
    listed = (doc.get("spec") or {}).get("drivers") or ()
    counts = ((one["name"], (one.get("allocatable") or {}).get("count")) for one in listed)
    most = tuple((name, count) for name, count in counts if count is not None)
    labels = ((one["name"], tuple(one.get("topologyKeys") or ())) for one in listed)
    topology = tuple((name, keys) for name, keys in labels if keys)
    return AttachView(doc["metadata"]["name"], most, topology)


def parse_driver(doc: Json) -> DriverView:
    """Return what is needed of a CSIDriver."""
    tracks = (doc.get("spec") or {}).get("storageCapacity") is True
    return DriverView(doc["metadata"]["name"], tracks)


def parse_capacity(doc: Json) -> CapacityView:
    """Return what is needed of a CSIStorageCapacity."""
    metadata, topology = doc["metadata"], doc.get("nodeTopology")
    most = doc.get("maximumVolumeSize") or doc.get("capacity") or 0
    return CapacityView(
        (metadata.get("namespace", ""), metadata["name"]),
        doc.get("storageClassName") or "",
        () if topology is None else None if not (on := selector(topology)) else (Term(on),),
        quantity.units("storage", most),
    )


Stored = ClaimView | VolumeView | ClassView | AttachView | DriverView | CapacityView


@dataclass(frozen=True, slots=True)
class Consumer:
    """A claim and what it is to get."""

    claim: ClaimView
    volume: VolumeView | None
    """It is to be bound to this one."""
    node: str
    """Else: one is to be made for this node."""


Terms = tuple[Term, ...] | None


class Reach:
    """Answers for these N nodes, each question worked out once."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        self._nodes = nodes
        self.index: Final = {node.name: i for i, node in enumerate(nodes)}
        """Node -> where it stands."""
        self._known: dict[Terms, BoolArray] = {}
        self._zones: dict[tuple[str, tuple[str, ...]], BoolArray] = {}
        self._places: dict[str, dict[str, list[int]]] = {}

    def of(self, terms: Terms) -> BoolArray:
        """Return (N,) where one of the terms holds; everywhere without terms."""
        if terms not in self._known:
            marks = np.full(len(self._nodes), terms is None)
            marks[[*self._where(terms or ())]] = True
            self._known[terms] = marks
        return self._known[terms]

    def largest(self, amounts: Iterable[tuple[Terms, int]]) -> IntArray:
        """Return (N,) the largest of the amounts whose terms hold there, else 0."""
        found = np.zeros(len(self._nodes), np.int64)
        for terms, amount in amounts:
            where = slice(None) if terms is None else [*self._where(terms)]
            found[where] = np.maximum(found[where], amount)
        return found

    def named(self, name: str) -> BoolArray:
        """Return (N,) the node with this name, if there is one."""
        marks: BoolArray = np.arange(len(self._nodes)) == self.index.get(name, -1)
        return marks

    def in_zone(self, key: str, values: tuple[str, ...]) -> BoolArray:
        """Return (N,) the nodes that a volume with this label of `ZONES` reaches."""
        if (key, values) not in self._zones:
            labels = [node.labels for node in self._nodes]
            found = [
                own.get(key, own.get(ZONES[key], "")) in values or ZONES.keys().isdisjoint(own)
                for own in labels
            ]
            self._zones[key, values] = np.array(found, np.bool_)
        return self._zones[key, values]

    def domains(self, labels: Sequence[str]) -> IntArray:
        """Return (N,) numbers, the same for nodes with the same values of the labels."""
        values = [tuple(node.labels.get(label) for label in labels) for node in self._nodes]
        numbers = {value: i for i, value in enumerate(dict.fromkeys(values))}
        return np.array([numbers[value] for value in values], np.int64)

    def _where(self, terms: Iterable[Term]) -> Iterator[int]:
        """Yield where one of the terms holds."""
        for each in terms:
            yield from (i for i in self._candidates(each) if holds(each, self._nodes[i]))

    def _candidates(self, term: Term) -> Sequence[int]:
        """Return where the term may hold: of local volumes there are as many as nodes, or more."""
        # Of a zone and a host the host: all nodes may be in one zone.
        found = [self._having(e) for e in term.labels if e.operator == "In"]
        few = min(found, key=lambda lists: sum(map(len, lists)), default=[range(len(self._nodes))])
        return list(chain.from_iterable(few))

    def _having(self, label: Expression) -> list[Sequence[int]]:
        if label.key not in self._places:
            places = self._places[label.key] = {}
            for i, node in enumerate(self._nodes):
                if label.key in node.labels:
                    places.setdefault(node.labels[label.key], []).append(i)
        return [self._places[label.key].get(value, ()) for value in sorted(label.values)]
