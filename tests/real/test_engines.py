# SPDX-License-Identifier: Apache-2.0
"""docker, podman and buildah make of the Dockerfile the image that is made without any of them."""

from __future__ import annotations

import hashlib
import io
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import image
import pytest
from bundle import Image

import muster
from realnode import images
from realnode.dockerfile import Config

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

BASE = "localhost/muster/engines-base:1"
BUILT = Image("localhost/muster/engines-built", "1", "")
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
LOADS = {
    "docker": ("docker", "load", "--input={file}"),
    "podman": ("podman", "load", "--input={file}"),
    "buildah": ("buildah", "pull", "docker-archive:{file}"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Debian of one's own, which trusts whom this machine trusts, as a mirror's would."""
    if lacks := images.lacking():
        pytest.skip(f"no images can be made here, for want of {', '.join(lacks)}")
    folder = tmp_path_factory.mktemp("base")
    below = images._unpack(images._make("debian:trixie-slim"), folder / "debian")
    layer = folder / "authorities.tar"
    with tarfile.open(layer, "w") as out:
        out.add(AUTHORITIES, "etc/mirror.crt", filter=images._timeless)
    config = Config(env={**Config().env, "PIP_CERT": "/etc/mirror.crt"}, command=("/bin/sh",))
    made = folder / "base.tar"
    images.pack(made, [*below.layers, layer], config, [BASE])
    shutil.rmtree(folder / "debian")
    return made


@pytest.fixture(params=sorted(LOADS))
def engine(
    request: pytest.FixtureRequest, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Give an engine that has the base, and skips with its own words where it can run nothing."""
    name: str = request.param
    if not shutil.which(name):
        pytest.skip(f"no {name}")
    storage = tmp_path / "storage.conf"
    storage.write_text(
        f"""[storage]
driver = "overlay"
graphroot = "{tmp_path}/kept"
runroot = "{tmp_path}/run"
"""
    )
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
    tried = tmp_path / "Dockerfile"
    tried.write_text(f"FROM {BASE}\nRUN true\n")
    for argv in (
        [word.format(file=base) for word in LOADS[name]],
        [
            name,
            "build",
            f"--file={tried}",
            "--tag=localhost/muster/engines-tried:1",
            str(tmp_path),
        ],
    ):
        said = subprocess.run(argv, capture_output=True, text=True, check=False)
        if said.returncode:
            pytest.skip(f"{name} works not here: {' '.join(said.stderr.split())[-300:]}")
    yield name
    if name == "docker":
        subprocess.run([name, "rmi", "--force", BASE, BUILT.name], check=False)
    else:
        subprocess.run([name, "rmi", "--all", "--force"], check=False)


def test_an_engine_makes_the_same_image(engine: str, tmp_path: Path) -> None:
    """File for file, with their modes and owners; it runs where nothing can be written."""
    image.build(BUILT, image.How(engine, BASE), tmp_path / "parts.json")
    saved = tmp_path / "saved.tar"
    subprocess.run(
        [w.format(file=saved, name=BUILT.name) for w in image._SAVES[engine]], check=True
    )
    theirs, ours = files(saved), files(images.make(images.OURS))
    assert theirs.keys() == ours.keys()
    assert {name for name, what in theirs.items() if what != ours[name]} == set()
    if engine != "buildah":  # it runs no images
        argv = [engine, "run", "--rm", "--read-only", "--network=none", BUILT.name, "version"]
        said = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert said.stdout == f"muster {muster.version()}\n", said.stderr


def files(archive: Path) -> dict[str, tuple[int, int, int, bytes, str]]:
    """Return what is in an image, by name."""
    found = {}
    with tarfile.open(archive) as packed:
        for layer in image._layers(packed):
            for member in layer:
                file = layer.extractfile(member) if member.isreg() else None
                digest = hashlib.sha256((file or io.BytesIO()).read()).hexdigest()
                kept = (stat.S_IMODE(member.mode), member.uid, member.gid, member.type)
                found[member.name.strip("./")] = (*kept, member.linkname + digest)
    return found
