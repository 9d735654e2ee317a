# SPDX-License-Identifier: Apache-2.0
"""What Kopf need not hear of: changes that this process has made, and knows by their answers.

Kopf takes as long over an event as this process over several writes. What it is shown of such a
change says how far the watch has come, and no more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import aiohttp
from pydantic_core import from_json, to_json

from muster.api.model import Json
from muster.kube.client import lines_of

CHANGE: Final = b'{"type":"MODIFIED"'
"""So begins a line that may be one; all others pass unread."""


class Echoes:
    """Goes between Kopf and the server, as a middleware of Kopf's session.

    `is_known(document)` says whether just that version of an object is known; it is asked in
    Kopf's thread. `paths` are those whose watches are read.
    """

    def __init__(self, paths: Iterable[str], is_known: Callable[[Json], bool]) -> None:
        self._paths, self._is_known = frozenset(paths), is_known

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request; of a watch, let the answer be read without echoes."""
        response = await handler(request)
        if request.url.path in self._paths and "watch" in request.url.query:
            content: Any = _Lines(response.content, self.shown)
            response.content = content
        return response

    def shown(self, line: bytes) -> bytes:
        """Return what Kopf is shown for a line of a watch."""
        if not line.startswith(CHANGE):
            return line
        try:
            document = from_json(line)["object"]
            if not self._is_known(document):
                return line
        except (ValueError, LookupError, TypeError):  # Kopf says what it thinks of it
            return line
        version = {"resourceVersion": document["metadata"]["resourceVersion"]}
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
