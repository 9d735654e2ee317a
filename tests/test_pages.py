# SPDX-License-Identifier: Apache-2.0
"""Every command of the pages is typed by a test, or its block says why not."""

import re

import pytest

from support.e2e import doc_commands
from support.e2e.doc_commands import PAGES, ROOT, SHELL, TYPED_BY, Block

CALLS = re.compile(r"^(\$ |make |kubectl |muster |helm |docker |\.venv/)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_no_block_of_commands_is_missed(page):
    """It has the language by which it is found, and a mark stands before a block of commands."""
    text = PAGES[page].read_text()
    found = list(doc_commands.blocks(page, text))
    assert [b.line for b in found if b.language not in SHELL and CALLS.search(b.text)] == []
    assert text.count("```") == 2 * len(found)
    marked = [b for b in found if b.reason]
    assert text.count("\n<!-- not run") == len(marked)
    assert all(b.language in SHELL and len(b.reason.split()) > 2 for b in marked)
    assert not (marked and page in TYPED_BY), "its test types all of it"


@pytest.mark.parametrize("page", TYPED_BY)
def test_the_test_of_a_page_reads_it(page):
    """Whatever is added there is typed."""
    for test in TYPED_BY[page]:
        assert PAGES[page].name in (ROOT / "tests" / test).read_text(), test


def test_a_command_has_all_of_its_lines():
    """What stands behind it as a comment is none of it, nor is what it prints."""
    text = "a -b \\\n  --c\nkubectl apply -f - <<EOF\nx: {}\nEOF\nb   # why\n"
    assert Block("p", 1, "sh", text, "").commands == [
        "a -b \\\n  --c", "kubectl apply -f - <<EOF\nx: {}\nEOF", "b"
    ]  # fmt: skip
    shown = Block("p", 1, "console", "$ muster top\nJOB\n$ b > c\n", "")
    assert shown.commands == ["muster top", "b > c"]


def test_a_mark_belongs_to_the_block_below_it():
    """A block further down is typed all the same."""
    text = "<!-- not run: it needs a registry -->\n```sh\na\n```\n\n```sh\nb\n```\n"
    assert [(b.line, b.reason) for b in doc_commands.blocks("p", text)] == [
        (2, "it needs a registry"), (6, "")
    ]  # fmt: skip
