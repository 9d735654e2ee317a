# SPDX-License-Identifier: Apache-2.0
"""One gang, as values: facts and decisions in, what is remembered and to be done out."""

from dataclasses import replace

import pytest

from muster.allocator import tracker
from muster.allocator.lifecycle import Lifecycle, State
from muster.allocator.tracker import (
    NOT_NOW,
    Assumed,
    Bind,
    Departure,
    Evict,
    GangFacts,
    Leaving,
    Mark,
    Outcome,
    Placed,
    Retry,
)
from muster.allocator.verdict import RECORDED, Cause
from muster.api.reasons import DeletionReason
from muster.api.status import Verdict
from muster.cluster.gangs import GangInput
from muster.cluster.pods import PodShape
from muster.cluster.tasks import TaskSet
from support.builders.objects import make_pod

SHAPE = PodShape((("cpu", 1000),))
BLANK = Verdict("muster", "Waiting", "g", 2)
WAITS = replace(BLANK, reason="NotEnoughResources", message="no room", summary="no room")
CAUSE = Cause(DeletionReason.PREEMPT, "TFJob/team/large")
KINDS = pytest.mark.parametrize("remade", [True, False], ids=["job", "pod-group"])


def facts_of(*pods, remade=True, **fields):
    """Return the facts of a gang of these pods, of which two must start together."""
    there = [pod for pod in pods if pod.node and not pod.terminal]
    names = [pod.name for pod in pods] or ["a", "b"]
    values = {
        "uid": "g",
        "source": None,
        "asks": GangInput("PodGroup/team/g", "g", "default", 0.0, 2),
        "tasks": (TaskSet("", SHAPE, 0, dict(enumerate(names)), remade=remade),),
        "pods": {pod.name: pod for pod in pods},
        "blank": BLANK,
        "wanted": frozenset(names),
        "remade": remade,
        "ready": len(there),
        "need": 2,
        "youngest": max((pod.created for pod in there), default=None),
    }
    return GangFacts(**{**values, **fields})


def pod(name, **fields):
    """Return a pod of the gang."""
    return make_pod(name=name, **fields)


def gives(*pairs):
    """Return a decision that gives pods these nodes."""
    return Outcome(BLANK, {n: Assumed(node, SHAPE, 0.0, f"uid-{n}") for n, node in pairs})


def started(facts, now=0.0):
    """Return what is remembered after a first look."""
    return tracker.step(tracker.begin(facts), facts, now).memory


@KINDS
def test_a_decision_is_carried_out(remade):
    """The nodes count as used, existing pods are bound once, and the verdict is published."""
    facts = facts_of(pod("a"), pod("b"), remade=remade)
    step = tracker.accepted(started(facts), facts, gives(("a", "n1"), ("b", "n2")), 5.0)
    assert step.memory.nodes == {"a": "n1", "b": "n2"}
    assert [e for e in step.effects if isinstance(e, Bind)] == [
        Bind(facts.pods["a"], "n1", 0 if remade else 2),
        Bind(facts.pods["b"], "n2", 0 if remade else 2),
    ]
    assert Placed((5.0, 5.0)) in step.effects
    assert step.publish
    after = tracker.step(step.memory, facts, 5.0)
    assert not [e for e in after.effects if isinstance(e, Bind)]


@pytest.mark.parametrize(
    "change", [None, {"uid": "other"}, {"deleting": True}, {"node": "n9"}, {"gated": True}]
)
def test_other_peoples_pods_that_are_not_as_they_were_seen(change):
    """Nothing of the decision is done: the rest would be half of a gang."""
    seen = facts_of(pod("a"), pod("b"), remade=False)
    now = () if change is None else (pod("a", **change),)
    facts = facts_of(*now, pod("b"), remade=False)
    assert tracker.accepted(started(seen), facts, gives(("a", "n1"), ("b", "n2")), 5.0) is None


def test_a_pod_of_a_job_that_has_come_meanwhile():
    """It needs no node any more; the others get theirs."""
    facts = facts_of(pod("a", node="n9"), pod("b"))
    step = tracker.accepted(started(facts), facts, gives(("a", "n1"), ("b", "n2")), 5.0)
    assert step.memory.nodes == {"b": "n2"}


@KINDS
def test_half_of_a_gang_is_given_back(remade):
    """Unless what is left of it is under way: that may be on its node by now."""
    facts = facts_of(pod("a"), pod("b"), remade=remade)
    it = Assumed("n1", SHAPE, 0.0)
    waits = replace(tracker.begin(facts), assumed={"a": it})
    gated = facts_of(pod("a", gated=True), pod("b"), remade=remade)
    assert not tracker.step(waits, gated, 1.0).memory.assumed
    sent = replace(waits, binding=frozenset({"uid-a"}))
    assert tracker.step(sent, facts, 1.0).memory.nodes == {"a": "n1"}


def test_pauses_end_when_writes_succeed_again():
    """A pod that was evicted for another gang waits until that has started."""
    retries = {"a": Retry(5, 9.0), "b": Retry(0, 9.0), "c": Retry(1, 2.0)}
    begun, marked = tracker.begin(facts_of(pod("a"))), {"uid-a": ("NotEnoughResources", "")}
    memory = replace(begun, retries=retries, due=9.0, marked=marked)
    after = tracker.retried(memory, 3.0, granted=False)
    assert (after.due, after.retries) == (0.0, {**retries, "a": Retry(5, 3.0)})
    assert tracker.retried(after, 3.0, granted=False) is after
    # It may not have been permitted to write on a pod why it waits.
    assert (after.marked, tracker.retried(after, 3.0, granted=True).marked) == (marked, {})
    # Nor to evict its pods. If some were evicted, the others are not tried again so soon.
    for until, left in ((60.0, 0.0), (3600.0, 3600.0)):
        refused = replace(after, unevictable_until=until)
        assert tracker.retried(refused, 3.0, granted=False) is refused
        assert tracker.retried(refused, 3.0, granted=True).unevictable_until == left


@KINDS
def test_retries(remade):
    """The first is at once, the next ones after growing pauses of at most a minute."""
    facts = facts_of(pod("a"), pod("b"), remade=remade)
    memory, pauses = started(facts), []
    for _ in range(9):
        memory = tracker.not_bound(memory, "a", "uid-a", 0.0)
        pauses.append(memory.retries["a"].until)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    # After a day of failures 64 bits do not hold a pause without the limit.
    for _ in range(1100):
        memory = tracker.not_bound(memory, "a", "uid-a", 0.0)
    assert memory.retries["a"].until == 60
    turned = replace(memory, retries={}, previous={"a": "n1"})
    away = pod("a", node="n1", phase="Failed", reason="OutOfcpu")
    for pause in (0, 1):
        turned = tracker.arrived(replace(turned, previous={"a": "n1"}), "a", away, 0.0)
        assert (turned.retries["a"].until, turned.previous) == (pause, {})
    for phase, remembered in (("Pending", True), ("Running", False)):
        came = tracker.arrived(turned, "a", pod("a", node="n1", phase=phase), 0.0)
        assert ("a" in came.retries) is remembered


@KINDS
def test_a_gang_that_starts_is_not_broken(remade):
    """While what is missing is on its way; what was whole is, whatever is promised."""
    it = Assumed("n2", SHAPE, 0.0)
    facts = facts_of(pod("a", node="n1"), pod("b"), remade=remade, hold=10.0)
    starts = replace(tracker.begin(facts), assumed={"b": it}, lifecycle=Lifecycle(State.STARTING))
    assert tracker.step(starts, facts, 1.0).memory.input.hold_until is None
    was_whole = replace(starts, lifecycle=Lifecycle(State.RUNNING))
    assert tracker.step(was_whole, facts, 1.0).memory.input.hold_until == 11.0
    stranded = replace(starts, assumed={})
    assert tracker.step(stranded, facts, 1.0).memory.input.hold_until == 11.0


def test_room_is_kept_for_members_that_came_while_a_late_one_waits():
    """The next launcher of an MPIJob has a node and no pod while workers come and are lost."""
    memory, ran, given = None, Lifecycle(State.RUNNING), {"l": Assumed("n1", SHAPE, 0.0)}
    workers = [pod(f"w{i}", node="n1") for i in range(4)]
    for need, there in (2, 2), (4, 4), (4, 3):
        wanted = frozenset({"l", *(f"w{i}" for i in range(need))})
        asks = replace(facts_of().asks, min_member=need + 1)
        fields = {"late": frozenset({"l"}), "wanted": wanted, "need": need, "asks": asks}
        facts = facts_of(*workers[:there], **fields)
        memory = memory or replace(tracker.begin(facts), lifecycle=ran, assumed=given)
        memory = tracker.step(memory, facts, 1.0).memory
        assert (memory.input.hold_until is None) is (there == need)


@KINDS
def test_hold_counts_again_when_an_outage_ends(remade):
    """Nodes that return may complete the gang, so that its running pods are kept until then."""
    pods = pod("a", node="n1"), pod("b")
    facts = facts_of(*pods, remade=remade, hold=10.0, gives_up=True)
    was_whole = replace(tracker.begin(facts), lifecycle=Lifecycle(State.RUNNING))
    memory = tracker.step(was_whole, facts, 1.0).memory
    ended = facts_of(*pods, remade=remade, hold=10.0, gives_up=True, outage_ended_at=10.0)
    step = tracker.step(memory, ended, 11.0)
    assert (step.memory.input.hold_until, step.memory.released) == (20.0, False)
    assert tracker.step(memory, facts, 11.0).memory.released


@KINDS
def test_facts_that_changed_without_meaning(remade):
    """The input stays the same object, so that the snapshot need not look at it again (S17)."""
    facts = facts_of(pod("a", node="n1"), pod("b", node="n1"), remade=remade)
    memory = started(facts)
    again = tracker.step(memory, replace(facts, pods={**facts.pods}), 1.0)
    assert again.memory is not memory
    assert again.memory.input is memory.input
    assert tracker.step(memory, replace(facts, guarded=True), 1.0).memory.input is not memory.input


def test_pods_are_marked_once_for_each_reason():
    """Other people's also with the node that is kept for them, and with an event."""
    facts = facts_of(pod("a"), pod("b", node="n1"), remade=False)
    kept = Outcome(WAITS, nominations={"a": "n2"})
    step = tracker.accepted(replace(started(facts), growing_until=0.0), facts, kept, 9.0)
    marks = [e for e in step.effects if isinstance(e, Mark)]
    assert marks == [Mark(facts.pods["a"], "no room", "n2", record=True)]
    again = tracker.accepted(step.memory, facts, kept, 9.0)
    assert not [e for e in again.effects if isinstance(e, Mark)]
    job = facts_of(pod("a"), pod("b", node="n1"))
    step = tracker.accepted(started(job), job, Outcome(WAITS), 9.0)
    marks = [e for e in step.effects if isinstance(e, Mark)]
    assert marks == [Mark(job.pods["a"], "no room", None, record=False)]


def test_other_peoples_pods_are_waited_for_before_it_is_said_why():
    """They come one by one; of half of them something else would be said."""
    facts = facts_of(pod("a"), remade=False)
    memory = started(facts, 10.0)
    step = tracker.accepted(memory, facts, Outcome(WAITS), 10.0)
    assert (step.memory, step.effects, step.wake) == (memory, (), 10.0 + tracker.GATHERING)
    later = tracker.accepted(memory, facts, Outcome(WAITS), 10.0 + tracker.GATHERING)
    assert later.memory.verdict.reason == "NotEnoughResources"


def test_other_numbers_for_the_same_reason_are_published_later():
    """So that ten thousand gangs that wait do not write all the time."""
    facts = facts_of()
    memory = tracker.accepted(started(facts), facts, Outcome(WAITS), 10.0).memory
    other = Outcome(replace(WAITS, message="less room"))
    soon = tracker.accepted(memory, facts, other, 10.5, 3.0)
    assert (soon.memory.verdict, soon.effects, soon.wake) == (memory.verdict, (), 13.0)
    assert tracker.accepted(memory, facts, other, 13.0, 3.0).memory.verdict.message == "less room"
    news = Outcome(replace(WAITS, reason="Fragmented"))
    assert tracker.accepted(memory, facts, news, 10.5, 3.0).memory.verdict.reason == "Fragmented"


@pytest.mark.parametrize(
    ("remade", "written"),
    [(True, {"owed": True}), (False, {"pods": {"a": pod("a", nominated="n1"), "b": pod("b")}})],
    ids=["job", "pod-group"],
)
def test_evicting_for_a_gang_waits_until_it_is_written(remade, written):
    """On the job's status, or on the pods; if it never is, it goes on after a while."""
    facts = facts_of(pod("a"), pod("b"), remade=remade)
    reserved = Outcome(replace(WAITS, state="Reserved"), nominations={"a": "n1"})
    step, done = tracker.announced(started(facts), facts, reserved, 5.0)
    assert not done
    assert step.wake == 5.0 + tracker.ANNOUNCING
    assert step.publish
    assert tracker.announced(step.memory, replace(facts, **written), reserved, 5.1)[1]
    assert not tracker.announced(step.memory, facts, reserved, 4.9 + tracker.ANNOUNCING)[1]
    assert tracker.announced(step.memory, facts, reserved, 5.0 + tracker.ANNOUNCING)[1]
    # What was asked for then says nothing about the next time.
    other = tracker.accepted(step.memory, facts, Outcome(WAITS), 9.0).memory
    assert not tracker.announced(other, facts, reserved, 99.0)[1]


@KINDS
def test_a_gang_that_makes_room_rests(remade):
    """It is not placed before its time, whatever was decided before, and keeps its age."""
    facts = facts_of(pod("a", node="n1"), pod("b", node="n1"), remade=remade, released=True)
    departure = Departure(CAUSE, 10.0)
    memory = tracker.giving_back(
        started(facts), facts, frozenset({"a", "b"}), departure, 5.0
    ).memory
    assert memory.released
    assert tracker.accepted(memory, facts, gives(("a", "n1")), 5.0) is None
    empty = facts_of(remade=remade)
    step = tracker.step(memory, empty, 6.0)
    assert (step.memory.released, step.memory.input.refusal) == (False, NOT_NOW)
    assert step.memory.verdict.message == CAUSE.sentence
    assert tracker.step(step.memory, empty, 10.0).memory.input.refusal is None


@pytest.mark.parametrize(
    ("cause", "evicted"), [(CAUSE, 1), (replace(CAUSE, claimant=""), 0), (RECORDED, 0)]
)
def test_no_pod_is_evicted_for_a_reason_that_does_not_hold(cause, evicted):
    """No gang is named that takes its capacity, or its own gang is not released."""
    facts = facts_of(pod("a", node="n1"), pod("b", node="n1"))
    leaving = {"a": Leaving(facts.pods["a"].uid, cause)}
    memory = replace(started(facts), leaving=leaving, due=0.0)
    effects = tracker.step(memory, facts, 5.0).effects
    assert sum(isinstance(effect, Evict) for effect in effects) == evicted


@pytest.mark.parametrize("collective", [True, False])
def test_released_collective_waits_for_removal_of_succeeded_pods(collective):
    """The next run of a collective places all members again, also those that succeeded."""
    done = pod("a", phase="Succeeded")
    fields = {"released": True, "collective": collective}
    facts = facts_of(done, pod("b", node="n1"), **fields)
    memory = tracker.giving_back(
        started(facts), facts, frozenset({"b"}), Departure(CAUSE, 0.0), 5.0
    ).memory
    memory = tracker.step(memory, facts_of(done, **fields), 6.0).memory
    assert memory.released is collective
    assert not tracker.step(memory, facts_of(**fields), 7.0).memory.released


def test_released_collective_stays_released_after_a_restart_of_the_operator():
    """Pods that succeeded before the release are not counted for the next run."""
    written = replace(BLANK, state="Released", since=9.0)
    facts = facts_of(pod("a", phase="Succeeded"), written=written, released=True, collective=True)
    assert tracker.begin(facts).released
    assert started(facts).released


DRAINS = GangInput("PodGroup/team/g", "g", "default", 0.0, 2, drains_from=600.0)


def waits_until(memory, facts, eta, now):
    """Return what is remembered once the gang was looked at, and told to start at that time."""
    memory = tracker.step(memory, facts, now).memory
    step = tracker.accepted(memory, facts, Outcome(replace(WAITS, eta=eta)), now)
    return tracker.step(step.memory, facts, now).memory


@pytest.mark.parametrize(
    ("told", "misled"),
    [
        ([(10.0, 50.0), (20.0, 40.0), (30.0, 41.0), (40.0, 41.0)], [False] * 4),
        ([(10.0, 50.0), (20.0, 60.0), (30.0, 70.0), (40.0, 90.0)], [False] * 3 + [True]),
        ([(10.0, 50.0), (66.0, None), (70.0, 90.0), (106.0, None)], [False] * 3 + [True]),
        ([(10.0, 50.0), (66.0, None), (70.0, None), (90.0, None)], [False] * 4),
        ([(1.0, 5.0), (21.0, 25.0), (41.0, None), (640.0, None), (642.0, 700.0)], [0, 0, 1, 1, 0]),
    ],
    ids=["sooner is kept", "later twice", "past twice", "past once", "for as long as it drains"],
)
def test_times_that_are_not_kept_are_not_believed(told, misled):
    """After the second nodes are kept free, as where nobody knows a time at all."""
    facts = facts_of(asks=DRAINS)
    memory, seen = started(facts), []
    for now, eta in told:
        memory = waits_until(memory, facts, eta, now)
        seen.append(memory.input.misled)
    assert seen == [bool(each) for each in misled]


def test_what_a_process_before_this_one_told_was_told():
    """Times that slip are not kept, whoever was there when they were told."""
    facts = facts_of(asks=DRAINS)
    facts = replace(facts, written=replace(facts.blank, eta=100.0))
    memory = waits_until(started(facts), facts, 200.0, 150.0)
    assert (memory.told, memory.slips) == (200.0, 1)
    assert waits_until(memory, facts, 300.0, 250.0).input.misled


def test_what_was_told_goes_along_until_it_is_not_believed():
    """So that the room is kept by then, whoever else waits; after two slips nobody holds to it."""
    facts = facts_of(asks=DRAINS)
    memory, seen = started(facts), []
    for now, eta in ((10.0, 50.0), (20.0, 40.0), (30.0, 70.0), (40.0, 90.0)):
        memory = waits_until(memory, facts, eta, now)
        seen.append(memory.input.told)
    assert seen == [50.0, 40.0, 70.0, None]


def test_a_gang_that_starts_has_nothing_to_wait_for():
    """What it was told before is forgotten with it; and where nothing is drained, nothing is."""
    facts = facts_of(pod("a"), pod("b"), asks=DRAINS)
    memory = waits_until(waits_until(started(facts), facts, 50.0, 10.0), facts, 70.0, 20.0)
    memory = tracker.accepted(memory, facts, gives(("a", "n1"), ("b", "n2")), 30.0).memory
    assert (memory.told, memory.slips) == (None, 0)
    never = facts_of()
    memory = started(never)
    for now in (10.0, 20.0, 30.0, 40.0):
        memory = waits_until(memory, never, now + 40.0, now)
    assert not memory.input.misled


def test_missing_members_shun_nodes_that_may_be_at_fault():
    """As long as any is missing; nobody else is asked to go elsewhere."""
    facts = facts_of(pod("a", node="n1"), pod("b", node="n2"), suspects=frozenset({"n2"}))
    memory = started(facts)
    assert memory.input.shuns == frozenset()
    broken = facts_of(pod("a", node="n1"), pod("b"), suspects=frozenset({"n2"}))
    assert tracker.step(memory, broken, 5.0).memory.input.shuns == {"n2"}


def test_a_pod_that_goes_elsewhere_says_so():
    """Of a node that is suspected, on the job; not of one that it left for other reasons."""
    facts = facts_of(pod("a", node="n1"), pod("b"), suspects=frozenset({"n2"}))
    had = replace(started(facts), previous={"a": "n1", "b": "n2"})
    step = tracker.accepted(had, facts, gives(("b", "n3")), 5.0)
    (said,) = [e.sentence for e in step.effects if isinstance(e, tracker.Suspect)]
    assert "node n2: 1 pod(s)" in said
    back = tracker.accepted(had, facts, gives(("b", "n2")), 5.0)
    assert not [e for e in back.effects if isinstance(e, tracker.Suspect)]
