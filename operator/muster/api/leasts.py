# SPDX-License-Identifier: Apache-2.0
"""How many pods of each role must start together, as an annotation has it: `Master=1,Worker=3`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from muster.api import edge, names

MOST: Final = 2**31 - 1
_EXAMPLE: Final = 'write roles and numbers, e.g. "Master=1,Worker=3"'


def read(annotations: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the minimum of each role, in lower case; empty if not set. Raises ValueError."""
    text = annotations.get(names.MIN_AVAILABLE)
    if text is None:
        return {}
    found: dict[str, int] = {}
    for part in edge.text(text).split(","):
        role, sign, number = (piece.strip() for piece in part.partition("="))
        known = number.isascii() and number.isdecimal() and len(number) < 10
        if not (role and sign and known):
            raise ValueError(f'Invalid value: "{text}": {_EXAMPLE}')
        if role.lower() in found:
            raise ValueError(f'Duplicate value: "{role}": a role stands there once')
        found[role.lower()] = int(number)
    return found


def readable(annotations: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the same, and nothing of what cannot be read."""
    try:
        return read(annotations)
    except ValueError:
        return {}
