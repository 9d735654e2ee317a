# SPDX-License-Identifier: Apache-2.0
"""Jobs that viewers paste are tried in a process each, so that no other work has to wait for it.

Of the operator it takes a scheduling cycle, and a thread that hands over what that saw. It is
bounded: one at a time, one per viewer, in seconds, and in a share of all time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from muster.api.edge import mapping, sequence
from muster.api.model import Json
from muster.cluster.recording import Recording

log = logging.getLogger(__name__)
PROGRAM: Final = (sys.executable, "-P", "-m", "muster.commands.trial")
LIMIT: Final = 60.0
"""Seconds for all of it; 10,000 nodes on which 1,000 gangs wait take 8."""
SHARE: Final = 10
"""So many times as long as it took to hand over what was seen, it is not done again."""
MOST: Final = 4
"""Viewers that wait for it."""
MOST_RIGHTS: Final = 16
"""Kinds and namespaces of what is tried at once."""
SLICE: Final = 1000
"""Pods that are handed over at once."""
LINE: Final = 2**20
"""Bytes of an answer."""

Visible = Collection[str] | None
"""The namespaces of which gangs may be named; None: all."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who has something tried."""

    name: str
    sight: Callable[[Sequence[Sequence[str]]], Awaitable[Visible]]
    """Returns what he may be told who would create this, or raises what ends the trial.

    Of each are given its API group, resource and namespace.
    """


class NoAnswerError(Exception):
    """It was not tried; the message says why."""


class Trials:
    """Tries jobs on what an allocator sees."""

    def __init__(
        self, record: Callable[[], Awaitable[Recording]], program: Sequence[str] = PROGRAM
    ) -> None:
        """Begin. `record`: returns all that a cycle sees."""
        self._record, self._program = record, program
        self._viewers: set[str] = set()
        self._turn = asyncio.Lock()
        self._due = 0.0

    async def run(self, text: str, viewer: Viewer) -> str:
        """Return what would come of the jobs of a text.

        Raises ValueError for what is none, and NoAnswerError.
        """
        if viewer.name in self._viewers:
            raise NoAnswerError("one job at a time: another one of yours is being tried")
        if len(self._viewers) >= MOST:
            raise NoAnswerError("too many jobs are being tried: ask again in a moment")
        self._viewers.add(viewer.name)
        try:
            async with self._turn:
                await asyncio.sleep(max(0.0, self._due - time.monotonic()))
                async with asyncio.timeout(LIMIT):
                    return await self._tried(text, viewer)
        except TimeoutError as error:
            raise NoAnswerError(f"not worked out within {LIMIT:g} s, and given up") from error
        except (OSError, EOFError) as error:
            log.warning("a job could not be tried: %s", error)
            raise NoAnswerError("it could not be tried; the operator's log says why") from error
        finally:
            self._viewers.discard(viewer.name)

    async def _tried(self, text: str, viewer: Viewer) -> str:
        reader, writer = os.pipe()
        # Its end is that of the child, whose end this waits for.
        pipe = os.fdopen(writer, "wb")
        try:
            try:
                child = await asyncio.create_subprocess_exec(
                    *self._program, stdin=reader, stdout=asyncio.subprocess.PIPE, limit=LINE
                )
            finally:
                os.close(reader)
            try:
                return await self._asked(child, pipe, text, viewer)
            finally:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.communicate()
        finally:
            # What it was not to read any more is in there.
            with suppress(BrokenPipeError):
                pipe.close()

    async def _asked(
        self, child: asyncio.subprocess.Process, pipe: BinaryIO, text: str, viewer: Viewer
    ) -> str:
        await asyncio.to_thread(_say, pipe, json.dumps(text).encode() + b"\n")
        created = [tuple(each) for each in sequence((await _answer(child))["creates"])]
        if len(created) > MOST_RIGHTS:
            raise ValueError(f"of more than {MOST_RIGHTS} kinds and namespaces: try fewer at once")
        visible = await viewer.sight(created)
        recording = await self._record()
        started = time.monotonic()
        try:
            # What it has said before it ended is the answer, though it has not heard all.
            with suppress(BrokenPipeError):
                await asyncio.to_thread(_hand_over, pipe, recording, visible)
        finally:
            self._due = time.monotonic() + SHARE * (time.monotonic() - started)
        return str((await _answer(child))["text"])


def _say(pipe: BinaryIO, data: bytes) -> None:
    pipe.write(data)
    pipe.flush()


def _hand_over(pipe: BinaryIO, recording: Recording, visible: Visible) -> None:
    # In frames of 64 KiB, after each of which other threads have their turn: as one string it
    # would hold up the event loop for as long as it takes. And what is made for a part goes with
    # it: by hundreds of thousands it would be looked through for garbage, which holds up all.
    pickler, pods = pickle.Pickler(pipe, 5), recording.pods
    slices = (pods[at : at + SLICE] for at in range(0, len(pods), SLICE))
    for part in (visible, replace(recording, pods=()), *slices, ()):
        pickler.dump(part)
        pickler.clear_memo()
    pipe.flush()


async def _answer(child: asyncio.subprocess.Process) -> Json:
    """Return what the child says next. Raises EOFError, and ValueError where the job is none."""
    assert child.stdout is not None
    line = await child.stdout.readline()
    if not line:
        raise EOFError(f"its process ended with {await child.wait()}")
    said = dict(mapping(json.loads(line)))
    if "wrong" in said:
        raise ValueError(said["wrong"])
    return said
