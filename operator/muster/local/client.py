# SPDX-License-Identifier: Apache-2.0
"""The few calls that bringing up a cluster makes to its API server."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import urllib3

if TYPE_CHECKING:
    from pathlib import Path

Document = dict[str, Any]
"""A document as the API server speaks it."""

_APPLY = "application/apply-patch+yaml"
_MANAGER = "muster-local"


class ApiError(Exception):
    """The API server refused (`status` is HTTP's), or did not answer (`status` is 0)."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Client:
    """One API server, spoken to with a client certificate. Safe to use from several threads."""

    def __init__(self, server: str, authority: Path, certificate: Path, key: Path) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(str(certificate), str(key))
        self.server = server
        self._pool = urllib3.PoolManager(ssl_context=context, maxsize=16, retries=False)

    def get(self, path: str) -> Document:
        """Read what is at `path`; ApiError if that fails."""
        return self._send("GET", path)

    def create(self, path: str, document: Document) -> Document:
        """Create in the collection at `path`; ApiError 409 if it is there already."""
        return self._send("POST", path, document, "application/json")

    def apply(self, path: str, document: Document) -> Document:
        """Make the object at `path` be as `document` says, whatever it was (server-side apply)."""
        query = f"?fieldManager={_MANAGER}&force=true"
        return self._send("PATCH", path + query, document, _APPLY)

    def ready(self) -> bool:
        """Whether the server answers and calls itself ready."""
        try:
            answer = self._pool.request("GET", f"{self.server}/readyz", timeout=2.0)
        except urllib3.exceptions.HTTPError:
            return False
        return answer.status == 200

    def close(self) -> None:
        """Give back the connections."""
        self._pool.clear()

    def _send(
        self,
        method: str,
        path: str,
        document: Document | None = None,
        kind: str | None = None,
    ) -> Document:
        body = None if document is None else json.dumps(document)
        headers = {"Content-Type": kind} if kind else {}
        try:
            answer = self._pool.request(
                method, self.server + path, body=body, headers=headers, timeout=30.0
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, f"{method} {path}: {error}") from error
        if answer.status >= 400:
            raise ApiError(answer.status, f"{method} {path}: {_reason(answer.data)}")
        value: Document = json.loads(answer.data) if answer.data else {}
        return value


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:300]
