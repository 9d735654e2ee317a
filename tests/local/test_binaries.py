# SPDX-License-Identifier: Apache-2.0
"""The programs are found, or gotten: built once for each state of their sources."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.local import binaries, downloads, handle

Fill = Callable[..., Path]

CORE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
ALL = handle.PROGRAMS
ENVTEST = ("etcd", "kube-apiserver", "kubectl")


def refuse_download(*_: object, **__: object) -> Path:
    """Stand for a machine without a network."""
    raise downloads.DownloadError("no network")


@pytest.fixture
def fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fill:
    """Make folders of programs; nothing can be downloaded or built unless a test allows it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.delenv(binaries.ASSETS, raising=False)

    def no_build(_: str) -> Path:
        raise binaries.BuildError("Go is missing")

    monkeypatch.setattr(downloads, "fetch", refuse_download)
    monkeypatch.setattr(binaries, "build", no_build)

    def make(name: str, *programs: str, version: str = "1.37.1") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        for program in programs or handle.PROGRAMS:
            (folder / program).write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
            (folder / program).chmod(0o755)
        return folder

    return make


@pytest.mark.parametrize(
    ("assets", "there", "found", "said"),
    [
        ("assets", {"assets": ALL, "one": ALL}, dict.fromkeys(ALL, "assets"), ""),
        ("misspelt", {"one": ALL}, {"etcd": "one"}, "no kube-apiserver in "),
        ("", {"one": ALL}, {"etcd": "one"}, ""),
        # Most machines have a kubectl, of whatever age.
        ("", {"one": ("kubectl",)}, {"kubectl": "built"}, ""),
        # An API server here and a scheduler there would be of two versions.
        (
            "",
            {"one": ("kube-apiserver", "etcd"), "two": CORE},
            {**dict.fromkeys(CORE, "two"), "etcd": "one", "kwok": "built"},
            "",
        ),
        (
            "assets",
            {"assets": ENVTEST},
            {"etcd": "built"},
            "KUBEBUILDER_ASSETS is not used: no kube-controller-manager",
        ),
    ],
)
def test_programs_are_found_in_assets_then_on_path_then_in_cache(
    fill: Fill,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    assets: str,
    there: dict[str, tuple[str, ...]],
    found: dict[str, str],
    said: str,
) -> None:
    """The core comes from one place, and an assets folder that is not used is reported."""
    folders = {name: fill(name, *programs) for name, programs in there.items()}
    folders["built"] = fill(f"cache/muster/controlplane/v1.37.1/{binaries.build_folder().name}")
    if assets:
        monkeypatch.setenv(binaries.ASSETS, str(tmp_path / assets))
    monkeypatch.setenv("PATH", ":".join(str(folders[name]) for name in there if name != "assets"))
    where = binaries.find()
    assert {name: where[name] for name in found} == {
        name: [str(folders[folder] / name)] for name, folder in found.items()
    }
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["built", "downloaded"])
def test_the_cache_comes_before_getting_anything(fill: Fill, kind: str) -> None:
    """Getting anything would fail here."""
    where = {"built": binaries.build_folder(), "downloaded": downloads.folder("1.37.1")}[kind]
    fill(f"cache/muster/controlplane/v1.37.1/{where.name}")
    assert binaries.find()["kwok"] == [str(where / "kwok")]


def test_another_version_on_path_is_passed_over(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a version is asked for."""
    monkeypatch.setenv("PATH", str(fill("path", version="1.30.0")))
    where = fill("cache/muster/controlplane/v1.35.1/" + downloads.folder("1.35.1").name)
    assert binaries.find("1.35.1")["etcd"] == [str(where / "etcd")]
    assert binaries.find("1.30.0")["etcd"] != [str(where / "etcd")]


def test_what_an_envtest_folder_lacks_is_downloaded_for_its_version(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its API server gets a controller manager and a scheduler of its own version."""
    assets = fill("assets", *ENVTEST, "kwok", version="1.33.1")
    monkeypatch.setenv(binaries.ASSETS, str(assets))
    asked = []

    def fetch(names: list[str], version: str, *, exact: bool) -> Path:
        asked.append((sorted(names), version, exact))
        return fill("fetched", *names)

    monkeypatch.setattr(downloads, "fetch", fetch)
    found = binaries.find()
    assert asked == [(["kube-controller-manager", "kube-scheduler"], "1.33.1", True)]
    assert found["kube-apiserver"] == [str(assets / "kube-apiserver")]
    assert found["kube-scheduler"][0].endswith("fetched/kube-scheduler")


def test_what_cannot_be_downloaded_is_built(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is said why."""
    monkeypatch.setattr(binaries, "build", lambda _: fill("built"))
    assert binaries.find()["etcd"][0].endswith("built/etcd")


@pytest.mark.usefixtures("fill")
def test_what_can_be_had_in_no_way_is_said_with_both_reasons() -> None:
    """And the third way: a folder of one's own."""
    with pytest.raises(binaries.BinariesError) as caught:
        binaries.find()
    for words in ("no network", "Go is missing", binaries.ASSETS):
        assert words in str(caught.value)


@pytest.mark.usefixtures("fill")
def test_only_two_versions_can_be_built() -> None:
    """Another one has to be downloaded."""
    with pytest.raises(binaries.BinariesError, match=r"only 1\.37\.1 and 1\.36\.3 can be built"):
        binaries.find("1.34.0")


def test_the_older_version_is_built_where_it_is_asked_for(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never taken where none is asked for."""
    monkeypatch.setattr(binaries, "build", fill)
    assert binaries.find("1.36.3")["etcd"][0].endswith("1.36.3/etcd")
    assert binaries.find()["etcd"][0].endswith("1.37.1/etcd")


def test_only_what_is_needed_is_gotten(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that was there before needs kwok, or nothing at all."""
    asked: list[object] = []

    def fetch(names: list[str], *_: object, **__: object) -> Path:
        asked.append(names)
        return fill("downloaded", "kwok")

    monkeypatch.setattr(downloads, "fetch", fetch)
    assert list(binaries.find(None, (handle.KWOK,))) == ["kwok"]
    assert binaries.find(None, ()) == {}
    assert asked == [["kwok"]]


# Stands for Go: counts its calls, takes a moment, and writes a program for each package.
GO = """#!/bin/sh
echo "$@" >>"$CALLS"
while [ "$1" != -o ]; do shift; done
echo "k8s.io/api" >&2
sleep 0.3
[ -z "$WORDS" ] || { echo "$WORDS" >&2; exit 1; }
out=$2; shift 2
for package; do
    made="$out/$(basename "$(realpath "$package")")"
    printf '#!/bin/sh\\n' >"$made"; chmod +x "$made"
done
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in for Go on PATH; give the file that lists its calls."""
    program = tmp_path / "bin" / "go"
    program.parent.mkdir()
    program.write_text(GO)
    program.chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.delenv("WORDS", raising=False)
    return calls


def test_a_build_gives_a_program_for_each_component(go: Path) -> None:
    """In the folder that was told before it was there."""
    before = binaries.build_folder()
    assert not before.exists()
    assert binaries.build() == before
    assert all(os.access(before / name, os.X_OK) for name in handle.PROGRAMS)
    assert "v1.37.1" in go.read_text()


def test_the_older_version_is_built_from_requirements_of_its_own(go: Path) -> None:
    """Of the same sources; it stands beside the other."""
    folders = [binaries.build(version) for version in ("1.37.1", "1.36.3")]
    newer, older = go.read_text().splitlines()
    assert "-modfile=go.mod" in newer
    assert "-modfile=kubernetes-1.36.mod" in older
    assert "gitVersion=v1.36.3" in older
    assert "gitMinor=36" in older
    assert [folder.parent.name for folder in folders] == ["v1.37.1", "v1.36.3"]
    required = (binaries._module(binaries.CONTROL_PLANE) / "kubernetes-1.36.mod").read_text()
    assert "k8s.io/kubernetes v1.36.3\n" in required


def test_two_at_once_build_once(go: Path) -> None:
    """The second waits for the first and takes what it made."""
    code = "from muster.local import binaries; print(binaries.build())"
    with (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as first,
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as second,
    ):
        said = [
            str(one.communicate(timeout=60)[0].splitlines()[-1], "utf-8")
            for one in (first, second)
        ]
    assert said == [str(binaries.build_folder())] * 2
    assert len(go.read_text().splitlines()) == 1


def test_what_a_killed_build_left_is_removed_by_the_next(go: Path) -> None:
    """And never taken for a build."""
    target = binaries.build_folder()
    left = target.parent / f".{target.name}-left"
    (left / "programs").mkdir(parents=True)
    binaries.build()
    assert [path.name for path in target.parent.iterdir() if path.is_dir()] == [target.name]


def test_a_failed_build_leaves_nothing_and_says_why(
    go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason, the cure, and Go's own words."""
    words = "go: k8s.io/api@v0.36.3: Get x: dial tcp: lookup proxy: no such host"
    monkeypatch.setenv("WORDS", words)
    with pytest.raises(binaries.BuildError) as caught:
        binaries.build()
    assert "GOPROXY" in str(caught.value)
    assert words in str(caught.value)
    assert not binaries.build_folder().exists()


def test_cache_without_its_programs_is_reported(go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of which a part was deleted, or on a file system without execution."""
    (binaries.build() / "controlplane").unlink()
    monkeypatch.setattr(downloads, "fetch", refuse_download)
    with pytest.raises(binaries.BinariesError, match=r"etcd.* cannot be run .* XDG_CACHE_HOME"):
        binaries.find()


def test_without_go_it_is_said_which_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is that of go.mod."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(binaries.BuildError, match=r"Go is missing: install Go 1\.\d+ or newer"):
        binaries.build()


@pytest.mark.parametrize(
    ("output", "cure"),
    [
        ("go: go.mod requires go >= 1.26.0 (running go 1.19.8)", "this Go is too old"),
        ("compile: writing output: no space left on device", "the disk is full"),
        ("k8s.io/x: link: signal: killed", "memory ran out"),
        ("Get https://proxy.example.com: i/o timeout", "no module proxy"),
        ("verifying k8s.io/api: checksum mismatch", "other files than go.sum lists"),
        ("main.go:1: syntax error", "the build failed"),
    ],
)
def test_the_words_of_a_failed_build_are_explained(output: str, cure: str) -> None:
    """With the words themselves below."""
    told = binaries.explain(output)
    assert cure in told
    assert output in told


def test_other_sources_are_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed file is never served by an old build."""
    sources = tmp_path / "controlplane"
    sources.mkdir()
    for name in ("main.go", "oracle.go", "go.mod", "go.sum"):
        (sources / name).write_text("go 1.26")
    monkeypatch.setattr(binaries, "_module", lambda _: sources)
    before = binaries.build_folder()
    (sources / "go.sum").write_text("changed")
    assert binaries.build_folder() != before


@pytest.mark.parametrize(
    ("packages", "seconds", "text"),
    [
        (0, 5.0, ""),
        (90, 30.0, "90 packages"),
        (1680, 60.0, "1680 packages of about 3000, about 2 min left"),
        (2820, 300.0, "2820 packages of about 3000, about 1 min left"),
        (3006, 500.0, "3006 packages"),
    ],
)
def test_progress_of_build_shows_the_time_left(packages: int, seconds: float, text: str) -> None:
    """The estimate counts that the last packages take longest."""
    assert binaries._detail(packages, seconds) == text
