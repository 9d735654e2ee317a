# SPDX-License-Identifier: Apache-2.0
"""What a structural schema says of a document, as the API server would say it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import gt, lt
from typing import Any, Final

from muster.api import quantity
from muster.api.edge import integer, mapping, parse_time
from muster.api.model import Json, Problem

_BITS: Final = {"int32": 31, "int64": 63}
_IS: Final[Mapping[str, Callable[[object], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: integer(value) is not None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def problems(schema: Json, value: object, path: str) -> Iterator[Problem]:
    """Yield invalid values and unknown fields; a field that is null counts as absent."""
    if schema.get("x-kubernetes-int-or-string"):
        fits = _IS["integer"](value) or isinstance(value, str)
        if not fits:
            yield Problem(path, invalid(value, "must be a string or an integer"))
            return
    elif "type" in schema and not _IS[schema["type"]](value):
        yield Problem(path, invalid(value, f"must be of type {schema['type']}"))
        return
    if isinstance(value, dict):
        yield from _fields(schema, value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from problems(schema["items"], item, f"{path}[{index}]")
        yield from _doubled(schema, value, path)
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield Problem(path, invalid(value, "has too few items or too many"))
    else:
        yield from _scalar(schema, value, path)
    choices = schema.get("anyOf", ())
    if choices and all(any(problems(choice, value, path)) for choice in choices):
        yield Problem(path, invalid(value, "must validate at least one schema (anyOf)"))


def pruned(schema: Json, value: Any, path: str) -> tuple[Any, list[str]]:
    """Return a value as the API server would keep it, and the paths of the fields it drops."""
    gone: list[str] = []
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    if isinstance(value, list):
        parts = [pruned(schema.get("items", {}), v, f"{path}[{i}]") for i, v in enumerate(value)]
        return [part for part, _ in parts], [name for _, names in parts for name in names]
    if not isinstance(value, dict) or not (known or isinstance(rest, dict)):
        return value, gone
    kept = {}
    for name, item in value.items():
        if name in known or isinstance(rest, dict):
            at = f"{path}.{name}" if name in known else f"{path}[{name}]"
            kept[name], inner = pruned(known.get(name, rest), item, at)
            gone += inner
        elif schema.get("x-kubernetes-preserve-unknown-fields"):
            kept[name] = item
        elif item is not None:
            gone.append(f"{path}.{name}")
    return kept, gone


def _fields(schema: Json, value: Mapping[str, Any], path: str) -> Iterator[Problem]:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield Problem(f"{path}.{name}", "Required value: must be required")
    for name, item in value.items():
        if item is None:
            continue
        if name in known:
            yield from problems(known[name], item, f"{path}.{name}")
        elif isinstance(rest, dict):
            yield from problems(rest, item, f"{path}[{name}]")
        # A part of a choice names no fields but those that it is about.
        elif known and "type" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield Problem(f"{path}.{name}", f"Unknown field: the API server drops it{hint}")
    if len(value) > schema.get("maxProperties", len(value)):
        detail = f"Too many: {len(value)}: must have at most {schema['maxProperties']} items"
        yield Problem(path, detail)


def _doubled(schema: Json, items: Iterable[Any], path: str) -> Iterator[Problem]:
    keys, seen = schema.get("x-kubernetes-list-map-keys", ()), set[str]()
    for index, item in enumerate(items if keys else ()):
        fields = schema["items"]["properties"]
        held = {key: mapping(item).get(key, fields[key].get("default")) for key in keys}
        shown = json.dumps(held, separators=(",", ":"))
        if shown in seen:
            yield Problem(f"{path}[{index}]", f"Duplicate value: {shown}")
        seen.add(shown)


def _scalar(schema: Json, value: Any, path: str) -> Iterator[Problem]:
    if value not in schema.get("enum", (value,)):
        yield Problem(path, unsupported(value, schema["enum"]))
    for bound, beyond, than in (("minimum", lt, "greater"), ("maximum", gt, "less")):
        if beyond(value, schema.get(bound, value)):
            detail = f"must be {than} than or equal to {schema[bound]}"
            yield Problem(path, invalid(value, detail))
    bits = _BITS.get(schema.get("format", ""))
    if bits and not -(2**bits) <= value < 2**bits:
        yield Problem(path, invalid(value, f"must be of type {schema['format']}"))
    if isinstance(value, str):
        yield from _text(schema, value, path)


def _text(schema: Json, value: str, path: str) -> Iterator[Problem]:
    pattern = schema.get("pattern", "")
    if not re.search(pattern, value):
        known = "is not a quantity; write for example 500m, 2 or 16Gi"
        texts = (quantity.PATTERN, quantity.AMOUNT)
        detail = known if pattern in texts else f"must match {pattern}"
        yield Problem(path, invalid(value, detail))
    if len(value) < schema.get("minLength", 0):
        yield Problem(path, invalid(value, f"must have at least {schema['minLength']} characters"))
    if len(value) > schema.get("maxLength", len(value)):
        detail = f"Too long: may not be more than {schema['maxLength']} characters"
        yield Problem(path, detail)
    if schema.get("format") == "date-time" and parse_time(value) is None:
        yield Problem(path, invalid(value, "must be a time like 2030-01-31T12:00:00Z"))


def unsupported(value: object, supported: Iterable[str]) -> str:
    """Return the detail of a Problem for a value outside its set."""
    listed = ", ".join(f'"{name}"' for name in supported)
    return f"Unsupported value: {_shown(value)}: supported values: {listed}"


def invalid(value: object, detail: str) -> str:
    """Return the detail of a Problem for a value that cannot be."""
    return f"Invalid value: {_shown(value)}: {detail}"


def _shown(value: object) -> str:
    """Return a value as the API server's errors quote it; a list or map by its type."""
    if isinstance(value, str | int | float | bool | None):
        return json.dumps(value)
    return '"array"' if isinstance(value, list) else '"object"'
