# SPDX-License-Identifier: Apache-2.0
"""What the stories read in the statuses of TFJobs and in metrics, and how late a machine is."""

from __future__ import annotations

import itertools
import re
import time

from support.e2e.harness import Api, Operator, tfjob


def created_pods(operator: Operator) -> int:
    """Return how many pods the process of an operator says it has created."""
    found = re.search(r"^created_pods_total (\S+)$", operator.scrape(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


class Lag:
    """How late all is on this machine at present, by what an operator does in a moment."""

    def __init__(self, api: Api) -> None:
        """Look a first time."""
        self._api, self._numbers, self._worst = api, itertools.count(), 0.0
        self.allowed()

    def allowed(self) -> float:
        """Return the seconds by which something may be late, as late as what was looked at is."""
        name = f"lag-{next(self._numbers)}"
        began = time.monotonic()
        self._api.create(tfjob(name, suspend=True))
        self._api.wait_condition(name, "Suspended")
        self._worst = max(self._worst, time.monotonic() - began)
        return 5 * self._worst
