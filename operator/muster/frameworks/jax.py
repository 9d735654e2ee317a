# SPDX-License-Identifier: Apache-2.0
"""JAXJob: workers that find each other at the first one, the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from muster.api.model import Job, PodView, Replica, ReplicaStatus
from muster.frameworks import master_worker
from muster.frameworks.base import Environment, Framework, Outcome, variable


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
    kind="JAXJob",
    plural="jaxjobs",
    versions=("v1",),
    spec_field="jaxReplicaSpecs",
    types=("Worker",),
    container="jax",
    port_name="jaxjob-port",
    port=6666,
    restart_policy="Never",
    operator_name="jaxjob-controller",
    metric="jax",
    options={},
    is_master=master_worker.master_or_first,
    environment=_environment,
    outcome=_outcome,
    validate=lambda _job, _domain: (),
    selectors=True,
)
