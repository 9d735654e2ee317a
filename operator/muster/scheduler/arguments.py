# SPDX-License-Identifier: Apache-2.0
"""What a plugin is, and how the strings of its `arguments` become values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from muster.scheduler.hooks import Hooks
from muster.scheduler.session import Session

Parsed = Mapping[str, Any]
"""Argument name -> value; those left out are absent."""

_TRUE: Final = frozenset({"1", "t", "true"})
_FALSE: Final = frozenset({"0", "f", "false"})


@dataclass(frozen=True, slots=True)
class Plugin:
    """A row of the table of plugins."""

    answer: Callable[[Session, Parsed], Hooks]
    arguments: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    """Name -> parser, which raises ValueError saying what to write. A name that ends in a dot
    stands for all that begin with it."""


def weight(text: str) -> float:
    """Return a number that is not negative."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f'"{text}" is no weight; write a number, 0 or more')
    return number


def switch(text: str) -> bool:
    """Return a truth value."""
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f'"{text}" is neither true nor false')
