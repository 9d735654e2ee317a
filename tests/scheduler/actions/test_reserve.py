# SPDX-License-Identifier: Apache-2.0
"""A stream of small jobs does not starve a large one."""

from __future__ import annotations

import os
from math import inf

from bench import waiting

PERIOD = 60.0
"""Seconds between two cycles: many jobs come and go in each."""
STREAM = int(os.environ.get("MUSTER_STREAM_JOBS", "1000"))
"""Jobs of the stream, of which one in 125 is large; `make nightly` plays ten thousand."""


def test_a_stream_of_jobs():
    """With estimates every large job starts soon: no more than a few running times of others.

    Shows S5.
    """
    found = waiting.waits(STREAM, estimated=True, period=PERIOD)
    assert len(found[True]) > STREAM // 200
    assert max(found[True]) < 3 * waiting.LONGEST
    assert max(found[False]) < 3 * waiting.LONGEST


def test_without_estimates():
    """Large jobs wait for a chance, unless nodes are drained for them."""
    chance = waiting.waits(700, estimated=False, period=PERIOD)[True]
    drained = waiting.waits(700, estimated=False, drains_after=600.0, period=PERIOD)[True]
    assert len(chance) == len(drained) > 3
    assert max(chance) > 3 * waiting.LONGEST
    assert max(drained) < inf
    assert max(drained) < max(chance) / 2
