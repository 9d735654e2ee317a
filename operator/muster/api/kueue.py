# SPDX-License-Identifier: Apache-2.0
"""Kueue's part in a job: its LocalQueue and its Workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.api import names, status
from muster.api.edge import mapping, sequence, text
from muster.api.model import Job
from muster.api.status import Condition

GROUP: Final = "kueue.x-k8s.io"
WORKLOADS: Final = "workloads"
DISPATCHED: Final = "dispatched by MultiKueue"
_JOB_UID: Final = "kueue.x-k8s.io/job-uid"
_SHOWN: Final = ("name", "state", "message")
"""Fields of an admission check."""


def is_dispatched(job: Job) -> bool:
    """Return whether MultiKueue runs the job in another cluster."""
    return job.run_policy.managed_by == names.MANAGED_BY_MULTIKUEUE


def is_held_or_dispatched(job: Job) -> bool:
    """Return whether only the Workload shows why the job waits or where it runs."""
    held = bool(local_queue(job)) and job.run_policy.suspend and not job.status.finished
    return held or is_dispatched(job)


def local_queue(job: Job) -> str:
    """Return the name of the job's LocalQueue, empty without one."""
    return job.labels.get(names.KUEUE_QUEUE, "")


def version(group: object) -> str:
    """Return the version of Kueue's API that the API server prefers, by its document of /apis."""
    return text(mapping(mapping(group).get("preferredVersion")).get("version")) or "v1beta1"


def selector(job: Job) -> str:
    """Return the label selector of the job's Workloads."""
    return f"{_JOB_UID}={job.uid}"


@dataclass(frozen=True, slots=True)
class Workload:
    """What Kueue reports of a job."""

    name: str
    cluster: str = ""
    """Where the job runs; empty: it is not assigned."""
    nominated: tuple[str, ...] = ()
    """Clusters that may be chosen."""
    checks: tuple[str, ...] = ()
    """Admission checks with their state and message."""
    conditions: tuple[Condition, ...] = ()

    @property
    def place(self) -> str:
        """The cluster, in words."""
        if self.cluster:
            return f"on cluster {self.cluster}"
        named = f", nominated: {', '.join(self.nominated)}" if self.nominated else ""
        return f"on no cluster yet{named}"

    def lines(self, *, dispatched: bool = True) -> Iterator[str]:
        """Yield the report for people."""
        yield f"Workload {self.name}, {self.place}" if dispatched else f"Workload {self.name}"
        yield from (f"admission check {each}" for each in self.checks)
        yield from (f"{c.type} {c.status}: {c.message or c.reason}" for c in self.conditions)


def newest(listing: object) -> Workload | None:
    """Return the newest Workload of a list, None for an empty one."""
    found = [each for each in sequence(mapping(listing).get("items")) if isinstance(each, dict)]
    last = max(
        found,
        key=lambda each: text(mapping(each.get("metadata")).get("creationTimestamp")),
        default=None,
    )
    return None if last is None else _parsed(last)


def _parsed(document: Mapping[str, Any]) -> Workload:
    reported = mapping(document.get("status"))
    checks = map(mapping, sequence(reported.get("admissionChecks")))
    return Workload(
        text(mapping(document.get("metadata")).get("name")),
        text(reported.get("clusterName")),
        tuple(filter(None, map(text, sequence(reported.get("nominatedClusterNames"))))),
        tuple(": ".join(filter(None, map(text, map(check.get, _SHOWN)))) for check in checks),
        status.read({"conditions": reported.get("conditions")}).conditions,
    )
