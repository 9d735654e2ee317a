# SPDX-License-Identifier: Apache-2.0
"""What dry-run creates have shown that admission makes of pods, by namespace and template."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count, islice
from typing import Final

from pydantic_core import from_json, to_json

from muster.api.backoff import QUOTA, is_rejection
from muster.api.model import Json
from muster.api.podtemplate import LISTS
from muster.cluster.pods import CLAIM, PER_POD, UNSUPPORTED_VOLUMES

Key = tuple[str, str]
"""(namespace, digest of kind, role and template)"""
LIFETIME: Final = 600.0
"""Seconds for which an answer is good: who changes a policy or a webhook tells nobody."""
NODE_FORBIDDEN_SECONDS: Final = 3600.0
"""Seconds after which pods of a namespace are created with a node again: policies change."""
MOST: Final = 1024
"""Answers that are kept; the oldest go."""
LARGEST: Final = 32 * 1024
"""Bytes of what is kept of a pod: of a larger one nothing is."""
POD, SERVICE = "Pod", "Service"
NO_DRY_RUN: Final = "does not support dry run"
"""Part of the API server's message where a webhook cannot be asked."""
_UNDECIDED: Final = re.compile(
    f"{QUOTA}|{NO_DRY_RUN}|is being terminated|could not find the requested resource"
    '|page not found|^namespaces "[^"]*" not found'
)
"""Messages of refusals that say nothing about the pod: it may be accepted when it is created."""
_OF_CONTAINERS: Final = ("resources", "ports", "restartPolicy")
_OF_VOLUMES: Final = (CLAIM, "ephemeral", *UNSUPPORTED_VOLUMES)
"""What counts for where a pod can be, and for quotas."""


def is_rejected(code: int, message: str) -> bool:
    """Return whether an error of a dry run means that no such pod can be created."""
    return is_rejection(code, message) and not _UNDECIDED.search(message)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What came of one dry run."""

    until: float
    """Time after which the dry run is repeated."""
    stored: bytes = b""
    """JSON, which takes less memory: a pod's spec as the API server would store it, and the labels
    that admission would add. Empty: not known, so that the template counts."""
    refused: str = ""
    """Message of the API server or of a policy that rejects such pods."""
    reason: str = ""
    """`Forbidden`, `Invalid` …, if it was refused."""
    kind: str = POD
    """What was refused: the pod, or the Service that is created with it."""
    under: int = 0
    """How often what admission goes by had changed there."""
    at: float = 0.0
    """Time of the request; 0: it is not known whether the pod would be created."""

    def applied(self, template: Json) -> Json:
        """Return the template as its pods will be stored."""
        spec, added = from_json(self.stored)
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), **added}
        # A node that the template names is a constraint, with which no pod is sent.
        node = (template.get("spec") or {}).get("nodeName")
        named = {"nodeName": node} if node else {}
        whole = {**metadata, "labels": labels}
        return {**template, "metadata": whole, "spec": {**spec, **named}}


def shown(sent: Json, stored: Json, now: float) -> Answer:
    """Return the answer by the pod that was sent and what would be stored of it."""
    before = sent["metadata"].get("labels") or {}
    labels = stored["metadata"].get("labels") or {}
    added = {k: v for k, v in labels.items() if before.get(k) != v and k not in PER_POD}
    kept = to_json((_kept(stored["spec"]), added))
    # Who may write jobs decides how large their pods are, and how many there are of them.
    return Answer(now + LIFETIME, kept if len(kept) <= LARGEST else b"", at=now)


def _kept(spec: Json) -> Json:
    lists = {key: [_some(c, _OF_CONTAINERS) for c in spec[key]] for key in LISTS if key in spec}
    volumes = (_some(volume, ("name", *_OF_VOLUMES)) for volume in spec.get("volumes") or ())
    return {**spec, **lists, "volumes": [volume for volume in volumes if len(volume) > 1]}


def _some(whole: Json, keys: Iterable[str]) -> Json:
    return {key: whole[key] for key in keys if key in whole}


def key_of(namespace: str, kind: str, role: str, template: Json) -> Key:
    """Return the key under which the pods of a template are alike to admission."""
    text = json.dumps((kind, role, template), sort_keys=True, separators=(",", ":"))
    return namespace, hashlib.sha256(text.encode()).hexdigest()


class DryRuns:
    """The answers that are known, the youngest last."""

    def __init__(self) -> None:
        self.made = False
        """Whether anybody makes dry runs, so that it is worth waiting for one."""
        self._answers: dict[Key, Answer] = {}
        self._without_node: dict[str, float] = {}
        self._changes = 0
        self._changes_in: dict[str, int] = {}
        self._numbers = count(1)

    def changes(self, namespace: str) -> int:
        """Return a number that grows with every change of what admission goes by there."""
        return self._changes + self._changes_in.get(namespace, 0)

    def get(
        self, key: Key, now: float, known: Answer | None = None, since: float = -math.inf
    ) -> Answer | None:
        """Return the answer of `since` or later that is good now; `known` may still be."""
        # An answer holds for the admission it was given under: any later change makes it old.
        under = self.changes(key[0])
        for found in (self._answers.get(key), known):
            if found and found.under == under and since <= found.at and now < found.until:
                return found
        return None

    def put(self, key: Key, answer: Answer) -> None:
        """Take in an answer."""
        self._answers.pop(key, None)
        self._answers[key] = answer
        # Two for each new one, so that an answer to a template that no job has any more goes soon.
        for oldest in [*islice(self._answers, 2)]:
            expired = self._answers[oldest].until <= answer.until - LIFETIME
            if expired or len(self._answers) > MOST:
                del self._answers[oldest]

    def forbid_node(self, namespace: str, now: float) -> None:
        """Record that admission rejects pods of the namespace that are created with a node."""
        self._without_node[namespace] = now + NODE_FORBIDDEN_SECONDS

    def forbids_node(self, namespace: str, now: float) -> bool:
        """Return whether pods of the namespace are created without a node and then bound."""
        return now < self._without_node.get(namespace, 0.0)

    def forget(self, namespace: str) -> None:
        """Remove what is stored of a namespace that was deleted."""
        self._changes_in.pop(namespace, None)
        self._without_node.pop(namespace, None)

    def changed(self, namespace: str = "") -> None:
        """Take in that something which admission goes by has changed there; empty: anywhere."""
        if namespace:
            self._changes_in[namespace] = next(self._numbers)
        else:
            self._changes += 1
