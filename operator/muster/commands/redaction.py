# SPDX-License-Identifier: Apache-2.0
"""Redaction of bundles: texts that may be secrets, and on request all names.

Each name is replaced by its number in the sorted list of all names, so equal names stay equal and
the order of names, which breaks ties of the scheduler, is preserved. Every text is treated as a
name unless it is a known word of Kubernetes or Muster. Sentences can contain names and are left
out.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from muster import frameworks, gang
from muster.api import names
from muster.api.reasons import GangPhase, Reason
from muster.cluster import recording
from muster.cluster.recording import Recording
from muster.commands import tables

HIDDEN: Final = "…"
TOLD: Final = frozenset({
    "apiVersion", "kind", "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
    "lastTransitionTime", "lastUpdateTime", "startTime", "completionTime", "failureTime", "since",
    "eta", "image", "restartPolicy", "cleanPodPolicy", "schedulerName", "priorityClassName",
    "queue", "parent", "state", "phase", "type", "status", "reason", "operator", "effect",
    "topologyKey", "podGroup", "scheduler", "replicaType", "pod", "node", "container",
    "managedBy", "summary",
})  # fmt: skip
"""Fields whose texts are shown."""
FREE: Final = frozenset({
    "annotations", "labels", "matchLabels", "nodeSelector", "volumeAttributes", "options", "data",
})  # fmt: skip
"""Fields of jobs, pods and claims whose own fields anybody may name, like those of TOLD."""
AMOUNTS: Final = frozenset({
    "limits", "requests", "minResources", "capability", "guarantee", "deserved", "allocated",
})  # fmt: skip
"""Fields whose values are quantities."""
Rename = Callable[[str], str]
KINDS: Final = tuple(frameworks.FRAMEWORKS)
WORDS: Final = frozenset({
    *KINDS, *(kind.lower() for kind in KINDS), *gang.BACKENDS, *names.SCHEDULER_NAMES,
    *(each for row in frameworks.FRAMEWORKS.values() for each in row.api.types),
    *(each.lower() for row in frameworks.FRAMEWORKS.values() for each in row.api.types),
    *names.SYSTEM_CLASSES, names.DEFAULT_QUEUE, names.SYSTEM_NAMESPACE, "muster-system",
    *map(str, GangPhase), *map(str, Reason),
    "PodGroup", "Pod", "Job", "Deployment", "ReplicaSet", "Queue", "v1", "apps/v1", "batch/v1",
    "queue", "resourcequota", "default-scheduler", "linux", "amd64", "arm64", "metadata.name",
    "key", "operator", "value", "effect", "tolerationSeconds", "Equal", "Exists",
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass",
    "CrossNamespacePodAffinity", "VolumeAttributesClass", "*", HIDDEN,
})  # fmt: skip
"""They say nothing of anybody, whoever calls something so."""
PLAIN: Final = re.compile(
    r"|true|false|:?-?\d+(\.\d+)?(ns|us|ms|[smhd]|[kMGTPE]i?)?|127\.0\.0\.1:\d+"
)
"""Numbers and switches."""
PUBLIC: Final = re.compile(
    r"((beta\.|node\.|topology\.|failure-domain\.beta\.|pv\.|batch\.)?kubernetes\.io"
    r"|(training\.|muster\.)?kubeflow\.org|scheduling\.(x-)?k8s\.io|kueue\.x-k8s\.io|nvidia\.com)"
    r"/[\w.-]+"
)
"""Labels and versions whose whole name others have given."""
_AS_IT_IS: Final = frozenset({
    "resources", "resource", "requests", "load", "allocatable", "capability", "reservable",
    "min_resources", "guarantee", "deserved", "borrowing", "lending", "overhead", "items",
    "operator", "effect", "protocol", "modes",
})  # fmt: skip
"""Fields of a recording that hold no names: those of resources stay."""
_SENTENCES: Final = frozenset({
    "sentence", "unreadable", "unsupported", "unserved", "message", "summary",
})  # fmt: skip
_WORDY: Final = frozenset({
    "at", "creationTimestamp", "deletionTimestamp", "lastTransitionTime", "lastUpdateTime",
    "startTime", "completionTime", "failureTime", "since", "eta", "state", "phase", "type",
    "status", "reason", "operator", "effect", "restartPolicy", "cleanPodPolicy", "action",
})  # fmt: skip
"""Fields of documents whose texts are words or times."""
_SAMPLE: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_COUNTED: Final = frozenset({
    "le", "action", "plugin", "OnSession", "result", "reason", "state", "verb", "code",
    "framework", "kind", "field", "version", "python", "resource", "implementation",
})  # fmt: skip
"""Labels of metrics whose values are words, or names of resources."""
_TEXTS: Final = "ruled_out"
"""Whose own fields are sentences, too."""


def harmless(value: object, key: str = "", above: str = "") -> Any:
    """Return a value without any text that may be a secret: its fields, numbers and names."""
    if isinstance(value, Mapping):
        return {name: harmless(each, name, key) for name, each in value.items()}
    if isinstance(value, list):
        return [harmless(each, key, above) for each in value]
    shown = (key in TOLD or above in AMOUNTS) and above not in FREE
    return HIDDEN if isinstance(value, str) and value and not shown else value


class Names:
    """The replacement of each name; until `settle`, the name itself."""

    def __init__(self) -> None:
        self._kept = set(WORDS)
        self._joined: dict[str, tuple[str, str]] = {}
        self._met: set[str] = set()
        self.given: Mapping[str, str] = {}
        """Name -> its replacement."""

    def know(self, seen: Recording) -> None:
        """Take in which texts of a recording are no names, and which are made of two."""
        self._kept |= {quota.resource for quota in seen.quotas.values()}
        for pod in seen.pods:
            # By these alone a claim is known to be the pod's own.
            self._joined |= {own.key("", pod.name)[1]: (pod.name, own.name) for own in pod.scratch}

    def settle(self) -> None:
        """Give each name its number, in alphabetical order."""
        width = len(str(len(self._met)))
        self.given = {name: f"n{i:0{width}}" for i, name in enumerate(sorted(self._met), 1)}

    def rename(self, text: str) -> str:
        """Return a text with each name in it replaced that stands between its slashes."""
        if self._is_known(text):
            return text
        head, slash, rest = text.partition("/")
        return self._name(head) + (f"/{self.rename(rest)}" if slash else "")

    def _is_known(self, text: str) -> bool:
        return text in self._kept or bool(PLAIN.fullmatch(text) or PUBLIC.fullmatch(text))

    def _name(self, text: str) -> str:
        if self._is_known(text):
            return text
        if text in self._joined:
            return "-".join(map(self._name, self._joined[text]))
        self._met.add(text)
        return self.given.get(text, text)


def renamed(value: Any, rename: Rename, field: str = "") -> Any:
    """Return a value of a recording or a decision with all names in it replaced."""
    if field in _AS_IT_IS or isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return (value and HIDDEN) if field in _SENTENCES else rename(value)
    if isinstance(value, Mapping):
        if field == "policy":
            return _policy(value, rename)
        return {renamed(k, rename): renamed(v, rename) for k, v in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return type(value)(renamed(each, rename, field) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        value = replace(value, **{k: renamed(v, rename, k) for k, v in parts.items()})
    return value


def _policy(value: Any, rename: Rename, argument: str = "") -> Any:
    """Return a policy without the labels that it names; else there are only words in one."""
    if isinstance(value, Mapping):
        return {k: _policy(v, rename, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_policy(each, rename) for each in value]
    if isinstance(value, str) and argument.startswith("topology."):
        return re.sub(r"[^,\s]+", lambda found: rename(found[0]), value)
    return value


def _document(value: Any, rename: Rename, key: str = "") -> Any:
    """Return a document, of which nobody's secrets are left, with all names in it replaced."""
    if isinstance(value, Mapping):
        own = key in FREE or key == _TEXTS
        kept = {k: v for k, v in value.items() if k != "managedFields"}
        return {rename(k) if own else k: _document(v, rename, k) for k, v in kept.items()}
    if isinstance(value, list):
        return [_document(each, rename, key) for each in value]
    if not isinstance(value, str) or key in _WORDY:
        return value
    if key == "flags":
        flag, equals, given = value.partition("=")
        return f"{flag}{equals}{','.join(map(rename, given.split(',')))}"
    return (value and HIDDEN) if key in _SENTENCES else rename(value)


def _samples(text: str, rename: Rename) -> str:
    """Return metrics with all names in their labels replaced."""

    def told(found: re.Match[str]) -> str:
        label, value = found.groups()
        return found[0] if label in _COUNTED else f'{label}="{rename(value)}"'

    return _SAMPLE.sub(told, text)


@dataclass(frozen=True, slots=True)
class _Sort:
    """A sort of part: how it is read, how it is without names, how it is written."""

    read: Callable[[str], Any]
    renamed: Callable[[Any, Rename], Any]
    write: Callable[[Any], str]


_DOCUMENTS: Final = _Sort(json.loads, _document, lambda v: tables.data(v, tables.JSON))
_RECORDING: Final = _Sort(
    lambda text: recording.load(text)[0],
    renamed,
    # The recorded sentences contain names; those of new decisions contain their replacements.
    lambda seen: recording.dump(seen, seen.decide()),
)
_SORTS: Final[Mapping[str, _Sort]] = {
    "versions.json": _Sort(str, lambda text, _: text, str),
    "snapshot.json": _RECORDING,
    "-debug-snapshot": _RECORDING,
    "-metrics": _Sort(str, _samples, str),
}
"""End of a part's name -> what it is, where it is no documents."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """The parts of a bundle without names."""

    parts: Mapping[str, str]
    names: Mapping[str, str]
    """Replacement -> name."""
    complaints: Sequence[str]


def without_names(parts: Mapping[str, str]) -> Redacted:
    """Return the parts without names. Parts that cannot be parsed are left out."""
    names_in, read, complaints = Names(), dict[str, tuple[_Sort, Any]](), list[str]()
    for part, text in parts.items():
        sort = next((s for end, s in _SORTS.items() if part.endswith(end)), _DOCUMENTS)
        try:
            read[part] = sort, sort.read(text)
        except ValueError as error:
            complaints.append(f"{part}: left out, cannot be parsed ({type(error).__name__})")
            continue
        if sort is _RECORDING:
            names_in.know(read[part][1])
    for sort, value in read.values():
        sort.renamed(value, names_in.rename)
    names_in.settle()
    made = {
        part: sort.write(sort.renamed(value, names_in.rename))
        for part, (sort, value) in read.items()
    }
    return Redacted(made, {short: name for name, short in names_in.given.items()}, complaints)
