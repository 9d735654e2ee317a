# SPDX-License-Identifier: Apache-2.0
"""What holds of a gang whatever happens to it, in whatever order, whoever makes its pods."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.allocator import assume, members, tracker
from muster.allocator.lifecycle import Lifecycle, State
from muster.allocator.members import GangSettings, Template
from muster.allocator.tracker import (
    Assumed,
    Bind,
    Departure,
    Evict,
    GangFacts,
    Outcome,
)
from muster.allocator.verdict import HOLD_EXPIRED, RELEASE, Cause
from muster.api.reasons import DeletionReason
from muster.api.status import Verdict
from muster.cluster import gangs, nodes, pods
from muster.cluster.gangs import GangInput, GangRules
from muster.cluster.podgroups import Ask, Terms
from muster.cluster.state import ClusterColumns
from muster.cluster.tasks import TaskSet
from muster.gang import standing
from support.builders.objects import make_job, make_pod, make_replica, make_template
from support.builders.scheduler import make_node

SIZE, MINIMUM, HOLD, PATIENCE = 4, 3, 10.0, 25.0
SHAPE = pods.PodShape((("cpu", 1000),))
BLANK = Verdict("muster", "Waiting", "g", MINIMUM)
CAUSE = Cause(DeletionReason.PREEMPT, "TFJob/team/large")
KINDS = pytest.mark.parametrize("remade", [True, False], ids=["job", "pod-group"])

WHAT = (
    *("place", "come", "come", "not-bound", "fail", "refused", "vanish"),
    *("tick", "evict", "evict-all", "block", "lose-node", "drain"),
)
OPS = st.lists(
    st.tuples(
        st.sampled_from(WHAT),
        st.integers(0, SIZE - 1),
        st.sampled_from([0.0, 0.5, 1.0, 5.0, 10.0, 30.0]),
    ),
    max_size=25,
)


@dataclass
class Gang:
    """A gang, the room in the cluster that it takes, and a clock."""

    remade: bool
    gives_up: bool
    now: float = 1000.0
    pods: dict = field(default_factory=dict)
    nodes: frozenset = frozenset()
    blocked_until: float = 0.0
    made: int = 0
    revision: int = 0
    lacks_since: float | None = None
    least: int = MINIMUM
    floor: int = MINIMUM
    """With fewer it is broken: what it grows by once it was made smaller is nothing it had."""
    told: dict = field(default_factory=dict)
    """uid of a pod -> what its binding says of the gang."""

    def __post_init__(self):
        """Begin with all pods waiting: existing, or to be created."""
        self.columns = ClusterColumns()
        for name in ("n1", "n2"):
            self.columns.node_changed(None, nodes.parse_node(make_node(name=name)))
        self.slots = [f"p{i}" for i in range(SIZE)]
        if not self.remade:
            for slot in range(SIZE):
                self.create(slot)
        self.memory = tracker.begin(self.facts())
        self.seen = None

    def create(self, slot):
        """Make a pod: of the same place, or of a new one where somebody else makes it."""
        self.made += 1
        if not self.remade:
            self.pods.pop(self.slots[slot], None)
            self.slots[slot] = f"p{slot}-{self.made}"
        place = self.slots[slot]
        self.pods[place] = make_pod(name=place, uid=f"u{self.made}", created=self.now)

    def facts(self):
        """Return what is known now."""
        self.revision += 1
        living = frozenset(p for p in self.slots if p in self.pods and not self.pods[p].terminal)
        there = [pod for pod in self.pods.values() if pod.node and not pod.terminal]
        every = frozenset(self.slots)
        places = dict(enumerate(self.slots))
        asks = GangInput("PodGroup/team/g", "g", "default", 0.0, self.least)
        assumed = {it.node for it in self.memory.assumed.values()} if self.revision > 1 else set()
        return GangFacts(
            uid="g",
            source=None,
            asks=asks,
            tasks=(TaskSet("", SHAPE, 0, places, remade=self.remade),),
            pods=dict(self.pods),
            blank=BLANK,
            wanted=every if self.remade else living,
            begins=0.0,
            remade=self.remade,
            ready=standing.placed(self.pods.values()),
            ending=sum(map(standing.is_ending, self.pods.values())),
            need=self.least,
            youngest=max((pod.created for pod in there), default=None),
            released=True,
            hold=HOLD,
            timeout=PATIENCE,
            gives_up=self.gives_up,
            gives_up_early=self.gives_up,
            release_cause=HOLD_EXPIRED if self.remade else RELEASE,
            lapse="they did not come",
            blocked_until=self.blocked_until,
            lost=frozenset(assumed & self.nodes),
            had=None if self.remade else members._had_by(self.pods.values()),
        )

    def grow(self):
        """Let one more pod be wanted, and be needed."""
        self.least += 1
        self.slots.append(f"p{len(self.slots)}")
        if not self.remade:
            self.create(len(self.slots) - 1)

    def remember(self, memory):
        """Keep the columns in step."""
        assume.apply(self.columns, "team", self.memory.assumed, memory.assumed)
        self.memory = memory

    def step(self):
        """Look once, see to what must hold, and let go who is to go."""
        facts = self.facts()
        self.see_lack(facts)
        before = self.memory
        step = tracker.step(before, facts, self.now)
        assert step == tracker.step(before, facts, self.now)
        self.remember(step.memory)
        again = tracker.step(step.memory, facts, self.now)
        assert again.memory is step.memory
        assert again.memory.input is step.memory.input
        assert not again.effects
        self.seen = facts
        self.check(step, facts, before)
        self.carry_out(step)

    def see_lack(self, facts):
        """Take note since when members have been missing of a gang that was whole."""
        self.floor = min(MINIMUM if facts.ready >= self.least else self.floor, self.least)
        whole = facts.ready + facts.ending >= self.floor
        if whole or not self.memory.was_whole:
            self.lacks_since = None
        elif self.lacks_since is None:
            self.lacks_since = self.now

    def check(self, step, facts, before):
        """Fail if anything does not hold."""
        memory = step.memory
        assert {n: at for (_, n), at in self.columns.assumed.items()} == memory.nodes
        self.check_half(memory, facts)
        self.check_hold(step, before)
        for it in memory.assumed.values():
            assert self.now < max(it.since, memory.came_at) + PATIENCE
        if memory.released:
            assert not memory.assumed
            assert step.memory.input.refusal is tracker.NOT_NOW
        freshly = memory.released and not before.released
        if memory.released and (self.remade or freshly):
            stays = {p for p, it in facts.pods.items() if it.node and not it.terminal}
            assert {p for p in stays if not facts.pods[p].deleting} <= memory.leaving.keys()
        for role in step.memory.input.roles:
            found = [*role.waiting, *role.returning, *(i for i, _ in role.held)]
            assert len(found) == len(set(found))

    def check_half(self, memory, facts):
        """Never is half a gang placed that was not let in, but for what is under way."""
        if facts.youngest is None and not memory.was_whole:
            kept = [p for p in memory.assumed if not self.is_sent(p, memory)]
            least = min(MINIMUM, self.least)
            assert not kept or facts.ready + len(memory.assumed) >= least

    def check_hold(self, step, before):
        """Room is not kept for longer than the hold says; then all go, if they are to."""
        if self.lacks_since is None or not before.was_whole:
            return
        end, now = step.memory.input.hold_until, self.now
        assert end is None or now >= end or now < self.lacks_since + HOLD
        if self.gives_up and now >= self.lacks_since + HOLD:
            gone = self.seen.youngest is None
            assert step.memory.released or gone

    def is_sent(self, place, memory):
        """Say whether the pod of that place was sent to its node."""
        return place in self.pods and self.pods[place].uid in memory.binding

    def carry_out(self, step):
        """Let pods be gone that are to go."""
        for effect in step.effects:
            if isinstance(effect, Evict):
                self.pods.pop(effect.pod.name, None)

    def do(self, op, slot, seconds):
        """Let one thing happen."""
        place = self.slots[slot]
        pod = self.pods.get(place)
        getattr(self, "op_" + op.replace("-", "_"))(slot, place, pod, seconds)

    def op_tick(self, _slot, _place, _pod, seconds):
        """Let time pass."""
        self.now += seconds

    def op_block(self, _slot, _place, _pod, seconds):
        """Let pods be refused for a while."""
        self.blocked_until = self.now + seconds

    def op_lose_node(self, _slot, _place, _pod, seconds):
        """Let a node go, or come back."""
        self.nodes = frozenset({"n1"} if seconds else ())

    def op_place(self, slot, _place, _pod, _seconds):
        """Decide as the scheduler would: at least the minimum, or what an admitted one lacks."""
        gang = self.memory.input
        if gang is None or gang.refusal is not None or self.seen is None:
            return
        (role,) = gang.roles
        there = len(role.held) + role.succeeded
        if there + len(role.waiting) < gang.min_member and not gang.admitted:
            return
        node, facts = ("n2" if self.nodes else f"n{slot % 2 + 1}"), self.seen
        wanted = [facts.task("", index)[0] for index in role.waiting]
        uids = {p: facts.pods[p].uid if p in facts.pods else "" for p in wanted}
        given_ = {p: Assumed(node, SHAPE, 0.0, uids[p]) for p in wanted}
        # A binding that is under way, to a node that has gone since, cannot be sent again.
        under_way = {p for p in wanted if self.is_sent(p, self.memory)}
        step = tracker.accepted(self.memory, self.facts(), Outcome(BLANK, given_), self.now)
        if step is not None:
            bound = [effect for effect in step.effects if isinstance(effect, Bind)]
            assert self.remade or {it.pod.name for it in bound} == set(wanted) - under_way
            self.told |= {it.pod.uid: it.had for it in bound}
            self.remember(step.memory)

    def op_come(self, slot, place, pod, _seconds):
        """Let a pod come to the node that it was given; else let one be made that waits."""
        it = self.memory.assumed.get(place)
        if pod is None and self.remade and it is not None:
            self.create(slot)
            pod = self.pods[place]
        elif pod is None and not self.remade:
            self.create(slot)
            return
        if it is None or pod is None or pod.node:
            return
        self.pods[place] = pod = self.on(pod, it.node)
        self.arrive(place, pod)

    def on(self, pod, node):
        """Return a pod as it is on its node, with what its binding says."""
        return replace(pod, node=node, phase="Running", gang_had=self.told.get(pod.uid, 0))

    def op_restart(self, _slot, _place, _pod, seconds):
        """Let another process go on; bindings that were sent are done by then, or never."""
        for place, it in self.memory.assumed.items():
            if seconds > 1.0 and self.is_sent(place, self.memory) and not self.pods[place].node:
                self.pods[place] = self.on(self.pods[place], it.node)
        self.remember(tracker.begin(self.facts()))
        # Since when members lack is written nowhere: their room is kept for a hold from now on.
        self.lacks_since = None

    def arrive(self, place, pod):
        """Show the pod on its node."""
        memory = tracker.arrived(self.memory, place, pod, self.now)
        assert place not in memory.assumed or pod.terminal
        if place not in memory.assumed:
            self.remember(memory)

    def op_not_bound(self, _slot, place, pod, _seconds):
        """Let a binding fail."""
        if pod is not None and pod.uid in self.memory.binding:
            self.remember(tracker.not_bound(self.memory, place, pod.uid, self.now))

    def op_fail(self, _slot, place, pod, _seconds):
        """Let a pod fail."""
        if pod is not None and pod.node:
            self.pods[place] = replace(pod, phase="Failed")

    def op_refused(self, _slot, place, pod, _seconds):
        """Let a node turn its pod away."""
        if pod is not None and pod.node:
            self.pods[place] = pod = replace(pod, phase="Failed", reason="OutOfcpu")
            self.remember(tracker.arrived(self.memory, place, pod, self.now))

    def op_drain(self, _slot, place, pod, _seconds):
        """Let a pod be deleted that takes its time to end."""
        if pod is not None and pod.node and not pod.terminal:
            self.pods[place] = replace(pod, deleting=True)

    def op_vanish(self, _slot, place, _pod, _seconds):
        """Let a pod be gone."""
        self.pods.pop(place, None)

    def op_evict(self, _slot, place, pod, seconds):
        """Let one pod make room."""
        if pod is not None and pod.node and not pod.terminal:
            self.give_back(frozenset({place}), seconds)

    def op_evict_all(self, _slot, _place, _pod, seconds):
        """Let the whole gang make room."""
        going = frozenset(p for p, pod in self.pods.items() if pod.node and not pod.terminal)
        if going:
            self.give_back(going, seconds)
            assert self.memory.released

    def give_back(self, going, seconds):
        """Let go of these pods, as it was decided."""
        departure = Departure(CAUSE, self.now + seconds)
        step = tracker.giving_back(self.memory, self.facts(), going, departure, self.now)
        self.remember(step.memory)
        self.carry_out(step)


@KINDS
@given(ops=OPS, gives_up=st.booleans())
def test_a_gang_that_nothing_happens_to_any_more_comes_to_rest(remade, ops, gives_up):
    """No half gang, no hold without end; room for pods that do not come is free in the end."""
    gang = Gang(remade, gives_up)
    gang.step()
    for op in ops:
        gang.do(*op)
        gang.step()
    for _ in range(8):
        gang.now += 2 * PATIENCE
        gang.step()
    assert not gang.memory.assumed
    assert not gang.columns.assumed


GROWTH = st.lists(
    st.tuples(
        st.sampled_from(["grow", "place", "come", "tick", "block"]),
        st.integers(0, 2 * SIZE),
        st.sampled_from([0.5, 5.0, 30.0, 200.0]),
    ),
    max_size=25,
)


AGAIN = st.lists(
    st.tuples(
        st.sampled_from([*WHAT, "shrink", "restart", "restart"]),
        st.integers(0, 2 * SIZE),
        st.sampled_from([0.0, 0.5, 5.0, 30.0]),
    ),
    max_size=30,
)


SMALLER = [("shrink", 0, 0.0), ("shrink", 0, 0.0)]


@example([*(("fail", i, 0.0) for i in range(3)), ("drain", 3, 0.0), ("restart", 0, 0.0)])
@example([("fail", 0, 0.0), ("fail", 1, 0.0), *SMALLER, ("tick", 0, 30.0)])
@given(ops=AGAIN)
def test_what_a_gang_had_outlives_the_process(ops):
    """Whenever another one goes on, by what the bindings of the pods that are left have said."""
    gang = Gang(remade=False, gives_up=True, least=SIZE)
    gang.step()
    for op in (("place", 0, 0.0), *(("come", i, 0.0) for i in range(SIZE)), *ops):
        before = gang.memory
        if op[0] == "shrink":
            gang.least = max(1, gang.least - 1)
        else:
            gang.do(op[0], op[1] % len(gang.slots), op[2])
        gang.step()
        left = any(standing.has_node(pod) for pod in gang.pods.values())
        if op[0] == "restart" and before.had is not None and left:
            assert gang.memory.had == min(max(before.had, gang.memory.had), gang.least)


@KINDS
@example(ops=[("grow", 0, 0.5), ("tick", 0, 30.0)], restarts=[0])
@given(ops=GROWTH, restarts=st.lists(st.integers(0, 25), max_size=5))
def test_growth_breaks_nothing(remade, ops, restarts):
    """Whatever becomes of what is wanted more, of those that were let in none is taken away.

    Pods that somebody else makes say themselves what the gang had when a process goes on.
    """
    gang = Gang(remade, gives_up=True)
    gang.step()
    gang.do("place", 0, 0.0)
    for slot in range(SIZE):
        gang.do("come", slot, 0.0)
    gang.step()
    for index, op in enumerate(ops):
        if op[0] == "grow":
            gang.grow()
        else:
            gang.do(op[0], op[1] % len(gang.slots), op[2])
        gang.step()
        if index in restarts and not remade:
            gang.op_restart(0, "", None, op[2])
            gang.step()
        assert not gang.memory.released
        assert not gang.memory.leaving
    assert sum(bool(pod.node) for pod in gang.pods.values()) >= SIZE


PODS = st.lists(
    st.sampled_from(["waiting", "running", "gated", "done", "assumed", "sent"]),
    min_size=SIZE,
    max_size=SIZE,
)
RULES = GangRules(frozenset({"muster"}), "default")
SETTINGS = GangSettings(RULES, HOLD, "release")


def of_a_job(pods):
    """Return the facts of a job with these pods."""
    replica = make_replica(replicas=SIZE, template=make_template())
    job = make_job(replicas=[replica], scheduling={"min_available": MINIMUM})
    wanted = job.pod_names(job.replicas)
    sets = gangs.task_sets(job, RULES, gangs.templates(job), {})
    rest = {"free": frozenset(), "late": frozenset()}
    made = Template(("", 0, 0, 0), {}, sets, None, wanted=wanted, **rest)
    return members.job_facts(job, pods, made, SETTINGS, BLANK)


def of_a_group(pods):
    """Return the facts of a PodGroup with these pods."""
    found = [(pod, Ask("PodGroup/team/g", 0, 0, SHAPE)) for pod in pods.values()]
    terms = Terms(GangInput("PodGroup/team/g", "g", "default", 0.0, MINIMUM))
    return members.group_facts("PodGroup/team/g", found, terms, SETTINGS, BLANK)


def decided(facts, states, lost):
    """Return all that follows for the gang, step by step, without what names it."""
    places = list(facts.pods)
    shape = facts.tasks[0].shape
    assumed = {
        place: Assumed("n1", shape, 0.0)
        for place, state in zip(places, states, strict=True)
        if state in ("assumed", "sent")
    }
    sent = {facts.pods[p].uid for p, s in zip(places, states, strict=True) if s == "sent"}
    memory = replace(
        tracker.begin(facts),
        assumed=assumed,
        lifecycle=Lifecycle(State.RUNNING if lost else State.WAITING),
        binding=frozenset(sent),
        previous={},
    )
    found = []
    for now in (1.0, HOLD, HOLD + 1.0, HOLD + 2.0, HOLD + 4.0, 200.0):
        step = tracker.step(memory, facts, now)
        memory = step.memory
        role = step.memory.input.roles[0]
        tasks = (role.waiting, role.returning, role.held, role.gated, role.succeeded)
        found.append(
            (
                [tuple(part) if not isinstance(part, int) else part for part in tasks],
                step.memory.input.admitted,
                step.memory.input.hold_until,
                step.memory.input.refusal,
                memory.released,
                sorted(memory.assumed),
                [effect.pod.name for effect in step.effects if isinstance(effect, Bind)],
            )
        )
    return found


@given(states=PODS, lost=st.booleans())
def test_two_kinds_of_gangs_with_the_same_pods(states, lost):
    """The same follows: who makes pods decides about those that end, and about nothing else."""
    pods = {}
    for index, state in enumerate(states):
        name = f"mnist-worker-{index}"
        phase = {"running": "Running", "done": "Succeeded"}.get(state, "Pending")
        node = "n1" if state in ("running", "done") else ""
        pods[name] = make_pod(
            name=name, index=index, phase=phase, node=node, gated=state == "gated"
        )
    running = "running" in states
    job, group = of_a_job(pods), of_a_group(pods)
    same = lost and running
    assert decided(job, states, same) == decided(group, states, same)
