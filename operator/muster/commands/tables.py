# SPDX-License-Identifier: Apache-2.0
"""Rows as text: columns for people as kubectl aligns them, JSON and YAML for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import yaml

from muster.api import manifest
from muster.commands.output import json_text, plain

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
_COLOURED: Final = re.compile(r"(\x1b\[[0-9;]*m)")


def coloured(text: str, place: int) -> str:
    """Put a text into one of the colours of a terminal."""
    return f"\x1b[{_COLOURS[place % len(_COLOURS)]}m{text}\x1b[0m"


def line_of(text: str, *, colours: bool = True) -> str:
    """Return a line that a program wrote, as a terminal would end up to show it.

    Its colors stay if `colours`, and of a progress bar the last state.
    """
    last = text.rstrip("\r").rpartition("\r")[2].expandtabs()
    if not colours:
        return plain(_COLOURED.sub("", last))
    parts = _COLOURED.split(last)
    # Every second part is a colour.
    kept = (part if index % 2 else plain(part) for index, part in enumerate(parts))
    return "".join(kept) + ("\x1b[0m" if len(parts) > 1 else "")
