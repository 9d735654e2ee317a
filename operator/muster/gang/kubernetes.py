# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' own gangs: a Workload, a PodGroup that refers to it, and a field in the pods."""

from __future__ import annotations

from collections.abc import Iterator

from muster.api import names
from muster.api.model import GroupView, Job, Json, Notice, Replica
from muster.api.reasons import GangPhase
from muster.gang import base, demand, standing
from muster.gang.model import Field, GangFacts, GroupApi, Link, Permission, Update

_GROUP = "scheduling.k8s.io"
_TEMPLATE = "gang"
_VERBS = ("get", "create", "delete")
MIXED_SCHEDULER_NAMES = "MixedSchedulerNames"
_GATES = (
    "the feature gates GenericWorkload and, on 1.36, GangScheduling and WorkloadAwarePreemption"
)
_SCHEDULED = ("PodGroupInitiallyScheduled", "PodGroupScheduled")
"""Condition by which a group waits: of Kubernetes 1.37 and later, of 1.36."""


def _template_ref(job: Job, _facts: GangFacts) -> Json:
    names_ = {"workloadName": names.flat(job.name), "podGroupTemplateName": _TEMPLATE}
    return {"workload": names_}


def _api(version: str, reference: Field, whole: Json | str, *, follows: bool) -> GroupApi:
    fields = (
        reference,
        Field(
            "schedulingPolicy",
            lambda job, facts: {"gang": {"minCount": standing.minimum_from_one(job, facts)}},
            "minAvailable",
            follows=follows,
        ),
        Field("disruptionMode", lambda _job, _facts: whole),
        Field("priorityClassName", demand.priority_class, "priorityClass"),
    )
    update = Update.REPLACE_BEFORE_PODS
    of = _GROUP, version, "podgroups", "PodGroup"
    return GroupApi(*of, fields=fields, annotated=False, update=update)


_REFERENCE = Field(
    "workloadRef",
    lambda job, _facts: {"workloadName": names.flat(job.name), "templateName": _TEMPLATE},
)
_REFERENCE_OF_OLD = Field("podGroupTemplateRef", _template_ref)
APIS = (
    _api("v1beta1", _REFERENCE, {"all": {}}, follows=True),
    _api("v1alpha2", _REFERENCE_OF_OLD, "PodGroup", follows=False),
)


def _workload(job: Job, facts: GangFacts) -> tuple[Json, ...]:
    group, _, _ = job.api_version.partition("/")
    api = KUBERNETES.api(facts.api_version)
    # A template says all that the groups made of it say, but for where they come from.
    values = ((field.key, field.value(job, facts)) for field in api.fields[1:])
    template = {"name": _TEMPLATE, **{key: value for key, value in values if value is not None}}
    return (
        {
            "apiVersion": api.api_version,
            "kind": "Workload",
            "metadata": base.metadata(job, facts, annotated=False),
            "spec": {
                "controllerRef": {"apiGroup": group, "kind": job.kind, "name": job.name},
                "podGroupTemplates": [template],
            },
        },
    )


def _mixed(job: Job) -> bool:
    return len({demand.scheduler(replica) for replica in job.replicas}) > 1


def _mark(job: Job, _replica: Replica) -> Link:
    if _mixed(job):
        return Link()
    return Link(spec={"schedulingGroup": {"podGroupName": names.flat(job.name)}})


def _warnings(job: Job) -> Iterator[Notice]:
    if _mixed(job):
        text = (
            "The templates name different schedulers, so the pods start without a gang; "
            "give all of them the same schedulerName"
        )
        yield Notice("Warning", MIXED_SCHEDULER_NAMES, text)
        return
    for replica in job.replicas:
        group = (replica.template.get("spec") or {}).get("schedulingGroup") or {}
        if group.get("podGroupName", job.name) != job.name:
            there = group["podGroupName"]
            text = f'{replica.type}: schedulingGroup "{there}" is overwritten with "{job.name}"'
            yield Notice("Warning", names.Event.GROUP_NAME_OVERWRITTEN, text)


def _read(group: GroupView, counts: base.Tally) -> base.Reading | None:
    refused = (base.condition(group, type_, "False") for type_ in _SCHEDULED)
    waits = base.condition(group, "DisruptionTarget") or next(filter(None, refused), None)
    if not waits or counts.running >= counts.needed:
        return base.by_pods(group, counts)
    state = GangPhase.DEGRADED if counts.ran else GangPhase.QUEUED
    return base.Reading(state, waits.get("reason", ""), waits.get("message", ""))


KUBERNETES = base.GangBackend(
    name="kubernetes",
    apis=APIS,
    companions=("Workload",),
    cure=(
        "Workload and PodGroup of scheduling.k8s.io come with Kubernetes 1.37 (v1beta1) and 1.36 "
        f"(v1alpha2): switch the API on, with {_GATES}, or choose another --gang-scheduler-name"
    ),
    permissions=(
        Permission(_GROUP, "workloads", _VERBS),
        Permission(_GROUP, "podgroups", (*_VERBS, "list", "watch", "patch")),
    ),
    pods_first_on_delete=True,
    mark=_mark,
    admits=lambda group: group is not None,
    kept=lambda job, pod: _mixed(job) or pod.kind != "Pod" or bool(pod.group),
    unkept=(
        "The pods have no schedulingGroup, so they start one by one: the API server leaves it out "
        f"without {_GATES}; switch them on in kube-apiserver, kube-controller-manager and "
        "kube-scheduler, or choose another --gang-scheduler-name"
    ),
    before=_workload,
    read=_read,
    warn=lambda job, _facts: tuple(_warnings(job)),
)
