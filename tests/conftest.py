# SPDX-License-Identifier: Apache-2.0
"""The examples that Hypothesis draws, coroutines as tests, and the garbage collector.

`pytest --hypothesis-profile=nightly` draws thousands of examples.
"""

from __future__ import annotations

import asyncio
import gc
import inspect

import pytest
from hypothesis import HealthCheck, settings

# How long a case takes says more about the machine than about the code.
settings.register_profile("quick", deadline=None, max_examples=30)
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


def pytest_collection_finish() -> None:
    """Leave what stays to the end to no collector: it would look at all of it over and over."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function on an event loop of its own, for two minutes."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def bounded() -> None:
        async with asyncio.timeout(120):
            arguments = pyfuncitem.funcargs
            await pyfuncitem.obj(**{n: arguments[n] for n in pyfuncitem._fixtureinfo.argnames})

    asyncio.run(bounded())
    return True
