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
_VERBS = ("get", "list", "watch", "create", "delete")
MIXED_SCHEDULER_NAMES = "MixedSchedulerNames"


def _policy(job: Job, facts: GangFacts) -> Json:
    return {"gang": {"minCount": standing.minimum_from_one(job, facts)}}


def _template_ref(job: Job, _facts: GangFacts) -> Json:
    names_ = {"workloadName": names.flat(job.name), "podGroupTemplateName": _TEMPLATE}
    return {"workload": names_}


_FIELDS = (
    Field("schedulingPolicy", _policy, "minAvailable"),
    Field("podGroupTemplateRef", _template_ref),
    Field("priorityClassName", demand.priority_class, "priorityClass"),
)


def _api(version: str) -> GroupApi:
    update = Update.REPLACE_BEFORE_PODS
    kind, plural = "PodGroup", "podgroups"
    return GroupApi(_GROUP, version, kind, plural, _FIELDS, annotated=False, update=update)


def _workload(job: Job, facts: GangFacts) -> tuple[Json, ...]:
    group, _, _ = job.api_version.partition("/")
    template: Json = {"name": _TEMPLATE, "schedulingPolicy": _policy(job, facts)}
    if priority := demand.priority_class(job, facts):
        template["priorityClassName"] = priority
    return (
        {
            "apiVersion": facts.api_version or APIS[0].api_version,
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
    waits = base.condition(group, "DisruptionTarget") or base.condition(
        group, "PodGroupScheduled", "False"
    )
    if not waits or counts.running >= counts.needed:
        return base.by_pods(group, counts)
    state = GangPhase.DEGRADED if counts.ran else GangPhase.QUEUED
    return base.Reading(state, waits.get("reason", ""), waits.get("message", ""))


APIS = (_api("v1beta1"), _api("v1alpha2"))
KUBERNETES = base.GangBackend(
    name="kubernetes",
    apis=APIS,
    companions=("Workload",),
    cure=(
        "Workload and PodGroup of scheduling.k8s.io/v1beta1 or v1alpha2 come with Kubernetes "
        "1.36 or later: switch the API on, with the feature gates GenericWorkload and "
        "GangScheduling, or choose another --gang-scheduler-name"
    ),
    permissions=(Permission(_GROUP, "workloads", _VERBS), Permission(_GROUP, "podgroups", _VERBS)),
    pods_first_on_delete=True,
    mark=_mark,
    admits=lambda group: group is not None,
    kept=lambda job, pod: _mixed(job) or pod.kind != "Pod" or bool(pod.group),
    unkept=(
        "The pods have no schedulingGroup, so they start one by one: the API server leaves it out "
        "without the feature gates GenericWorkload and GangScheduling; switch them on in "
        "kube-apiserver, kube-controller-manager and kube-scheduler, or choose another "
        "--gang-scheduler-name"
    ),
    before=_workload,
    read=_read,
    warn=lambda job, _facts: tuple(_warnings(job)),
)
