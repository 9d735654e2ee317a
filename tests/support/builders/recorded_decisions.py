# SPDX-License-Identifier: Apache-2.0
"""The snapshots and decisions of `tests/replay/recorded`."""

from pathlib import Path

RECORDED = {
    f"{path.stem}:{number}": text
    for path in sorted((Path(__file__).parents[2] / "replay" / "recorded").glob("*.jsonl"))
    for number, text in enumerate(path.read_text().splitlines(keepends=True), 1)
}
"""File and line -> a recording."""
