# SPDX-License-Identifier: Apache-2.0
"""To which gang an existing pod belongs, what the gang asks, in every dialect, and what it is of
its pods.
"""

from dataclasses import replace

import pytest

from muster.allocator import tracker
from muster.allocator.members import GangSettings, group_facts
from muster.allocator.tracker import Assumed, Retry
from muster.allocator.verdict import SOMEBODY, unnamed
from muster.api.reasons import Reason
from muster.api.status import Verdict
from muster.cluster import podgroups
from muster.cluster.gangs import GangInput, GangRules
from muster.cluster.podgroups import Ask, Terms
from muster.cluster.pods import PodShape
from muster.scheduler.model import Topology, namespace_of
from support.builders.objects import make_group, make_pod

OURS = frozenset({"kube-batch", "muster"})
RULES = GangRules(OURS, "default", {"high": 1000})
GROUP_NAME = "scheduling.k8s.io/group-name"
LIGHTWEIGHT = "pod-group.scheduling.sigs.k8s.io/name"
LEAST = "pod-group.scheduling.sigs.k8s.io/min-available"
PLUGINS = "scheduling.x-k8s.io/pod-group"
MIN_MEMBER = "scheduling.k8s.io/group-min-member"
MARKS = {LIGHTWEIGHT: "two", PLUGINS: "three"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "qj", "uid": "u", "controller": True}


def ask(
    *, scheduler="kube-batch", kinds=(), owner=None, priority=None, preemption=None, **metadata
):
    """Return what a pod with that metadata asks."""
    owners = {"ownerReferences": [owner]} if owner else {}
    spec = {"containers": [], "schedulerName": scheduler, "priority": priority}
    spec["preemptionPolicy"] = preemption
    document = {"metadata": {"namespace": "team", "name": "p", **metadata, **owners}, "spec": spec}
    return podgroups.parse_ask(document, OURS, kinds)


def terms(key, *asks, group=None, rules=RULES, classes=None):
    """Return what the gang of these pods asks."""
    pods = [
        (make_pod(name=f"p{i}", created=10.0 - i, priority_class=named), a)
        for i, (a, named) in enumerate(zip(asks, classes or [""] * len(asks), strict=True))
    ]
    return podgroups.terms(key, pods, group, rules)


def test_pods_that_evict_nobody():
    """A gang is asked for by all of its pods."""
    calm, other = ask(preemption="Never"), ask(preemption="PreemptLowerPriority")
    for asked, polite in (((calm, calm), True), ((calm, other), False), ((other,), False)):
        members = [(make_pod(name=f"p{i}"), each) for i, each in enumerate(asked)]
        found = podgroups.terms("Pod/team/k", members, None, RULES).asks
        assert found.polite is polite


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        ({"annotations": {GROUP_NAME: "g"}}, "PodGroup/team/g"),
        ({"labels": {LIGHTWEIGHT: "g"}}, "pod-group/team/g"),
        ({"labels": {PLUGINS: "g"}}, "PodGroup.scheduling.x-k8s.io/team/g"),
        ({"owner": JOB}, "Job/team/qj"),
        ({}, "Pod/team/p"),
        ({"owner": JOB, "labels": MARKS, "annotations": {GROUP_NAME: "one"}}, "PodGroup/team/one"),
        ({"owner": JOB, "labels": MARKS}, "pod-group/team/two"),
        ({"owner": JOB, "labels": {PLUGINS: "x"}}, "PodGroup.scheduling.x-k8s.io/team/x"),
    ],
)
def test_the_first_mark_names_the_gang(metadata, key):
    """Own, lightweight, then scheduler-plugins; else the controller, or the pod alone."""
    assert ask(**metadata).group == key


@pytest.mark.parametrize(
    ("kind", "name"),
    [("TFJob", "victim/mnist"), ("A/victim/b", "c"), ("A", "/"), ("9", "my name"), ("", "x:y")],
)
@pytest.mark.parametrize("marked", [False, True])
def test_no_text_makes_a_gang_one_of_another_namespace(kind, name, marked):
    """Neither its controller's name or kind nor a mark: the API server takes any of them."""
    owner = {**JOB, "kind": kind, "name": name}
    group = ask(owner=owner, annotations={GROUP_NAME: name} if marked else {}).group
    assert (namespace_of(group), group.count("/")) == ("team", 2)
    assert unnamed(f"kept for {group}.", "x".__eq__) == f"kept for {SOMEBODY}."


@pytest.mark.parametrize("kind", ["TFJob", "PodGroup"])
def test_what_is_called_as_one_of_our_kinds_is_no_gang_of_that_name(kind):
    """A job, or a group, of that name would have the same key."""
    found = ask(kinds={"TFJob"}, owner={**JOB, "kind": kind, "name": "mnist"})
    assert found.group == f"{kind}.batch/team/mnist"


def test_pods_of_others_are_left_alone():
    """Another scheduler's, and those of a job that is handled here."""
    tfjob = {**JOB, "kind": "TFJob", "apiVersion": "kubeflow.org/v1"}
    assert ask(scheduler="default-scheduler") is None
    assert ask(scheduler="") is None
    assert ask(owner=tfjob, kinds={"TFJob"}) is None
    assert ask(owner=tfjob).group == "TFJob/team/qj"


def test_a_pod_names_the_minimum_where_there_is_no_object():
    """The largest number that any member names; what is no number counts as none."""
    few, many, odd = (ask(labels={LIGHTWEIGHT: "g", LEAST: n}) for n in ("2", "3", "many"))
    assert terms("pod-group/team/g", few, many, odd).asks.min_member == 3
    assert terms("pod-group/team/g", odd).asks.min_member == 1
    shadow = ask(owner=JOB, annotations={MIN_MEMBER: "4"})
    assert terms("Job/team/qj", shadow, ask(owner=JOB)).asks.min_member == 4
    assert ask(annotations={GROUP_NAME: "g", MIN_MEMBER: "4"}).minimum == 0


def test_a_pod_group_says_it_all():
    """Minimum, queue, priority, minResources, age, and what happens without a member."""
    spec = {
        "scheduleTimeoutSeconds": 60,
        "memberHoldSeconds": 7,
        "onHoldExpired": "release",
        "minMember": 6,
        "queue": "research",
        "priorityClassName": "high",
        "minResources": {"cpu": "2"},
    }
    group = make_group(spec=spec, created=3.0)
    found = terms("PodGroup/team/g", ask(priority=1005), group=group)
    assert (found.asks.min_member, found.asks.queue, found.asks.priority) == (6, "research", 1000)
    assert found.asks.priority_class == "high"
    assert found.asks.min_resources == {"cpu": 2000}
    assert (found.timeout, found.hold, found.on_hold_expired) == (60, 7, "release")
    assert (found.asks.created, found.asks.uid) == (3.0, "group-uid")


def test_a_group_is_not_waited_for_beyond_all_measure():
    """What one namespace keeps for itself has an end, whatever its groups say."""
    group = make_group(spec={"scheduleTimeoutSeconds": 2**31 - 1, "memberHoldSeconds": 2**31 - 1})
    found = terms("PodGroup/team/g", ask(), group=group)
    assert (found.timeout, found.hold) == (86_400, 3_600)
    rules = replace(RULES, max_schedule_timeout=90.0, max_member_hold=7.0)
    found = terms("PodGroup/team/g", ask(), group=group, rules=rules)
    assert (found.timeout, found.hold) == (90, 7)


def test_a_pod_group_that_says_nothing():
    """One pod at a time, the default queue, the highest priority of its pods."""
    pods, rules = (ask(priority=5), ask(priority=7)), replace(RULES, default_queue="pool")
    found = terms("PodGroup/team/g", *pods, group=make_group(), rules=rules)
    assert (found.asks.min_member, found.asks.queue, found.asks.priority) == (1, "pool", 7)
    assert found.asks.created == 9.0
    assert (found.timeout, found.hold, found.on_hold_expired) == (None, None, "")
    zero = make_group(spec={"scheduleTimeoutSeconds": 0})
    assert terms("PodGroup/team/g", ask(), group=zero).timeout is None


def test_a_group_is_not_above_its_pods():
    """The API server judges who may use a class by the pods. Groups' priorities may be off."""
    group = make_group(spec={"priorityClassName": "high"})
    pods, classes = (ask(priority=5), ask(priority=7)), ("low", "normal")
    found = terms("PodGroup/team/g", *pods, group=group, classes=classes)
    assert (found.asks.priority, found.asks.priority_class) == (7, "normal")
    assert terms("Job/team/qj", *pods, classes=classes).asks.priority_class == "normal"
    # The class of the pods had a higher value when they were admitted.
    found = terms("PodGroup/team/g", ask(priority=5000), group=group, classes=("high",))
    assert (found.asks.priority, found.asks.priority_class) == (5000, "high")
    rules = GangRules(OURS, "default", {"high": 1000}, group_priority=False)
    assert terms("PodGroup/team/g", ask(priority=5), group=group, rules=rules).asks.priority == 5


def test_a_disruption_budget_is_a_group_of_old():
    """Its minAvailable counts if it is a number."""
    budget = make_group(kind="PodDisruptionBudget", spec={"minAvailable": 3})
    assert terms("Job/team/qj", ask(owner=JOB), group=budget).asks.min_member == 3
    share = make_group(kind="PodDisruptionBudget", spec={"minAvailable": "50%"})
    assert terms("Job/team/qj", ask(owner=JOB), group=share).asks.min_member == 1


def test_a_group_that_is_not_there_yet():
    """Its pods wait for it; nobody else waits."""
    refusal = terms("PodGroup/team/g", ask(annotations={GROUP_NAME: "g"})).asks.refusal
    assert refusal.reason is Reason.GROUP_MISSING
    assert refusal.sentence == 'PodGroup "g" does not exist'
    assert terms("pod-group/team/g", ask()).asks.refusal is None
    assert terms("Pod/team/p", ask()).asks.refusal is None


def test_a_pod_on_its_node_has_the_shape_of_one_that_waits():
    """The node that a pod has got is no constraint of its own."""
    spec = {"containers": [], "schedulerName": "muster"}
    metadata = {"namespace": "team", "name": "p"}
    waits, runs = (
        podgroups.parse_ask({"metadata": metadata, "spec": {**spec, **more}}, OURS, ())
        for more in ({}, {"nodeName": "n1"})
    )
    assert waits == runs


def test_the_pod_of_a_launcher_is_asked_for_by_its_job():
    """Though a batch Job made it; unless there is nobody here who serves such jobs."""
    batch = {"kind": "Job", "apiVersion": "batch/v1", "name": "l", "uid": "1", "controller": True}
    labels = {"training.kubeflow.org/operator-name": "mpi-operator"}
    assert ask(owner=batch, kinds={"MPIJob"}, labels=labels) is None
    assert ask(owner=batch, kinds=(), labels=labels) is not None
    assert ask(owner=batch, kinds={"MPIJob"}) is not None


KEY = "PodGroup/team/g"
SMALL, LARGE = PodShape((("cpu", 1000),)), PodShape((("cpu", 4000),))
SETTINGS = GangSettings(GangRules(frozenset({"muster"}), "default"))
TERMS = Terms(GangInput(KEY, "uid", "default", 1.0, 2))


def member(name="a", *, group=KEY, shape=SMALL, priority=0, **pod):
    """Return a pod of the gang."""
    return make_pod(name=name, **pod), Ask(group, 0, priority, shape)


def gang(*members, promised=None, **more):
    """Return the gang of these pods."""
    blank = Verdict("muster", "Waiting", "g", 2)
    facts = group_facts(KEY, members, TERMS, SETTINGS, blank)
    memory = replace(tracker.begin(facts), previous={}, **assumed(promised), **more)
    return tracker.step(memory, facts, 0.0).memory.input


def assumed(nodes):
    """Return these pods as assumed ones."""
    return {"assumed": {n: Assumed(node, SMALL, 0.0) for n, node in (nodes or {}).items()}}


def test_the_state_of_a_pod_is_the_state_of_a_task():
    """Told apart by position; what has failed or is going is neither there nor wanted."""
    made = gang(
        member("a", node="n1", phase="Running"),
        member("b"),
        member("c"),
        member("d", gated=True),
        member("e", phase="Succeeded"),
        member("f", phase="Failed"),
        member("g", node="n1", deleting=True),
        member("h"),
        promised={"c": "n2"},
        retries={"h": Retry(2, 9.0)},
    )
    (role,) = made.roles
    assert role.held == ((0, "n1"), (2, "n2"))
    assert (role.waiting, role.returning) == ((1,), (7,))
    assert (role.gated, role.succeeded) == (1, 1)
    assert made.admitted


def test_pods_that_differ_make_lots():
    """By shape and priority, in the order of their first pods."""
    made = gang(member("a", shape=LARGE), member("b"), member("c", shape=LARGE, priority=3))
    assert [(r.shape, r.priority, r.waiting) for r in made.roles] == [
        (LARGE, 0, (0,)),
        (SMALL, 0, (1,)),
        (LARGE, 3, (2,)),
    ]
    assert not made.admitted


def test_pods_with_other_labels_make_lots():
    """Terms of other pods may be about them; a number of its own makes no difference."""
    index = "batch.kubernetes.io/job-completion-index"
    labels = [{"role": "ps", index: "0"}, {"role": "ps", index: "1"}, {"role": "worker"}]
    made = gang(*(member(f"p{i}", labels=each) for i, each in enumerate(labels)))
    assert [role.waiting for role in made.roles] == [(0, 1), (2,)]


@pytest.mark.parametrize(
    ("pods", "phase"),
    [
        ([{}, {}], "Pending"),
        ([{"node": "n1"}, {"node": "n1"}], "Running"),
        ([{"node": "n1", "phase": "Running"}, {"phase": "Succeeded"}], "Running"),
        ([{"node": "n1", "phase": "Running"}, {}], "Unknown"),
        ([{"node": "n1"}, {}], "Pending"),
        ([{"node": "n1", "phase": "Running"}, {"phase": "Failed"}], "Unknown"),
    ],
)
def test_the_phase_of_a_group(pods, phase):
    """Enough have room; some run and the gang is not whole; else it waits."""
    members = [member(str(index), **pod) for index, pod in enumerate(pods)]
    assert podgroups.phase(members, 2, {}) == phase


def test_counts_name_what_there_is():
    """By the phases of the pods; one that is being deleted does not run any more."""
    pods = [{"phase": "Running"}, {"phase": "Running", "deleting": True}, {"phase": "Failed"}, {}]
    members = [member(str(index), **pod) for index, pod in enumerate(pods)]
    assert podgroups.counts(members) == {"running": 1, "failed": 1}


@pytest.mark.parametrize(
    ("pod", "critical"),
    [
        ({}, False),
        ({"priority_class": "system-node-critical"}, True),
        ({"namespace": "kube-system"}, True),
    ],
    ids=["plain", "class", "namespace"],
)
def test_what_keeps_the_cluster_at_work(pod, critical):
    """By class or namespace of any of its pods."""
    found = podgroups.terms(KEY, [member("a", **pod)], None, SETTINGS.rules)
    assert found.asks.critical is critical


def test_where_pods_are_to_lie():
    """A group says it of all that do not; pods that say it themselves are a set of their own."""
    required = {"muster.kubeflow.org/topology-required": "zone"}
    theirs = {"kueue.x-k8s.io/podset-preferred-topology": "rack"}
    group = make_group(api_version="scheduling.incubator.k8s.io/v1alpha1", annotations=required)
    plain, own = ask(), ask(annotations=theirs)
    members = [(make_pod(name=f"p{i}"), each) for i, each in enumerate((plain, own, plain))]
    found = podgroups.terms("PodGroup/team/g", members, group, RULES)
    assert found.asks.topology == Topology("zone", required=True)
    assert [(each.topology, list(each.places)) for each in podgroups.task_sets(members)] == [
        (None, [0, 2]),
        (Topology("rack"), [1]),
    ]


def test_a_group_that_asks_for_no_label():
    """Its gang waits, and says which annotation is wrong."""
    wrong = {"muster.kubeflow.org/topology-required": "my rack"}
    group = make_group(api_version="scheduling.incubator.k8s.io/v1alpha1", annotations=wrong)
    refusal = terms("PodGroup/team/g", ask(), group=group).asks.refusal
    assert refusal.reason == Reason.INVALID
    assert "metadata.annotations[muster.kubeflow.org/topology-required]" in refusal.sentence


def test_the_minimum_of_each_role():
    """Members are told apart by their label; what one role has to spare makes up for no other."""
    annotations = {"muster.kubeflow.org/min-available": "ps=1, Worker=2"}
    group = make_group(api_version="scheduling.incubator.k8s.io/v1alpha1", annotations=annotations)
    labels = [("worker", "n1"), ("worker", "n1"), ("worker", "n1"), ("PS", "")]
    members = [
        (make_pod(name=f"p{i}", role="", node=node, labels={"volcano.sh/task-spec": role}), ask())
        for i, (role, node) in enumerate(labels)
    ]
    found = podgroups.terms("PodGroup/team/g", members, group, RULES)
    assert (found.asks.min_member, found.asks.leasts) == (3, {"ps": 1, "worker": 2})
    sets = podgroups.task_sets(members, by_role=True)
    assert {each.role: list(each.places) for each in sets} == {"worker": [0, 1, 2], "ps": [3]}
    assert podgroups.ready(members, found.asks.leasts) == 2
    assert podgroups.phase(members, 3, found.asks.leasts) == "Pending"


@pytest.mark.parametrize("text", ["", "worker", "worker=", "worker=x", "worker=1,worker=2", "=1"])
def test_a_minimum_that_cannot_be_read(text):
    """The gang waits, and says which annotation is wrong."""
    annotations = {"muster.kubeflow.org/min-available": text}
    group = make_group(api_version="scheduling.incubator.k8s.io/v1alpha1", annotations=annotations)
    found = terms("PodGroup/team/g", ask(), group=group)
    assert found.asks.refusal.reason == Reason.INVALID
    assert "metadata.annotations[muster.kubeflow.org/min-available]" in found.asks.refusal.sentence
