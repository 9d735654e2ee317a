# SPDX-License-Identifier: Apache-2.0
"""The few files of a large package that read a job's environment, kept in the user's cache."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.e2e import venvs

TAKE = Path(__file__).with_name("take_wheel_files.py")
WHOLE_FILES_ONLY = 3


@dataclass(frozen=True)
class Parts:
    """Some files of one released wheel, by a pattern and by what they contain."""

    requirement: str
    platform: str
    python: str
    pattern: str
    digest: str
    """Of the files' own SHA-256 sums and names, in the order of the names."""


def take(python: Path, parts: Parts) -> Path:
    """Return the folder with these files.

    They are taken from the index at the first call, by the pip of that interpreter, and must be
    those that were released. The test is skipped if the index cannot be reached.
    """
    name = parts.requirement.partition("==")[0]

    def make(folder: Path) -> None:
        about = (parts.requirement, parts.platform, parts.python, parts.pattern, str(folder))
        done = venvs.run([str(python), str(TAKE), *about], parts.requirement)
        if done.returncode == WHOLE_FILES_ONLY:
            pytest.skip("the package index serves whole files only, and these are too large")
        assert done.returncode == 0, done.stderr
        found = digest(folder)
        assert found == parts.digest, f"{parts.requirement} has other files: {found}"

    return venvs.kept(f"parts-{name}", parts.digest[:12], make)


def digest(folder: Path) -> str:
    """Return one sum over the names and contents of all files below."""
    files = sorted(
        file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
    )
    sums = (hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in files)
    lines = (f"{sum_}  {file}\n" for sum_, file in zip(sums, files, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
