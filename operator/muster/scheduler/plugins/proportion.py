# SPDX-License-Identifier: Apache-2.0
"""proportion: every queue gets its due of each resource, by weight, up to what it asks for.

Among the parts of a division, as among the queues of the cluster, each is due min(cap, L * weight)
per resource, where cap is what it asks for within its limits, and L the level at which the sum of
all is min(total, sum of cap). `division` has the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler import diagnosis
from muster.scheduler.capacity import ALL
from muster.scheduler.decision import Decision, Verdict
from muster.scheduler.division import Tree, held
from muster.scheduler.hooks import VETO, YES, Answers, Claim, Freed, Hooks, Parsed
from muster.scheduler.model import (
    PODS,
    UNLIMITED,
    BoolArray,
    FloatArray,
    Gang,
    Queue,
    Refusal,
    Snapshot,
)
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, QueueState

EXACT: Final = 1e-9
"""Relative error that dividing by weights may make."""
MAX_SINGLE_STEPS: Final = 8
"""Queues that are added one by one to those from which a gang may reclaim."""


def answer(session: Session, _arguments: Parsed) -> Hooks:
    """Order queues by share, hold back those that have their due, keep to their limits."""
    standing = Standing(session)
    return Hooks(
        queue_order=standing.rank,
        overused=standing.overused,
        admissible=standing.admissible if standing.bounded else None,
        within=standing.within,
        reach=standing.reach,
        reclaimable=standing.reclaimable,
    )


class Standing:
    """Where the queues stand in a session. Nothing is worked out before it is asked for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        snapshot = session.snapshot
        every = (*snapshot.divisions.values(), *snapshot.queues.values())
        limits = [queue.capability for queue in every]
        for queue in every:
            limits += [queue.stake.borrowing, queue.stake.lending] if queue.stake else ()
        self.bounded: Final = any((limit < UNLIMITED).any() for limit in limits)
        """Whether any queue limits what its gangs, or those of other queues, may have."""

    @cached_property
    def _tree(self) -> Tree:
        snapshot = self._session.snapshot
        return Tree(snapshot.queues, snapshot.divisions, snapshot.nodes.shared)

    @cached_property
    def _asking(self) -> Mapping[str, Queue]:
        """The queues by name as they ask for what could start: the rest parks no share."""
        queues = dict(self._session.snapshot.queues)
        # A queue alone shares with nobody.
        if sum(bool(queue.request.any()) for queue in queues.values()) > 1:
            for gang in self._session.gangs:
                if gang.queue is None:
                    continue
                idle = diagnosis.idle_demand(self._session, gang)
                if idle.any():
                    queue = queues[gang.spec.queue]
                    queues[queue.name] = replace(queue, request=queue.request - idle)
        return queues

    @cached_property
    def _dues(self) -> FloatArray:
        return self._tree.dues(self._asking)

    def due(self, queue: QueueState) -> FloatArray:
        """Return (R,) what the queue is due."""
        due: FloatArray = self._dues[self._tree.place[queue.spec]]
        return due

    def rank(self, queue: QueueState) -> float:
        """Return what part of its due is held."""
        return _share(queue.allocated, self.due(queue))

    def overused(self, queue: QueueState) -> bool:
        """Return whether the queue has its deserved share of all resources that it needs."""
        # Only of what it still lacks: having all its cpu must not exclude it from devices.
        request = _listed(self._asking[queue.spec.name].request)
        held, due = _listed(queue.allocated), _listed(self.due(queue))
        # The total has no part of what is held beyond what nodes offer by now, as while a device
        # plugin restarts. For evictions it counts: the node soon offers it again.
        gone = _listed(self._beyond.get(queue.spec.name, np.zeros(len(queue.allocated))))
        values = zip(request, held, due, gone, strict=True)
        lacking = [(h - g, d) for r, h, d, g in values if r > h]
        # In every resource, as kube-batch's overused: one alone may well be short.
        return any(h for h, _ in lacking) and all(h >= d for h, d in lacking)

    @cached_property
    def _beyond(self) -> Mapping[str, FloatArray]:
        """Queue -> (R,) what its gangs hold of nodes beyond what these offer."""
        nodes, holdings = self._session.snapshot.nodes, self._session.snapshot.holdings
        found: dict[str, FloatArray] = {}
        if not (nodes.used > nodes.allocatable).any():
            return found
        held = np.zeros(nodes.used.shape)
        for each in holdings:
            np.add.at(held, each.nodes, each.amounts)
        part = np.maximum(held - nodes.allocatable, 0) / np.maximum(held, 1)
        for each in holdings:
            beyond: FloatArray = (each.amounts * part[each.nodes]).sum(axis=0)
            found[each.gang.queue] = found.get(each.gang.queue, 0.0) + beyond
        return found

    def within(self, gang: GangState, amount: FloatArray, freed: Freed) -> bool:
        """Return whether the queue and its parents stay within their deserved shares."""
        return gang.queue is not None and all(
            self._stays(queue, amount, freed) for queue in gang.queue.lineage
        )

    def _stays(self, queue: QueueState, amount: FloatArray, freed: Freed) -> bool:
        # What comes free inside of a division does not make it grow.
        for name, free in freed.items():
            other = self._session.queues.get(name)
            if other is not None and queue in other.lineage:
                amount = amount - free
        wanted = amount > 0
        wanted[PODS] = False
        owed = self.due(queue) * (1 + EXACT)
        return bool((queue.allocated + amount <= owed)[wanted].all())

    def reach(self, gang: GangState, amount: FloatArray) -> Sequence[BoolArray]:
        """Return (V,) from which queues that have victims the gang may reclaim, step by step.

        The nearest common ancestor comes first, then its part with the largest share, and in that
        part the queue with the largest share. Each step includes those before it.
        """
        if gang.queue is None or any(each.spec.displaced for each in gang.queue.lineage):
            return ()
        key = ("reach", gang.queue.spec.name, amount.tobytes(), self._session.room.state)
        return self._session.cached(key, lambda: self._steps(gang, amount))

    def _steps(self, gang: GangState, amount: FloatArray) -> Sequence[BoolArray]:
        session, victims = self._session, self._session.victims
        comparison = Comparison(self, gang, amount)
        found = sorted(
            (-level, -comparison.share(path[level]), -comparison.share(path[-1]), at)
            for at, (path, level) in comparison.paths.items()
            if (comparison.spare(path[level], level) >= 1).any()
        )
        columns, of = comparison.requested, victims.queue[victims.begins]
        held = np.zeros((len(victims.queues), len(columns)))
        np.add.at(held, of, victims.held[:, columns])
        lacking = amount[columns] * (1 - EXACT)
        if found:
            lacking = lacking - session.room.free(ALL, future=True)[:, columns].sum(axis=0)
        steps, marks = [], np.zeros(len(victims.queues), np.bool_)
        of_sides: dict[QueueState, FloatArray] = {}
        spare: dict[QueueState, FloatArray] = {}
        for size, (level, _, _, at) in enumerate(found, 1):
            marks[at] = True
            side = comparison.paths[at][0][-level]
            of_sides[side] = of_sides.get(side, np.zeros(len(columns))) + held[at]
            spare[side] = comparison.spare(side, -level)
            # Each step is a search: only where sums suffice, and of many queues by doubling.
            lose = [np.minimum(of_sides[each], spare[each]) for each in of_sides]
            enough = (np.sum([*of_sides.values()], axis=0) >= lacking).all()
            if not enough or not (np.sum(lose, axis=0) >= lacking).any():
                continue
            whole = size == len(found) or found[size][0] != level
            if whole or size <= MAX_SINGLE_STEPS or not size & (size - 1):
                steps.append(marks.copy())
        return steps

    def paths_from(self, queue: QueueState) -> Mapping[int, tuple[Sequence[QueueState], int]]:
        """Return, by position of V, the path to each other queue that lets go, from the top.

        With the number of queues that it has in common with the path to this one.
        """

        def paths() -> Mapping[int, tuple[Sequence[QueueState], int]]:
            own, found = queue.lineage[::-1], {}
            for at, (way, lowest) in self._paths.items():
                pairs = enumerate(zip(own, way, strict=False))
                common = next((i for i, (one, other) in pairs if one is not other), len(way))
                if lowest <= common < len(way):
                    found[at] = way, common
            return found

        return self._session.cached(("paths", queue.spec.name), paths)

    @cached_property
    def scarce(self) -> Sequence[bool]:
        """(R,): queues request more than there is."""
        wanted = np.sum([queue.request for queue in self._asking.values()], axis=0)
        scarce: list[bool] = (wanted > self._tree.total).tolist()
        return scarce

    @cached_property
    def _paths(self) -> Mapping[int, tuple[Sequence[QueueState], int]]:
        """Position of V -> the path to the queue, and the first level from which all let go."""
        found = {}
        for at, name in enumerate(self._session.victims.queues):
            if (queue := self._session.queues.get(name)) is not None:
                way = queue.lineage[::-1]
                keeps = [not each.spec.reclaimable or each.spec.displaced for each in way]
                found[at] = way, max((i + 1 for i, keep in enumerate(keeps) if keep), default=0)
        return found

    def admissible(self, gang: GangState, amount: FloatArray) -> Refusal | None:
        """Return which limit the gang would break, of its queue or of one above that."""
        if gang.queue is None:
            return None
        for queue in gang.queue.lineage:
            ceiling = self._tree.ceilings[self._tree.place[queue.spec]]
            if (refusal := _above(gang, queue, amount, ceiling)) is not None:
                return refusal
        return self._not_lent(gang.queue, amount) if self._tree.kept.any() else None

    def _not_lent(self, queue: QueueState, amount: FloatArray) -> Refusal | None:
        """Return which other queue lends no more of what it does not use."""
        tree, lineage = self._tree, queue.lineage
        held = np.zeros_like(tree.kept)
        for other in self._session.queues.values():
            for each in other.lineage:
                held[tree.place[each.spec]] = each.allocated
        # Compared with the state after: a gang that makes no excess worse is not refused.
        before = tree.occupied(held)
        for each in lineage:
            held[tree.place[each.spec]] += amount
        after = tree.occupied(held)
        for each in lineage:
            beside = tree.beside(each.spec)
            most = tree.ceilings[tree.place[each.above[0].spec]] if each.above else tree.total
            grown: BoolArray = np.any(after[beside] > before[beside], axis=0)
            grown[PODS] = False
            over = grown & (after[beside].sum(axis=0) > most * (1 + EXACT))
            for row in beside[(after[beside] > held[beside])[:, over].any(axis=1)].tolist():
                text = f'queue "{tree.queues[row].name}" lends no more of what it does not use'
                return Refusal(Reason.QUEUE_OVERUSED, text)
        return None

    def reclaimable(self, claim: Claim) -> Answers:
        """Allow what `Comparison` allows, in order; where all go together, after each other."""
        answers = np.full(len(claim.units), VETO)
        comparison = Comparison(self, claim.gang, claim.gang.lacking())
        queues = claim.victims.queue[claim.units].tolist()
        amounts = claim.amounts
        comparison.free_inside(queues, amounts)
        displaced = self._displaced(claim, amounts).tolist()
        for i, (at, amount) in enumerate(zip(queues, amounts.tolist(), strict=True)):
            if comparison.allows(at, amount, displaced[i]):
                answers[i] = YES
                if claim.together:
                    comparison.take(at, amount)
        return answers

    def _displaced(self, claim: Claim, amounts: FloatArray) -> FloatArray:
        """Return (M, R) what the queue of each victim loses beside it when the victim returns.

        A gang that is evicted returns by preemption of lower priorities of its queue, which may
        hold more than it does. Its queue would then reclaim from others, and so on without end.
        The largest of these gangs count, as it is not known on which nodes the victim will fit.
        """
        victims, lost = claim.victims, np.zeros_like(amounts)
        if not self._session.preempts:
            return lost
        ends = np.flatnonzero(victims.whole[claim.units]).tolist()
        owners = [victims.gangs[i] for i in victims.gang[claim.units[ends]].tolist()]
        going = {id(gang) for gang in owners} if claim.together else set()
        groups: dict[tuple[str, int], list[int]] = {}
        for i, gang in zip(ends, owners, strict=True):
            groups.setdefault((gang.queue, gang.priority), []).append(i)
        for (queue, priority), rows in groups.items():
            sums = self._lower(queue, priority, going)
            for column in range(amounts.shape[1]) if len(sums) else ():
                own, preempted = amounts[rows, column], sums[:, column]
                enough = np.minimum(np.searchsorted(preempted, own), len(sums) - 1)
                lost[rows, column] = np.maximum(preempted[enough] - own, 0)
        return lost

    def _lower(self, queue: str, priority: int, going: Collection[int]) -> FloatArray:
        """Return (K, R) what the 1 to K largest gangs below the priority hold; not `going` ids."""
        session = self._session

        def states() -> Sequence[GangState]:
            found = (g for g in session.snapshot.gangs if g.queue == queue)
            return [session.state_of(gang) for gang in found if gang.priority < priority]

        lower = session.cached(("lower", queue, priority), states)
        held = [gang.allocated for gang in lower if id(gang.spec) not in going]
        sums: FloatArray = np.cumsum(-np.sort(-np.array(held), axis=0), axis=0)
        return sums


class Comparison:
    """The shares of a preemptor and of its victims below their lowest common ancestor.

    A victim may go if its side keeps a larger share than the preemptor's side has now, and if the
    preemptor's side then has at most what it deserves, or at most the share of the victim's side.
    No guarantee is broken, and no common ancestor shrinks below what it deserves. Only resources
    that the preemptor lacks and the victim holds count: the scarce ones, or all if none is scarce
    in the whole cluster.
    """

    def __init__(self, standing: Standing, gang: GangState, amount: FloatArray) -> None:
        self.requested: Final = [c for c in np.flatnonzero(amount > 0).tolist() if c != PODS]
        self._scarce = standing.scarce
        self._columns = self._scarcest(self.requested)
        self._own = () if gang.queue is None else gang.queue.lineage[::-1]
        self.paths = {} if gang.queue is None else standing.paths_from(gang.queue)
        """Position of a queue -> the path to it, and how much of it is common."""
        self._standing = standing
        self._amount: list[float] = amount.tolist()
        self._inside = [[0.0] * len(self._amount) for _ in self._own]
        """What all victims free in each queue on the path to the preemptor."""
        self._freed = [[0.0] * len(self._amount) for _ in self._own]
        """What the victims before this one free there."""
        self._known: dict[QueueState, tuple[list[float], list[float]]] = {}
        self._least: dict[int, Sequence[float]] = {}

    def share(
        self, queue: QueueState, more: Sequence[float] = (), columns: Sequence[int] = ()
    ) -> float:
        """Return the largest share of the queue; infinite if it deserves none of a resource."""
        left, deserved = self._balance(queue)
        amounts = (
            (left[c] + (more[c] if more else 0.0), deserved[c]) for c in columns or self._columns
        )
        return max((a / d if d > 0 else UNLIMITED for a, d in amounts), default=0.0)

    def _balance(self, queue: QueueState) -> tuple[list[float], list[float]]:
        """Return (R,) what the queue has left, which may be changed, and what it deserves."""
        if queue not in self._known:
            deserved: list[float] = self._standing.due(queue).tolist()
            self._known[queue] = queue.allocated.tolist(), deserved
        return self._known[queue]

    def _scarcest(self, columns: Sequence[int]) -> Sequence[int]:
        return [column for column in columns if self._scarce[column]] or columns

    def spare(self, side: QueueState, level: int) -> FloatArray:
        """Return by column what a victim's side may lose; of one of them it may lose no more."""
        left, deserved = self._balance(side)
        if level not in self._least:
            self._least[level] = [self._keeps(level, c) for c in self.requested]
        pairs = zip(self.requested, self._least[level], strict=True)
        # A share without limit is never exceeded, not even by a side that deserves nothing.
        return np.array(
            [max(left[c] - s * deserved[c], 0.0) if s < UNLIMITED else 0.0 for c, s in pairs]
        )

    def _keeps(self, level: int, column: int) -> float:
        """Return the share that a victim's side keeps at least if this resource decides."""
        before, after = self._of_preemptor(level, [column])
        # Further up, victims on the preemptor's own side make it grow by less.
        nearest = level + 1 == len(self._own)
        return after if nearest and after > 1 + EXACT else before

    def _of_preemptor(self, level: int, columns: Sequence[int] = ()) -> tuple[float, float]:
        """Return the share of the preemptor's side at the level, before and after."""
        gained = [a - f for a, f in zip(self._amount, self._inside[level], strict=True)]
        own = self._own[level]
        return self.share(own, (), columns), self.share(own, gained, columns)

    def free_inside(self, queues: Sequence[int], amounts: FloatArray) -> None:
        """Count what all victims free on the preemptor's side: it grows by so much less."""
        for level, inside in enumerate(self._inside):
            rows = [at in self.paths and self.paths[at][1] > level for at in queues]
            inside[:] = amounts[np.array(rows, np.bool_)].sum(axis=0).tolist()

    def allows(self, at: int, amount: Sequence[float], displaced: Sequence[float]) -> bool:
        """Return whether a victim of the queue at that position may go.

        `displaced`: what its queue loses besides when the victim returns.
        """
        columns = self._scarcest([column for column in self.requested if amount[column] > 0])
        if at not in self.paths or not columns:
            return False
        path, level = self.paths[at]
        lost = [-own for own in amount]
        # What the victim displaces can reclaim only if its side deserves what it has now, or has
        # no larger share than the preemptor's side.
        before, after = self._of_preemptor(level, columns)
        if self.share(path[level], (), columns) <= max(1.0, after) * (1 + EXACT):
            lost = [own - other for own, other in zip(lost, displaced, strict=True)]
        side = self.share(path[level], lost, columns)
        if side <= before * (1 + EXACT) or after > max(1.0, side) * (1 + EXACT):
            return False
        return all(self._keeps_guarantee(each, amount) for each in path[level:]) and not any(
            self._falls_short(common, amount, columns) for common in range(level)
        )

    def _keeps_guarantee(self, queue: QueueState, amount: Sequence[float]) -> bool:
        stake = queue.spec.stake
        if stake is None:
            return True
        pairs = zip(self._balance(queue)[0], amount, stake.guarantee.tolist(), strict=True)
        return all(held - gone >= sure for held, gone, sure in pairs if gone > 0)

    def _falls_short(self, level: int, amount: Sequence[float], columns: Sequence[int]) -> bool:
        """Return whether a common ancestor shrinks below what it deserves."""
        queue, freed = self._own[level], self._freed[level]
        held, deserved = self._balance(queue)
        return any(
            self._amount[c] < freed[c] + amount[c]
            and held[c] + self._amount[c] - freed[c] - amount[c] < deserved[c] * (1 - EXACT)
            for c in columns
        )

    def take(self, at: int, amount: Sequence[float]) -> None:
        """Count the amount as gone from the queue at that position, and from those above it."""
        path, level = self.paths[at]
        for each in path[level:]:
            left = self._balance(each)[0]
            left[:] = [had - gone for had, gone in zip(left, amount, strict=True)]
        for common in range(level):
            freed = zip(self._freed[common], amount, strict=True)
            self._freed[common] = [before + gone for before, gone in freed]


def _share(allocated: FloatArray, due: FloatArray) -> float:
    pairs = zip(_listed(allocated), _listed(due), strict=True)
    # It holds what it is not due at all: last of all.
    return max((h / d if d > 0 else UNLIMITED for h, d in pairs if h > 0), default=0.0)


def _listed(amounts: FloatArray) -> list[float]:
    """Return (R,) amounts, slots for pods left out."""
    # Asked with every gang: for so few numbers a loop costs less than calls about arrays.
    found: list[float] = amounts[PODS + 1 :].tolist()
    return found


def _above(
    gang: GangState, queue: QueueState, amount: FloatArray, ceiling: FloatArray
) -> Refusal | None:
    """Return why the gang must not take (R,) this amount of what the queue may hold."""
    limited = (ceiling < UNLIMITED) & (amount > 0)
    if not limited.any():
        return None
    name, capability = queue.spec.name, queue.spec.capability
    alone, together = gang.allocated + amount, queue.allocated + amount
    if (alone > ceiling)[limited].any():
        own = (
            "than the capability of" if (alone > capability)[limited].any() else "than is lent to"
        )
        text = f'the gang asks for more {own} queue "{name}"'
        return Refusal(Reason.EXCEEDS_QUEUE_CAPABILITY, text)
    if (together > ceiling)[limited].any():
        text = f'queue "{name}" would exceed its capability'
        if not (together > capability)[limited].any():
            text = f'queue "{name}" would borrow more than its borrowingLimit'
        return Refusal(Reason.QUEUE_OVERUSED, text)
    return None


@dataclass(frozen=True, slots=True)
class Share:
    """One queue. Amounts by resource, those of 0 left out; pod slots are not shared."""

    allocated: Mapping[str, int]
    deserved: Mapping[str, int]
    request: Mapping[str, int] = field(default_factory=dict)
    """What its gangs hold and want."""
    pending: int = 0
    """Gangs that wait."""
    running: int = 0
    """Gangs that have all they need."""
    unknown: int = 0
    """Gangs that were whole and are not any more."""


def shares(snapshot: Snapshot, decisions: Iterable[Decision]) -> Mapping[str, Share]:
    """Return the share of each queue once what was decided is done, with what is below it."""
    known = {d.gang: d for d in decisions}
    queues = dict(snapshot.queues)
    allocated = held(snapshot, known.values())
    counts = {name: Counter[str]() for name in queues}
    for gang in snapshot.gangs:
        if gang.queue not in counts:
            continue
        decision = known.get(gang.key)
        given = () if decision is None else decision.placements
        if decision is not None and not given and not _counts(decision.verdict):
            idle = sum((p.coming for p in gang.pod_sets), np.zeros(len(snapshot.resources)))
            queue = queues[gang.queue]
            queues[gang.queue] = replace(queue, request=queue.request - idle)
        counts[gang.queue][_phase(gang, len(given))] += 1
    names = snapshot.resources
    tree = Tree(snapshot.queues, snapshot.divisions, snapshot.nodes.shared)
    dues = tree.dues(queues)
    parts: dict[Queue, list[str]] = {}
    for name in queues:
        for each in snapshot.lineage(name):
            parts.setdefault(each, []).append(name)
    # A division and a part of it may have one name: what is said is the division's.
    return {
        queue.name: Share(
            _named(names, np.sum([allocated[name] for name in parts[queue]], axis=0)),
            _named(names, dues[tree.place[queue]]),
            _named(names, np.sum([queues[name].request for name in parts[queue]], axis=0)),
            **sum((counts[name] for name in parts[queue]), Counter[str]()),
        )
        for queue in sorted(parts, key=lambda queue: len(parts[queue]))
    }


def _counts(verdict: Verdict) -> bool:
    """Return whether the demand of a gang that waits so counts, as `Standing` has it."""
    limited = any(name.startswith("resourcequota/") for name in verdict.blocked_by)
    return verdict.reason.wants_room and not limited


def _phase(gang: Gang, given: int) -> str:
    if gang.ready + given >= gang.min_member:
        return "running"
    return "unknown" if gang.admitted else "pending"


def _named(names: Sequence[str], amounts: FloatArray) -> Mapping[str, int]:
    found = {name: int(amount) for name, amount in zip(names, amounts.tolist(), strict=True)}
    return {name: amount for name, amount in found.items() if amount and name != names[PODS]}
