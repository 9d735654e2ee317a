# SPDX-License-Identifier: Apache-2.0
"""The JSON edge: values of unknown shape in, values of a known type out; nothing raises."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from muster.api import quantity

_FIRST: Final = datetime.min.replace(tzinfo=UTC).timestamp()
_LAST: Final = datetime.max.replace(tzinfo=UTC).timestamp()
_INT64: Final = 2**63
INT32: Final = (-(2**31), 2**31 - 1)
MAX_MESSAGE_CHARS: Final = 4096
"""Characters of a message that are kept: a job's author decides how many errors the job has, and
the API server stores no status that is too large."""


def parse_time(value: object) -> float | None:
    """Return RFC 3339 as epoch seconds; None: no time, or not of the writable years 1 to 9999."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    # Kubernetes writes UTC; a time without a zone is read the same way on every machine.
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return seconds if _FIRST <= seconds < _LAST else None


def moment(seconds: float) -> float:
    """Return a time, or infinity for one after the year 9999: that is as good as never."""
    return seconds if seconds < _LAST else math.inf


def format_time(seconds: float) -> str:
    """Return epoch seconds as RFC 3339 in UTC, fractions cut, within the years 1 to 9999."""
    written = math.floor(min(max(seconds, _FIRST), _LAST - 1))
    return f"{datetime.fromtimestamp(written, UTC).isoformat()[:19]}Z"


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    """Return the value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def cut(message: str, longest: int = MAX_MESSAGE_CHARS) -> str:
    """Return a message of at most so many characters; a longer one is cut and ends in `...`."""
    return message if len(message) <= longest else f"{message[: longest - 3]}..."


def integer(value: object) -> int | None:
    """Return the value if it is a whole number of at most 64 bits, else None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -_INT64 <= value < _INT64 else None


def without_nulls(value: Any) -> Any:
    """Return a value as stored: without null fields. Null items stay: the server rejects them."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def count(value: object) -> int:
    """Return the number that a text of at most nine digits spells, 0 for anything else."""
    spelled = text(value)
    return int(spelled) if spelled.isdecimal() and len(spelled) < 10 else 0


def within(value: object, least: int, most: int) -> int:
    """Return the value if it is a whole number, `least` or `most` if it is beyond these."""
    return min(max(integer(value) or 0, least), most)


def covers(there: Any, wanted: Any) -> bool:
    """Return whether a stored value has all that is wanted.

    The API server adds defaults, leaves out what is off, and writes quantities in its own way.
    """
    if isinstance(wanted, Mapping):
        known = isinstance(there, Mapping)
        return known and all(covers(there.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        alike = isinstance(there, list) and len(there) == len(wanted)
        return alike and all(map(covers, there, wanted))
    if wanted is False and there is None:  # Go leaves a false out when it writes JSON
        return True
    return bool(there == wanted) or _same_amount(there, wanted)


def _same_amount(there: Any, wanted: Any) -> bool:
    """Say whether two spellings mean one quantity, as 1000m and 1 do."""
    try:
        return quantity.parse(there) == quantity.parse(wanted)
    except (ValueError, TypeError):
        return False


def dropped(there: Any, wanted: Any, at: str = "") -> Iterator[str]:
    """Yield the paths of the fields that were written and are not in what was stored."""
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        for key, value in wanted.items():
            path = f"{at}.{key}" if at else key
            if key in there:
                yield from dropped(there[key], value, path)
            elif value is not None and value is not False:  # Go leaves out what is off
                yield path
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        for index, (one, value) in enumerate(zip(there, wanted, strict=True)):
            yield from dropped(one, value, f"{at}[{index}]")


def missing(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that were written and are not in what was stored, nested as they were."""
    found: dict[str, Any] = {}
    for key, value in wanted.items():
        if key not in there:
            if value is not None:  # a merge patch removes the field
                found[key] = value
        elif inner := missing(mapping(there[key]), mapping(value)):
            found[key] = inner
    return found


def merged(there: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with the fields of another that it does not have itself."""
    found = dict(there)
    for key, value in more.items():
        if key not in found:
            found[key] = value
        elif isinstance(found[key], dict):
            found[key] = merged(found[key], mapping(value))
    return found


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that turns one document into the other."""
    # A null takes a key away; a merge patch has no other word for that.
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = difference(old, value)
            if inner:
                patch[key] = inner
        elif key not in before or old != value:
            patch[key] = value
    return patch
