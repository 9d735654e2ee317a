# SPDX-License-Identifier: Apache-2.0
"""Programs are looked for in order, and those of one version stay together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from muster.local import binaries, build, components, download

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Fill = Callable[..., Path]

CORE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
ENVTEST = ("etcd", "kube-apiserver", "kubectl")


@pytest.fixture
def fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fill:
    """Make folders of programs; nothing can be downloaded or built unless a test allows it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.delenv(binaries.ASSETS, raising=False)

    def no_download(*_: object, **__: object) -> Path:
        raise download.DownloadError("no network")

    def no_build() -> Path:
        raise build.BuildError("Go is missing")

    monkeypatch.setattr(download, "fetch", no_download)
    monkeypatch.setattr(build, "build", no_build)

    def make(name: str, *programs: str, version: str = "1.36.3") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        for program in programs or components.PROGRAMS:
            (folder / program).write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
            (folder / program).chmod(0o755)
        return folder

    return make


def test_the_assets_folder_comes_first(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before PATH."""
    assets, path = fill("assets"), fill("path")
    monkeypatch.setenv(binaries.ASSETS, str(assets))
    monkeypatch.setenv("PATH", str(path))
    assert binaries.find() == {name: [str(assets / name)] for name in components.PROGRAMS}


def test_an_assets_folder_without_api_server_is_left_with_a_word(
    fill: Fill, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt folder, most likely."""
    monkeypatch.setenv(binaries.ASSETS, "/no/such/folder")
    monkeypatch.setenv("PATH", str(fill("path")))
    assert binaries.find()["etcd"][0].endswith("path/etcd")
    assert "no kube-apiserver in /no/such/folder" in capsys.readouterr().err


def test_path_comes_before_the_cache(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody installed is meant to be used."""
    fill("cache/muster/controlplane/v1.36.3/" + build.folder().name)
    path = fill("path")
    monkeypatch.setenv("PATH", str(path))
    assert binaries.find()["etcd"] == [str(path / "etcd")]


@pytest.mark.parametrize("kind", ["built", "downloaded"])
def test_the_cache_comes_before_getting_anything(fill: Fill, kind: str) -> None:
    """Getting anything would fail here."""
    where = {"built": build.folder(), "downloaded": download.folder("1.36.3")}[kind]
    fill(f"cache/muster/controlplane/v1.36.3/{where.name}")
    assert binaries.find()["kwok"] == [str(where / "kwok")]


def test_a_lone_kubectl_on_path_is_not_taken(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most machines have one, of whatever age."""
    monkeypatch.setenv("PATH", str(fill("path", "kubectl")))
    fill(f"cache/muster/controlplane/v1.36.3/{build.folder().name}")
    assert binaries.find()["kubectl"] == [str(build.folder() / "kubectl")]


def test_the_core_is_taken_from_one_place(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server here and a scheduler there would be of two versions."""
    one, two = fill("one", "kube-apiserver", "etcd"), fill("two", *CORE)
    monkeypatch.setenv("PATH", f"{one}:{two}")
    fill(f"cache/muster/controlplane/v1.36.3/{build.folder().name}")
    found = binaries.find()
    assert {found[name][0] for name in CORE} == {str(two / name) for name in CORE}
    assert found["etcd"] == [str(one / "etcd")]
    assert found["kwok"] == [str(build.folder() / "kwok")]


def test_another_version_on_path_is_passed_over(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a version is asked for."""
    monkeypatch.setenv("PATH", str(fill("path", version="1.30.0")))
    where = fill("cache/muster/controlplane/v1.35.1/" + download.folder("1.35.1").name)
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

    monkeypatch.setattr(download, "fetch", fetch)
    found = binaries.find()
    assert asked == [(["kube-controller-manager", "kube-scheduler"], "1.33.1", True)]
    assert found["kube-apiserver"] == [str(assets / "kube-apiserver")]
    assert found["kube-scheduler"][0].endswith("fetched/kube-scheduler")


def test_an_envtest_folder_that_cannot_be_completed_is_left_with_a_word(
    fill: Fill, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rather than mixing versions."""
    monkeypatch.setenv(binaries.ASSETS, str(fill("assets", *ENVTEST)))
    fill(f"cache/muster/controlplane/v1.36.3/{build.folder().name}")
    assert binaries.find()["etcd"] == [str(build.folder() / "etcd")]
    assert "KUBEBUILDER_ASSETS is not used: no kube-controller-manager" in capsys.readouterr().err


def test_what_can_be_downloaded_is_not_built(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build takes minutes."""
    monkeypatch.setattr(download, "fetch", lambda names, *_, **__: fill("fetched", *names))
    assert binaries.find()["etcd"][0].endswith("fetched/etcd")


def test_what_cannot_be_downloaded_is_built(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is said why."""
    monkeypatch.setattr(build, "build", lambda: fill("built"))
    assert binaries.find()["etcd"][0].endswith("built/etcd")


@pytest.mark.usefixtures("fill")
def test_what_can_be_had_in_no_way_is_said_with_both_reasons() -> None:
    """And the third way: a folder of one's own."""
    with pytest.raises(binaries.BinariesError) as caught:
        binaries.find()
    for words in ("no network", "Go is missing", binaries.ASSETS):
        assert words in str(caught.value)


@pytest.mark.usefixtures("fill")
def test_only_one_version_can_be_built() -> None:
    """Another one has to be downloaded."""
    with pytest.raises(binaries.BinariesError, match=r"only 1\.36\.3 can be built"):
        binaries.find("1.34.0")


def test_only_what_is_needed_is_gotten(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that was there before needs kwok, or nothing at all."""
    asked: list[object] = []

    def fetch(names: list[str], *_: object, **__: object) -> Path:
        asked.append(names)
        return fill("downloaded", "kwok")

    monkeypatch.setattr(download, "fetch", fetch)
    assert list(binaries.find(None, (components.KWOK,))) == ["kwok"]
    assert binaries.find(None, ()) == {}
    assert asked == [["kwok"]]
