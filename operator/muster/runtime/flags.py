# SPDX-License-Identifier: Apache-2.0
"""Command-line flags as Go programs take them, so that existing Deployments keep their arguments.

`-name` and `--name` are the same; a value follows after `=` or as the next argument; a switch
takes a value only after `=`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class FlagError(ValueError):
    """Arguments that cannot be meant; the message names the flag and says what to write."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. Without a field it is accepted and has no effect."""

    name: str
    text: str = ""
    """For the help; empty: it is listed there among those without effect."""
    field: str = ""
    convert: Callable[[str], Any] = str
    """Raises ValueError with a sentence about the value."""
    switch: bool = False
    many: bool = False
    """May be given several times; the values are collected in order."""


@dataclass(slots=True)
class Given:
    """What the arguments said."""

    values: dict[str, Any] = field(default_factory=dict)
    """By field; of a flag that is given twice the last value counts, unless it may be."""
    flags: dict[str, str] = field(default_factory=dict)
    """Field -> the flag that set it, with its value, as it stands in error messages."""
    ignored: list[str] = field(default_factory=list)
    """Flags without effect, each once."""


def parse(arguments: Sequence[str], table: Sequence[Flag], prefixes: Sequence[str] = ()) -> Given:
    """Return what the arguments say by the table. Raises FlagError.

    Unknown flags that start with one of `prefixes` are accepted and have no effect.
    """
    known = {flag.name: flag for flag in table}
    given = Given()
    for name, value in _pairs(arguments, known, prefixes):
        flag = known.get(name) or Flag(name)
        if not flag.field:
            if f"--{name}" not in given.ignored:
                given.ignored.append(f"--{name}")
            continue
        _put(given, flag, value)
    return given


def _put(given: Given, flag: Flag, value: str) -> None:
    try:
        converted = flag.convert(value)
    except ValueError as error:
        raise FlagError(f"--{flag.name}={value}: {error}") from None
    if flag.many:
        converted = (*given.values.get(flag.field, ()), converted)
    given.values[flag.field] = converted
    given.flags[flag.field] = f"--{flag.name}={value}"


def _pairs(
    arguments: Sequence[str], known: Mapping[str, Flag], prefixes: Sequence[str]
) -> Iterator[tuple[str, str]]:
    left = list(arguments)
    switched = ""
    while left:
        token = left.pop(0)
        if not token.startswith("-") or token in ("-", "--"):
            hint = f"; write {switched}={token}" if switched else ""
            raise FlagError(f'unexpected argument "{token}"{hint}')
        name, assigned, value = _split(token)
        flag = known.get(name)
        if flag is None and not name.startswith(tuple(prefixes)):
            raise FlagError(_unknown(name, known))
        switched = ""
        follows = bool(left) and not _is_flag(left[0], known, prefixes)
        if not assigned and (flag.switch if flag else not follows):
            value, switched = "true", f"--{name}"
        elif not assigned:
            if not follows:
                raise FlagError(f"--{name} needs a value: --{name}=…")
            value = left.pop(0)
        yield name, value


def _split(token: str) -> tuple[str, bool, str]:
    name, assigned, value = token.lstrip("-").partition("=")
    return name, bool(assigned), value


def _is_flag(token: str, known: Mapping[str, Flag], prefixes: Sequence[str]) -> bool:
    name, _, _ = _split(token)
    return token.startswith("-") and (name in known or name.startswith(tuple(prefixes)))


def _unknown(name: str, known: Mapping[str, Flag]) -> str:
    lower = {flag.lower(): flag for flag in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"did you mean --{lower[near[0]]}?" if near else "see --help"
    return f"unknown flag --{name}; {hint}"


TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def boolean(text: str) -> bool:
    """Read a switch as Go does."""
    if text not in TRUE | FALSE:
        raise ValueError("write true or false")
    return text in TRUE


def count(text: str) -> int:
    """Read an integer of 0 or more."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError("write an integer of 0 or more")
    return int(text)


def positive(text: str) -> int:
    """Read an integer of 1 or more."""
    number = count(text) if text.isdecimal() else 0
    if not number:
        raise ValueError("write an integer of 1 or more")
    return number


def one_of(*words: str) -> Callable[[str], str]:
    """Return a reader of exactly these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"write one of {', '.join(words)}")
        return text

    return read


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = r"(\d+\.?\d*|\.\d+)(ms|us|µs|ns|h|m|s)"


def duration(text: str) -> float:
    """Read a duration as Go writes it, e.g. `1m30s`, `500ms`; the answer is in seconds."""
    if text == "0":
        return 0.0
    if not re.fullmatch(f"({_PART})+", text):
        raise ValueError("write a duration like 500ms, 1s or 2m")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))


def span(text: str) -> float:
    """Read a duration longer than nothing, in seconds."""
    seconds = duration(text)
    if seconds <= 0:
        raise ValueError("write a duration longer than 0, like 1s")
    return seconds


_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\[\]/]*):(?P<port>\d{1,5})")


def address(text: str) -> str:
    """Read `host:port` or `:port`, or `0` for nowhere."""
    match = _ADDRESS.fullmatch(text)
    if text not in ("", "0") and (match is None or int(match["port"]) > 65535):
        raise ValueError("write host:port or :port, or 0 for nowhere")
    return text or "0"
