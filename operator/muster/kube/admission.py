# SPDX-License-Identifier: Apache-2.0
"""Certificates by which the API server trusts the webhook, each self-signed.

There is no Secret: a replica's private key never leaves its process and its temporary folder. The
certificate itself is trusted, so one bundle holds those of all replicas, old and new.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from muster.api.model import Json
from muster.kube.certificates import Pair, PairFiles, expiry, load, self_signed
from muster.kube.client import BROKEN, ApiError, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import Resource

log = logging.getLogger(__name__)
NAME: Final = "muster-webhook"
"""Common name of every certificate that is made here."""
MOST: Final = 16
"""Certificates of ours that a bundle keeps; replicas that ended leave theirs behind."""


def bundle(old: bytes, new: bytes, now: float) -> bytes:
    """Return a bundle with the new certificate and what the old one still needs.

    Certificates of ours go when they have run out, the oldest when there are too many; those of
    others stay. A bundle that is none is as if it were empty.
    """
    try:
        known = x509.load_pem_x509_certificates(old) if old else []
    except ValueError:
        known = []
    added = x509.load_pem_x509_certificate(new)
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    ours = {c for c in known if _is_ours(c) and c.not_valid_after_utc > moment} - {added}
    kept = sorted(ours, key=lambda c: (c.not_valid_before_utc, c.serial_number))[-(MOST - 1) :]
    others = [certificate for certificate in known if not _is_ours(certificate)]
    kept = [*others, *kept, added]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in kept)


def _is_ours(certificate: x509.Certificate) -> bool:
    named = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return [attribute.value for attribute in named] == [NAME]


CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
RETRY_SECONDS = 5.0
REREAD_SECONDS = 10.0
"""How often the configuration is looked at, which others may write too."""
FOLLOW_SECONDS = 2.0
"""How often given files are looked at."""
OBSTACLES = {
    403: "the operator's account may not get and update it; apply manifests/components/webhook",
    404: "there is no such ValidatingWebhookConfiguration; apply manifests/components/webhook",
}
"""Answers of the API server -> what is in the way, and the cure."""


class Admission:
    """Keeps the certificate, and the configuration, as they should be."""

    def __init__(self, kube: Kube, name: str, lifetime: float, given: PairFiles | None) -> None:
        """Begin without one. `given`: the files of one that somebody else renews and publishes."""
        self._path = CONFIGURATIONS.path(name=name)
        self._kube, self._name, self._lifetime, self._given = kube, name, lifetime, given
        self._digest = b""
        self.context = _server_context()
        """The server's context: a renewed certificate is used from the next connection on."""
        self.within: Callable[[Callable[[], None]], Awaitable[None]] = at_once
        """Runs work during no handshake: certificate and key do not match for a moment."""
        self.ready = asyncio.Event()
        """Set when there is a certificate."""
        self.expires = 0.0
        """Until when it is good, since the epoch."""
        self._reported = ""

    async def run(self) -> None:
        """Make, renew and publish without end."""
        while True:
            try:
                pause = await (self._follow(self._given) if self._given else self._renew())
            except ApiError as error:
                pause = self._report(OBSTACLES.get(error.code, error.message))
            except (*BROKEN, OSError, ValueError, LookupError, TypeError) as error:
                pause = self._report(f"{type(error).__name__}: {error}")
            await asyncio.sleep(pause)

    def _report(self, problem: str) -> float:
        """Log a problem that is new; return the seconds until the next try."""
        if problem != self._reported:
            self._reported = problem
            log.warning("the webhook %s is not served as it should be: %s", self._name, problem)
        return RETRY_SECONDS

    async def _follow(self, given: PairFiles) -> float:
        """Take the given files into use if they have changed.

        They may be exchanged while they are read: what does not belong together is not served.
        """
        pair = await asyncio.to_thread(given.read)
        digest = hashlib.sha256(pair.certificate + pair.key).digest()
        if digest != self._digest:
            # On another context first: a bad pair would leave the serving one with a wrong key.
            await asyncio.to_thread(load, _server_context(), pair)
            await self._use(pair)
            self._digest = digest
        return FOLLOW_SECONDS

    async def _renew(self) -> float:
        """Publish a new certificate, then use it until two thirds of its time are over."""
        now = time.time()
        configuration = await self._kube.get(self._path)
        pair = self_signed(NAME, now, self._lifetime, hosts=tuple(hosts(configuration)))
        # In this order: the API server is to trust a certificate before it is greeted with it.
        await self._publish(pair.certificate)
        await self._use(pair)
        # The last third is left for a server that cannot be reached when it is due.
        renewal = now + self._lifetime * 2 / 3
        while (left := renewal - time.time()) > 0:
            await asyncio.sleep(min(left, REREAD_SECONDS))
            await self._publish(pair.certificate)
        return 0.0

    async def _use(self, pair: Pair) -> None:
        await self.within(lambda: load(self.context, pair))
        self.expires = expiry(pair.certificate)
        if self._reported or not self.ready.is_set():
            log.info("the webhook %s is served", self._name)
        self._reported = ""
        self.ready.set()

    async def _publish(self, certificate: bytes) -> None:
        """Write the certificate into the configuration, beside those of other replicas."""
        while True:
            found = await self._kube.get(self._path)
            wanted = published(found, certificate, time.time())
            if wanted == found:
                return
            try:
                await self._kube.replace(self._path, wanted, PriorityLevel.SUPPORT)
            except ApiError as error:
                # Another replica was faster: its certificate is to stay beside this one.
                if error.code != 409:
                    raise
            else:
                return


async def at_once(work: Callable[[], None]) -> None:
    """Do the work."""
    work()


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
    made = bundle(old, certificate, now)
    return {**client, "caBundle": base64.b64encode(made).decode()}


def _server_context() -> ssl.SSLContext:
    return ssl.create_default_context(purpose=ssl.Purpose.CLIENT_AUTH)
