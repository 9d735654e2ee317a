# SPDX-License-Identifier: Apache-2.0
"""Volcano's jobs: tasks of any name, whose plugins say which framework they belong to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import names
from muster.api.edge import sequence
from muster.api.model import Json
from muster.commands.convert import job
from muster.commands.convert.fields import ALWAYS_LOST, Fields, number, says, without_nothing
from muster.frameworks import FRAMEWORKS, Framework, loading
from muster.frameworks.mpi import LAUNCHER, WORKER

_POLICY: Final = (
    "a role's restartPolicy, backoffLimit and the kind's own end stand for policies",
    f"annotation {names.RESTART}: {names.RESTART_GANG} restarts all when one fails",
)
_DEPENDS: Final = (
    "the pods of a gang start together",
    "let the program wait for its peers; an MPIJob has launcherCreationPolicy",
)
REASONS: Final = {
    **ALWAYS_LOST,
    "spec.plugins": ("the kind itself does what this plugin does, or nothing does", ""),
    "spec.plugins.env": (
        f"VC_TASK_INDEX is not set; the label {names.REPLICA_INDEX} has the number",
        "have it as a variable by fieldRef, where the program reads it",
    ),
    "spec.minSuccess": (
        "the kind says which pods decide the end",
        "a TFJob has successPolicy: AllWorkers",
    ),
    "spec.runningEstimate": (
        "no field says it",
        f"annotation {names.ESTIMATED_SECONDS}, in seconds",
    ),
    "spec.networkTopology": (
        "tiers of HyperNodes are not known here",
        f"annotation {names.TOPOLOGY_REQUIRED} or {names.TOPOLOGY_PREFERRED}, a label of nodes",
    ),
    "spec.schedulerName": (
        "Muster's own gang scheduler places the pods",
        "to keep Volcano, run the operator with --gang-scheduler-name=volcano",
    ),
    "spec.volumes": (
        "a job makes no claims, and mounts one by its name",
        "create the PersistentVolumeClaim, write its volumeClaimName and a mountPath",
    ),
    "spec.policies": _POLICY,
    "spec.tasks.policies": _POLICY,
    "spec.tasks.dependsOn": _DEPENDS,
    "spec.tasks.maxRetry": ("retries are counted for the job", "spec.runPolicy.backoffLimit"),
    "spec.tasks.topologyPolicy": (
        "the kubelet alone places pods on NUMA nodes",
        "set its topologyManagerPolicy",
    ),
}


_PLUGINS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "pytorch": ("PyTorchJob", {"master": "Master", "worker": "Worker"}),
    "tensorflow": (
        "TFJob",
        {"chief": "Chief", "ps": "PS", "worker": "Worker", "evaluator": "Evaluator"},
    ),
    "mpi": ("MPIJob", {"master": LAUNCHER, "worker": WORKER}),
}
"""Plugin -> the kind that it makes of a job, and its arguments, which are also the default names
of the tasks -> roles."""
_BY_SSH: Final = re.compile(r"(?i)(mpi)?-?(?P<leads>master|launcher)|(mpi)?-?workers?")
_OF_PLUGINS: Final = re.compile(r"/etc/volcano/[\w.-]*|\bV[CK]_[A-Z][A-Z_]*|\bMPI_HOST\b")
"""What Volcano's plugins leave in a pod for its program."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which kind a job becomes, and which role each of its tasks."""

    framework: Framework
    roles: Mapping[str, str]
    port: int | None = None


def read(source: Fields) -> Json | None:
    """Read a Volcano job; None if nothing says which framework it is of."""
    meta, spec = job.metadata(source), source.open("spec")
    tasks = spec.each("tasks")
    named = [task.take("name", str) or "" for task in tasks]
    plugins = spec.open("plugins")
    plan = _plan(plugins, named)
    if plan is None:
        known = ", ".join(_PLUGINS)
        spec.note(
            "spec.plugins",
            "nothing says which framework the tasks are of: no job is made",
            f"add one of the plugins {known}, or name the tasks ps and worker",
        )
        return None
    options = _plugins(plugins, plan)
    by_name: dict[str, Fields] = {}
    for name, task in zip(named, tasks, strict=True):
        if by_name.setdefault(name, task) is not task:
            task.lose_all(f"another task is called {name!r}, too")
    roles, more = _tasks(plan, spec, by_name, options)
    policy = _run_policy(spec, restarts=bool(more))
    least = policy.get("schedulingPolicy", {}).get("minAvailable")
    meta = job.annotated(meta, (*more, *_leasts(plan, by_name, roles, least)))
    return job.assemble(plan.framework, meta, policy, options, roles)


def _plan(plugins: Fields, tasks: Sequence[str]) -> _Plan | None:
    for name, (kind, types) in _PLUGINS.items():
        arguments = plugins.take(name, list)
        if arguments is not None:
            said = _arguments(arguments)
            port = said.pop("port", "")
            listens = number(port)
            if port and listens is None:
                plugins.note(plugins.at(name), f"--port={port} is no number")
            roles = {said.pop(flag, flag): type_ for flag, type_ in types.items()}
            for flag in said:
                plugins.note(plugins.at(name), f"--{flag} is not known")
            return _Plan(job.rules_of(kind), roles, listens)
    if "ssh" in plugins.names() and all(map(_BY_SSH.fullmatch, tasks)):
        leads = {n: bool((_BY_SSH.fullmatch(n) or {"leads": ""})["leads"]) for n in tasks}
        return _Plan(job.rules_of("MPIJob"), {n: LAUNCHER if leads[n] else WORKER for n in tasks})
    framework = FRAMEWORKS["TFJob"]
    by_name = {name: loading.canonical(framework, name) for name in tasks}
    if {"PS", "Chief"} & set(by_name.values()):
        return _Plan(framework, {name: type_ for name, type_ in by_name.items() if type_})
    return None


_GANG, _POD, _BY_ROLE = "gang", "pod", "role"
_EFFECTS: Final[Mapping[tuple[str, str], str]] = {
    **{(event, "RestartJob"): _GANG for event in ("PodFailed", "PodEvicted", "*")},
    **{(event, "RestartPod"): _POD for event in ("PodFailed", "PodEvicted")},
    **{("PodFailed", action): _BY_ROLE for action in ("AbortJob", "TerminateJob")},
}
"""(event, action) -> what a v1 job does the same by; the others have nothing like it."""
_ENDS: Final = frozenset({"Master", "Chief", LAUNCHER})
"""Roles whose end is that of the job."""


def _policies(policy: Fields, type_: str) -> set[str]:
    """Take a policy that a v1 job can have, of all tasks or of one role."""
    event, action = policy.take("event", str), policy.take("action", str) or ""
    events = [event, *(policy.take("events", list) or ())]
    wanted = {(str(each), action) for each in events if says(each)}
    if type_ in _ENDS:
        wanted -= {("TaskCompleted", "CompleteJob")}
    for name in sorted(f"{event} -> {action}" for event, action in wanted - _EFFECTS.keys()):
        policy.note(policy.path, f"{name}: {_POLICY[0]}", _POLICY[1])
    return {_EFFECTS[each] for each in wanted if each in _EFFECTS}


def _waits(task: Fields, workers: Sequence[str]) -> bool:
    """Take the dependency of a launcher on its workers."""
    depends = task.open("dependsOn")
    on = depends.take("name", object)
    if on == list(workers):
        return True
    if says(on):
        depends.lose("name", *_DEPENDS)
    return False


def _mounts(spec: Fields) -> list[tuple[Json, Json]]:
    """Take the job's volumes, each with where it is mounted in every container."""
    found = []
    for index, volume in enumerate(spec.each("volumes")):
        claim, path = volume.take("volumeClaimName", str), volume.take("mountPath", str)
        if not claim or not path:
            volume.lose_all(*REASONS["spec.volumes"])
            continue
        name = f"claim-{index}"
        source = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        found.append((source, {"name": name, "mountPath": path}))
    return found


def _taken_over(task: Fields, found: Json, mounts: Sequence[tuple[Json, Json]]) -> None:
    """Give a template the job's volumes, and name what only Volcano does for it."""
    path = f"{task.path}.template.spec"
    spec = found.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("schedulerName") == names.VOLCANO_SCHEDULER:
        del spec["schedulerName"]
        task.note(f"{path}.schedulerName", *REASONS["spec.schedulerName"])
    containers = job.containers_of(found)
    for volume, mount in mounts:
        spec["volumes"] = [*sequence(spec.get("volumes")), volume]
        for container in containers:
            container["volumeMounts"] = [*sequence(container.get("volumeMounts")), mount]
    for index, container in enumerate(containers):
        where = f"{path}.containers[{index}]"
        for left in sorted(set(_OF_PLUGINS.findall(json.dumps(container)))):
            task.note(where, f"uses {left}, which Volcano's plugins leave there", _hint(left))


def _hint(left: str) -> str:
    if left == "MPI_HOST" or left.startswith("/etc/volcano/"):
        return "an MPIJob's launcher has the hosts in /etc/mpi/hostfile and needs no sshd"
    return f"read the label {names.REPLICA_INDEX} by fieldRef"


def _arguments(listed: Sequence[object]) -> dict[str, str]:
    """Return a plugin's flags: `--name=value`, or the value by itself."""
    found: dict[str, str] = {}
    flag = ""
    for word in map(str, listed):
        if word.startswith("-"):
            flag, _, value = word.lstrip("-").partition("=")
            found[flag] = value
        elif flag and not found[flag]:
            found[flag] = word
        else:
            found[repr(word)] = ""
    return found


def _plugins(plugins: Fields, plan: _Plan) -> Json:
    """Take what the kind does by itself; return the options that plugins were told."""
    if says(plugins.take("svc", object)):
        plugins.lose("svc", "each pod's service is published early, and no NetworkPolicy is made")
    plugins.drop("svc")
    path = None
    if plan.framework.kind == "MPIJob":
        said = _arguments(plugins.take("ssh", list) or [])
        path = said.pop("ssh-key-file-path", None)
        for flag in said:
            plugins.note(plugins.at("ssh"), f"--{flag}: the operator makes the keys")
    for name in plugins.names():
        why = REASONS.get(f"spec.plugins.{name}", REASONS["spec.plugins"])
        plugins.lose(name, *why)
    return {"sshAuthMountPath": path}


def _run_policy(spec: Fields, *, restarts: bool) -> Json:
    scheduler = spec.take("schedulerName", str)
    if scheduler:
        spec.lose("schedulerName", *REASONS["spec.schedulerName"])
    # 0 stands for the default, and RestartJob has three tries.
    retries = spec.take("maxRetry", int) or (3 if restarts else None)
    scheduling = {
        "minAvailable": spec.take("minAvailable", int) or None,
        "queue": spec.take("queue", str),
        "priorityClass": spec.take("priorityClassName", str),
    }
    policy = {
        "cleanPodPolicy": names.CleanPodPolicy.RUNNING.value,
        "backoffLimit": retries,
        "ttlSecondsAfterFinished": spec.take("ttlSecondsAfterFinished", int),
        "schedulingPolicy": without_nothing(scheduling),
    }
    return without_nothing(policy)


def _tasks(
    plan: _Plan, spec: Fields, tasks: Mapping[str, Fields], options: Json
) -> tuple[dict[str, Json], set[tuple[str, str]]]:
    """Return the roles, and the annotations that come of the policies."""
    roles: dict[str, Json] = {}
    general = {policy for each in spec.each("policies") for policy in _policies(each, "")}
    effects = set(general)
    mounts = _mounts(spec)
    for name, task in tasks.items():
        type_ = plan.roles.get(name)
        if type_ is None or type_ in roles:
            task.lose_all(f"{plan.framework.kind} has no role for the task {name!r}")
            continue
        own = {p for each in task.each("policies") for p in _policies(each, type_)}
        effects |= own
        found = job.template(task, plan.framework)
        _taken_over(task, found, mounts)
        if plan.framework.pods.container:
            job.listen(plan.framework, found, plan.port)
        # Of a pod without a policy the kubelet restarts failed containers.
        written, policy = job.restart_policy(found), names.RestartPolicy.ON_FAILURE.value
        if written and not (general | own) & {_GANG, _POD}:
            # What becomes of a failed pod goes before what its kubelet does.
            policy = written
        roles[type_] = job.role(task.take("replicas", int), policy, found)
        workers = [other for other in tasks if plan.roles.get(other) == WORKER]
        if type_ == LAUNCHER and _waits(task, workers):
            options["launcherCreationPolicy"] = "WaitForWorkersReady"
    return roles, {(names.RESTART, names.RESTART_GANG)} if _GANG in effects else set()


def _leasts(
    plan: _Plan, tasks: Mapping[str, Fields], roles: Mapping[str, Json], least: object
) -> Iterator[tuple[str, str]]:
    """Yield the annotation of role minimums (default: all pods), if the job's is their sum."""
    said = {
        plan.roles[name]: (task, task.take("minAvailable", int))
        for name, task in tasks.items()
        if plan.roles.get(name) in roles
    }
    given = {type_: number for type_, (_, number) in said.items() if number is not None}
    whole = {type_: role.get("replicas", 1) for type_, role in roles.items()} | given
    if not given:
        return
    if least in (None, sum(whole.values())):
        yield names.MIN_AVAILABLE, ",".join(f"{type_}={n}" for type_, n in whole.items())
        return
    for type_ in given:
        why = f"spec.minAvailable is {least}, and those of the tasks are {sum(whole.values())}"
        said[type_][0].lose("minAvailable", why, "let the one be the sum of the others")
