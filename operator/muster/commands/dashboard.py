# SPDX-License-Identifier: Apache-2.0
"""`muster dashboard`: the page on this machine, by a kubeconfig or of a snapshot."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from muster.allocator.view import Seen
from muster.api import edge
from muster.commands import published, snapshot
from muster.commands.live import connected
from muster.commands.questions import FAILURES, FROM_OUTSIDE, LIVE, recorded
from muster.dashboard import server as dashboard
from muster.dashboard.server import Dashboard, Source
from muster.kube import client
from muster.kube.client import Kube
from muster.scheduler import cycle
from muster.scheduler.policy import Policy
from muster.settings import Settings
from muster.store.informers import Informers
from muster.store.store import Callbacks

log = logging.getLogger(__name__)
PAUSE: Final = 1.0
"""Seconds in which changes are gathered."""
SHARE: Final = 3
"""So many times as long as it takes to look, it is not looked again."""


async def run(settings: Settings, cluster: str, port: int) -> None:
    """Serve the page until cancelled. Raises what `questions.FAILURES` names."""
    if cluster != LIVE:
        await _serve(port, _of_file(cluster), cluster)
    async with connected(settings, client.ATTEMPTS) as kube:
        chosen, completed, unknown = await published.read(kube, settings)
        problem = await published.operator_problem(kube, settings)
        eye = _Eye(settings, kube, chosen, completed, unknown, problem)
        await eye.read()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_serve(port, eye.source, "the cluster"))
                await eye.follow(tasks)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None


async def _serve(port: int, source: Source, title: str) -> None:
    runner = await dashboard.serve(f"127.0.0.1:{port}", Dashboard(source))
    # A port of 0 leaves the choice to the system.
    port = runner.addresses[0][1]
    print(f"http://localhost:{port}/ shows {title}; Ctrl-C ends it", flush=True)  # noqa: T201
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _of_file(file: str) -> Source:
    saw, _ = recorded(file)
    seen = Seen(saw.snapshot(), saw.decide())
    store = snapshot.empty_store(tuple(saw.rules.scheduler_names))
    words = f"A snapshot of {edge.format_time(saw.now)}: time stands still."
    return Source(lambda: seen, store, live=False, words=words)


class _Eye:
    """Follows a cluster and decides as an allocator would, of which nothing is carried out."""

    def __init__(
        self, given: Settings, kube: Kube, chosen: Policy, settings: Settings, *problems: str
    ) -> None:
        self._given, self._kube, self._chosen, self._settings = given, kube, chosen, settings
        self._changed = asyncio.Event()
        self._seen: Seen | None = None
        names = tuple(sorted(settings.scheduler_names))
        self._store = snapshot.empty_store(names, Callbacks(trigger=self._changed.set))
        self._informers = Informers(kube, self._store)
        told = (f"Read from outside, {FROM_OUTSIDE.partition(' (')[0]}", *filter(None, problems))
        words = " ".join(f"{text[0].upper()}{text[1:]}." for text in told)
        self.source = Source(
            lambda: self._seen,
            self._store,
            # By the rights of the kubeconfig: the user is at this machine.
            read=lambda _authorization, path, asked: kube.text(path, **asked),
            words=words,
        )

    async def read(self) -> None:
        """Read all once. Raises ApiError and connection errors."""
        await self._informers.read()

    async def follow(self, tasks: asyncio.TaskGroup) -> None:
        """Follow for ever what was read."""
        tasks.create_task(self._informers.run(jobs=True))
        await self._informers.synced()
        while True:
            self._changed.clear()
            started = time.monotonic()
            await self._look()
            await asyncio.sleep(max(PAUSE, SHARE * (time.monotonic() - started)))
            await self._changed.wait()

    async def _look(self) -> None:
        try:
            self._chosen, self._settings, _ = await published.read(self._kube, self._given)
        except FAILURES as error:
            log.warning("Could not read the policy, the last one is used: %s", error)
        _, _, saw = snapshot.look(self._store, self._settings, self._chosen, time.time())
        self._seen = Seen(saw, await asyncio.to_thread(cycle.schedule, saw, self._chosen))
        self.source.past.saw(saw)
