# SPDX-License-Identifier: Apache-2.0
"""What a pass gives the controller core that it can't make itself: an SSH key pair.

It is kept in its job's Secret and nowhere else, and appears in no log and no event.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from muster.api.model import ObjectView
from muster.frameworks import mpi_v2beta1
from muster.frameworks.base import Framework


async def secrets(framework: Framework, there: Sequence[ObjectView]) -> Mapping[str, str]:
    """Return new values for a Secret that is missing or has other keys, else nothing."""
    for part in framework.pods.companions:
        view = next((v for v in there if v.kind == part.kind), None)
        if part.keys and (view is None or set(view.content["data"]) != set(part.keys)):
            return await asyncio.to_thread(key_pair)
    return {}


def key_pair() -> Mapping[str, str]:
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
    made = {mpi_v2beta1.PRIVATE_KEY: private, mpi_v2beta1.PUBLIC_KEY: public + b"\n"}
    return {name: base64.b64encode(value).decode() for name, value in made.items()}
