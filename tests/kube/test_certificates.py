# SPDX-License-Identifier: Apache-2.0
"""Certificates that vouch for themselves alone, as servers and clients use them."""

import ssl
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster.kube.certificates import PairFiles, expiry, self_signed, ssh_keys, validity

NOW = 1_800_000_000.0
DAY = 86_400.0
HOSTS = ("muster-webhook.muster-system.svc", "127.0.0.1", "::1")


def read(pair):
    """Return the certificate of a pair."""
    return x509.load_pem_x509_certificate(pair.certificate)


def test_a_servers_certificate_names_its_hosts_and_its_end():
    """Names as names, addresses as addresses; good from a little before now."""
    certificate = read(self_signed("muster", NOW, DAY, hosts=HOSTS))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOSTS[0]]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == list(HOSTS[1:])
    assert certificate.not_valid_before_utc.timestamp() < NOW
    assert certificate.not_valid_after_utc.timestamp() == NOW + DAY
    assert expiry(self_signed("muster", NOW, DAY, hosts=HOSTS).certificate) == NOW + DAY
    # A configuration of no webhook names no host.
    certificate = read(self_signed("muster", NOW, DAY, hosts=()))
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_bundle_vouches_for_as_long_as_its_last_certificate():
    """From when that one is good; an empty bundle for nothing."""
    made = [self_signed("muster", NOW + at, DAY, hosts=()).certificate for at in (0.0, DAY, 60.0)]
    assert validity(b"".join(made)) == (NOW + DAY - 3600, NOW + 2 * DAY)
    assert validity(b"") == (0.0, 0.0)
    with pytest.raises(ValueError, match="PEM"):
        validity(b"no certificate")


def test_a_clients_certificate_names_it_and_its_group():
    """By which the API server knows its user; it is no server's."""
    certificate = read(self_signed("kube-apiserver", NOW, DAY, group="system:masters"))
    found = {attribute.oid: attribute.value for attribute in certificate.subject}
    assert found[NameOID.COMMON_NAME] == "kube-apiserver"
    assert found[NameOID.ORGANIZATION_NAME] == "system:masters"
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def written(folder, name, **fields):
    """Return a new pair's files, and the certificate as those hold it who trust it."""
    files = PairFiles(folder / f"{name}.crt", folder / f"{name}.key")
    pair = self_signed(name, time.time(), DAY, **fields)
    files.write(pair)
    assert files.read() == pair
    assert files.key.stat().st_mode & 0o077 == 0
    return files, pair.certificate.decode()


def greeted(server, client, host):
    """Shake hands in memory. Raises ssl.SSLError where one does not trust the other."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        server.wrap_bio(up, down, server_side=True),
        client.wrap_bio(down, up, server_hostname=host),
    )
    left = list(ends)
    for _ in range(10):
        for end in tuple(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not left


def test_each_is_its_own_authority(tmp_path):
    """A server and a client that were given each other's certificate trust it, and no other."""
    served, of_server = written(tmp_path, "server", hosts=HOSTS)
    own, of_client = written(tmp_path, "client", group="system:masters")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=of_client)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(*served)
    client = ssl.create_default_context(cadata=of_server)
    client.load_cert_chain(*own)
    for end in (server, client):
        end.verify_flags &= ~ssl.VERIFY_X509_STRICT
    greeted(server, client, HOSTS[0])
    with pytest.raises(ssl.SSLError, match="Hostname mismatch"):
        greeted(server, client, "elsewhere")
    _, of_another = written(tmp_path, "another", hosts=HOSTS)
    stranger = ssl.create_default_context(cadata=of_another)
    with pytest.raises(ssl.SSLError, match="self-signed certificate"):
        greeted(server, stranger, HOSTS[0])


def test_the_two_halves_of_a_pair_for_ssh_belong_together():
    """A private key in SEC1 on P-521, and the line of authorized_keys that lets it in."""
    private, public = ssh_keys()
    assert private.startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    half = serialization.load_pem_private_key(private, password=None)
    other = serialization.load_ssh_public_key(public)
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    assert half.public_key().public_bytes(*form) == other.public_bytes(*form)
    assert public.startswith(b"ecdsa-sha2-nistp521 ")
    assert public.count(b"\n") == 1
    assert ssh_keys() != (private, public)
