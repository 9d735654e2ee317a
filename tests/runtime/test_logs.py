# SPDX-License-Identifier: Apache-2.0
"""A record is a line, whoever's words are in it."""

import io
import logging

import pytest

from muster.runtime.logs import LineFormatter


@pytest.fixture
def lines():
    """Return a function that logs, and gives the lines that came of it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    log = logging.getLogger("muster.test")
    log.addHandler(handler)

    def write(text, *values, **more):
        log.error(text, *values, **more)
        return stream.getvalue().removesuffix("\n").split("\n")

    yield write
    log.removeHandler(handler)


FORGED = "quota\n2026-01-01 00:00:00,000 I muster.app leading as somebody"


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        (FORGED, FORGED.replace("\n", "\\n")),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x1b[2J\x1b[31mred", "\\x1b[2J\\x1b[31mred"),
        ("a\x85b\u2028c\u2029d\x7f", "a\\x85b\\u2028c\\u2029d\\x7f"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("Ελληνικά 中文 é ✓", "Ελληνικά 中文 é ✓"),
    ],
)
def test_control_characters_are_shown_by_their_codes(lines, word, shown):
    """All other characters stay what they are."""
    (line,) = lines("refused: %s", word)
    assert line.endswith(f" E muster.test refused: {shown}")


def test_a_traceback_does_not_look_like_a_record(lines):
    """What was raised may hold any words."""
    try:
        int(FORGED + "\x1b[2J")
    except ValueError as error:
        first, *rest = lines("failed: %s", error, exc_info=ValueError(FORGED))
    assert "failed: invalid literal" in first
    assert rest[0] == "    ValueError: quota"
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in "".join(rest)
