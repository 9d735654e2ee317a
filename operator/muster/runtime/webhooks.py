# SPDX-License-Identifier: Apache-2.0
"""The validating webhook's identity: made, renewed and published while the operator runs.

The configuration is shipped with the manifests; only its caBundle is written here, so that the
account may change this one object and create none. Without it, or without the permission, the
operator works as ever: it judges the same jobs by the same rules when it reads them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from muster.api.model import Json
from muster.runtime import certificates
from muster.runtime.gate import Urgency
from muster.runtime.kube import BROKEN, ApiError, Kube, Resource

log = logging.getLogger(__name__)

CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
RETRY_SECONDS = 5.0
REREAD_SECONDS = 10.0
"""How often the configuration is looked at, which others may write too."""
FOLLOW_SECONDS = 2.0
"""How often given files are looked at."""
CONFLICT = 409
OBSTACLES = {
    403: "the operator's account may not get and update it; apply manifests/components/webhook",
    404: "there is no such ValidatingWebhookConfiguration; apply manifests/components/webhook",
}
"""Answers of the API server -> what is in the way, and the cure."""


@dataclass(frozen=True, slots=True)
class Given:
    """Files of a certificate that somebody else renews, who publishes it too."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Files:
    """What stands in them, PEM."""

    certificate: bytes
    key: bytes


class Admission:
    """Keeps the files of the certificate, and the configuration, as they should be."""

    def __init__(self, kube: Kube, name: str, lifetime: float, given: Given | None) -> None:
        self._path = CONFIGURATIONS.path(name=name)
        self._kube, self._name, self._lifetime, self._given = kube, name, lifetime, given
        self._digest = b""
        self._folder = tempfile.TemporaryDirectory(prefix="muster-webhook-")
        folder = Path(self._folder.name)
        self.files = Given(str(folder / "tls.crt"), str(folder / "tls.key"))
        self.context = _server_context()
        """What the server is to serve with: a renewed certificate is in use from the next
        connection on."""
        self.ready = asyncio.Event()
        """Set when there is a certificate."""
        self._said = ""

    async def run(self) -> None:
        """Make, renew and publish without end."""
        while True:
            try:
                pause = await (self._follow(self._given) if self._given else self._renew())
            except ApiError as error:
                self._tell(OBSTACLES.get(error.code, error.message))
                pause = RETRY_SECONDS
            except (*BROKEN, OSError, ValueError) as error:
                self._tell(f"{type(error).__name__}: {error}")
                pause = RETRY_SECONDS
            await asyncio.sleep(pause)

    def _tell(self, problem: str) -> None:
        if problem != self._said:
            self._said = problem
            log.warning("the webhook %s is not served as it should be: %s", self._name, problem)

    async def _follow(self, given: Given) -> float:
        """Take the given files into use if they have changed.

        They may be exchanged while they are read: what does not belong together is not served.
        """
        pair = await asyncio.to_thread(_read, given)
        digest = hashlib.sha256(pair.certificate + pair.key).digest()
        if digest != self._digest:
            await asyncio.to_thread(_write, self.files, pair)
            _server_context().load_cert_chain(self.files.certificate, self.files.key)
            self._use()
            self._digest = digest
        return FOLLOW_SECONDS

    async def _renew(self) -> float:
        """Publish a new certificate, then use it until two thirds of its time are over."""
        now = time.time()
        configuration = await self._kube.get(self._path)
        pair = certificates.self_signed(tuple(hosts(configuration)), now, self._lifetime)
        await self._publish(pair.certificate)
        await asyncio.to_thread(_write, self.files, Files(pair.certificate, pair.key))
        self._use()
        renewal = now + self._lifetime * 2 / 3
        while (left := renewal - time.time()) > 0:
            await asyncio.sleep(min(left, REREAD_SECONDS))
            await self._publish(pair.certificate)
        return 0.0

    def _use(self) -> None:
        self.context.load_cert_chain(self.files.certificate, self.files.key)
        if self._said or not self.ready.is_set():
            log.info("the webhook %s is served", self._name)
        self._said = ""
        self.ready.set()

    async def _publish(self, certificate: bytes) -> None:
        """Write the certificate into the configuration, beside those of other replicas."""
        while True:
            found = await self._kube.get(self._path)
            wanted = published(found, certificate, time.time())
            if wanted == found:
                return
            try:
                await self._kube.replace(self._path, wanted, Urgency.SUPPORT)
            except ApiError as error:
                if error.code != CONFLICT:
                    raise
            else:
                return


def hosts(configuration: Json) -> Iterator[str]:
    """Yield the names under which the API server calls the webhooks of a configuration."""
    found = (webhook["clientConfig"] for webhook in configuration.get("webhooks") or ())
    yield from dict.fromkeys(map(_host, found))


def _host(client: Mapping[str, Any]) -> str:
    if "service" in client:
        return f"{client['service']['name']}.{client['service']['namespace']}.svc"
    return urlsplit(client["url"]).hostname or ""


def published(configuration: Json, certificate: bytes, now: float) -> Json:
    """Return the configuration with the certificate in every bundle; what is not due stays."""
    webhooks = [
        {**webhook, "clientConfig": _trusting(webhook["clientConfig"], certificate, now)}
        for webhook in configuration.get("webhooks") or ()
    ]
    return {**configuration, "webhooks": webhooks}


def _trusting(client: Json, certificate: bytes, now: float) -> Json:
    old = base64.b64decode(client.get("caBundle") or "")
    if certificate in old:
        return client
    made = certificates.bundle(old, certificate, now)
    return {**client, "caBundle": base64.b64encode(made).decode()}


def _server_context() -> ssl.SSLContext:
    return ssl.create_default_context(purpose=ssl.Purpose.CLIENT_AUTH)


def _read(given: Given) -> Files:
    return Files(Path(given.certificate).read_bytes(), Path(given.key).read_bytes())


def _write(files: Given, pair: Files) -> None:
    Path(files.certificate).write_bytes(pair.certificate)
    key = Path(files.key)
    key.touch(mode=0o600)
    key.write_bytes(pair.key)
