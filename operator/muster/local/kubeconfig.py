# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig files: with everything inside, so that they can be copied anywhere, or by files."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from muster.local.pki import Pair

_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


class KubeconfigError(Exception):
    """A file names no cluster; the message says why."""


def document(cluster: str, server: str, authority: bytes, user: str, identity: Pair) -> str:
    """YAML of a kubeconfig with one context, named like the cluster."""
    trust = {"server": server, "certificate-authority-data": _text(authority)}
    credentials = {
        "client-certificate-data": _text(identity.certificate),
        "client-key-data": _text(identity.key),
    }
    return _whole(f"muster-{cluster}", trust, user, credentials)


def by_files(cluster: str, server: str, pki: Path, user: str) -> str:
    """YAML of a kubeconfig that names the files of keys and certificates in a folder.

    A client that wants files makes none then, which would be left if it were killed.
    """
    trust = {"server": server, "certificate-authority": str(pki / "ca.crt")}
    credentials = {
        "client-certificate": str(pki / f"{user}.crt"),
        "client-key": str(pki / f"{user}.key"),
    }
    return _whole(f"muster-{cluster}", trust, user, credentials)


def _whole(name: str, cluster: dict[str, str], user: str, credentials: dict[str, str]) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        },
        sort_keys=False,
    )


def only_current(path: Path) -> str:
    """Give the YAML of a kubeconfig with nothing but the context that `path` has chosen now.

    It stays good wherever it is written to, and whatever becomes of the choice in `path`.
    KubeconfigError if there is no such thing in `path`, OSError if it cannot be read.
    """
    try:
        config = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KubeconfigError("it is no YAML") from error
    if not isinstance(config, dict):
        raise KubeconfigError("it is no kubeconfig")
    name = config.get("current-context")
    if not name:
        raise KubeconfigError("it has no current-context")
    context = _named(config, "context", name)
    cluster = _absolute(_named(config, "cluster", context.get("cluster")), path.parent)
    user = _named(config, "user", context["user"]) if context.get("user") else {}
    if not cluster.get("server"):
        raise KubeconfigError(f"its cluster {context['cluster']!r} has no server")
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context["cluster"], "cluster": cluster}],
            "users": [{"name": context.get("user", ""), "user": _absolute(user, path.parent)}],
            "contexts": [{"name": name, "context": context}],
            "current-context": name,
        },
        sort_keys=False,
    )


def _named(config: dict[str, Any], kind: str, name: object) -> dict[str, Any]:
    entries = config.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(kind)
            return found if isinstance(found, dict) else {}
    raise KubeconfigError(f"it has no {kind} {name!r}")


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


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
