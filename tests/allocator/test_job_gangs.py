# SPDX-License-Identifier: Apache-2.0
"""The gang of a job, followed: assumed pods that come or do not, holds, rests, pauses."""

from dataclasses import replace

import pytest

from muster.allocator import tracker
from muster.allocator.tracker import NOT_NOW, PATIENCE, Arrived, Bind, Departure, Evict
from muster.allocator.verdict import RECORDED, Cause
from muster.api import edge
from muster.api.reasons import DeletionReason, Reason
from muster.controller.model import Refusal
from muster.frameworks import FRAMEWORKS
from muster.gang import EMBEDDED
from muster.scheduler.model import PODS
from muster.store.store import Store
from support.apiserver.memory import START, of_kind, tfjob
from support.builders.objects import make_owner, reference
from support.builders.scheduler import make_node
from support.rehearsal import call_count
from support.rehearsal.gang_tracking import evaluated, tracked
from support.rehearsal.job_gang import HOLD, KEY, JobStory

W0, W1, W2, W3 = (f"mnist-worker-{i}" for i in range(4))


ALL = ((W0, "n1"), (W1, "n1"), (W2, "n2"))


@pytest.fixture
def story():
    """Return a story whose job has been looked at once."""
    made = JobStory()
    made.look()
    return made


@pytest.fixture
def running(story):
    """Return a story whose three workers run."""
    story.promise(*ALL)
    for name, node in ALL:
        story.pod(name, node=node)
    story.look()
    return story


def room(story):
    """Return node -> how many pods take room there."""
    nodes = story.store.columns.snapshot([], [], 0.0).nodes
    return {name: int(nodes.used[i, PODS]) // 1000 for i, name in enumerate(nodes.names)}


def test_resumed_gang_starts_whole_once_the_pods_of_its_last_run_are_gone(story):
    """As members they would let a part of the gang start, which the job no longer fits."""
    for name, node in ALL:
        story.pod(name, node=node, going=True)
    gang = story.look()
    assert (gang.refusal, gang.admitted) == (NOT_NOW, False)
    assert story.look(PATIENCE).refusal is NOT_NOW
    for name, _ in ALL:
        story.gone(name)
    gang = story.look()
    assert (gang.refusal, gang.hold_until, story.memory.had) == (None, None, None)


def test_pods_that_name_another_scheduler_are_left_to_it(story):
    """Neither bound, though the job wants one in their place, nor marked, nor evicted."""
    story.pod(W0, node="", phase="Pending", by="default-scheduler")
    story.pod(W1, node="", phase="Pending", by="muster")
    story.look()
    story.promise(*ALL)
    story.look()
    assert {bind.pod.name for bind in story.following.effects.of(Bind)} == {W1}
    for name, node in ALL:
        story.pod(name, node=node, by="default-scheduler" if name == W0 else "muster")
    story.look()
    story.following.give_back([W0, W1, W2], Departure(CAUSE, story.now))
    assert set(story.following.going()) == {W1, W2}
    story.document["status"] = {"gang": {"state": "Released"}}
    story.document["metadata"]["generation"] += 1
    story.put(story.document)
    story.look(10.0)
    assert {evict.pod.name for evict in story.following.effects.of(Evict)} == {W1, W2}
    for name in (W1, W2):
        story.gone(name)
    story.look()
    assert not story.memory.released


def refuse(story, *, seconds=10.0, kind="Pod", reason="Forbidden"):
    """Let the server refuse a child."""
    refusal = Refusal(kind, "some", reason, "exceeded quota", story.now + seconds)
    story.store.jobs.refuse(story.job, refusal)


class TestPromises:
    """They end with the pod on its node, or when they have lost their sense."""

    def test_open_as_long_as_the_pod_is_under_way(self, story):
        """Not created, or without a node."""
        story.promise(*ALL)
        story.pod(W0, node="", phase="Pending")
        story.look()
        assert story.promised == dict(ALL)

    def test_a_node_goes_when_others_run(self, story):
        """What came stays, the rest comes elsewhere."""
        story.promise(*ALL)
        story.pod(W0)
        story.store.gone("Node", "", "n2", "uid-n2")
        gang = story.look()
        assert story.promised == {W1: "n1"}
        assert list(gang.roles[0].waiting) == [2]
        assert gang.admitted

    @pytest.mark.parametrize(
        ("change", "kept"),
        [
            ({"labels": {"a": "b"}}, True),
            ({"conditions": {"Ready": False}, "unschedulable": True}, True),
            ({"unschedulable": True}, False),
            ({"taints": [{"key": "drain", "effect": "NoExecute"}]}, False),
            ({"pods": "1"}, False),
        ],
    )
    def test_a_node_takes_no_pods_any_more(self, story, change, kept):
        """Before its pods came, as that of a launcher which waits for all workers."""
        story.promise(*ALL)
        story.pod(W2, node="n2")
        story.look()
        story.put({"kind": "Node", **make_node(name="n1", **change)})
        gang = story.look()
        assert story.promised == (dict(ALL[:2]) if kept else {})
        assert list(gang.roles[0].waiting) == ([] if kept else [0, 1])

    def test_the_same_job_again_while_the_pods_of_the_last_one_end(self, running):
        """They have the names, and each holds its room until it goes; so do the promises."""
        running.document["metadata"] |= {"uid": "second"}
        running.put(running.document)
        running.look()
        running.promise((W0, "n2"), (W1, "n2"), (W2, "n1"))
        assert room(running) == {"n1": 3, "n2": 3}
        for name, node in ALL:
            running.pod(name, node=node, going=True)
        assert room(running) == {"n1": 3, "n2": 3}
        for name, _ in ALL:
            running.gone(name)
        assert room(running) == {"n1": 1, "n2": 2}
        assert running.promised == {W0: "n2", W1: "n2", W2: "n1"}

    def test_a_pod_that_was_on_its_way_out_already(self, story):
        """Its binding was too late to be held back; the promise is its successor's."""
        story.pod(W0, node="", phase="Pending", going=True)
        story.look()
        story.give({W0: "n2"})
        story.pod(W0, node="n1", phase="Pending", going=True)
        assert story.promised == {W0: "n2"}
        story.gone(W0)
        story.pod(W0, node="n2", uid="second")
        assert story.promised == {}

    @pytest.mark.parametrize(
        ("phase", "reason", "going", "kept"),
        [
            ("Succeeded", "", False, False),
            ("Failed", "", False, True),
            ("Failed", "OutOfcpu", False, False),
            ("Pending", "", True, True),
        ],
        ids=["done", "failed", "turned-away", "going"],
    )
    def test_a_pod_that_was_never_seen_alive(self, running, phase, reason, going, kept):
        """Its room is kept for a successor, if there will be one on that node."""
        running.gone(W0)
        running.promise((W0, "n1"))
        node = "" if going else "n1"
        running.pod(W0, phase=phase, reason=reason, uid="second", node=node, going=going)
        running.look()
        assert running.promised == ({W0: "n1"} if kept else {})

    def test_they_come_one_by_one(self, story):
        """Room is given back when none has come for so long: of a large gang some come late."""
        story.promise(*ALL)
        story.look(PATIENCE - 1)
        story.pod(W0)
        story.look(PATIENCE - 1)
        assert story.promised == dict(ALL[1:])
        story.look(1)
        assert not story.promised

    def test_while_they_are_being_created(self, story):
        """However slow the server is, nobody else gets the room of a pod on its way there."""
        story.promise(*ALL)
        story.look(PATIENCE - 1)
        with story.store.jobs.creating(KEY):
            story.look(2 * PATIENCE)
            assert story.promised == dict(ALL)
            assert story.wakes == [story.now + 1]
        story.look(1)
        assert not story.promised


class TestSomeHaveCome:
    """Of a gang whose pods were given nodes, while others are still on their way."""

    @pytest.fixture
    def coming(self, story):
        """Return the story of a job of three, of which the first pod has come."""
        story.promise(*ALL)
        story.look()
        story.pod(W0)
        return story

    def test_one_that_has_grown_asks_for_more_once_it_has_what_it_was_let_in_with(self, story):
        """Of those others may be on their way: what it lacks comes first no more."""
        story.promise(*ALL)
        story.look()
        story.edit(replicas=4)
        story.pod(W3, node="n2")
        assert story.look().min_member == 3
        story.pod(W0)
        story.pod(W1)
        assert story.look().min_member == 4

    def test_the_rest_cannot_be_created(self, coming):
        """Their room is not theirs any more, so that the gang is broken: its hold begins."""
        coming.look()
        refuse(coming, seconds=1000)
        gang = coming.look()
        assert (gang.hold_until, gang.refusal) == (coming.now + HOLD, None)
        assert not coming.promised

    def test_it_is_gone_before_the_others_have_come(self, coming):
        """Half of the room is none. That it had come is recorded, though none will come now."""
        coming.look()
        coming.gone(W0)
        coming.look()
        (said,) = coming.following.effects.of(Arrived)
        assert (coming.promised, [pod.name for pod in said.pods]) == ({}, [W0])

    def test_a_broken_gang_may_be_whole_before_the_last_one_has_come(self):
        """Its hold ends then, and who is lost after that is held for as long as any."""
        story = JobStory(
            expired="restart",
            policy={"schedulingPolicy": {"minAvailable": 2, "scheduleTimeoutSeconds": 600}},
        )
        story.look()
        story.promise(*ALL)
        for name, node in ALL:
            story.pod(name, node=node)
        story.look()
        story.gone(W0)
        story.gone(W1)
        story.look()
        story.promise((W0, "n1"), (W1, "n1"))
        story.look(HOLD - 1)
        story.pod(W0, uid="another")
        assert story.look().hold_until is None
        story.gone(W0, "another")
        assert story.look(0.5).hold_until == story.now + HOLD
        story.look(1)
        assert not story.memory.released


def test_the_job_says_how_long_its_nodes_are_kept_for_pods_that_do_not_come():
    """scheduleTimeoutSeconds, as with the schedulers that count from a pod's place to its start;
    0 is as if it were not given.
    """
    for asked, kept in ((20, 20), (300, 300), (0, PATIENCE)):
        story = JobStory(policy={"schedulingPolicy": {"scheduleTimeoutSeconds": asked}})
        story.look()
        story.promise(*ALL)
        story.look(1)
        assert story.wakes == [START + kept]
        assert story.look(kept).refusal is NOT_NOW
        assert not story.promised


class TestRefusals:
    """A job whose pods cannot be created needs no room."""

    @pytest.mark.parametrize(
        ("kind", "refused"),
        [("Pod", True), ("PodGroup", True), ("Service", True), ("HorizontalPodAutoscaler", False)],
    )
    def test_a_refused_child(self, story, kind, refused):
        """Promises are withdrawn until it may be tried again."""
        story.promise(*ALL)
        refuse(story, kind=kind)
        gang = story.look()
        assert (gang.refusal is NOT_NOW) is refused
        assert (not story.promised) is refused
        assert (START + 10 in story.wakes) is refused
        assert story.look(10).refusal is None

    def test_a_refused_template(self, story):
        """An edit helps at once, before it is tried again."""
        refuse(story, reason="Invalid")
        assert story.look(1).refusal is NOT_NOW
        assert START + 10 in story.wakes
        story.edit(replicas=2)
        assert story.look().refusal is None

    def test_refused_service_keeps_no_lost_member_from_its_replacement(self, running):
        """Services of a gang that has started are retried beside its pods."""
        running.pod(W0, phase="Failed")
        running.gone(W0)
        refuse(running, kind="Service", seconds=1000)
        running.look()
        assert running.look(HOLD + 1).refusal is None
        running.promise((W0, "n1"))
        running.look(1)
        assert running.promised == {W0: "n1"}

    def test_something_is_in_the_way(self, story):
        """A blocked job waits for a better status."""
        story.promise(*ALL)
        story.document["status"] = {"state": "Blocked"}
        story.put(story.document)
        assert story.look().refusal is NOT_NOW
        assert not story.promised
        story.document["status"] = {"state": "Created"}
        story.put(story.document)
        assert story.look().refusal is None

    def test_a_lost_member_that_is_refused(self, running):
        """Its room stays the gang's while the hold lasts, then others may have it."""
        running.pod(W0, phase="Failed")
        refuse(running, seconds=1000)
        assert running.look().refusal is None
        running.gone(W0)
        assert running.look().refusal is None
        running.promise((W0, "n1"))
        assert running.look(HOLD - 1).refusal is None
        assert running.promised == {W0: "n1"}
        assert running.look(1).refusal is NOT_NOW
        assert not running.promised


class TestServices:
    """A quota of Services counts before the gang starts, and while its Services are created."""

    def limited(self, story):
        """Let a quota of the namespace count Services."""
        quota = {"kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "team"}}
        story.put({**quota, "spec": {"hard": {"services": "2"}}})

    def serve(self, story, name):
        """Show the Service of a pod."""
        owners = [reference(uid="job-uid")]
        metadata = {"name": name, "namespace": "team", "ownerReferences": owners}
        story.put({"kind": "Service", "apiVersion": "v1", "metadata": metadata, "spec": {}})

    def test_services_of_a_gang_without_pods_are_part_of_its_quota_check(self, story):
        """Each pod that is still to be created takes a Service as well."""
        self.limited(story)
        (role,) = story.look().roles
        assert role.charge == {"team/few/services": 1000}
        assert len(role.absent) == 3
        # One Service for all of them, which a quota of two permits.
        story.document["metadata"]["annotations"] = {"muster.kubeflow.org/service": "job"}
        story.put(story.document)
        assert not any(role.charge for role in story.look().roles)

    def test_services_that_pods_still_lack_are_taken_from_the_quota(self, story):
        """Another gang of the namespace may not have them meanwhile."""
        self.limited(story)
        story.look()
        story.promise(*ALL)
        assert story.look().pending == {"team/few/services": 3000}
        story.pod(W0)
        assert story.look().pending == {"team/few/services": 3000}
        for name in (W1, W2):
            story.pod(name)
        self.serve(story, W0)
        assert story.look().pending == {"team/few/services": 2000}
        for name in (W1, W2):
            self.serve(story, name)
        assert story.look().pending == {}

    def test_lost_member_whose_service_exists_takes_none(self, running):
        """A quota of Services that is full keeps no lost member from its replacement."""
        self.limited(running)
        for name in (W0, W1, W2):
            self.serve(running, name)
        running.gone(W0)
        gang_ = running.look()
        assert gang_.pending == {}
        assert not any(role.charge for role in gang_.roles)


@pytest.mark.parametrize("expired", ["keep", "restart"])
@pytest.mark.parametrize("state", ["Running", "Degraded"])
def test_operator_that_restarts_meanwhile_holds_for_the_whole_time(state, expired):
    """The gang ran before: what the flag says holds, and not the timeout of its start."""
    story = JobStory(
        expired=expired, policy={"schedulingPolicy": {"scheduleTimeoutSeconds": int(HOLD / 2)}}
    )
    story.document["status"] = {"gang": {"state": state, "minMember": 3}}
    story.put(story.document)
    for name, node in ALL[1:]:
        story.pod(name, node=node)
    story.look()
    story.follow(START + HOLD - 1)
    gang = story.look()
    assert (gang.hold_until, gang.admitted) == (story.now + HOLD, True)
    assert list(gang.roles[0].waiting) == [0]
    story.look(HOLD - 1)
    assert not story.memory.released
    story.look(1)
    assert story.memory.released is (expired == "restart")


def test_pods_of_an_operator_before_count(story):
    """Their labels are others, and the status knows no gang: they are whole, and nothing else."""
    ran = {"type": "Running", "status": "True", "reason": "TFJobRunning", "message": ""}
    times = dict.fromkeys(("lastUpdateTime", "lastTransitionTime"), "2024-01-01T00:00:00Z")
    story.document["status"] = {"conditions": [{**ran, **times}]}
    story.put(story.document)
    for name, node in ALL:
        story.pod(name, node=node, labels={"tf-replica-type": "worker"})
    story.follow(START + 100)
    gang = story.look()
    assert story.memory.was_whole
    assert gang.hold_until is None
    assert gang.admitted
    assert not gang.roles[0].waiting


@pytest.mark.parametrize(("rejections", "seconds"), [(0, 10.0), (1, 600.0)])
def test_node_that_rejects_pods_is_avoided(running, rejections, seconds):
    """For 10 s after the first rejection, and for 10 minutes after the second one in a row."""
    running.gone(W0)
    running.look()
    running.pod(W0, uid="next", phase="Failed", reason="OutOfcpu", rejections=rejections)
    assert running.look().shuns == {"n1"}
    assert not running.memory.previous.keys() & {W0}
    assert running.look(START + seconds - 1 - running.now).shuns == {"n1"}
    assert running.look(1).shuns == frozenset()


@pytest.fixture
def restarting(running):
    """Return a story whose three workers run, of a job that begins anew when its hold ends."""
    running.following.settings = replace(running.following.settings, on_hold_expired="restart")
    running.look()
    return running


class TestRelease:
    """A gang that is taken away because it could not be made whole."""

    def test_not_while_the_job_is_blocked(self, restarting):
        """Nothing that goes could be made again; its hold begins when it may be."""
        restarting.document["status"] = {"state": "Blocked", "gang": {"state": "Running"}}
        restarting.put(restarting.document)
        restarting.gone(W0)
        restarting.look()
        restarting.look(10 * HOLD)
        assert not restarting.memory.released
        restarting.document["status"]["state"] = "Running"
        restarting.put(restarting.document)
        assert restarting.look().hold_until == restarting.now + HOLD
        assert not restarting.memory.released

    def test_not_while_admission_refuses_its_pods(self, restarting):
        """Replacements have the whole hold once they can be created."""
        restarting.gone(W0)
        for _ in range(3):
            until = restarting.now + 2 * HOLD
            refusal = Refusal("Pod", W0, "Forbidden", "no pods today", until)
            restarting.store.jobs.refuse(restarting.job, refusal)
            for seconds in (0, HOLD, HOLD):
                restarting.look(seconds)
                assert not restarting.memory.released
        restarting.look(HOLD - 1)
        assert not restarting.memory.released
        restarting.look(1)
        assert restarting.memory.released

    def test_nobody_is_left_to_go(self, restarting):
        """It begins anew at once, whoever writes or reads that it was released."""
        for name in (W0, W1, W2):
            restarting.gone(name)
        restarting.look()
        gang = restarting.look(HOLD)
        assert (gang.refusal, gang.admitted, gang.hold_until) == (None, False, None)
        assert list(gang.roles[0].waiting) == [0, 1, 2]


def test_of_a_job_that_was_taken_over_half_all_goes_on():
    """Another operator let two of three run: these are what it has, and the third waits."""
    document = tfjob(Worker=3)
    condition = {
        "type": "Running",
        "status": "True",
        "lastTransitionTime": edge.format_time(START),
    }
    document["status"] = {"conditions": [condition], "replicaStatuses": {"Worker": {"active": 2}}}
    story = JobStory(expired="restart", document=document)
    for name in (W0, W1):
        story.pod(name)
    story.look()
    for _ in range(3):
        gang = story.look(2 * HOLD)
        assert (gang.hold_until, gang.admitted) == (None, False)
        assert list(gang.roles[0].waiting) == [2]
    assert not story.memory.released
    story.gone(W1)
    story.look()
    story.look(HOLD)
    assert story.memory.released


class TestGrowth:
    """A gang that runs is broken only by losing of what it had."""

    def test_more_are_wanted(self, restarting):
        """They wait together without a claim on room. A member that is lost comes first."""
        restarting.edit(replicas=6)
        gang = restarting.look()
        assert (gang.hold_until, gang.admitted, gang.min_member) == (None, False, 6)
        assert list(gang.roles[0].waiting) == [3, 4, 5]
        restarting.look(10 * HOLD)
        assert not restarting.memory.released
        restarting.gone(W1)
        lost, gang = restarting.now, restarting.look()
        assert (gang.hold_until, gang.admitted, gang.min_member) == (lost + HOLD, True, 3)
        assert list(gang.roles[0].waiting) == [1]
        restarting.promise((W1, "n1"))
        restarting.pod(W1, uid="second")
        gang = restarting.look()
        assert (gang.hold_until, gang.admitted, gang.min_member) == (None, False, 6)
        restarting.gone(W1, "second")
        restarting.look()
        restarting.look(HOLD)
        assert restarting.memory.released

    def test_they_are_members_once_they_have_come(self, restarting):
        """From then on their loss breaks the gang."""
        restarting.edit(replicas=4)
        restarting.look()
        restarting.promise((W3, "n2"))
        restarting.pod(W3, node="n2")
        restarting.look()
        restarting.gone(W3)
        lost = restarting.now
        assert restarting.look().hold_until == lost + HOLD

    def test_a_gang_that_has_lost_its_room_meanwhile(self, story):
        """It had nothing: all that are wanted now start together."""
        story.promise(*ALL)
        story.look()
        story.edit(replicas=5)
        assert story.look().min_member == 3
        story.store.gone("Node", "", "n2", "uid-n2")
        gang = story.look()
        assert not story.promised
        assert (gang.min_member, list(gang.roles[0].waiting)) == (5, [0, 1, 2, 3, 4])

    def test_while_it_starts(self, story):
        """What it was let in with comes first; the room for that is not half a promise."""
        story.promise(*ALL)
        story.look()
        story.edit(replicas=6)
        story.look()
        assert story.promised == dict(ALL)
        for name, node in ALL:
            story.pod(name, node=node)
        gang = story.look()
        assert story.memory.was_whole
        assert (gang.hold_until, gang.min_member) == (None, 6)

    def test_it_grew_while_nobody_looked(self, restarting):
        """A process that comes after goes by what is written of the gang."""
        s = restarting
        s.document["status"] = {"gang": {"state": "Running", "minMember": 3}}
        s.put(s.document)
        s.edit(replicas=6)
        s.follow(s.now)
        s.following.settings = replace(s.following.settings, on_hold_expired="restart")
        assert s.look().hold_until is None
        s.look(10 * HOLD)
        assert not s.memory.released
        s.gone(W2)
        gang = s.look()
        assert (gang.hold_until, gang.min_member) == (s.now + HOLD, 3)

    def test_the_minimum_is_raised(self, restarting):
        """As well as by a larger size, the gang is not broken by a larger minimum."""
        restarting.document["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2}}
        restarting.edit(replicas=6)
        restarting.look()
        restarting.document["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] = 5
        restarting.edit(replicas=6)
        assert restarting.look().hold_until is None
        restarting.gone(W0)
        assert restarting.look().hold_until is None
        restarting.gone(W1)
        assert restarting.look().hold_until == restarting.now + HOLD


class TestEnding:
    """A member that is being taken away is a member until it has ended."""

    def test_the_hold_counts_from_its_end(self, restarting):
        """However long it is given; its room is the gang's all the time."""
        restarting.pod(W0, going=True)
        gang = restarting.look()
        assert (gang.hold_until, gang.admitted) == (None, True)
        assert list(gang.roles[0].returning) == [0]
        assert gang.roles[0].previous == {0: "n1"}
        restarting.look(10 * HOLD)
        assert not restarting.memory.released
        restarting.gone(W0)
        assert restarting.look().hold_until == restarting.now + HOLD

    def test_the_hold_counts_from_the_end_of_a_back_off(self, running):
        """A pod that failed twice in a row is replaced after 10 s."""
        running.pod(W0, phase="Failed", failures=1)
        assert running.look().hold_until == START + 10 + HOLD

    def test_a_loss_beside_it_counts_at_once(self, restarting):
        """The one that ends does not stand in for another."""
        restarting.pod(W0, going=True)
        restarting.look()
        restarting.gone(W1)
        assert restarting.look().hold_until == restarting.now + HOLD

    def test_member_that_terminates_after_the_hold_starts_another_hold(self, running):
        """The capacity of a drained member is kept, however long another one has been missing."""
        running.look()
        running.gone(W1)
        running.look()
        running.look(10 * HOLD)
        running.pod(W0, going=True)
        assert running.look().hold_until == running.now + HOLD
        running.look(10.0)
        running.gone(W0)
        assert running.look().hold_until == running.now + HOLD

    def test_one_that_has_ended_is_lost(self, restarting):
        """Though somebody keeps its object there."""
        restarting.pod(W0, going=True, phase="Failed")
        assert restarting.look().hold_until == restarting.now + HOLD


class TestUnreachable:
    """Members on a node that does not answer."""

    def test_they_are_lost_after_a_while(self, running):
        """Room is kept for their successors elsewhere, which do not wait yet; the hold begins."""
        running.silence()
        silent = running.now
        gang = running.look()
        assert (gang.hold_until, len(gang.roles[0].held)) == (None, 3)
        assert running.wakes == [silent + 60]
        gang = running.look(60)
        assert gang.hold_until == silent + 60 + HOLD
        assert list(gang.roles[0].returning) == [0, 1]
        assert not gang.roles[0].waiting
        assert list(gang.roles[0].held) == [(2, "n2")]
        running.gone(W0)
        (role,) = running.look().roles
        assert (list(role.waiting), list(role.returning)) == ([0], [1])

    def test_gang_is_not_released_while_a_member_may_still_run_on_its_silent_node(
        self, restarting
    ):
        """Neither for itself nor for another gang; then replacements have the whole hold."""
        restarting.silence()
        assert not restarting.look(60).restartable
        restarting.look(100 * HOLD)
        assert not restarting.memory.released
        assert not restarting.evicted()
        restarting.gone(W0)
        restarting.gone(W1)
        assert restarting.look().restartable
        restarting.look(HOLD - 1)
        assert not restarting.memory.released
        restarting.look(1)
        assert restarting.memory.released

    def test_gang_with_member_on_silent_node_is_not_released_for_another_member(self, restarting):
        """The other member is gone: the gang could not start again before that node answers."""
        for name in ("n1", "n2"):
            restarting.silence(name)
        restarting.gone(W0)
        restarting.look(60)
        assert not restarting.look(100 * HOLD).restartable
        assert not restarting.memory.released
        for name in ("n1", "n2"):
            restarting.silence(name, status="True")
        assert restarting.look().restartable
        restarting.look(HOLD - 1)
        assert not restarting.memory.released
        restarting.look(1)
        assert restarting.memory.released

    def test_they_are_heard_of_again(self, restarting):
        """They never were away."""
        restarting.silence()
        restarting.look(HOLD)
        restarting.silence(status="True")
        gang = restarting.look(HOLD)
        assert (gang.hold_until, len(gang.roles[0].held)) == (None, 3)
        assert not restarting.memory.released

    def test_one_that_kubernetes_takes_away(self, running):
        """It is lost at once: nobody is there to end it."""
        running.silence()
        running.pod(W0, going=True)
        assert running.look().hold_until == running.now + HOLD

    def test_hold_counts_again_when_an_outage_ends(self, running):
        """The nodes that return may take the lost member."""
        running.store.away._clock = lambda: running.now
        running.store.collections["Node"].reach("", 0)
        running.gone(W0)
        running.look()
        for name in ("n1", "n2"):
            running.silence(name)
        running.look(HOLD - 10)
        running.silence("n1", status="True")
        assert running.look().hold_until == running.now + HOLD

    def test_no_hold_begins_while_all_nodes_are_unreachable(self, running):
        """Pods that are being deleted are members until their kubelets return."""
        for name in ("n1", "n2"):
            running.silence(name)
        running.pod(W0, going=True)
        gang = running.look(10 * HOLD)
        assert (gang.hold_until, running.memory.released) == (None, False)
        assert list(gang.roles[0].returning) == [0]

    def test_the_node_is_gone(self, running):
        """Its pods are lost as soon as that is sure; the job is to do something about it."""
        running.store.gone("Node", "", "n1", "uid-n1")
        assert not running.look().roles[0].returning
        running.said.clear()
        running.store.confirm_gone("n1")
        assert running.said == [KEY, KEY]
        assert list(running.look().roles[0].returning) == [0, 1]


def test_what_is_remembered_of_pods_that_are_not_wanted_any_more(running):
    """A smaller job leaves nothing behind."""
    running.edit(replicas=1)
    for name in (W1, W2):
        running.gone(name)
    running.look()
    running.edit(replicas=3)
    assert running.look().roles[0].previous == {}


def test_nothing_is_left_of_a_job_that_is_gone(running):
    """No counter, no pod, no room."""
    for name, _ in ALL:
        running.gone(name)
    running.store.gone("TFJob", "team", "mnist", "job-uid")
    running.pod(W0)
    running.gone(W0)
    assert not running.store.jobs._jobs
    assert not running.store.columns._uses


def test_pods_that_went_without_a_node_leave_nothing(story):
    """Neither that they were bound nor that they were marked."""
    story.pod(W0, node="", phase="Pending")
    story.look()
    mark = ("NotEnoughResources", "")
    story.following.set(binding=frozenset({f"uid-{W0}"}), marked={f"uid-{W0}": mark})
    story.gone(W0)
    story.look()
    assert not story.memory.binding
    assert not story.memory.marked


def test_a_successor_of_the_same_name(running):
    """What was known of the job before is dropped, though nobody showed its end."""
    refuse(running)
    running.document["metadata"]["uid"] = "second"
    running.put(running.document)
    assert [running.store.jobs.key_of(make_owner(uid=u)) for u in ("job-uid", "second")] == [
        None,
        KEY,
    ]
    assert not running.store.jobs._refusals


def test_the_previous_node_is_known_after_a_restart(running):
    """A state that begins now knows where the pods are."""
    running.follow(running.now)
    running.look()
    running.gone(W2)
    assert running.look().roles[0].previous == {2: "n2"}


CAUSE = Cause(DeletionReason.PREEMPT, "TFJob/team/large")


def busy():
    """Return a story in which all three workers run."""
    s = JobStory()
    for name in (W0, W1, W2):
        s.pod(name)
    s.look()
    return s


def role_of(gang):
    """Return the one role of a gang."""
    (role,) = gang.roles
    return role


class TestEvicted:
    """A gang that makes room, whole or in part."""

    def test_a_pod_that_was_on_its_way(self):
        """What comes after the gang was released goes with it."""
        s = busy()
        s.following.give_back([W0, W1, W2], Departure(CAUSE, s.now + 1))
        s.look(tracker.ANNOUNCING)
        s.gone(W0)
        s.pod(W0, uid="late")
        s.look()
        assert s.evicted() == {W0: CAUSE}

    def test_in_part(self):
        """What it gives back goes, the rest runs on; its place is filled after a while."""
        s = busy()
        s.following.give_back([W2], Departure(CAUSE, s.now + 1))
        assert s.evicted() == {W2: CAUSE}
        role = role_of(s.look())
        assert (list(role.returning), role.leaving) == ([2], ((2, "n1"),))
        s.pod(W2, going=True)
        assert (role_of(s.look()).leaving, s.memory.leaving) == ((), {})
        s.gone(W2)
        assert list(role_of(s.look()).returning) == [2]
        assert list(role_of(s.look(2)).waiting) == [2]

    def test_nodes_that_are_kept(self, story):
        """They are handed on until the gang is barred from being placed."""
        story.following.set(nominated={W0: "n1"})
        assert role_of(story.look()).nominated == {0: "n1"}
        story.following.set(rests_until=story.now + 5)
        story.look()
        assert story.memory.nominated == {}

    def test_moved(self):
        """Its new nodes are kept for it while its pods go, and until it may be placed again."""
        s = busy()
        nodes = {W0: "n2", W1: "n2", W2: "n2"}
        s.following.give_back(nodes, Departure(CAUSE, s.now + 1, nodes))
        gang = s.look()
        assert (gang.refusal, gang.moving) == (NOT_NOW, True)
        for name in (W0, W1, W2):
            s.gone(name)
        assert s.look().moving
        gang = s.look(2)
        assert (gang.refusal, gang.moving) == (None, True)
        assert role_of(gang).nominated == dict.fromkeys(range(3), "n2")
        refuse(s)
        assert (s.look().moving, s.memory.nominated) == (False, {})

    def test_moved_where_its_pods_are_refused(self):
        """Its nodes are kept while it rests, and not for as long as that."""
        s = busy()
        nodes = {W0: "n2", W1: "n2", W2: "n2"}
        s.following.give_back(nodes, Departure(CAUSE, s.now + 1, nodes))
        for name in nodes:
            s.gone(name)
        refuse(s, seconds=100)
        s.look()
        assert s.memory.nominated == nodes
        assert s.wakes == [s.now + 1]
        assert s.look(1).refusal is NOT_NOW
        assert (s.memory.nominated, s.memory.verdict) == ({}, None)
        assert s.wakes == [START + 100]

    def test_moved_in_part(self):
        """The one that goes has its node kept."""
        s = busy()
        s.following.give_back([W2], Departure(CAUSE, s.now + 1, {W2: "n2"}))
        gang = s.look()
        assert (gang.refusal, role_of(gang).nominated) == (None, {2: "n2"})

    def test_released_for_its_own_sake(self):
        """What was kept for it before is not kept any more."""
        s = busy()
        s.following.settings = replace(s.following.settings, on_hold_expired="release")
        s.following.set(nominated={W0: "n1"})
        s.pod(W0, phase="Failed")
        s.look()
        assert (s.look(HOLD).moving, s.memory.nominated) == (False, {})

    @pytest.mark.parametrize(("written", "owed"), [("Reserved", True), ("Waiting", False)])
    def test_room_that_an_earlier_process_promised(self, written, owed):
        """The gang's first input asks for it, until something was decided."""
        status = {"gang": {"state": written, "reason": "", "scheduler": "muster"}}
        s = JobStory(document={**tfjob(Worker=3), "status": status})
        assert s.look().owed is owed
        s.following.set(owed=False)
        assert s.look().owed is False

    @pytest.mark.parametrize(
        ("written", "after", "goes"),
        [("Running", 0.1, False), ("Running", tracker.ANNOUNCING, True), ("Released", 0.1, True)],
    )
    def test_written_before_it_is_done(self, written, after, goes):
        """It waits for the status that says so, but not for ever: who comes after this process
        must know why the gang is half.
        """
        s, published = busy(), []
        s.following.members.publish = published.append
        s.following.give_back([W0, W1, W2], Departure(CAUSE, s.now + 1))
        assert s.wakes == [s.now + tracker.ANNOUNCING]
        assert published == []
        s.look()
        assert published == [KEY]
        assert s.memory.verdict.state == "Released"
        status = {"gang": {"state": written, "reason": "Preempted", "scheduler": "muster"}}
        s.put({**s.document, "status": status})
        s.look(after)
        assert bool(s.evicted()) is goes

    @pytest.mark.parametrize(("since", "goes_on"), [(-1, False), (0, True)])
    def test_after_a_restart_of_the_operator(self, since, goes_on):
        """The successor takes away what is left of it, and no pod that came afterwards."""
        gang = {"state": "Released", "reason": "Preempted", "scheduler": "muster"}
        gang["since"] = edge.format_time(START + since)
        document = tfjob(Worker=3)
        s = JobStory(document={**document, "status": {"gang": gang}})
        for name in (W0, W1):
            s.pod(name)
        s.look()
        assert s.memory.released is goes_on
        assert s.evicted() == (dict.fromkeys((W0, W1), RECORDED) if goes_on else {})


class TestQuotas:
    """What a namespace's quotas count of the job's pods, and what they would not let in."""

    def quota(self, s, name="few", **hard):
        """Show a quota; amounts by resource, with a dot for `__`."""
        hard = {resource.replace("__", "."): amount for resource, amount in hard.items()}
        metadata = {"name": name, "namespace": "team"}
        doc = {"kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
        s.put({**doc, "status": {"hard": hard, "used": {}}})

    def test_pods_that_are_still_to_be_created(self):
        """Each is charged until it is there; those that are coming are pending."""
        s = JobStory()
        self.quota(s, pods="4")
        role = role_of(s.look())
        assert (role.charge, role.absent) == ({"team/few/pods": 1000}, {0, 1, 2})
        assert (s.memory.absent, s.memory.input.pending) == (True, {})
        s.promise(*ALL)
        role = role_of(s.look())
        assert (role.absent, s.memory.input.pending) == (frozenset(), {"team/few/pods": 3000})
        assert not s.memory.absent
        for name, node in ALL[:2]:
            s.pod(name, node=node)
        s.look()
        assert s.memory.input.pending == {"team/few/pods": 1000}

    def test_a_quota_that_comes_and_goes(self):
        """The next input knows, and without a change it is the same object."""
        s = JobStory()
        before = s.look()
        assert (role_of(before).charge, s.memory.input.pending) == ({}, {})
        self.quota(s, pods="4")
        during = s.look()
        assert role_of(during).charge == {"team/few/pods": 1000}
        assert s.look() is during
        s.store.gone("ResourceQuota", "team", "few", "uid-few")
        assert role_of(s.look()).charge == {}

    def test_pods_that_no_quota_lets_in(self):
        """The gang is refused with what its template lacks, unless it was let in before."""
        s = JobStory()
        self.quota(s, requests__memory="4Gi")
        refusal = s.look().refusal
        assert refusal.reason == Reason.EXCEEDS_RESOURCE_QUOTA
        lacks = 'worker does not name requests.memory, which resource quota "few"'
        assert lacks in refusal.sentence
        s.pod(W0)
        gang = s.look()
        assert (gang.admitted, gang.refusal) == (True, None)

    def test_the_defaults_of_a_limit_range(self):
        """They are part of what a pod takes, of its node and of the quota."""
        s = JobStory()
        self.quota(s, requests__memory="4Gi")
        item = {"type": "Container", "defaultRequest": {"memory": "1Gi"}}
        metadata = {"name": "range", "namespace": "team"}
        s.put({"kind": "LimitRange", "metadata": metadata, "spec": {"limits": [item]}})
        gang = s.look()
        assert gang.refusal is None
        assert role_of(gang).charge == {"team/few/requests.memory": 2**30}
        assert dict(role_of(gang).shape.requests)["memory"] == 2**30

    def test_container_that_muster_adds_is_no_obstacle_under_a_limit_range(self):
        """As its pods will be created, it has the resources of the framework's container."""
        s = JobStory()
        s.store = Store(EMBEDDED, [FRAMEWORKS["PyTorchJob"]])
        metadata, item = {"name": "r", "namespace": "team"}, {"type": "Container"}
        limits = {"limits": [{**item, "min": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}]}
        s.put({"kind": "LimitRange", "metadata": metadata, "spec": limits})
        s.put(of_kind("PyTorchJob", Master=1, Worker=1))
        (gang,) = evaluated(tracked(s.store), s.following.settings, s.now)
        assert gang.refusal is None


def test_a_pod_that_arrives_costs_no_more_in_a_large_gang():
    """Nor one that could not be bound: to go through all others for each takes seconds."""

    def cost(workers):
        story = JobStory(document=tfjob(Worker=workers))
        story.look()
        names = [f"mnist-worker-{index}" for index in range(workers)]
        story.promise(*((name, "n1") for name in names))
        document = {"node": "n1", "labels": {"training.kubeflow.org/replica-type": "worker"}}
        story.pod(names[0], **document)
        arrives = call_count.calls(lambda: story.pod(names[1], **document))
        assert len(story.memory.assumed) == workers - 2
        story.pod(names[2], **{**document, "node": ""}, phase="Pending")
        pod = story.store.children.pod("team", names[2])
        fails = call_count.calls(lambda: story.following.gangs.not_bound(pod, story.now))
        assert len(story.memory.assumed) == workers - 3
        return arrives, fails

    few, many = cost(10), cost(400)
    assert many[0] < few[0] + 20
    assert many[1] < few[1] + 20


def test_gang_whose_pod_name_is_in_use_gets_no_nodes(story):
    """Pods of a deleted job that still have names of the gang keep it from being placed.

    It is not shown to autoscalers, and its demand counts in no deserved share.
    """
    story.pod(W1, going=True, owner="uid-of-the-first-job")
    assert story.look().refusal is NOT_NOW
    assert (NOT_NOW.reason.wants_nodes, NOT_NOW.reason.wants_room) == (False, False)
    # No event of the job tells when the names are free.
    assert story.wakes == [story.now + 1]
    story.gone(W1)
    assert story.look(2.0).refusal is None


def test_gang_whose_pods_come_while_others_are_evaluated_is_decided_as_the_cycle_sees_it():
    """Decisions name tasks by index: the facts of the evaluation tell which pods these are."""
    story = JobStory()
    other = tfjob(name="other", Worker=1)
    other["metadata"] |= {"uid": "other-uid", "generation": 1}
    story.put(other)
    gangs, settings = story.following.gangs, story.following.settings
    story.following.look()
    story.following.assume({W0: "n1", W1: "n1", W2: "n2"})
    story.following.members.gangs = lambda: ["TFJob/team/other", KEY]
    steps = gangs.evaluate(settings, story.now)
    next(steps)
    for name in (W0, W1, W2):
        story.pod(name)
    before = gangs.facts_then(KEY)
    next(steps)
    assert gangs.facts_then(KEY) is not before
    assert gangs.facts_then(KEY) is gangs.facts(KEY, story.now)
    assert list(steps) == []


def test_gang_is_evaluated_once_while_nothing_changes():
    """The second cycle passes over a gang that the first one has evaluated."""
    following = JobStory().following
    seen, look = [], following.gangs._look
    following.gangs._look = lambda *given: seen.append(given) or look(*given)
    following.look()  # two cycles
    assert len(seen) == 1
