# SPDX-License-Identifier: Apache-2.0
"""The commands of the pages, block by block, and who types them.

A block is typed by the test of its page, else by e2e/test_docs.py, unless the line above it says
why nobody can: `<!-- not run: it needs a registry -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = {path.stem: path for top in (ROOT, ROOT / "docs") for path in sorted(top.glob("*.md"))}
TYPED_BY = {
    **dict.fromkeys(("README", "local", "first-job"), ("e2e/test_readme.py",)),
    "migration": ("e2e/test_migration.py", "commands/test_convert.py"),
    "real": ("real/test_page.py",),
}
"""Page -> the tests that type all of it."""
FENCED = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
WHOLE = re.compile(r"(?:[^\n]*<<EOF\n.*?^EOF|(?:[^\n]*\\\n)*[^\n]+)$", re.MULTILINE | re.DOTALL)
"""A command, with the lines that belong to it."""
SHELL = ("sh", "console")


@dataclass(frozen=True)
class Block:
    """A fenced part of a page."""

    page: str
    line: int
    language: str
    text: str
    reason: str
    """Why nobody types it; empty: somebody does."""

    @property
    def commands(self) -> list[str]:
        """Each command with all of its lines; what is printed is left out."""
        if self.language == "console":
            return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]
        found = (match[0] for match in WHOLE.finditer(self.text))
        return [re.sub(r"\s+# [^\n]*$", "", command) for command in found]


def blocks(page: str, text: str) -> Iterator[Block]:
    """Yield the fenced parts of a page."""
    for found in FENCED.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        yield Block(page, line, found["language"], found["text"], found["reason"] or "")


def typed() -> dict[str, list[Block]]:
    """Return page -> the blocks that e2e/test_docs.py types, in order."""
    found = {
        name: [b for b in blocks(name, path.read_text()) if b.language in SHELL and not b.reason]
        for name, path in PAGES.items()
        if name not in TYPED_BY
    }
    return {name: listed for name, listed in found.items() if listed}
