# SPDX-License-Identifier: Apache-2.0
"""fairshare: heads of one priority are ordered by what their queue used for its weight.

Shares do not delay it. Usage decays by half in each half-life. `division` lowers the weight of a
queue that used more than its part, and so what the queue deserves.
"""

from __future__ import annotations

import re
from typing import Final

from muster.scheduler.hooks import Arguments, Hooks, Parsed
from muster.scheduler.session import Session

HALF_LIFE: Final = "fairshare.halfLife"
_UNITS: Final = {"m": 60.0, "h": 3600.0, "d": 86400.0}
DEFAULT_HALF_LIFE: Final = 7 * _UNITS["d"]


def _time(text: str) -> float:
    if not re.fullmatch(r"[1-9][0-9]{0,5}[mhd]", text):
        raise ValueError(f'"{text}" is no half-life; write one like 90m, 12h or 7d')
    return int(text[:-1]) * _UNITS[text[-1]]


ARGUMENTS: Final[Arguments] = {HALF_LIFE: _time}


def answer(_session: Session, _arguments: Parsed) -> Hooks:
    """Order queues by what they, and the queues above them, used for their weight."""
    return Hooks(usage_order=lambda queue: queue.used_by_weight)
