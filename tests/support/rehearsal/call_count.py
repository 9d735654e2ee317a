# SPDX-License-Identifier: Apache-2.0
"""What something costs, in a way that is the same on every machine."""

from __future__ import annotations

import sys


def calls(work):
    """Return how many functions are called: unlike time, it is the same on every machine."""
    made = 0

    def count(_frame, event, _argument):
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made
