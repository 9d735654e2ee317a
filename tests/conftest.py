# SPDX-License-Identifier: Apache-2.0
"""How many cases Hypothesis draws: `pytest --hypothesis-profile=nightly` draws thousands."""

from __future__ import annotations

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
