# SPDX-License-Identifier: Apache-2.0
"""What a plugin may answer (a row per field of `Hooks`), and how `Rules` combines the answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np

from muster.scheduler.ask import Ask
from muster.scheduler.capacity import Scorer
from muster.scheduler.domains import Slicing
from muster.scheduler.model import (
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    PodSet,
    Refusal,
    Shape,
)
from muster.scheduler.state import GangState, PodSetState, QueueState
from muster.scheduler.victims import Victims

Demand = Sequence[tuple[PodSetState, int]]
"""How many tasks of each pod set."""
Order = tuple[float | tuple[float, ...], ...]
"""Sort key, smaller first."""
Freed = Mapping[str, FloatArray]
"""(R,) what comes free, by the queue that held it."""
Barred = tuple[CodeArray, tuple[str, ...]]
"""(N,) 0 where a node suits, else 1 + the position of the reason in the texts."""


@dataclass(frozen=True, eq=False)
class Claim:
    """Who wants room, and what might have to go for that."""

    gang: GangState
    victims: Victims
    units: IntArray
    """(M,): positions in `victims`, in the order in which they would go."""
    together: bool
    """Each goes after those before it that may go; else each is looked at alone."""

    @cached_property
    def amounts(self) -> FloatArray:
        """(M, R): what goes with each; with the end of a gang, all that is left of it by then."""
        victims, units = self.victims, self.units
        amounts = victims.amount[units]
        # An end without tasks of its own, where each is a unit, frees what its gang has left.
        ends = np.flatnonzero(victims.whole[units] & (victims.count[units] == 0))
        if len(ends):
            gangs = victims.gang[units]
            left = victims.held[gangs]
            left = left - victims.before(gangs, amounts) if self.together else left
            amounts[ends] = left[ends]
        return amounts


Answers = IntArray
"""(M,) of a claim: YES, NO (not as far as this plugin goes) or VETO."""
YES, NO, VETO = 1, 0, -1


Within = Mapping[int, BoolArray]
"""Shape -> (N,) where its tasks may go for an attempt; those left out may go everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The questions a plugin answers; None: it has no opinion."""

    head_order: Callable[[GangState], float] | None = None
    """Order of the heads of queues, before all that is known of their queues. Smaller first."""
    usage_order: Callable[[QueueState], float] | None = None
    """Order by usage of queues with one parent. If any plugin answers, shares order no minimum."""
    queue_order: Callable[[QueueState], float] | None = None
    """Order of queues with one parent, smaller first. May depend on nothing that changes but the
    queue and what is below it."""
    job_order: Callable[[GangState], float] | None = None
    """Smaller first. May depend on nothing that changes but the gang itself."""
    task_order: Callable[[PodSet], float] | None = None
    """Smaller first."""
    valid: Callable[[GangState], Refusal | None] | None = None
    """Why the gang could not be whole even if there were room for all of it."""
    admissible: Callable[[GangState, FloatArray], Refusal | None] | None = None
    """Why the gang must not take (R,) this amount now, whatever is free."""
    affordable: Callable[[GangState, Demand], Refusal | None] | None = None
    """Why so many more tasks of each pod set must not have pods now."""
    ready: Callable[[GangState], bool] | None = None
    """Whether it may start with what it has."""
    pipelined: Callable[[GangState], bool] | None = None
    """Whether it may start once the pods that are ending have gone."""
    overused: Callable[[QueueState], bool] | None = None
    """Whether the queue holds its due already."""
    within: Callable[[GangState, FloatArray, Freed], bool] | None = None
    """Whether its queue and those above stay within their due with (R,) more and so much freed."""
    reach: Callable[[GangState, FloatArray], Iterable[BoolArray]] | None = None
    """From which of `Victims.queues` to reclaim (R,): the first to try, then each time more."""
    preemptable: Callable[[Claim], Answers] | None = None
    """Which units may be evicted for a gang of their own queue."""
    reclaimable: Callable[[Claim], Answers] | None = None
    """Which units may be evicted for a gang of another queue."""
    feasible: Callable[[Shape], Barred] | None = None
    """Which nodes suit the shape."""
    score: Callable[[Shape], Scorer | None] | None = None
    """How well nodes suit the shape, weighted."""
    regions: Callable[[Ask], Iterable[Sequence[Within]] | None] | None = None
    """Where to try the gang, best first, each by one or several regions; None: no opinion.
    What comes later may be asked for when what came first was tried, to no avail."""
    numbering: Callable[[GangState, PodSet], Sequence[IntArray] | None] | None = None
    """Domains, (N,) by level from the widest, that number the members; None: as placed."""
    slices: Callable[[GangState], Sequence[Slicing] | None] | None = None
    """Which of its roles are to lie in slices; None: none."""
    cramped: Callable[[GangState], Refusal | None] | None = None
    """What to say of a gang that did not fit into any region, where it must lie in one."""


class Rules:
    """The answers of all plugins as one, asked tier by tier."""

    def __init__(self, tiers: Sequence[Sequence[Hooks]]) -> None:
        self._asked: Mapping[str, tuple[Callable[..., Any], ...]] = {
            field.name: tuple(
                answer
                for tier in tiers
                for hooks in tier
                if (answer := getattr(hooks, field.name)) is not None
            )
            for field in fields(Hooks)
        }
        self._tiers = tiers
        # Sort keys: the first difference decides.
        self.head_order: Callable[[GangState], Order] = self._order("head_order")
        self.usage_order: Callable[[QueueState], Order] = self._order("usage_order")
        self.queue_order: Callable[[QueueState], Order] = self._order("queue_order")
        self.job_order: Callable[[GangState], Order] = self._order("job_order")
        self.task_order: Callable[[PodSet], Order] = self._order("task_order")
        # The first refusal counts.
        self.valid: Callable[[GangState], Refusal | None] = self._first("valid")
        self.cramped: Callable[[GangState], Refusal | None] = self._first("cramped")
        self.numbering: Callable[[GangState, PodSet], Sequence[IntArray] | None]
        self.numbering = self._first("numbering")
        self.slices: Callable[[GangState], Sequence[Slicing] | None] = self._first("slices")
        self.admissible: Callable[[GangState, FloatArray], Refusal | None]
        self.admissible = self._first("admissible")
        self.affordable: Callable[[GangState, Demand], Refusal | None]
        self.affordable = self._first("affordable")
        # Not combined: each plugin widens step by step, and the steps of two need not match.
        self.reach: Callable[[GangState, FloatArray], Iterable[BoolArray]]
        self.reach = next(iter(self._asked["reach"]), lambda *_: ())
        # All must agree; that a queue holds its due one alone may say.
        self.ready: Callable[[GangState], bool] = self._each("ready", all)
        self.pipelined: Callable[[GangState], bool] = self._each("pipelined", all)
        self.within: Callable[[GangState, FloatArray, Freed], bool] = self._each("within", all)
        self.overused: Callable[[QueueState], bool] = self._each("overused", any)

    def _order(self, name: str) -> Callable[..., Order]:
        asked = self._asked[name]
        # A list within: tuples of lists are faster, and this runs at each comparison of gangs.
        return lambda subject: tuple([answer(subject) for answer in asked])

    def _first(self, name: str) -> Callable[..., Any]:
        asked = self._asked[name]

        def first(*subjects: object) -> object:
            answers = (answer(*subjects) for answer in asked)
            return next((found for found in answers if found is not None), None)

        return first

    def _each(self, name: str, agree: Callable[[Iterable[bool]], bool]) -> Callable[..., bool]:
        asked = self._asked[name]
        return lambda *subjects: agree(answer(*subjects) for answer in asked)

    def asks(self, name: str) -> bool:
        """Return whether any plugin answers this hook."""
        return bool(self._asked[name])

    def evictable(
        self,
        name: str,
        gang: GangState,
        victims: Victims,
        units: IntArray,
        among: BoolArray | None = None,
    ) -> IntArray:
        """Return those of the units that may go together, in their order.

        `name`: preemptable or reclaimable. Of a tier those count to which all plugins that answer
        say yes; the first tier that has any decides. A veto of any tier holds. `among`: (U,) what
        might go, of which these are some; any of them has a say in which tier decides.
        """
        # Twice, as answers depend on the units before: first each unit alone, then the feasible
        # units in order. A unit that a plugin forbids thus does not count as gone.
        alone = self._said(name, Claim(gang, victims, units, together=False))
        if not alone:
            return units[:0]
        # Which tier decides must not depend on how many units were offered: a shorter list of the
        # same candidates could otherwise fall through to a later tier.
        first, going = _decided(alone)
        if first and among is not None and np.count_nonzero(among) > len(units):
            whole = Claim(gang, victims, np.flatnonzero(among), together=False)
            first, _ = _decided(self._said(name, whole))
            going = _allowed(alone, first)
        units = units[going]
        left = Claim(gang, victims, units, together=True)
        return units[_decided(self._said(name, left))[1]]

    def lawful(self, name: str, gang: GangState, victims: Victims, units: IntArray) -> IntArray:
        """Return those of the units that no plugin forbids to take together, in their order."""
        for together in (False, True):
            allowed = np.ones(len(units), np.bool_)
            for said in self._said(name, Claim(gang, victims, units, together)):
                allowed &= (said != VETO).all(axis=0)
            units = units[allowed]
        return units

    def _said(self, name: str, claim: Claim) -> Sequence[CodeArray]:
        """Return (plugins, M) what they say, of each tier in which any answers the hook."""
        tiers = ([ask for hooks in tier if (ask := getattr(hooks, name))] for tier in self._tiers)
        return [np.stack([ask(claim) for ask in asked]) for asked in tiers if asked]

    def barrier(self, gang: GangState, demand: Demand) -> Refusal | None:
        """Return why so many of these tasks must not be placed, whatever is free."""
        refusal = None
        # Most policies and clusters limit nothing, so that nobody need add up.
        if self.asks("admissible"):
            zero = np.zeros(len(gang.allocated))
            amount = sum((tasks.amount(count) for tasks, count in demand), zero)
            refusal = self.admissible(gang, amount)
        return refusal or self.affordable(gang, demand)

    def feasible(self, shape: Shape) -> Barred:
        """Return where the shape may go at all; the first plugin's reason counts."""
        codes = np.zeros(len(shape.barred), np.int16)
        texts: tuple[str, ...] = ()
        for answer in self._asked["feasible"]:
            more, names = answer(shape)
            codes = np.where((codes == 0) & (more > 0), more + len(texts), codes)
            texts += names
        return codes, texts

    def score(self, shape: Shape) -> Scorer:
        """Return the sum of all weighted scores."""
        answers = (answer(shape) for answer in self._asked["score"])
        scorers: list[Scorer] = [scorer for scorer in answers if scorer is not None]
        return lambda stack: sum((s(stack) for s in scorers), np.zeros(len(stack.nodes)))

    def regions(self, ask: Ask) -> Iterator[Within]:
        """Yield where to try the gang, best first.

        What leaves no node to roles that the gang needs for its minimum is left out.
        """
        answers = (answer(ask) for answer in self._asked["regions"])
        lists = [regions for regions in answers if regions is not None]
        if not lists:
            yield {}
            return
        # Of one plugin alone nothing is worked out before it is asked for.
        several = itertools.product(*lists) if len(lists) != 1 else ((r,) for r in lists[0])
        for chosen in several:
            within: dict[int, BoolArray] = {}
            for each in itertools.chain(*chosen):
                for shape, nodes in each.items():
                    within[shape] = within.get(shape, nodes) & nodes
            none = {shape for shape, nodes in within.items() if not nodes.any()}
            without = [tasks for tasks in ask.gang.tasks if tasks.pod_set.shape in none]
            if not without or ask.gang.minimum_of(without) <= 0:
                yield within


def _allowed(answers: Sequence[CodeArray], tier: int) -> BoolArray:
    """Return (M,) what that tier lets go, and nobody forbids."""
    vetoed = np.logical_or.reduce([(answer == VETO).any(axis=0) for answer in answers])
    allowed: BoolArray = (answers[tier] == YES).all(axis=0) & ~vetoed
    return allowed


def _decided(answers: Sequence[CodeArray]) -> tuple[int, BoolArray]:
    """Return the first tier that lets anything go, the last if none does, and (M,) what."""
    for tier in range(len(answers)):
        allowed = _allowed(answers, tier)
        if allowed.any():
            break
    return tier, allowed


Arguments = Mapping[str, Callable[[str], Any]]
"""Name -> parser, which raises ValueError with what to write. A name that ends in a dot stands
for all that begin with it."""
Parsed = Mapping[str, Any]
"""Argument name -> value; those left out are absent."""
_TRUE: Final = frozenset({"1", "t", "true"})
_FALSE: Final = frozenset({"0", "f", "false"})


def weight(text: str) -> float:
    """Return a number that is not negative."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f'"{text}" is no weight; write a number, 0 or more')
    return number


def switch(text: str) -> bool:
    """Return a truth value."""
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f'"{text}" is neither true nor false')
