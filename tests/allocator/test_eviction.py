# SPDX-License-Identifier: Apache-2.0
"""What is carried out of what was decided about pods that make room, and what is not."""

from dataclasses import replace

import pytest

from muster.allocator.eviction import Evictions
from muster.allocator.lifecycle import State
from muster.allocator.tracker import UNEVICTABLE_SECONDS
from muster.allocator.verdict import Cause
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.runtime.metrics import Metrics
from muster.scheduler.decision import Decision, Eviction, Move, Placement, Verdict
from support.apiserver.memory import START, tfjob
from support.rehearsal.job_gang import KEY, JobStory

W0, W1 = "mnist-worker-0", "mnist-worker-1"
RESERVED = Verdict(GangPhase.RESERVED, Reason.NONE, "", "", 1, 1, 0, 1)


class Story(JobStory):
    """A job of two workers that run on one node, guarded by a disruption budget."""

    def __init__(self, allowed):
        """Begin with a budget that allows so many evictions at once."""
        super().__init__(document=tfjob(Worker=2))
        for name in (W0, W1):
            self.pod(name)
        self.guard(allowed)
        self.look()
        callbacks = Metrics().cycles, lambda *_: None
        self.evictions = Evictions(self.following.gangs, self.store.budgets, *callbacks)

    def carry_out(self, action, moves=(), claimant="TFJob/team/large", tries=None):
        """Evict both pods for another gang; return whether that was done."""
        going = tuple(Eviction(KEY, "worker", i, "n1", DeletionReason(action)) for i in range(2))
        decision = Decision(claimant, RESERVED, evictions=going, moves=moves)
        if tries is not None:
            self.evictions._tries, self.evictions._is_announced = tries, None
            return self.evictions.make_room(decision, START, 1.0, 1.0)
        return self.evictions.carry_out(decision, START, 1.0)

    def refuse(self):
        """Refuse to evict any pod of the job."""
        for pod in self.store.children.own_pods(self.job).values():
            self.following.gangs.not_evicted(pod, self.now)

    def released(self):
        """Return who is evicted at the next look, once the status says so, and for whom."""
        self.document["status"] = {"gang": {"state": "Released", "scheduler": "muster"}}
        self.put(self.document)
        self.look()
        return {name: cause.sentence for name, cause in self.evicted().items()}


MOVE = Move(KEY, (Placement("worker", 0, "n2"), Placement("worker", 1, "n3")))


def test_a_move_is_carried_out():
    """All pods go, and the job knows where it starts again."""
    story = Story(allowed=2)
    assert story.carry_out("defragment", (MOVE,))
    assert story.memory.nominated == {W0: "n2", W1: "n3"}
    assert story.memory.released
    cause = "defragment: evicted for TFJob team/large"
    assert story.released() == {W0: cause, W1: cause}


@pytest.mark.parametrize(
    ("hide", "claimant", "named"),
    [
        (False, "TFJob/other/large", "TFJob other/large"),
        (True, "TFJob/other/large", "a job of another namespace"),
        (True, "TFJob/team/large", "TFJob team/large"),
    ],
)
def test_for_whom_it_goes(hide, claimant, named):
    """By name, unless names of other namespaces are hidden."""
    story = Story(allowed=2)
    settings = story.following.settings
    story.following.settings = replace(settings, hide_others=hide)
    story.following.look()
    assert story.carry_out("preempt", claimant=claimant)
    cause = f"preempt: evicted for {named}"
    assert story.released() == {W0: cause, W1: cause}


def test_a_pod_that_is_not_the_one_that_was_seen():
    """Nothing goes: its successor may be of use where the other one was not."""
    story = Story(allowed=2)
    story.pod(W0, uid="second")
    assert not story.carry_out("preempt")
    assert not story.memory.leaving


@pytest.mark.parametrize(
    ("action", "moves", "goes"), [("defragment", (MOVE,), False), ("preempt", (), True)]
)
def test_no_move_is_worth_a_disruption_budget(action, moves, goes):
    """Preemption overrides it where nothing else would do, a move never does."""
    story = Story(allowed=1)
    assert story.carry_out(action, moves) is goes
    assert story.memory.released is goes


def test_nobody_goes_and_nothing_is_announced_before_all_dry_runs_passed():
    """A pod whose eviction is refused would make the loss of all others useless."""
    story, tried = Story(allowed=2), []
    assert not story.carry_out("reclaim", tries=lambda *asked: tried.append(asked))
    ((gang, pods, cause),) = tried
    assert (gang, len(pods)) == (KEY, 2)
    assert cause.sentence == "reclaim: evicted for TFJob team/large"
    story.refuse()
    assert story.look().unevictable
    assert not story.look(UNEVICTABLE_SECONDS).unevictable


def test_a_release_ends_where_an_eviction_is_refused():
    """The pod that is left runs on, and the one that went is replaced."""
    story = Story(allowed=2)
    assert story.carry_out("preempt")
    assert story.released()
    story.gone(W1)
    story.look(1.0)
    for _ in range(2):
        story.refuse()
    gang = story.look(1.0)
    assert (story.memory.lifecycle.state, story.evicted()) == (State.DEGRADED, {})
    assert [list(role.waiting) for role in gang.roles] == [[1]]
    assert story.look(60 * UNEVICTABLE_SECONDS).unevictable
    assert not story.look(UNEVICTABLE_SECONDS).unevictable


def test_a_gang_takes_the_room_of_its_own_extras():
    """Its other pods stay."""
    story = Story(allowed=2)
    going = (Eviction(KEY, "worker", 0, "n1", DeletionReason.PREEMPT),)
    assert story.evictions.carry_out(Decision(KEY, RESERVED, evictions=going), START, 1.0)
    assert story.evicted() == {W0: Cause(DeletionReason.PREEMPT, KEY)}
