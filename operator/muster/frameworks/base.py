# SPDX-License-Identifier: Apache-2.0
"""What a framework is: one frozen value, the differences between kinds as data and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from muster.api import names
from muster.api.model import Job, Json, Notice, PodView, Problem, Replica, ReplicaStatus
from muster.frameworks.initcontainer import Waiting

SHARED_FROM: Final = 32
"""Jobs with more replicas keep what all pods must know once, in a ConfigMap."""
LONGEST_VARIABLE: Final = 131_072
"""Bytes that Linux grants one `NAME=value` with its closing NUL (MAX_ARG_STRLEN)."""


class End(StrEnum):
    """What the pods' counts say about the whole job: a condition that becomes True."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One condition that a framework's success and failure rules set, with its message."""

    end: End
    message: str
    reason: str = ""
    """Empty: `<Kind><end>`."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the pods of one role get beyond their template."""

    entries: Callable[[int], Sequence[Json]]
    """Index of a pod -> container env entries `{name, value | valueFrom}`, in order."""
    container: str | None = None
    """Only the first container of that name gets them; None: every container."""


NO_ENVIRONMENT = Environment(entries=lambda _index: ())


def _nothing(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True)
class Framework:
    """One kind of job. Nothing outside its module knows its name.

    `domain` is the operator's cluster domain, possibly empty.
    """

    kind: str
    plural: str
    versions: tuple[str, ...]
    """Served versions, the storage version first."""
    spec_field: str
    """The map of replica specs, e.g. `tfReplicaSpecs`."""
    types: tuple[str, ...]
    """Replica types in canonical order."""
    container: str
    port_name: str
    port: int
    restart_policy: str
    """Default of replicas that name none."""
    operator_name: str
    """Value of the label `training.kubeflow.org/operator-name`."""
    metric: str
    """Value of the metric label `framework`, e.g. `tensorflow`."""
    options: Mapping[str, object]
    """The kind's own spec fields by YAML name, with their defaults."""
    is_master: Callable[[Job, Replica, int], bool]
    """Does this pod carry the label `job-role: master`?"""
    environment: Callable[[Job, Replica, str], Environment]
    """(job, role, domain) -> what its pods get."""
    outcome: Callable[
        [Job, Mapping[str, ReplicaStatus], Sequence[PodView], frozenset[str]], Sequence[Outcome]
    ]
    """(job, counts by type, its pods, types whose failed pods are all being replaced) -> the
    conditions to set, in order; success is decided before failure and ends the list."""
    validate: Callable[[Job, str], Sequence[Problem]]
    """(job, domain) -> what only this kind demands; the rules of all kinds are in `rules`."""
    configs: Callable[[Job, str], Mapping[str, Mapping[str, str]]] = lambda _job, _domain: {}
    """(job, domain) -> name and data of the ConfigMaps that its pods refer to."""
    init_containers: Callable[[Job, Replica, Waiting], Sequence[Json]] = _nothing
    """(job, role, how pods wait for others) -> what follows its pods' own init containers."""
    notices: Callable[[Job], Sequence[Notice]] = _nothing
    """What the author is to be told about how the job was read, beside what all kinds say."""
    autoscaler: Callable[[Job], Json | None] | None = None
    """What a HorizontalPodAutoscaler of the job is to do, without its target; None: there is to
    be none. No function: jobs of this kind never have one."""
    minimum: Callable[[Job], int | None] = lambda _job: None
    """Gang size if the user gives none; None: every pod."""
    container_shown: str = ""
    """The container's name as the message has it that misses it; empty: as it is."""
    selectors: bool = False
    """Does the status carry a pod selector per type (for the scale subresource)?"""

    @property
    def api_version(self) -> str:
        """Version of the stored form, e.g. `kubeflow.org/v1`."""
        return f"{names.GROUP}/{self.versions[0]}"


def first_failure(
    job: Job, counts: Mapping[str, ReplicaStatus], tolerated: frozenset[str]
) -> Replica | None:
    """Return the first role, by name, with failed pods that nothing excuses."""
    failed = (r for r in job.replicas if counts[r.type].failed and r.type not in tolerated)
    return min(failed, key=lambda role: role.type, default=None)


def variable(name: str, value: object) -> Json:
    """Return an environment entry."""
    return {"name": name, "value": str(value)}


def framework_container(framework: Framework, template: Json) -> Json:
    """Return the container that the framework runs in: by name, else the first.

    The template must have a container.
    """
    containers: list[Json] = template["spec"]["containers"]
    return next((c for c in containers if c.get("name") == framework.container), containers[0])


def port_of(framework: Framework, replica: Replica) -> int:
    """Return the port that the role's pods listen on."""
    ports = framework_container(framework, replica.template).get("ports") or ()
    named = (p.get("containerPort") for p in ports if p.get("name") == framework.port_name)
    return next((port for port in named if port), framework.port)


def with_port(framework: Framework, container: Json) -> Json:
    """Return the container with the framework's own port among its ports."""
    ports = container.get("ports") or []
    if any(port.get("name") == framework.port_name for port in ports):
        return container
    own = {"name": framework.port_name, "containerPort": framework.port}
    return {**container, "ports": [*ports, own]}
