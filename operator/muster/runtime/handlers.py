# SPDX-License-Identifier: Apache-2.0
"""Kopf, the event source for the jobs: it lists and watches them, and all are only passed on.

It has its own thread and loop: its failures end nothing else, and it restarts.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import aiohttp
import kopf

from muster.api import names
from muster.api.backoff import Backoff
from muster.api.model import Json
from muster.frameworks.base import Framework
from muster.kube import client
from muster.kube.client import BROKEN, ApiError, Kube

log = logging.getLogger(__name__)
BACKOFF: Final = Backoff(0.2, 3.0)
"""Between Kopf's attempts to reach the server, and between two lives of Kopf."""
WATCHED: Final = 60
"""Seconds after which a watch is asked to end, and goes on where it was."""
SILENT: Final = 80.0
"""Seconds after which it counts as broken: half-open connections show nothing."""
FAILURES: Final = 3
"""Lives of Kopf in a row that failed at once, after which jobs count as not followed."""
PAGE: Final = 20
"""Jobs that are read at once: each may be of a megabyte, and takes ten when it is parsed."""
DISCOVERY_SECONDS: Final = 5.0
"""How often the server is asked which kinds it serves: a CRD may come or go at any time."""
ANSWER_SECONDS: Final = 60.0
"""How long an answer may take. Kopf restarts when a clear answer follows a missing first one."""
ENDING: Final = 20
"""How often the tasks of Kopf are canceled, a tenth of a second apart."""

Take = Callable[[str, Json, bool], None]
"""Takes kind, document and whether that is gone."""


async def follow(
    kube: Kube,
    frameworks: Iterable[Framework],
    namespaces: Sequence[str],
    take: Take,
    listed: Callable[[], None],
    failing: Callable[[str], None],
    anew: asyncio.Event,
) -> None:
    """Follow the jobs until canceled; the functions are called in this loop.

    `listed` is called for each listed job: jobs gone since the last list are in none. An error
    that Kopf does not survive is logged, and Kopf restarts, as with `anew`, which is set here if
    other kinds are served. `failing` gets why Kopf keeps ending, "" once it runs on.
    """
    kinds, failures = tuple(frameworks), 0
    loop = asyncio.get_running_loop()

    def show(kind: str, event: Json) -> None:
        # After a restore of etcd, versions from before it are above all later ones and would stay.
        if anew.is_set():
            return
        take(kind, event["object"], event["type"] == "DELETED")
        # Kopf gives what comes of a list no type.
        if event["type"] is None:
            listed()

    def hand_over(kind: str, event: Json) -> None:
        loop.call_soon_threadsafe(show, kind, event)

    while True:
        # Before Kopf asks the same: a kind that comes in between is noticed later.
        known = await _served(kube, kinds) or set()
        stop, began = threading.Event(), loop.time()
        # Until here: all that the life before has handed over has been looked at by now.
        anew.clear()
        run = _Life(kube, kinds, namespaces, hand_over, stop).run
        life = asyncio.create_task(asyncio.to_thread(run))
        changed = asyncio.create_task(anew.wait())
        looking = asyncio.create_task(_look_for_kinds(kube, kinds, known, anew))
        lasting = loop.call_later(BACKOFF.last, failing, "")
        try:
            await asyncio.wait({life, changed}, return_when=asyncio.FIRST_COMPLETED)
            # A thread cannot be cancelled: `stop` ends it.
            stop.set()
            why = await asyncio.shield(life)
        finally:
            lasting.cancel()
            changed.cancel()
            looking.cancel()
            stop.set()
        if why:
            failures = 1 if loop.time() - began > BACKOFF.last else failures + 1
            log.warning("following jobs goes on in %.1f s: %s", BACKOFF.pause(failures), why)
            if failures >= FAILURES:
                failing(why)
        await asyncio.sleep(BACKOFF.pause(failures))


async def _look_for_kinds(
    kube: Kube, kinds: Sequence[Framework], known: set[tuple[str, str]], anew: asyncio.Event
) -> None:
    """Set `anew` as soon as the server serves other kinds than the `known` ones."""
    found: set[tuple[str, str]] | None = known
    while found in (None, known):
        await asyncio.sleep(DISCOVERY_SECONDS)
        found = await _served(kube, kinds)
    log.info("following jobs begins anew: which kinds are served has changed")
    anew.set()


async def _served(kube: Kube, kinds: Sequence[Framework]) -> set[tuple[str, str]] | None:
    """Return which of the kinds are served, None without a clear answer in time."""
    wanted = {(f"{names.GROUP}/{row.version}", row.kind) for row in kinds}
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            found = await client.served(kube, {version for version, _ in wanted})
    except (ApiError, *BROKEN):
        return None
    return wanted & found


@dataclass(frozen=True, slots=True)
class _Life:
    """Kopf from one beginning to its end."""

    kube: Kube
    frameworks: Sequence[Framework]
    namespaces: Sequence[str]
    hand_over: Callable[[str, Json], None]
    stop: threading.Event

    def run(self) -> str:
        """Run until `stop`; return the error if Kopf ends earlier."""
        try:
            asyncio.run(self._live())
        except Exception as error:  # noqa: BLE001 -- whatever it is, jobs are to be followed
            return f"{type(error).__name__}: {error}"
        return ""

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        # Canceled tasks of Kopf report errors. A failure that matters ends one of `parts`.
        loop.set_exception_handler(lambda _, context: log.debug("kopf: %s", context["message"]))
        # Each watch has a connection of its own, and there may be hundreds.
        async with self.kube.new_session(0) as session:
            try:
                parts = await kopf.spawn_tasks(
                    registry=self._registry(session),
                    settings=_settings(),
                    # Without one Kopf requires a name for its uid, which an image may not have.
                    identity=cast("Any", "muster"),
                    standalone=True,
                    clusterwide=not self.namespaces,
                    namespaces=list(self.namespaces),
                    stop_flag=self.stop,
                )
                done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
                await _cancel_all()
                for task in done:
                    task.result()
            finally:
                # A thread of Kopf waits for it, and the loop for that thread.
                self.stop.set()

    def _registry(self, session: aiohttp.ClientSession) -> kopf.OperatorRegistry:
        """Return one raw-event handler per kind and our own way to the server."""
        made = kopf.OperatorRegistry()

        @kopf.on.login(registry=made)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(
                server=self.kube.host,
                aiohttp_session=session,
                default_namespace=self.kube.namespace,
            )

        for framework in self.frameworks:
            # on.event writes nothing on the user's objects: no finalizer, no annotation.
            resource = names.GROUP, framework.version, framework.plural
            handler = functools.partial(self._on_event, framework.kind)
            kopf.on.event(*resource, id=framework.plural, registry=made)(handler)
        return made

    async def _on_event(self, kind: str, event: Json, **_: Any) -> None:
        document = event["object"].copy()
        # Kopf keeps the last event of each watch, and a parsed document may take megabytes.
        event["object"].clear()
        event["object"]["metadata"] = {k: document["metadata"].get(k) for k in ("name", "uid")}
        self.hand_over(kind, {**event, "object": document})


async def _cancel_all() -> None:
    # Kopf's own end awaits tasks one after the other, and each takes a cancellation for itself:
    # with the CRD of a kind deleted it never ends.
    for _ in range(ENDING):
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if not others:
            return
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=0.1)


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    # `follow` notices kinds that come and go; CRDs, which may be of a megabyte, are not read.
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = _NoDiffs()
    # What there is comes in lists, of which Kopf tells: a watch's objects are taken off it.
    settings.watching.initial_streaming = False
    settings.watching.reconnect_backoff = 0.1
    settings.watching.chunk_size = PAGE
    settings.watching.server_timeout = WATCHED
    settings.watching.client_timeout = SILENT
    settings.queueing.idle_timeout = 1.0
    settings.networking.error_backoffs = BACKOFF
    return settings


class _NoDiffs(kopf.DiffBaseStorage):
    """What Kopf compares versions of an object by: nothing, as no handler asks for changes."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None
