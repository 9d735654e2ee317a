# SPDX-License-Identifier: Apache-2.0
"""What dry-run creates have shown that admission makes of pods, by namespace and template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.api.model import Json
from muster.cluster.pods import PER_POD

Key = tuple[str, str]
"""(namespace, digest of kind, role and template)"""
LIFETIME: Final = 600.0
"""Seconds for which an answer is good: who changes a policy or a webhook tells nobody."""
MOST: Final = 4096
"""Answers that are kept; the oldest go."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What came of one dry run."""

    until: float
    """When it is to be asked for anew."""
    spec: Json | None = None
    """Of a pod as it would be stored; None: nobody can tell, so that the template counts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those that the pod would have and was not sent with."""
    refused: str = ""
    """Why a policy takes no such pod."""
    reason: str = ""
    """`Forbidden`, `Invalid` …, if it was refused."""

    def applied(self, template: Json) -> Json:
        """Return the template as its pods will be stored."""
        assert self.spec is not None
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), **self.labels}
        # A node that the template names is a constraint, with which no pod is sent.
        node = (template.get("spec") or {}).get("nodeName")
        spec = {**self.spec, "nodeName": node} if node else self.spec
        return {**template, "metadata": {**metadata, "labels": labels}, "spec": spec}


def shown(sent: Json, stored: Json, now: float) -> Answer:
    """Return the answer by the pod that was sent and what would be stored of it."""
    before = sent["metadata"].get("labels") or {}
    labels = stored["metadata"].get("labels") or {}
    added = {k: v for k, v in labels.items() if before.get(k) != v and k not in PER_POD}
    return Answer(now + LIFETIME, stored["spec"], added)


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

    def get(self, key: Key, now: float) -> Answer | None:
        """Return the answer that is good now, if there is one."""
        found = self._answers.get(key)
        return found if found is not None and now < found.until else None

    def put(self, key: Key, answer: Answer) -> None:
        """Take in an answer."""
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > MOST:
            del self._answers[next(iter(self._answers))]

    def forget(self, namespaces: Container[str] | None = None) -> None:
        """Take in that something which admission goes by has changed there; None: everywhere."""
        kept = self._answers.items() if namespaces is not None else ()
        self._answers = {k: a for k, a in kept if k[0] not in (namespaces or ())}
