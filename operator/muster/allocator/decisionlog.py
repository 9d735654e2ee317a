# SPDX-License-Identifier: Apache-2.0
"""The decisions of the last hour and, on request, the snapshot of one cycle."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Final

from muster.api import edge
from muster.api.model import Json
from muster.cluster import recording
from muster.cluster.recording import Recording
from muster.scheduler.decision import Decision

KEPT_SECONDS: Final = 3600.0
KEPT: Final = 5000
"""Decisions that are kept at the most."""
KEPT_PLACEMENTS: Final = 200_000
"""Placements in them, at the most."""
ANSWER_SECONDS: Final = 30.0
_Asked = asyncio.Future[tuple[Recording, Sequence[Decision]]]


class BusyError(Exception):
    """Somebody else is being answered, which takes a while."""


class DecisionLog:
    """Keeps decisions that are news: nodes given or taken, or another reason to wait."""

    def __init__(self, trigger: Callable[[], None]) -> None:
        self._trigger = trigger
        self._entries: deque[tuple[float, Decision]] = deque()
        """When each was made, and it."""
        self._placements = 0
        self._last: Mapping[str, tuple[object, ...]] = {}
        """Gang -> the summary of what the last cycle decided."""
        self._asked: list[_Asked] = []
        self._recording: Recording | None = None
        self._answering = asyncio.Lock()

    def begin(self, record: Callable[[], Recording]) -> None:
        """Take note of what a cycle is about to see, if somebody asked."""
        self._recording = None
        if self._asked:
            try:
                self._recording = record()
            except Exception as error:  # noqa: BLE001 -- who asks is told, the cycle goes on
                failure = error
                self._answer(lambda future: future.set_exception(failure))

    def decided(self, now: float, decisions: Sequence[Decision]) -> None:
        """Take note of what the cycle decided."""
        before, self._last = self._last, {d.gang: _summary(d) for d in decisions}
        for each in decisions:
            if each.placements or each.evictions or before.get(each.gang) != self._last[each.gang]:
                self._entries.append((now, each))
                self._placements += len(each.placements)
        self._trim(now)
        if self._recording is not None:
            seen = self._recording, decisions
            self._answer(lambda future: future.set_result(seen))
            self._recording = None

    def _answer(self, give: Callable[[_Asked], None]) -> None:
        for future in self._asked:
            # Who asked may have given up by now.
            if not future.done():
                give(future)
        self._asked.clear()

    def decisions(self, gang: str = "") -> str:
        """Return what was decided as JSON, oldest first; of one gang, if it is named."""
        return json.dumps(self.entries(gang), indent=1, ensure_ascii=False) + "\n"

    def entries(self, gang: str = "") -> list[Json]:
        """Return what was decided, oldest first; of one gang, if it is named."""
        # A copy: the next cycle may add to them meanwhile.
        return [
            {"at": edge.format_time(at), **recording.plain(decision)}
            for at, decision in self._entries.copy()
            if gang in ("", decision.gang)
        ]

    async def seen(self) -> tuple[Recording, Sequence[Decision]]:
        """Return all that the next cycle sees and decides. Raises TimeoutError, or what it did."""
        loop = asyncio.get_running_loop()
        future: _Asked = loop.create_future()
        self._asked.append(future)
        self._trigger()
        async with asyncio.timeout(ANSWER_SECONDS):
            return await future

    async def snapshot(self) -> str:
        """Return it as a file."""
        return await asyncio.to_thread(recording.dump, *await self.seen())

    @property
    def pages(self) -> Mapping[str, Callable[[Mapping[str, str]], Coroutine[None, None, str]]]:
        """What can be asked over HTTP, by path. Raises BusyError while another is answered."""

        async def alone(answer: Callable[[], Awaitable[str]]) -> str:
            # Refused, not queued: an answer takes as much as is kept, and who asks all the time
            # would have one made after the other.
            if self._answering.locked():
                raise BusyError("somebody else asks at this moment; one at a time")
            async with self._answering:
                return await answer()

        async def decisions(query: Mapping[str, str]) -> str:
            gang = query.get("gang", "")
            return await alone(partial(asyncio.to_thread, self.decisions, gang))

        async def snapshot(_query: Mapping[str, str]) -> str:
            return await alone(self.snapshot)

        return {"/debug/decisions": decisions, "/debug/snapshot": snapshot}

    def _trim(self, now: float) -> None:
        while self._entries and (
            self._entries[0][0] < now - KEPT_SECONDS
            or len(self._entries) > KEPT
            or self._placements > KEPT_PLACEMENTS
        ):
            self._placements -= len(self._entries.popleft()[1].placements)


def _summary(decision: Decision) -> tuple[object, ...]:
    """Return what is news if it changes: no position or amount, as these change all the time."""
    verdict, moves = decision.verdict, tuple(move.gang for move in decision.moves)
    return verdict.state, verdict.reason, verdict.placed, moves
