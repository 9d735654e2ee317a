# SPDX-License-Identifier: Apache-2.0
"""When the gang of a job with `restart: gang` may restart as a whole, and how it does."""

import math

import pytest

from muster.allocator.eviction import Evictions, Moves
from muster.allocator.tracker import NOT_NOW, REPEAT
from muster.allocator.verdict import RESTARTS
from muster.api import edge
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.controller.model import Refusal
from muster.frameworks import FRAMEWORKS
from muster.runtime.metrics import Metrics
from muster.scheduler.decision import Decision, Eviction, Move, Placement, Verdict
from muster.store.observe import observe
from muster.store.ondemand import Unwatched
from support.apiserver.memory import START, tfjob
from support.builders.snapshots import moving
from support.rehearsal.gang_tracking import reconcile_all
from support.rehearsal.job_gang import KEY, JobStory

NAMES = tuple(f"mnist-worker-{i}" for i in range(4))
RESTART = {"muster.kubeflow.org/restart": "gang"}
SURPLUS = {"schedulingPolicy": {"minAvailable": 3}}
DEGRADED = Verdict(GangPhase.DEGRADED, Reason.NONE, "", "", 4, 2, 2, 4)


class Story(JobStory):
    """A job of four workers, each of which runs on a node of its own."""

    def __init__(self, *, annotations=RESTART, policy=None):
        """Show all of it, and the status of a gang that runs."""
        document = tfjob(Worker=4, policy=policy, annotations=annotations)
        super().__init__(document=document, nodes=[f"n{i}" for i in range(4)])
        self.show_job("Running")
        for i, name in enumerate(NAMES):
            self.pod(name, node=f"n{i}")
        self.look()
        self.moves = Moves()
        callbacks = Metrics().cycles, lambda *_: None
        self.evictions = Evictions(self.following.gangs, self.store.budgets, *callbacks)

    def show_job(self, state, *, message="", **metadata):
        """Show the job with that state of its gang."""
        told = {"reason": "NotEnoughTasks", "since": edge.format_time(START), "message": message}
        gang = {"state": state, "scheduler": "muster", **(told if message else {})}
        self.document |= {"status": {"gang": gang}}
        self.document["metadata"] |= metadata
        self.put(self.document)

    def look(self, seconds=0.0):
        """Let time pass and return from when the gang may restart, in seconds since the start."""
        return super().look(seconds).restarts_from - START

    def evicted(self):
        """Return the names of the pods that are evicted or deleted by now, and why."""
        return {name: cause.reason for name, cause in super().evicted().items()}

    def restart(self):
        """Carry out the decision that the two pods left and the lost ones start elsewhere."""
        going = tuple(
            Eviction(KEY, "worker", i, f"n{i}", DeletionReason.PEER_LOST) for i in (0, 1)
        )
        places = tuple(Placement("worker", i, "n9") for i in range(4))
        decision = Decision(KEY, DEGRADED, evictions=going, moves=(Move(KEY, places),))
        self.moves.made(decision, self.now)
        return self.evictions.carry_out(decision, self.now, 1.0)


def test_losses_within_ten_seconds_are_one_restart():
    """The second loss does not postpone the restart; all pods that are left go at once."""
    story = Story()
    assert story.look() == math.inf
    story.gone(NAMES[3])
    assert story.look() == 10
    assert START + 10 in story.following.wakes
    story.gone(NAMES[2])
    assert story.look(9) == 10
    story.look(1)
    assert story.restart()
    story.show_job("Released")
    story.look()
    verdict = story.memory.verdict
    assert (verdict.state, verdict.message) == ("Released", RESTARTS)
    assert story.evicted() == dict.fromkeys(NAMES[:2], DeletionReason.PEER_LOST)


def test_gang_does_not_restart_while_admission_refuses_its_pods():
    """The replacement of the lost member was refused, and those of its peers would be as well."""
    story = Story()
    story.gone(NAMES[3])
    assert story.look() == 10
    refusal = Refusal("Pod", NAMES[3], "Forbidden", "no pods today", story.now + 30)
    story.store.jobs.refuse(story.job, refusal)
    assert story.look(29) == 30
    assert START + 30 in story.following.wakes
    assert story.look(1) == 10


def test_member_that_a_restarted_kubelet_rejects_is_a_loss():
    """The pod ran, so that its peers restart with it, and its node is not avoided."""
    story = Story()
    story.pod(NAMES[3], node="n3", phase="Failed", reason="OutOfcpu")
    assert story.look(5) == 15
    assert story.following.look().shuns == frozenset()


def test_members_that_are_drained_one_by_one_are_one_restart():
    """The time counts from the last pod that was removed."""
    story = Story()
    for name in NAMES[2:]:
        story.pod(name, going=True)
    assert story.look() == math.inf
    story.gone(NAMES[3])
    assert story.look(5) == math.inf
    story.gone(NAMES[2])
    assert story.look(5) == 20


def refused(story):
    """Let a kubelet refuse the successor of a pod that was removed, which never ran."""
    story.gone(NAMES[3])
    story.pod(NAMES[3], node="n3", uid="next", phase="Failed", reason="OutOfcpu")


def counted(story):
    """Let the status count a restart, whose failed pod is removed: the controller deletes them."""
    uids = [story.store.children.pod("team", name).uid for name in NAMES]
    told = {**story.document["status"], "replicaStatuses": {"Worker": {"restarted": uids}}}
    story.put({**story.document, "status": told})
    story.gone(NAMES[3])


@pytest.mark.parametrize(
    ("happens", "job"),
    [
        (refused, {}),
        (counted, {}),
        (lambda story: story.silence("n3"), {}),
        (lambda story: story.pod(NAMES[3], phase="Succeeded"), {}),
        (lambda story: story.gone(NAMES[3]), {"annotations": {}}),
        (lambda story: story.gone(NAMES[3]), {"policy": SURPLUS}),
    ],
)
def test_gang_that_lost_no_member_that_it_needs_does_not_restart(happens, job):
    """Not even much later."""
    story = Story(**job)
    happens(story)
    story.look()
    assert story.look(300) == math.inf


def test_gang_that_is_scaled_below_its_minimum_and_up_again_does_not_restart():
    """Members that were not wanted in between are not lost, whatever minimum the job sets."""
    story = Story(policy={"schedulingPolicy": {"minAvailable": 4}})
    story.edit(replicas=2)
    for name in NAMES[2:]:
        story.gone(name)
    story.look(20)
    story.edit(replicas=4)
    assert (story.look(), story.look(20)) == (math.inf, math.inf)


@pytest.mark.parametrize("edited", [3, 4])
def test_gang_whose_scale_down_is_undone_during_a_deletion_does_not_restart(edited):
    """The request was sent before the job was edited again: a deleted member was surplus."""
    story = Story()
    story.edit(replicas=3)
    observe(story.store, Unwatched(None), story.job, FRAMEWORKS["TFJob"], story.now)
    story.edit(replicas=edited)
    story.look()
    story.edit(replicas=4)
    story.look()
    story.gone(NAMES[3])
    assert (story.look(), story.look(20)) == (math.inf, math.inf)


@pytest.mark.parametrize("grown", [False, True])
def test_gang_of_which_one_role_gives_way_to_another_does_not_restart(grown):
    """Surplus is not lost, and new members of the other role are none that the gang had."""
    story = Story(policy={"schedulingPolicy": {"minAvailable": 4}} if grown else None)
    role = story.document["spec"]["tfReplicaSpecs"]["Worker"]
    story.document["spec"]["tfReplicaSpecs"]["PS"] = {**role, "replicas": 2}
    if grown:
        story.edit(replicas=4)
        assert story.look() == math.inf
    story.edit(replicas=2)
    assert story.look() == math.inf
    for name in NAMES[2:]:
        story.gone(name)
    assert (story.look(), story.look(20)) == (math.inf, math.inf)


def test_gang_with_a_pod_of_another_scheduler_does_not_restart_here():
    """That pod would stay beside the new ones: the controller replaces all of them."""
    story = Story()
    story.pod(NAMES[0], node="n0", by="other")
    story.gone(NAMES[3])
    assert (story.look(), story.look(20)) == (math.inf, math.inf)


def test_gang_without_running_pods_does_not_restart():
    """Pods that did not start lost nothing."""
    story = Story()
    for i in range(3):
        story.pod(NAMES[i], node=f"n{i}", phase="Pending")
    story.gone(NAMES[3])
    assert story.look() == math.inf


@pytest.mark.parametrize("shown", [False, True])
def test_gang_whose_peers_failed_starts_as_a_whole(shown):
    """Their failures are part of the loss. A pod without a node is shown to autoscalers."""
    story = Story()
    story.gone(NAMES[3])
    story.look()
    for name in NAMES[:3]:
        story.pod(name, node=f"n{name[-1]}", phase="Failed")
    if shown:
        story.pod(NAMES[3], node="", phase="Pending", uid="shown")
    assert story.look(2) == 10
    found = story.following.look().roles[0]
    assert (found.held, len(found.waiting) + len(found.returning)) == ((), 4)


@pytest.mark.parametrize("name", [NAMES[3], ""], ids=["unreachable", "no loss"])
def test_peers_that_failed_since_a_node_is_unreachable_are_replaced(name):
    """Under Never as well, which replaces no pod that failed by itself."""
    story = Story()
    if name:
        story.silence("n3")
    reconcile_all(story.store, story.now)
    story.pod(NAMES[0], node="n0", phase="Failed")
    found = story.following.look().roles[0]
    assert {*found.waiting, *found.returning} == ({0} if name else set())


@pytest.mark.parametrize(("phase", "at"), [("Running", 10), ("Pending", math.inf)])
def test_gang_that_ran_before_its_status_says_so_restarts(phase, at):
    """A busy API server stores the status late. Other gangs still wait for a first run."""
    story = Story()
    story.show_job("Placed")
    story.pod(NAMES[3], node="n3", phase=phase)
    story.store.children.losses.clear()
    story.follow(START)
    story.look()
    story.gone(NAMES[3])
    assert story.look() == at


def test_pods_of_the_next_run_do_not_restart_for_a_member_that_starts_late():
    """Some pods of the last run still terminate while others of the next run start."""
    story = Story()
    story.show_job("Placed")
    for i, name in enumerate(NAMES):
        story.pod(name, node=f"n{i}", going=True)
    story.look()
    for i, name in enumerate(NAMES):
        story.gone(name)
        if i < 3:
            story.pod(name, node=f"n{i}", uid=f"new-{i}")
        story.look()
    assert story.look() == math.inf


def test_gang_does_not_restart_again_before_all_its_pods_run_together():
    """The successor of the lost member starts while its peers are deleted."""
    story = Story()
    story.gone(NAMES[3])
    for i, name in enumerate(NAMES[:3]):
        story.look()
        story.pod(name, node=f"n{i}", going=True)
    story.pod(NAMES[3], node="n3", uid="new")
    story.look()
    story.show_job("Placed")
    for name in NAMES[:3]:
        story.gone(name)
    story.pod(NAMES[0], node="n0", uid="next")
    assert (story.look(), story.look(20)) == (math.inf, math.inf)


def test_gang_that_is_partly_on_a_silent_node_does_not_restart():
    """The peer may run there while its successor runs elsewhere."""
    story = Story()
    story.gone(NAMES[2])
    story.silence("n3")
    story.look(60)
    assert story.look(300) == math.inf


@pytest.mark.parametrize("member", ["unreachable", "outage", "terminating"])
def test_no_replacement_starts_beside_a_needed_member_that_may_still_run(member):
    """That member returns to its run, or is a loss itself: then the whole gang restarts."""
    story = Story()
    story.gone(NAMES[2])
    cut_off = {"unreachable": ["n3"], "outage": ["n0", "n1", "n2", "n3"]}.get(member, [])
    for node in cut_off:
        story.silence(node)
    if member == "terminating":
        story.pod(NAMES[3], going=True)
    assert story.look(60) == math.inf
    found = story.following.look().roles[0]
    # In an outage no member is lost, as long as its pod is there.
    assert (found.waiting, found.returning) == ((), (2,) if member == "outage" else (2, 3))
    assert found.previous.items() >= {(2, "n2")}
    # Afterwards, the nodes of the missing members are free for other gangs.
    assert story.following.look(300).refusal is NOT_NOW
    for node in cut_off:
        story.silence(node, "True")
    if member == "terminating":
        story.gone(NAMES[3])
    assert story.look() < math.inf
    assert set(story.following.look().roles[0].waiting) >= {2}


def test_replacement_starts_beside_a_member_that_may_still_run_if_it_is_not_needed():
    """The gang is complete without that member."""
    story = Story(policy=SURPLUS)
    story.gone(NAMES[2])
    story.silence("n3")
    assert story.following.look(60).roles[0].waiting == (2,)


def test_gang_with_members_that_succeeded_restarts_once_these_are_removed():
    """They run again with the others, so that they need nodes as well."""
    story = Story()
    story.pod(NAMES[3], phase="Succeeded")
    story.gone(NAMES[2])
    assert story.look() == 10
    assert story.look(60) == 70
    story.gone(NAMES[3])
    assert story.look() == 10


def broken():
    """Return the story of a gang that lost two members ten seconds ago."""
    story = Story()
    for name in NAMES[2:]:
        story.gone(name)
    story.look()
    story.look(10)
    return story


def lost():
    """Return the story of a gang that lost two members and restarts."""
    story = broken()
    assert story.restart()
    return story


def test_nodes_are_kept_for_a_gang_until_all_its_pods_are_gone():
    """It has them nominated while its pods end, and when it may be placed."""
    story = lost()
    story.show_job("Released")
    assert story.following.look().refusal is NOT_NOW
    assert story.memory.nominated == dict.fromkeys(NAMES, "n9")
    for name in NAMES[:2]:
        story.gone(name)
    found = story.following.look()
    assert (found.refusal, found.roles[0].nominated) == (None, dict.fromkeys(range(4), "n9"))


def test_restart_that_began_is_completed():
    """Also if the annotation is removed meanwhile."""
    story = lost()
    story.document["metadata"]["annotations"] = {}
    story.show_job("Released")
    story.look(REPEAT)
    assert story.evicted().keys() == set(NAMES[:2])


def test_peer_on_a_node_that_becomes_silent_is_not_deleted():
    """Its gang waits for it, since it may still run."""
    story = lost()
    story.show_job("Released")
    story.silence("n0")
    story.look(60)
    story.look(60)
    assert story.evicted().keys() == {NAMES[1]}


def test_restart_beside_a_pod_that_came_meanwhile_is_not_carried_out():
    """Pods that go alone would be deleted by no rule, and the gang would wait for that forever."""
    story = broken()
    story.pod(NAMES[3], node="n3", uid="late")
    assert not story.restart()
    assert story.following.going() == {}


def test_restart_is_no_move():
    """The moves of an hour are limited, and restarts do not count among them."""
    story = lost()
    waits = Verdict(GangPhase.WAITING, Reason.FRAGMENTED, "", "", 1, 0, 0, 1)
    now = story.now
    story.moves.next([Decision("TFJob/team/other", waits)], moving(), now, looked=False)
    assert story.moves.asked(moving(), now) == ()


def test_disruption_budget_does_not_stop_a_restart():
    """It forbids evictions for others; these pods restart for their own gang."""
    story = broken()
    story.guard()
    story.look()
    assert story.restart()


def test_nodes_of_a_gang_that_restarts_are_kept_by_the_next_process():
    """As far as its pods are still there; then it comes before the gangs that wait."""
    story = broken()
    story.show_job("Released", message=RESTARTS)
    story.follow(START)
    story.look()
    assert story.memory.nominated == {NAMES[0]: "n0", NAMES[1]: "n1"}
    assert story.following.look().moving
    assert story.memory.verdict.message == RESTARTS
    for name in NAMES[:2]:
        story.gone(name)
    found = story.following.look()
    assert (found.refusal, found.moving) == (None, True)
    story.follow(START)
    story.look()
    assert story.following.look().owed
