# SPDX-License-Identifier: Apache-2.0
"""The one place where commands print what the cluster holds.

Names, messages and log lines of tenants may contain characters that steer a terminal or reverse
the direction of text. They are replaced by spaces.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TextIO

YES, NO = 0, 1


class Verbatim(str):
    """Text that is printed unchanged: Muster's own escape sequences, or a log into a pipe."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Text for standard output, a sentence for standard error, and the exit code."""

    text: str
    code: int = YES
    complaint: str = ""


def plain(text: str) -> str:
    """Return a text as one line without control and format characters."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else " " for each in text)


def plain_lines(text: str) -> str:
    """Return a text without control and format characters; line ends and tabs stay."""
    return "\n".join("\t".join(map(plain, line.split("\t"))) for line in text.split("\n"))


def json_text(text: str) -> str:
    """Return JSON text in which `write` replaces nothing: such characters are escaped."""
    return "\n".join(map(_escaped, text.split("\n")))


def _escaped(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def write(text: str, stream: TextIO | None = None) -> None:
    """Print a text on standard output or another stream."""
    stream = stream or sys.stdout
    stream.write(text if isinstance(text, Verbatim) else plain_lines(text))
    stream.flush()


def complain(message: str, prefix: str = "muster: ") -> None:
    """Print an error message as one line on standard error."""
    write(f"{prefix}{plain(message)}\n", sys.stderr)
