# SPDX-License-Identifier: Apache-2.0
"""The number of examples that Hypothesis draws, and the garbage collector of the tests.

`pytest --hypothesis-profile=nightly` draws thousands of examples.
"""

from __future__ import annotations

import gc

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
