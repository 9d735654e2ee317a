# SPDX-License-Identifier: Apache-2.0
"""Kubeflow Trainer: a TrainJob with the runtime that it refers to, to a job and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from muster.api import names
from muster.api.edge import mapping, sequence, text
from muster.api.model import Json
from muster.commands.convert import job
from muster.commands.convert.fields import ALWAYS_LOST, Fields, number, without_nothing
from muster.frameworks import Framework
from muster.frameworks.mpi import LAUNCHER, WORKER

API: Final = "trainer.kubeflow.org/v1alpha1"
RUNTIMES: Final = ("TrainingRuntime", "ClusterTrainingRuntime")
MANAGER: Final = "trainer.kubeflow.org/trainjob-controller"
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
_FRAMEWORK: Final = "trainer.kubeflow.org/framework"
_WAIT: Final = "WaitForWorkersReady"
_TRAINER: Final = "trainer"
_NODE: Final = "node"
_JOBSETS: Final = "OnFailure"
"""Default restart policy of a JobSet's pods."""
_ALLOWED: Final = {"Always": "OnFailure", "ExitCode": "Never"}
"""Restart policy of a role -> what a pod of a batch Job may have that is nearest."""
_LISTS: Final = ("command", "args", "env")
MOST_ITEMS: Final = 128
"""Of a command, of its arguments and of variables that a TrainJob may have."""
_INITIALIZER: Final = (
    "a job has no steps before its own",
    "give the templates an init container that fetches it, or run a Job before",
)
_PATCHES: Final = (
    "the runtime is read as it is",
    "write it into the templates of the job that comes out",
)
REASONS: Final = {
    **ALWAYS_LOST,
    "spec.initializer": _INITIALIZER,
    "spec.template.spec.network": ("the job's services are made by its own rules", ""),
    "spec.template.spec.failurePolicy": (
        "failed pods are followed by new ones, by a role's restartPolicy",
        "restartPolicy: ExitCode, and spec.runPolicy.backoffLimit",
    ),
    "spec.template.spec.successPolicy": ("the kind says which pods decide the end", ""),
    "spec.template.spec.replicatedJobs.dependsOn": ("the pods of a gang start together", ""),
    "spec.template.spec.replicatedJobs.template.spec": (
        "the pods of a job belong to no batch Job",
        "spec.runPolicy has limits for the job as a whole",
    ),
    "spec.podGroupPolicy.volcano": (
        "tiers of HyperNodes are not known here",
        f"annotation {names.TOPOLOGY_REQUIRED} or {names.TOPOLOGY_PREFERRED}, a label of nodes",
    ),
    "spec.mlPolicy.flux": ("no kind starts Flux", "an MPIJob starts the same programs"),
    "spec.runtimePatches": _PATCHES,
    "spec.podTemplateOverrides": _PATCHES,
}
_CLEANED: Final = names.CleanPodPolicy.RUNNING.value
_CLEANS: Final = ("a JobSet deletes what still runs and keeps the rest", "")
REASONS_BACK: Final = {
    "": ("no field of a TrainJob or its runtime says this", ""),
    "spec.runPolicy.cleanPodPolicy": _CLEANS,
    "spec.runPolicy.managedBy": ("names an operator of v1 jobs", ""),
    "spec.runPolicy.schedulingPolicy": (
        "a TrainJob is a gang of all its pods, if at all",
        "Kueue's label kueue.x-k8s.io/queue-name has it wait in a queue",
    ),
    "spec.elasticPolicy": ("Trainer has no elastic jobs: all nodes start together", ""),
    "spec.nprocPerNode": ("Trainer takes a number, or counts the GPUs or cores of a node", ""),
    "spec.mainContainer": ("workers are entered by SSH, so by their only sshd", ""),
    "spec.mpiImplementation": ("Trainer writes host lists for OpenMPI alone", ""),
    "spec.cleanPodPolicy": _CLEANS,
}


_KINDS: Final = {
    "torch": "PyTorchJob",
    "mpi": "MPIJob",
    "jax": "JAXJob",
    "xgboost": "XGBoostJob",
}
"""Field of mlPolicy -> the kind of job that does the same."""


def read(source: Fields, runtime: Fields | None) -> Json | None:
    """Read a TrainJob by its runtime; None if that is not there or of no kind known here."""
    meta, spec = job.metadata(source), source.open("spec")
    kind, name = reference(spec)
    if runtime is None:
        said = f"no {kind} {name} was given: no job is made"
        spec.note("spec.runtimeRef", said, "give its file by another -f")
        return None
    labels, of = runtime.open("metadata").texts("labels"), runtime.open("spec")
    runtime.drop("metadata")
    ml = of.open("mlPolicy")
    sort = _sort(ml, labels)
    if sort is None:
        runtime.note("spec.mlPolicy", "of none of the kinds known here: no job is made")
        return None
    framework = job.rules_of(_KINDS[sort])
    nodes = _said(spec.open("trainer"), ml, sort)
    jobset = of.open("template").open("spec")
    convert = _by_mpi if sort == "mpi" else _alike
    roles, options = convert(jobset, framework, ml.open(sort), nodes)
    # Where the workers do not end by themselves, the end of the JobSet deletes them.
    policy = {"cleanPodPolicy": _CLEANED} if sort == "mpi" else {}
    policy |= _run_policy(spec, of)
    return job.assemble(framework, meta, policy, options, roles)


def reference(spec: Fields) -> tuple[str, str]:
    """Return kind and name of the runtime that a TrainJob refers to."""
    ref = spec.open("runtimeRef")
    ref.drop("apiGroup")
    kind = ref.take("kind", str) or "ClusterTrainingRuntime"
    return kind, ref.take("name", str) or ""


def _sort(ml: Fields, labels: Mapping[str, str]) -> str | None:
    """Return the field of mlPolicy that there is, else what the runtime's label says."""
    found = next((name for name in _KINDS if name in ml.names()), labels.get(_FRAMEWORK, ""))
    return found if found in _KINDS else None


def _run_policy(spec: Fields, of: Fields) -> Json:
    jobset = of.open("template").open("spec")
    manager = spec.take("managedBy", str)
    if manager not in (None, MANAGER, names.MANAGED_BY_MULTIKUEUE):
        spec.lose("managedBy", f"{manager} is in charge of TrainJobs alone")
    gang = of.open("podGroupPolicy").open("coscheduling")
    scheduling = {"scheduleTimeoutSeconds": gang.take("scheduleTimeoutSeconds", int)}
    policy = {
        "ttlSecondsAfterFinished": jobset.take("ttlSecondsAfterFinished", int),
        "activeDeadlineSeconds": spec.take("activeDeadlineSeconds", int),
        "backoffLimit": jobset.open("failurePolicy").take("maxRestarts", int),
        "suspend": spec.take("suspend", bool) or None,
        "managedBy": manager if manager == names.MANAGED_BY_MULTIKUEUE else None,
        "schedulingPolicy": without_nothing(scheduling),
    }
    return without_nothing(policy)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


@dataclass(frozen=True, slots=True)
class _Said:
    """What a TrainJob says of its nodes, in place of what its runtime says."""

    sort: str
    count: int | None
    processes: object
    main: Mapping[str, Any]
    """Fields of the container that trains."""
    env: list[Any]
    resources: Json | None

    def override(self, framework: Framework, found: Json, *, leads: bool) -> None:
        """Write it into the container of a template, which leads or is led by one that does."""
        wanted = (framework.pods.container, _NODE, "launcher")
        containers = [c for c in job.containers_of(found) if c.get("name") in wanted]
        for container in containers[:1]:
            said = dict(self.main) if leads else {}
            env = self.env if leads else []
            own, below = set(map(_name_of, env)), sequence(container.get("env"))
            env = [*(each for each in below if _name_of(each) not in own), *env]
            if not (self.sort == "mpi" and leads):
                said["resources"] = self.resources
            container.update(without_nothing({**said, "env": env}))


def _name_of(variable: object) -> str:
    return text(mapping(variable).get("name"))


def _said(trainer: Fields, ml: Fields, sort: str) -> _Said:
    runtimes = ml.take("numNodes", int)
    fields = {"image": str, "command": list, "args": list}
    return _Said(
        sort,
        _first(trainer.take("numNodes", int), runtimes),
        trainer.take("numProcPerNode", object if sort == "torch" else int),
        {name: trainer.take(name, type_) for name, type_ in fields.items()},
        trainer.take("env", list) or [],
        trainer.take("resourcesPerNode", dict),
    )


_Steps = dict[str, tuple[Json, int | None]]


def _steps(jobset: Fields, framework: Framework, said: _Said) -> _Steps:
    """Return template and number of pods of what trains: of the step itself, and of its nodes."""
    steps: _Steps = {}
    for each in jobset.each("replicatedJobs"):
        name, outer = each.take("name", str) or "", each.open("template")
        step = outer.open("metadata").open("labels").take(_STEP, str)
        step = step or (_NODE if name == _NODE else "")
        if step not in (_TRAINER, _NODE) or step in steps:
            each.lose_all(f"{name}: {_INITIALIZER[0]}", _INITIALIZER[1])
            continue
        inner = outer.open("spec")
        count = inner.take("parallelism", int)
        inner.drop("completions")
        each.drop("replicas")
        found = job.template(inner, framework, _NODE)
        said.override(framework, found, leads=step == _TRAINER)
        steps[step] = found, count
    return steps


def _alike(
    jobset: Fields, framework: Framework, policy: Fields, said: _Said
) -> tuple[dict[str, Json], Json]:
    """Return the roles and own fields of a job whose nodes are all alike."""
    steps = _steps(jobset, framework, said)
    found, parallel = steps.get(_TRAINER) or steps.get(_NODE) or ({}, None)
    elastic = _elastic(policy)
    # The first node is the master, where the kind has one.
    first = "Master" if "Master" in framework.api.types and not elastic else ""
    span = elastic.get("maxReplicas"), elastic.get("minReplicas")
    count = _first(said.count, parallel, *span, 1)
    restart = job.restart_policy(found) or _JOBSETS
    roles = {first: job.role(1, restart, found)} if first else {}
    if count > len(roles):
        roles[WORKER] = job.role(count - len(roles), restart, deepcopy(found))
    if said.sort != "torch":
        return roles, {}
    processes = _first(said.processes, policy.take("numProcPerNode", object))
    shown = None if processes is None else str(processes)
    return roles, {"nprocPerNode": shown, "elasticPolicy": elastic or None}


def _elastic(policy: Fields) -> Json:
    source = policy.open("elasticPolicy")
    found = {
        "minReplicas": source.take("minNodes", int),
        "maxReplicas": source.take("maxNodes", int),
        "maxRestarts": source.take("maxRestarts", int),
        "metrics": source.take("metrics", list),
    }
    return without_nothing(found)


def _by_mpi(
    jobset: Fields, framework: Framework, policy: Fields, said: _Said
) -> tuple[dict[str, Json], Json]:
    """Return the roles and own fields of a job with a launcher."""
    steps = _steps(jobset, framework, said)
    leads = policy.take("runLauncherAsNode", bool)
    (launcher, _), (node, parallel) = steps.get(_TRAINER, ({}, 1)), steps.get(_NODE, ({}, None))
    count = _first(said.count, parallel, 1) - bool(leads)
    roles = {LAUNCHER: job.role(1, job.restart_policy(launcher) or _JOBSETS, launcher)}
    if count > 0:
        roles[WORKER] = job.role(count, job.restart_policy(node) or _JOBSETS, node)
    waits = [_waits(each) for each in jobset.each("replicatedJobs")]
    success = jobset.open("successPolicy")
    if success.take("targetReplicatedJobs", list) not in (None, ["launcher"]):
        success.lose("targetReplicatedJobs", "the launcher's end is that of the job")
    success.drop("operator")  # of one
    slots = policy.take("numProcPerNode", int) or 1
    # Trainer takes 1 in a runtime for the number of GPUs.
    slots = _first(said.processes, slots if slots > 1 else _gpus(node) or _gpus(launcher))
    return roles, {
        "slotsPerWorker": slots if slots > 1 else None,
        "runLauncherAsWorker": leads or None,
        "sshAuthMountPath": policy.take("sshAuthMountPath", str),
        "launcherCreationPolicy": _WAIT if any(waits) else None,
        "mpiImplementation": policy.take("mpiImplementation", str) or "OpenMPI",
    }


def _gpus(found: Json) -> int:
    containers = [c for c in job.containers_of(found) if c.get("name") == _NODE]
    resources = [mapping(container.get("resources")) for container in containers]
    amounts = (mapping(each.get(part)) for each in resources for part in ("requests", "limits"))
    counts = (
        number(str(n)) for each in amounts for name, n in each.items() if "gpu" in name.lower()
    )
    return next(filter(None, counts), 0)


def _waits(replicated: Fields) -> bool:
    """Take the dependency of a launcher on its workers' being ready."""
    on = replicated.each("dependsOn")
    if len(on) != 1 or (on[0].peek("status"), on[0].peek("name")) != ("Ready", _NODE):
        return False
    on[0].drop("status", "name")
    return True


def write(source: Fields) -> list[Json]:
    """Return a v1 job as a TrainJob, after the runtime that it needs; empty if none can do it."""
    kind, version = source.take("kind", str), source.take("apiVersion", str)
    sort = next((name for name, of in _KINDS.items() if of == kind), None)
    if sort is None:
        source.note("kind", f"Trainer has no runtime for a {kind}: no TrainJob is made")
        return []
    framework = job.rules_of(_KINDS[sort])
    if version != framework.api_version:
        source.note(
            "apiVersion",
            "the workers of a TrainJob are entered by SSH, not by kubectl",
            "take an image with sshd",
        )
    meta, spec = job.metadata(source), source.open("spec")
    for name in mapping(meta.get("annotations")):
        if name.startswith(names.OWN_PREFIX):  # it stays, for the way back
            source.open("metadata").note(
                f"metadata.annotations[{name}]", "Trainer does not read it"
            )
    roles = _roles(framework, spec.open(framework.spec_field))
    _scheduling(spec.open("runPolicy").open("schedulingPolicy"), roles)
    begins = spec.take("launcherCreationPolicy", str)
    if begins not in (None, "AtStartup", _WAIT):
        spec.lose("launcherCreationPolicy", f"{begins} is not known")
    trainer, replicated = _replicated(sort, roles, waits=begins == _WAIT)
    leads = spec.take("runLauncherAsWorker", bool)
    nodes = sum(role.count for role in roles if role.type != LAUNCHER) + bool(leads)
    own = _mpi(spec, leads=leads) if sort == "mpi" else {}
    processes = _processes(spec) if sort == "torch" else None
    if sort == "mpi":
        processes = spec.take("slotsPerWorker", int) or 1
    trainer = {"numNodes": nodes, **without_nothing({"numProcPerNode": processes}), **trainer}
    name = f"{_name(source.open('metadata'), meta)}-runtime"
    ref = {"apiGroup": API.partition("/")[0], "kind": RUNTIMES[0], "name": name}
    place = {"namespace": meta["namespace"]} if "namespace" in meta else {}
    head = {"name": name, **place, "labels": {_FRAMEWORK: sort}}
    runtime = _runtime(spec.open("runPolicy"), {sort: own}, replicated)
    train = _train(spec.open("runPolicy"), framework)
    return [
        {"apiVersion": API, "kind": RUNTIMES[0], "metadata": head, "spec": runtime},
        {
            "apiVersion": API,
            "kind": "TrainJob",
            "metadata": meta,
            "spec": {"runtimeRef": ref, "trainer": trainer, **train},
        },
    ]


def _scheduling(policy: Fields, roles: Sequence[_Role]) -> None:
    """Take what the pods can say themselves, which they then do, and the least that is all."""
    named = policy.take("priorityClass", str)
    for role in roles if named else ():
        if role.template["spec"].setdefault("priorityClassName", named) != named:
            policy.lose("priorityClass", "the pods have a class of their own")
    least = policy.take("minAvailable", int)
    if least not in (None, sum(role.count for role in roles)):
        policy.lose("minAvailable", *REASONS_BACK["spec.runPolicy.schedulingPolicy"])


def _runtime(policy: Fields, ml: Json, replicated: list[Json]) -> Json:
    timeout = policy.open("schedulingPolicy").take("scheduleTimeoutSeconds", int)
    gang = {"coscheduling": {"scheduleTimeoutSeconds": timeout}}
    limits = {"maxRestarts": policy.take("backoffLimit", int)}
    jobset = {
        "failurePolicy": without_nothing(limits),
        "ttlSecondsAfterFinished": policy.take("ttlSecondsAfterFinished", int),
        "replicatedJobs": replicated,
    }
    return {
        "mlPolicy": ml,
        **({} if timeout is None else {"podGroupPolicy": gang}),
        "template": {"spec": without_nothing(jobset)},
    }


def _train(policy: Fields, framework: Framework) -> Json:
    """Return what of a run policy is said of the TrainJob itself."""
    if policy.peek("cleanPodPolicy") == _CLEANED:
        policy.drop("cleanPodPolicy")
    manager = policy.take("managedBy", str)
    if manager not in (None, framework.managers[0], names.MANAGED_BY_MULTIKUEUE):
        policy.lose("managedBy", *REASONS_BACK["spec.runPolicy.managedBy"])
    seconds = policy.take("activeDeadlineSeconds", int)
    if seconds is not None and seconds < 1:
        policy.lose("activeDeadlineSeconds", "a TrainJob has at least one second")
        seconds = None
    said = {
        "suspend": policy.take("suspend", bool) or None,
        "activeDeadlineSeconds": seconds,
        "managedBy": manager if manager == names.MANAGED_BY_MULTIKUEUE else None,
    }
    return without_nothing(said)


@dataclass(frozen=True, slots=True)
class _Role:
    """A role of the job that is written as a TrainJob."""

    type: str
    count: int
    restart: str
    """One that the pods of a batch Job may have."""
    template: Json


def _roles(framework: Framework, map_: Fields) -> list[_Role]:
    found: list[_Role] = []
    for type_ in framework.api.types:
        if type_ not in map_.names():
            continue
        source = map_.open(type_)
        count = source.take("replicas", int)
        if type_ == LAUNCHER and count not in (None, 1):
            source.lose("replicas", "there is one launcher")
        pod = deepcopy(source.take("template", dict)) or {}
        if not isinstance(pod.get("spec", {}), dict):
            source.lose("template", "its spec is no object")
        pod["spec"] = dict(mapping(pod.get("spec")))
        default = framework.roles.restart_policies.get(type_, framework.roles.restart_policy)
        policy = source.take("restartPolicy", str) or str(default)
        restart = _ALLOWED.get(policy, policy)
        if restart != policy:
            source.lose("restartPolicy", f"{restart} is what a batch Job's pods may have")
        _call_node(source, framework, job.containers_of(pod))
        wanted = framework.roles.counts.get(type_, 1) if count is None else count
        found.append(_Role(type_, wanted, restart, pod))
        if found[0].type != LAUNCHER:
            _compare(source, found[0], found[-1])
    return found


def _compare(source: Fields, first: _Role, role: _Role) -> None:
    """Name what a role has otherwise than the first one, which stands for all nodes."""
    said = f"all nodes of a TrainJob are alike: they are as the {first.type} is"
    if role.template != first.template:
        source.lose("template", said, "tell the node by PET_NODE_RANK in the program")
    if role.restart != first.restart:
        source.lose("restartPolicy", said)


def _call_node(source: Fields, framework: Framework, containers: Sequence[dict[str, Any]]) -> None:
    """Name the container that trains as Trainer does; what has no name here loses its own."""
    names_ = [container.get("name") for container in containers]
    wanted = framework.pods.container
    index = names_.index(wanted) if wanted in names_ else 0
    if names_ and names_[index] not in (wanted, _NODE):
        where = f"{source.at('template')}.spec.containers[{index}].name"
        source.note(where, f"Trainer calls its container {_NODE}, no longer {names_[index]}")
    for container in containers[index : index + 1]:
        container["name"] = _NODE


def _replicated(sort: str, roles: Sequence[_Role], *, waits: bool) -> tuple[Json, list[Json]]:
    """Return what the TrainJob says of its first container, and the parts of the JobSet."""
    if not roles:
        return {}, []
    leads, *others = roles
    containers, said = job.containers_of(leads.template), dict[str, Any]()
    for container in containers[:1]:
        node = next((c for c in containers if c.get("name") == _NODE), container)
        # What is longer than a TrainJob may say stays in the runtime.
        fields = [n for n in _LISTS if len(sequence(node.get(n))) <= MOST_ITEMS]
        said = {"image": node.get("image"), **{name: node.pop(name, None) for name in fields}}
        if sort != "mpi":
            said["resourcesPerNode"] = node.pop("resources", None)
    marked = {_STEP: _TRAINER}
    if sort != "mpi":
        return without_nothing(said), [_part(_NODE, leads, marked)]
    after = [{"name": _NODE, "status": "Ready"}] if waits and others else []
    launcher = {**_part("launcher", leads, marked), **({"dependsOn": after} if after else {})}
    return without_nothing(said), [*(_part(_NODE, other, {}) for other in others), launcher]


def _part(name: str, role: _Role, labels: Mapping[str, str]) -> Json:
    pod = {**role.template, "spec": {**role.template["spec"], "restartPolicy": role.restart}}
    meta = {"metadata": {"labels": labels}} if labels else {}
    return {"name": name, "template": {**meta, "spec": {"template": pod}}}


def _name(written: Fields, meta: Json) -> str:
    """Return the name from which that of the runtime is made."""
    name = text(meta.get("name"))
    for reason in names.dns1035(name) if name else ():
        written.note("metadata.name", f"no TrainJob may have that name: {reason}")
    return name or text(meta.get("generateName")).rstrip("-")


def _processes(spec: Fields) -> int | None:
    written = spec.take("nprocPerNode", str)
    count = number(written or "")
    if count is None and written not in (None, "", "auto"):
        spec.lose("nprocPerNode", *REASONS_BACK["spec.nprocPerNode"])
    return count


def _mpi(spec: Fields, *, leads: bool | None) -> Json:
    spec.take("mpiVersion", str)  # a runtime of Trainer supports SSH only
    implementation = spec.take("mpiImplementation", str)
    if implementation not in (None, "OpenMPI"):
        spec.lose("mpiImplementation", *REASONS_BACK["spec.mpiImplementation"])
    own = {
        "runLauncherAsNode": leads,
        "sshAuthMountPath": spec.take("sshAuthMountPath", str),
    }
    return without_nothing(own)
