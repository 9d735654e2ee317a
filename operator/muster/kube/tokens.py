# SPDX-License-Identifier: Apache-2.0
"""Who the bearer of a token is and what he may look at, by the word of the API server."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from muster.api.edge import mapping, text
from muster.api.model import Json
from muster.kube.access import allowed
from muster.kube.client import NOT_WRITTEN, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import Resource

T = TypeVar("T")
log = logging.getLogger(__name__)
TOKENS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
KEPT_SECONDS: Final = 60.0
KEPT: Final = 100
AT_ONCE: Final = 2
"""Bearers that are asked about at once; strangers may send as many tokens as they like."""
ASKED_AT_ONCE: Final = 8
"""Namespaces that are asked about at once, for whomever."""
LONGEST: Final = 16_384
"""Characters of a token."""


class Bearers(Generic[T]):
    """Users that may get a path, by their tokens; what `admit` makes of each is stored a while."""

    def __init__(self, kube: Kube, path: str, admit: Callable[[Json], T]) -> None:
        """Begin. `admit` gets each user, as a SubjectAccessReview names one."""
        self._kube, self._path, self._admit = kube, path, admit
        self._known: OrderedDict[bytes, tuple[float, T | HTTPStatus]] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[float, T | HTTPStatus]] = OrderedDict()
        """Apart, so that strangers have nobody forgotten who may look."""
        self._asking = asyncio.Semaphore(AT_ONCE)
        self._renewing = asyncio.Semaphore(AT_ONCE)
        """Of those who could look: whoever strangers are, they are not among them."""

    async def find(self, authorization: str) -> T | HTTPStatus:
        """Return what `admit` makes of the user, or why the user may not get the path.

        That is UNAUTHORIZED, FORBIDDEN, or SERVICE_UNAVAILABLE if the API server does not answer.
        """
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST or not token.isascii():
            return HTTPStatus.UNAUTHORIZED
        # Enough to know it again: neither credentials nor their sixteen kilobytes are kept.
        digest = hashlib.sha256(token.encode()).digest()
        # Who is known waits behind no strangers.
        if (known := self._remembered(digest)) is not None:
            return known
        async with self._renewing if digest in self._known else self._asking:
            if (known := self._remembered(digest)) is not None:
                return known
            try:
                found = await self._asked(token)
            except NOT_WRITTEN as error:
                log.warning("nobody knows who may read %s: %s", self._path, error)
                return HTTPStatus.SERVICE_UNAVAILABLE
            may = found is HTTPStatus.OK or not isinstance(found, HTTPStatus)
            kept = self._known if may else self._refused
            self._known.pop(digest, None)
            kept[digest] = (time.monotonic() + KEPT_SECONDS, found)
            if len(kept) > KEPT:
                kept.popitem(last=False)
            return found

    def _remembered(self, digest: bytes) -> T | HTTPStatus | None:
        found = self._known.get(digest) or self._refused.get(digest)
        return found[1] if found is not None and time.monotonic() < found[0] else None

    async def _asked(self, token: str) -> T | HTTPStatus:
        review: Json = {"apiVersion": TOKENS.api_version, "kind": "TokenReview"}
        review["spec"] = {"token": token}
        answer = await self._kube.create(TOKENS.path(), review, PriorityLevel.LEADERSHIP)
        status = mapping(answer.get("status"))
        if not status.get("authenticated"):
            return HTTPStatus.UNAUTHORIZED
        user = mapping(status.get("user"))
        named: Json = {"user": user.get("username", "")}
        named |= {key: user[key] for key in ("uid", "groups", "extra") if user.get(key)}
        asked = {"nonResourceAttributes": {"path": self._path, "verb": "get"}}
        if not await allowed(self._kube, asked, named, PriorityLevel.LEADERSHIP):
            return HTTPStatus.FORBIDDEN
        return self._admit(named)


_LISTS: Final[Json] = {"verb": "list", "resource": "pods", "version": "v1"}


class Viewer:
    """Somebody, and the namespaces whose pods he may list."""

    def __init__(self, kube: Kube, user: Json, few: asyncio.Semaphore) -> None:
        """Begin. So many questions are asked at once as `few` lets in."""
        self._kube, self._user, self._few = kube, user, few
        self._may: dict[str, bool] = {}
        """By namespace; empty: all of them."""
        self._asking = asyncio.Lock()

    @property
    def username(self) -> str:
        """The name of the user, which all tokens of the user share."""
        return text(self._user.get("user"))

    async def visible(self, namespaces: Collection[str]) -> frozenset[str] | None:
        """Return the visible namespaces of these, None: all. Raises what a request raises."""
        # One after the other: a page asks for several things at once, all by the same answers.
        async with self._asking:
            if await self._lists(""):
                return None
            asked = sorted(namespaces)
            answers = await asyncio.gather(*map(self._lists, asked))
        return frozenset(name for name, yes in zip(asked, answers, strict=True) if yes)

    async def _lists(self, namespace: str) -> bool:
        known = self._may.get(namespace)
        if known is None:
            attributes = {**_LISTS, "namespace": namespace} if namespace else _LISTS
            asked = {"resourceAttributes": attributes}
            async with self._few:
                known = await allowed(self._kube, asked, self._user, PriorityLevel.VIEW)
            self._may[namespace] = known
        return known
