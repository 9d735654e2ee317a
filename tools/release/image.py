# SPDX-License-Identifier: Apache-2.0
"""The operator's image: built, with an engine or without, looked into, and pushed.

Without an engine `realnode.images` makes it, of the same Dockerfile.
"""

from __future__ import annotations

import io
import json
import re
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sbom
from bundle import Image, ReleaseError, run
from packaging.utils import canonicalize_name

from realnode import images

DOCKERFILE: Final = "manifests/image/Dockerfile"
PLATFORMS: Final = "linux/amd64,linux/arm64"
# The time of every file, so that the same content is the same image.
EPOCH: Final = "315532800"
_BUILDS: Final = {
    "docker": ("docker", "build", f"--build-arg=SOURCE_DATE_EPOCH={EPOCH}"),
    "podman": ("podman", "build", f"--timestamp={EPOCH}"),
    # As podman does: what was built to be looked at is not built once more to be pushed.
    "buildah": ("buildah", "build", "--layers", f"--timestamp={EPOCH}"),
}
# Without it docker knows no platforms, and says so less clearly than it misses it.
_BUILDKIT: Final = {"DOCKER_BUILDKIT": "1"}
NONE: Final = "none"
_SHOWN: Final = 12
_SAVES: Final = {
    "docker": ("docker", "save", "--output={file}", "{name}"),
    "podman": ("podman", "save", "--format=docker-archive", "--output={file}", "{name}"),
    "buildah": ("buildah", "push", "{name}", "docker-archive:{file}:{name}"),
}


@dataclass(frozen=True, slots=True)
class How:
    """By what an image is built, and of what."""

    engine: str = ""
    """As `engine` takes it."""
    base: str = ""
    """What the Dockerfile starts from, where it is not what the Dockerfile names."""
    machine: str = ""
    """For which machine (`arm64`); empty: for this one."""

    def words(self) -> list[str]:
        """Return what an engine is told of it."""
        return [
            *([f"--build-arg=BASE={self.base}"] if self.base else []),
            *([f"--platform=linux/{self.machine}"] if self.machine else []),
            f"--file={DOCKERFILE}",
        ]


def engine(name: str) -> str:
    """Return the engine that is asked for, or the first that there is."""
    if name == NONE:
        raise ReleaseError(f"ENGINE={NONE} pushes nothing: it takes one of {', '.join(_BUILDS)}")
    if name not in {"", *_BUILDS}:
        raise ReleaseError(f"ENGINE={name}: there are {', '.join(_BUILDS)}, {NONE}")
    there = [one for one in ([name] if name else _BUILDS) if shutil.which(one)]
    if not there:
        raise ReleaseError(
            f"No {name or ', '.join(_BUILDS)} on PATH. ENGINE={NONE} makes the image without an "
            "engine, as a docker-archive."
        )
    return there[0]


def build(image: Image, how: How, parts: Path) -> None:
    """Build it, write a list of its parts, and print what is in it."""
    if how.engine == NONE:
        if how.base:
            raise ReleaseError(f"BASE is for engines: ENGINE={NONE} makes the base itself")
        made = images.make(images.OURS, how.machine)
        describe(made, parts)
        print(f"{images.tags(images.OURS)[0]} is {made}")
        return
    chosen = engine(how.engine)
    run([*_BUILDS[chosen], *how.words(), f"--tag={image.name}", "."], shown=True, **_BUILDKIT)
    with tempfile.TemporaryDirectory() as work:
        saved = Path(work) / "image.tar"
        run([word.format(file=saved, name=image.name) for word in _SAVES[chosen]])
        describe(saved, parts)
    print(f"Built {image.name}.")


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in an image: sizes in bytes by place, packages of Debian and of Python."""

    sizes: Mapping[str, int]
    debian: Mapping[str, Mapping[str, str]]
    python: Mapping[str, str]


def contents(archive: Path) -> Contents:
    """Read a docker-archive."""
    sizes: dict[str, int] = {}
    debian: dict[str, Mapping[str, str]] = {}
    python: dict[str, str] = {}
    with tarfile.open(archive) as packed:
        for layer in _layers(packed):
            for member in layer:
                place = _place(member.name)
                sizes[place] = sizes.get(place, 0) + member.size
                if match := _STATUS.search(member.name):
                    debian[match[1]] = _fields(layer, member)
                elif _METADATA.search(member.name):
                    found = _fields(layer, member)
                    python[canonicalize_name(found["Name"])] = found["Version"]
    return Contents(sizes, debian, python)


_STATUS: Final = re.compile(r"var/lib/dpkg/status\.d/([^/]+)$")
_METADATA: Final = re.compile(r"site-packages/[^/]+\.dist-info/METADATA$")


def _layers(packed: tarfile.TarFile) -> Iterator[tarfile.TarFile]:
    manifest = json.load(packed.extractfile("manifest.json") or io.BytesIO())
    for entry in manifest[0]["Layers"]:
        with tarfile.open(fileobj=packed.extractfile(entry)) as layer:
            yield layer


def _fields(layer: tarfile.TarFile, member: tarfile.TarInfo) -> Mapping[str, str]:
    """Read `Name: value` lines, which is how packages of both kinds say what they are."""
    text = (layer.extractfile(member) or io.BytesIO()).read().decode()
    return dict(re.findall(r"^([\w-]+): (.*)$", text.partition("\n\n")[0], re.MULTILINE))


def _place(name: str) -> str:
    """Return the package of Python that a file is of, else where it lies."""
    inside = name.partition("site-packages/")[2]
    return inside.partition("/")[0].partition(".")[0] if inside else "/".join(name.split("/")[:2])


def describe(archive: Path, parts: Path) -> None:
    """Print what is in an image and how large it is; its list of parts goes to a file."""
    found = contents(archive)
    parts.parent.mkdir(parents=True, exist_ok=True)
    parts.write_text(sbom.document(found.debian, found.python))
    largest = sorted(found.sizes.items(), key=lambda item: -item[1])
    for place, size in largest[:_SHOWN]:
        print(f"{size / 1e6:7.1f} MB  {place}")
    rest = sum(size for _, size in largest[_SHOWN:])
    print(f"{rest / 1e6:7.1f} MB  in {len(largest[_SHOWN:])} other places")
    whole = sum(found.sizes.values())
    print(f"{whole / 1e6:7.1f} MB  {len(found.debian)} packages of Debian, {len(found.python)} of "
          f"Python: {parts}")  # fmt: skip


def push(image: Image, how: How) -> Image:
    """Build it for all machines and push it; the answer names it by its digest."""
    chosen = engine(how.engine)
    with tempfile.TemporaryDirectory() as work:
        told = Path(work)
        digest = (
            _push_docker(image, how, told)
            if chosen == "docker"
            else _push_list(chosen, image, how, told)
        )
    return Image(image.repository, "", digest)


def _push_docker(image: Image, how: How, work: Path) -> str:
    told = work / "told.json"
    run([
        "docker", "buildx", "build", f"--platform={PLATFORMS}", *how.words(),
        f"--build-arg=SOURCE_DATE_EPOCH={EPOCH}", "--provenance=false",
        f"--output=type=image,name={image.name},push=true,rewrite-timestamp=true",
        f"--metadata-file={told}", ".",
    ], shown=True)  # fmt: skip
    digest: str = json.loads(told.read_text())["containerimage.digest"]
    return digest


def _push_list(chosen: str, image: Image, how: How, work: Path) -> str:
    """Do it as podman and buildah do: a list of images, one for each machine."""
    told = work / "digest"
    # Of its own: a list that is there already would keep what it has, and nodes take the first.
    made = f"localhost/muster-{secrets.token_hex(8)}"
    run([
        *_BUILDS[chosen], f"--platform={PLATFORMS}", *how.words(), f"--manifest={made}", ".",
    ], shown=True)  # fmt: skip
    send = ["manifest", "push", "--all", made, f"docker://{image.name}"]
    run([chosen, *send[:3], f"--digestfile={told}", *send[3:]])
    if not (digest := told.read_text().strip()):
        asked = " ".join([chosen, "--log-level=debug", *send])
        raise ReleaseError(f"{chosen} pushed nothing, and did not say why. This does: {asked}")
    run([chosen, "manifest", "rm", made])
    return digest
