# SPDX-License-Identifier: Apache-2.0
"""The webhook's certificates, and the bundle that makes the API server trust them."""

import asyncio
import base64
import ssl
import time
from unittest import mock

from cryptography import x509

from muster.kube import admission
from muster.kube.admission import MOST, NAME, Admission, bundle, hosts, published
from muster.kube.certificates import PairFiles, self_signed

NOW = 1_800_000_000.0
DAY = 86_400.0
HOSTS = ("muster-webhook.muster-system.svc", "127.0.0.1", "::1")


def pair(now=NOW, lifetime=DAY):
    """Return a certificate made at that time."""
    return self_signed(NAME, now, lifetime, hosts=HOSTS)


def in_bundle(text):
    """Return the certificates of a bundle."""
    return x509.load_pem_x509_certificates(text)


def test_a_bundle_keeps_what_still_serves():
    """Other replicas' certificates stay until they run out; what is ours and old goes."""
    old, other = pair(NOW - 2 * DAY), pair(NOW - DAY / 2)
    both = bundle(old.certificate, other.certificate, NOW - DAY / 2)
    assert in_bundle(both) == in_bundle(other.certificate)
    new = pair()
    assert in_bundle(bundle(both, new.certificate, NOW)) == [
        *in_bundle(other.certificate),
        *in_bundle(new.certificate),
    ]


def test_a_bundle_does_not_grow_without_end():
    """An operator that starts again and again pushes its oldest certificates out."""
    text = b""
    for second in range(MOST + 5):
        text = bundle(text, pair(NOW + second).certificate, NOW + second)
    assert len(in_bundle(text)) == MOST
    starts = [c.not_valid_before_utc for c in in_bundle(text)]
    assert starts == sorted(starts)


def test_a_bundle_keeps_the_authorities_of_others():
    """Whoever put them there had a reason."""
    theirs = self_signed("theirs", NOW - 2 * DAY, DAY).certificate
    new = pair().certificate
    assert in_bundle(bundle(theirs, new, NOW)) == [*in_bundle(theirs), *in_bundle(new)]
    assert bundle(b"no certificate", new, NOW) == new


SERVICE = {
    "service": {"name": "muster-webhook", "namespace": "muster-system", "path": "/validate"}
}
URL = {"url": "https://127.0.0.1:9443/validate"}


def configuration(*clients):
    """Return a configuration with these clientConfigs."""
    webhooks_ = [{"name": f"w{i}", "clientConfig": client} for i, client in enumerate(clients)]
    return {"metadata": {"name": "muster"}, "webhooks": webhooks_}


def test_the_hosts_are_those_that_the_configuration_names():
    """No flag can contradict it."""
    found = hosts(configuration(SERVICE, URL, SERVICE))
    assert list(found) == ["muster-webhook.muster-system.svc", "127.0.0.1"]
    assert list(hosts({})) == []


def test_publishing_changes_the_bundles_and_nothing_else():
    """Twice is once."""
    certificate = pair().certificate
    once = published(configuration(SERVICE), certificate, NOW)
    (webhook,) = once["webhooks"]
    assert base64.b64decode(webhook["clientConfig"].pop("caBundle")) == certificate
    assert webhook == configuration(SERVICE)["webhooks"][0]
    full = published(configuration(SERVICE), certificate, NOW)
    assert published(full, certificate, NOW + 1) == full


async def test_given_files_that_do_not_belong_together_are_never_served(
    tmp_path, monkeypatch, caplog
):
    """Half of an exchange is not an exchange: the old pair serves until the new one is whole."""
    monkeypatch.setattr(admission, "FOLLOW_SECONDS", 0.01)
    monkeypatch.setattr(admission, "RETRY_SECONDS", 0.01)

    async def until(ready):
        async with asyncio.timeout(10):
            while True:
                if await ready():
                    return
                await asyncio.sleep(0.01)  # a server has no event for what it serves

    async def reported():
        return "is not served as it should be" in caplog.text

    given = PairFiles(tmp_path / "given.crt", tmp_path / "given.key")
    followed = Admission(mock.sentinel.nobody, "muster", DAY, given)

    def give(certificate, key):
        given.certificate.write_bytes(certificate)
        given.key.write_bytes(key)

    async def shown():
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=followed.context
        )
        async with server:
            address = server.sockets[0].getsockname()
            text = await asyncio.to_thread(ssl.get_server_certificate, address, timeout=5)
        return text.strip().encode()

    old, new = pair(time.time()), pair(time.time())
    following = asyncio.create_task(followed.run())
    await until(reported)  # there are no files yet
    assert not followed.ready.is_set()
    give(old.certificate, old.key)
    await followed.ready.wait()
    assert await shown() == old.certificate.strip()

    caplog.clear()
    give(new.certificate, old.key)
    await until(reported)
    assert await shown() == old.certificate.strip()

    async def renewed():
        return await shown() == new.certificate.strip()

    give(new.certificate, new.key)
    await until(renewed)
    following.cancel()
