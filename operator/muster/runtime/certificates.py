# SPDX-License-Identifier: Apache-2.0
"""Certificates by which the API server knows the webhook: each vouches for itself alone.

There is no authority whose key could be lost, and no Secret: the private key of a replica never
leaves its process and its temporary folder. What others must trust is the certificate itself,
so several replicas and an old and a new certificate stand side by side in one bundle.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME: Final = "muster-webhook"
"""Common name of every certificate that is made here."""
MOST: Final = 16
"""Certificates of ours that a bundle keeps; replicas that ended leave theirs behind."""
_SKEW: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes
    until: float
    """End of its validity, in seconds since the epoch."""


def self_signed(hosts: Sequence[str], now: float, lifetime: float) -> Pair:
    """Return a new certificate for these names and addresses, good for `lifetime` seconds."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    moment = dt.datetime.fromtimestamp(int(now), dt.UTC)
    end = moment + dt.timedelta(seconds=lifetime)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _SKEW)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_name, hosts))), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(
        made.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        end.timestamp(),
    )


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
    return _pem([*others, *kept, added])


def _is_ours(certificate: x509.Certificate) -> bool:
    named = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return [attribute.value for attribute in named] == [NAME]


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates)


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
