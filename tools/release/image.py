# SPDX-License-Identifier: Apache-2.0
"""The operator's image, built by an engine, and pushed for both machines under one name.

`muster local images muster` makes it of the same Dockerfile without any engine.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Final

from bundle import Image, ReleaseError, run

DOCKERFILE: Final = "manifests/image/Dockerfile"
PLATFORMS: Final = "linux/amd64,linux/arm64"
# The time of every file, so that the same content is the same image.
EPOCH: Final = "315532800"
_BUILDS: Final = {
    "docker": ("docker", "build", f"--build-arg=SOURCE_DATE_EPOCH={EPOCH}"),
    "podman": ("podman", "build", f"--timestamp={EPOCH}"),
    "buildah": ("buildah", "build", f"--timestamp={EPOCH}"),
}


def engine(name: str) -> str:
    """Return the engine that is asked for, or the first that there is."""
    there = [one for one in ([name] if name else _BUILDS) if shutil.which(one)]
    if name not in {"", *_BUILDS}:
        raise ReleaseError(f"ENGINE={name}: there are {', '.join(_BUILDS)}")
    if not there:
        raise ReleaseError(
            f"No {name or ', '.join(_BUILDS)} on PATH. Without an engine `make images "
            "IMAGES=muster` makes the image as a docker-archive."
        )
    return there[0]


def build(image: Image, asked: str) -> None:
    """Build it for this machine."""
    argv = _BUILDS[engine(asked)]
    run([*argv, f"--file={DOCKERFILE}", f"--tag={image.name}", "."])
    print(f"Built {image.name}.")


def push(image: Image, asked: str) -> Image:
    """Build it for all machines and push it; the answer names it by its digest."""
    chosen = engine(asked)
    with tempfile.TemporaryDirectory() as work:
        digest = (_push_docker if chosen == "docker" else _push_list)(chosen, image, Path(work))
    return Image(image.repository, "", digest)


def _push_docker(chosen: str, image: Image, work: Path) -> str:
    told = work / "told.json"
    run([
        chosen, "buildx", "build", f"--platform={PLATFORMS}", f"--file={DOCKERFILE}",
        f"--build-arg=SOURCE_DATE_EPOCH={EPOCH}", "--provenance=false",
        f"--output=type=image,name={image.name},push=true,rewrite-timestamp=true",
        f"--metadata-file={told}", ".",
    ])  # fmt: skip
    digest: str = json.loads(told.read_text())["containerimage.digest"]
    return digest


def _push_list(chosen: str, image: Image, work: Path) -> str:
    """Do it as podman and buildah do: a list of images, one for each machine."""
    told = work / "digest"
    run([
        *_BUILDS[chosen], f"--platform={PLATFORMS}", f"--file={DOCKERFILE}",
        f"--manifest={image.name}", ".",
    ])  # fmt: skip
    argv = [chosen, "manifest", "push", "--all", f"--digestfile={told}"]
    run([*argv, image.name, f"docker://{image.name}"])
    return told.read_text().strip()
