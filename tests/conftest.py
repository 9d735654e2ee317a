# SPDX-License-Identifier: Apache-2.0
"""How many cases Hypothesis draws, what is run first, and what is run beside nothing else.

`pytest --hypothesis-profile=nightly` draws thousands of cases.
"""

from __future__ import annotations

import fcntl
import gc
from collections import Counter
from collections.abc import Generator
from typing import IO

import pytest
from hypothesis import HealthCheck, settings

from muster.api.model import nothing

# How long a case takes says more about the machine than about the code.
settings.register_profile("quick", deadline=None)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=5000,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("quick")

YOUNG = 20_000
"""New objects after which garbage is looked for, as many as in the operator: at Python's 700 that
took an eighth of all time."""
gc.set_threshold(YOUNG)
LONG = 40
"""Seconds that a long file takes which does not say."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, so that no process has one left when the others are done."""
    tests = Counter(item.path for item in items)
    # Whoever gets a file of one test gets the next one with it.
    items.sort(key=lambda i: (has(i, "punctual") and 1000 - tests[i.path], -_seconds(i)))


def _seconds(item: pytest.Item) -> int:
    """Return how long the file of a story takes, roughly; 0 where that is not long."""
    mark = item.get_closest_marker("long")
    return 0 if mark is None else mark.args[0] if mark.args else LONG


def pytest_collection_finish() -> None:
    """Leave what stays to the end to no collector: it would look at all of it over and over."""
    gc.collect()
    gc.freeze()


class Turn:
    """What a process holds while it has stories that may be late: others wait with those that
    may not, until nobody holds it any more.
    """

    def __init__(self) -> None:
        self._file: IO[str] | None = None
        self._quiet = False

    def take(self, item: pytest.Item) -> None:
        """Wait until it is the turn of this story."""
        if self._file is None:
            self._file = (item.config.cache.mkdir("stories") / "turn").open("w")
            fcntl.flock(self._file, fcntl.LOCK_SH)
        if has(item, "punctual") and not self._quiet:
            for step in (fcntl.LOCK_UN, fcntl.LOCK_EX, fcntl.LOCK_UN):
                fcntl.flock(self._file, step)
            self._quiet = True

    def end(self) -> None:
        """Have no more stories."""
        if self._file is not None:
            self._file.close()


TURN = Turn()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Begin a punctual story when all processes are done with those that are not.

    Outside of all else, so that it is not the story's own time that it waits.
    """
    if has(item, "e2e"):
        TURN.take(item)
    return (yield)


def pytest_runtest_teardown() -> None:
    """Fail where something was put into what stands for all that is empty."""
    assert nothing() == {}


def pytest_sessionfinish() -> None:
    """Let the others have their turn."""
    TURN.end()


def has(item: pytest.Item, mark: str) -> bool:
    """Say whether a test bears that mark."""
    return item.get_closest_marker(mark) is not None
