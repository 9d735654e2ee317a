# SPDX-License-Identifier: Apache-2.0
"""Kopf lives as whoever runs it, and what keeps it from living is told."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import threading
from types import SimpleNamespace

import aiohttp
import pytest

from muster.runtime import handlers


def kube():
    """Return a connection to a server that nobody is."""
    return SimpleNamespace(
        new_session=lambda _: aiohttp.ClientSession(), host="http://127.0.0.1:1", namespace="x"
    )


def nobody() -> str:
    """Be a user without a name, as in a container under a uid that its image does not know."""
    raise OSError("No username set in the environment")


def test_kopf_lives_under_a_uid_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is how the manifests run it."""
    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.delenv("POD_ID", raising=False)
    stop = threading.Event()
    stop.set()
    handlers._Life(kube(), (), (), lambda *_: None, stop).run()


def test_what_keeps_kopf_from_living_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some tries, so that a probe shows it; and taken back when a life lasts."""
    monkeypatch.setattr(handlers, "BACKOFF", handlers.Backoff(0.001, 0.05))
    lives: list[int] = []
    told: list[str] = []

    def run(life: handlers._Life) -> None:
        lives.append(len(told))
        if len(lives) <= handlers.FAILURES + 1:
            raise OSError("no")
        life.stop.wait(10)

    monkeypatch.setattr(handlers._Life, "run", run)

    async def follow() -> None:
        over = asyncio.Event()

        def failing(why: str) -> None:
            told.append(why)
            if not why:
                over.set()

        nothing = (lambda *_: None, lambda: None)
        following = handlers.follow(kube(), (), (), *nothing, failing, asyncio.Event())
        task = asyncio.create_task(following)
        await over.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(follow(), 10))
    assert told == ["OSError: no", "OSError: no", ""]
    assert lives == [0, 0, 0, 1, 2]


def test_what_was_shown_before_the_server_was_set_back_is_not_taken_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its versions stand above all that are to come, in whichever thread it waits."""
    monkeypatch.setattr(handlers, "BACKOFF", handlers.Backoff(0.001, 0.05))
    lives: list[handlers._Life] = []
    taken: list[object] = []
    busy, handed = threading.Event(), threading.Event()

    def run(life: handlers._Life) -> None:
        lives.append(life)
        if len(lives) > 1:
            life.hand_over("TFJob", {"type": None, "object": 5})
        else:
            assert busy.wait(120)
            for version in (90, 91):
                life.hand_over("TFJob", {"type": "MODIFIED", "object": version})
            handed.set()
        assert life.stop.wait(120)
        life.hand_over("TFJob", {"type": "MODIFIED", "object": 92})

    monkeypatch.setattr(handlers._Life, "run", run)

    async def follow() -> None:
        anew, over = asyncio.Event(), asyncio.Event()

        def take(_kind: str, document: object, _gone: bool) -> None:
            taken.append(document)
            if document == 90:
                anew.set()

        following = handlers.follow(kube(), (), (), take, over.set, lambda _: None, anew)
        task = asyncio.create_task(following)
        while not lives:  # noqa: ASYNC110 -- it lives in another thread
            await asyncio.sleep(0.001)
        # The loop looks at what it is handed only when both are there.
        busy.set()
        assert handed.wait(120)
        await over.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(follow(), 120))
    assert taken[:2] == [90, 5]
