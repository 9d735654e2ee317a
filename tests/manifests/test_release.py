# SPDX-License-Identifier: Apache-2.0
"""What `make deploy` and `make release` make: one file to apply, an archive, a list of parts."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import json
import os
import re
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType

import bundle
import chart
import debian
import gotools
import image
import pytest
import sbom
import yaml
from bundle import Image, ReleaseError, Signer

import muster
from support.e2e.image_engine import DIGEST, ENGINE, pinned, saved

ROOT = Path(__file__).parents[2]
IMAGE = Image("registry.example.com:5000/team/muster", "1", "")


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("muster", Image("muster", "", "")),
        ("registry.example.com:5000/team/muster:1", IMAGE),
        (f"r.example/m@{DIGEST}", Image("r.example/m", "", DIGEST)),
        (f"r.example/m:1@{DIGEST}", Image("r.example/m", "1", DIGEST)),
    ],
)
def test_an_image_is_read(text: str, image: Image) -> None:
    """A port is no tag."""
    assert Image.read(text) == image


@pytest.mark.parametrize("text", ["", "Upper/case:1", "a b", "x:", "x@sha256:12", "x;rm"])
def test_what_names_no_image_is_refused(text: str) -> None:
    """With what to write; nothing is made without one."""
    with pytest.raises(ReleaseError, match=r"IMAGE is not set|is no name of an image"):
        Image.read(text)


def test_packages_of_the_image_have_digests_for_both_machines() -> None:
    """One version of each; a line of another form would be left out of the image."""
    machines: dict[tuple[str, str], set[str]] = {}
    for line in (ROOT / debian.PINS).read_text().splitlines():
        if not line.startswith("#"):
            name, version, machine, sha256, sha1 = line.split(" ")
            assert re.fullmatch(r"[0-9a-f]{64} [0-9a-f]{40}", f"{sha256} {sha1}")
            machines.setdefault((name, version), set()).add(machine)
    assert len(machines) == len({name for name, _ in machines}) > 0
    assert all(there in ({"all"}, {"amd64", "arm64"}) for there in machines.values())


def test_the_manifests_name_an_image_that_says_what_to_do() -> None:
    """Nobody can own it: the event of the pod that cannot be pulled names the page to read."""
    (document,) = yaml.safe_load_all((ROOT / "manifests/base/deployment.yaml").read_text())
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{bundle.PLACEHOLDER}:not-set-see-docs-install.md"
    assert (ROOT / "docs" / "install.md").exists()


def test_the_archive_is_the_chart_with_the_image_named() -> None:
    """Helm needs no value then; the same bytes whenever it is packed."""
    packed = bundle.archive(IMAGE)
    assert bundle.archive(IMAGE) == packed
    found = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as opened:
        for member in opened:
            file = opened.extractfile(member)
            assert file
            found[member.name.removeprefix("muster/")] = file.read()
    values = yaml.safe_load(found.pop("values.yaml"))["image"]
    assert (values["repository"], values["tag"]) == (IMAGE.repository, "1")
    assert all((chart.CHART / name).read_bytes() == data for name, data in found.items())
    files = ("files/crds/kubeflow.org_tfjobs.yaml", "files/base/roles.yaml")
    assert {"Chart.yaml", "values.schema.json", "templates/NOTES.txt", *files} <= set(found)
    assert not any("ustomization" in name for name in found)


def test_the_list_of_parts_is_what_the_operator_runs_with() -> None:
    """As pinned, each with the hashes of its files; nothing of the tests, nothing left out."""
    document = json.loads(sbom.document())
    assert sbom.document() == sbom.document()
    parts = {part["name"]: part for part in document["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {re.split("[>=]", line)[0] for line in project["dependencies"]}
    assert {"kopf", "numpy"} < direct <= set(parts)
    assert not {"pytest", "mypy", "ruff", "hypothesis", "sphinx"} & set(parts)
    text = (ROOT / "constraints.txt").read_text()
    for name, part in parts.items():
        assert f"{name}=={part['version']}" in text
        (files,) = part["externalReferences"]
        assert files["hashes"]
        assert all(f"sha256:{one['content']}" in text for one in files["hashes"])
        assert part["licenses"]
    known = {part["bom-ref"] for part in (document["metadata"]["component"], *parts.values())}
    for one in document["dependencies"]:
        assert {one["ref"], *one["dependsOn"]} <= known
    assert {one["ref"] for one in document["dependencies"]} == known


def test_the_notes_are_those_of_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that has none yet, what is to come."""
    monkeypatch.setattr(bundle, "ROOT", tmp_path)
    for version in ("9.9.9", muster.version()):
        text = f"# Changelog\n\n## Unreleased\n\n- New.\n\n## {version} (today)\n\n- Old.\n"
        (tmp_path / "CHANGELOG.md").write_text(text)
        said = "Old" if version == muster.version() else "New"
        assert bundle.notes() == f"# Muster {muster.version()}\n\n- {said}.\n"


@pytest.mark.e2e
@pytest.mark.full
def test_a_release_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file to apply has the CRDs and an overlay; checksums hold; who signs is asked for it."""
    signer = tmp_path / "bin" / "cosign"
    signer.parent.mkdir()
    signer.write_text('#!/bin/sh\necho "$@" >"$(dirname "$0")/asked"\n')
    signer.chmod(0o755)
    monkeypatch.setenv("PATH", f"{signer.parent}{os.pathsep}{os.environ['PATH']}")
    out = tmp_path / "dist"
    out.mkdir()
    (out / "mine").write_text("somebody else's")
    bundle.release(IMAGE, "volcano", out, signer=Signer.read(""))
    assert (out / "mine").exists()
    name = f"muster-{muster.version()}"
    lines = (out / bundle.CHECKSUMS).read_text().splitlines()
    sums = dict(line.split("  ")[::-1] for line in lines)
    assert set(sums) == {
        "install.yaml", f"{name}.tgz", f"{name}.cdx.json", f"{name}-py3-none-any.whl",
        f"{name}.md",
    }  # fmt: skip
    for file, digest in sums.items():
        assert hashlib.sha256((out / file).read_bytes()).hexdigest() == digest
    assert str(out / bundle.CHECKSUMS) in (signer.parent / "asked").read_text()
    text = (out / "install.yaml").read_text()
    kinds = re.findall(r"^kind: (\w+)$", text, re.MULTILINE)
    assert kinds[0] == "Namespace"
    assert kinds.count("CustomResourceDefinition") == len(list((ROOT / "crds").glob("*.yaml")))
    assert "- --gang-scheduler-name=volcano\n" in text
    assert re.findall(r"^ *image: (\S+)$", text, re.MULTILINE) == [f"{IMAGE.repository}:1"]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put engines on PATH that write down what is asked of them, and helm and cosign."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("docker", "podman", "buildah", "helm", "cosign"):
        (folder / name).write_text(ENGINE % (DIGEST, DIGEST))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    return tmp_path / "asked"


@pytest.mark.parametrize("engine", ["docker", "podman", "buildah"])
def test_one_command_builds_the_image_and_says_what_is_in_it(
    engine: str,
    asked: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From the repository's root, by the one Dockerfile, under the name that was asked for."""
    monkeypatch.setenv("SAVED", str(saved(tmp_path, pinned())))
    how = image.How(engine, base="mirror.example/debian", machine="arm64")
    image.build(IMAGE, how, tmp_path / "parts.json")
    line = asked.read_text().splitlines()[0]
    assert line.startswith(f"{engine} build ")
    assert " --build-arg=BASE=mirror.example/debian --platform=linux/arm64 " in line
    assert line.endswith(f"--file={image.DOCKERFILE} --tag={IMAGE.name} .")
    assert (ROOT / image.DOCKERFILE).exists()
    document = json.loads((tmp_path / "parts.json").read_text())
    found = {part["purl"] for part in document["components"]}
    assert "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64" in found
    assert len(found) == len(pinned())
    said = capsys.readouterr().out
    assert f"1 packages of Debian, {len(pinned())} of Python" in said
    assert "0.0 MB  var/lib" in said


def test_an_engine_is_not_sent_what_tools_leave_behind() -> None:
    """What git does not take either: hundreds of megabytes, and times that change the image."""
    left, kept = (
        {line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")}
        for name in (".gitignore", ".dockerignore")
    )
    assert kept == {".git", *(f"**/{line.removesuffix('/')}" for line in left)}


def test_an_image_with_other_packages_than_the_pinned_ones_is_refused(
    tmp_path: Path,
) -> None:
    """What its list says is what was looked at."""
    for other in ({"numpy": "1"}, {"left-pad": "1"}):
        with pytest.raises(sbom.PartsError, match=next(iter(other))):
            image.describe(saved(tmp_path, pinned() | other), tmp_path / "parts.json")


@pytest.mark.parametrize("engine", ["podman", "buildah"])
def test_what_was_pushed_before_is_not_pushed_again(engine: str, asked: Path) -> None:
    """An engine adds to a list of images that it has, of which nodes take the first that fits."""
    for _ in range(2):
        image.push(IMAGE, image.How(engine))
    lists = re.findall(r"--manifest=(\S+)", asked.read_text())
    assert len(set(lists)) == 2
    assert re.findall(r"manifest rm (\S+)", asked.read_text()) == lists


def test_a_push_that_came_to_nothing_in_silence_is_an_error(asked: Path) -> None:
    """So does buildah 1.28 where a registry has no TLS; a release would name no digest."""
    silent = asked.parent / "bin" / "buildah"
    silent.write_text(ENGINE % (DIGEST, ""))
    with pytest.raises(ReleaseError, match=r"pushed nothing.* buildah --log-level=debug manifest"):
        image.push(IMAGE, image.How("buildah"))


@pytest.mark.parametrize("engine", ["docker", "podman", "buildah"])
def test_what_is_pushed_is_named_by_its_digest(engine: str, asked: Path) -> None:
    """For both machines under one name."""
    assert image.push(IMAGE, image.How(engine)) == Image(IMAGE.repository, "", DIGEST)
    said = asked.read_text()
    assert "--platform=linux/amd64,linux/arm64" in said
    assert "BASE" not in said
    assert IMAGE.name in said


def test_without_an_engine_there_is_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a word that names none is told those that there are."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ReleaseError, match=r"No docker, podman, buildah on PATH. .*ENGINE=none"):
        image.engine("")
    with pytest.raises(ReleaseError, match="there are docker, podman, buildah, none"):
        image.engine("kaniko")


def command() -> ModuleType:
    """Return what `python tools/release` runs."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools/release/__main__.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_release_that_is_published_names_what_was_pushed(
    asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed by its digest with the list of its parts, the chart beside it."""
    released: list[tuple[Image, str, Path, Path]] = []
    monkeypatch.setattr(bundle, "release", lambda *given, signer: released.append(given))
    monkeypatch.setenv("SAVED", str(saved(tmp_path, pinned())))
    out = tmp_path / "dist"
    words = ("--registry=r.example:5000/team", "--name=mine", "--engine=podman", "--sign=--key=k")
    assert command().main(["publish", *words, f"--out={out}"]) == 0
    pushed = Image("r.example:5000/team/mine", "", DIGEST)
    parts = out / f"muster-{muster.version()}-image.cdx.json"
    assert released == [(pushed, "embedded", out, parts)]
    assert json.loads(parts.read_text())["components"]
    _, _, _, sent, _, signed, attested, beside = asked.read_text().splitlines()
    assert sent.startswith("podman manifest push --all ")
    assert sent.endswith(f" docker://r.example:5000/team/mine:{muster.version()}")
    assert signed == f"cosign sign --yes --key=k {pushed.name}"
    predicate = f"--type=cyclonedx --predicate={parts}"
    assert attested == f"cosign attest --yes --key=k {predicate} {pushed.name}"
    assert beside.startswith("helm push ")
    assert beside.endswith(" oci://r.example:5000/team/charts")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["install"], "IMAGE is not set. Nobody publishes an image of Muster"),
        (["release"], "IMAGE is not set. Nobody publishes an image of Muster"),
        (["publish"], "REGISTRY is not set"),
        (["publish", "--registry=r", "--sign=--key=k"], "SIGN=--key=k, and there is no cosign"),
        (["release", "--image=r", "--sign=--key=k"], "SIGN=--key=k, and there is no cosign"),
        (["publish", "--registry=r", "--engine=none"], "ENGINE=none pushes nothing"),
        (["image", "--base=b", "--engine=none"], "BASE is for engines: ENGINE=none makes the"),
        (["install", "--image=x", "--gang=y"], "GANG=y: there are embedded, "),
    ],
)
def test_what_is_not_said_is_asked_for(
    words: list[str],
    error: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is touched, with the word to say."""
    monkeypatch.setattr(gotools, "find", lambda _: "")
    assert command().main(words) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(error)
