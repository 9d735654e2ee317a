# SPDX-License-Identifier: Apache-2.0
"""Kopf, the event source for the jobs: its handlers only hand documents to the cache."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import kopf

from muster.api import names
from muster.api.model import Json
from muster.frameworks.base import Framework
from muster.runtime.cache import Cache
from muster.runtime.kube import Kube

LONGEST_PAUSE = 3.0
"""Seconds between Kopf's attempts to reach the server."""


def registry(
    kube: Kube, cache: Cache, frameworks: Iterable[Framework], relisted: Callable[[], None]
) -> kopf.OperatorRegistry:
    """Return a registry with one raw-event handler per kind and our own connection."""
    made = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.AiohttpSession:
        # Kopf closes what it is given, at its end or when the server no longer knows us.
        session = kube.new_session()
        return kopf.AiohttpSession(
            server=kube.host, aiohttp_session=session, default_namespace=kube.namespace
        )

    kopf.on.login(registry=made)(login)
    for framework in frameworks:
        handler = functools.partial(_seen, cache, relisted, framework.kind)
        # on.event writes nothing on the user's objects: no finalizer, no annotation.
        kopf.on.event(
            names.GROUP,
            framework.versions[0],
            framework.plural,
            id=framework.plural,
            registry=made,
        )(handler)
    return made


async def run(
    kube: Kube,
    cache: Cache,
    frameworks: Iterable[Framework],
    namespaces: Sequence[str],
    started: Callable[[], None],
    relisted: Callable[[], None],
    stop: asyncio.Event,
) -> None:
    """Run Kopf until `stop`; `started` is called when it has taken the process's signals.

    `relisted` is called for each job that Kopf has read in a list: those that are gone since the
    last one are in no list. In the end Kopf waits for every task that began after it, and cancels
    them after 5 s: end the others before.
    """
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.watching.reconnect_backoff = 0.1
    settings.queueing.idle_timeout = 1.0
    settings.networking.error_backoffs = _Backoffs()
    others = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry(kube, cache, frameworks, relisted),
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop,
    )
    started()
    await kopf.run_tasks(tasks, ignored=others)


class _Backoffs(Iterable[float]):
    """Pauses between attempts, in seconds, without end: the server will be back."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.2, 0.5, 1.0, 2.0), itertools.repeat(LONGEST_PAUSE))


async def _seen(
    cache: Cache, relisted: Callable[[], None], kind: str, event: Json, **_: Any
) -> None:
    cache.job_seen(kind, event["object"], gone=event["type"] == "DELETED")
    if event["type"] is None:
        relisted()
