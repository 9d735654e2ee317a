# SPDX-License-Identifier: Apache-2.0
"""Jobs of Kubeflow's own operators, in the versions that they have had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

from muster.api.edge import mapping
from muster.api.model import Json
from muster.commands.convert import job
from muster.commands.convert.fields import ALWAYS_LOST, Fields, number, says, without_nothing
from muster.frameworks import FRAMEWORKS, Framework, loading
from muster.frameworks.mpi import LAUNCHER, WORKER

FLAT: Final = (
    "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit",
    "schedulingPolicy",
)  # fmt: skip
"""Fields of the run policy that stood at the top of the spec once."""
_GPU: Final = "nvidia.com/gpu"
_ID: Final = "an id that the old operator gave the job"
REASONS: Final = {
    **ALWAYS_LOST,
    "spec.mpiDistribution": (
        "an MPIJob of v1 sets variables for Open MPI and Intel MPI alike",
        "for MPICH, write a v2beta1 MPIJob with mpiImplementation: MPICH",
    ),
    "spec.tensorboard": (
        "the operator runs no TensorBoard",
        "run it as a Deployment with the same volume",
    ),
    "spec.tfImage": (
        "it was for parameter servers without a template",
        "give the role PS a template",
    ),
    "spec.terminationPolicy": (
        "which pod ends the job follows from its roles: the chief or master, else worker 0",
        "name that role Chief",
    ),
    "spec.RuntimeId": (_ID, ""),
    "spec.runtimeId": (_ID, ""),
    "spec.backend": ("the program chooses it", "dist.init_process_group(backend=...)"),
    "spec.launcherOnMaster": (
        "the launcher goes where there is room",
        "give the Launcher's template a nodeSelector and tolerations",
    ),
}


def mapped(framework: Framework, version: str = "v1", was: str = "") -> Callable[[Fields], Json]:
    """Return the reader of jobs with a map of roles; `was`: the framework container's old name."""

    def read(source: Fields) -> Json:
        meta, spec = job.metadata(source), source.open("spec")
        policy = _run_policy(spec, framework, framework.api.defaults.get(version, {}))
        known = job.fields_of(framework)
        options = {
            name: spec.pruned(name, known[name])
            for name in known
            if name not in ("runPolicy", framework.spec_field, *FLAT)
        }
        roles = dict(_roles(framework, spec.open(framework.spec_field), was))
        return job.assemble(framework, meta, policy, options, roles)

    return read


def _run_policy(spec: Fields, framework: Framework, defaults: Mapping[str, object]) -> Json:
    """Take the run policy, with the fields of it that stand at the top."""
    known = job.fields_of(framework)["runPolicy"]
    said = {name: spec.take(name, object) for name in FLAT}
    written: Json = {}
    for name in ("RunPolicy", "runPolicy"):  # the first is Go's name of a field without a tag
        said_here = mapping(spec.pruned(name, known))
        for twice in written.keys() & said_here.keys():
            spec.note(
                f"spec.RunPolicy.{twice}", f"spec.{name}.{twice} is there too, and goes first"
            )
        written |= said_here
    policy, overruled = loading.fold(FLAT, {**said, "runPolicy": written})
    for name in overruled:
        spec.lose(name, f"spec.runPolicy.{name} is there too, and goes first")
    return {**{name: defaults[name] for name in defaults if name in FLAT}, **policy}


def _roles(framework: Framework, map_: Fields, was: str) -> Iterator[tuple[str, Json]]:
    known = ", ".join(framework.api.types)
    seen = set()
    for name in map_.names():
        type_ = loading.canonical(framework, name)
        if type_ is None or type_ in seen:
            map_.lose(name, job.NO_SUCH_ROLE, f"{framework.kind} has {known}, each once")
            continue
        seen.add(type_)
        source = map_.open(name)
        found = job.template(source, framework, was)
        yield (
            type_,
            job.role(source.take("replicas", int), source.take("restartPolicy", str) or "", found),
        )


def listed(
    framework: Framework, kind_fields: tuple[str, ...], port_field: str, **policy: str
) -> Callable[[Fields], Json | None]:
    """Return the reader of v1alpha1 jobs, whose roles are a list; `policy`: its defaults."""

    def read(source: Fields) -> Json | None:
        meta, spec = job.metadata(source), source.open("spec")
        scheduler = spec.take("schedulerName", str)
        top_port = _port(spec, port_field)
        roles: dict[str, Json] = {}
        for each in spec.each("replicaSpecs"):
            named = next(filter(None, (each.take(name, str) for name in kind_fields)), "MASTER")
            type_ = loading.canonical(framework, named)
            if type_ is None or type_ in roles:
                each.lose_all(f"{job.NO_SUCH_ROLE}: {named}")
                continue
            port = _port(each, port_field)
            found = job.template(each, framework)
            job.listen(framework, found, port if port is not None else top_port)
            if scheduler and isinstance(found.get("spec"), dict):
                found["spec"].setdefault("schedulerName", scheduler)
            replicas = each.take("replicas", int)
            roles[type_] = job.role(replicas, job.restart_policy(found), found)
        _chief(spec, roles)
        return job.assemble(framework, meta, policy, {}, roles)

    return read


def _port(source: Fields, name: str) -> int | None:
    """Take a number, whether or not it is written as a text."""
    value = source.take(name, object)
    found = None if isinstance(value, bool) else number(str(value))
    if found is None and says(value):
        source.lose(name, "is no number")
    return found


def _chief(spec: Fields, roles: Json) -> None:
    """Take a termination policy that says what the roles say."""
    policy = spec.open("terminationPolicy")
    for name in {"chief", "master"} & set(policy.names()):
        chief = policy.open(name)
        who = (chief.take("replicaName", str) or "MASTER").lower()
        index = chief.take("replicaIndex", int) or chief.take("replicaRank", int) or 0
        leads = "master" if {"Master", "Chief"} & roles.keys() else "worker"
        if (who, index) != (leads, 0):
            policy.lose(name, *REASONS["spec.terminationPolicy"])


_LIMIT_BEFORE_V1: Final = {"backoffLimit": 6}


def _before_v1(roles: Mapping[str, Json]) -> None:
    """Write out how the pods of an MPIJob ran: of a batch Job one, the others of a StatefulSet."""
    for type_, role in roles.items():
        never = role.get("restartPolicy") == "Never"
        role["restartPolicy"] = "Always" if type_ == WORKER else "Never" if never else "OnFailure"
        # Workers slept, whatever their command. Without one they do so again.
        for container in job.containers_of(role.get("template", {}))[: type_ == WORKER]:
            for name in ("command", "args"):
                container.pop(name, None)


def launcher_and_workers(source: Fields) -> Json:
    """Read an MPIJob of v1alpha2."""
    found = mapped(FRAMEWORKS["MPIJob"])(source)
    spec = found["spec"]
    spec["runPolicy"] = {**_LIMIT_BEFORE_V1, **spec.get("runPolicy", {})}
    _before_v1(spec["mpiReplicaSpecs"])
    return found


def one_template(source: Fields) -> Json:
    """Read an MPIJob of v1alpha1: one template, for the launcher and all workers."""
    framework: Final = FRAMEWORKS["MPIJob"]
    meta, spec = job.metadata(source), source.open("spec")
    workers, units = _workers(spec)
    resource = spec.take("processingResourceType", str) or _GPU
    slots = spec.take("slotsPerWorker", int)
    launcher = job.template(spec, framework)
    written = job.restart_policy(launcher)
    worker, limits = deepcopy(launcher), dict[str, Any]()
    for container in job.containers_of(worker)[:1]:
        resources = mapping(container.get("resources"))
        limits = dict(mapping(resources.get("limits")))
        if units is not None:
            limits[resource] = units
            container["resources"] = {**resources, "limits": limits}
    for container in job.containers_of(launcher):
        # It only waits. A device, on which its workers compute, has a domain in its name.
        resources = mapping(container.pop("resources", None))
        parts = {
            part: {name: v for name, v in mapping(amounts).items() if "/" not in name}
            for part, amounts in resources.items()
        }
        container.update(without_nothing({"resources": without_nothing(parts)}))
    roles = {LAUNCHER: job.role(1, written, launcher), WORKER: job.role(workers, "", worker)}
    _before_v1(roles)
    # In the end the StatefulSet was scaled to 0.
    defaults = {"cleanPodPolicy": "Running", **_LIMIT_BEFORE_V1}
    if spec.take("launcherOnMaster", bool):
        spec.lose("launcherOnMaster", *REASONS["spec.launcherOnMaster"])
    options = {
        "slotsPerWorker": slots or units or number(str(limits.get(resource, ""))),
        "mainContainer": spec.take("mainContainer", str),
    }
    return job.assemble(framework, meta, _run_policy(spec, framework, defaults), options, roles)


def _workers(spec: Fields) -> tuple[int | None, int | None]:
    """Take how many workers there are, and how many devices each has beside its template's."""
    for total_field, node_field in (
        ("gpus", "gpusPerNode"),
        ("processingUnits", "processingUnitsPerNode"),
    ):
        total = spec.take(total_field, int)
        if total is None:
            continue
        each = spec.take(node_field, int)
        if each is None:
            spec.note(
                spec.at(node_field),
                "a flag of the old operator said how many devices a node has; taken to be 1",
                "write it into the old job and convert it again",
            )
        per_node = min(each or 1, total) or 1
        if total % per_node:
            spec.note(spec.at(total_field), f"is no multiple of {per_node}: the rest is left out")
        return total // per_node, per_node
    return spec.take("replicas", int), None
