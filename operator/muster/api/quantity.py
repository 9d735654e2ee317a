# SPDX-License-Identifier: Apache-2.0
"""The one door for resource quantities: Kubernetes' texts in, plain integers out, and back.

Units: milli-CPU; bytes of memory, storage and huge pages; thousandths of all else: no floats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import MAX_EMAX, MIN_EMIN, ROUND_UP, Context
from fractions import Fraction
from functools import lru_cache
from typing import Final

LIMIT: Final = 2**53
"""No amount is larger: more than any node has, and a thousand of them still fit 64 bits."""

PATTERN: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
"""What the API server takes for a quantity, as upstream's schemas say it."""
AMOUNT: Final = (
    r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$"
)
"""The same of what cannot be less than nothing, as Kubernetes itself would read it."""

_TEXT = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DIGITS: Final = 40
"""Numbers of more digits, before the point or behind it, differ from these in nothing."""
_BOUNDED: Final = Context(2 * _DIGITS, ROUND_UP, MIN_EMIN, MAX_EMAX, traps=[])
"""Up, as everything here is rounded."""
_DECIMAL = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18),
}  # fmt: skip
_BINARY = {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)}
_SCALE = _DECIMAL | _BINARY
_BYTES = frozenset({"memory", "storage", "ephemeral-storage"})


def parse(quantity: str | float) -> Fraction:
    """Return the value, exact within 40 digits and bounded; ValueError names an invalid text."""
    match = _TEXT.fullmatch(str(quantity)) if not isinstance(quantity, bool) else None
    if match is None:
        shown = str(quantity)[:_DIGITS]
        raise ValueError(f'"{shown}" is not a quantity; write for example 500m, 2 or 16Gi')
    number = _decimal(match["number"], match["exponent"] or "0") * _SCALE[match["suffix"] or ""]
    return -number if match["sign"] == "-" else number


def _decimal(number: str, exponent: str) -> Fraction:
    # Users write the text: the work is bounded before an integer of any length is made of it.
    value = _BOUNDED.create_decimal(f"{number}e{exponent}")
    size = value.adjusted() + 1 if value.is_finite() else math.inf
    if value and abs(size) > _DIGITS:
        return Fraction(10) ** (_DIGITS if size > 0 else -_DIGITS)
    return Fraction(value)


def floored(amounts: Mapping[str, str]) -> dict[str, str]:
    """Return the amounts with none below zero. Raises ValueError for what is no quantity."""
    return {r: text if parse(text) > 0 else "0" for r, text in amounts.items()}


def in_bytes(resource: str) -> bool:
    """Say whether amounts of the resource are bytes (otherwise they are thousandths)."""
    name = resource.removeprefix("requests.").removeprefix("limits.")
    return name in _BYTES or name.startswith("hugepages-") or name.endswith("/requests.storage")


def units(resource: str, quantity: str | float) -> int:
    """Return the amount in the resource's unit, rounded up, at most LIMIT.

    Raises ValueError, naming the text, for what is no quantity or is negative.
    """
    # Of a long text, which is anybody's, nothing is kept.
    long = isinstance(quantity, str) and len(quantity) > _DIGITS
    amount = (_reckoned if long else _amount)(quantity, thousandths=not in_bytes(resource))
    if amount < 0:
        shown = str(quantity)[:_DIGITS]
        raise ValueError(f'"{shown}" is negative; an amount of {resource} is 0 or more')
    return amount


def is_above_limit(resource: str, quantity: str | float) -> bool:
    """Return whether `units` reduces the amount to LIMIT. Raises ValueError as `parse` does."""
    return parse(quantity) * (1 if in_bytes(resource) else 1000) > LIMIT


def _reckoned(quantity: str | float, *, thousandths: bool) -> int:
    value = parse(quantity) * (1000 if thousandths else 1)
    if value < 0:
        return -1
    # Up, as Kubernetes does: rounded down, a request for a part of the least would be none.
    return min(-(-value.numerator // value.denominator), LIMIT)


# Whatever the resource is called: anybody may invent thousands, each of one.
_amount: Final = lru_cache(maxsize=4096, typed=True)(_reckoned)


def format(resource: str, amount: int) -> str:  # noqa: A001 - always used as quantity.format
    """Return the shortest exact text of an amount in the resource's unit, e.g. `1500m`, `16Gi`."""
    if not in_bytes(resource):
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    texts = [str(amount)]
    texts += [_scaled(amount, suffix) for suffix in reversed(_BINARY)]
    texts += [_scaled(amount, suffix) for suffix in "EPTGMk"]
    # Of equally short texts the first: plain bytes, then the largest binary suffix.
    return min((text for text in texts if text), key=len)


def number(resource: str, amount: int) -> float:
    """Return an amount in the resource's unit as a number of bytes, CPUs, devices or objects."""
    return amount if in_bytes(resource) else amount / 1000


def _scaled(amount: int, suffix: str) -> str:
    whole, rest = divmod(amount, _SCALE[suffix].numerator)
    return f"{whole}{suffix}" if whole and not rest else ""
