# SPDX-License-Identifier: Apache-2.0
"""When the gang of a job with `restart: gang` may restart as a whole, and how it does."""

from __future__ import annotations

import math

import pytest

from muster import gang
from muster.allocator.eviction import Evictions, Moves
from muster.allocator.members import JobMembers
from muster.allocator.tracker import ANNOUNCING, NOT_NOW, REPEAT, Evict
from muster.allocator.verdict import RESTARTS
from muster.api import edge
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.frameworks import FRAMEWORKS
from muster.runtime.metrics import Metrics
from muster.scheduler.decision import Decision, Eviction, Move, Placement, Verdict
from muster.store.store import Store
from support.apiserver.memory import START, tfjob
from support.builders.objects import reference
from support.builders.scheduler import make_node
from support.builders.snapshots import moving
from support.rehearsal.gang_tracking import Following

KEY = "TFJob/team/mnist"
NAMES = tuple(f"mnist-worker-{i}" for i in range(4))
RESTART = {"muster.kubeflow.org/restart": "gang"}
SURPLUS = {"schedulingPolicy": {"minAvailable": 3}}
DEGRADED = Verdict(GangPhase.DEGRADED, Reason.NONE, "", "", 4, 2, 2, 4)


class Story:
    """A job of four workers, each of which runs on a node of its own."""

    def __init__(self, *, annotations=RESTART, policy=None):
        """Show all of it, and the status of a gang that runs."""
        self.version = 1
        self.store = Store(gang.EMBEDDED, [FRAMEWORKS["TFJob"]])
        self.document = tfjob(Worker=4, policy=policy, annotations=annotations)
        self.show_job("Running")
        for i, name in enumerate(NAMES):
            self.show("", {"kind": "Node", **make_node(name=f"n{i}")})
            self.show_pod(name, node=f"n{i}")
        self.follow()
        self.moves = Moves()
        callbacks = Metrics().cycles, lambda *_: None
        self.evictions = Evictions(self.following.gangs, self.store.budgets, *callbacks)

    def follow(self):
        """Begin to follow the gang, as a process that starts now."""
        self.following = Following(self.store, JobMembers, KEY, "muster", START)
        self.look()

    def show(self, uid, document):
        """Show an object as a new version."""
        self.version += 1
        given = {
            "namespace": "team",
            "uid": uid or f"uid-{document['metadata']['name']}",
            "resourceVersion": str(self.version),
            "generation": 1,
            "creationTimestamp": edge.format_time(START),
        }
        self.store.put({**document, "metadata": {**given, **document["metadata"]}})

    def show_job(self, state, *, message="", **metadata):
        """Show the job with that state of its gang."""
        details = {
            "reason": "NotEnoughTasks",
            "since": edge.format_time(START),
            "message": message,
        }
        status = {"gang": {"state": state, "scheduler": "muster", **(details if message else {})}}
        self.document["metadata"] |= metadata
        self.show("job-uid", {**self.document, "status": status})

    def show_pod(self, name, *, node="n9", uid="", phase="Running", reason="", deleting=False):
        """Show a pod of the job."""
        metadata = {"name": name, "ownerReferences": [reference()]}
        metadata["labels"] = {
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": name[-1],
        }
        if deleting:
            metadata["deletionTimestamp"] = edge.format_time(START)
        spec, status = {"containers": [], "nodeName": node}, {"phase": phase, "reason": reason}
        self.show(uid, {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status})

    def lose(self, name):
        """Show that a pod is gone, as after its node was deleted."""
        self.store.gone("Pod", "team", name, f"uid-{name}")

    def look(self, seconds=0.0):
        """Let time pass and return from when the gang may restart, in seconds since the start."""
        return self.following.look(seconds).restarts_from - START

    def evicted(self):
        """Return the names of the pods that are evicted or deleted by now, and why."""
        return {it.pod.name: it.cause.reason for it in self.following.effects.of(Evict)}

    def restart(self):
        """Carry out the decision that the two pods left and the lost ones start elsewhere."""
        going = tuple(
            Eviction(KEY, "worker", i, f"n{i}", DeletionReason.PEER_LOST) for i in (0, 1)
        )
        places = tuple(Placement("worker", i, "n9") for i in range(4))
        decision = Decision(KEY, DEGRADED, evictions=going, moves=(Move(KEY, places),))
        self.moves.made(decision, self.following.now)
        return self.evictions.carry_out(decision, self.following.now, 1.0)


def test_gang_may_restart_ten_seconds_after_a_loss():
    """A cycle is due at that time."""
    story = Story()
    assert story.look() == math.inf
    story.lose(NAMES[3])
    assert story.look(5) == 15
    assert START + 15 in story.following.wakes


def test_losses_within_ten_seconds_are_one_restart():
    """The second loss does not postpone the restart; all pods that are left go at once."""
    story = Story()
    story.lose(NAMES[3])
    assert story.look() == 10
    story.lose(NAMES[2])
    assert story.look(9) == 10
    story.look(1)
    assert story.restart()
    story.show_job("Released")
    story.look()
    assert story.evicted() == dict.fromkeys(NAMES[:2], DeletionReason.PEER_LOST)


def test_members_that_are_drained_one_by_one_are_one_restart():
    """The time counts from the last pod that was removed."""
    story = Story()
    for name in NAMES[2:]:
        story.show_pod(name, deleting=True)
    assert story.look() == math.inf
    story.lose(NAMES[3])
    assert story.look(5) == math.inf
    story.lose(NAMES[2])
    assert story.look(5) == 20


def silent(story):
    """Let a node say nothing any more."""
    document = make_node(name="n3")
    at = edge.format_time(START)
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": at}
    document["status"]["conditions"] = [ready]
    story.show("", {"kind": "Node", **document})


def refused(story):
    """Let a kubelet refuse a pod, which never ran."""
    story.show_pod(NAMES[3], phase="Failed", reason="OutOfcpu")


def succeeded(story):
    """Let a worker end its work."""
    story.show_pod(NAMES[3], phase="Succeeded")


def scaled_down(story):
    """Let the job want one worker less, whose pod is removed."""
    story.document["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 3
    story.show_job("Running", generation=2)
    story.lose(NAMES[3])


@pytest.mark.parametrize("happens", [silent, refused, succeeded, scaled_down])
def test_gang_that_lost_no_member_that_ran_does_not_restart(happens):
    """Not even much later."""
    story = Story()
    happens(story)
    story.look()
    assert story.look(300) == math.inf


@pytest.mark.parametrize(
    "job", [{"annotations": {}}, {"policy": SURPLUS}], ids=["no annotation", "surplus"]
)
def test_gang_does_not_restart_for_a_member_that_is_replaced_alone(job):
    """Without the annotation, or if the gang does not need the member."""
    story = Story(**job)
    story.lose(NAMES[3])
    story.look()
    assert story.look(300) == math.inf


def test_gang_without_running_pods_does_not_restart():
    """Pods that did not start lost nothing."""
    story = Story()
    for i in range(3):
        story.show_pod(NAMES[i], node=f"n{i}", phase="Pending")
    story.lose(NAMES[3])
    assert story.look() == math.inf


def test_gang_that_is_partly_on_a_silent_node_does_not_restart():
    """The peer may run there while its successor runs elsewhere."""
    story = Story()
    story.lose(NAMES[2])
    silent(story)
    story.look(60)
    assert story.look(300) == math.inf


def test_gang_with_members_that_succeeded_restarts_once_these_are_removed():
    """They run again with the others, so that they need nodes as well."""
    story = Story()
    succeeded(story)
    story.lose(NAMES[2])
    assert story.look() == 10
    assert story.look(60) == 70
    story.lose(NAMES[3])
    assert story.look() == 10


def lost(**job):
    """Return the story of a gang that lost two members and restarts."""
    story = Story(**job)
    for name in NAMES[2:]:
        story.lose(name)
    story.look()
    story.look(10)
    assert story.restart()
    return story


def test_nodes_are_kept_for_a_gang_until_all_its_pods_are_gone():
    """It has them nominated while its pods end, and when it may be placed."""
    story = lost()
    story.show_job("Released")
    assert story.following.look().refusal is NOT_NOW
    assert story.following.memory.nominated == dict.fromkeys(NAMES, "n9")
    for name in NAMES[:2]:
        story.lose(name)
    found = story.following.look()
    assert (found.refusal, found.roles[0].nominated) == (None, dict.fromkeys(range(4), "n9"))


def test_gang_says_that_it_restarts():
    """Neither that a hold has expired nor that others got its nodes."""
    story = lost()
    story.look()
    verdict = story.following.memory.verdict
    assert (verdict.state, verdict.reason) == ("Released", "NotEnoughTasks")
    assert verdict.message == RESTARTS


def test_pods_are_deleted_only_once_the_status_says_so():
    """A process after this one has to know why the gang is half."""
    story = lost()
    story.look(ANNOUNCING - 0.1)
    assert not story.evicted()
    story.look(0.1)
    assert story.evicted().keys() == set(NAMES[:2])


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
    document = make_node(name="n0")
    ready = {"type": "Ready", "status": "Unknown"}
    document["status"]["conditions"] = [
        {**ready, "lastTransitionTime": edge.format_time(story.following.now)}
    ]
    story.show("", {"kind": "Node", **document})
    story.look(60)
    story.look(60)
    assert story.evicted().keys() == {NAMES[1]}


def test_restart_is_no_move():
    """The moves of an hour are limited, and restarts do not count among them."""
    story = lost()
    waits = Verdict(GangPhase.WAITING, Reason.FRAGMENTED, "", "", 1, 0, 0, 1)
    now = story.following.now
    story.moves.next([Decision("TFJob/team/other", waits)], moving(), now, looked=False)
    assert story.moves.asked(moving(), now) == ()


def test_disruption_budget_does_not_stop_a_restart():
    """It forbids evictions for others; these pods restart for their own gang."""
    story = Story()
    budget = {"kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"selector": {}}}
    story.show("", {**budget, "status": {"disruptionsAllowed": 0}})
    for name in NAMES[2:]:
        story.lose(name)
    story.look()
    story.look(10)
    assert story.restart()


def test_nodes_of_a_gang_that_restarts_are_kept_by_the_next_process():
    """As far as its pods are still there; then it comes before the gangs that wait."""
    story = Story()
    for name in NAMES[2:]:
        story.lose(name)
    story.show_job("Released", message=RESTARTS)
    story.follow()
    assert story.following.memory.nominated == {NAMES[0]: "n0", NAMES[1]: "n1"}
    assert story.following.look().moving
    assert story.following.memory.verdict.message == RESTARTS
    for name in NAMES[:2]:
        story.lose(name)
    found = story.following.look()
    assert (found.refusal, found.moving) == (None, True)
    story.follow()
    assert story.following.look().owed
