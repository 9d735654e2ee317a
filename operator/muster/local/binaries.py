# SPDX-License-Identifier: Apache-2.0
"""Find the programs of a control plane, or get them.

The order: the folder KUBEBUILDER_ASSETS, PATH, this user's cache, the official archives, and
a build with Go. API server, controller manager and scheduler always come from one place, so
that they are of one version.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from muster.local import build, components, download, options, processes

ASSETS = "KUBEBUILDER_ASSETS"

_CORE = (components.API_SERVER, components.CONTROLLER_MANAGER, components.SCHEDULER)

Found = dict[str, Path]


class BinariesError(Exception):
    """The programs cannot be had; the message says what to install."""


def find(version: str | None = None) -> dict[str, list[str]]:
    """Command line of each program, gotten first if need be; the version is any if None."""
    found = _places(version)
    for more in (_cached, _downloaded, _built):
        if missing(found):
            found = more(found, version)
    return {name: [str(found[name])] for name in components.PROGRAMS}


def missing(found: Found) -> list[str]:
    """Programs still to be had."""
    return [name for name in components.PROGRAMS if name not in found]


def merge(found: Found, folder: Path) -> Found:
    """`found`, and of the rest what is in `folder`; the core only as a whole."""
    there = {name: folder / name for name in missing(found) if _is_program(folder / name)}
    if not all(name in there for name in _CORE):
        there = {name: path for name, path in there.items() if name not in _CORE}
    return {**there, **found}


def _places(version: str | None) -> Found:
    found: Found = {}
    for folder in _folders():
        if version and _is_program(folder / _CORE[0]) and _version_of(folder) != version:
            continue
        found = merge(found, folder)
    # A kubectl alone, as most machines have one, may be of whatever age.
    return found if _CORE[0] in found else {}


def _folders() -> list[Path]:
    folders = [os.environ.get(ASSETS, ""), *os.environ.get("PATH", "").split(os.pathsep)]
    return [Path(folder) for folder in folders if folder]


def _version_of(folder: Path) -> str:
    try:
        text = processes.run([str(folder / _CORE[0]), "--version"], seconds=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"v(\d+\.\d+\.\d+\S*)", text)
    return match[1] if match else ""


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _cached(found: Found, version: str | None) -> Found:
    wanted = version or options.KUBERNETES_VERSION
    if wanted == options.KUBERNETES_VERSION:
        found = merge(found, build.folder())
    return merge(found, download.folder(wanted))


def _downloaded(found: Found, version: str | None) -> Found:
    return found


def _built(found: Found, version: str | None) -> Found:
    return merge(found, build.build())
