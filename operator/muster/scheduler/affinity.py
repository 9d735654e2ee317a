# SPDX-License-Identifier: Apache-2.0
"""What others on the nodes mean for the next task: pods near and far, and volumes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from muster.scheduler.model import (
    ENDLESS,
    AffinityTerm,
    BoolArray,
    CodeArray,
    Driver,
    FloatArray,
    IntArray,
    Link,
    Want,
)

NOT_SERVED: Final = "node(s) didn't find available persistent volumes to bind"

OPTIONS: Final = 4
"""Volumes that cost as much as one term about other pods."""


class Stock:
    """The volumes that claims want and get."""

    def __init__(self, wants: Mapping[int, tuple[Want, ...]]) -> None:
        self.wants: Final = {shape: own for shape, own in wants.items() if own}
        self._given: Final[dict[str, tuple[str, BoolArray]]] = {}
        """Claim -> volume, empty if to be made, and (N,) where others of the claim reach it."""
        self._users: Final[Counter[str]] = Counter()

    def weight(self, shape: int) -> int:
        """Return the number of terms that cost as much as the volumes for one task."""
        return sum(len(want.options) for want in self.wants.get(shape, ())) // OPTIONS

    def open(self, shape: int) -> BoolArray | None:
        """Return (N,) where all that the shape wants can be had; None: it wants nothing."""
        wants = self.wants.get(shape)
        if wants is None:
            return None
        marks = np.ones(len(wants[0].made), np.bool_)
        # Given volumes are gone everywhere; the wants then choose in turn, as in kube-scheduler.
        gone = dict.fromkeys((volume for volume, _ in self._given.values()), marks.copy())
        for want in wants:
            marks &= self._served(want, gone)
        return marks

    def _served(self, want: Want, gone: dict[str, BoolArray]) -> BoolArray:
        """Return (N,) where the want is met; what is used up where is added to `gone`."""
        if want.claim in self._given:
            return self._given[want.claim][1]
        met = np.zeros(len(want.made), np.bool_)
        for volume, reach in want.options:
            if met.all():
                break
            used = gone.get(volume)
            # Each node uses up its first volume; elsewhere that one stays free for the next want.
            here = reach & ~met if used is None else reach & ~met & ~used
            gone[volume] = here if used is None else here | used
            met |= here
        return met | want.made

    def add(self, shape: int, nodes: IntArray, counts: IntArray) -> None:
        """Note that (M,) tasks of the shape came to (M,) nodes; negative counts take back."""
        for want in self.wants.get(shape, ()):
            self._users[want.claim] += int(counts.sum())
            if not self._users[want.claim]:
                self._given.pop(want.claim, None)
            elif want.claim not in self._given:
                taken = {volume for volume, _ in self._given.values()}
                free = ((v, at) for v, at in want.options if v not in taken and at[nodes].all())
                made = want.made
                if want.domain is not None:
                    # The first task has chosen where; others must be able to reach that place.
                    made = made & (want.domain == want.domain[nodes[0]])
                self._given[want.claim] = next(free, ("", made))

    def choices(self, shape: int) -> Iterator[BoolArray]:
        """Yield (N,) where each volume can be had that a claim of the shape may still get."""
        for want in self.wants.get(shape, ()):
            if want.claim not in self._given:
                yield from (reach for _, reach in want.options)
                if want.domain is not None:
                    for domain in np.unique(want.domain[want.made]).tolist():
                        yield want.made & (want.domain == domain)


TOO_MANY: Final = "node(s) exceed max volume count"


class _Ledger:
    """The volumes of one driver."""

    def __init__(self, driver: Driver) -> None:
        self.driver: Final = driver
        self._users: Final = defaultdict[str, Counter[int]](Counter)
        self._going: Final = defaultdict[str, Counter[int]](Counter)
        self._coming: Final = defaultdict[str, Counter[int]](Counter)
        """Of the users those that are only promised."""
        self._held: Final = np.zeros(len(driver.most), np.int64)
        """(N,): the volumes that the node has, or is to have."""
        self._ending: Final = self._held.copy()
        """(N,): those of them that nobody uses who stays."""
        for volume, users in driver.users.items():
            self._users[volume].update(users)
            self._going[volume].update(driver.going.get(volume, {}))
            for node in users:
                self._mark(volume, node, 1)

    def room(self, shape: int, *, future: bool) -> IntArray:
        """Return (N,) how many more tasks of the shape the node takes."""
        volumes, own = self.driver.volumes.get(shape, ()), self.driver.own.get(shape, 0)
        # As in kube-scheduler, a volume on the node is attached once for all its users there.
        lacking = np.full(len(self._held), len(volumes))
        for volume in volumes:
            lacking[self._where(volume, future=future)] -= 1
        left = self.driver.most - self._held - lacking
        if future:
            left += self._ending
        if own:
            room: IntArray = np.maximum(left, 0) // own
            return room
        # What is there already is not asked for again, be there ever so many.
        there = lacking == 0
        for volume in () if future else volumes:
            # What is only to come has its place, and that may be one that is not free yet.
            there[self._to_come(volume)] = False
        free: BoolArray = (left >= 0) | there
        return free * ENDLESS

    def change(self, shape: int, nodes: IntArray, counts: IntArray, *, leaving: bool) -> None:
        """Count (M,) tasks on (M,) nodes, as going where they are `leaving`."""
        # Unlike fancy assignment this adds up where a node stands in several rows.
        own = self.driver.own.get(shape, 0)
        np.add.at(self._ending if leaving else self._held, nodes, counts * own)
        for volume in self.driver.volumes.get(shape, ()):
            changed = self._going[volume] if leaving else self._users[volume]
            for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
                # Out before, in after: its place, and whether all its users go, may both change.
                self._mark(volume, node, -1)
                changed[node] += count
                self._mark(volume, node, 1)

    @property
    def shapes(self) -> frozenset[int]:
        """Those with volumes that count."""
        return frozenset(self.driver.volumes).union(self.driver.own)

    def put_off(self, shape: int, nodes: IntArray, counts: IntArray) -> None:
        """Count (M,) tasks that were counted on (M,) nodes as only promised."""
        for volume in self.driver.volumes.get(shape, ()):
            for node, count in zip(nodes.tolist(), counts.tolist(), strict=True):
                self._coming[volume][node] += count

    def _mark(self, volume: str, node: int, sign: int) -> None:
        users, going = self._users[volume][node], self._going[volume][node]
        if users > 0:
            self._held[node] += sign
            self._ending[node] += sign * (going >= users)

    def _where(self, volume: str, *, future: bool) -> list[int]:
        """Return the nodes that have the volume or are to have it, now or in the end."""
        gone = self._going[volume] if future else Counter[int]()
        return [node for node, count in self._users[volume].items() if count > gone[node]]

    def _to_come(self, volume: str) -> list[int]:
        """Return the nodes that have nobody who uses the volume but who is promised."""
        users = self._users[volume]
        return [node for node, count in self._coming[volume].items() if count >= users[node]]


@dataclass(slots=True, eq=False)
class _Tally:
    """A term and what its domains hold by now."""

    term: AffinityTerm
    counts: IntArray
    """(D,): the term's until the first change."""
    going: IntArray | None
    """(D,): the part of `counts` that is ending, or is to be evicted; None: nothing."""
    coming: IntArray | None
    """(D,): what is promised, and not there yet; None: nothing."""
    domains: IntArray
    """EVEN: those that have a node whose pods count."""
    total: int
    """The sum of `counts` and `coming`."""

    def here(self, counts: IntArray) -> IntArray:
        """Return (N,) which of the (D,) counts is that of each node; 0 without a domain."""
        found: IntArray = np.where(self.term.domain < 0, 0, counts[self.term.domain])
        return found

    def may_hold(self, *, future: bool) -> Sequence[IntArray]:
        """Return (D,) each that the domains may hold, now or in the end, from least to most.

        Now promised pods may not have come and evicted ones may have gone: the least is reliable.
        Unlike ending pods, evicted pods are no neighbors even now: their eviction may be for the
        very gang that would rely on them.
        """
        going, coming = self.going, self.coming
        if future:
            counts = self.counts if going is None else self.counts - going
            return [counts if coming is None else counts + coming]
        found = [self.counts]
        if going is not None and going is not self.term.going:
            evicted = going if self.term.going is None else going - self.term.going
            found.insert(0, self.counts - evicted)
        return found if coming is None else [*found, *(one + coming for one in found)]

    def add(
        self, nodes: IntArray, amounts: IntArray, *, leaving: bool = False, late: bool = False
    ) -> None:
        """Add (M,) amounts to the domains of (M,) nodes, or to what is going or coming there."""
        domain, counted = self.term.domain[nodes], self.term.counted
        real = domain >= 0 if counted is None else (domain >= 0) & counted[nodes]
        to = self.coming if late else self.going if leaving else self.counts
        if to is None:
            to = np.zeros_like(self.counts)
        elif to is self.term.going or to is self.term.counts:
            # Copied late: most terms are of gangs that wait, and are as long as there are domains.
            to = to.copy()
        np.add.at(to, domain[real], amounts[real])
        if leaving:
            self.going = to
            return
        self.coming, self.counts = (to, self.counts) if late else (self.coming, to)
        self.total += int(amounts[real].sum())


class AffinityState:
    """The tallies of all terms of a snapshot, and the volumes.

    `future` asks how it will be once the pods that are ending, or are to be evicted, have gone.
    """

    def __init__(
        self,
        terms: Mapping[int, tuple[AffinityTerm, ...]],
        wants: Mapping[int, tuple[Want, ...]] | None = None,
        drivers: Iterable[Driver] = (),
    ) -> None:
        self.stock: Final = Stock(wants or {})
        self._ledgers: Final[dict[int, list[_Ledger]]] = {}
        for ledger in map(_Ledger, drivers):
            for shape in ledger.shapes:
                self._ledgers.setdefault(shape, []).append(ledger)
        self._tallies: Final[dict[int, tuple[_Tally, ...]]] = {}
        self._counted_by: Final[dict[int, list[tuple[_Tally, int]]]] = {}
        for key, own in terms.items():
            if own:
                tallies = tuple(map(_tally, own))
                self._tallies[key] = tallies
                for tally in tallies:
                    for other, amount in tally.term.adds.items():
                        self._counted_by.setdefault(other, []).append((tally, amount))
        self._counted: Final = {*self._counted_by, *self._ledgers, *self.stock.wants}
        self.changes = 0
        """Grows whenever a term or a volume of any shape may have changed."""

    def add(
        self,
        shape: int,
        nodes: IntArray,
        counts: IntArray,
        *,
        leaving: bool = False,
        promised: bool = False,
    ) -> None:
        """Count (M,) tasks on (M,) nodes, as going if they are `leaving`; negative takes back.

        `promised`: others keep away from them already, and no task can be near them yet.
        """
        if not leaving:
            self.stock.add(shape, nodes, counts)
        for ledger in self._ledgers.get(shape, ()):
            ledger.change(shape, nodes, counts, leaving=leaving)
            if promised:
                ledger.put_off(shape, nodes, counts)
        for tally, amount in self._counted_by.get(shape, ()):
            tally.add(nodes, counts * amount, leaving=leaving, late=promised)
        self.changes += shape in self._counted

    def put_off(self, shape: int, nodes: IntArray, counts: IntArray) -> None:
        """Count (M,) tasks that were added as only promised; negative takes back."""
        for ledger in self._ledgers.get(shape, ()):
            ledger.put_off(shape, nodes, counts)
        for tally, amount in self._counted_by.get(shape, ()):
            tally.add(nodes, -counts * amount)
            tally.add(nodes, counts * amount, late=True)
        self.changes += shape in self._counted

    def weight(self, shape: int) -> int:
        """Return how many terms have to be evaluated for one task of the shape.

        Gangs whose terms select the shape are charged for that before the cycle.
        """
        return 1 + len(self._tallies.get(shape, ())) + self.stock.weight(shape)

    def attached(
        self, shape: int, *, future: bool = False, empty: bool = False
    ) -> IntArray | None:
        """Return (N,) how many more tasks volumes allow; None: all. `empty`: nodes without any."""
        ledgers = self._ledgers.get(shape)
        if ledgers is None:
            return None
        if empty:
            ledgers = [_Ledger(replace(one.driver, users={}, going={})) for one in ledgers]
        least: IntArray = np.minimum.reduce([one.room(shape, future=future) for one in ledgers])
        return least

    def attaching(self, shape: int) -> frozenset[int]:
        """Return the shapes with volumes of the same drivers."""
        return frozenset[int]().union(*(one.shapes for one in self._ledgers.get(shape, ())))

    def rivals(self, shape: int) -> tuple[frozenset[int], frozenset[int]]:
        """Return the shapes that keep this one away where they are, and those it must be near."""
        links = {True: set[int](), False: set(self.attaching(shape))}
        for tally in self._tallies.get(shape, ()):
            if tally.term.link is not Link.FOND:
                links[tally.term.link is Link.NEAR].update(tally.term.adds)
        return frozenset(links[False]), frozenset(links[True])

    def reach(self, shape: int, nodes: IntArray) -> Iterator[tuple[int, BoolArray]]:
        """Yield (other shape, (N,) where such a task might keep the shape from (M,) nodes)."""
        tallies = self._tallies.get(shape, ())
        company = [tally for tally in tallies if tally.term.link is Link.NEAR]
        # The first of its kind may go anywhere: any other that comes before has it come there.
        first = bool(company) and _first(company, future=False)
        for tally in tallies:
            away = tally.term.link in (Link.APART, Link.EVEN)
            if away or (first and tally.term.link is Link.NEAR):
                domains = np.unique(tally.term.domain[nodes])
                near = np.isin(tally.term.domain, domains[domains >= 0])
                for other in tally.term.adds:
                    yield other, near if away else ~near

    def _marks(
        self, shape: int, *, future: bool = False, apart: bool = False
    ) -> Iterator[tuple[str, BoolArray]]:
        """Yield why a node may be barred, and (N,) where it is not.

        `apart`: only what cannot become true by placing more.
        """
        tallies = self._tallies.get(shape, ())
        near = None if apart else _near(tallies, future=future)
        for tally in tallies:
            term = tally.term
            if term.link is Link.NEAR and near is not None:
                # All terms of company are met together, so that the first of them says it.
                yield term.text, near
                near = None
            elif term.link is Link.APART and tally.total > 0:
                yield term.text, tally.here(tally.may_hold(future=future)[-1]) <= 0
            elif term.link is Link.EVEN and not apart:
                # Now it has to be even both with and without pods to be evicted or to come.
                even = [_is_even(tally, counts) for counts in tally.may_hold(future=future)]
                yield term.text, _all(even)
        served = self.stock.open(shape)
        if served is not None:
            yield NOT_SERVED, served
        room = None if apart else self.attached(shape, future=future)
        if room is not None:
            yield TOO_MANY, room > 0

    def open(self, shape: int, *, future: bool = False, apart: bool = False) -> BoolArray | None:
        """Return (N,) where the next task may go; None: everywhere. `apart`: as in `_marks`."""
        marks = [allowed for _, allowed in self._marks(shape, future=future, apart=apart)]
        return _all(marks) if marks else None

    def single(self, shape: int) -> bool:
        """Return whether its tasks keep away only from each other, and only on their node."""
        if shape in self.stock.wants:
            return False
        terms = [tally.term for tally in self._tallies.get(shape, ())]
        own = [term for term in terms if term.adds.get(shape)]
        apart = all(term.link is Link.APART for term in terms)
        return apart and bool(own) and all(map(_is_by_node, own))

    def barred(self, shape: int) -> tuple[CodeArray, tuple[str, ...]] | None:
        """Return (N,) 0 where the next task may go, else 1 + the position of the reason."""
        marks = list(self._marks(shape))
        if not marks:
            return None
        codes = np.zeros(len(marks[0][1]), np.int16)
        for code, (_, allowed) in enumerate(marks, 1):
            codes[(codes == 0) & ~allowed] = code
        return codes, tuple(text for text, _ in marks)

    def fond(self, shape: int, *, future: bool = False) -> FloatArray | None:
        """Return (N,) how well the neighbors suit, 0 - 100; None: no such preference."""
        tallies = [t for t in self._tallies.get(shape, ()) if t.term.link is Link.FOND]
        if not tallies or not tallies[0].term.domain.size:
            return None
        # As kube-scheduler's NormalizeScore of InterPodAffinity; nodes without the label count 0.
        total = np.sum([tally.here(tally.may_hold(future=future)[0]) for tally in tallies], axis=0)
        least, most = total.min(), total.max()
        scale = 100 / (most - least) if most > least else 0.0
        marks: FloatArray = (total - least) * scale
        return marks

    def near(self, shape: int) -> BoolArray | None:
        """Return (N,) where all NEAR terms of the shape hold at present; None: it has none."""
        return _near(self._tallies.get(shape, ()), future=False)

    def loose(self, shape: int, *, future: bool = False) -> tuple[AffinityTerm, ...]:
        """Return the shape's NEAR terms if no pod satisfies any yet: the first one may choose."""
        near = [t for t in self._tallies.get(shape, ()) if t.term.link is Link.NEAR]
        return tuple(tally.term for tally in near) if _is_unmet(near, future=future) else ()


def _tally(term: AffinityTerm) -> _Tally:
    real = term.domain >= 0
    if term.counted is not None:
        real &= term.counted
    domains = np.unique(term.domain[real]) if term.link is Link.EVEN else np.array([], np.int64)
    return _Tally(term, term.counts, term.going, None, domains, int(term.counts.sum()))


def _near(tallies: tuple[_Tally, ...], *, future: bool) -> BoolArray | None:
    """Return (N,) where all NEAR terms hold; None if there are none."""
    near = [tally for tally in tallies if tally.term.link is Link.NEAR]
    if not near:
        return None
    if _first(near, future=future):
        # Even the first must go where it has a domain of each term, else nobody could ever be near
        # it. And where others like it are promised, it goes there, so that they can come.
        if not any(tally.coming is not None and tally.coming.any() for tally in near):
            return _all([tally.term.domain >= 0 for tally in near])
        future = True
    return _all([tally.here(tally.may_hold(future=future)[0]) > 0 for tally in near])


def _is_by_node(term: AffinityTerm) -> bool:
    """Return whether each node is a domain."""
    real = term.domain[term.domain >= 0]
    return len(real) == len(term.domain) and int(np.bincount(real, minlength=1).max()) == 1


def _all(marks: list[BoolArray]) -> BoolArray:
    if len(marks) == 1:
        return marks[0]
    both: BoolArray = np.logical_and.reduce(marks)
    return both


def _first(near: list[_Tally], *, future: bool) -> bool:
    """Return whether a task would be the first of pods that count for each other."""
    # As in kube-scheduler: only if no pod matches any term, and it matches all itself.
    return bool(near[0].term.itself) and _is_unmet(near, future=future)


def _is_unmet(near: list[_Tally], *, future: bool) -> bool:
    """Return whether no pod matches any of the terms."""
    # Those that are to be evicted are there still, and those that are promised not yet.
    held = (t.may_hold(future=True)[0] if future else t.counts for t in near)
    return not any(counts.any() for counts in held)


def _is_even(tally: _Tally, counts: IntArray) -> BoolArray:
    """Return (N,) where one more is even beside (D,) those that the domains hold."""
    term, domains = tally.term, tally.domains
    # Too few domains count as an empty one, as with kube-scheduler's minDomains.
    fewest = int(counts[domains].min()) if len(domains) >= term.least_domains else 0
    more = counts[term.domain] + term.itself - fewest
    allowed: BoolArray = (term.domain >= 0) & (more <= term.skew)
    return allowed
