# SPDX-License-Identifier: Apache-2.0
"""Which kinds the server serves, where Kopf may have missed it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Final

import aiohttp

from muster.api import names
from muster.kube.client import BROKEN

log = logging.getLogger(__name__)
SETTLED: Final = 5.0
"""Seconds after which a server has taken in that the definition of a kind has changed."""
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KINDS: Final = f"/apis/{names.GROUP}"
"""Above a version: where the server says which kinds it serves."""
REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_OWN: Final = {"limit": "1"}
"""Marks a request that Kopf has not made."""


class Overlooked:
    """Notices that Kopf may not know which kinds are served.

    Kopf asks for it once when it begins, and again with each change of a definition. The server
    may hear of that change later than Kopf; a definition that is made after Kopf's first question
    and before its list of definitions is in no answer; and when that list is read again, nothing
    in it counts as new.
    """

    def __init__(self, host: str, paths: Iterable[str], session: aiohttp.ClientSession) -> None:
        """Follow what Kopf asks for in its session; `paths` are those of all jobs."""
        self._host, self._session = host, session
        self._unasked = set(paths)
        self._listed, self._changed = False, False
        self._asked = asyncio.Event()
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._starts)
        trace.on_request_end.append(self._ends)
        trace.freeze()
        session.trace_configs.append(trace)

    async def wait(self) -> None:
        """Return when Kopf should begin anew, with what is served then."""
        while not self._changed and not await self._missing():
            await self._rest()
        log.info("following jobs begins anew: which kinds are served has changed")

    async def _rest(self) -> None:
        """Return when something was asked, and nothing more for a while."""
        await self._asked.wait()
        while self._asked.is_set():
            self._asked.clear()
            await asyncio.sleep(SETTLED)

    async def _missing(self) -> bool:
        """Return True if jobs of a kind are served that Kopf has never asked for."""
        if not self._listed:
            return False
        for path in tuple(self._unasked):
            url = f"{self._host}{path}"
            try:
                async with self._session.get(url, params=_OWN, trace_request_ctx=_OWN) as answer:
                    if answer.ok:
                        return True
                    if answer.status not in {*REFUSED, HTTPStatus.NOT_FOUND}:
                        self._asked.set()
            except BROKEN:
                self._asked.set()
        return False

    async def _starts(
        self,
        _session: object,
        context: SimpleNamespace,
        asked: aiohttp.TraceRequestStartParams,
    ) -> None:
        if context.trace_request_ctx is not _OWN:
            self._unasked.discard(asked.url.path)

    async def _ends(
        self, _session: object, _context: object, asked: aiohttp.TraceRequestEndParams
    ) -> None:
        path, answer = asked.url.path, asked.response
        if path == DEFINITIONS:
            if {"watch", "continue"} & asked.url.query.keys():
                return
            if not (answer.ok or answer.status in REFUSED):
                return
        elif not self._listed or path.rpartition("/")[0] != KINDS:
            return
        self._changed |= self._listed
        self._listed = True
        self._asked.set()
