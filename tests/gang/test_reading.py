# SPDX-License-Identifier: Apache-2.0
"""A foreign scheduler's state in the words of status.gang."""

import dataclasses

import pytest

from muster import gang
from muster.api.status import JobStatus, Verdict
from support.builders.objects import (
    make_group,
    make_job,
    make_owner,
    make_pod,
    make_replica,
    make_template,
)

FACTS = gang.GangFacts(operator_name="op")
RUNNING = JobStatus(gang=Verdict(scheduler="any", state="Running"))


def unschedulable(reason, message):
    """Return the condition that Volcano and kube-batch write."""
    return {"type": "Unschedulable", "status": "True", "reason": reason, "message": message}


def pods(*phases, message=""):
    """Return the job's pods in these phases; those that run have a node."""
    return [
        make_pod(
            name=f"mnist-worker-{index}",
            index=index,
            phase=phase,
            node="node-1" if phase != "Pending" else "",
            ready=phase == "Running",
            message=message if phase == "Pending" else "",
        )
        for index, phase in enumerate(phases)
    ]


def judge(backend, group, members=(), job=None, now=10.0):
    """Return (state, reason, message) of the verdict, or None."""
    verdict = backend.verdict(group, job or make_job(), FACTS, members, now)
    return verdict and (verdict.state, verdict.reason, verdict.message)


LATER = "Volcano has not admitted the group to its queue yet"
OVERUSED, NO_QUOTA = "queue is Overused", "queue resource quota insufficient: cpu"


@pytest.mark.parametrize(
    ("phase", "condition", "verdict"),
    [
        ("", None, ("Queued", "NotAdmitted", LATER)),
        ("Pending", None, ("Queued", "NotAdmitted", LATER)),
        ("Pending", ("NotEnoughResources", OVERUSED), ("Queued", "QueueOverused", OVERUSED)),
        ("Pending", ("", NO_QUOTA), ("Queued", "QueueOverused", NO_QUOTA)),
        ("Inqueue", ("NotEnoughTasks", "1 of 2"), ("Queued", "NotEnoughTasks", "1 of 2")),
        ("Inqueue", ("NotEnoughPodsOfTask", "w"), ("Queued", "NotEnoughPodsOfTask", "w")),
        ("Inqueue", None, None),
        ("Running", ("NotEnoughResources", "old"), ("Running", "", "")),
        ("Completed", None, ("Running", "", "")),
        ("Unknown", ("PodFailed", "gone"), ("Degraded", "PodFailed", "gone")),
    ],
)
def test_volcano(phase, condition, verdict):
    """Volcano's phases and conditions."""
    group = make_group(phase=phase, conditions=(unschedulable(*condition),) if condition else ())
    assert judge(gang.VOLCANO, group) == verdict


NO_GPU = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
STARTING = [dataclasses.replace(pod, node="node-1") for pod in pods("Pending", "Pending")]
EARLY = "0/4 nodes are available: pre-filter pod mnist-worker-0 cannot find enough sibling pods"


@pytest.mark.parametrize(
    ("members", "job", "verdict"),
    [
        (pods(), make_job(), None),
        (pods("Pending", "Pending"), make_job(), None),
        # The scheduler saw the first one before its sibling was there, and not again since.
        (
            [*pods("Pending", message=EARLY), *pods("Pending", "Pending", message=NO_GPU)[1:]],
            make_job(),
            ("Queued", "Unschedulable", NO_GPU),
        ),
        (pods("Pending", message=EARLY), make_job(), ("Queued", "Unschedulable", EARLY)),
        (STARTING, make_job(), ("Placed", "", "")),
        (pods("Running", "Running"), make_job(), ("Running", "", "")),
        (pods("Running", "Succeeded"), make_job(), ("Running", "", "")),
        (
            pods("Running", "Pending", message=NO_GPU),
            make_job(status=RUNNING),
            ("Degraded", "NotEnoughTasks", "1 of the 2 pods that must run together run"),
        ),
        (
            pods("Pending"),
            make_job(scheduling={"min_available": 10}),
            ("Queued", "NotEnoughTasks", "10 pods must start together, but the job has 2"),
        ),
    ],
)
def test_scheduler_plugins_is_read_from_the_pods(members, job, verdict):
    """Its group status is not trusted; the pods' own conditions are."""
    group = make_group(phase="Finished")
    assert judge(gang.SCHEDULER_PLUGINS, group, members, job) == verdict


@pytest.mark.parametrize(
    ("phase", "state"), [("Pending", "Queued"), ("Unknown", "Degraded"), ("Running", None)]
)
def test_kube_batch(phase, state):
    """kube-batch's phase tells a waiting gang from one that lost a member."""
    group = make_group(phase=phase, conditions=(unschedulable("NotEnoughResources", "1/2"),))
    verdict = judge(gang.KUBE_BATCH, group)
    assert verdict == (state and (state, "NotEnoughResources", "1/2"))


@pytest.mark.parametrize("backend", [gang.VOLCANO, gang.KUBE_BATCH], ids=lambda it: it.name)
@pytest.mark.parametrize(("second", "state"), [("Running", "Running"), ("Pending", "Degraded")])
def test_running_pods_of_gang_that_ran_prevail_over_group_that_waits(backend, second, state):
    """A recreated group, or one of another scheduler, reports that the whole gang waits."""
    group = make_group(phase="Pending", conditions=(unschedulable("NotEnoughResources", "1/2"),))
    job = make_job(status=RUNNING)
    assert judge(backend, group, pods("Running", second), job)[0] == state
    assert judge(backend, group, pods("Pending"), job)[0] == "Queued"


@pytest.mark.parametrize("type_", ["PodGroupInitiallyScheduled", "PodGroupScheduled"])
@pytest.mark.parametrize(("status", "state"), [(JobStatus(), "Queued"), (RUNNING, "Degraded")])
def test_kubernetes(type_, status, state):
    """The native scheduler's condition, in its own words: of 1.37 and of 1.36."""
    condition = {"type": type_, "status": "False", "reason": "Unschedulable", "message": NO_GPU}
    group = make_group(conditions=(condition,))
    members = [dataclasses.replace(pod, group="mnist") for pod in pods("Pending", "Pending")]
    verdict = judge(gang.KUBERNETES, group, members, make_job(status=status))
    assert verdict == (state, "Unschedulable", NO_GPU)


def test_a_native_gang_that_made_room_says_for_what():
    """The scheduler's word on a disruption comes before that it is not scheduled."""
    conditions = (
        {"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable"},
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "for a gang of higher priority",
        },
    )
    members = [dataclasses.replace(pod, group="mnist") for pod in pods("Pending", "Pending")]
    group, job = make_group(conditions=conditions), make_job(status=RUNNING)
    said = ("PreemptionByScheduler", "for a gang of higher priority")
    assert judge(gang.KUBERNETES, group, members, job) == ("Degraded", *said)
    again = [dataclasses.replace(pod, group="mnist") for pod in pods("Running", "Running")]
    assert judge(gang.KUBERNETES, group, again, job) == ("Running", "", "")


def test_volcano_is_not_accused_of_silence_at_once():
    """A new group is queued; that it is not admitted is worth a word only after a while."""
    group = make_group(phase="Pending")
    assert judge(gang.VOLCANO, group, now=9.0) == ("Queued", "", "")
    assert judge(gang.VOLCANO, group, now=10.0) == ("Queued", "NotAdmitted", LATER)


@pytest.mark.parametrize(
    ("queues", "reason", "message"),
    [
        (None, "", ""),
        ({"research": "Open"}, "", ""),
        ({"default": "Open"}, "QueueNotFound", 'Volcano has no queue "research"'),
        (
            {"research": "Closing"},
            "QueueNotOpen",
            'the queue "research" of Volcano is Closing, not Open',
        ),
    ],
)
def test_volcano_takes_nobody_into_a_queue_that_is_not_open(queues, reason, message):
    """It does not say so itself; what it does say comes first, and load changes nothing."""
    facts = dataclasses.replace(FACTS, queues=queues)
    group = make_group(phase="Pending", spec={"queue": "research"})
    verdict = gang.VOLCANO.verdict(group, make_job(), facts, (), 5.0)
    assert (verdict.state, verdict.reason, verdict.message) == ("Queued", reason, message)
    assert verdict.ever_possible is (not reason)
    said = dataclasses.replace(group, conditions=(unschedulable("NotEnoughResources", "no"),))
    assert gang.VOLCANO.verdict(said, make_job(), facts, (), 5.0).reason == "NotEnoughResources"


def test_a_native_gang_whose_pods_lost_their_link_is_not_enforced():
    """The API server leaves out a field that is switched off: pods start one by one."""
    members = pods("Running", "Pending")
    state, reason, message = judge(gang.KUBERNETES, make_group(), members)
    assert (state, reason) == ("Queued", "GangNotEnforced")
    assert "feature gates" in message
    held = [dataclasses.replace(pod, group="mnist") for pod in pods("Running", "Running")]
    assert judge(gang.KUBERNETES, make_group(), held) == ("Running", "", "")
    mixed = make_job(replicas=[
        make_replica(type="PS", template=make_template(scheduler="mine")), make_replica()
    ])  # fmt: skip
    assert judge(gang.KUBERNETES, make_group(), members, mixed) is None


def test_terminating_group_that_keeps_pods_from_being_created_is_reported():
    """A finalizer keeps a native group until all pods are gone, and no lost member returns."""
    members = [dataclasses.replace(pod, group="mnist") for pod in pods("Running")]
    group, job = make_group(deleting=True), make_job(status=RUNNING)
    state, reason, message = judge(gang.KUBERNETES, group, members, job)
    assert (state, reason) == ("Degraded", "GroupMissing")
    assert "suspend and resume the job" in message


@pytest.mark.parametrize(("now", "missing"), [(29.0, False), (30.0, True)])
def test_group_that_is_missing(now, missing):
    """Half a minute of waiting pods without a group is reported; before, it may be on its way."""
    verdict = judge(gang.SCHEDULER_PLUGINS, None, pods("Pending"), now=now)
    assert (verdict is not None and verdict[1] == "GroupMissing") is missing


@pytest.mark.parametrize("backend", [gang.NONE, gang.EMBEDDED], ids=lambda backend: backend.name)
def test_backends_that_give_no_verdict(backend):
    """Without gangs there is nothing to say, and the allocator says its part itself."""
    assert judge(backend, make_group(phase="Pending"), pods("Pending", message=NO_GPU)) is None


ANOTHER = make_owner(uid="another")


def test_pods_of_others_and_pods_that_go_do_not_count():
    """Only the job's own living pods are members."""
    members = [
        *pods("Running"),
        make_pod(name="mnist-worker-1", phase="Running", node="n", owner=ANOTHER),
        make_pod(name="mnist-worker-2", phase="Running", node="n", deleting=True),
    ]
    verdict = gang.SCHEDULER_PLUGINS.verdict(
        make_group(), make_job(status=RUNNING), FACTS, members, 0.0
    )
    found = verdict.state, verdict.placed, verdict.ready, verdict.min_member
    assert found == ("Degraded", 1, 1, 2)


@pytest.mark.parametrize(
    ("members", "summary"),
    [
        (pods("Running", "Running"), "2/2 running"),
        (pods("Pending", message=NO_GPU), f"0/2 placed: {NO_GPU}"),
        (pods("Pending", message="x" * 300), "0/2 placed: " + "x" * 107 + "…"),
    ],
)
def test_summary(members, summary):
    """The column GANG: counts, then why, cut to a readable length."""
    verdict = gang.SCHEDULER_PLUGINS.verdict(make_group(), make_job(), FACTS, members, 0.0)
    assert verdict.summary == summary
