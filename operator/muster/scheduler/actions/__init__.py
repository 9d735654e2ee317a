# SPDX-License-Identifier: Apache-2.0
"""The scheduling actions, by the names that a policy file gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from muster.scheduler.actions.allocate import allocate
from muster.scheduler.actions.backfill import backfill
from muster.scheduler.actions.preempt import preempt
from muster.scheduler.actions.reclaim import reclaim
from muster.scheduler.session import Session

Action = Callable[[Session], None]


def _enqueue(_session: Session) -> None:
    """Admit groups: done elsewhere, accepted so that Volcano's files can be used."""


ACTIONS: Final[Mapping[str, Action]] = {
    "allocate": allocate,
    "backfill": backfill,
    "enqueue": _enqueue,
    "preempt": preempt,
    "reclaim": reclaim,
}
PLANNED: Final = ("defragment",)
"""Names that are right but not available yet."""
