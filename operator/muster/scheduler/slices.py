# SPDX-License-Identifier: Apache-2.0
"""Slices: so many consecutive ranks of a gang that lie in one domain, each slice in any.

The ranks of a party are those of its roles in their order. The last slice may be a short one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from muster.scheduler.ask import Ask
from muster.scheduler.budget import ATTEMPT, RANK, SPLIT
from muster.scheduler.capacity import Picks
from muster.scheduler.domains import Slicing
from muster.scheduler.hooks import Demand
from muster.scheduler.levels import members
from muster.scheduler.model import BoolArray, IntArray
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, PodSetState


def place(session: Session, ask: Ask, slicing: Slicing) -> bool:
    """Place what the gang lacks of these roles, slice by slice. Return whether that could be done.

    Once a slice is only promised its nodes, so are all that follow: the order of the tasks is that
    of the ranks, for both together.
    """
    gang, soon, last = ask.gang, False, -1
    held = _held(session, gang, slicing)
    for at, (number, wants) in enumerate(_slices(gang, slicing)):
        if at and session.budget.exhausted():
            return False
        session.budget.spend(SPLIT)
        options = _domains(session, ask, slicing, wants, held.get(number), last, soon=soon)
        done = _put(session, ask, slicing, wants, options, soon=soon)
        # Slices that fit now stay placed; from the first that does not on all are promised.
        if done < 0 and session.counts_ending(ask) and not soon:
            soon = True
            options = _domains(session, ask, slicing, wants, held.get(number), last, soon=True)
            done = _put(session, ask, slicing, wants, options, soon=True)
        if done < 0:
            return False
        last = done
    return True


def elsewhere(session: Session, ask: Ask, tasks: PodSetState) -> BoolArray | None:
    """Return (N,) where the next of the tasks must not go; None: no slices forbid it anything."""
    gang, slicing = ask.gang, of(session, ask.gang, tasks)
    if slicing is None or not tasks.left:
        return None
    session.budget.spend(ATTEMPT + RANK * (gang.spec.ready + gang.spec.missing))
    number = slicing.number(tasks.pod_set.role, tasks.waiting[tasks.taken])
    domains = _held(session, gang, slicing).get(number)
    if domains is None:
        mates = [
            (t, _count(slicing, t, number)) for t in gang.tasks if t.pod_set in slicing.pod_sets
        ]
        wants = [(t, count) for t, count in mates if count]
        domains = frozenset(_domains(session, ask, slicing, wants, None, -1, soon=False))
    return ~np.isin(slicing.level.domain, list(domains))


def of(session: Session, gang: GangState, tasks: PodSetState) -> Slicing | None:
    """Return the slicing that the tasks are part of, if any."""
    found = session.rules.slices(gang) or ()
    return next((one for one in found if tasks.pod_set in one.pod_sets), None)


def usable(slicing: Slicing, capacity: IntArray) -> IntArray:
    """Return (N,) how many ranks whole slices have room for, told on one node of each domain."""
    sums = slicing.level.sums(capacity).astype(np.int64)
    # The sum stands on one node of its domain, so that it adds up as capacities of nodes do.
    found, first = np.unique(slicing.level.domain, return_index=True)
    room = np.zeros_like(capacity)
    room[first[found >= 0]] = (sums // slicing.length * slicing.length)[found[found >= 0]]
    return room


def _count(slicing: Slicing, tasks: PodSetState, number: int) -> int:
    left = tasks.waiting[tasks.taken :]
    return sum(slicing.number(tasks.pod_set.role, index) == number for index in left)


def _slices(gang: GangState, slicing: Slicing) -> Iterator[tuple[int, Demand]]:
    """Yield the number of each slice of which the gang lacks members, and how many of which."""
    ranked = [
        (slicing.number(tasks.pod_set.role, index), at)
        for at, (tasks, count) in enumerate(gang.demand())
        if tasks.pod_set in slicing.pod_sets
        for index in tasks.waiting[tasks.taken : tasks.taken + count]
    ]
    for number, rows in groupby(sorted(ranked), lambda one: one[0]):
        parts = groupby(rows, lambda one: one[1])
        yield number, [(gang.tasks[at], len(list(each))) for at, each in parts]


def _held(session: Session, gang: GangState, slicing: Slicing) -> Mapping[int, Collection[int]]:
    """Return slice -> domains of its members that have nodes."""
    found = defaultdict[int, set[int]](set)
    for pod_set, index, node in members(session, gang):
        if pod_set in slicing.pod_sets:
            domain = int(slicing.level.domain[node])
            found[slicing.number(pod_set.role, index)].add(domain)
    return found


def _domains(
    session: Session,
    ask: Ask,
    slicing: Slicing,
    wants: Demand,
    fixed: Collection[int] | None,
    last: int,
    *,
    soon: bool,
) -> Sequence[int]:
    """Return the domains that may have room for a slice: near the last one, the tightest first."""
    room = np.full(slicing.level.size, np.iinfo(np.int64).max)
    for tasks, count in wants:
        within = ask.within.get(tasks.pod_set.shape, True)
        capacity = session.fit(ask, tasks, future=soon).capacity * within
        sums = slicing.level.sums(capacity).astype(np.int64)
        room = np.minimum(room, np.where(sums >= count, sums, 0))
    possible = np.flatnonzero(room).tolist()
    if fixed is not None:
        possible = [domain for domain in possible if domain in fixed]

    def key(domain: int) -> tuple[object, ...]:
        near = [last >= 0 and wide[domain] == wide[last] for wide in slicing.around]
        return (*(not one for one in near), domain != last, int(room[domain]), domain)

    return sorted(possible, key=key)


def _put(
    session: Session,
    ask: Ask,
    slicing: Slicing,
    wants: Demand,
    options: Sequence[int],
    *,
    soon: bool,
) -> int:
    """Place a slice in the first of these domains that has room; return which, -1 if none has."""
    ahead = session.counts_ending(ask)
    if ask.tight:
        wants = sorted(wants, key=lambda want: -max(session.shares(want[0])))
    for at, domain in enumerate(options):
        if at and session.budget.exhausted():
            break
        session.budget.spend(ATTEMPT if at else 0)
        mark, inside, done = session.mark(), slicing.level.domain == domain, True
        for tasks, count in wants:
            here = ask.inside({tasks.pod_set.shape: inside})
            picks = session.pick(here, tasks, count, future=soon, ahead=ahead)
            done = len(picks.order) == count
            if not done:
                break
            # The ranks of one node follow each other.
            picks = Picks(sorted(picks.order), picks.nodes, picks.counts)
            (session.promise if soon else session.place)(ask.gang, tasks, picks)
        if done:
            return domain
        session.undo(mark)
    return -1
