# SPDX-License-Identifier: Apache-2.0
"""proportion: every queue gets its due of each resource, by weight, up to what it asks for.

Among the parts of a division, as among the queues of the cluster, each is due min(cap, L * weight)
per resource, where cap is what it asks for within its limits, and L the level at which the sum of
all is min(total, sum of cap). `division` has the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler import diagnosis
from muster.scheduler.decision import Decision, Verdict
from muster.scheduler.division import Tree, placed
from muster.scheduler.hooks import VETO, YES, Answers, Claim, Freed, Hooks, Parsed
from muster.scheduler.model import (
    PODS,
    UNLIMITED,
    BoolArray,
    FloatArray,
    Gang,
    IntArray,
    Queue,
    Refusal,
    Snapshot,
)
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, QueueState

EXACT: Final = 1e-9
"""Relative error that dividing by weights may make."""


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
        # A lending limit of one queue bounds all others: what it keeps unused is no room for them.
        self._lends = any((q.stake.lending < UNLIMITED).any() for q in every if q.stake)
        bounded = {queue.name for queue in every if _is_bounded(queue)}
        # What bounds a division bounds all that is below it.
        all_ = self._lends or not bounded.isdisjoint(snapshot.divisions)
        self.bounded: Final[Collection[str]] = snapshot.queues if all_ else bounded
        """The queues that may not have just anything."""

    @cached_property
    def _tree(self) -> Tree:
        snapshot = self._session.snapshot
        return Tree(snapshot.queues, snapshot.divisions, snapshot.nodes.shared)

    @cached_property
    def _asking(self) -> Mapping[str, Queue]:
        return _asking(self._session)

    @cached_property
    def _dues(self) -> FloatArray:
        return self._tree.dues(self._asking)

    def due(self, queue: QueueState) -> FloatArray:
        """Return (R,) what the queue is due."""
        due: FloatArray = self._dues[self._tree.place[queue.spec]]
        return due

    def rank(self, queue: QueueState) -> tuple[float, ...]:
        """Return what part of its due is held, from the top of the tree down to the queue."""
        return tuple([_share(each.allocated, self.due(each)) for each in queue.lineage[::-1]])

    def overused(self, queue: QueueState) -> bool:
        """Say whether it holds its due of all that it lacks."""
        # Only of what it still lacks: a queue that has all its cpu is not held back by that while
        # it waits for devices.
        request = _listed(self._asking[queue.spec.name].request)
        held, due = _listed(queue.allocated), _listed(self.due(queue))
        lacking = [(h, d) for r, h, d in zip(request, held, due, strict=True) if r > h]
        # In every resource, as kube-batch's overused: one alone may well be short.
        return any(h for h, _ in lacking) and all(h >= d for h, d in lacking)

    def within(self, gang: GangState, amount: FloatArray, freed: Freed) -> bool:
        """Say whether what grows by that stays within its due, the queue and all above it."""
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

    def reach(self, gang: GangState, amount: FloatArray) -> Iterator[BoolArray]:
        """Yield (V,) from which queues it may be, of those that have victims, the nearest first.

        As far up the tree as its parents hold less than they are due.
        """
        if gang.queue is None:
            return
        if not self._stays(gang.queue, amount, {}):
            return
        common, there = self._ways_to(gang.queue)
        levels = len(gang.queue.lineage)
        # First from siblings: within one division its due stays what it is, whoever of its parts
        # holds it.
        yield there & (common >= levels - 1)
        wanted = np.flatnonzero(amount > 0)
        wanted = wanted[wanted != PODS]
        for level, division in enumerate(gang.queue.above, 2):
            if not (division.allocated < self.due(division))[wanted].any():
                return
            yield there & (common >= levels - level)

    def _ways_to(self, queue: QueueState) -> tuple[IntArray, BoolArray]:
        """Return of the V queues that have victims what each has in common with this one.

        (V,) how many levels from the top; (V,) whether it is another, and lets go from there on.
        """

        def ways() -> tuple[IntArray, BoolArray]:
            paths, reclaimable = self._paths
            own = [self._tree.place[each.spec] for each in queue.lineage[::-1]]
            depth = min(len(own), paths.shape[1])
            # A product along the row stays 1 until the first difference.
            common: IntArray = (paths[:, :depth] == own[:depth]).cumprod(axis=1).sum(axis=1)
            return common, (common < len(own)) & reclaimable[np.arange(len(paths)), common]

        return self._session.remember(("ways to", queue.spec.name), ways)

    @cached_property
    def _paths(self) -> tuple[IntArray, BoolArray]:
        """The ways down to the V queues that have victims.

        (V, L) rows of the tree, from the top; (V, L + 1) whether all is reclaimable from there on.
        """
        names = self._session.victims.queues
        queues = [self._session.queues.get(name) for name in names]
        ways = [() if queue is None else queue.lineage[::-1] for queue in queues]
        depth = max(map(len, ways), default=0)
        paths = np.full((len(names), depth), -1, np.int64)
        reclaimable = np.zeros((len(names), depth + 1), np.bool_)
        for i, way in enumerate(ways):
            paths[i, : len(way)] = [self._tree.place[each.spec] for each in way]
            for level in range(len(way) - 1, -1, -1):
                below = level + 1 == len(way) or reclaimable[i, level + 1]
                reclaimable[i, level] = below and way[level].spec.reclaimable
        return paths, reclaimable

    def admissible(self, gang: GangState, amount: FloatArray) -> Refusal | None:
        """Return which limit the gang would break, of its queue or of one above that."""
        if gang.queue is None or gang.spec.queue not in self.bounded:
            return None
        for queue in gang.queue.lineage:
            ceiling = self._tree.ceilings[self._tree.place[queue.spec]]
            if (refusal := _above(gang, queue, amount, ceiling)) is not None:
                return refusal
        return self._not_lent(gang.queue, amount) if self._lends else None

    def _not_lent(self, queue: QueueState, amount: FloatArray) -> Refusal | None:
        """Return which other queue lends no more of what it does not use."""
        tree, lineage = self._tree, queue.lineage
        held = np.zeros_like(tree.kept)
        for other in self._session.queues.values():
            for each in other.lineage:
                held[tree.place[each.spec]] = each.allocated
        # Compared with what it would be after: a queue over a limit already is no reason to refuse
        # who does not make it worse.
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
        """Let go what leaves all that hold it their due, as far as the claimant is no part."""
        columns = np.flatnonzero(claim.gang.lacking() > 0)
        columns = columns[columns != PODS]
        victims, queues = claim.victims, claim.victims.queue[claim.units].astype(np.int64)
        known: dict[QueueState, list[float]] = {}

        def above_due(queue: QueueState, sign: int) -> list[float]:
            # One list for all that look: what goes is gone for each of them.
            if queue not in known:
                left = queue.allocated[columns] - self.due(queue)[columns] * (1 - EXACT)
                known[queue] = (sign * left).tolist()
            return known[queue]

        paths: dict[int, Path] = {}
        for i in np.unique(queues).tolist():
            losing, growing = self._parted(victims.queues[i], claim.gang.queue)
            paths[i] = [above_due(q, 1) for q in losing], [above_due(q, -1) for q in growing]
        return _over(claim, [paths[i] for i in queues.tolist()], columns)

    def _parted(
        self, name: str, claimant: QueueState | None
    ) -> tuple[Sequence[QueueState], Sequence[QueueState]]:
        """Return what only loses with that queue, and what above the claimant only gains."""
        queue = self._session.queues.get(name)
        if queue is None or claimant is None:
            return (), ()
        theirs, own = queue.lineage, claimant.lineage
        losing = [each for each in theirs if each not in own]
        return losing, [each for each in claimant.above if each not in theirs]


def _is_bounded(queue: Queue) -> bool:
    borrows = UNLIMITED if queue.stake is None else queue.stake.borrowing
    return bool((np.minimum(queue.capability, borrows) < UNLIMITED).any())


Path = tuple[Sequence[list[float]], Sequence[list[float]]]
"""By resource what each on the way down to a victim holds above its due, and what each on the way
down to the claimant lacks of its own; both as far as the ways are not the same."""


def _over(claim: Claim, paths: Sequence[Path], columns: IntArray) -> Answers:
    """Let go what leaves its queue no less than its due of something that the claimant lacks.

    In all resources at once that cannot be asked for: what one is short of keeps a queue from
    its due of the others. What goes needs that resource too, so it cannot claim it back.
    """
    amounts = claim.amounts[:, columns].tolist()
    answers = np.full(len(paths), VETO)
    for i, ((losing, growing), amount) in enumerate(zip(paths, amounts, strict=True)):
        if losing and any(
            take and all(s[at] >= take for s in losing) and all(lack[at] > 0 for lack in growing)
            for at, take in enumerate(amount)
        ):
            answers[i] = YES
            for left in (*losing, *growing) if claim.together else ():
                left[:] = [have - take for have, take in zip(left, amount, strict=True)]
    return answers


def _asking(session: Session) -> Mapping[str, Queue]:
    """Return the queues by name as they ask for what could start: the rest parks no share."""
    queues = dict(session.snapshot.queues)
    # A queue alone shares with nobody.
    if sum(bool(queue.request.any()) for queue in queues.values()) > 1:
        for gang in session.gangs:
            idle = diagnosis.idle_demand(session, gang) if gang.queue is not None else None
            if idle is not None and idle.any():
                queue = queues[gang.spec.queue]
                queues[queue.name] = _less(queue, idle)
    return queues


def _less(queue: Queue, idle: FloatArray) -> Queue:
    return replace(queue, request=queue.request - idle)


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
    allocated = {name: queue.allocated.copy() for name, queue in queues.items()}
    counts = {name: Counter[str]() for name in queues}
    for gang in snapshot.gangs:
        if gang.queue not in counts:
            continue
        decision = known.get(gang.key)
        given = () if decision is None else decision.placements
        if given:
            allocated[gang.queue] += placed(snapshot, gang, given)
        elif decision is not None and not _counts(decision.verdict):
            idle = sum((p.coming for p in gang.pod_sets), np.zeros(len(snapshot.resources)))
            queues[gang.queue] = _less(queues[gang.queue], idle)
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
            _named(names, _sum(allocated[name] for name in parts[queue])),
            _named(names, dues[tree.place[queue]]),
            _named(names, _sum(queues[name].request for name in parts[queue])),
            **sum((counts[name] for name in parts[queue]), Counter[str]()),
        )
        for queue in sorted(parts, key=lambda queue: len(parts[queue]))
    }


def _sum(amounts: Iterable[FloatArray]) -> FloatArray:
    total: FloatArray = np.sum([*amounts], axis=0)
    return total


def _counts(verdict: Verdict) -> bool:
    """Say whether the demand of a gang that waits so counts, as `_asking` has it."""
    limited = any(name.startswith("resourcequota/") for name in verdict.blocked_by)
    return verdict.reason.wants_room and not limited


def _phase(gang: Gang, given: int) -> str:
    if gang.ready + given >= gang.min_member:
        return "running"
    return "unknown" if gang.admitted else "pending"


def _named(names: Sequence[str], amounts: FloatArray) -> Mapping[str, int]:
    found = {name: int(amount) for name, amount in zip(names, amounts.tolist(), strict=True)}
    return {name: amount for name, amount in found.items() if amount and name != names[PODS]}
