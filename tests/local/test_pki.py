# SPDX-License-Identifier: Apache-2.0
"""Certificates that the strictest client accepts."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from muster.local import pki

if TYPE_CHECKING:
    from pathlib import Path


def context(purpose: ssl.Purpose, folder: Path, name: str) -> ssl.SSLContext:
    """Give a side of a connection that shows a certificate and checks the other's strictly."""
    made = ssl.create_default_context(purpose, cafile=str(folder / "ca.crt"))
    made.load_cert_chain(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    return made


def shake_hands(folder: Path, host: str) -> dict:
    """Connect a client to a server, both of that folder; what the server learns of the client."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context(ssl.Purpose.SERVER_AUTH, folder, "client").wrap_bio(
        to_client, to_server, server_hostname=host
    )
    server = context(ssl.Purpose.CLIENT_AUTH, folder, "server").wrap_bio(
        to_server, to_client, server_side=True
    )
    waiting = [client, server]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    return server.getpeercert() or {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the certificates of an authority, a server and a client."""
    authority = pki.Authority("x")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    authority.server().write(tmp_path, "server")
    authority.client("somebody", "group-1", "group-2").write(tmp_path, "client")
    return tmp_path


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "kubernetes.default.svc"])
def test_server_and_client_accept_each_other(folder: Path, host: str) -> None:
    """By every name of the server, under OpenSSL's strict checks."""
    subject = [field for (field,) in shake_hands(folder, host)["subject"]]
    assert subject == [
        ("organizationName", "group-1"),
        ("organizationName", "group-2"),
        ("commonName", "somebody"),
    ]


def test_a_server_of_another_authority_is_not_trusted(folder: Path) -> None:
    """Another cluster that sits on the expected port is found out."""
    pki.Authority("x").server().write(folder, "server")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(folder, "127.0.0.1")


def test_keys_are_for_their_owner_only(folder: Path) -> None:
    """Nobody else on the machine may become administrator."""
    assert (folder / "client.key").stat().st_mode & 0o077 == 0
