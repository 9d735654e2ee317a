# SPDX-License-Identifier: Apache-2.0
"""Where the validating webhook is asked: in a thread of its own, with nothing kept in between.

Anybody in the cluster may ask it, so size, number and time of the questions are bounded, and the
allocator's loop does not wait for any of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from aiohttp import web
from pydantic_core import from_json, to_json

from muster.api import names
from muster.api.edge import mapping, text
from muster.api.model import Json
from muster.frameworks import DEFAULT_SITE, Site, loading
from muster.frameworks.base import Framework
from muster.kube import serving
from muster.kube.admission import Admission, at_once
from muster.kube.loops import run_on

LARGEST: Final = 3 * 2**20
"""Bytes of a question; the API server stores no object that is half as large."""
MOST: Final = 64
"""Questions that are read and answered at once; who asks beyond it is told to come again."""
PATIENCE: Final = 10.0
"""Seconds for reading one request and writing its response."""
MAX_RESPONSE_BYTES: Final = 4096
"""Length of an AdmissionReview that is returned."""
MAX_UID_CHARS: Final = 64
"""Length of a request's uid: the API server's uids have 36 characters."""
MAX_MESSAGE_BYTES: Final = 1536
"""Length of the message of a rejection, and of all warnings together."""
MAX_WARNINGS: Final = 8
INVALID: Final = 422
OPERATIONS: Final = frozenset({"CREATE", "UPDATE"})


class Endpoint:
    """Answers for as long as `run` is under way, once there is a certificate."""

    def __init__(
        self,
        address: str,
        certified: Admission,
        frameworks: Iterable[Framework],
        site: Site = DEFAULT_SITE,
    ) -> None:
        """Serve on `address`, which is `host:port` or `:port`."""
        self.admission = certified
        self._address = address
        self._frameworks, self._site = {row.kind: row for row in frameworks}, site
        self._asking = 0

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError when the address is taken."""
        await self.admission.ready.wait()
        stop = threading.Event()
        listening = asyncio.create_task(asyncio.to_thread(asyncio.run, self._listen(stop)))
        try:
            # A thread cannot be cancelled: `stop` ends it.
            await asyncio.shield(listening)
        finally:
            stop.set()
            await asyncio.wait([listening])

    async def _listen(self, stop: threading.Event) -> None:
        loop = asyncio.get_running_loop()

        async def within(work: Callable[[], None]) -> None:
            await run_on(loop, at_once(work))

        # Not while this loop is at a handshake, from another thread.
        self.admission.within = within
        routes, context = [web.post("/{path:.*}", self._serve)], self.admission.context
        server = await serving.start(self._address, routes, context, LARGEST)
        await asyncio.to_thread(stop.wait)
        await server.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        if self._asking >= MOST:
            return web.Response(status=503, headers={"Retry-After": "1"})
        self._asking += 1
        response = None
        try:
            async with asyncio.timeout(PATIENCE):
                response = await self._response(request)
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if response is None:
                return web.Response(status=408)
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._asking -= 1
        return response

    async def _response(self, request: web.Request) -> web.Response:
        try:
            review = answer(from_json(await request.read()), self._frameworks, self._site)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.Response(body=to_json(review), content_type="application/json")


def answer(
    question: object, frameworks: Mapping[str, Framework], site: Site = DEFAULT_SITE
) -> Json:
    """Return the AdmissionReview that answers another. Raises ValueError if that is none.

    What is no job of these kinds is let in. The result has at most MAX_RESPONSE_BYTES as JSON.
    """
    asked = mapping(mapping(question).get("request"))
    uid = text(asked.get("uid"))
    if not uid or len(uid) > MAX_UID_CHARS:
        raise ValueError("no AdmissionReview")
    said: Json = {"uid": uid, "allowed": True}
    kind = mapping(asked.get("kind"))
    row = frameworks.get(text(kind.get("kind")))
    meant = asked.get("operation") in OPERATIONS and not asked.get("subResource")
    if row is not None and meant and kind.get("group") == names.GROUP:
        new, old = asked.get("object"), asked.get("oldObject")
        ruling = loading.review(row, new, old, site)
        if ruling.warnings:
            warnings = ruling.warnings[:MAX_WARNINGS]
            max_bytes = MAX_MESSAGE_BYTES // len(warnings)
            said["warnings"] = [_shortened(each, max_bytes) for each in warnings]
        if ruling.problems:
            message = _shortened("; ".join(map(str, ruling.problems)), MAX_MESSAGE_BYTES)
            said |= {"allowed": False, "status": {"message": message, "code": INVALID}}
    version = "admission.k8s.io/v1"
    return {"apiVersion": version, "kind": "AdmissionReview", "response": said}


def _shortened(message: str, max_bytes: int) -> str:
    """Return a message whose JSON has at most `max_bytes`; the end of a longer one is left out."""
    start = message[:max_bytes]
    while len(to_json(start)) > max_bytes:
        start = start[: len(start) * 3 // 4]
    return message if start == message else f"{start[:-3]}..."
