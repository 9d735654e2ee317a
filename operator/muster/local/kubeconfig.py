# SPDX-License-Identifier: Apache-2.0
"""The kubeconfig files of local clusters."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pathlib import Path


def document(
    cluster: str, server: str, certificate: Path, token: str, *, inside: bool = True
) -> str:
    """YAML of a kubeconfig with one context, named like the cluster.

    `inside`: with the certificate in it, so that it can be copied anywhere. Else it names the
    file, and a client makes none of its own, which would be left if it were killed.
    """
    name = f"muster-{cluster}"
    trust = {"certificate-authority": str(certificate)}
    if inside:
        data = base64.b64encode(certificate.read_bytes()).decode()
        trust = {"certificate-authority-data": data}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": server, **trust}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        sort_keys=False,
    )


def write(path: Path, text: str) -> None:
    """Write a kubeconfig, for its owner's eyes only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
