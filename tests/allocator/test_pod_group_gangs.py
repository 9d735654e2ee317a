# SPDX-License-Identifier: Apache-2.0
"""A gang of foreign pods that lost a member: for how long its room is kept, and what then."""

from dataclasses import replace

import pytest

from muster import gang
from muster.allocator import tracker
from muster.allocator.members import PodGroupMembers
from muster.allocator.tracker import NOT_NOW, PATIENCE, REST, Bind, Departure, Evict, Started
from muster.allocator.verdict import RECORDED, RELEASE, Cause
from muster.api import edge, names
from muster.api.reasons import DeletionReason, Reason
from muster.frameworks import FRAMEWORKS
from muster.scheduler.model import Refusal
from muster.store.store import Store
from support.apiserver.memory import tfjob
from support.builders.objects import reference
from support.builders.scheduler import make_node, make_pod
from support.rehearsal.gang_tracking import Following, Shown

HOLD = 120.0
KEY = "PodGroup/team/g"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "qj", "uid": "job", "controller": True}
CAUSE = Cause(DeletionReason.PREEMPT, "TFJob/team/large")
MISSING = "members were missing for too long; it starts anew"


class Story(Shown):
    """A gang of three pods on two nodes, as the allocator follows it."""

    def __init__(self, *, owner=OWNER, runs=True, **spec):
        """Begin with the whole gang running, or waiting; `spec` is its PodGroup's."""
        self.store = Store(gang.EMBEDDED, [])
        self.store.groups.use(gang.EMBEDDED.apis[0])
        self.owner = owner
        for name in ("n1", "n2"):
            self.put({"kind": "Node", **make_node(name=name)})
        api = gang.EMBEDDED.apis[0]
        metadata = {"name": "g", "namespace": "team"}
        document = {"kind": "PodGroup", "apiVersion": api.api_version, "metadata": metadata}
        self.group = {**document, "spec": {"minMember": 3, **spec}}
        self.put(self.group)
        for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
            if runs:
                self.pod(name, node)
            else:
                self.pod(name, "", phase="Pending")
        self.follow()
        self.look(0.0)

    def follow(self):
        """Begin to follow the gang, as a process that starts now."""
        self.following = Following(
            self.store, PodGroupMembers, KEY, "kube-batch", 0.0, HOLD, expired=""
        )

    @property
    def memory(self):
        """What is remembered."""
        return self.following.memory

    def pod(self, name, node, created=0.0, had="", **more):
        """Show a member on a node."""
        document = make_pod(name=name, node=node, namespace="team", cpu=1, **more)
        document["spec"]["schedulerName"] = "kube-batch"
        document["metadata"]["annotations"] = {
            "scheduling.k8s.io/group-name": "g",
            names.GANG_HAD: had,
        }
        document["metadata"]["ownerReferences"] = [self.owner] if self.owner else []
        document["metadata"]["creationTimestamp"] = edge.format_time(created)
        self.put({"kind": "Pod", **document})

    def say(self, reason, since=11.0):
        """Show the group with a condition that says why its pods have no room, or lose it."""
        told = {"type": "Unschedulable", "status": "True", "reason": reason, "message": "for x"}
        told["lastTransitionTime"] = edge.format_time(since)
        self.put({**self.group, "status": {"conditions": [told]}})

    def lose(self, name):
        """Let a member be gone."""
        self.store.gone("Pod", "team", name, f"uid-{name}")

    def promise(self, now, **nodes):
        """Give members their nodes."""
        self.following.now = now
        self.following.assume(nodes)

    def look(self, now):
        """Return what the gang is for a cycle."""
        self.following.now = now
        return self.following.look()

    def going(self, now, expired=""):
        """Return the names of those who are to go when a cycle looks."""
        settings = self.following.settings
        self.following.settings = replace(settings, on_hold_expired=expired)
        self.look(now)
        return sorted(self.memory.leaving)

    def evicted(self):
        """Return the names of the pods that were evicted at the last look, and for whom."""
        return {it.pod.name: it.cause for it in self.following.effects.of(Evict)}


@pytest.mark.parametrize(
    ("spec", "kept"), [({}, HOLD), ({"memberHoldSeconds": 5}, 5), ({"memberHoldSeconds": 0}, 0)]
)
def test_a_group_says_for_how_long_the_place_is_kept(spec, kept):
    """From when the member was missed; else it is as the flag says. A cycle comes at the end."""
    story = Story(**spec)
    assert story.look(5.0).hold_until is None
    story.lose("c")
    assert story.look(10.0).hold_until == 10.0 + kept
    assert story.look(11.0).hold_until == 10.0 + kept
    assert story.following.wakes == ([10.0 + kept] if kept else [])
    story.pod("d", "n2")
    assert story.look(12.0).hold_until is None


def test_a_pod_made_anew_under_the_name_of_one_that_was_given_a_node():
    """It may ask for more: what was decided is not for it, and it waits for the next cycle."""
    story = Story(runs=False)
    story.promise(1.0, a="n1", b="n1", c="n2")
    uids = {name: f"uid-{name}" for name in "abc"}
    promised = {n: replace(it, uid=uids[n]) for n, it in story.memory.assumed.items()}
    story.following.set(assumed=promised)
    story.pod("c", "", uid="second", phase="Pending")
    story.look(2.0)
    assert "c" not in story.following.assumed()
    assert "second" not in {effect.pod.uid for effect in story.following.effects.of(Bind)}


@pytest.mark.parametrize(
    ("said", "flag", "gone"),
    [
        ("", "", []),
        ("", "keep", []),
        ("", "restart", ["a", "b"]),
        ("", "release", ["a", "b"]),
        ("keep", "release", []),
        ("release", "keep", ["a", "b"]),
        ("restart", "", ["a", "b"]),
    ],
)
def test_what_happens_when_the_time_is_up(said, flag, gone):
    """What the group says counts, then the flag; all that is left goes, or nothing."""
    story = Story(**({"onHoldExpired": said} if said else {}))
    story.lose("c")
    assert story.going(10.0, flag) == []
    assert story.going(10.0 + HOLD - 1, flag) == []
    assert story.going(10.0 + HOLD, flag) == gone


@pytest.mark.parametrize("removed", [True, False])
def test_running_gang_without_a_readable_group_stays_whole(removed):
    """None of its pods becomes surplus, and none is released when one is lost."""
    story = Story()
    for name, node in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        story.pod(name, node, had="3")
    if removed:
        story.store.gone("PodGroup", "team", "g", "uid-g")
    else:
        story.put({**story.group, "spec": {"minResources": {"cpu": "-1z"}}})
    found = story.look(2.0)
    assert (found.min_member, found.refusal is None) == (3, False)
    story.lose("c")
    assert story.going(10.0, "release") == story.going(300.0, "release") == []
    story.put({**story.group, "metadata": {**story.group["metadata"], "uid": "second"}})
    assert story.going(400.0, "release") == []
    assert story.going(400.0 + HOLD, "release") == ["a", "b"]


def test_pods_that_nobody_makes_again_are_kept():
    """Unless their group itself says that they are to go."""
    story = Story(owner=None)
    story.lose("c")
    story.look(0.0)
    assert story.going(HOLD, "release") == []
    released = Story(owner=None, onHoldExpired="release")
    released.lose("c")
    released.look(0.0)
    assert released.going(HOLD) == ["a", "b"]


@pytest.mark.parametrize(("spec", "kept"), [({}, PATIENCE), ({"scheduleTimeoutSeconds": 5}, 5)])
def test_nodes_are_kept_for_so_long_for_pods_that_do_not_come_to_them(spec, kept):
    """Then others may have them for a while, the group says so, and it is tried again."""
    story = Story(runs=False, **spec)
    story.promise(1.0, a="n1", b="n1", c="n2")
    assert story.look(kept).refusal is None
    assert story.following.wakes == [1.0 + kept]
    assert story.look(1.0 + kept).refusal is NOT_NOW
    verdict = story.memory.verdict
    assert verdict.reason == Reason.NOT_ENOUGH_TASKS
    assert verdict.message == f"its pods did not get to their nodes within {kept:.0f} s"
    assert not story.following.assumed()
    assert story.following.wakes == [1.0 + kept + REST]
    assert story.look(1.0 + kept + REST - 1).refusal is NOT_NOW
    assert story.look(1.0 + kept + REST).refusal is None


@pytest.mark.parametrize(
    ("spec", "flag", "owner", "kept", "gone"),
    [
        ({"scheduleTimeoutSeconds": 5, "memberHoldSeconds": 60}, "keep", OWNER, 5, ["a", "b"]),
        ({"scheduleTimeoutSeconds": 5}, "release", OWNER, 5, ["a", "b"]),
        ({"scheduleTimeoutSeconds": 5}, "keep", OWNER, 5, ["a", "b"]),
        ({"scheduleTimeoutSeconds": 5, "onHoldExpired": "keep"}, "keep", OWNER, 5, []),
        ({"scheduleTimeoutSeconds": 5}, "keep", None, 5, []),
        ({}, "keep", OWNER, HOLD, []),
    ],
)
def test_a_gang_that_never_became_whole(spec, flag, owner, kept, gone):
    """It is waited for as long as its group says; then it begins anew if it can, and may."""
    story = Story(runs=False, owner=owner, **spec)
    for name in ("a", "b"):
        story.pod(name, "n1")
    assert story.look(10.0).hold_until == 10.0 + kept
    assert story.going(10.0 + kept - 1, flag) == []
    assert story.going(10.0 + kept, flag) == gone


def test_gang_is_not_released_while_a_member_may_run_on_an_unreachable_node():
    """Its other members run on, whatever the group says about the end of the hold."""
    story = Story(memberHoldSeconds=1, onHoldExpired="release")
    node, since = make_node(name="n1"), edge.format_time(0.0)
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    story.put({"kind": "Node", **node, "status": {**node["status"], "conditions": [ready]}})
    story.lose("c")
    assert (story.going(60.0), story.going(600.0)) == ([], [])


def test_a_gang_that_begins_anew():
    """It is not placed while its pods go, says why, and then starts whole with its age."""
    story = Story(memberHoldSeconds=1, onHoldExpired="release")
    story.lose("c")
    story.look(10.0)
    going = story.look(11.0)
    assert going.refusal is NOT_NOW
    # First it is to be read that they go: a process that follows would not know.
    assert not story.evicted()
    story.say("NotEnoughTasks")
    story.look(11.0)
    assert story.evicted() == {"a": RELEASE, "b": RELEASE}
    assert RELEASE.sentence == f"release: {MISSING}"
    verdict = story.memory.verdict
    found = verdict.state, verdict.reason, verdict.message
    assert found == ("Released", "NotEnoughTasks", MISSING)
    for name in ("a", "b"):
        story.lose(name)
    for name in ("d", "e", "f"):
        story.pod(name, "", phase="Pending")
    anew = story.look(12.0)
    assert (anew.refusal, anew.admitted, anew.hold_until) == (None, False, None)
    assert anew.created == going.created
    assert [len(role.waiting) for role in anew.roles] == [3]
    story.look(1000.0)
    assert not story.memory.leaving


def test_new_pods_are_not_those_that_were_released():
    """They come while the old ones go, and stay; none goes after each hold if one may not."""
    story = Story(memberHoldSeconds=1, onHoldExpired="release")
    story.lose("c")
    story.look(10.0)
    story.look(11.0)
    story.say("NotEnoughTasks")
    story.look(11.0)
    story.pod("d", "", phase="Pending")
    story.look(11.0 + tracker.REPEAT)
    assert sorted(story.evicted()) == ["a", "b"]
    story.following.gangs.not_evicted(story.memory.facts.pods["b"], 14.0)
    story.lose("a")
    for seconds in (60, 61):
        story.look(seconds * tracker.UNEVICTABLE_SECONDS)
        assert not story.memory.released
    story.look(61 * tracker.UNEVICTABLE_SECONDS + 14.0)
    assert story.memory.released


@pytest.mark.parametrize("said", [True, False])
def test_a_process_that_follows_takes_the_rest_of_a_gang_away(said):
    """What its group says it was evicted for: half of it would run on, and another gang go too."""
    story = Story()
    story.lose("c")
    if said:
        story.say("Preempted", since=20.0)
    story.pod("d", "n2", created=21.0)
    story.follow()
    story.look(30.0)
    assert story.evicted() == (dict.fromkeys("ab", RECORDED) if said else {})
    verdict = story.memory.verdict
    if said:
        found = verdict.state, verdict.reason, verdict.message
        assert found == ("Released", "Preempted", "for x")
        for name in ("a", "b"):
            story.lose(name)
        assert not story.look(31.0).refusal
        assert not story.memory.leaving


def test_a_gang_that_makes_room_says_so_first():
    """Where that is never written, be it that somebody takes it away again, it goes soon."""
    story = Story()
    story.following.now = 1.0
    story.following.give_back(frozenset("abc"), Departure(CAUSE))
    story.look(2.0)
    assert not story.evicted()
    story.look(1.0 + tracker.TELLING)
    assert story.evicted() == dict.fromkeys("abc", CAUSE)


def test_the_wait_of_a_gang_is_measured_once():
    """With its last pod on a node, from when its first one was made; not for one found running."""
    found = Story()
    found.pod("a", "n1", phase="Running")
    assert not found.following.effects.of(Started)
    story = Story(runs=False)
    created = story.store.foreign.members(KEY)[0][0].created
    story.look(created)
    story.promise(created, a="n1", b="n1", c="n2")
    story.following.now = created + 40.0
    for name in ("a", "b"):
        story.pod(name, "n1")
        assert not story.following.effects.of(Started)
    story.pod("c", "n2")
    assert story.following.effects.of(Started) == [Started(40.0)]
    story.look(created + 50.0)
    assert not story.following.effects.of(Started)


def test_a_larger_minimum_of_a_group_that_ran_before_this_process():
    """What it had is what its status counts; without a status it lacks members."""
    ran = {"phase": "Running", "running": 3}
    for status, broken in ((ran, False), ({"phase": "Pending", "running": 3}, True)):
        story = Story()
        story.put({**story.group, "spec": {"minMember": 4}, "status": status})
        story.pod("d", "", phase="Pending")
        story.follow()
        assert (story.look(10.0).hold_until is not None) is broken


def test_member_lost_by_a_gang_that_grew_before_this_process_is_replaced():
    """Its older pods say the smaller number, the status of the group the other one."""
    story = Story()
    for name, node in (("a", "n1"), ("b", "n1")):
        story.pod(name, node, had="2")
    story.put({**story.group, "status": {"phase": "Running", "running": 3}})
    story.lose("c")
    story.pod("d", "", phase="Pending")
    story.follow()
    found = story.look(10.0)
    assert found.admitted
    assert found.hold_until is not None


def test_pod_that_waits_in_the_group_of_a_job_is_refused_with_the_reason():
    """A copy of a job's pod names the group of the job; it holds no node for ever."""
    story = Story(runs=False)
    story.store = Store(gang.EMBEDDED, [FRAMEWORKS["TFJob"]])
    story.store.groups.use(gang.EMBEDDED.apis[0])
    job = tfjob(name="g")
    story.put({**job, "metadata": {**job["metadata"], "uid": "job", "generation": 1}})
    story.group["metadata"]["ownerReferences"] = [reference(uid="job", name="g")]
    story.put(story.group)
    story.pod("copy", "", phase="Pending")
    story.follow()
    text = 'PodGroup "g" has no pods but those that Muster creates for TFJob "g"'
    assert story.look(1.0).refusal == Refusal(Reason.INVALID, text)
    story.pod("copy", "n1")
    assert story.look(2.0) is None


@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "unreadable"])
def test_member_lost_while_its_group_is_away_is_held_for_once_the_group_is_back(deleted):
    """Until then its minimum is not known, and no running pod is released for that."""
    story = Story()
    if deleted:
        story.store.gone("PodGroup", "team", "g", "uid-g")
        story.group["metadata"]["uid"] = "second"
    else:
        story.put({**story.group, "spec": "text"})
    assert story.look(1.0).refusal
    story.lose("c")
    assert story.look(2.0).hold_until is None
    story.put(story.group)
    assert story.look(3.0).hold_until == 3.0 + HOLD


@pytest.mark.parametrize(("status", "hold_until"), [("Unknown", 25.0), ("False", None)])
def test_hold_begins_when_a_pod_on_an_unreachable_node_is_deleted(status, hold_until):
    """The kubelet of a node that is NotReady ends the pod."""
    story = Story(memberHoldSeconds=5)
    node = make_node(name="n2")
    node["status"]["conditions"] = [{"type": "Ready", "status": status}]
    story.put({"kind": "Node", **node})
    assert story.look(10.0).hold_until is None
    story.pod("c", "n2", deleting=True)
    assert story.look(20.0).hold_until == hold_until
