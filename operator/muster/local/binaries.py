# SPDX-License-Identifier: Apache-2.0
"""Find the programs of a control plane, or get them.

The order: the folder KUBEBUILDER_ASSETS, PATH, this user's cache, the official archives, and
a build with Go. API server, controller manager and scheduler always come from one place, so
that they are of one version.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from muster.local import build, components, download, options, processes

if TYPE_CHECKING:
    from collections.abc import Sequence

ASSETS = "KUBEBUILDER_ASSETS"

_CORE = (components.API_SERVER, components.CONTROLLER_MANAGER, components.SCHEDULER)

Found = dict[str, Path]


class BinariesError(Exception):
    """The programs cannot be had; the message says what to install."""


def find(
    version: str | None = None, programs: Sequence[str] = components.PROGRAMS
) -> dict[str, list[str]]:
    """Command line of each of `programs`, gotten first if need be; version None is any."""
    found: Found = (_assets(version) or _places(version)) if programs else {}
    for more in (_cached, _obtained):
        if missing(found, programs):
            found = more(found, version, programs)
    return {name: [str(found[name])] for name in programs}


def missing(found: Found, programs: Sequence[str] = components.PROGRAMS) -> list[str]:
    """Programs still to be had."""
    return [name for name in programs if name not in found]


def merge(found: Found, folder: Path) -> Found:
    """`found`, and of the rest what is in `folder`; the core only as a whole."""
    there = {name: folder / name for name in missing(found) if _is_program(folder / name)}
    if not all(name in there for name in _CORE):
        there = {name: path for name, path in there.items() if name not in _CORE}
    return {**there, **found}


def _assets(version: str | None) -> Found:
    """Take the folder of KUBEBUILDER_ASSETS; what an envtest archive lacks is downloaded."""
    if not os.environ.get(ASSETS):
        return {}
    folder = Path(os.environ[ASSETS])
    if not _is_program(folder / _CORE[0]):
        print(f"{ASSETS} is not used: no {_CORE[0]} in {folder}", file=sys.stderr)
        return {}
    if version not in {None, _version_of(folder)}:
        return {}
    rest = [name for name in _CORE if not _is_program(folder / name)]
    there = {name: folder / name for name in components.PROGRAMS if _is_program(folder / name)}
    if not rest:
        return there
    try:
        more = download.fetch(rest, _version_of(folder), exact=True)
    except download.DownloadError as error:
        print(f"{ASSETS} is not used: no {', '.join(rest)} in it ({error})", file=sys.stderr)
        return {}
    return {**there, **{name: more / name for name in rest}}


def _places(version: str | None) -> Found:
    found: Found = {}
    for folder in map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep))):
        if version and _is_program(folder / _CORE[0]) and _version_of(folder) != version:
            continue
        found = merge(found, folder)
    # A kubectl alone, as most machines have one, may be of whatever age.
    return found if _CORE[0] in found else {}


def _version_of(folder: Path) -> str:
    try:
        text = processes.run([str(folder / _CORE[0]), "--version"], seconds=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"v(\d+\.\d+\.\d+\S*)", text)
    return match[1] if match else ""


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _cached(found: Found, version: str | None, _programs: Sequence[str]) -> Found:
    if version in {None, options.KUBERNETES_VERSION}:
        with contextlib.suppress(build.BuildError):  # no sources: then none were built
            found = merge(found, build.folder())
    if version:
        return merge(found, download.folder(version))
    return merge(found, download.newest(options.KUBERNETES_VERSION.rpartition(".")[0]))


def _obtained(found: Found, version: str | None, programs: Sequence[str]) -> Found:
    wanted = version or _version_found(found) or options.KUBERNETES_VERSION
    try:
        exact = version is not None
        return merge(found, download.fetch(missing(found, programs), wanted, exact=exact))
    except download.DownloadError as error:
        no_download = str(error)
    if version not in {None, options.KUBERNETES_VERSION}:
        raise BinariesError(
            f"Kubernetes {version} cannot be downloaded ({no_download}), and only "
            f"{options.KUBERNETES_VERSION} can be built"
        )
    print(f"no download ({no_download}); building instead", file=sys.stderr)
    try:
        return merge(found, build.build())
    except build.BuildError as error:
        raise BinariesError(
            f"no {', '.join(missing(found, programs))}.\ndownload: {no_download}\nbuild: {error}\n"
            f"Or name a folder that has all of {', '.join(components.PROGRAMS)} by {ASSETS}."
        ) from error


def _version_found(found: Found) -> str:
    return _version_of(found[_CORE[0]].parent) if _CORE[0] in found else ""
