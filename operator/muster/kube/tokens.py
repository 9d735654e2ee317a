# SPDX-License-Identifier: Apache-2.0
"""Whether the bearer of a token may read a path, by the word of the API server."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from http import HTTPStatus
from typing import Final

from muster.api.edge import mapping
from muster.api.model import Json
from muster.kube.client import NOT_WRITTEN, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import Resource

log = logging.getLogger(__name__)
TOKENS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
ACCESS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
KEPT_SECONDS: Final = 60.0
KEPT: Final = 100
AT_ONCE: Final = 2
"""Bearers that are asked about at once; strangers may send as many tokens as they like."""
LONGEST: Final = 16_384
"""Characters of a token."""


class TokenGuard:
    """Answers for one path."""

    def __init__(self, kube: Kube, path: str) -> None:
        self._kube, self._path = kube, path
        self._known: OrderedDict[bytes, tuple[float, HTTPStatus]] = OrderedDict()
        self._asking = asyncio.Semaphore(AT_ONCE)

    async def judge(self, authorization: str) -> HTTPStatus:
        """Return OK, UNAUTHORIZED, FORBIDDEN, or SERVICE_UNAVAILABLE where nobody knows."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > LONGEST:
            return HTTPStatus.UNAUTHORIZED
        # Enough to know it again: neither credentials nor their sixteen kilobytes are kept.
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        async with self._asking:
            until, known = self._known.get(digest, (0.0, HTTPStatus.OK))
            if time.monotonic() < until:
                return known
            try:
                found = await self._asked(token)
            except NOT_WRITTEN as error:
                log.warning("nobody knows who may read %s: %s", self._path, error)
                return HTTPStatus.SERVICE_UNAVAILABLE
            self._known[digest] = (time.monotonic() + KEPT_SECONDS, found)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
            return found

    async def _asked(self, token: str) -> HTTPStatus:
        review: Json = {"apiVersion": TOKENS.api_version, "kind": "TokenReview"}
        review["spec"] = {"token": token}
        status = await self._review(TOKENS, review)
        if not status.get("authenticated"):
            return HTTPStatus.UNAUTHORIZED
        user = mapping(status.get("user"))
        spec: Json = {
            "user": user.get("username", ""),
            **{key: user[key] for key in ("uid", "groups", "extra") if user.get(key)},
            "nonResourceAttributes": {"path": self._path, "verb": "get"},
        }
        review = {"apiVersion": ACCESS.api_version, "kind": "SubjectAccessReview", "spec": spec}
        allowed = (await self._review(ACCESS, review)).get("allowed") is True
        return HTTPStatus.OK if allowed else HTTPStatus.FORBIDDEN

    async def _review(self, resource: Resource, review: Json) -> Json:
        answer = await self._kube.create(resource.path(), review, PriorityLevel.LEADERSHIP)
        return dict(mapping(answer.get("status")))
