# SPDX-License-Identifier: Apache-2.0
"""Self-signed certificates, trusted one by one without an authority, and keys for SSH."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of those who are to trust it may be behind this one.
_SKEW: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


class PairFiles(NamedTuple):
    """Where a certificate and its key are."""

    certificate: Path
    key: Path

    def read(self) -> Pair:
        """Return what they hold. Raises OSError."""
        return Pair(self.certificate.read_bytes(), self.key.read_bytes())

    def write(self, pair: Pair) -> None:
        """Write both; nobody else may read the key."""
        self.certificate.write_bytes(pair.certificate)
        # Before anything is in it: else others could read the key for a moment.
        self.key.touch(mode=0o600)
        self.key.write_bytes(pair.key)


def load(context: ssl.SSLContext, pair: Pair) -> None:
    """Let servers with the context show that certificate. Raises OSError, also for no pair."""
    # Python's ssl takes certificates from files alone; they are gone when it has read them.
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        files = PairFiles(Path(folder, "tls.crt"), Path(folder, "tls.key"))
        files.write(pair)
        context.load_cert_chain(*files)


def self_signed(
    name: str,
    now: float,
    lifetime: float,
    *,
    hosts: Sequence[str] | None = None,
    group: str = "",
) -> Pair:
    """Return a new certificate of that common name, good for `lifetime` seconds.

    A server's with `hosts` (names and addresses), else that of a client in `group`.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    named = [(NameOID.ORGANIZATION_NAME, group), (NameOID.COMMON_NAME, name)]
    subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in named if text])
    usages = ExtendedKeyUsageOID
    usage = usages.CLIENT_AUTH if hosts is None else usages.SERVER_AUTH
    moment = dt.datetime.fromtimestamp(int(now), dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _SKEW)
        .not_valid_after(moment + dt.timedelta(seconds=lifetime))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    )
    if hosts is not None:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return Pair(
        builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def expiry(certificate: bytes) -> float:
    """Return when a certificate, the first of some in PEM, is good no longer, since the epoch.

    Raises ValueError for what is none.
    """
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()


def ssh_keys() -> tuple[bytes, bytes]:
    """Return new ECDSA P-521 keys: private as PEM in SEC1, public as a line of authorized_keys."""
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private, public + b"\n"


def validity(bundle: bytes) -> tuple[float, float]:
    """Return the validity of the last to expire, zeros if empty. Raises ValueError if no PEM."""
    found = x509.load_pem_x509_certificates(bundle) if bundle else []
    last = max(found, key=lambda each: each.not_valid_after_utc, default=None)
    if last is None:
        return 0.0, 0.0
    return last.not_valid_before_utc.timestamp(), last.not_valid_after_utc.timestamp()


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
