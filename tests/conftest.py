# SPDX-License-Identifier: Apache-2.0
"""How many cases Hypothesis draws, and what is run first.

`pytest --hypothesis-profile=nightly` draws thousands of cases.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# How long a case takes says more about the machine than about the code.
settings.register_profile("quick", deadline=None)
settings.register_profile(
    "nightly",
    deadline=None,
    max_examples=5000,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, so that no process has one left when the others are done."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
