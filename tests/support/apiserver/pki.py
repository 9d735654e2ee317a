# SPDX-License-Identifier: Apache-2.0
"""A certificate authority of somebody else's, and a server's identity that it vouches for."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = dt.timedelta(days=3650)
_SKEW = dt.timedelta(days=1)  # a machine whose clock is set back still trusts it


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


Extensions = tuple[tuple[x509.ExtensionType, bool], ...]
"""Extensions of a certificate, each with whether it is critical."""

_AUTHORITY_EXTENSIONS: Extensions = (
    (x509.BasicConstraints(ca=True, path_length=0), True),
    (_key_usage(authority=True), True),
)
_END_EXTENSIONS: Extensions = (
    (x509.BasicConstraints(ca=False, path_length=None), True),
    (_key_usage(authority=False), True),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A fresh authority; its key lives in memory only."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"muster-local-{name}")])
        self._certificate = self._sign(self._name, self._key, _AUTHORITY_EXTENSIONS)

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM."""
        return _pem(self._certificate)

    def server(self) -> Pair:
        """Identity of a server on this machine."""
        hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        addresses = ["127.0.0.1", "::1", "10.96.0.1"]
        alternatives: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        alternatives += [x509.IPAddress(ipaddress.ip_address(ip)) for ip in addresses]
        usage = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        extensions = ((usage, False), (x509.SubjectAlternativeName(alternatives), False))
        return self._issue(name, extensions)

    def _issue(self, subject: x509.Name, extensions: Extensions) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(subject, key, (*_END_EXTENSIONS, *extensions))
        return Pair(_pem(certificate), _key_pem(key))

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extensions: Extensions,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _VALID)
        )
        # Which keys, by their identifiers: OpenSSL's strict checks, the default from
        # Python 3.13 on, refuse a chain without them.
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        for extension, critical in (*extensions, (signer, False), (subject_key, False)):
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
