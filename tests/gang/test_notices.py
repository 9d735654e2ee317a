# SPDX-License-Identifier: Apache-2.0
"""What authors are told about their gang settings."""

import pytest

from muster import gang
from support.builders.objects import make_job, make_replica, make_template

FACTS = gang.GangFacts(operator_name="op", priorities={"high": 1})


def reasons(backend, job, facts=FACTS):
    """Return the reasons of all notices, in order."""
    return [notice.reason for notice in backend.notices(job, facts)]


@pytest.mark.parametrize(
    ("flag", "template", "warned"),
    [
        ("embedded", "", False), ("embedded", "muster", False), ("embedded", "kube-batch", False),
        ("embedded", "scheduler-plugins-scheduler", True), ("embedded", "default-scheduler", True),
        ("volcano", "volcano", False), ("volcano", "kube-batch", True),
        ("kube-batch", "kube-batch", False), ("kube-batch", "muster", True),
        ("scheduler-plugins-scheduler", "scheduler-plugins-scheduler", False),
        ("scheduler-plugins-scheduler", "default-scheduler", True),
        ("default-scheduler", "scheduler-plugins-scheduler", True),
        ("scheduler-plugins", "scheduler-plugins-scheduler", False),
        ("scheduler-plugins", "default-scheduler", False), ("scheduler-plugins", "volcano", True),
        ("kubernetes", "kube-batch", True), ("none", "volcano", False),
    ],
)  # fmt: skip
def test_another_scheduler(flag, template, warned):
    """One warning per job, in words that users of training-operator know, if it has an effect."""
    replica = make_replica(template=make_template(scheduler=template))
    job = make_job(replicas=[make_replica(type="PS", template=replica.template), replica])
    text = "Another scheduler is specified when gang-scheduling is enabled and it will not be "
    wanted = ("Warning", "SetPodTemplateSchedulerName", f"{text}overwritten")
    told = [(n.type, n.reason, n.message) for n in gang.choose(flag).notices(job, FACTS)]
    assert told == ([wanted] if warned else [])


@pytest.mark.parametrize(
    ("text", "warned"), [("60", False), ("", True), ("1h", True), ("-1", True), ("²", True)]
)
def test_an_estimate_that_is_none(text, warned):
    """It is named, and what to write, where the allocator would have used it."""
    job = make_job(annotations={"muster.kubeflow.org/estimated-seconds": text})
    told = [n.message for n in gang.choose("embedded").notices(job, FACTS)]
    wanted = f'estimated-seconds "{text}" is ignored; write a number of seconds'
    assert told == ([f"muster.kubeflow.org/{wanted}"] if warned else [])
    (ignored,) = gang.VOLCANO.notices(job, FACTS)
    assert ignored.reason == "AnnotationIgnored"


@pytest.mark.parametrize("flag", ["volcano", "kubernetes", "none"])
def test_annotations_that_only_the_embedded_scheduler_reads_are_named(flag):
    """The author of a job with another gang scheduler is told which annotations have no effect."""
    metadata = {"annotations": {"muster.kubeflow.org/topology-required": "x", "other": "x"}}
    replica = make_replica(template={**make_template(), "metadata": metadata})
    written = {"replace-unreachable": "force", "restart": "gang"}
    job = make_job(
        replicas=[replica],
        annotations={f"muster.kubeflow.org/{key}": value for key, value in written.items()},
    )
    (notice,) = gang.choose(flag).notices(job, FACTS)
    keys = "muster.kubeflow.org/replace-unreachable, muster.kubeflow.org/topology-required"
    text = f"{keys}: no effect with the gang scheduler {flag}, only with embedded"
    assert (notice.reason, notice.message) == ("AnnotationIgnored", text)
    assert not gang.choose("embedded").notices(job, FACTS)


def marked(**metadata):
    """Return a job whose template carries that metadata."""
    return make_job(replicas=[make_replica(template=make_template(metadata=metadata))])


OTHER = {"podGroupName": "other"}


@pytest.mark.parametrize(
    ("backend", "job", "message"),
    [
        (
            gang.EMBEDDED,
            marked(annotations={"scheduling.k8s.io/group-name": "other"}),
            'Worker: annotation scheduling.k8s.io/group-name "other" is overwritten with "mnist"',
        ),
        (
            gang.SCHEDULER_PLUGINS,
            marked(labels={"scheduling.x-k8s.io/pod-group": "other"}),
            'Worker: label scheduling.x-k8s.io/pod-group "other" is overwritten with "mnist"',
        ),
        (
            gang.KUBERNETES,
            make_job(replicas=[make_replica(template=make_template(schedulingGroup=OTHER))]),
            'Worker: schedulingGroup "other" is overwritten with "mnist"',
        ),
    ],
)
def test_group_name_overwritten(backend, job, message):
    """A template's own mark that differs is overwritten and reported; the right name is fine."""
    (notice,) = backend.notices(job, FACTS)
    told = (notice.type, notice.reason, notice.message)
    assert told == ("Warning", "GroupNameOverwritten", message)
    right = marked(annotations={"scheduling.k8s.io/group-name": "mnist"})
    assert reasons(gang.KUBE_BATCH, right) == []


EVERYTHING = {
    "min_available": 1, "queue": "q", "min_resources": {"cpu": "1"}, "priority_class": "high",
    "schedule_timeout_seconds": 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "dropped"),
    [
        ("embedded", ""),
        ("volcano", "scheduleTimeoutSeconds"),
        ("scheduler-plugins", "queue, priorityClass"),
        ("kube-batch", "minResources, scheduleTimeoutSeconds"),
        ("kubernetes", "queue, minResources, scheduleTimeoutSeconds"),
        ("none", "minAvailable, queue, minResources, priorityClass, scheduleTimeoutSeconds"),
    ],
)
def test_fields_that_the_backend_cannot_express(flag, dropped):
    """One Normal event names the fields and the backend."""
    found = gang.choose(flag).notices(make_job(scheduling=EVERYTHING), FACTS)
    texts = [(notice.type, notice.reason, notice.message) for notice in found]
    text = f"schedulingPolicy: the gang scheduler {flag} knows no {dropped}"
    assert texts == ([("Normal", "SchedulingPolicyIgnored", text)] if dropped else [])


@pytest.mark.parametrize(
    ("flag", "told"),
    [("embedded", ["PriorityClassNotFound"]), ("volcano", ["PriorityClassNotFound"]),
     ("scheduler-plugins", [])],
)  # fmt: skip
def test_priority_class_that_does_not_exist(flag, told):
    """Said where the group would carry it; the API server judges the pods' own."""
    job = make_job(replicas=[make_replica(template=make_template(priority="gone"))])
    assert reasons(gang.choose(flag), job) == told


@pytest.mark.parametrize(("asked", "told"), [(90, []), (91, ["ScheduleTimeoutLowered"])])
def test_a_timeout_beyond_what_is_allowed(asked, told):
    """Said once, with what counts instead; other schedulers have bounds of their own."""
    facts = gang.GangFacts("op", max_schedule_timeout=90.0)
    job = make_job(scheduling={"schedule_timeout_seconds": asked})
    notices = gang.EMBEDDED.notices(job, facts)
    assert [notice.reason for notice in notices] == told
    assert all(
        n.message == "scheduleTimeoutSeconds 91 counts as 90, the most that is allowed here"
        for n in notices
    )
    assert gang.SCHEDULER_PLUGINS.notices(job, facts) == ()


def test_lowered_minimum():
    """A minAvailable that counts a pod of a later stage is lowered, and that is said (S15)."""
    facts = gang.GangFacts("op", minimum=4, later=1)
    job = make_job(replicas=[make_replica(replicas=5)], scheduling={"min_available": 5})
    (notice,) = gang.VOLCANO.notices(job, facts)
    assert notice.reason == "MinAvailableLowered"
    assert notice.message == (
        "minAvailable 5 counts pods that are created only when the others are ready; "
        "it is 4 until then"
    )


def test_mixed_scheduler_names():
    """A native gang with two schedulers would be refused whole, so none is made; that is said."""
    mine = make_replica(type="PS", template=make_template(scheduler="mine"))
    job = make_job(replicas=[mine, make_replica()])
    assert reasons(gang.KUBERNETES, job) == ["MixedSchedulerNames"]
