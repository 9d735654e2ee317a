# SPDX-License-Identifier: Apache-2.0
"""A container engine that records its arguments, and the image that it saves."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import sbom

import muster

DIGEST = "sha256:" + 64 * "a"
ENGINE = """#!/bin/sh
echo "$(basename "$0") $@" >>"$ASKED"
for word; do
    case $word in
        --metadata-file=*) echo '{"containerimage.digest": "%s"}' >"${word#*=}" ;;
        --digestfile=*) echo %s >"${word#*=}" ;;
        --output=/*) cp "$SAVED" "${word#*=}" ;;
        docker-archive:*) file=${word#*:}; cp "$SAVED" "${file%%%%:*}" ;;
    esac
done
"""


def pinned() -> dict[str, str]:
    """Return the packages that an image has to have, and their versions."""
    pins = sbom.pins() | {"muster": (muster.version(), ())}
    return {name: pins[name][0] for name in sbom.needed()}


def saved(folder: Path, packages: dict[str, str]) -> Path:
    """Make what an engine saves: a package of Debian, and those of Python."""
    texts = {
        f"opt/muster/lib/python3.13/site-packages/{name}-{version}.dist-info/METADATA":
            f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nName: not this\n"
        for name, version in packages.items()
    }  # fmt: skip
    texts["var/lib/dpkg/status.d/libc6"] = (
        "Package: libc6\nArchitecture: amd64\nVersion: 2.41-12+deb13u1\nDescription: of C\n"
    )
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as out:
        for name, text in texts.items():
            add(out, name, text.encode())
    with tarfile.open(folder / "saved.tar", mode="w") as out:
        add(out, "one/layer.tar", layer.getvalue())
        add(out, "manifest.json", json.dumps([{"Layers": ["one/layer.tar"]}]).encode())
    return folder / "saved.tar"


def add(out: tarfile.TarFile, name: str, data: bytes) -> None:
    """Put a file into an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    out.addfile(info, io.BytesIO(data))
