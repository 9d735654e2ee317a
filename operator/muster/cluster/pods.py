# SPDX-License-Identifier: Apache-2.0
"""Pods as the scheduler's columns need them: documents in, narrow values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.api import edge, names, podtemplate, quantity
from muster.api.model import Json
from muster.cluster import selectors
from muster.cluster.selectors import Expression, Identity, Labels, PodAffinityTerm, expression
from muster.scheduler.model import RESOURCE_CLAIMS, HostPort, Link

Requests = tuple[tuple[str, int], ...]
"""(resource, amount) in the units of `api.quantity`, sorted by name, the pod slot left out."""
PodKey = tuple[str, str, str]
"""(namespace, name, uid): an older pod of the name is another. No uid: a pod that is wanted."""
PER_POD: Final = (names.REPLICA_INDEX, names.JOB_ROLE)
"""Labels that pods of one role do not have in common."""
UNSUPPORTED_VOLUMES: Final = (
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "iscsi",
    "rbd",
)
"""Volumes that tie a pod to nodes in ways that are not looked at."""
CLAIM: Final = "persistentVolumeClaim"
LONGEST_GRACE: Final = 3600
"""Maximum grace period in seconds that others wait for: a longer one might block for years."""
LEAST_CPU: Final = 100
LEAST_MEMORY: Final = 200 * 1024 * 1024
"""What a container counts for in scores that asks for nothing, as in kube-scheduler."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint that keeps pods away (effect NoSchedule or NoExecute)."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's leave to ignore taints; an empty key or effect stands for any."""

    key: str
    exists: bool
    value: str
    effect: str
    beyond: int = 0
    """1: only of taints with a greater number than the value; -1: with a smaller one."""

    def covers(self, taint: Taint) -> bool:
        """Say whether the taint does not matter to a pod with this toleration."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.beyond:
            mine, theirs = _number(self.value), _number(taint.value)
            known = mine is not None and theirs is not None
            return known and (theirs or 0) * self.beyond > (mine or 0) * self.beyond
        return self.exists or self.value == taint.value


def _number(text: str) -> int | None:
    """Return the integer that a taint's value is, in its canonical form; None: it is none."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if str(number) == text else None


@dataclass(frozen=True, slots=True)
class Term:
    """Requirements that must all hold; a term without any holds nowhere."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Scratch:
    """A generic ephemeral volume: each pod gets its own, by a claim that is made for the pod."""

    name: str
    storage_class: str | None
    """None: the cluster's default."""
    made: bool = True
    """One that is there already would not do."""
    size: int = 0
    """In bytes, at least."""

    def key(self, namespace: str, pod: str) -> tuple[str, str]:
        """Return (namespace, name) of the claim that is made for the pod."""
        return namespace, f"{pod}-{self.name}"


@dataclass(frozen=True, slots=True)
class PodUse:
    """What a pod that has a node takes of it."""

    namespace: str
    name: str
    uid: str
    node: str
    requests: Requests
    load: tuple[int, int]
    """cpu and memory for scores."""
    ports: frozenset[HostPort]
    deleting: bool
    """It is on its way out, and others may wait for what it takes."""
    labels: Labels = field(default_factory=dict)
    apart: tuple[PodAffinityTerm, ...] = ()
    """Terms by which it keeps others away."""
    claims: tuple[tuple[str, str], ...] = ()
    """(namespace, name)"""
    scratch: tuple[Scratch, ...] = ()
    whole: bool = False
    """It cannot be read, so that nobody knows how much it leaves."""
    lingers: bool = False
    """It is on its way out, but may take as long as it likes: nobody is to wait for that."""
    nominated: int | None = None
    """Its priority, if another scheduler only keeps the room for it; None: it is there."""

    @property
    def key(self) -> PodKey:
        """Which pod it is."""
        return self.namespace, self.name, self.uid

    @property
    def mounts(self) -> tuple[tuple[str, str], ...]:
        """The claims that are its own, too."""
        return (*self.claims, *(own.key(self.namespace, self.name) for own in self.scratch))


NOBODY: Final = Identity("", {})


@dataclass(frozen=True, slots=True)
class PodShape:
    """What a pod template asks of its node. Equal templates have equal shapes."""

    requests: Requests
    load: tuple[int, int] = (LEAST_CPU, LEAST_MEMORY)
    ports: frozenset[HostPort] = frozenset()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] | None = None
    """Required terms, one of which must hold; None: no such constraint."""
    preferred: tuple[tuple[int, Term], ...] = ()
    """(weight, term)"""
    tolerations: tuple[Toleration, ...] = ()
    node_name: str = ""
    ties: tuple[PodAffinityTerm, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    """(namespace, name) of the volume claims."""
    scratch: tuple[Scratch, ...] = ()
    """What each of its pods gets for itself; of a pod that is there it is among the claims."""
    owned: tuple[tuple[tuple[str, str], str], ...] = ()
    """Those of the claims that must have been made for the pod, and its uid."""
    unsupported: str = ""
    """A constraint that the scheduler does not know, as a message names it."""
    party: str = ""
    """The role, of one that lies together for itself: others have other nodes to go to."""
    identity: Identity = field(default=NOBODY, compare=False)
    """How the terms of other pods see its pods. No part of the shape."""

    @property
    def apart(self) -> tuple[PodAffinityTerm, ...]:
        """The terms by which its pods keep others away."""
        return tuple(one for one in self.ties if one.link is Link.APART)

    @property
    def size(self) -> int:
        """Its share of a cache: 1, and 1 more for each `IDLE_VALUES` values of its terms."""
        terms = (*(self.affinity or ()), *(term for _, term in self.preferred))
        values = sum(selectors.size((*term.labels, *term.fields)) for term in terms)
        values += sum(tie.who.size for tie in self.ties)
        return 1 + values // selectors.IDLE_VALUES

    @property
    def stored(self) -> bool:
        """Whether its pods have volumes that claims stand for."""
        return bool(self.claims or self.scratch)

    def use(self, namespace: str, name: str, node: str) -> PodUse:
        """Return what a pod of that shape takes of a node before it is seen there."""
        return PodUse(
            namespace=namespace,
            name=name,
            uid="",
            node=node,
            requests=self.requests,
            load=self.load,
            ports=self.ports,
            deleting=False,
            labels=self.identity.labels,
            apart=self.apart,
            claims=self.claims,
            scratch=self.scratch,
        )


def parse_use(doc: Json, *, foreign: bool = False) -> PodUse | None:
    """Return what a pod takes on its node; None if it has no node or has ended.

    `foreign`: a nominated node will do. Raises ValueError for a bad quantity.
    """
    spec, metadata = doc["spec"], doc["metadata"]
    status, kept = doc.get("status") or {}, None
    node = spec.get("nodeName")
    if foreign and not node and "deletionTimestamp" not in metadata:
        node, kept = status.get("nominatedNodeName"), edge.integer(spec.get("priority")) or 0
    if not node or status.get("phase") in ("Succeeded", "Failed"):
        return None
    requests = podtemplate.held(spec, status)
    deleting, lingers = departure(metadata)
    return PodUse(
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        node=node,
        requests=tuple(sorted(requests.items())),
        load=_load(spec, requests),
        ports=_ports(spec),
        deleting=deleting,
        lingers=lingers,
        labels=metadata.get("labels") or {},
        apart=selectors.apart(spec, _identity(metadata, "", {})) if "affinity" in spec else (),
        claims=_claims(spec, metadata.get("namespace", "")),
        scratch=_scratch(spec),
        nominated=kept,
    )


def unread(spec: Json) -> str:
    """Return the error for a pod on a node whose terms about other pods exceed a limit, or ""."""
    found = podtemplate.too_many_terms(spec, (podtemplate.ANTI_AFFINITY,))
    return next((f"spec.{path}: {error}" for path, error in found), "")


def departure(metadata: Json) -> tuple[bool, bool]:
    """Say whether a pod is on its way out so that others may wait for it, or is, but lingers."""
    if "deletionTimestamp" not in metadata:
        return False, False
    grace = edge.integer(metadata.get("deletionGracePeriodSeconds")) or 0
    return grace <= LONGEST_GRACE, grace > LONGEST_GRACE


def shape_of(template: Json, namespace: str = "", labels: Labels | None = None) -> PodShape:
    """Return the shape of a template or pod with more `labels`. ValueError for a bad quantity."""
    spec, metadata = template.get("spec") or {}, template.get("metadata") or {}
    identity = _identity(metadata, namespace, labels or {})
    terms = selectors.read(spec, identity)
    requests = podtemplate.requests(spec)
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(podtemplate.REQUIRED)
    scratch, claims = _scratch(spec), _claims(spec, identity.namespace)
    # A pod that is there has claims to look at, a template only says what they will be like.
    pod = metadata.get("uid") or ""
    made = [each.key(identity.namespace, metadata["name"]) for each in scratch] if pod else []
    return PodShape(
        requests=tuple(sorted(requests.items())),
        load=_load(spec, requests),
        ports=_ports(spec),
        selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity=None
        if required is None
        else tuple(map(term, podtemplate.readable_terms(spec, podtemplate.NODE_AFFINITY))),
        preferred=tuple(
            (edge.within(p.get("weight"), *selectors.WEIGHTS), term(p.get("preference") or {}))
            for p in podtemplate.readable_terms(spec, podtemplate.PREFERRED_NODES)
        ),
        tolerations=tuple(
            Toleration(
                key=each.get("key") or "",
                exists=each.get("operator") == "Exists",
                value=each.get("value") or "",
                effect=each.get("effect") or "",
                beyond={"Gt": 1, "Lt": -1}.get(each.get("operator") or "", 0),
            )
            for each in podtemplate.readable_terms(spec, podtemplate.TOLERATIONS)
        ),
        node_name=spec.get("nodeName") or "",
        ties=terms,
        claims=(*claims, *made),
        scratch=() if pod else scratch,
        owned=tuple((key, pod) for key in made),
        unsupported=_unsupported(spec, terms),
        identity=identity,
    )


def _identity(metadata: Json, namespace: str, more: Labels) -> Identity:
    labels = metadata.get("labels") or {}
    return Identity(metadata.get("namespace") or namespace, {**labels, **more} if more else labels)


def term(doc: Json) -> Term:
    """Return one term of a node selector."""
    return Term(
        labels=tuple(map(expression, doc.get("matchExpressions") or ())),
        fields=tuple(map(expression, doc.get("matchFields") or ())),
    )


def _load(spec: Json, requests: Mapping[str, int]) -> tuple[int, int]:
    resources = [c.get("resources") or {} for c in spec.get("containers") or ()]
    named = [{**(r.get("limits") or {}), **(r.get("requests") or {})} for r in resources]
    cpu, memory = (sum(r not in names for names in named) for r in ("cpu", "memory"))
    return (
        requests.get("cpu", 0) + cpu * LEAST_CPU,
        requests.get("memory", 0) + memory * LEAST_MEMORY,
    )


def _containers(spec: Json) -> Iterable[Json]:
    yield from spec.get("containers") or ()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            yield container


def _ports(spec: Json) -> frozenset[HostPort]:
    # The API server gives a host port to every port of a pod on the host's network.
    host = bool(spec.get("hostNetwork"))
    return frozenset(
        HostPort(
            protocol=port.get("protocol") or "TCP",
            address="*" if port.get("hostIP") in (None, "", "0.0.0.0") else port["hostIP"],  # noqa: S104
            port=port.get("hostPort") or port["containerPort"],
        )
        for container in _containers(spec)
        for port in container.get("ports") or ()
        if port.get("hostPort") or host
    )


def _claims(spec: Json, namespace: str) -> tuple[tuple[str, str], ...]:
    volumes = spec.get("volumes")
    if not volumes:
        return ()
    named = dict.fromkeys(v[CLAIM].get("claimName") for v in volumes if CLAIM in v)
    return tuple((namespace, name) for name in named if name)


def _scratch(spec: Json) -> tuple[Scratch, ...]:
    volumes = [volume for volume in spec.get("volumes") or () if volume.get("ephemeral")]
    if not volumes:
        return ()
    asked = [(volume["ephemeral"].get("volumeClaimTemplate") or {}) for volume in volumes]
    return tuple(
        _asked(volume["name"], template.get("spec") or {})
        for volume, template in zip(volumes, asked, strict=True)
    )


def _asked(name: str, spec: Json) -> Scratch:
    of = spec.get("storageClassName")
    given = bool(spec.get("volumeName")) or spec.get("selector") is not None or of == ""
    asked = (spec.get("resources") or {}).get("requests") or {}
    size = quantity.units("storage", asked.get("storage", 0))
    return Scratch(name, of, made=not given, size=size)


def _unsupported(spec: Json, terms: Iterable[PodAffinityTerm]) -> str:
    if spec.get("resourceClaims"):
        return RESOURCE_CLAIMS
    for path, error in podtemplate.too_many_terms(spec):
        return f"spec.{path}: {error}"
    for volume in spec.get("volumes") or ():
        kind = next((kind for kind in UNSUPPORTED_VOLUMES if volume.get(kind)), "")
        if kind:
            return f"a volume of the kind {kind}"
    keys = {e.key for one in terms for e in one.who.pods or ()}
    return next((f"a selector on the label {key}" for key in PER_POD if key in keys), "")
