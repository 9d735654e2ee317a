# SPDX-License-Identifier: Apache-2.0
"""The SSH keys of a job, as sshd and ssh read them."""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives import serialization

from muster.runtime import materials


def test_the_two_halves_belong_together():
    """A private key in SEC1 on P-521, and the line of authorized_keys that lets it in."""
    data = {name: base64.b64decode(value) for name, value in materials.key_pair().items()}
    assert set(data) == {"ssh-privatekey", "ssh-publickey"}
    assert data["ssh-privatekey"].startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    private = serialization.load_pem_private_key(data["ssh-privatekey"], password=None)
    public = serialization.load_ssh_public_key(data["ssh-publickey"])
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    assert private.public_key().public_bytes(*form) == public.public_bytes(*form)
    assert data["ssh-publickey"].startswith(b"ecdsa-sha2-nistp521 ")
    assert data["ssh-publickey"].count(b"\n") == 1


def test_no_two_jobs_share_a_key():
    """Each call makes another."""
    assert materials.key_pair()["ssh-privatekey"] != materials.key_pair()["ssh-privatekey"]
