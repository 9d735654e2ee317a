# SPDX-License-Identifier: Apache-2.0
"""A document that is taken apart field by field: what nobody takes is lost, and named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from muster.api import schema
from muster.api.edge import mapping, sequence, text
from muster.api.model import Json

_T = TypeVar("_T")
_JSON: Final[Mapping[str, type[Any]]] = {"object": dict, "array": list}
_CALLED: Final[Mapping[type[Any], str]] = {
    str: "text", int: "whole number", bool: "truth value", dict: "object", list: "list",
}  # fmt: skip
_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
Reasons = Mapping[str, tuple[str, str]]
"""Path without its brackets -> why what is there is lost, and what to do instead."""
ALWAYS_LOST: Final = {
    "": ("no field of a v1 job says this", ""),
    "metadata": ("only the API server and other controllers write this", ""),
}
"""The reasons of every source of v1 jobs."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A field whose meaning the result does not have."""

    of: str
    """Kind and name of the document."""
    path: str
    why: str
    instead: str = ""
    """What to do about it; empty: nothing."""

    def __str__(self) -> str:
        """Return it as one line for people."""
        said = f"{self.of}: {self.path}: {self.why}"
        return f"{said}; {self.instead}" if self.instead else said


class Fields:
    """One object of a document. A value is taken once; its type is what was asked for."""

    def __init__(self, value: object, path: str = "") -> None:
        """Take over an object; anything else is one without fields."""
        self.path = path
        self._left = dict(mapping(value))
        self._opened: dict[str, list[Fields]] = {}
        self._lost: list[tuple[str, str, str]] = []
        self._wanted: dict[str, str] = {}
        """What a field must be that is something else, and so is left."""

    def at(self, name: str) -> str:
        """Return the path of a field."""
        if not _PLAIN.fullmatch(name):
            return f"{self.path}[{name}]"
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, type_: type[_T]) -> _T | None:
        """Return a field that has this type; any other value stays, and is lost."""
        value = self._left.get(name)
        if not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
            self._wanted[name] = _CALLED[type_]
            return None
        self.drop(name)
        return value

    def peek(self, name: str) -> str:
        """Return a text without taking it."""
        return text(self._left.get(name))

    def texts(self, name: str) -> dict[str, str]:
        """Return the texts of a field that holds nothing but these, as labels do."""
        found = self.open(name)
        kept = {key: found.take(key, str) for key in found.names()}
        return {key: value for key, value in kept.items() if value is not None}

    def open(self, name: str) -> Fields:
        """Return the object that a field is; one without fields if it is none."""
        if name not in self._opened:
            value = self.take(name, dict)
            if value is None:
                return Fields(None, self.at(name))
            self._opened[name] = [Fields(value, self.at(name))]
        return self._opened[name][0]

    def each(self, name: str) -> list[Fields]:
        """Return the objects of a list."""
        if name not in self._opened:
            listed = sequence(self._left.get(name))
            if not listed or not all(isinstance(item, dict) for item in listed):
                self._wanted[name] = "list of objects"
                return []
            del self._left[name]
            path = self.at(name)
            self._opened[name] = [Fields(x, f"{path}[{i}]") for i, x in enumerate(listed)]
        return self._opened[name]

    def names(self) -> tuple[str, ...]:
        """Return the fields that are still there."""
        return tuple(self._left)

    def drop(self, *names: str) -> None:
        """Forget fields that say nothing of the job."""
        for name in names:
            self._left.pop(name, None)
            self._opened.pop(name, None)

    def lose(self, name: str, why: str, instead: str = "") -> None:
        """Record that a field, or what it was taken for, is lost."""
        self.drop(name)
        self._lost.append((self.at(name), why, instead))

    def lose_all(self, why: str, instead: str = "") -> None:
        """Record that the object as a whole is lost."""
        self._left, self._opened = {}, {}
        self._lost = [(self.path, why, instead)]

    def note(self, path: str, why: str, instead: str = "") -> None:
        """Record that something deeper in a field that was taken is lost."""
        self._lost.append((path, why, instead))

    def pruned(self, name: str, known: Json) -> Any:
        """Return a field without what the API server would drop from it, which is lost."""
        value = self.take(name, _JSON.get(known.get("type", ""), object))
        kept, dropped = schema.pruned(known, value, self.at(name))
        for path in dropped:
            self.note(path, "no such field: the API server drops it")
        return kept

    def lost(self, of: str, reasons: Reasons) -> Iterator[Loss]:
        """Yield what was recorded, then what is left, each by the reason for its path."""
        yield from (Loss(of, *each) for each in self._lost)
        for name, value in self._left.items():
            if says(value) and name in self._wanted:
                yield Loss(of, self.at(name), f"is no {self._wanted[name]}")
            elif says(value):
                yield Loss(of, self.at(name), *_reason(reasons, self.at(name)))
        for opened in self._opened.values():
            for part in opened:
                yield from part.lost(of, reasons)


def says(value: object) -> bool:
    """Say whether a value says anything: an empty object, list or text does not."""
    return value is not None and value not in ({}, [], "")


def number(written: str) -> int | None:
    """Return the number that a text of at most nine digits is."""
    return int(written) if _DIGITS.fullmatch(written) else None


def without_nothing(fields: Mapping[str, Any]) -> Json:
    """Return the fields that say something."""
    return {name: value for name, value in fields.items() if says(value)}


def _reason(reasons: Reasons, path: str) -> tuple[str, str]:
    plain = re.sub(r"\[[^]]*\]", "", path)
    while plain not in reasons:
        plain = plain.rpartition(".")[0]
    return reasons[plain]
