# SPDX-License-Identifier: Apache-2.0
"""fairshare: of the queues beside each other the one that has used least for its weight is first.

What was used is forgotten by half in each half-life. Where it is counted, `division` lowers the
weight of whoever has used more than his part, and so his due.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from muster.scheduler.hooks import Hooks, Parsed
from muster.scheduler.session import Session
from muster.scheduler.state import QueueState

HALF_LIFE: Final = "fairshare.halfLife"
_UNITS: Final = {"m": 60.0, "h": 3600.0, "d": 86400.0}
_DEFAULT: Final = 7 * _UNITS["d"]


def _time(text: str) -> float:
    if not re.fullmatch(r"[1-9][0-9]{0,5}[mhd]", text):
        raise ValueError(f'"{text}" is no half-life; write one like 90m, 12h or 7d')
    return int(text[:-1]) * _UNITS[text[-1]]


ARGUMENTS: Final[Mapping[str, Callable[[str], Any]]] = {HALF_LIFE: _time}


def half_life(arguments: Parsed) -> float:
    """Return in how many seconds half of what was used is forgotten."""
    seconds: float = arguments.get(HALF_LIFE, _DEFAULT)
    return seconds


def answer(session: Session, _arguments: Parsed) -> Hooks:
    """Order queues by what they, and those that they are parts of, have used for their weight."""
    used: dict[QueueState, float] = {}
    for queue in session.queues.values():
        for each in queue.lineage:
            used[each] = used.get(each, 0.0) + queue.spec.usage

    def order(queue: QueueState) -> tuple[float, ...]:
        return tuple([used[each] / each.spec.weight for each in queue.lineage[::-1]])

    return Hooks(queue_order=order)
