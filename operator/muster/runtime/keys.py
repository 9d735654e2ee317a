# SPDX-License-Identifier: Apache-2.0
"""The SSH keys of a job: made here, kept in its Secret and nowhere else, never told."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from muster.frameworks import mpi_ssh


def pair() -> Mapping[str, str]:
    """Return a new key pair as the data of a Secret of type kubernetes.io/ssh-auth.

    ECDSA on P-521; the private key as PEM in SEC1, the public one as a line of authorized_keys.
    """
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    made = {mpi_ssh.PRIVATE_KEY: private, mpi_ssh.PUBLIC_KEY: public + b"\n"}
    return {name: base64.b64encode(value).decode() for name, value in made.items()}
