# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md names modules and functions that there are."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import reduce
from pathlib import Path

import pytest

import muster

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
ROOMS = frozenset(module.name for module in pkgutil.iter_modules(muster.__path__) if module.ispkg)
NAMES = sorted(
    name
    for name in set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", PAGE.read_text(encoding="utf-8")))
    if name.split(".")[0] in ROOMS
)


def found(name: str) -> object:
    """Return the module, class, function or method of that name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(("muster", *parts[:length])))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[length:], module)
    raise AssertionError(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_page_names_is_there(name: str) -> None:
    """A reader who looks for it finds it."""
    assert found(name) is not None


def test_the_page_names_every_room() -> None:
    """No package is left out, and the page is short."""
    page = PAGE.read_text(encoding="utf-8")
    assert {room for room in ROOMS if f"`{room}`" in page} == ROOMS
    assert len(page.splitlines()) <= 110
