# SPDX-License-Identifier: Apache-2.0
"""The one place where commands print what the cluster holds.

Names, messages and log lines of tenants may contain characters that steer a terminal or reverse
the direction of text. They are replaced by spaces.
"""

from __future__ import annotations

import json
import sys
from typing import Final, TextIO

SPACE: Final = ord(" ")


class Verbatim(str):
    """Text that is printed unchanged: Muster's own escape sequences, or a log into a pipe."""

    __slots__ = ()


class _Replacements(dict[int, int]):
    """Code point -> what is printed for it; filled as characters occur."""

    def __missing__(self, code: int) -> int:
        self[code] = code if chr(code).isprintable() else SPACE
        return self[code]


class _Escapes(dict[int, str]):
    """Code point -> how JSON writes it; only line ends stand between values."""

    def __missing__(self, code: int) -> str:
        text = chr(code)
        self[code] = text if text.isprintable() or text == "\n" else json.dumps(text)[1:-1]
        return self[code]


_IN_JSON: Final = _Escapes()
_IN_LINE: Final = _Replacements()
_IN_TEXT: Final = _Replacements({ord(each): ord(each) for each in "\n\t"})


def plain(text: str) -> str:
    """Return a text as one line without control and format characters."""
    return text.translate(_IN_LINE)


def plain_lines(text: str) -> str:
    """Return a text without control and format characters; line ends and tabs stay."""
    return text.translate(_IN_TEXT)


def json_text(text: str) -> str:
    """Return JSON text in which `write` replaces nothing: such characters are escaped."""
    return text.translate(_IN_JSON)


def write(text: str, stream: TextIO | None = None) -> None:
    """Print a text on standard output or another stream."""
    stream = stream or sys.stdout
    stream.write(text if isinstance(text, Verbatim) else plain_lines(text))
    stream.flush()


def complain(message: str, prefix: str = "muster: ") -> None:
    """Print an error message as one line on standard error."""
    write(f"{prefix}{plain(message)}\n", sys.stderr)
