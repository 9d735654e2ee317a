# SPDX-License-Identifier: Apache-2.0
"""Which gangs were moved in the last hour, and whether a cycle is to look for more moves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from muster.scheduler.decision import Decision
from muster.scheduler.model import PastMove, Reason
from muster.scheduler.policy import Policy

REMEMBERED = 3600.0
"""Seconds for which a move counts."""
PAUSE = 5.0
"""Seconds after which moves are looked for again where none was found."""


class Moves:
    """The moves of this process."""

    def __init__(self) -> None:
        self._made: list[PastMove] = []
        self._wanted = False
        self._pauses_until = 0.0

    def asked(self, policy: Policy, now: float) -> tuple[PastMove, ...] | None:
        """Return the moves of the last hour if this cycle is to look for more, else None.

        It is where the policy moves gangs and the last cycle left one whose room is in pieces.
        """
        self._made = [move for move in self._made if move.at > now - REMEMBERED]
        asked = self._wanted and policy.moves and now >= self._pauses_until
        return tuple(self._made) if asked else None

    def made(self, decision: Decision, now: float) -> None:
        """Take note of what was moved."""
        self._made += [PastMove(move.gang, decision.gang, now) for move in decision.moves]

    def next(
        self, decisions: Sequence[Decision], policy: Policy, now: float, *, looked: bool
    ) -> float:
        """Return when a cycle is due that looks for moves, infinity if none will help."""
        self._wanted = any(d.verdict.reason is Reason.FRAGMENTED for d in decisions)
        if not (self._wanted and policy.moves):
            return math.inf
        if not looked:
            return max(now, self._pauses_until)
        if not any(d.moves for d in decisions):
            self._pauses_until = now + PAUSE
        return min((move.at + REMEMBERED for move in self._made), default=math.inf)
