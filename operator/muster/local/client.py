# SPDX-License-Identifier: Apache-2.0
"""The few calls that bringing up a cluster makes to its API server."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import urllib3

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Document = dict[str, Any]
"""A document as the API server speaks it."""

_APPLY = "application/apply-patch+yaml"
MANAGER = "muster-local"
"""Under this name the API server notes what this package wrote."""
_PAGE = 500
_PATIENCE = 120.0
"""Seconds to wait for an answer: a busy machine takes long over large CRDs."""


class ApiError(Exception):
    """The API server refused (`status` is HTTP's), or did not answer (`status` is 0)."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class CredentialsError(Exception):
    """A kubeconfig does not say how to speak to its cluster."""


class Client:
    """One API server, spoken to as one user. Safe to use from several threads.

    `headers` are asked for at each call: what a token is may change.
    """

    def __init__(
        self,
        server: str,
        pool: urllib3.PoolManager,
        headers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.server = server
        self._pool = pool
        self._headers = headers

    def get(self, path: str) -> Document:
        """Read what is at `path`; ApiError if that fails."""
        return self._send("GET", path)

    def items(self, path: str, **query: str) -> Iterator[Document]:
        """Read the collection at `path`, page by page."""
        more = ""
        while True:
            asked = {"limit": str(_PAGE), **query, **({"continue": more} if more else {})}
            words = "&".join(f"{key}={quote(value)}" for key, value in asked.items())
            page = self.get(f"{path}?{words}")
            yield from page["items"]
            more = page["metadata"].get("continue", "")
            if not more:
                return

    def create(self, path: str, document: Document) -> Document:
        """Create in the collection at `path`; ApiError 409 if it is there already."""
        query = f"?fieldManager={MANAGER}"
        return self._send("POST", path + query, document, "application/json")

    def delete(self, path: str, document: Document) -> bool:
        """Delete the object at `path` under these options; False if it was not there."""
        try:
            self._send("DELETE", path, document, "application/json")
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def apply(self, path: str, document: Document) -> Document:
        """Make the object at `path` be as `document` says, whatever it was (server-side apply)."""
        query = f"?fieldManager={MANAGER}&force=true"
        return self._send("PATCH", path + query, document, _APPLY)

    def ready(self) -> bool:
        """Whether the server answers and calls itself ready."""
        try:
            answer = self._pool.request("GET", f"{self.server}/readyz", timeout=2.0, retries=False)
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
        headers = {**self._headers(), **({"Content-Type": kind} if kind else {})}
        try:
            answer = self._pool.request(
                method,
                self.server + path,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=10.0, read=_PATIENCE),
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, f"{method} {path}: {error}") from error
        if answer.status >= 400:
            raise ApiError(answer.status, f"{method} {path}: {_reason(answer.data)}")
        value: Document = json.loads(answer.data) if answer.data else {}
        return value


def by_certificate(server: str, authority: Path, certificate: Path, key: Path) -> Client:
    """Speak to a server with a client certificate, all of it from files."""
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(str(certificate), str(key))
    return Client(server, urllib3.PoolManager(ssl_context=context, maxsize=16))


def by_kubeconfig(path: Path) -> Client:
    """Speak to the server of a kubeconfig in whatever way it says.

    CredentialsError if it cannot be made out.
    """
    # They take a second, which only clusters that were there before need.
    from kubernetes import client, config  # noqa: PLC0415
    from kubernetes.client import rest  # noqa: PLC0415

    configuration = client.Configuration()
    try:
        config.load_kube_config(
            str(path), client_configuration=configuration, persist_config=False
        )
        pool = rest.RESTClientObject(configuration).pool_manager
    except (config.ConfigException, OSError, ValueError, TypeError) as error:
        raise CredentialsError(str(error)) from error

    def headers() -> dict[str, str]:
        settings: Any = configuration.auth_settings()
        return {one["key"]: one["value"] for one in settings.values() if one["in"] == "header"}

    return Client(configuration.host.rstrip("/"), pool, headers)


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:300]
