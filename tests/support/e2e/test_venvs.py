# SPDX-License-Identifier: Apache-2.0
"""What tests keep in the user's cache, and what of it goes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from support.e2e import venvs


def made(key: str) -> Path:
    """Return a folder of the cache, used a while after those that were used before."""
    folder = venvs.kept("clusters", key * venvs.DIGITS, Path.mkdir)
    venvs.HELD.close()
    return folder


def age(folder: Path, seconds: float) -> None:
    """Let it have been used so long after all time began."""
    os.utime(folder.with_suffix(".complete"), (seconds, seconds))


def test_those_that_were_used_last_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of the CRDs leaves one; one that somebody uses stays, as do those of others."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(venvs, "KEPT", 2)
    other = venvs.kept("clusters-of-others", "0" * venvs.DIGITS, Path.mkdir)
    folders = {key: made(key) for key in "ab"}
    age(folders["a"], 2.0)
    age(folders["b"], 1.0)
    age(other, 0.0)
    folders["c"] = made("c")
    assert [key for key, folder in folders.items() if folder.exists()] == ["a", "c"]
    assert made("a") == folders["a"]
    age(folders["c"], 1.0)
    with folders["c"].with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        folders["d"] = made("d")
        assert [key for key, folder in folders.items() if folder.exists()] == ["a", "c", "d"]
    made("d")
    assert [key for key, folder in folders.items() if folder.exists()] == ["a", "d"]
    assert other.exists()


def test_one_that_went_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is one whose making failed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tries: list[Path] = []

    def make(folder: Path) -> None:
        tries.append(folder)
        folder.mkdir()
        if len(tries) == 1:
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        venvs.kept("clusters", "a" * venvs.DIGITS, make)
    for _ in range(2):
        venvs.kept("clusters", "a" * venvs.DIGITS, make)
    assert len(tries) == 2
    venvs.HELD.close()
