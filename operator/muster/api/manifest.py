# SPDX-License-Identifier: Apache-2.0
"""YAML and JSON as kubectl reads them: one loader for everything that users write.

kubectl splits a file into documents. Where a document begins with a brace it reads JSON objects,
and YAML 1.1 with sigs.k8s.io/yaml elsewhere. There octal numbers may begin with `0o`, `12:30` and
dates are strings, and the last of equal keys counts. Unlike kubectl this loader refuses merge
keys, keys that are fractions without quotes, and documents that are too large or too deep.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn

import yaml

MAX_NODES: Final = 100_000
"""Objects, lists and scalars of a document."""
MAX_DEPTH: Final = 64
"""Objects and lists around a value."""
LARGE: Final = f"it has more than {MAX_NODES:,} values"
DEEP: Final = f"it is nested deeper than {MAX_DEPTH} levels"
MAX_SHOWN: Final = 40
"""Characters of a value in a message."""
MAX_DIGITS: Final = 70
"""Characters of a whole number: 64 bits may be written one by one."""
_PARSER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"
_WORDS: Final[dict[str, object]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(
        ["y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"], True
    ),
    **dict.fromkeys(
        ["n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"], False
    ),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_WHOLE: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)"
    r"|(?P<dec>0|[1-9][0-9]*))"
)
_BASES: Final = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_APART: Final = re.compile(r"(?<![0-9])_|_(?![0-9])")
"""An underscore that is not between two digits."""
_SPACE: Final = re.compile(r"\s*")
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}


class ManifestError(ValueError):
    """Text that cannot be parsed or is too large; the message names the line if it is known."""


def decoded(data: bytes) -> str:
    """Return the text of a file: UTF-8, or with a byte order mark UTF-16."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    return data.decode("utf-8", "replace")


def documents(written: str | bytes) -> Iterator[Any]:
    """Yield the documents of a file that are not null. Raises ManifestError."""
    text, read = decoded(written) if isinstance(written, bytes) else written, 0
    for value, end in _json_objects(text):
        yield _bounded(value)
        read = end
    # White space after a JSON object may include tabs, which YAML rejects.
    if read and not text[read:].strip():
        return
    for line, part in _parts(text[read:], text.count("\n", 0, read) + 1):
        value = _bounded(_yaml(part, line))
        if value is not None:
            yield value


def document(written: str | bytes) -> Any:
    """Return the first document of a file, None without one. Raises ManifestError."""
    return next(documents(written), None)


def _json_objects(text: str) -> Iterator[tuple[object, int]]:
    """Yield the JSON objects with which a text begins, and the index behind each."""
    place = 0
    while True:
        begin = _end(_SPACE.match(text, place))
        if not text.startswith("{", begin):
            return
        try:
            value, place = _JSON.raw_decode(text, begin)
        except json.JSONDecodeError:
            # An object of YAML begins with a brace, too.
            return
        except RecursionError as error:
            raise ManifestError(DEEP) from error
        if "\\u" in text[begin:place]:
            _check_text(value)
        yield value, place


def _check_text(value: object) -> None:
    """Raise ManifestError if an escape is half of a surrogate pair, which is no text."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ManifestError(f"\\u{ord(error.object[error.start]):x} is no character") from error


def _end(found: re.Match[str] | None) -> int:
    return found.end() if found else 0


def _no_constant(name: str) -> NoReturn:
    # Python reads NaN and Infinity, which are no JSON.
    raise json.JSONDecodeError(name, "", 0)


_JSON: Final = json.JSONDecoder(
    parse_int=lambda text: _number(int(text) if len(text) <= MAX_DIGITS else float(text)),
    parse_float=lambda text: _number(float(text)),
    parse_constant=_no_constant,
)


def _parts(text: str, line: int) -> Iterator[tuple[int, str]]:
    begin, lines = line, list[str]()
    # The line break that ends the text begins no further line, which `|+` would keep.
    for number, row in enumerate(text.removesuffix("\n").split("\n"), start=line):
        if not row.startswith("---"):
            lines += (row.removesuffix("\r"), "\n")
            continue
        if (more := row[3:].strip()) and not more.startswith("#"):
            raise ManifestError(f"line {number}: only a comment may follow ---")
        yield begin, "".join(lines)
        begin, lines = number + 1, []
    yield begin, "".join(lines)


def _yaml(text: str, line: int) -> object:
    """Return the value of the first YAML document of a text, which begins at that line."""
    builder, event = _Builder(), None
    try:
        for event in yaml.parse(text, Loader=_PARSER):
            if isinstance(event, yaml.DocumentEndEvent):
                break
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        place = _place(error.problem_mark or error.context_mark, line)
        raise ManifestError(f"{place}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ManifestError(" ".join(str(error).split())) from error
    except ValueError as error:
        place = _place(event.start_mark if event else None, line)
        raise ManifestError(f"{place}{error}") from error
    return builder.root


def _place(mark: Any, line: int) -> str:
    return f"line {mark.line + line}, column {mark.column + 1}: " if mark else ""


@dataclass(slots=True)
class _Open:
    """An object or a list of which the end has not been read."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    key: str | None = None
    """The key whose value comes next."""


class _Builder:
    """Builds a document from events, without recursion: MAX_DEPTH alone bounds the depth."""

    def __init__(self) -> None:
        self.root: Any = None
        self._anchors: dict[str, Any] = {}
        self._open: list[_Open] = []
        self._count = 0

    def take(self, event: yaml.Event) -> None:
        """Add what an event describes. Raises ValueError."""
        if isinstance(event, yaml.CollectionStartEvent):
            # An anchor counts from the end of its value: before, an alias would be part of itself.
            self._anchors.pop(event.anchor or "", None)
            empty: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            self._open.append(_Open(empty, event.anchor))
            if len(self._open) > MAX_DEPTH:
                raise ValueError(DEEP)
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self._open.pop()
            self._add(done.value, done.anchor)
        elif isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0] or event.tag == f"{_TAG}merge"
            last = self._open[-1] if self._open else None
            is_key = last is not None and isinstance(last.value, dict) and last.key is None
            if event.value == "<<" and plain and is_key:
                raise ValueError("merge keys (<<) are not supported: write the fields out")
            self._add(_scalar(event), event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise ValueError(f"anchor {event.anchor} is unknown or contains itself")
            self._add(self._anchors[event.anchor])

    def _add(self, value: Any, anchor: str | None = None) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            raise ValueError(LARGE)
        if anchor:
            self._anchors[anchor] = value
        if not self._open:
            self.root = _plain(value)
            return
        last = self._open[-1]
        if isinstance(last.value, list):
            last.value.append(_plain(value))
        elif last.key is None:
            last.key = _key(value)
        else:
            last.value[last.key] = _plain(value)
            last.key = None


def _scalar(event: yaml.ScalarEvent) -> object:
    """Return a scalar by its tag, or if it is plain by its form. Raises ValueError."""
    text, tag = event.value, (event.tag or "").removeprefix(_TAG)
    if event.implicit[0] and not event.tag:
        return _resolved(text)
    if tag == "binary":
        try:
            data = base64.b64decode("".join(text.split()), validate=True)
        except binascii.Error as error:
            raise ValueError("!!binary is not in base64") from error
        return data.decode("utf-8", "replace")
    if event.tag == tag or tag not in _TYPES:
        return text
    value = _resolved(text)
    if type(value) not in _TYPES[tag]:
        raise ValueError(f"{text[:MAX_SHOWN]!r} is no !!{tag}")
    return value


def _resolved(text: str) -> object:
    """Return the value of a plain scalar: a word, a number or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if text[0] == "." and _APART.search(text):
        return text
    digits = text.replace("_", "")
    whole = _WHOLE.fullmatch(digits) if len(digits) <= MAX_DIGITS else None
    if whole is not None:
        base, number = next((k, v) for k, v in whole.groupdict().items() if v and k != "sign")
        value = int(number, _BASES[base]) * (-1 if whole["sign"] == "-" else 1)
        if -(2**63) <= value < (2**63 if whole["sign"] else 2**64):
            return value
    number = float(digits) if _FLOAT.fullmatch(digits) else math.inf
    return text if math.isinf(number) else number


def _plain(value: Any) -> Any:
    """Return a value as JSON has it. Raises ValueError."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _number(value) if is_number else value


def _number(value: float) -> int | float:
    """Return a number as Kubernetes reads it from JSON: of 64 bits, an int without a fraction."""
    if not math.isfinite(value):
        raise ManifestError("infinity and NaN are no numbers of JSON")
    # Go writes as many digits as tell the number from its neighbors, then zeros.
    whole = Decimal(repr(value))
    is_whole = whole == int(whole) and -(2**63) <= whole < 2**63
    return int(whole) if is_whole else float(value)


def _key(value: object) -> str:
    """Return the text of a key. Raises ValueError."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        raise ValueError("null cannot be a key")
    if isinstance(value, int) and value < 2**63:
        return str(value)
    shown = "an object" if isinstance(value, dict) else "a list"
    raise ValueError(f"{value if isinstance(value, int | float) else shown} cannot be a key")


def _bounded(value: Any) -> Any:
    """Return the value. Raises ManifestError if it is too large or too deep with its aliases."""
    left, count = [(value, 0)], 0
    while left:
        item, depth = left.pop()
        count += 1
        items = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        left += ((inner, depth + 1) for inner in items)
        if count + len(left) > MAX_NODES:
            raise ManifestError(LARGE)
        if isinstance(item, dict | list) and depth >= MAX_DEPTH:
            raise ManifestError(DEEP)
    return value


class Plain(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """YAML without anchors: every reader understands it. In C where there is one: it is long."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002, D102 -- PyYAML's
        return True


# Texts such as 1e-4 and y, which Go and kubectl read as something else, are quoted.
for _form, _first in (
    (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$", "-+.0123456789"),
    (r"[-+]?0[oO][0-7_]+$", "-+0"),
    (r"[yYnN]$", "yYnN"),
):
    Plain.add_implicit_resolver("tag:yaml.org,2002:read-by-go", re.compile(_form), list(_first))
