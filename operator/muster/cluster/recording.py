# SPDX-License-Identifier: Apache-2.0
"""All that a scheduling cycle saw, as JSON with sorted keys: it replays to the same decisions."""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from muster.cluster import quota
from muster.cluster.gangs import GangInput, GangRules
from muster.cluster.nodes import NodeView
from muster.cluster.pods import PodUse
from muster.cluster.queues import QueueInput
from muster.cluster.quota import LimitView, Scope
from muster.cluster.runtimeclass import RuntimeView
from muster.cluster.state import ClusterColumns
from muster.cluster.storage import (
    AttachView,
    CapacityView,
    ClaimView,
    ClassView,
    DriverView,
    Stored,
    VolumeView,
)
from muster.scheduler import cycle, policy
from muster.scheduler.decision import Decision
from muster.scheduler.model import Deferred, PastMove, Quota, Snapshot
from muster.scheduler.policy import Policy

T = TypeVar("T")
FORMAT: Final = "muster.kubeflow.org/snapshot-1"


class UnreadableError(ValueError):
    """A file that is no recording of this version; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What one cycle saw."""

    now: float
    resources: tuple[str, ...]
    """In the order of the columns."""
    nodes: tuple[NodeView, ...]
    pods: tuple[PodUse, ...]
    """All pods that take room on a node, promised ones included."""
    gangs: tuple[GangInput, ...]
    queues: tuple[QueueInput, ...]
    rules: GangRules
    spaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of namespaces."""
    claims: tuple[ClaimView, ...] = ()
    volumes: tuple[VolumeView, ...] = ()
    classes: tuple[ClassView, ...] = ()
    limits: tuple[AttachView, ...] = ()
    """Of the volumes that can be attached to nodes."""
    drivers: tuple[DriverView, ...] = ()
    capacities: tuple[CapacityView, ...] = ()
    served: tuple[tuple[str, str, str], ...] = ()
    """(namespace, claim, volume) of claims of pods that have a node; empty volume: one is made."""
    unserved: str = ""
    """Why no claim that waits for its first consumer gets a volume."""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """By dimension; pods that are about to be created are counted with their gangs."""
    quota_scopes: Mapping[str, tuple[Scope, ...]] = field(default_factory=dict)
    """Of the quotas that have any, by namespace/name."""
    ranges: tuple[LimitView, ...] = ()
    runtimes: tuple[RuntimeView, ...] = ()
    device_resources: tuple[str, ...] = ()
    """Extended resources that DeviceClasses offer."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """The policy file; empty: the built-in policy."""
    moves: tuple[PastMove, ...] | None = None
    """The moves of the last hour; None: nobody asked for moves."""
    deferred: Deferred = field(default_factory=Deferred)

    def snapshot(self) -> Snapshot:
        """Return the same columns again."""
        columns = ClusterColumns(self.resources)
        self.restore(columns)
        return columns.snapshot(self.gangs, self.queues, self.now, self.moves, self.deferred)

    def restore(self, columns: ClusterColumns) -> None:
        """Let the columns take in all that the cycle saw of the cluster."""
        for name, labels in self.spaces.items():
            columns.space_changed(name, labels)
        stored: tuple[Stored, ...] = (*self.claims, *self.volumes, *self.classes)
        for view in (*stored, *self.limits, *self.drivers, *self.capacities):
            columns.volumes.changed(None, view)
        for node in self.nodes:
            columns.node_changed(None, node)
        for pod in self.pods:
            columns.pod_changed(None, pod)
        for namespace, claim, volume in self.served:
            columns.volumes.chosen[namespace, claim] = volume
        columns.volumes.unserved = self.unserved
        columns.device_resources = frozenset(self.device_resources)
        for of_quota in quota.views_of(self.quotas, self.quota_scopes):
            columns.quotas.quota_changed(None, of_quota)
        for limits in self.ranges:
            columns.quotas.limits_changed(None, limits)
        for runtime in self.runtimes:
            columns.quotas.runtime_changed(None, runtime)

    def decide(self) -> tuple[Decision, ...]:
        """Return what is decided."""
        return cycle.schedule(self.snapshot(), self._chosen)

    @property
    def _chosen(self) -> Policy:
        return policy.parse(self.policy) if self.policy else policy.DEFAULT


def take(
    columns: ClusterColumns,
    gangs: Iterable[GangInput],
    queues: Iterable[QueueInput],
    rules: GangRules,
    snapshot: Snapshot,
    chosen: Policy,
) -> Recording:
    """Return what the cycle on that snapshot sees, in whatever order it is known."""
    nodes, pods, spaces = columns.contents()
    book, volumes = columns.quotas, columns.volumes
    views, ranges = book.contents()
    return Recording(
        now=snapshot.now,
        resources=snapshot.resources,
        nodes=tuple(nodes),
        pods=tuple(pods),
        gangs=tuple(gangs),
        queues=tuple(queues),
        rules=rules,
        spaces=spaces,
        claims=tuple(volumes.claims.values()),
        volumes=tuple(volumes.volumes.values()),
        classes=tuple(volumes.classes.values()),
        limits=tuple(volumes.limits.views.values()),
        drivers=tuple(volumes.drivers.values()),
        capacities=tuple(it for of in volumes.capacities.values() for it in of.values()),
        served=tuple((*key, volume) for key, volume in volumes.chosen.items()),
        unserved=volumes.unserved,
        quotas=book.dimensions(),
        quota_scopes={f"{v.namespace}/{v.name}": v.scopes for v in views if v.scopes},
        ranges=tuple(ranges),
        runtimes=tuple(book.runtimes.values()),
        device_resources=tuple(sorted(columns.device_resources)),
        policy=chosen.source,
        moves=snapshot.moves,
        deferred=snapshot.deferred,
    )


def dump(recording: Recording, decisions: Sequence[Decision]) -> str:
    """Return the text of the file."""
    saw = plain(_in_order(recording))
    whole = {"format": FORMAT, "saw": saw, "decided": plain(decisions)}
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"


def _in_order(recording: Recording) -> Recording:
    return replace(
        recording,
        nodes=_by(recording.nodes, "name"),
        pods=_by(recording.pods, "namespace", "name"),
        claims=_by(recording.claims, "namespace", "name"),
        volumes=_by(recording.volumes, "name"),
        classes=_by(recording.classes, "name"),
        limits=_by(recording.limits, "node"),
        drivers=_by(recording.drivers, "name"),
        capacities=_by(recording.capacities, "key"),
        served=tuple(sorted(recording.served)),
        runtimes=_by(recording.runtimes, "name"),
    )


def _by(views: tuple[T, ...], *keys: str) -> tuple[T, ...]:
    return tuple(sorted(views, key=operator.attrgetter(*keys)))


def load(text: str) -> tuple[Recording, str]:
    """Return the recording and its `decisions_text`. Raises UnreadableError."""
    try:
        whole = json.loads(text)
    except ValueError as error:
        raise UnreadableError(f"not JSON: {error}") from error
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise UnreadableError(f"not a snapshot of muster in the format {FORMAT}")
    try:
        recording = _reader().validate_python(whole.get("saw"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UnreadableError(f"saw.{where}: {first['msg']}") from error
    return recording, _text(whole.get("decided"))


@functools.cache
def _reader() -> TypeAdapter[Recording]:
    # To make one takes longer than to read a file with it.
    return TypeAdapter(Recording)


def decisions_text(decisions: Sequence[Decision]) -> str:
    """Return decisions as JSON, for people too."""
    return _text(plain(decisions))


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def plain(value: object) -> Any:
    """Return a value as JSON: without defaults and fields not `recorded`, sets sorted."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((f, getattr(value, f.name)) for f in fields(value))
        return {
            f.name: plain(v)
            for f, v in pairs
            if not (_is_default(f, v) or f.metadata.get("recorded") is False)
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(plain, value), key=json.dumps)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    # JSON has no infinity; the reader takes this string for it.
    return "inf" if value == math.inf else value


def _is_default(known: Field[Any], value: object) -> bool:
    if known.default_factory is not MISSING:
        return bool(value == known.default_factory())
    return known.default is not MISSING and bool(value == known.default)
