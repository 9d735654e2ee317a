# SPDX-License-Identifier: Apache-2.0
"""What is kept of a pod: for the controller, for its node, and for its gang."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from muster.api.model import Json, PodView
from muster.gang import GangBackend
from muster.runtime import dialects, shapes, views
from muster.runtime.dialects import Ask
from muster.runtime.foreignpods import Member
from muster.runtime.shapes import PodUse


@dataclass(frozen=True, slots=True)
class PodEntry:
    """A pod as the controller sees it, and what it takes of its node."""

    view: PodView
    use: PodUse | None
    ask: Ask | None = None
    """What it asks of this scheduler, if it belongs to no job."""

    @property
    def member(self) -> Member | None:
        """The pod as a member of a gang of foreign pods, if it is one."""
        return None if self.ask is None else (self.view, self.ask)


def parse(
    document: Json, backend: GangBackend, kinds: Collection[str], namespaces: Collection[str]
) -> PodEntry:
    """Return what is to be kept of a pod; without an allocator inside only its view.

    Pods of jobs of these `kinds` ask nothing of their own, nor do those outside of the
    `namespaces`, among which the empty one stands for all.
    """
    if not backend.embedded:
        return PodEntry(views.pod(document), None)
    ask = dialects.parse_ask(document, backend.scheduler_names, kinds)
    if ask is not None and not {"", document["metadata"]["namespace"]} & {*namespaces}:
        ask = None
    return PodEntry(views.pod(document), shapes.parse_use(document), ask)


def matters(
    used: PodUse | None, uses: PodUse | None, old: PodView | None, new: PodView | None
) -> bool:
    """Say whether a pod's change may let a gang start, or asks for a node.

    A pod that comes to its node takes room, which lets nobody start.
    """
    if used is not None and used != uses:
        return True
    if new is None:
        return True
    if new.node or new.terminal:
        return old is not None and not old.node
    return old is None or old.gated != new.gated or old.deleting != new.deleting
