# SPDX-License-Identifier: Apache-2.0
"""The scheduling actions, by the names that a policy file gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from muster.scheduler.actions.allocate import allocate, backfill
from muster.scheduler.actions.defragment import ARGUMENTS, defragment
from muster.scheduler.actions.preempt import preempt
from muster.scheduler.actions.protect import Evict
from muster.scheduler.actions.reclaim import reclaim
from muster.scheduler.hooks import Parsed
from muster.scheduler.session import Session


@dataclass(frozen=True, slots=True)
class Action:
    """A row of the table of actions."""

    run: Callable[[Session, Parsed], None]
    arguments: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    """Name -> parser, as those of a plugin."""
    evicts: Evict | None = None
    """Evicts others for these gangs; None: the action evicts none."""
    moves: bool = False
    """It needs to know what could be moved, and what was."""


def _plain(run: Callable[[Session], None]) -> Action:
    return Action(lambda session, _arguments: run(session))


def _evicting(evict: Evict) -> Action:
    return Action(lambda session, _arguments: evict(session, session.gangs), evicts=evict)


def _enqueue(_session: Session) -> None:
    """Admit groups: done elsewhere, accepted so that Volcano's files can be used."""


ACTIONS: Final[Mapping[str, Action]] = {
    "allocate": _plain(allocate),
    "backfill": _plain(backfill),
    "defragment": Action(defragment, ARGUMENTS, moves=True),
    "enqueue": _plain(_enqueue),
    "preempt": _evicting(preempt),
    "reclaim": _evicting(reclaim),
}
