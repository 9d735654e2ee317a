# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig files: those of local clusters, and what is taken over of somebody else's."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import yaml

from muster.api import manifest
from muster.api.edge import mapping, sequence
from muster.api.manifest import ManifestError
from muster.local.handle import CredentialsError

if TYPE_CHECKING:
    from pathlib import Path

    from muster.api.model import Json

_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


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
    context = {"cluster": name, "user": name}
    return _whole(name, context, {"server": server, **trust}, {"token": token})


def _whole(name: str, context: Json, cluster: Json, user: Json) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context["cluster"], "cluster": cluster}],
            "users": [{"name": context.get("user", ""), "user": user}],
            "contexts": [{"name": name, "context": context}],
            "current-context": name,
        },
        sort_keys=False,
    )


def only_current(path: Path) -> str:
    """Give the YAML of a kubeconfig with nothing but the context that `path` has chosen now.

    It stays good wherever it is written to, and whatever becomes of the choice in `path`.
    CredentialsError if there is no such thing in `path`, OSError if it cannot be read.
    """
    try:
        config = manifest.document(path.read_bytes())
    except ManifestError as error:
        raise CredentialsError("it is no YAML") from error
    if not isinstance(config, dict):
        raise CredentialsError("it is no kubeconfig")
    name = config.get("current-context")
    if not name:
        raise CredentialsError("it has no current-context")
    context = _named(config, "context", name)
    cluster = _absolute(_named(config, "cluster", context.get("cluster")), path.parent)
    user = _named(config, "user", context["user"]) if context.get("user") else {}
    if not cluster.get("server"):
        raise CredentialsError(f"its cluster {context['cluster']!r} has no server")
    return _whole(name, context, cluster, _absolute(user, path.parent))


def _named(config: dict[str, Any], kind: str, name: object) -> dict[str, Any]:
    for entry in map(mapping, sequence(config.get(f"{kind}s"))):
        if entry.get("name") == name:
            return dict(mapping(entry.get(kind)))
    raise CredentialsError(f"it has no {kind} {name!r}")


def _absolute(part: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Paths in a kubeconfig are relative to its folder."""
    where = folder.resolve()
    files: dict[str, Any] = {key: str(where / part[key]) for key in _FILES if part.get(key)}
    plugin = part.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
        files["exec"] = {**plugin, "command": str(where / plugin["command"])}
    return {**part, **files}


def write(path: Path, text: str) -> None:
    """Write a kubeconfig, for its owner's eyes only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
