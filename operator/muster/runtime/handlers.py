# SPDX-License-Identifier: Apache-2.0
"""Kopf, the event source for the jobs: its handlers only hand documents to the store."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kopf

from muster.api import names
from muster.api.backoff import Backoff
from muster.api.model import Json
from muster.frameworks import loading
from muster.frameworks.base import Framework
from muster.kube.client import Kube
from muster.runtime.webhook import Admission
from muster.store.store import Store

log = logging.getLogger(__name__)
MISSED = "generator didn't stop after athrow()"
"""What contextlib says of a generator that was closed before."""

BACKOFF = Backoff(0.2, 3.0)
"""Between Kopf's attempts to reach the server, which go on for ever."""
VALIDATE = "validate"
"""The path of the webhook; one for all kinds."""
NEVER = 10.0 * 365 * 24 * 3600
"""Seconds until Kopf would look for changed files: the context is renewed while it serves."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the validating webhook is served, and as whom."""

    host: str
    """Empty: on every address."""
    port: int
    admission: Admission
    """Keeps its certificate."""
    domain: str
    """The cluster domain, which is part of the addresses that large jobs give their pods."""
    home: str = ""
    """The operator's own namespace, in which no job may be."""


def registry(
    kube: Kube,
    store: Store,
    frameworks: Iterable[Framework],
    relisted: Callable[[], None],
    endpoint: Endpoint | None = None,
) -> kopf.OperatorRegistry:
    """Return a registry with one raw-event handler per kind and our own connection.

    With an endpoint every kind has a validating handler too.
    """
    made = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.AiohttpSession:
        # Kopf closes what it is given, at its end or when the server no longer knows us.
        session = kube.new_session()
        return kopf.AiohttpSession(
            server=kube.host, aiohttp_session=session, default_namespace=kube.namespace
        )

    kopf.on.login(registry=made)(login)
    for framework in frameworks:
        handler = functools.partial(_on_event, store, relisted, framework.kind)
        # on.event writes nothing on the user's objects: no finalizer, no annotation.
        kopf.on.event(
            names.GROUP,
            framework.version,
            framework.plural,
            id=framework.plural,
            registry=made,
        )(handler)
        if endpoint is not None:
            kopf.on.validate(
                names.GROUP,
                framework.version,
                framework.plural,
                id=VALIDATE,
                operations=["CREATE", "UPDATE"],
                registry=made,
            )(functools.partial(_validate, framework, endpoint.domain, endpoint.home))
    return made


async def run(
    kube: Kube,
    store: Store,
    frameworks: Iterable[Framework],
    namespaces: Sequence[str],
    started: Callable[[], None],
    relisted: Callable[[], None],
    stop: asyncio.Event,
    endpoint: Endpoint | None = None,
) -> None:
    """Run Kopf until `stop`; `started` is called when it has taken the process's signals.

    `relisted` is called for each job that Kopf has read in a list: those that are gone since the
    last one are in no list. In the end Kopf waits for every task that began after it, and cancels
    them after 5 s: end the others before.
    """
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.watching.reconnect_backoff = 0.1
    settings.queueing.idle_timeout = 1.0
    settings.networking.error_backoffs = BACKOFF
    if endpoint is not None:
        settings.admission.server = functools.partial(_serve, endpoint)
    asyncio.get_running_loop().set_exception_handler(uncaught)
    others = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry(kube, store, frameworks, relisted, endpoint),
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        stop_flag=stop,
    )
    started()
    await kopf.run_tasks(tasks, ignored=others)


def uncaught(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Log an error that no task has caught, but for one that is none.

    A loop that ends closes the generators that are left in any order. Kopf's watches are two, one
    within the other: where the inner one is closed first, the outer one misses it.
    """
    if "asyncgen" in context and str(context.get("exception")) == MISSED:
        log.debug("%s", context["message"])
    else:
        loop.default_exception_handler(dict(context))


class _NoDiffs(kopf.DiffBaseStorage):
    """What Kopf compares versions of an object by: nothing, as no handler asks for changes."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


async def _on_event(
    store: Store, relisted: Callable[[], None], kind: str, event: Json, **_: Any
) -> None:
    store.jobs.seen(kind, event["object"], gone=event["type"] == "DELETED")
    if event["type"] is None:
        relisted()


async def _serve(
    endpoint: Endpoint, answer: kopf.WebhookFn
) -> AsyncIterator[kopf.WebhookClientConfig]:
    admission = endpoint.admission
    await admission.ready.wait()
    server = kopf.WebhookServer(
        addr=endpoint.host or None,
        port=endpoint.port,
        context=admission.context,
        certfile=admission.files.certificate,
        pkeyfile=admission.files.key,
        file_check_interval=NEVER,
    )
    async for config in server(answer):
        yield config


async def _validate(
    framework: Framework,
    domain: str,
    home: str,
    new: Mapping[str, Any],
    old: Mapping[str, Any] | None,
    warnings: list[str],
    **_: Any,
) -> None:
    before = dict(old) if old is not None else None
    ruling = loading.review(framework, dict(new), before, domain, home)
    warnings.extend(ruling.warnings)
    if ruling.problems:
        raise kopf.AdmissionError("; ".join(map(str, ruling.problems)), code=422)
