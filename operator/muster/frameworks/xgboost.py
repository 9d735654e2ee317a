# SPDX-License-Identifier: Apache-2.0
"""XGBoostJob, for XGBoost and LightGBM: a master that tracks the workers, and their addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from muster.api import names
from muster.api.jobs import Kind
from muster.api.model import SHARED_ABOVE, Job, Json, Problem, Replica
from muster.frameworks import base, master_worker
from muster.frameworks.master_worker import MASTER, WORKER

_ADDRESSES: Final = "WORKER_ADDRS"


def _addresses(job: Job) -> str:
    """Return the names by which the workers are found: all pods but one, the master."""
    workers = (names.child(job.name, WORKER.lower(), i) for i in range(job.total - 1))
    return ",".join(f"{name}{job.under}" for name in workers)


def _environment(job: Job, replica: Replica, _domain: str) -> base.Environment:
    masters = job.replica(MASTER)
    # Ranks go on behind the masters, of which rank 0 runs the tracker.
    first = 0 if masters is None or replica.type == MASTER else masters.replicas
    before = (
        base.variable("MASTER_PORT", master_worker.port_of(XGBOOST, job, MASTER)),
        base.variable("MASTER_ADDR", master_worker.first_of(job, MASTER)),
        base.variable("WORLD_SIZE", job.total),
    )
    after = (master_worker.UNBUFFERED, *_workers(job))
    return base.Environment(entries=lambda i: (*before, base.variable("RANK", first + i), *after))


def _workers(job: Job) -> tuple[Json, ...]:
    if job.total <= 1:
        return ()
    addresses = base.referred(_ADDRESSES, _config_name(job), names.XGBOOST_WORKERS_KEY)
    if not base.shares(job):
        addresses = base.variable(_ADDRESSES, _addresses(job))
    return base.variable("WORKER_PORT", master_worker.port_of(XGBOOST, job, WORKER)), addresses


def _config_name(job: Job) -> str:
    return f"{names.flat(job.name)}-{names.XGBOOST_CONFIG_SUFFIX}"


def _configs(job: Job, _domain: str) -> Mapping[str, Mapping[str, str]]:
    if not base.shares(job):
        return {}
    return {_config_name(job): {names.XGBOOST_WORKERS_KEY: _addresses(job)}}


def _outcome(job: Job, seen: base.Progress) -> Sequence[base.Outcome]:
    """Return the conditions by the master or any failed pod; Running first, as users know it."""
    runs = master_worker.running(job, alone=False)
    master = job.replica(MASTER)
    if master is not None and seen.counts[MASTER].succeeded >= master.replicas:
        return runs, master_worker.succeeded(job, alone=False)
    failed = tuple(master_worker.failure(job, seen, seen.excused))
    if failed:
        return (runs, *failed)
    return (runs,) if MASTER in seen.counts and seen.counts[MASTER].active else ()


def _validate(job: Job, _domain: str) -> Iterator[Problem]:
    if job.replica(MASTER) is None:
        path = f"spec.{XGBOOST.spec_field}[{MASTER}]"
        yield Problem(path, "Required value: must be present")
    if job.total > SHARED_ABOVE:
        size = len(f"{_ADDRESSES}={_addresses(job)}") + 1
        yield from base.too_long(XGBOOST, job, _ADDRESSES, size)


XGBOOST: Final = base.Framework(
    api=Kind(
        name="XGBoostJob",
        plural="xgboostjobs",
        short="xgbj",
        spec_field="xgbReplicaSpecs",
        types=(MASTER, WORKER),
        single=(MASTER,),
    ),
    operator=base.Operator("xgboostjob-controller", metric="xgboost"),
    roles=base.Roles(restart_policy="Never", is_master=master_worker.master_only),
    pods=base.Pods(
        container="xgboost",
        port_name="xgboostjob-port",
        port=9999,
        environment=_environment,
        configs=_configs,
    ),
    life=base.Life(outcome=_outcome),
    spec=base.Spec(validate=_validate),
)
