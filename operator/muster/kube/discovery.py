# SPDX-License-Identifier: Apache-2.0
"""Which kinds of jobs the server serves, polled: a CRD may come or go at any time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from http import HTTPStatus
from typing import Final

import aiohttp

from muster.api.edge import mapping, sequence, text
from muster.kube.client import BROKEN

log = logging.getLogger(__name__)
PERIOD: Final = 5.0
"""Seconds between two questions."""


class ServedKinds:
    """The resources of some API versions, as they are served."""

    def __init__(
        self, session: aiohttp.ClientSession, urls: Iterable[str], plurals: Collection[str]
    ) -> None:
        """`urls` are those of the versions; other resources than `plurals` do not count."""
        self._session, self._urls, self._plurals = session, frozenset(urls), plurals
        self._known: frozenset[str] = frozenset()

    async def read(self) -> None:
        """Read what is served at present, from which `changed` counts."""
        self._known = await self._served() or frozenset()

    async def changed(self) -> None:
        """Return once other resources are served than those that were read."""
        while True:
            await asyncio.sleep(PERIOD)
            served = await self._served()
            if served not in (None, self._known):
                log.info("following jobs begins anew: which kinds are served has changed")
                return

    async def _served(self) -> frozenset[str] | None:
        """Return the paths of the resources that are served, None without a clear answer."""
        found = set[str]()
        try:
            for url in self._urls:
                async with self._session.get(url) as answer:
                    if answer.status == HTTPStatus.NOT_FOUND:
                        continue
                    answer.raise_for_status()
                    listed = sequence(mapping(await answer.json()).get("resources"))
                plurals = {text(mapping(each).get("name")) for each in listed}
                found |= {f"{url}/{plural}" for plural in plurals.intersection(self._plurals)}
        except (*BROKEN, ValueError):
            return None
        return frozenset(found)
