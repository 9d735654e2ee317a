# SPDX-License-Identifier: Apache-2.0
"""PaddleJob: workers that find each other at the first one, or servers (Master) and trainers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.api import names
from muster.api.jobs import Kind
from muster.api.model import Job, Json, Notice, Problem, Replica
from muster.frameworks import base, master_worker
from muster.frameworks.master_worker import MASTER, WORKER

_OWN_ADDRESS: Final = "POD_IP_DUMMY"


def _environment(job: Job, replica: Replica, _domain: str) -> base.Environment:
    leading = WORKER if job.replica(MASTER) is None else MASTER
    port = master_worker.port_of(PADDLE, job, leading)
    common = (
        master_worker.UNBUFFERED,
        base.variable("PADDLE_JOB_ID", names.flat(job.name)),
        base.variable("PADDLE_NNODES", job.total),
    )
    # Its own name may not resolve yet when the first pod looks for itself.
    first = (*common, *_own(port), *_role(leading, replica))
    other = base.variable("PADDLE_MASTER", f"{master_worker.first_of(job, leading)}:{port}")
    others = (*common, other, *_role(leading, replica))
    leads = replica.type == leading
    return base.Environment(entries=lambda index: first if leads and not index else others)


def _own(port: int) -> tuple[Json, ...]:
    source = {"fieldRef": {"fieldPath": "status.podIP"}}
    address = base.variable("PADDLE_MASTER", f"$({_OWN_ADDRESS}):{port}")
    return {"name": _OWN_ADDRESS, "valueFrom": source}, address


def _role(leading: str, replica: Replica) -> Iterator[Json]:
    """Yield which part a pod has in a job with servers."""
    if leading == MASTER:
        server = replica.type == MASTER
        yield base.variable("PADDLE_SERVER_NUM" if server else "PADDLE_TRAINER_NUM", 1)


def _notices(job: Job) -> Iterator[Notice]:
    if (master_worker.elastic(job) or {}).get("maxRestarts") is not None:
        text = "spec.elasticPolicy.maxRestarts is ignored; Paddle takes no such setting"
        yield Notice("Normal", names.Event.SCHEDULING_POLICY_IGNORED, text)


def _validate(job: Job, _domain: str) -> Iterator[Problem]:
    yield from base.has_pods(PADDLE, master_worker.deciding(job))
    yield from master_worker.of_span(job)


PADDLE: Final = base.Framework(
    api=Kind(
        name="PaddleJob",
        plural="paddlejobs",
        short="pdj",
        spec_field="paddleReplicaSpecs",
        types=(MASTER, WORKER),
    ),
    operator=base.Operator("paddlejob-controller", metric="paddle"),
    roles=base.Roles(restart_policy="OnFailure", is_master=master_worker.master_only),
    pods=base.Pods(
        container="paddle",
        container_shown='"paddle"',
        port_name="master",
        port=36543,
        environment=_environment,
    ),
    life=base.Life(outcome=master_worker.outcome, selectors=True),
    spec=base.Spec(
        options={"elasticPolicy": None},
        validate=_validate,
        notices=_notices,
    ),
    autoscaler=master_worker.autoscaler,
)
