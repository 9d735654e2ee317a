# SPDX-License-Identifier: Apache-2.0
"""What a large job would put on the API server, which takes no object beyond a size.

A job whose own object or a companion could not be written is invalid before a pod of it is made.
Nothing here goes through all pods of a job: what each of them adds is measured on a few.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from muster.api.model import Job, Json, PodView, Problem, Replica
from muster.frameworks.base import Companion, Framework

LARGEST: Final = 1_572_864
"""Bytes that etcd takes in one request (1.5 MiB); the API server asks for no more itself."""
MOST_DATA: Final = 1_048_576
"""Bytes that the values of a ConfigMap may have."""
SPARE: Final = 65_536
"""What else stands in an object: metadata, managed fields, conditions, a verdict."""
PER_RESTART: Final = 39
"""A uid in a list, quoted."""
SMALL: Final = 500
"""Of a job with so many pods nothing is too large, whatever its names."""
_FEW: Final = 100


def too_large(
    framework: Framework, spec: Mapping[str, Any], job: Job, domain: str
) -> Iterator[Problem]:
    """Yield what of the job would not fit into an object, with how much it would be."""
    if job.total <= SMALL:
        return
    path = f"spec.{framework.spec_field}"
    own = len(json.dumps(spec))
    # The worst that the status may become: every pod of a whole gang's restart is listed by its
    # uid.
    most = max(0, LARGEST - SPARE - own) // PER_RESTART
    if job.total > most:
        detail = (
            f"Invalid value: {job.total}: must be less than or equal to {most} pods: the status "
            "names each that is restarted, and with it the job would be larger than the API "
            "server takes"
        )
        yield Problem(path, detail)
        return
    for companion in framework.companions:
        limit = MOST_DATA if companion.kind == "ConfigMap" else LARGEST - SPARE
        if companion.wanted(job) and (size := _size(companion, job, domain)) > limit:
            detail = (
                f"Invalid value: {job.total}: its {companion.kind} would take {size} bytes and "
                f"may have {limit}; use fewer replicas or shorter names"
            )
            yield Problem(path, detail)


def _size(companion: Companion, job: Job, domain: str) -> int:
    """Return how many bytes the content has at most, once all pods run."""

    def measured(count: int) -> int:
        """Return the bytes with no more than that many pods of a role, all of them running."""
        roles = [replace(role, replicas=min(role.replicas, count)) for role in job.replicas]
        pods = [_running(job, role, index) for role in roles for index in range(role.replicas)]
        smaller = replace(job, replicas=tuple(roles))
        return _bytes(companion.content(smaller, domain, pods))

    most = max(replica.replicas for replica in job.replicas)
    if most <= _FEW + 1:
        return measured(most)
    few = measured(_FEW)
    # The pods of the indices 99 and 100 differ by one digit, wherever their names stand.
    two, three = few - measured(_FEW - 1), measured(_FEW + 1) - few
    digits = len(str(most - 1)) - 2
    # Linear in the pods, with as many digits for each as the last one has: an upper bound, for the
    # price of three small documents.
    return few + (most - _FEW) * (two + digits * (three - two))


def _running(job: Job, role: Replica, index: int) -> PodView:
    return PodView(
        namespace=job.namespace,
        name=role.pod_name(job.name, index),
        uid="",
        owner=job.as_owner,
        role=role.role,
        index=index,
        phase="Running",
        ready=True,
    )


def _bytes(content: Json) -> int:
    data = content.get("data")
    if isinstance(data, dict):
        return sum(len(text.encode()) for text in data.values())
    return len(json.dumps(content))
