# SPDX-License-Identifier: Apache-2.0
"""What the stories read in the statuses of TFJobs, in their history, and in metrics."""

from __future__ import annotations

import itertools
import re
import time
from datetime import datetime
from itertools import groupby

from support.e2e.harness import Api, Json, Operator, condition_types, tfjob


def seconds(text: str) -> float:
    """Return an RFC 3339 time as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def step(job: Json) -> list[str]:
    """Return the conditions in their order, in short: `+Created -Running`."""
    signs = {"True": "+", "False": "-"}
    return [f"{signs[s]}{kind}" for kind, s in condition_types(job)]


def steps(api: Api, since: str, name: str) -> list[list[str]]:
    """Return the lists of conditions that a job has had, in their order."""
    versions = api.history("TFJob", since, name)
    return [k for k, _ in groupby(step(v) for v in versions if v.get("status"))]


def of(job: Json, kind: str) -> Json:
    """Return one condition."""
    found: Json = next(c for c in job["status"]["conditions"] if c["type"] == kind)
    return found


def counted(job: Json, field: str, role: str = "Worker") -> int:
    """Return a number of a role's status."""
    return int(job.get("status", {}).get("replicaStatuses", {}).get(role, {}).get(field, 0))


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
