# SPDX-License-Identifier: Apache-2.0
"""The one place where commands print what the cluster holds: as text, tables, JSON or YAML.

Characters of tenants that steer a terminal or reverse the text direction become spaces.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TextIO, TypeVar

import yaml

from muster.api import manifest

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


TEXT, WIDE, JSON, YAML = FORMATS = ("text", "wide", "json", "yaml")
GAP: Final = "   "
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of a table of values."""

    title: str
    cell: Callable[[T], str]
    wide: bool = False
    """Shown only where much is asked for."""
    right: bool = False
    """Its cells end at one place, as numbers do."""


def table(columns: Sequence[Column[T]], rows: Sequence[T], *, wide: bool = False) -> str:
    """Return the rows under their titles; nothing is cut off."""
    shown = [column for column in columns if wide or not column.wide]
    lines = [[column.title for column in shown]]
    lines += [[plain(column.cell(row)) or "-" for column in shown] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    marks = [">" if column.right else "<" for column in shown]
    line = GAP.join(f"{{:{mark}{width}}}" for mark, width in zip(marks, widths, strict=True))
    return "".join(f"{line.format(*cells).rstrip()}\n" for cells in lines)


def data(value: object, output: str) -> str:
    """Return a value as JSON or YAML."""
    if output == YAML:
        # All but ASCII is escaped: YAML has no other way to escape what must not be printed.
        return yaml.dump(value, Dumper=manifest.Plain, sort_keys=False, width=99)
    return json_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


_COLOURS: Final = (36, 32, 33, 35, 34, 91, 92, 93, 94, 95, 96)
_COLOURED: Final = re.compile(r"\x1b\[[0-9;]*m")


def coloured(text: str, place: int) -> str:
    """Put a text into one of the colours of a terminal."""
    return f"\x1b[{_COLOURS[place % len(_COLOURS)]}m{text}\x1b[0m"


def line_of(text: str) -> str:
    """Return a line of a program without its colors; of a progress bar, the last state."""
    return plain(_COLOURED.sub("", text.rstrip("\r").rpartition("\r")[2].expandtabs()))
