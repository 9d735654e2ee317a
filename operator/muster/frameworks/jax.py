# SPDX-License-Identifier: Apache-2.0
"""JAXJob: workers that find each other at the first one, the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from muster.api import jobs
from muster.api.kinds import Kind
from muster.api.model import Job, PodView, Replica
from muster.api.status import ReplicaStatus
from muster.frameworks import master_worker
from muster.frameworks.base import (
    Environment,
    Framework,
    Life,
    Operator,
    Outcome,
    Pods,
    Roles,
    variable,
)


def _environment(job: Job, _replica: Replica, _domain: str) -> Environment:
    common = (
        master_worker.UNBUFFERED,
        variable("COORDINATOR_PORT", master_worker.port_of(JAX, job, master_worker.WORKER)),
        variable("COORDINATOR_ADDRESS", master_worker.first_of(job, master_worker.WORKER)),
        variable("NUM_PROCESSES", job.total),
    )
    return Environment(entries=lambda index: (*common, variable("PROCESS_ID", index)))


def _outcome(
    job: Job,
    counts: Mapping[str, ReplicaStatus],
    _pods: Sequence[PodView],
    excused: frozenset[str],
) -> Sequence[Outcome]:
    return master_worker.outcome(job, counts, excused)


JAX: Final = Framework(
    api=Kind(
        name="JAXJob",
        plural="jaxjobs",
        spec=jobs.JAXJobSpec,
        spec_field="jaxReplicaSpecs",
        types=(master_worker.WORKER,),
        scaled=master_worker.WORKER,
    ),
    operator=Operator("jaxjob-controller", metric="jax"),
    roles=Roles(restart_policy="Never", is_master=master_worker.master_or_first),
    pods=Pods(container="jax", port_name="jaxjob-port", port=6666, environment=_environment),
    life=Life(outcome=_outcome, selectors=True),
)
