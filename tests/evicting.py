# SPDX-License-Identifier: Apache-2.0
"""A cluster whose gangs make room for each other: what is decided is done, cycle by cycle."""

from __future__ import annotations

import dataclasses
import itertools

from hypothesis import strategies as st

from builders_scheduler import make_columns, make_gang, make_node, make_queue, make_role
from muster.api.reasons import Reason
from muster.cluster.assemble import assemble
from muster.scheduler import cycle
from muster.scheduler.model import PastMove, Refusal

LEAVING = Refusal(Reason.PREEMPTED, "it is leaving")


class World:
    """Gangs of one role, which are placed, evicted, moved and placed again."""

    def __init__(self, nodes, queues, gangs):
        """Begin with these gangs, whose `held` tasks run."""
        self.nodes, self.queues = nodes, queues
        self.gangs = {gang.key: gang for gang in gangs}
        self.now = 1000.0
        self.moves = []

    def __repr__(self):
        """Return what a failure is to be told by."""
        sizes = [node["status"]["allocatable"]["cpu"] for node in self.nodes]
        return f"World({sizes}, {self.queues}, {list(self.gangs.values())})"

    def columns(self):
        """Return the columns with every task that has a node."""
        columns = make_columns(nodes=self.nodes)
        for gang in self.gangs.values():
            (role,) = gang.roles
            for index, node in (*role.held, *role.leaving):
                columns.assume("team", f"{gang.key}-{index}", node, role.shape)
        return columns

    def decide(self, rules):
        """Return what a cycle decides."""
        snapshot = assemble(
            self.columns(),
            list(self.gangs.values()),
            self.queues,
            self.now,
            tuple(self.moves) if rules.moves else None,
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
def worlds(draw, most=6, queues=("q1", "q2"), *, hurt=True):
    """Return a world with running and waiting gangs; running ones fit their nodes.

    `hurt`: some have lost members with a node that is gone, and theirs are held.
    """
    sizes = {f"n{i}": draw(st.integers(1, 6)) for i in range(draw(st.integers(1, 4)))}
    free = dict(sizes)
    gangs = []
    for i in range(draw(st.integers(1, most))):
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
        some = hurt and draw(st.integers(0, 3)) == 0
        lost = held[draw(st.integers(0, len(held))) :] if some else []
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
                queue=draw(st.sampled_from(queues)),
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
