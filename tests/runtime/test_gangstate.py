# SPDX-License-Identifier: Apache-2.0
"""What the allocator remembers of a job: promises that end, holds, rests, pauses."""

from __future__ import annotations

import pytest

from builders_scheduler import make_node
from muster import gang
from muster.api import edge, names
from muster.controller.model import Refusal
from muster.frameworks import FRAMEWORKS
from muster.runtime import gangstate
from muster.runtime.causes import Cause
from muster.runtime.gangs import GangRules
from muster.runtime.gangstate import NOT_NOW, GangState
from muster.runtime.promises import PATIENCE, REST
from muster.runtime.store import Callbacks, Store
from muster.scheduler.model import Reason
from world import START, tfjob

RULES = GangRules(frozenset({"muster"}), "default")
HOLD = 120.0
W0, W1, W2 = (f"mnist-worker-{i}" for i in range(3))


class Story:
    """A cache that is told of objects, and the state of the one job in it."""

    def __init__(self, **job):
        """Begin with two nodes and a job of three workers."""
        self.said = []
        self.cache = Store(
            gang.EMBEDDED, [FRAMEWORKS["TFJob"]], callbacks=Callbacks(self.said.append)
        )
        self.version = 0
        self.now = START
        self.wakes = []
        for name in ("n1", "n2"):
            self.put({"kind": "Node", **make_node(name=name)})
        self.document = job.pop("document", None) or tfjob(Worker=3, **job)
        self.document["metadata"] |= {"uid": "job-uid", "generation": 1}
        self.document["metadata"]["creationTimestamp"] = edge.format_time(START)
        self.put(self.document)
        self.state = GangState(self.job, self.cache, self.wakes.append)
        self.cache.arrived = lambda pod: self.state.arrived(pod, self.now)

    @property
    def job(self):
        """The job as it is at present."""
        return self.cache.jobs.get("TFJob/team/mnist")

    def put(self, document):
        """Show an object in its next version."""
        self.version += 1
        metadata = {"uid": f"uid-{document['metadata']['name']}", **document["metadata"]}
        self.cache.put(
            {**document, "metadata": {**metadata, "resourceVersion": str(self.version)}}
        )

    def pod(self, name, *, node="n1", phase="Running", uid="", reason="", going=False):
        """Show a pod of the job."""
        metadata = {
            "name": name,
            "namespace": "team",
            "uid": uid or f"uid-{name}",
            "creationTimestamp": edge.format_time(START),
            "labels": {
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": name[-1],
            },
            "ownerReferences": [{"uid": "job-uid", "controller": True}],
            **({"deletionTimestamp": edge.format_time(self.now)} if going else {}),
        }
        status = {"phase": phase, "reason": reason}
        spec = {"containers": [], **({"nodeName": node} if node else {})}
        self.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": status})

    def gone(self, name, uid=""):
        """Show that a pod is not there any more."""
        self.cache.gone("Pod", "team", name, uid or f"uid-{name}")

    def edit(self, **workers):
        """Change the role of the job."""
        self.document["spec"]["tfReplicaSpecs"]["Worker"].update(workers)
        self.document["metadata"]["generation"] += 1
        self.put(self.document)

    def look(self, seconds=0.0):
        """Let time pass and return the gang that the next cycle sees."""
        self.now += seconds
        self.wakes.clear()
        return self.state.input(self.job, RULES, HOLD, self.now)

    def promise(self, *pairs):
        """Give pods their nodes."""
        for name, node in pairs:
            self.state.promises.make(name, node, self.state.shapes["Worker"], self.now)

    @property
    def promised(self):
        """The open promises, which are the same as the room that is taken for them."""
        assumed = {name: node for (_, name), node in self.cache.columns.assumed.items()}
        assert assumed == self.state.promises.nodes
        return assumed


ALL = ((W0, "n1"), (W1, "n1"), (W2, "n2"))


@pytest.fixture
def story():
    """Return a story whose job has been looked at once."""
    made = Story()
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


def refuse(story, *, seconds=10.0, kind="Pod", reason="Forbidden"):
    """Let the server refuse a child."""
    refusal = Refusal(kind, "some", reason, "exceeded quota", story.now + seconds)
    story.cache.jobs.refuse(story.job, refusal)


class TestPromises:
    """They end with the pod on its node, or when they have lost their sense."""

    def test_kept(self, running):
        """Nothing is promised any more."""
        assert not running.promised

    def test_open_as_long_as_the_pod_is_under_way(self, story):
        """Not created, or without a node."""
        story.promise(*ALL)
        story.pod(W0, node="", phase="Pending")
        story.look()
        assert story.promised == dict(ALL)

    def test_a_node_goes_before_its_pod_came(self, story):
        """Nothing was created: the whole gang is placed anew."""
        story.promise(*ALL)
        story.cache.gone("Node", "", "n2", "uid-n2")
        gang = story.look()
        assert not story.promised
        assert list(gang.roles[0].waiting) == [0, 1, 2]

    def test_a_node_goes_when_others_run(self, story):
        """What came stays, the rest comes elsewhere."""
        story.promise(*ALL)
        story.pod(W0)
        story.cache.gone("Node", "", "n2", "uid-n2")
        gang = story.look()
        assert story.promised == {W1: "n1"}
        assert list(gang.roles[0].waiting) == [2]
        assert gang.admitted

    def test_a_job_made_smaller(self, story):
        """The room of the others is free."""
        story.promise(*ALL)
        story.edit(replicas=2)
        story.look()
        assert story.promised == dict(ALL[:2])

    def test_pods_that_came_and_went_between_two_looks(self, story):
        """A promise that was kept is not kept again."""
        story.promise(*ALL)
        story.pod(W0, going=True)
        story.gone(W0)
        assert story.promised == dict(ALL[1:])

    @pytest.mark.parametrize(
        ("phase", "reason", "kept"),
        [("Succeeded", "", False), ("Failed", "", True), ("Failed", "OutOfcpu", False)],
        ids=["done", "failed", "turned-away"],
    )
    def test_a_pod_that_was_never_seen_alive(self, running, phase, reason, kept):
        """Its room is kept for a successor, if there will be one on that node."""
        running.gone(W0)
        running.promise((W0, "n1"))
        running.pod(W0, phase=phase, reason=reason, uid="second")
        running.look()
        assert running.promised == ({W0: "n1"} if kept else {})

    def test_nothing_comes_of_it(self, story):
        """After two minutes the room is given back, and the gang rests for a while."""
        story.promise(*ALL)
        story.look(1)
        assert story.wakes == [START + PATIENCE]
        assert story.promised
        gang = story.look(PATIENCE)
        assert not story.promised
        assert gang.refusal is NOT_NOW
        assert story.wakes == [story.now + REST]
        assert story.look(REST).refusal is None


def test_the_job_says_how_long_its_nodes_are_kept_for_pods_that_do_not_come():
    """scheduleTimeoutSeconds, as with the schedulers that count from a pod's place to its start;
    0 is as if it were not given.
    """
    for asked, kept in ((20, 20), (300, 300), (0, PATIENCE)):
        story = Story(policy={"schedulingPolicy": {"scheduleTimeoutSeconds": asked}})
        story.look()
        story.promise(*ALL)
        story.look(1)
        assert story.wakes == [START + kept]
        assert story.look(kept).refusal is NOT_NOW
        assert not story.promised


class TestRefusals:
    """A job whose pods cannot be created needs no room."""

    @pytest.mark.parametrize(
        ("kind", "refused"), [("Pod", True), ("PodGroup", True), ("Service", False)]
    )
    def test_a_refused_child(self, story, kind, refused):
        """Promises are withdrawn until it may be tried again; services can follow."""
        story.promise(*ALL)
        refuse(story, kind=kind)
        gang = story.look()
        assert (gang.refusal is NOT_NOW) is refused
        assert (not story.promised) is refused
        assert (START + 10 in story.wakes) is refused
        assert story.look(10).refusal is None

    def test_a_refused_template(self, story):
        """Only an edit helps, so that no time is set."""
        refuse(story, reason="Invalid")
        assert story.look(1000).refusal is NOT_NOW
        assert not story.wakes
        story.edit(replicas=2)
        assert story.look().refusal is None

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


class TestHold:
    """For how long the room of missing members is kept."""

    def test_a_whole_gang(self, running):
        """Nothing is held."""
        assert running.look().hold_until is None

    def test_from_the_loss_on(self, running):
        """Until the member is there again, promised or not."""
        running.pod(W0, phase="Failed")
        lost = running.now
        assert running.look().hold_until == lost + HOLD
        assert running.wakes == [lost + HOLD]
        running.gone(W0)
        running.promise((W0, "n1"))
        assert running.look(5).hold_until == lost + HOLD
        running.pod(W0, uid="second")
        assert running.look(5).hold_until is None

    def test_each_loss_has_its_own(self, running):
        """A later loss is not held for a shorter time."""
        running.pod(W0, phase="Failed")
        running.look()
        running.gone(W0)
        running.pod(W0, uid="second")
        running.look(100)
        running.pod(W1, phase="Failed")
        assert running.look(100).hold_until == running.now + HOLD

    def test_when_it_is_over(self, running):
        """The gang's input says so by itself."""
        running.pod(W0, phase="Failed")
        before = running.look()
        after = running.look(HOLD)
        assert after is not before
        assert after.hold_until == running.now
        assert not running.wakes


class TestRelease:
    """A gang that is taken away because it could not be made whole."""

    def test_it_is_due_after_the_hold(self, running):
        """Not before, and not if the member is back."""
        running.pod(W0, phase="Failed")
        running.look()
        assert not running.state.overdue(running.now + HOLD - 1, HOLD)
        assert running.state.overdue(running.now + HOLD, HOLD)
        running.gone(W0)
        running.pod(W0, uid="second")
        running.look(HOLD)
        assert not running.state.overdue(running.now, HOLD)

    def test_it_begins_anew_when_all_is_gone(self, running):
        """Nothing is placed while a pod is left or the status tells of the old gang."""
        running.document["status"] = {"gang": {"state": "Degraded", "scheduler": "muster"}}
        running.put(running.document)
        running.pod(W0, phase="Failed")
        running.look()
        running.state.release()
        assert running.look().refusal is NOT_NOW
        for name in (W0, W1, W2):
            running.gone(name)
        assert running.look().refusal is NOT_NOW
        running.document["status"]["gang"]["state"] = "Released"
        running.put(running.document)
        gang = running.look()
        assert gang.refusal is None
        assert not gang.admitted
        assert gang.hold_until is None
        assert list(gang.roles[0].waiting) == [0, 1, 2]

    def test_members_that_have_done_their_work_stay(self, running):
        """Only the others are taken away."""
        running.pod(W0, phase="Succeeded")
        running.pod(W1, phase="Failed")
        running.look()
        running.state.release()
        running.gone(W2)
        gang = running.look()
        assert gang.refusal is None
        assert gang.roles[0].succeeded == 1


class TestTurnedAway:
    """A pod that nodes turn away again and again does not hurry."""

    def attempt(self, story, number):
        """Let a pod come to a node and be turned away; return its pause."""
        uid = f"try-{number}"
        story.promise((W0, "n1"))
        story.pod(W0, phase="Pending", uid=uid)
        story.pod(W0, phase="Failed", reason="OutOfcpu", uid=uid)
        story.gone(W0, uid)
        gang = story.look()
        pauses = [at - story.now for at in story.wakes if at < story.now + HOLD]
        assert list(gang.roles[0].waiting) == ([] if pauses else [0])
        assert 0 not in gang.roles[0].previous
        return pauses

    def test_the_pause_grows(self, running):
        """At once, then after one second, two, four, up to a minute."""
        running.gone(W0)
        pauses = [self.attempt(running, number) for number in range(9)]
        assert pauses == [[], [1], [2], [4], [8], [16], [32], [60], [60]]
        gang = running.look(60)
        assert list(gang.roles[0].waiting) == [0]

    def test_a_pod_that_runs_begins_anew(self, running):
        """Its next refusal is its first."""
        running.gone(W0)
        for number in range(3):
            self.attempt(running, number)
        running.pod(W0, uid="runs")
        running.gone(W0, "runs")
        assert self.attempt(running, 9) == []


def test_a_pod_that_cannot_be_bound(running):
    """Its promise ends; the second time it waits a little."""
    running.gone(W0)
    running.pod(W0, node="", phase="Pending", uid="second")
    for pauses in ([], [1], [2]):
        running.promise((W0, "n1"))
        pod = running.cache.own_pods("job-uid")[W0]
        running.state.not_bound(pod, running.now)
        assert not running.promised
        gang = running.look()
        assert [at - running.now for at in running.wakes if at < running.now + 9] == pauses
        assert list(gang.roles[0].waiting) == ([] if pauses else [0])


def test_an_unchanged_gang_is_the_same_object(running):
    """So that nobody has to look at it again (S17)."""
    first = running.look()
    assert running.look(1) is first
    running.pod(W0, phase="Succeeded")
    assert running.look() is not first


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
    running.cache.gone("TFJob", "team", "mnist", "job-uid")
    running.pod(W0)
    running.gone(W0)
    assert not running.cache.jobs._revisions
    assert not running.cache.jobs._key_of
    assert not running.cache.columns._uses


def test_pods_that_went_without_a_node_leave_nothing(story):
    """Neither that they were bound nor that they were marked."""
    story.pod(W0, node="", phase="Pending")
    story.look()
    story.state.binding.add(f"uid-{W0}")
    story.state.marked[f"uid-{W0}"] = "NotEnoughResources"
    story.gone(W0)
    story.look()
    assert not story.state.binding
    assert not story.state.marked


def test_a_successor_of_the_same_name(running):
    """What was known of the job before is dropped, though nobody told of its end."""
    refuse(running)
    running.document["metadata"]["uid"] = "second"
    running.put(running.document)
    assert set(running.cache.jobs._key_of) == {"second"}
    assert not running.cache.jobs._refusals
    assert not running.cache.jobs._revisions


def test_the_previous_node_is_known_after_a_restart(running):
    """A state that begins now knows where the pods are."""
    state = GangState(running.job, running.cache, running.wakes.append)
    running.state = state
    running.gone(W2)
    assert running.look().roles[0].previous == {2: "n2"}


def test_a_job_without_pods_of_ours():
    """There is no gang."""
    container = {"name": "tensorflow", "image": "i"}
    spec = {"containers": [container], "schedulerName": "other"}
    worker = {"replicas": 2, "template": {"spec": spec}}
    story = Story(document=tfjob(Worker=worker))
    assert story.look() is None


RELEASED, RESERVED = names.GangState.RELEASED, names.GangState.RESERVED
CAUSE = Cause("preempt", "TFJob/team/large")


def busy():
    """Return a story in which all three workers run."""
    s = Story()
    for name in (W0, W1, W2):
        s.pod(name)
    return s


def role_of(gang):
    """Return the one role of a gang."""
    (role,) = gang.roles
    return role


class TestEvicted:
    """A gang that makes room, whole or in part."""

    def test_whole(self):
        """It is not placed while its pods go, and not before a while after that."""
        s = busy()
        s.state.release(CAUSE, s.now + 1)
        gang = s.look()
        assert gang.refusal is NOT_NOW
        assert [index for index, _ in role_of(gang).leaving] == [0, 1, 2]
        assert {pod.name for pod in s.state.going(s.cache.own_pods("job-uid"))} == {W0, W1, W2}
        for name in (W0, W1, W2):
            assert s.state.cause_of(s.cache.own_pods("job-uid")[name]) is CAUSE
            s.gone(name)
        assert s.look().refusal is NOT_NOW
        s.now += 2
        gang = s.look()
        assert gang.refusal is None
        assert not gang.admitted
        assert (list(role_of(gang).waiting), gang.created) == ([0, 1, 2], START)

    def test_in_part(self):
        """What it gives back goes, the rest runs on; its place is filled after a while."""
        s = busy()
        s.state.give_back([s.cache.own_pods("job-uid")[W2]], CAUSE, s.now + 1)
        role = role_of(s.look())
        assert (list(role.returning), role.leaving) == ([2], ((2, "n1"),))
        assert [pod.name for pod in s.state.going(s.cache.own_pods("job-uid"))] == [W2]
        s.pod(W2, going=True)
        assert (role_of(s.look()).leaving, s.state.leaving) == ((), {})
        s.gone(W2)
        assert list(role_of(s.look()).returning) == [2]
        s.now += 2
        assert list(role_of(s.look()).waiting) == [2]

    def test_nodes_that_are_kept(self):
        """They are handed on until the gang is barred from being placed."""
        s = Story()
        s.state.nominated = {W0: "n1"}
        assert role_of(s.look()).nominated == {0: "n1"}
        s.state.rests_until = s.now + 5
        s.look()
        assert s.state.nominated == {}

    def test_moved(self):
        """Its new nodes are kept for it while its pods go, and until it may be placed again."""
        s = busy()
        s.state.release(CAUSE, s.now + 1, {W0: "n2", W1: "n2", W2: "n2"})
        gang = s.look()
        assert (gang.refusal, gang.moving) == (NOT_NOW, True)
        for name in (W0, W1, W2):
            s.gone(name)
        assert s.look().moving
        s.now += 2
        gang = s.look()
        assert (gang.refusal, gang.moving) == (None, False)
        assert role_of(gang).nominated == dict.fromkeys(range(3), "n2")
        s.state.rests_until = s.now + 5
        assert (s.look().moving, s.state.nominated) == (False, {})

    def test_moved_in_part(self):
        """The one that goes has its node kept."""
        s = busy()
        s.state.give_back([s.cache.own_pods("job-uid")[W2]], CAUSE, s.now + 1, {W2: "n2"})
        gang = s.look()
        assert (gang.refusal, role_of(gang).nominated) == (None, {2: "n2"})

    def test_released_for_its_own_sake(self):
        """What was kept for it before is not kept any more."""
        s = busy()
        s.state.nominated = {W0: "n1"}
        s.state.release()
        assert (s.look().moving, s.state.nominated) == (False, {})

    @pytest.mark.parametrize(("told", "owed"), [("Reserved", True), ("Waiting", False)])
    def test_room_that_an_earlier_process_promised(self, told, owed):
        """The gang's first input asks for it, until something was decided."""
        status = {"gang": {"state": told, "reason": "", "scheduler": "muster"}}
        s = Story(document={**tfjob(Worker=3), "status": status})
        assert s.look().owed is owed
        s.state.owed = False
        assert s.look().owed is False

    def test_written_before_it_is_done(self):
        """It waits for the status that tells it, for each word anew, but not for ever."""
        s = Story()
        asked = [s.state.in_writing(s.job, word, s.now) for word in (RELEASED, RESERVED)]
        assert asked == [False, False]
        assert s.wakes == [s.now + gangstate.TELLING] * 2
        assert not s.state.in_writing(s.job, RESERVED, s.now + gangstate.TELLING - 0.1)
        assert s.state.in_writing(s.job, RESERVED, s.now + gangstate.TELLING)
        gang = {"state": "Released", "reason": "Preempted", "scheduler": "muster"}
        s.put({**s.document, "status": {"gang": gang}})
        assert s.state.in_writing(s.job, RELEASED, s.now)
        assert not s.state.in_writing(s.job, RESERVED, s.now)

    @pytest.mark.parametrize(("since", "goes_on"), [(-1, False), (0, True)])
    def test_after_a_restart_of_the_operator(self, since, goes_on):
        """The successor takes away what is left of it, and no pod that came afterwards."""
        gang = {"state": "Released", "reason": "Preempted", "scheduler": "muster"}
        gang["since"] = edge.format_time(START + since)
        document = tfjob(Worker=3)
        s = Story(document={**document, "status": {"gang": gang}})
        for name in (W0, W1):
            s.pod(name)
        state = GangState(s.job, s.cache, s.wakes.append)
        assert state.released is goes_on
        assert len(state.going(s.cache.own_pods("job-uid"))) == 2 * goes_on


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
        s = Story()
        self.quota(s, pods="4")
        role = role_of(s.look())
        assert (role.charge, role.absent) == ({"team/few/pods": 1000}, {0, 1, 2})
        assert (s.state.charged, s.state.pending) == (True, {"team/few/pods": 0})
        s.promise(*ALL)
        role = role_of(s.look())
        assert (role.absent, s.state.pending) == (frozenset(), {"team/few/pods": 3000})
        assert not s.state.charged
        for name, node in ALL[:2]:
            s.pod(name, node=node)
        s.look()
        assert s.state.pending == {"team/few/pods": 1000}

    def test_pods_without_a_node_are_pending_too(self):
        """From the moment on that they may be created."""
        s = Story()
        self.quota(s, pods="4")
        s.state.unbound = frozenset({W0})
        assert role_of(s.look()).absent == {1, 2}
        assert s.state.pending == {"team/few/pods": 1000}

    def test_a_quota_that_comes_and_goes(self):
        """The next input knows, and without a change it is the same object."""
        s = Story()
        before = s.look()
        assert (role_of(before).charge, s.state.pending) == ({}, {})
        self.quota(s, pods="4")
        during = s.look()
        assert role_of(during).charge == {"team/few/pods": 1000}
        assert s.look() is during
        s.cache.gone("ResourceQuota", "team", "few", "uid-few")
        assert role_of(s.look()).charge == {}

    def test_pods_that_no_quota_lets_in(self):
        """The gang is refused with what its template lacks, unless it was let in before."""
        s = Story()
        self.quota(s, requests__memory="4Gi")
        refusal = s.look().refusal
        assert refusal.reason == Reason.EXCEEDS_RESOURCE_QUOTA
        assert 'worker does not name requests.memory, which resource quota "few"' in (
            refusal.sentence
        )
        s.pod(W0)
        gang = s.look()
        assert (gang.admitted, gang.refusal) == (True, None)

    def test_the_defaults_of_a_limit_range(self):
        """They are part of what a pod takes, of its node and of the quota."""
        s = Story()
        self.quota(s, requests__memory="4Gi")
        item = {"type": "Container", "defaultRequest": {"memory": "1Gi"}}
        metadata = {"name": "range", "namespace": "team"}
        s.put({"kind": "LimitRange", "metadata": metadata, "spec": {"limits": [item]}})
        gang = s.look()
        assert gang.refusal is None
        assert role_of(gang).charge == {"team/few/requests.memory": 2**30}
        assert dict(role_of(gang).shape.requests)["memory"] == 2**30
