# SPDX-License-Identifier: Apache-2.0
"""What a job creates: its pods, their services, the config maps they refer to.

The common parts of a role are built once, by its `PodBuilder`. Documents share them: never modify.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from muster.api import names
from muster.api.model import Job, Json, Replica
from muster.controller.model import Context
from muster.frameworks.base import Environment, Framework, framework_container, labels, with_port
from muster.gang import GangBackend, demand
from muster.gang.base import owner

_POD_POLICY: Final = {names.RestartPolicy.EXIT_CODE: names.RestartPolicy.NEVER}
"""Replica restart policies that no pod knows, and what its pods get instead."""


def document(
    job: Job, api: tuple[str, str], name: str, labels: Mapping[str, str], **body: Any
) -> Json:
    """Return an object of the job's; `api`: its apiVersion and kind."""
    metadata: Json = {"name": name, "namespace": job.namespace, "labels": labels}
    metadata["ownerReferences"] = [owner(job)]
    return {"apiVersion": api[0], "kind": api[1], "metadata": metadata, **body}


@dataclass(frozen=True, slots=True)
class PodBuilder:
    """All that the pods and services of one role have in common."""

    job: Job
    framework: Framework
    replica: Replica
    identity: Mapping[str, str]
    """The labels by which the role's objects are found, without the index."""
    annotations: Mapping[str, str]
    """Annotations of its pods."""
    labels: Mapping[str, str]
    """Labels of its pods, without the index."""
    spec: Json
    containers: tuple[Json, ...]
    environment: Environment
    ports: tuple[Json, ...]
    """Ports of its services."""
    allocated: bool
    """Does the allocator inside place its pods? Otherwise another scheduler does."""
    on_node: bool
    """May its pods be created with a nodeName?"""

    def name(self, index: int) -> str:
        """Return the name of a pod and of its service."""
        return self.replica.pod_name(self.job.name, index)

    def marks(self, index: int) -> dict[str, str]:
        """Return the labels by which the pod of that index, and what is made for it, is found."""
        return {**self.identity, **self._index(index)}

    def unmarked(self, label: int | None, labels: Mapping[str, str]) -> dict[str, str]:
        """Return what the labels of a pod lack; `label` is its index as labels carry it."""
        numbered = self.replica.numbered
        if self.identity.keys() <= labels.keys() and (
            names.REPLICA_INDEX in labels or not numbered
        ):
            return {}
        marks = self.marks((label or 0) - self.framework.roles.first(self.job) if numbered else 0)
        return {key: value for key, value in marks.items() if key not in labels}

    def pod(self, index: int, node: str = "", history: Mapping[str, str] | None = None) -> Json:
        """Return a pod; empty `node`: unbound; `history`: annotations on the pods it replaces."""
        spec = {**self.spec, "containers": self._containers(index)}
        if node and self.on_node:
            spec["nodeName"] = node
        if self.job.service:
            spec["hostname"] = self.name(index)
        labels = {**self.labels, **self._index(index)}
        if self.framework.roles.is_master(self.job, self.replica, index):
            labels[names.JOB_ROLE] = names.JOB_ROLE_MASTER
        made = document(self.job, ("v1", "Pod"), self.name(index), labels, spec=spec)
        if annotations := {**self.annotations, **(history or {})}:
            made["metadata"]["annotations"] = annotations
        return made

    def batch_job(self, *, suspend: bool = False) -> Json:
        """Return the batch Job that makes the role's pod."""
        pod = self.pod(0)
        inherited = ("labels", "annotations")
        metadata = {key: pod["metadata"][key] for key in inherited if key in pod["metadata"]}
        template = {"metadata": metadata, "spec": pod["spec"]}
        # Fields of its template that no batch Job can change.
        kept = {k: value for k, value in pod["spec"].items() if k not in COPIED_ON_RESUME}
        hashed = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
        spec = {
            **self.framework.roles.batch_spec(self.job),
            **({"suspend": True} if suspend else {}),
            "template": template,
        }
        marks = {**self.identity, names.APP: names.flat(self.job.name)}
        api = names.BATCH_API, names.BATCH_JOB
        made = document(self.job, api, self.name(0), marks, spec=spec)
        made["metadata"]["annotations"] = {names.TEMPLATE_HASH: hashed.hexdigest()[:16]}
        return made

    def service(self, index: int) -> Json:
        """Return the headless service of the pod of that index."""
        selector = {**self.identity, names.REPLICA_INDEX: str(index)}
        spec = {"clusterIP": "None", "selector": selector, "ports": list(self.ports)}
        return document(self.job, ("v1", "Service"), self.name(index), selector, spec=spec)

    def _index(self, index: int) -> dict[str, str]:
        first = self.framework.roles.first(self.job)
        return {names.REPLICA_INDEX: str(first + index)} if self.replica.numbered else {}

    def _containers(self, index: int) -> list[Json]:
        entries = self.environment.entries(index)
        targets = self.environment.targets(self.containers) if entries else ()
        own = {entry["name"] for entry in entries}
        return [
            _with_env(container, entries, own) if position in targets else container
            for position, container in enumerate(self.containers)
        ]


def pod_builder(
    job: Job, framework: Framework, replica: Replica, backend: GangBackend, context: Context
) -> PodBuilder:
    """Return what the pods and services of one role have in common."""
    template = framework.pods.template(job, replica, context.cluster_domain)
    meta, spec = template.get("metadata") or {}, template["spec"]
    link = backend.link(job, replica)
    named = demand.pod_class(job, replica, context.gangs.priorities) if backend.embedded else ""
    more = framework.pods.init_containers(job, replica, context.waiting)
    listening = framework_container(framework, template)
    ported = with_port(framework, listening)
    containers = tuple(ported if c is listening else c for c in spec["containers"])
    identity = {**labels(job, framework), names.REPLICA_TYPE: replica.role}
    annotations = {**(meta.get("annotations") or {}), **link.annotations}
    # A template that was copied from a pod may have them.
    of_pod = names.GANG_HAD, names.FAILURES_BEFORE, names.REJECTIONS_BEFORE, names.LAST_REJECTION
    for key in of_pod:
        annotations.pop(key, None)
    policy = _POD_POLICY.get(names.RestartPolicy(replica.restart_policy), replica.restart_policy)
    if job.restarts_whole:
        # A program that starts again in its pod would be alone with that.
        policy = names.RestartPolicy.NEVER
    whole = {
        **spec,
        **({"initContainers": [*(spec.get("initContainers") or ()), *more]} if more else {}),
        **({"priorityClassName": named} if named else {}),
        **({"subdomain": job.service} if job.service else {}),
        **link.spec,
        "restartPolicy": str(policy),
    }
    allocated = backend.embedded and whole.get("schedulerName") in backend.scheduler_names
    if allocated:
        # The allocator treats nodeName in the template as a requirement. Set, it bypasses others.
        whole.pop("nodeName", None)
    return PodBuilder(
        job=job,
        replica=replica,
        framework=framework,
        identity=identity,
        annotations=annotations,
        # The labels by which the pod is found come last: no template may change its owner.
        labels={**(meta.get("labels") or {}), **link.labels, **identity},
        spec=whole,
        containers=containers,
        environment=framework.pods.environment(job, replica, context.cluster_domain),
        ports=tuple(_service_ports(framework, ported.get("ports") or ())),
        allocated=allocated,
        on_node=context.placement == "create"
        and not (spec.get("schedulingGates") or replica.batch),
    )


def pod_builders(
    job: Job, framework: Framework, backend: GangBackend, context: Context
) -> Mapping[str, PodBuilder]:
    """Return the builder of every role, by role, in canonical order."""
    return {r.role: pod_builder(job, framework, r, backend, context) for r in job.replicas}


COPIED_ON_RESUME: Final = ("nodeSelector", "tolerations", "schedulingGates")
"""Of a suspended batch Job's pod spec only these may change."""


def _with_env(container: Json, entries: Sequence[Json], own: set[str]) -> Json:
    # The operator's entries win: a TF_CONFIG out of a template would be that of another job. They
    # come first, as the kubelet expands references to earlier entries only.
    kept = [entry for entry in container.get("env") or () if entry.get("name") not in own]
    return {**container, "env": [*entries, *kept]}


def _service_ports(framework: Framework, ports: Sequence[Json]) -> Iterator[Json]:
    # The server refuses repeated numbers, which containers may have, also under other names.
    named: dict[int, str] = {}
    for port in ports:
        number, name = port["containerPort"], port.get("name") or ""
        if not named.get(number) or name == framework.pods.port_name:
            named[number] = name
    for number, name in named.items():
        yield {"name": name or f"port-{number}", "port": number}
