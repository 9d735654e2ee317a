# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig files with everything inside, so that they can be copied anywhere."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from muster.local.pki import Pair


def document(cluster: str, server: str, authority: bytes, user: str, identity: Pair) -> str:
    """YAML of a kubeconfig with one context, named like the cluster."""
    name = f"muster-{cluster}"
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": server, "certificate-authority-data": _text(authority)},
                },
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": _text(identity.certificate),
                        "client-key-data": _text(identity.key),
                    },
                },
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        },
        sort_keys=False,
    )


def write(path: Path, text: str) -> None:
    """Write a kubeconfig, for its owner's eyes only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
