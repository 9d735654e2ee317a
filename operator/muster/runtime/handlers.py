# SPDX-License-Identifier: Apache-2.0
"""Kopf, the event source for the jobs: its handlers only hand documents over.

It runs in a thread of its own, on a loop of its own: what ends it ends nothing else, and it begins
anew.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import kopf

from muster.api import names
from muster.api.backoff import Backoff
from muster.api.model import Json
from muster.frameworks.base import Framework
from muster.kube.client import Kube

log = logging.getLogger(__name__)
BACKOFF: Final = Backoff(0.2, 3.0)
"""Between Kopf's attempts to reach the server, and between two lives of Kopf."""
WATCHED: Final = 60.0
"""Seconds after which a watch is asked to end, and goes on where it was."""
SILENT: Final = 80.0
"""Seconds after which it counts as broken: half-open connections show nothing."""

Take = Callable[[str, Json, bool], None]
"""Takes kind, document and whether that is gone."""


async def follow(
    kube: Kube,
    frameworks: Iterable[Framework],
    namespaces: Sequence[str],
    take: Take,
    listed: Callable[[], None],
) -> None:
    """Follow the jobs until cancelled; both functions are called in this loop.

    `listed` is called for each job that comes in a list: those that are gone since the last one
    are in no list. An error that Kopf does not survive is logged, and Kopf begins anew.
    """
    kinds, failures = tuple(frameworks), 0
    loop = asyncio.get_running_loop()

    def show(kind: str, event: Json) -> None:
        take(kind, event["object"], event["type"] == "DELETED")
        if event["type"] is None:
            listed()

    while True:
        stop, began = threading.Event(), loop.time()

        def hand_over(kind: str, event: Json, stop: threading.Event = stop) -> None:
            if not stop.is_set():
                loop.call_soon_threadsafe(show, kind, event)

        life = asyncio.to_thread(
            asyncio.run, _live(registry(kube, kinds, hand_over), namespaces, stop)
        )
        try:
            await asyncio.shield(life)
        except Exception:
            failures = 0 if loop.time() - began > BACKOFF.last else failures
            failures += 1
            log.exception("following jobs failed, again in %.1f s", BACKOFF.pause(failures))
        finally:
            stop.set()
        await asyncio.sleep(BACKOFF.pause(failures))


def registry(
    kube: Kube, frameworks: Iterable[Framework], hand_over: Callable[[str, Json], None]
) -> kopf.OperatorRegistry:
    """Return a registry with one raw-event handler per kind and our own way to the server."""
    made = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.AiohttpSession:
        # Kopf closes what it is given, at its end or when the server no longer knows us. Each
        # watch has a connection of its own, and there may be hundreds.
        session = kube.new_session(0)
        return kopf.AiohttpSession(
            server=kube.host, aiohttp_session=session, default_namespace=kube.namespace
        )

    kopf.on.login(registry=made)(login)
    for framework in frameworks:
        # on.event writes nothing on the user's objects: no finalizer, no annotation.
        kopf.on.event(
            names.GROUP,
            framework.version,
            framework.plural,
            id=framework.plural,
            registry=made,
        )(functools.partial(_on_event, hand_over, framework.kind))
    return made


async def _on_event(
    hand_over: Callable[[str, Json], None], kind: str, event: Json, **_: Any
) -> None:
    hand_over(kind, {"type": event["type"], "object": dict(event["object"])})


async def _live(
    handlers: kopf.OperatorRegistry, namespaces: Sequence[str], stop: threading.Event
) -> None:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.watching.reconnect_backoff = 0.1
    settings.watching.server_timeout = WATCHED
    settings.watching.client_timeout = SILENT
    settings.queueing.idle_timeout = 1.0
    settings.networking.error_backoffs = BACKOFF
    await kopf.operator(
        registry=handlers,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop,
    )


class _NoDiffs(kopf.DiffBaseStorage):
    """What Kopf compares versions of an object by: nothing, as no handler asks for changes."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None
