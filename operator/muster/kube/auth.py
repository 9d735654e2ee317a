# SPDX-License-Identifier: Apache-2.0
"""Where the API server is and who asks it: from a kubeconfig, or as a pod of the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
import os
import ssl
import time
from asyncio import sslproto
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from kubernetes.aio import client as aio_client
from kubernetes.aio import config as aio_config
from kubernetes.aio.client.rest import RESTClientObject

from muster.kube.client import ATTEMPTS, Kube

IDLE = 75.0
"""Seconds that an unused connection stays open, a little less than the server gives it: sixty
TLS handshakes at once would delay the start of the next gangs by a tenth."""
SPARE, LINGER = 32, 5.0
"""How many unused ones stay that long, and the seconds that all others do: each takes a tenth of a
megabyte, more where large objects were sent."""

RENEWAL: Final = 5.0
"""Seconds between two attempts to read the credentials again that the server rejects."""
BUFFER: Final = 16 * 1024
"""Bytes of a connection that are read at once, a record of TLS. It keeps twice as much for as long
as it is open, and Python would take 16 times that: of hundreds, while the server is slow."""


class Connections(aiohttp.TCPConnector):
    """Connections of which the one that was used last goes first, and few are spare.

    In turns, as aiohttp has it, one request a second keeps all open that a burst has opened.
    """

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        if should_close or protocol.should_close:
            # TLS would wait for the server to close, even after the client is closed.
            protocol.abort()
        super()._release(key, protocol, should_close=should_close)
        unused = self._conns.get(key)
        if unused:
            # It is behind the others now, and they are lent from the front.
            unused.rotate(1)
            while len(unused) > SPARE and unused[-1][1] < time.monotonic() - LINGER:
                unused.pop()[0].abort()


UNUSABLE: Final = (
    aio_config.ConfigException,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
    yaml.YAMLError,
)
"""Errors of the library for a kubeconfig, which it does not validate."""


class ConfigurationError(Exception):
    """No usable connection to an API server is configured."""


class _Credentials:
    """Puts the header of its user on each request."""

    def __init__(self, configuration: Any, host: str, files: str, context: str | None) -> None:
        """Begin. `host`: the server that the `files` name."""
        self._configuration, self._host = configuration, host
        self._files, self._context = files, context
        self._renewing, self._renewed_at = asyncio.Lock(), -math.inf

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        used = await self._sign(request)
        response = await handler(request)
        if response.status == HTTPStatus.UNAUTHORIZED:
            # The token was replaced, or has expired.
            await self._renew()
            if await self._sign(request) != used:
                response.release()
                return await handler(request)
        return response

    async def _sign(self, request: aiohttp.ClientRequest) -> Mapping[str, str]:
        """Set the headers of the user, and return them. Raises aiohttp.ClientError."""
        try:
            # Here the library reads the token of a mounted account again, once a minute.
            settings: Any = await self._configuration.auth_settings()
        except UNUSABLE as error:
            raise aiohttp.ClientConnectionError(f"credentials cannot be read: {error}") from error
        given = [each for each in settings.values() if each["in"] == "header" and each["value"]]
        headers: Mapping[str, str] = {each["key"]: each["value"] for each in given}
        request.headers.update(headers)
        return headers

    async def _renew(self) -> None:
        async with self._renewing:
            if time.monotonic() >= self._renewed_at + RENEWAL:
                self._renewed_at = time.monotonic()
                found: Any = aio_client.Configuration()
                # Without success the answer of the server counts.
                with contextlib.suppress(*UNUSABLE):
                    await _load(found, self._files, self._context)
                # A token of another server, which the file may name now, is not shown to this one.
                if found.host == self._host and found.api_key:
                    self._configuration.api_key = found.api_key
                    self._configuration.refresh_api_key_hook = found.refresh_api_key_hook


async def connect(
    kubeconfig: str = "",
    master: str = "",
    context: str | None = None,
    width: int = 64,
    attempts: int = ATTEMPTS,
) -> Kube:
    """Open a connection as kubectl would, or as a pod does. Raises ConfigurationError."""
    configuration = aio_client.Configuration()
    files = kubeconfig or os.environ.get("KUBECONFIG", "")
    try:
        namespace = await _load(configuration, files, context)
        rest = RESTClientObject(configuration)
    except UNUSABLE as error:
        source = f"kubeconfig {files} cannot be used: " if files else ""
        hint = "give --kubeconfig, set KUBECONFIG, or run inside a cluster"
        # The library's errors about values of another type name no part of the file.
        vague = isinstance(error, AttributeError | LookupError | TypeError)
        why = "it is empty, incomplete or of another format" if vague else error
        text = f"no connection to a cluster: {source}{why}; {hint}"
        raise ConfigurationError(" ".join(text.split())) from error
    origin = configuration.host, files, context
    if master:
        configuration.host = master
    # Of the class, as asyncio has no other way to say it: for all TLS of the process.
    sslproto.SSLProtocol.max_size = BUFFER

    needs_header = bool(configuration.api_key or configuration.username)

    def new_session(connections: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=Connections(limit=connections, ssl=rest.ssl_context, keepalive_timeout=IDLE),
            timeout=aiohttp.ClientTimeout(total=60, sock_connect=10),
            headers={"User-Agent": "muster", "Accept": "application/json"},
            middlewares=(_Credentials(configuration, *origin),) if needs_header else (),
            read_bufsize=2**20,
            proxy=configuration.proxy,
        )

    @cache
    def anonymous() -> ssl.SSLContext:
        nobody = copy.copy(configuration)
        # A server goes by the certificate, if there is one, rather than by a token.
        nobody.cert_file = nobody.key_file = None
        context: ssl.SSLContext = RESTClientObject(nobody).ssl_context
        return context

    def bare() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, ssl=anonymous()),
            timeout=aiohttp.ClientTimeout(total=60, sock_connect=10),
            headers={"User-Agent": "muster", "Accept": "application/json, */*"},
            proxy=configuration.proxy,
        )

    return Kube(configuration.host, new_session, namespace, width, attempts, bare)


async def _load(configuration: Any, files: str, context: str | None) -> str:
    """Set the server and the credentials; return the namespace. Raises UNUSABLE."""
    if not files and "KUBERNETES_SERVICE_HOST" in os.environ:
        aio_config.load_incluster_config(client_configuration=configuration)
        return _pod_namespace()
    if files and not any(map(os.path.exists, files.split(os.pathsep))):
        raise FileNotFoundError("no such file")
    loader = await aio_config.load_kube_config(
        config_file=files or None,
        context=context,
        client_configuration=configuration,
        persist_config=False,
    )
    active = loader.current_context or {}
    return str(active.get("context", {}).get("namespace") or "default")


def _pod_namespace() -> str:
    with contextlib.suppress(OSError):
        path = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        return path.read_text(encoding="utf-8").strip()
    return "default"
