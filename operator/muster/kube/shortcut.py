# SPDX-License-Identifier: Apache-2.0
"""Takes objects off Kopf's watches as their lines come, before Kopf makes its views of them.

Kopf takes as long over an event as this process over several writes. Of one that shows how an
object is, it is shown how far the watch has come, and no more. Lists, deletions and errors are its
own: who has gone, and when a watch begins anew, is for it to say.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import aiohttp
from pydantic_core import from_json, to_json

from muster.api.model import Json
from muster.kube.client import lines_of

SHOWS: Final = (b'{"type":"ADDED"', b'{"type":"MODIFIED"')
"""So begins a line that shows how an object is; all others pass unread."""


class Shortcut:
    """Goes between Kopf and the server, as a middleware of Kopf's session.

    `take(document)` is given each object, in Kopf's thread; with what it raises for a document
    that is none, ValueError, LookupError or TypeError, that goes to Kopf. `paths` are those whose
    watches are read.
    """

    def __init__(self, paths: Iterable[str], take: Callable[[Json], None]) -> None:
        self._paths, self._take = frozenset(paths), take

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request; of a watch, let the answer be read without the objects."""
        response = await handler(request)
        if request.url.path in self._paths and "watch" in request.url.query:
            content: Any = _Lines(response.content, self.shown)
            response.content = content
        return response

    def shown(self, line: bytes) -> bytes:
        """Return what Kopf is shown for a line of a watch."""
        if not line.startswith(SHOWS):
            return line
        try:
            document = from_json(line)["object"]
            version = {"resourceVersion": document["metadata"]["resourceVersion"]}
            self._take(document)
        except (ValueError, LookupError, TypeError):  # Kopf says what it thinks of it
            return line
        return to_json({"type": "BOOKMARK", "object": {"metadata": version}})


class _Lines:
    """The content of an answer, of which each line is shown as `shown` has it."""

    def __init__(self, content: aiohttp.StreamReader, shown: Callable[[bytes], bytes]) -> None:
        self._content, self._shown = content, shown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield the lines, and at the end what is left without one's end."""
        async for line in lines_of(self._content.iter_chunked(size)):
            yield self._shown(line[:-1]) + b"\n" if line.endswith(b"\n") else line
