# SPDX-License-Identifier: Apache-2.0
"""A cluster whose gangs make room for each other: what is decided is done, cycle by cycle."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from hypothesis import strategies as st

from muster.api.reasons import Reason
from muster.cluster.gangs import GangInput
from muster.scheduler import cycle, division, policy
from muster.scheduler.model import PastMove, Refusal
from muster.scheduler.policy import Policy
from support.builders.scheduler import make_columns, make_gang, make_node, make_queue, make_role

LEAVING = Refusal(Reason.PREEMPTED, "it is leaving")


class World:
    """Gangs of one role, which are placed, evicted, moved and placed again."""

    def __init__(self, nodes, queues, gangs):
        """Begin with these gangs, whose `held` tasks run."""
        self.nodes, self.queues = nodes, queues
        self.gangs = {gang.key: gang for gang in gangs}
        self.now = 1000.0
        self.moves = []

    @property
    def sizes(self):
        """The CPUs of each node, by name."""
        return {
            node["metadata"]["name"]: int(node["status"]["allocatable"]["cpu"])
            for node in self.nodes
        }

    def fits(self, cpu):
        """Return whether a task of so many CPUs fits beside the gangs that run."""
        free = self.sizes
        for gang in self.gangs.values():
            for _, node in gang.roles[0].held:
                free[node] -= _cpu(gang.roles[0])
        return max(free.values()) >= cpu

    def __repr__(self):
        """Return what a failure is to be told by."""
        return f"World({self.sizes}, {self.queues}, {list(self.gangs.values())})"

    def columns(self):
        """Return the columns with every task that has a node."""
        columns = make_columns(nodes=self.nodes)
        for gang in self.gangs.values():
            (role,) = gang.roles
            for index, node in (*role.held, *role.leaving):
                columns.assume("team", f"{gang.key}-{index}", node, role.shape)
        return columns

    def decide(self, rules, deferred=None):
        """Return what a cycle decides. `deferred`: the searches that earlier cycles cut off."""
        snapshot = self.columns().snapshot(
            list(self.gangs.values()),
            self.queues,
            self.now,
            tuple(self.moves) if rules.moves else None,
            deferred,
        )
        return cycle.schedule(snapshot, rules)

    def live(self, rules, cycles):
        """Decide and carry out so often; what stays as it was is not decided anew."""
        for left in range(cycles, 0, -1):
            before = dict(self.gangs)
            self.carry_out(self.decide(rules))
            if self.gangs == before:
                self.now += left - 1
                return

    def carry_out(self, decisions):
        """End what was leaving, evict, keep and place."""
        self.now += 1
        for gang in list(self.gangs.values()):
            (role,) = gang.roles
            left = (*role.waiting, *role.returning)
            self._set(gang, waiting=left, returning=(), leaving=(), nominated={})
        moved = set()
        for decision in decisions:
            for gang, evicted in itertools.groupby(decision.evictions, lambda e: e.gang):
                self._evict(gang, {e.index for e in evicted})
            for move in decision.moves if decision.evictions else ():
                nodes = {p.index: p.node for p in move.placements}
                self._set(self.gangs[move.gang], nominated=nodes)
                self.moves.append(PastMove(move.gang, decision.gang, self.now))
                moved.add(move.gang)
            gang = self.gangs[decision.gang]
            if decision.gang in moved:
                continue
            (role,) = gang.roles
            placed = {p.index: p.node for p in decision.placements}
            left = tuple(i for i in role.waiting if i not in placed)
            held, started = (
                (*role.held, *placed.items()),
                (*role.started, *[self.now] * len(placed)),
            )
            kept = {p.index: p.node for p in decision.nominations if p.index not in placed}
            self._set(gang, waiting=left, held=held, started=started, nominated=kept)

    def _evict(self, key, indices):
        gang = self.gangs[key]
        (role,) = gang.roles
        stays = [
            (t, s) for t, s in zip(role.held, role.started, strict=True) if t[0] not in indices
        ]
        gone = tuple(task for task in role.held if task[0] in indices)
        self._set(
            gang,
            held=tuple(task for task, _ in stays),
            started=tuple(start for _, start in stays),
            returning=(*role.returning, *indices),
            leaving=gone,
        )

    def _set(self, gang, **fields):
        gang = self.gangs[gang.key]
        role = dataclasses.replace(gang.roles[0], **fields)
        refusal = LEAVING if role.leaving and len(role.held) < gang.min_member else None
        # Who goes whole begins anew, without a claim on what it had.
        keeps = gang.admitted and bool(role.held)
        self.gangs[gang.key] = dataclasses.replace(
            gang,
            roles=(role,),
            refusal=refusal,
            moving=bool(refusal and role.nominated),
            admitted=keeps,
            hold_until=gang.hold_until if keeps else None,
        )


@st.composite
def worlds(draw):
    """Return a world with running and waiting gangs; running ones fit their nodes.

    Some have lost members with a node that is gone, and theirs are held.
    """
    sizes = {f"n{i}": draw(st.integers(1, 6)) for i in range(draw(st.integers(1, 4)))}
    free = dict(sizes)
    gangs = []
    for i in range(draw(st.integers(1, 6))):
        cpu, count = draw(st.integers(1, 3)), draw(st.integers(1, 4))
        held = []
        if draw(st.booleans()):
            for index in range(count):
                node = next((n for n in sorted(free) if free[n] >= cpu), None)
                if node is not None:
                    free[node] -= cpu
                    held.append((index, node))
        least = draw(st.integers(1, count))
        if len(held) < least:
            for _, node in held:
                free[node] += cpu
            held = []
        lost = held[draw(st.integers(0, len(held))) :] if draw(st.integers(0, 3)) == 0 else []
        for _, node in lost:
            free[node] += cpu
        held = held[: len(held) - len(lost)]
        starts = [float(draw(st.integers(0, 900))) for _ in held]
        role = make_role(
            cpu=cpu,
            held=tuple(held),
            started=tuple(starts),
            waiting=tuple(range(len(held), count)),
            previous={index: "gone" for index, _ in lost},
        )
        gangs.append(
            make_gang(
                key=f"team/g{i}",
                queue=draw(st.sampled_from(["q1", "q2"])),
                priority=draw(st.integers(0, 2)),
                created=float(draw(st.integers(0, 50))),
                min_member=least,
                movable=draw(st.booleans()),
                admitted=bool(lost),
                hold_until=1e6 if lost else None,
                roles=[role],
            )
        )
    nodes = [make_node(name=name, cpu=cpu) for name, cpu in sizes.items()]
    weights = [make_queue(name="q1", weight=draw(st.integers(1, 3))), make_queue(name="q2")]
    return World(nodes, weights, gangs)


# Of a gang that wants the room of others, against all that may lawfully go for it.


@dataclasses.dataclass(frozen=True)
class Claim:
    """A gang that does not fit beside gangs that run, each of as many as it likes at the least."""

    world: World
    claimant: GangInput
    rules: Policy
    least: float | None
    """The least work that a lawful set of tasks loses which makes room; None: there is none."""

    def decide(self, deferred=None):
        """Return what is decided about the gang."""
        decisions = self.world.decide(self.rules, deferred)
        return next(each for each in decisions if each.gang == self.claimant.key)


# Of other plugins the first tier would decide who is asked at all.
_PLUGINS = [{"name": name} for name in ("gang", "predicates", "proportion", "binpack")]
PREEMPTS = policy.parse({"actions": "allocate, preempt", "tiers": [{"plugins": _PLUGINS}]})
RECLAIMS = policy.parse({"actions": "allocate, reclaim"})


def claim(dice, *, reclaims):
    """Return one that others of its queue could make room for, or of another queue; or None.

    `dice`: a `random.Random`. One in two has lost its members with their nodes.
    """
    world, asks = _crowd(dice)
    queue = "q2" if reclaims else "q1"
    claimant = make_gang(key="team/x", queue=queue, priority=1, roles=[asks])
    if dice.randrange(2):
        if reclaims and world.fits(_cpu(asks)):
            # Members that fit are placed one by one, and raise the share of the claimant.
            return None
        lost = dataclasses.replace(asks, previous=dict.fromkeys(asks.waiting, "gone"))
        claimant = dataclasses.replace(claimant, roles=(lost,), admitted=True, hold_until=2000.0)
    gangs = list(world.gangs.values())
    world.gangs["team/x"] = claimant
    if _cheapest(world, claimant, {}) is not None:
        return None
    if not reclaims:
        best = _cheapest(world, claimant, {g.key: g.priority < 1 for g in gangs})
        return Claim(world, claimant, PREEMPTS, best)
    held = sum(len(g.roles[0].held) * _cpu(g.roles[0]) for g in gangs)
    wants = len(asks.waiting) * _cpu(asks)
    weights = np.array([q.weight for q in world.queues], float)
    due = division.fill(np.array([held, wants], float), weights, float(sum(world.sizes.values())))
    if wants > due[1] * (1 + 1e-9):
        return None
    # The claimant has nothing, so that the other queue must be left with something.
    best = _cheapest(world, claimant, {g.key: True for g in gangs}, held - 1)
    return Claim(world, claimant, RECLAIMS, best)


def _crowd(dice):
    """Return a world of elastic gangs that run, and the role of a gang that wants their room."""
    sizes = {f"n{i}": dice.randint(2, 6) for i in range(dice.randint(1, 3))}
    free, gangs = dict(sizes), []
    for i in range(dice.randint(1, 4)):
        cpu, held = dice.randint(1, 3), []
        for _ in range(dice.randint(1, 4)):
            node = dice.choice(sorted(sizes))
            if free[node] >= cpu:
                free[node] -= cpu
                held.append((len(held), node))
        if held:
            starts = tuple(float(dice.randint(0, 900)) for _ in held)
            gangs.append(
                make_gang(
                    key=f"team/g{i}",
                    queue="q1",
                    priority=dice.randint(0, 1),
                    min_member=dice.randint(1, len(held)),
                    roles=[make_role(cpu=cpu, held=tuple(held), started=starts)],
                )
            )
    asks = make_role(cpu=dice.randint(1, 3), waiting=tuple(range(dice.randint(1, 4))))
    nodes = [make_node(name=name, cpu=cpu) for name, cpu in sizes.items()]
    queues = [make_queue(name="q1", weight=dice.randint(1, 3)), make_queue(name="q2")]
    return World(nodes, queues, gangs), asks


def _cpu(role):
    """Return the CPUs that each task of a role asks for."""
    return dict(role.shape.requests)["cpu"] // 1000


def _lawful(gang, *, whole):
    """Yield the sets of tasks that may go of a gang: of what it has above its minimum, or all."""
    (role,) = gang.roles
    for count in range(len(role.held) - gang.min_member + 1):
        yield from itertools.combinations(range(len(role.held)), count)
    if whole:
        yield tuple(range(len(role.held)))


def _cheapest(world, claimant, may_go, limit=float("inf")):
    """Return the least work that is lost by a lawful set that makes room; None: there is none.

    `may_go`: gang -> whether it may go whole. `limit`: of the cpus that go.
    """
    (asks,) = claimant.roles
    best, total = None, sum(world.sizes.values())
    gangs = [world.gangs[key] for key in may_go]
    for going in itertools.product(*(_lawful(g, whole=may_go[g.key]) for g in gangs)):
        free, lost, gone = dict(world.sizes), 0.0, 0
        for gang in world.gangs.values():
            (role,) = gang.roles
            chosen = going[gangs.index(gang)] if gang in gangs else ()
            for place, (_, node) in enumerate(role.held):
                if place in chosen:
                    lost += (world.now - role.started[place]) * _cpu(role) / total
                    gone += _cpu(role)
                else:
                    free[node] -= _cpu(role)
        enough = sum(room // _cpu(asks) for room in free.values()) >= len(asks.waiting)
        if enough and gone <= limit + 1e-6 and (best is None or lost < best):
            best = lost
    return best


def lost_by(world, decision):
    """Return the work that is lost by what is evicted."""
    total, lost = sum(world.sizes.values()), 0.0
    for eviction in decision.evictions:
        (role,) = world.gangs[eviction.gang].roles
        place = [index for index, _ in role.held].index(eviction.index)
        lost += (world.now - role.started[place]) * _cpu(role) / total
    return lost
