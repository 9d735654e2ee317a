# SPDX-License-Identifier: Apache-2.0
"""MPIJob v1: the launcher, a pod with an account of its own, reaches the workers by kubectl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from muster.api import names
from muster.api.edge import integer, mapping, sequence, text
from muster.api.model import Job, Json, Notice, PodView, Problem, Replica
from muster.api.status import ReplicaStatus
from muster.frameworks import base, loading, master_worker, mpi
from muster.frameworks.base import Waiting
from muster.frameworks.mpi import LAUNCHER, WORKER

ACCOUNT_SUFFIX: Final = "-launcher"
_KUBECTL: Final = "mpi-job-kubectl"
_KUBECTL_PATH: Final = "/opt/kube"
_SCRIPT: Final = "kubexec.sh"
_AGENT: Final = f"{mpi.MOUNT}/{_SCRIPT}"
_RBAC: Final = "rbac.authorization.k8s.io"


def _on_gpu(job: Job) -> bool:
    """Say whether the launcher has a GPU, so that it takes part in the work."""
    role = job.replica(LAUNCHER)
    containers = role.template["spec"]["containers"] if role else ()
    limits = (mapping(mapping(c.get("resources")).get("limits")) for c in containers)
    # As training-operator's isGPULauncher, which goes by the limits' names.
    return any(name.endswith(".com/gpu") or "gpu" in name for found in limits for name in found)


def _config(job: Job, _domain: str, pods: Sequence[PodView]) -> Json:
    first = (mpi.launcher(job),) if _on_gpu(job) else ()
    slots = mpi.slots(job) or 1
    hosts = "".join(f"{pod} slots={slots}\n" for pod in (*first, *mpi.workers(job)))
    up = (f"{pod}:{slots}" for pod in (*first, *mpi.running(job, pods)))
    container = text(job.options["mainContainer"])
    where = f' --container "{container}"' if container else ""
    run = f'{_KUBECTL_PATH}/kubectl exec "$pod"{where} -- /bin/sh -c "$*"'
    # MPI calls it instead of rsh, with the name of a pod and a command.
    kubexec = f"#!/bin/sh\nset -x\npod=$1\nshift\n{run}\n"
    scripts = {_SCRIPT: kubexec, "discover_hosts.sh": mpi.script(up)}
    return {"data": {"hostfile": hosts, **scripts}}


def _rules(_job: Job, _domain: str, pods: Sequence[PodView]) -> Json:
    """Return rules to see pods and enter existing workers: a wanted name may be another's pod."""
    see = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    enter: Json = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}
    mine = [pod.name for pod in pods if pod.role == WORKER.lower() and not pod.terminal]
    return {"rules": [see, {**enter, "resourceNames": mine}] if mine else [see]}


def _account(job: Job) -> str:
    role = job.replica(LAUNCHER)
    return text(role.template["spec"].get("serviceAccountName")) if role else ""


def _own_account(job: Job) -> bool:
    """Return whether the launcher has an account that was made for it.

    Other accounts get nothing: the job's author could pass permissions to any of them.
    """
    return not _account(job)


def _own_name(job: Job) -> str:
    return f"{names.flat(job.name)}{ACCOUNT_SUFFIX}"


def _notices(job: Job) -> Iterator[Notice]:
    if not _own_account(job):
        text_ = (
            f'The launcher runs as "{_account(job)}", to which nothing is given here: bind the '
            f'account to the Role "{_own_name(job)}", or it cannot enter the workers'
        )
        yield Notice("Warning", names.Event.LAUNCHER_NOT_BOUND, text_)


def _subjects(job: Job, _domain: str, _pods: Sequence[PodView]) -> Json:
    subject = {"kind": "ServiceAccount", "name": _own_name(job), "namespace": job.namespace}
    return {"subjects": [subject]}


def _role_ref(job: Job) -> Json:
    return {"roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": _own_name(job)}}


def _template(job: Job, replica: Replica, _domain: str) -> Json:
    name = f"{names.flat(job.name)}{mpi.CONFIG_SUFFIX}"
    mounts = [{"name": mpi.CONFIG, "mountPath": mpi.MOUNT}]
    if replica.type == WORKER:
        spec = {"volumes": [mpi.config_volume(name, ((_SCRIPT, 0o555),))]}
        own = replica.template["spec"]["containers"][0]
        # Workers only wait to be entered by kubectl exec; the launcher starts what they run.
        idle = {} if own.get("command") else {"command": ["sleep"], "args": ["365d"]}
        container = {"volumeMounts": mounts, **idle}
        return mpi.added(replica.template, spec=spec, container=container)
    items = ((_SCRIPT, 0o555), ("hostfile", 0o444), ("discover_hosts.sh", 0o555))
    volumes = [{"name": _KUBECTL, "emptyDir": {}}, mpi.config_volume(name, items)]
    return mpi.added(
        replica.template,
        spec={"volumes": volumes, "serviceAccountName": _account(job) or _own_name(job)},
        container={"volumeMounts": [{"name": _KUBECTL, "mountPath": _KUBECTL_PATH}, *mounts]},
    )


def _init_containers(job: Job, replica: Replica, waiting: Waiting) -> Sequence[Json]:
    if replica.type != LAUNCHER:
        return ()
    amounts = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
    delivery = {
        "name": "kubectl-delivery",
        "image": waiting.delivery_image,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            base.variable("TARGET_DIR", _KUBECTL_PATH),
            base.variable("NAMESPACE", job.namespace),
        ],
        "volumeMounts": [
            {"name": _KUBECTL, "mountPath": _KUBECTL_PATH},
            {"name": mpi.CONFIG, "mountPath": mpi.MOUNT},
        ],
        "resources": {"limits": amounts, "requests": amounts},
    }
    own = base.framework_container(MPI_V1, replica.template)
    return (base.as_framework(delivery, own, waiting),)


def _environment(job: Job, replica: Replica, _domain: str) -> base.Environment:
    if replica.type != LAUNCHER:
        return base.NO_ENVIRONMENT
    container = replica.template["spec"]["containers"][0]
    entries = [
        base.variable("OMPI_MCA_plm_rsh_agent", _AGENT),
        base.variable("OMPI_MCA_orte_default_hostfile", f"{mpi.MOUNT}/hostfile"),
    ]
    if not _on_gpu(job):
        # Empty, as mpi-operator: else NVIDIA's runtime could show it all GPUs of the node.
        entries += (base.variable(name, "") for name in mpi.NO_GPU)
    # As mpi-operator of v1: what the template says of Intel MPI itself stands.
    there = {mapping(entry).get("name") for entry in sequence(container.get("env"))}
    intel = (("I_MPI_HYDRA_BOOTSTRAP", "rsh"), ("I_MPI_HYDRA_BOOTSTRAP_EXEC", _AGENT))
    entries += (base.variable(name, value) for name, value in intel if name not in there)
    return base.Environment(entries=lambda _index: entries, container=text(container.get("name")))


def _outcome(job: Job, seen: base.Progress) -> Sequence[base.Outcome]:
    """Return the conditions: the launcher decides; failed pods that are replaced are excused."""
    leads = seen.counts.get(LAUNCHER, ReplicaStatus())
    # The launcher's end is the program's: workers that fail at teardown do not count.
    if leads.succeeded:
        return (master_worker.succeeded(job, alone=False),)
    runs = (master_worker.running(job, alone=False),) if leads.active else ()
    if text_ := mpi.evicted(job, seen.pods):
        return (*runs, base.Outcome(names.Condition.FAILED, text_, mpi.EVICTED))
    return (*runs, *master_worker.failure(job, seen, seen.excused))


def _fails_with(job: Job, replica: Replica, pod: PodView) -> bool:
    """Return whether the job fails with the pod: an evicted worker, or a launcher.

    As with training-operator, only ExitCode or a restart of the whole gang retries a launcher.
    """
    if replica.type != LAUNCHER:
        return mpi.is_evicted(replica, pod)
    tries = replica.restart_policy == names.RestartPolicy.EXIT_CODE
    return not (tries or job.restarts_whole)


def _check(spec: Mapping[str, Any], _job: Job) -> Sequence[Problem]:
    """Return the first breach, in the words that users of v1 know."""
    found = next(_breaches(spec.get(MPI_V1.spec_field)), "")
    return (Problem("", found),) if found else ()


def _breaches(roles: object) -> Iterator[str]:
    if not isinstance(roles, dict):
        yield "MPIReplicaSpecs is not valid"
        return
    for key, role in roles.items():
        type_ = loading.canonical(MPI_V1, key)
        containers = sequence(loading.part(role, "spec").get("containers"))
        if not containers:
            yield f"MPIReplicaSpecs is not valid: containers definition expected in {type_ or key}"
        if type_ is None:
            yield f"MPIReplicaType is {key} but must be one of [Launcher Worker]"
        for container in map(mapping, containers):
            for field, shown in (("image", "Image"), ("name", "ImageName")):
                if not text(container.get(field)):
                    start = f"MPIReplicaSpec is not valid: {shown} is undefined in the container"
                    yield f"{start} of {type_}"
        if type_ == LAUNCHER and integer(mapping(role).get("replicas")) not in (None, 1):
            yield "MPIReplicaSpec is not valid: There must be only 1 launcher replica"
    if all(loading.canonical(MPI_V1, key) != LAUNCHER for key in roles):
        yield "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"


MPI_V1: Final = base.Framework(
    api=mpi.KIND,
    own_managers=(names.MANAGED_BY_TRAINING_OPERATOR, names.MANAGED_BY_MULTIKUEUE),
    operator=base.Operator(
        "mpijob-controller",
        metric="mpi",
        permissions=(
            ("", "serviceaccounts", ("get", "create", "patch")),
            (_RBAC, "roles", ("get", "create", "patch")),
            (_RBAC, "rolebindings", ("get", "create", "patch")),
            # Nobody may grant what he has not.
            ("", "pods/exec", ("create",)),
        ),
        component="mpi-v1",
    ),
    roles=base.Roles(
        restart_policy="Never",
        is_master=lambda _job, role, _index: role.type == LAUNCHER,
        counts={WORKER: 0},
        unnumbered=frozenset({LAUNCHER}),
    ),
    pods=base.Pods(
        container="",
        port_name="",
        port=9999,
        environment=_environment,
        template=_template,
        init_containers=_init_containers,
        companions=(
            base.Companion("v1", "ServiceAccount", ACCOUNT_SUFFIX, wanted=_own_account),
            base.Companion("v1", "ConfigMap", mpi.CONFIG_SUFFIX, content=_config),
            base.Companion(names.RBAC_API, "Role", ACCOUNT_SUFFIX, content=_rules),
            base.Companion(
                names.RBAC_API,
                "RoleBinding",
                ACCOUNT_SUFFIX,
                content=_subjects,
                fixed=_role_ref,
                wanted=_own_account,
            ),
        ),
        services=False,
    ),
    life=base.Life(
        outcome=_outcome,
        fails_with=_fails_with,
        selectors=True,
        latch={mpi.VERSION: mpi.V1},
        wording=base.Wording(
            taken=(
                'Resource "{other}" of MPIJobKind "{of}" already exists and is not managed by '
                "MPIJob"
            ),
            restart_policy="SettedPodTemplateRestartPolicy",
            restart_policy_of=(LAUNCHER,),
        ),
    ),
    spec=base.Spec(
        options={"slotsPerWorker": 1, "mainContainer": ""},
        validate=lambda job, domain: mpi.too_large(job, _config(job, domain, ())),
        check=_check,
        notices=_notices,
        first_breach=True,
    ),
)
