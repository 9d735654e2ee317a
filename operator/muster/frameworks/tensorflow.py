# SPDX-License-Identifier: Apache-2.0
"""TFJob: parameter servers, workers, an optional chief; the cluster in `TF_CONFIG`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from muster.api import names
from muster.api.jobs import Kind
from muster.api.model import SHARED_ABOVE, Job, Json, PodView, Problem, Replica
from muster.frameworks import base, master_worker

_MASTERS: Final = ("Chief", "Master")
_OLD_VERSIONS: Final = ("v1beta2", "v1beta1", "v1alpha2")
"""Of tf-operator up to 0.5, which kept the run policy's fields at the top of the spec."""


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _address(job: Job, replica: Replica, domain: str) -> Callable[[int], str]:
    """Return index -> host and port of a role's pods."""
    start = f"{names.flat(job.name)}-{replica.role}-"
    end = f"{base.beyond(job, domain)}:{base.port_of(TENSORFLOW, replica)}"
    return lambda index: f"{start}{index}{end}"


def _addresses(job: Job, replica: Replica | None, domain: str) -> list[str]:
    return list(map(_address(job, replica, domain), range(replica.replicas))) if replica else []


def _cluster(job: Job, domain: str) -> str:
    """Return the JSON of every role's addresses, roles in alphabetical order."""
    # As Go writes a map: byte for byte what tf-operator's users had.
    roles = sorted(job.replicas, key=lambda replica: replica.role)
    return _compact({r.role: _addresses(job, r, domain) for r in roles})


def _task(role: str, index: int) -> str:
    return _compact({"type": role, "index": index})


def _sparse(job: Job, replica: Replica, domain: str) -> Callable[[int], str]:
    """Return what members of a job with dynamic workers are told: itself and its servers."""
    servers = cache(lambda: _addresses(job, job.replica("PS"), domain))
    address = _address(job, replica, domain)

    def value(index: int) -> str:
        own = address(index)
        cluster: Json = {"worker": {}, "ps": []}
        if replica.type == "Worker":
            cluster = {"worker": {str(index): own}, "ps": servers()}
        elif replica.type == "PS":
            cluster = {"worker": {}, "ps": [own]}
        return f'{{"cluster":{_compact(cluster)},"task":{_task(replica.role, index)}}}'

    return value


def _full(cluster: str, role: str, index: int) -> str:
    return f'{{"cluster":{cluster},"task":{_task(role, index)},"environment":"cloud"}}'


def _environment(job: Job, replica: Replica, domain: str) -> base.Environment:
    # As tf-operator: a program alone must not believe that it is part of a cluster.
    if job.total == 1:
        return base.NO_ENVIRONMENT
    if job.options["enableDynamicWorker"]:
        return _with_config(_sparse(job, replica, domain))
    if not base.shares(job):
        # Most passes make no pod.
        cluster = cache(lambda: _cluster(job, domain))
        return _with_config(lambda index: _full(cluster(), replica.role, index))
    shared = base.referred(names.TF_CLUSTER_ENV, _config_name(job), names.TF_CLUSTER_KEY)
    # The kubelet expands it: all addresses stand in one ConfigMap, not in each pod.
    reference = f"$({names.TF_CLUSTER_ENV})"
    return _with_config(lambda index: _full(reference, replica.role, index), shared)


def _with_config(value: Callable[[int], str], *before: Json) -> base.Environment:
    return base.Environment(
        entries=lambda index: (*before, base.variable("TF_CONFIG", value(index))),
        container=TENSORFLOW.pods.container,
    )


def _config_name(job: Job) -> str:
    return f"{names.flat(job.name)}-{names.TF_CLUSTER_SUFFIX}"


def _configs(job: Job, domain: str) -> Mapping[str, Mapping[str, str]]:
    if not base.shares(job) or job.options["enableDynamicWorker"]:
        return {}
    return {_config_name(job): {names.TF_CLUSTER_KEY: _cluster(job, domain)}}


def _is_master(job: Job, replica: Replica, index: int) -> bool:
    if any(r.type in _MASTERS for r in job.replicas):
        return replica.type in _MASTERS
    return replica.type == "Worker" and index == 0


def _is_collective(job: Job) -> bool:
    """Return whether the workers depend on each other: neither servers nor single workers."""
    servers = job.replica("PS")
    return not (job.options["enableDynamicWorker"] or (servers and servers.replicas))


def _outcome(job: Job, seen: base.Progress) -> Sequence[base.Outcome]:
    steps = tuple(_progress(job, seen))
    if any(step.end is names.Condition.SUCCEEDED for step in steps):
        return steps
    # With dynamic workers each may come and go; that one fails is no end of the job.
    ignored = frozenset({"Worker"}) if job.options["enableDynamicWorker"] else frozenset()
    failed = seen.failed(job, seen.excused | ignored)
    if failed is None:
        return steps
    count = seen.counts[failed.type].failed
    text = f"TFJob {job.namespace}/{job.name} has failed because {count} {failed.type} replica(s)"
    return (*steps, base.Outcome(names.Condition.FAILED, f"{text} failed."))


def _deciding(job: Job) -> Sequence[Replica]:
    """Return the roles whose end is the end of the job: the chiefs, else the workers."""
    masters = [role for role in job.replicas if role.type in _MASTERS]
    return masters or [role for role in job.replicas if role.type == "Worker"]


def _progress(job: Job, seen: base.Progress) -> Iterator[base.Outcome]:
    for replica in _deciding(job):
        count, alone = seen.counts[replica.type], replica.type not in _MASTERS
        done = count.succeeded >= replica.replicas
        if done or (alone and _first_worker_decides(job, seen.pods)):
            yield master_worker.succeeded(job, alone=True)
        elif count.active:
            yield master_worker.running(job, alone=True)


def _first_worker_decides(job: Job, pods: Sequence[PodView]) -> bool:
    """Say whether worker 0 has ended well and its end is the job's."""
    return job.options["successPolicy"] != "AllWorkers" and any(
        pod.phase == "Succeeded" and pod.exit_code(TENSORFLOW.pods.container) == 0
        for pod in pods
        if pod.role == "worker" and pod.index == 0 and not pod.deleting
    )


def _validate(job: Job, domain: str) -> Iterator[Problem]:
    path = f"spec.{TENSORFLOW.spec_field}"
    masters = [replica for replica in job.replicas if replica.type in _MASTERS]
    if len(masters) > 1:
        yield Problem(path, "Forbidden: must not have more than 1 Chief or Master role")
    workers = (role for role in _deciding(job) if role.type == "Worker")
    yield from base.has_pods(TENSORFLOW, next(workers, None))
    policy = job.options["successPolicy"]
    if policy not in ("", "AllWorkers"):
        yield base.unsupported("spec.successPolicy", policy, ("", "AllWorkers"))
    if job.total > SHARED_ABOVE:
        longest = max(_longest(job, role, domain) for role in job.replicas if role.replicas)
        yield from base.too_long(TENSORFLOW, job, "TF_CONFIG", longest)


def _longest(job: Job, replica: Replica, domain: str) -> int:
    # The last index of each role has the most digits.
    last = replica.replicas - 1
    if job.options["enableDynamicWorker"]:
        value = _sparse(job, replica, domain)(last)
    else:
        value = _full(_cluster(job, domain), replica.role, last)
    return len(f"TF_CONFIG={value}") + 1


TENSORFLOW: Final = base.Framework(
    api=Kind(
        name="TFJob",
        plural="tfjobs",
        short="tfj",
        spec_field="tfReplicaSpecs",
        types=("Chief", "Master", "PS", "Worker", "Evaluator"),
        versions=("v1", *_OLD_VERSIONS),
        single=_MASTERS,
        defaults={version: {"cleanPodPolicy": "Running"} for version in _OLD_VERSIONS},
        old_policy=(
            "cleanPodPolicy",
            "ttlSecondsAfterFinished",
            "activeDeadlineSeconds",
            "backoffLimit",
        ),
    ),
    operator=base.Operator("tfjob-controller", metric="tensorflow"),
    roles=base.Roles(restart_policy="Never", is_master=_is_master),
    pods=base.Pods(
        container="tensorflow",
        port_name="tfjob-port",
        port=2222,
        environment=_environment,
        configs=_configs,
    ),
    life=base.Life(outcome=_outcome, collective=_is_collective),
    spec=base.Spec(
        options={"successPolicy": "", "enableDynamicWorker": False}, validate=_validate
    ),
)
