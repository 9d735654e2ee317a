# SPDX-License-Identifier: Apache-2.0
"""MPIJob v2beta1: the launcher, a batch Job, reaches the workers by SSH."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from muster.api import names
from muster.api.edge import mapping, sequence, text
from muster.api.model import Job, Json, Notice, PodView, Problem, Replica
from muster.api.status import ReplicaStatus
from muster.frameworks import base, mpi
from muster.frameworks.mpi import LAUNCHER, WORKER

PRIVATE_KEY: Final = "ssh-privatekey"
PUBLIC_KEY: Final = "ssh-publickey"
KEYS_SUFFIX: Final = "-ssh"
_SSH: Final = "ssh-auth"
_HOSTS: Final = f"{mpi.MOUNT}/hostfile"
_WAIT: Final = "WaitForWorkersReady"
_ATTEMPTS: Final = "-o ConnectionAttempts=10"
_SSH_OPTIONS: Final = "ssh.conf"
_SSH_OPTIONS_AT: Final = "/etc/ssh/ssh_config.d/zz-muster-mpijob.conf"
"""Where ssh looks by itself, in today's images: last, as the first word stands."""
_AWAIT: Final = "await-host.sh"
_OPTIONS: Final = f"""\
# Read by ssh: a host of this job is waited for before it is called.
Match exec "{mpi.MOUNT}/{_AWAIT} %h"
    ConnectionAttempts 10
"""
"""A name that is not known yet ends ssh at once, whatever ConnectionAttempts says, and mpirun and
the launcher with it. Hydra and PRRTE read no variable that would set ConnectionAttempts."""
_AWAITING: Final = f"""\
#!/bin/sh
# Waits, at most 10 minutes, until the name of a host of this job is known.
command -v getent >/dev/null || exit 1
sed 's/[ :].*//' {_HOSTS} | grep -qxF -e "$1" || exit 1
tries=0
until getent hosts "$1" >/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 610 ] || exit 1
    [ "$tries" -ne 20 ] || echo "$1 is not known yet; waiting for it to start" >&2
    # Soon at first; but a thousand hosts must not all ask the DNS five times a second for long.
    [ "$tries" -gt 15 ] && sleep 1 || sleep 0.2
done
"""
_FILES: Final = (
    ("hostfile", 0o444),
    ("discover_hosts.sh", 0o555),
    (_SSH_OPTIONS, 0o444),
    (_AWAIT, 0o555),
)
"""Key of the ConfigMap -> mode of its file."""
_FORMS: Final = {"OpenMPI": "{host} slots={slots}"}
"""Implementation -> a line of the hostfile; others write `host:slots`."""


def _doubles(job: Job) -> bool:
    """Say whether the launcher's pod is a worker, too."""
    return job.options["runLauncherAsWorker"] is True


def _config(job: Job, domain: str, pods: Sequence[PodView]) -> Json:
    first, beyond = (mpi.launcher(job),) if _doubles(job) else (), base.beyond(job, domain)
    form = _FORMS.get(text(job.options[mpi.IMPLEMENTATION]), "{host}:{slots}")
    lines = (
        form.format(host=f"{pod}{beyond}", slots=mpi.slots(job))
        for pod in (*first, *mpi.workers(job))
    )
    up = (f"{pod}{beyond}" for pod in (*first, *mpi.running(job, pods)))
    hosts = "".join(f"{line}\n" for line in lines)
    data = {"hostfile": hosts, "discover_hosts.sh": mpi.script(up)}
    return {"data": {**data, _SSH_OPTIONS: _OPTIONS, _AWAIT: _AWAITING}}


def _template(job: Job, replica: Replica, domain: str) -> Json:
    """Return the template with host name, keys, list of hosts and what runs by default."""
    leads = replica.type == LAUNCHER
    path = text(job.options["sshAuthMountPath"])
    own = replica.template["spec"]
    volumes, mounts = [_keys(job, path)], [{"name": _SSH, "mountPath": path}]
    if leads:
        volumes.append(mpi.config_volume(f"{names.flat(job.name)}{mpi.CONFIG_SUFFIX}", _FILES))
        mounts.append({"name": mpi.CONFIG, "mountPath": mpi.MOUNT})
        if not _covers_ssh(own["containers"][0]):
            at = {"mountPath": _SSH_OPTIONS_AT, "subPath": _SSH_OPTIONS}
            mounts.append({"name": mpi.CONFIG, **at})
    spec: Json = {"volumes": volumes}
    # With the host's network a pod asks the host's DNS, which knows no service of the cluster.
    if own.get("hostNetwork"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    if not leads:
        spec["dnsConfig"] = _searches(job, own, domain)
    container: Json = {"volumeMounts": mounts}
    first = own["containers"][0]
    if not (leads or first.get("command") or first.get("args")):
        container["command"] = ["/usr/sbin/sshd", "-De"]
    labels = {names.JOB_ROLE: replica.role}
    if leads and _doubles(job):
        labels[names.REPLICA_INDEX] = "0"
    return mpi.added(replica.template, spec=spec, container=container, labels=labels)


def _covers_ssh(container: Json) -> bool:
    """Say whether the author mounts a volume where a file of ours would be."""
    # In a volume that is read-only, as most are there, no file could be mounted.
    mounted = (text(each.get("mountPath")) for each in container.get("volumeMounts") or ())
    return any(f"{_SSH_OPTIONS_AT}/".startswith(f"{path.rstrip('/')}/") for path in mounted)


def _keys(job: Job, path: str) -> Json:
    items = [
        {"key": PRIVATE_KEY, "path": "id_rsa"},
        {"key": PUBLIC_KEY, "path": "id_rsa.pub"},
        {"key": PUBLIC_KEY, "path": "authorized_keys"},
    ]
    secret: Json = {"secretName": f"{names.flat(job.name)}{KEYS_SUFFIX}", "items": items}
    if path == mpi.ROOT_SSH:
        # ssh refuses keys that others may read; as mpi-operator, for root's own folder alone.
        secret["defaultMode"] = 0o600
    return {"name": _SSH, "secret": secret}


def _searches(job: Job, spec: Json, domain: str) -> Json:
    config = spec.get("dnsConfig") or {}
    own = f"{names.flat(job.name)}.{job.namespace}.svc.{domain or 'cluster.local'}"
    return {**config, "searches": [*(config.get("searches") or ()), own]}


_ENVIRONMENTS: Final = {
    "OpenMPI": (
        ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
        ("OMPI_MCA_orte_default_hostfile", _HOSTS),
        ("OMPI_MCA_plm_rsh_args", _ATTEMPTS),
        ("OMPI_MCA_orte_set_default_slots", "{slots}"),
    ),
    "Intel": (
        ("I_MPI_HYDRA_HOST_FILE", _HOSTS),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", _ATTEMPTS),
        ("I_MPI_PERHOST", "{slots}"),
    ),
    "MPICH": (("HYDRA_HOST_FILE", _HOSTS), ("HYDRA_LAUNCH_EXTRA_ARGS", _ATTEMPTS)),
}


def _environment(job: Job, replica: Replica, _domain: str) -> base.Environment:
    entries = [base.variable("K_MPI_JOB_ROLE", replica.role)]
    if replica.type == LAUNCHER:
        more = _ENVIRONMENTS[text(job.options[mpi.IMPLEMENTATION])]
        more += () if _doubles(job) else tuple((name, "") for name in mpi.NO_GPU)
        slots = mpi.slots(job)
        entries += (base.variable(name, value.format(slots=slots)) for name, value in more)
    first: str = replica.template["spec"]["containers"][0].get("name") or ""
    return base.Environment(entries=lambda _index: entries, container=first)


MAX_DEADLINE_SECONDS: Final = (2**63 - 1) // 10**9
"""The Job controller counts nanoseconds in 64 bits, and fails a Job at once that has more."""


def _batch_spec(job: Job) -> Json:
    policy = job.run_policy
    deadline = policy.active_deadline_seconds
    never = deadline is None or deadline > MAX_DEADLINE_SECONDS
    given = {} if never else {"activeDeadlineSeconds": deadline}
    if policy.backoff_limit is not None:
        given["backoffLimit"] = policy.backoff_limit
    # A successor only once the pod has ended: two launchers would drive the same workers.
    return {**given, "podReplacementPolicy": "Failed"}


def _notices(job: Job) -> Iterator[Notice]:
    if job.annotations.get(names.RESTART) == names.RESTART_GANG:
        text_ = (
            f"annotation {names.RESTART} has no effect on an MPIJob of v2beta1; "
            "the launcher's batch Job tries again by itself, up to backoffLimit"
        )
        yield Notice("Warning", names.Event.RESTART_IGNORED, text_)


def _later(job: Job) -> frozenset[str]:
    waits = job.options["launcherCreationPolicy"] == _WAIT
    return frozenset({LAUNCHER}) if waits else frozenset()


def _outcome(job: Job, seen: base.Progress) -> Sequence[base.Outcome]:
    """Return the conditions: the launcher's end is the job's, unless workers were thrown out."""
    shown = f"MPIJob {job.namespace}/{job.name}"
    leads = next((pod for pod in seen.pods if pod.role == LAUNCHER.lower()), None)
    # First: the launcher's success stands, even if workers were evicted at that moment.
    if leads is not None and leads.phase == "Succeeded":
        message = f"{shown} successfully completed."
        return (base.Outcome(names.Condition.SUCCEEDED, message, at=leads.completed),)
    if leads is not None and leads.phase == "Failed":
        message = leads.message or f"{shown} has failed"
        return (base.Outcome(names.Condition.FAILED, message, leads.reason),)
    if text_ := mpi.evicted(job, seen.pods):
        return (base.Outcome(names.Condition.FAILED, text_, mpi.EVICTED),)
    counts = seen.counts
    workers = counts.get(WORKER, ReplicaStatus())
    early = workers.succeeded + (0 if WORKER in seen.excused else workers.failed)
    if early and _later(job) and (leads is None or leads.suspended):
        # Nothing would ever make the workers ready again that the launcher waits for.
        message = (
            f"{shown} has failed because {early} {WORKER} replica(s) ended before the launcher"
        )
        return (base.Outcome(names.Condition.FAILED, f"{message} that waits for them."),)
    # As mpi-operator: Running is said only of all roles together.
    all_up = all(counts[role.type].active >= role.replicas for role in job.replicas)
    runs = base.Outcome(names.Condition.RUNNING, f"{shown} is running.")
    return (runs,) if leads and all_up else ()


def _check(spec: Mapping[str, Any], job: Job) -> Sequence[Problem]:
    path = f"spec.{MPI_V2BETA1.spec_field}"
    roles = spec.get(MPI_V2BETA1.spec_field)
    if not isinstance(roles, dict):
        return (Problem(path, "Required value: must have replica specs"),)
    named = {str(key).lower(): mapping(role) for key, role in roles.items()}
    found = [*_of_launcher(named, path), *_of_workers(named, path)]
    for type_ in mpi.TYPES:
        if type_.lower() in named:
            found += _of_role(named[type_.lower()], f"{path}[{type_}]")
    return (*found, *_of_options(job))


def _of_launcher(named: Mapping[str, Mapping[str, Any]], path: str) -> Iterator[Problem]:
    leads = named.get(LAUNCHER.lower())
    if leads is None:
        yield Problem(f"{path}[{LAUNCHER}]", "Required value: must have Launcher replica spec")
    elif leads.get("replicas") not in (None, 1):
        detail = f"Invalid value: {leads['replicas']}: must be 1"
        yield Problem(f"{path}[{LAUNCHER}].replicas", detail)


def _of_workers(named: Mapping[str, Mapping[str, Any]], path: str) -> Iterator[Problem]:
    role = named.get(WORKER.lower())
    count = 1 if role is None else role.get("replicas") or 0
    if isinstance(count, int) and count < 1:
        detail = f"Invalid value: {count}: must be greater than or equal to 1"
        yield Problem(f"{path}[{WORKER}].replicas", detail)


def _of_role(role: Mapping[str, Any], path: str) -> Iterator[Problem]:
    template = mapping(role.get("template"))
    if not sequence(mapping(template.get("spec")).get("containers")):
        detail = "Required value: must define at least one container"
        yield Problem(f"{path}.template.spec.containers", detail)


def _of_options(job: Job) -> Iterator[Problem]:
    yield from base.negative("spec.slotsPerWorker", mpi.slots(job))
    if not job.options["sshAuthMountPath"]:
        detail = "Required value: must have a mount path for SSH credentials"
        yield Problem("spec.sshAuthMountPath", detail)
    for field, known in _WORDS.items():
        value = job.options[field]
        if value not in known:
            yield base.unsupported(f"spec.{field}", value, known)


_WORDS: Final = {
    "launcherCreationPolicy": ("AtStartup", _WAIT),
    mpi.IMPLEMENTATION: ("Intel", "MPICH", "OpenMPI"),
}
MPI_V2BETA1: Final = base.Framework(
    api=mpi.KIND,
    own_version=mpi.V2BETA1,
    own_managers=(names.MANAGED_BY_MPI_OPERATOR, names.MANAGED_BY_MULTIKUEUE),
    operator=base.Operator(
        mpi.OPERATOR,
        metric="mpi",
        own_metrics="mpi_operator",
        recorder="mpi-job-controller",
        in_namespaces=(("", "secrets", ("get", "create", "patch")),),
        permissions=(
            ("batch", "jobs", ("get", "list", "watch", "create", "patch", "delete")),
            ("batch", "jobs/status", ("patch",)),
        ),
        component="mpi",
    ),
    roles=base.Roles(
        restart_policy="Never",
        policies=("Never", "OnFailure"),
        is_master=lambda _job, _role, _index: False,
        restart_policies={LAUNCHER: "OnFailure"},
        counts={WORKER: 0},
        unnumbered=frozenset({LAUNCHER}),
        first=lambda job: int(_doubles(job)),
        batch=frozenset({LAUNCHER}),
        batch_spec=_batch_spec,
    ),
    pods=base.Pods(
        container="",
        port_name="",
        port=9999,
        environment=_environment,
        template=_template,
        companions=(
            base.Companion("v1", "ConfigMap", mpi.CONFIG_SUFFIX, content=_config, lasting=True),
            base.Companion(
                "v1",
                "Secret",
                KEYS_SUFFIX,
                fixed=lambda _job: {"type": "kubernetes.io/ssh-auth"},
                keys=(PRIVATE_KEY, PUBLIC_KEY),
                lasting=True,
            ),
        ),
        services=False,
        one_service=True,
        early=_doubles,
    ),
    life=base.Life(
        outcome=_outcome,
        fails_with=lambda _job, replica, pod: mpi.is_evicted(replica, pod),
        limits_itself=True,
        selectors=True,
        latch={mpi.VERSION: mpi.V2BETA1},
        wording=base.Wording(
            created="{kind} {namespace}/{name} is created.",
            suspended="MPIJob suspended",
            stopped="{kind} {namespace}/{name} is suspended.",
            resumed="MPIJob resumed",
            suspended_first=True,
            never_ran="{kind} {namespace}/{name} is finished but Running condition was never set.",
            invalid_event="ValidationError",
            invalid="Found validation errors: {why}",
            restart_policy_text=(
                "Restart policy in pod template overridden by restart policy in replica spec"
            ),
        ),
    ),
    spec=base.Spec(
        options=mpi.KIND.defaults[mpi.V2BETA1],
        validate=lambda job, domain: mpi.too_large(job, _config(job, domain, ())),
        check=_check,
        notices=_notices,
    ),
    gang=base.Gang(later=_later, volcano_queue=names.VOLCANO_QUEUE),
)
