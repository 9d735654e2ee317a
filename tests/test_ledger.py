# SPDX-License-Identifier: Apache-2.0
"""The line ledger: the number of lines that each part of the repository may have.

A commit that raises a number states in its message which user need asks for the lines. A commit
that removes lines lowers the number: the ledger may exceed a part by at most SLACK lines.
Lines of Python files count as `wc -l` counts them, blank lines and comments included.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "operator" / "muster"
SLACK = 60
LEDGER = {
    "allocator": 5850,
    "api": 2906,
    "cluster": 6017,
    "commands": 5412,
    "controller": 4054,
    "dashboard": 562,
    "frameworks": 2743,
    "gang": 1439,
    "kube": 3430,
    "local": 2979,
    "muster": 1138,
    "runtime": 2139,
    "scheduler": 9815,
    "store": 3016,
    "tests": 69523,
    "tools": 3868,
}


def _lines(*files: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in files)


def _parts() -> dict[str, int]:
    """Return the lines of each subpackage, of the modules beside them, of tools/ and tests/."""
    folders = [path for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    parts = {path.name: _lines(*path.rglob("*.py")) for path in folders}
    parts["muster"] = _lines(*PACKAGE.glob("*.py"))
    return parts | {name: _lines(*(ROOT / name).rglob("*.py")) for name in ("tools", "tests")}


PARTS = _parts()


def test_every_part_is_in_the_ledger() -> None:
    """A new subpackage gets a number of its own."""
    assert PARTS.keys() == LEDGER.keys()


@pytest.mark.parametrize("part", sorted(PARTS))
def test_part_has_at_most_the_lines_of_the_ledger(part: str) -> None:
    """A part grows only together with its number, and shrinks together with it."""
    allowed = LEDGER[part]
    slack = SLACK if part not in ("tests", "tools") else 10 * SLACK
    assert allowed - slack <= PARTS[part] <= allowed
