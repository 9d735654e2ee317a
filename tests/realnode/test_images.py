# SPDX-License-Identifier: Apache-2.0
"""Images are made from Dockerfiles as an engine would make them, once for each state."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from realnode import dockerfile, images
from realnode.dockerfile import Config, Stage, Step

TOOLS = ("sh", "env", "rm", "mkdir", "cat", "id")
PARENT = f"{images.PREFIX}parent:{images.TAG}"


def can_mount() -> bool:
    """Say whether this process may mount in a namespace of its own."""
    argv = ["unshare", "--mount", "--pid", "--fork", "true"]
    return not images.lacking() and subprocess.run(argv, check=False).returncode == 0


def test_a_dockerfile_is_stages_of_instructions() -> None:
    """Comments and empty lines say nothing, a backslash goes on, a base may be an argument's."""
    text = (
        "# why\nARG A=a\nFROM --platform=$BUILDPLATFORM $A AS one\nRUN x \\\n  # not here\n"
        "  && y\n\nFROM b\nCOPY --from=one /p /q\n"
    )
    assert dockerfile.parse(text) == (
        Stage("a", "one", (Step("RUN", "x && y"),)),
        Stage("b", "", (Step("COPY", "--from=one /p /q"),)),
    )


@pytest.mark.parametrize(
    "line",
    ["ADD x y", "CMD run", "FROM a as b", "RUN", "HEALTHCHECK NONE", "EXPOSE 80", "ARG OTHER"],
)
def test_what_is_not_understood_is_named(line: str) -> None:
    """Nothing is left out in silence."""
    with pytest.raises(dockerfile.DockerfileError, match=line):
        dockerfile.parse(f"FROM a\n{line}\n")


def test_the_configuration_grows_by_instructions() -> None:
    """ENV may name what was there before; an ENTRYPOINT takes the parent's CMD away."""
    config = Config(command=("old",))
    for name, text in (
        ("ENV", 'PATH=/opt/bin:$PATH WHY="a b"'),
        ("WORKDIR", "/srv"),
        ("WORKDIR", "in"),
        ("USER", "7:7"),
        ("ENTRYPOINT", '["muster"]'),
    ):
        config = config.after(Step(name, text))
    assert config.env["PATH"].startswith("/opt/bin:/usr/local/sbin:")
    assert config.env["WHY"] == "a b"
    assert (config.folder, config.user) == ("/srv/in", "7:7")
    assert (config.entrypoint, config.command) == (("muster",), ())
    assert Config.read(config.document()) == config


def test_every_definition_is_understood() -> None:
    """Each has a key of its own, and a parent that there is."""
    found = [images.archive(name) for name in images.sources()]
    assert len(set(found)) == len(found)
    assert {"base", "pytorch", "tensorflow", "jax", "xgboost", "paddle"} <= set(images.sources())


def test_the_operator_s_image_is_what_its_deployment_asks_for() -> None:
    """So the overlays run as they are where it was loaded."""
    (asked,) = [tag for tag in images.tags(images.OURS) if not tag.startswith(images.PREFIX)]
    assert (
        f"image: {asked}\n" in (images._context() / "manifests/base/deployment.yaml").read_text()
    )


def test_an_image_that_there_is_not() -> None:
    """The message has those that there are."""
    with pytest.raises(images.ImageError, match=r"no image localhost/muster/bass:1.*base:1"):
        images.archive("bass")


def test_what_is_missing_is_named_before_anything_is_touched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All of it at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(images.ImageError, match="lacks root, mmdebstrap, util-linux"):
        images.make("base")
    assert list(tmp_path.iterdir()) == []


def install(rootfs: Path) -> None:
    """Take this machine's own programs and their libraries."""
    found = [path for path in map(shutil.which, TOOLS) if path]
    shown = subprocess.run(["ldd", *found], capture_output=True, text=True, check=True).stdout
    for path in (*found, *re.findall(r"(/\S+) \(", shown)):
        target = rootfs / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (rootfs / "bin").mkdir(exist_ok=True)
    if not (rootfs / "bin" / "sh").exists():
        (rootfs / "bin" / "sh").symlink_to(found[0])


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with definitions of its own, and their parent."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "clone"
    folder = place / "examples" / "training" / "images"
    folder.mkdir(parents=True)
    (place / "manifests").mkdir()
    monkeypatch.setattr(images, "_context", lambda: place)
    (folder / "parent.Dockerfile").write_text("FROM debian:none-slim\n")
    images.root().mkdir(parents=True)
    rootfs, layer = tmp_path / "rootfs", tmp_path / "layer.tar"
    for name in ("etc/old", "proc", "tmp", "dev", "mnt"):
        (rootfs / name).mkdir(parents=True)
    (rootfs / "tmp").chmod(0o1777)
    if not images.lacking():
        install(rootfs)
    (rootfs / "etc" / "one").write_text("one")
    (rootfs / "etc" / "old" / "file").write_text("old")
    images.write_layer(rootfs, layer)
    images.pack(images.archive("parent"), [layer], Config(), [PARENT])
    return place


@pytest.mark.skipif(not can_mount(), reason="needs root and mmdebstrap")
def test_an_image_is_what_an_engine_would_make(clone: Path) -> None:
    """Two stages, of which the last one is kept; what was deleted is gone; the file is whole."""
    (clone / "data").mkdir()
    (clone / "data" / "a").write_text("a")
    (clone / "alone").write_text("b")
    (clone / "examples" / "training" / "images" / "child.Dockerfile").write_text(f"""
FROM {PARENT} AS build
WORKDIR /src
COPY data alone ./
RUN mkdir /built && cat a alone >/built/ab && id -u >/built/id

FROM {PARENT}
COPY --from=build /built /opt/built
ENV WHAT=else
USER 5:5
RUN echo $WHAT >/tmp/mine
USER 0:0
RUN rm -r /etc/one /etc/old && mkdir /etc/old && echo new >/etc/old/new
USER 5:5
CMD ["sh"]
""")
    (clone / "data" / "a").parent.joinpath("__pycache__").mkdir()
    made = images.make("child")
    with tarfile.open(made) as packed:
        assert packed.extractfile("manifest.json")
        manifest = json.load(packed.extractfile("manifest.json") or io.BytesIO())[0]
        config = json.load(packed.extractfile(manifest["Config"]) or io.BytesIO())
        layer = packed.extractfile(manifest["Layers"][-1])
        assert layer
        with tarfile.open(fileobj=layer) as files:
            found = {m.name: m for m in files.getmembers()}
            text = files.extractfile("opt/built/ab")
            assert text
            assert text.read() == b"ab"
    assert manifest["RepoTags"] == [f"{images.PREFIX}child:{images.TAG}"]
    assert len(manifest["Layers"]) == len(config["rootfs"]["diff_ids"]) == 2
    assert config["config"] == {
        "Env": [f"PATH={Config().env['PATH']}", "WHAT=else"],
        "WorkingDir": "/",
        "User": "5:5",
        "Entrypoint": None,
        "Cmd": ["sh"],
    }
    assert {"etc/.wh.one", "etc/old/new", "etc/old/.wh..wh..opq"} <= set(found)
    assert "src" not in found
    assert (found["tmp/mine"].uid, found["opt/built/ab"].uid) == (5, 0)
    assert sorted(path.suffix for path in images.root().iterdir()) == [".lock", ".tar", ".tar"]


def read(archive: Path, name: str) -> list[str]:
    """Return what a file holds, in each layer of an image that has it."""
    found = []
    with tarfile.open(archive) as packed:
        manifest = json.load(packed.extractfile("manifest.json") or io.BytesIO())[0]
        for entry in manifest["Layers"]:
            with tarfile.open(fileobj=packed.extractfile(entry)) as layer:
                if name in layer.getnames():
                    found.append((layer.extractfile(name) or io.BytesIO()).read().decode())
    return found


def test_a_new_state_is_a_new_image(clone: Path) -> None:
    """Whatever it is made from: its own text, its parent's, a file that is copied."""
    folder = clone / "examples" / "training" / "images"
    (clone / "data").write_text("1")
    (folder / "child.Dockerfile").write_text(f"FROM {PARENT}\nCOPY data /\n")
    seen = {images.archive("child")}
    for path in (clone / "data", folder / "child.Dockerfile", folder / "parent.Dockerfile"):
        path.write_text(path.read_text() + "\n#\nRUN x\n")
        assert images.archive("child") not in seen
        seen.add(images.archive("child"))
    (clone / "data").unlink()
    with pytest.raises(images.ImageError, match="data is missing"):
        images.archive("child")
