# SPDX-License-Identifier: Apache-2.0
"""JAXJob: workers that find each other at the first one, the coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.api.jobs import Kind
from muster.api.model import Job, Problem, Replica
from muster.frameworks import base, master_worker


def _environment(job: Job, _replica: Replica, _domain: str) -> base.Environment:
    common = (
        master_worker.UNBUFFERED,
        base.variable("COORDINATOR_PORT", master_worker.port_of(JAX, job, master_worker.WORKER)),
        base.variable("COORDINATOR_ADDRESS", master_worker.first_of(job, master_worker.WORKER)),
        base.variable("NUM_PROCESSES", job.total),
    )
    return base.Environment(entries=lambda index: (*common, base.variable("PROCESS_ID", index)))


def _validate(job: Job, _domain: str) -> Iterator[Problem]:
    return base.has_pods(JAX, master_worker.deciding(job))


JAX: Final = base.Framework(
    api=Kind(
        name="JAXJob",
        plural="jaxjobs",
        short="jaxj",
        spec_field="jaxReplicaSpecs",
        types=(master_worker.WORKER,),
    ),
    operator=base.Operator("jaxjob-controller", metric="jax"),
    roles=base.Roles(restart_policy="Never", is_master=master_worker.master_or_first),
    pods=base.Pods(container="jax", port_name="jaxjob-port", port=6666, environment=_environment),
    life=base.Life(outcome=master_worker.outcome, selectors=True),
    spec=base.Spec(validate=_validate),
)
