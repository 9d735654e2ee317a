# SPDX-License-Identifier: Apache-2.0
"""The Workload of a job that Kueue holds, or that MultiKueue dispatches to another cluster."""

from __future__ import annotations

from muster.api import kueue
from muster.api.kueue import Workload
from muster.api.model import Job
from muster.kube.client import ApiError, Kube
from muster.kube.resources import Resource


async def find(kube: Kube, job: Job) -> Workload | str:
    """Return the job's Workload, or why it is unknown. Raises connection errors."""
    try:
        version = kueue.version(await kube.get(f"/apis/{kueue.GROUP}"))
        path = Resource(kueue.GROUP, version, kueue.WORKLOADS).path(job.namespace)
        listing = await kube.get(path, labelSelector=kueue.selector(job))
    except ApiError as error:
        if error.code == 404:
            return "the API of Kueue is not served here"
        return f"its Workload cannot be read: {error.message}"
    return kueue.newest(listing) or "Kueue has not created its Workload"


async def report(kube: Kube, job: Job) -> list[str]:
    """Return the lines on the job's Workload. Raises connection errors."""
    found = await find(kube, job)
    if isinstance(found, str):
        return [found]
    return list(found.lines(dispatched=kueue.is_dispatched(job)))
