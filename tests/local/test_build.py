# SPDX-License-Identifier: Apache-2.0
"""The control plane is built once for each state of its sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.local import build, components

# Stands for Go: counts its calls, takes a moment, and writes what -o names.
GO = """#!/bin/sh
echo "$@" >>"$CALLS"
while [ "$1" != -o ]; do shift; done
echo "k8s.io/api" >&2
sleep 0.3
[ -z "$WORDS" ] || { echo "$WORDS" >&2; exit 1; }
printf '#!/bin/sh\\n' >"$2"; chmod +x "$2"
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
    before = build.folder()
    assert not before.exists()
    assert build.build() == before
    assert all(os.access(before / name, os.X_OK) for name in components.PROGRAMS)
    assert "v1.36.3" in go.read_text()


def test_a_build_is_done_once(go: Path) -> None:
    """The second finds the first one's."""
    build.build()
    build.build()
    assert len(go.read_text().splitlines()) == 1


def test_two_at_once_build_once(go: Path) -> None:
    """The second waits for the first and takes what it made."""
    code = "from muster.local import build; print(build.build())"
    with (
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as first,
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as second,
    ):
        said = [
            str(one.communicate(timeout=60)[0].splitlines()[-1], "utf-8")
            for one in (first, second)
        ]
    assert said == [str(build.folder())] * 2
    assert len(go.read_text().splitlines()) == 1


def test_what_a_killed_build_left_is_removed_by_the_next(go: Path) -> None:
    """And never taken for a build."""
    target = build.folder()
    left = target.parent / f".{target.name}-left"
    (left / "programs").mkdir(parents=True)
    build.build()
    assert [path.name for path in target.parent.iterdir() if path.is_dir()] == [target.name]


def test_a_failed_build_leaves_nothing_and_says_why(
    go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason, the cure, and Go's own words."""
    words = "go: k8s.io/api@v0.36.3: Get x: dial tcp: lookup proxy: no such host"
    monkeypatch.setenv("WORDS", words)
    with pytest.raises(build.BuildError) as caught:
        build.build()
    assert "GOPROXY" in str(caught.value)
    assert words in str(caught.value)
    assert not build.folder().exists()


def test_without_go_it_is_said_which_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is that of go.mod."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(build.BuildError, match=r"Go is missing: install Go 1\.\d+ or newer"):
        build.build()


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
    told = build.explain(output)
    assert cure in told
    assert output in told


def test_other_sources_are_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed file is never served by an old build."""
    sources = tmp_path / "controlplane"
    sources.mkdir()
    for name in build._FILES:
        (sources / name).write_text("go 1.26")
    monkeypatch.setattr(build, "_module", lambda: sources)
    before = build.folder()
    (sources / "go.sum").write_text("changed")
    assert build.folder() != before
