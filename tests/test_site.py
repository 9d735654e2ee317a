# SPDX-License-Identifier: Apache-2.0
"""The docs site shows every page, and its links lead somewhere."""

import re
from pathlib import Path

import conf
import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted({*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")})


def test_every_page_stands_once_in_the_menu(monkeypatch, tmp_path):
    """Also one that the menu does not know: nobody has to add it."""
    entries = [line for block in conf.menu() for line in block.splitlines() if "/" in line]
    assert sorted(entries) == sorted(f"docs/{path.stem}" for path in PAGES if path.parent != ROOT)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "brand-new.md").write_text("# New")
    monkeypatch.setattr(conf, "ROOT", tmp_path)
    assert "docs/brand-new" in "\n".join(conf.menu())


@pytest.mark.parametrize(
    ("page", "text", "shown"),
    [
        ("docs/queues", "see docs/waiting.md.", "see [waiting.md](waiting.md)."),
        ("README", "see `docs/waiting.md`", "see [waiting.md](docs/waiting.md)"),
        ("docs/a", "[it](waiting.md), `make X docs/b.md`", "[it](waiting.md), `make X docs/b.md`"),
        ("docs/a", "```\ndocs/b.md\n```", "```\ndocs/b.md\n```"),
    ],
)
def test_a_page_that_is_named_is_a_link(page, text, shown):
    """In prose and in code of one word; not in commands, nor where there is a link already."""
    source = [text]
    conf.read(None, page, source)
    assert source[0].startswith(shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_a_page_names_is_there(page):
    """Files that links and texts name, as the site would find them."""
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    missing = [to for to in links if "://" not in to and not (page.parent / to).exists()]
    folders = r"(?<![\w/.])(?:docs|examples|manifests|tests|tools)/"
    named = re.findall(folders + r"[\w./-]+\.(?:md|yaml|py|svg)\b", text)
    missing += [to for to in named if not (ROOT / to).exists()]
    assert missing == []
