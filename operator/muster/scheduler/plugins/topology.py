# SPDX-License-Identifier: Apache-2.0
"""topology: pack a gang into the fewest domains of the levels that node labels make.

A level is a node label, a domain the nodes with one value of it. The smallest domain in which
the whole gang fits comes first, levels from the narrowest to the widest; where none does, as few
narrow domains as possible within a wider one. What is required must not leave one domain. The
policy says what holds for gangs that say nothing; their members are numbered through the domains,
as those of gangs that ask are, where it says so (`topology.ranks`).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler import diagnosis
from muster.scheduler.ask import Ask
from muster.scheduler.domains import Domains, Slicing
from muster.scheduler.hooks import Arguments, Demand, Hooks, Parsed, Within, switch
from muster.scheduler.levels import Levels, Party, Room
from muster.scheduler.model import BoolArray, FloatArray, IntArray, PodSet, Refusal
from muster.scheduler.session import Session
from muster.scheduler.slices import usable
from muster.scheduler.state import GangState, PodSetState

TRIES: Final = 4
"""How many of the tightest domains of a level are tried for a gang that may lie in several."""
PLACES, LOOKS, COMBINATIONS = 64, 4096, 64
"""Of several parties: how many places of each are looked at, how many ways to combine these, and
how many of those are tried."""


def _levels(text: str) -> tuple[str, ...]:
    levels = tuple(name.strip() for name in text.split(",") if name.strip())
    if not levels:
        raise ValueError("names no node label; write them from the narrowest to the widest")
    return levels


ARGUMENTS: Final[Arguments] = {
    "topology.levels": _levels,
    "topology.required": str.strip,
    "topology.ranks": switch,
}


def answer(session: Session, parsed: Parsed) -> Hooks:
    """Answer by the labels of the nodes."""
    labels: tuple[str, ...] = parsed.get("topology.levels", ())
    required: str = parsed.get("topology.required", "")
    levels = Levels(session, labels, required)
    if not (levels.default or session.snapshot.topologies):
        return Hooks()
    ranks: bool = parsed.get("topology.ranks", False)
    # Where no gang asks for anything there are no questions but where to try it.
    asked = session.snapshot.topologies
    strict = asked or required

    def valid(gang: GangState) -> Refusal | None:
        return next(filter(None, _refusals(session, levels, gang)), None)

    def cramped(gang: GangState) -> Refusal | None:
        parties = levels.parties(gang)
        bound = [party for party in parties if party.asked.required or party.asked.slice_size]
        return _cramped(session, levels, gang, bound) if bound else None

    def slices(gang: GangState) -> Sequence[Slicing] | None:
        return [party.slicing for party in levels.parties(gang) if party.slicing] or None

    def regions(ask: Ask) -> Iterator[Sequence[Within]] | None:
        parties = levels.parties(ask.gang)
        return _together(session, ask, parties) if parties else None

    def numbering(gang: GangState, pod_set: PodSet) -> Sequence[IntArray] | None:
        # The party of the role itself decides, which is behind that of its job.
        parties = [party for party in levels.parties(gang) if pod_set in party.pod_sets]
        # Slices are placed in the order of their ranks.
        sliced = any(party.slicing and pod_set in party.slicing.pod_sets for party in parties)
        if parties and (ranks or (levels.is_own(parties[-1]) and not sliced)):
            return [level.domain for level in reversed(parties[-1].levels)]
        return None

    return Hooks(
        regions=regions,
        numbering=numbering if ranks or asked else None,
        slices=slices if asked else None,
        cramped=cramped if strict else None,
        valid=valid if strict else None,
    )


def _together(session: Session, ask: Ask, parties: Sequence[Party]) -> Iterator[Sequence[Within]]:
    """Yield where to try each party of the gang, which may have a domain in common."""
    gang = ask.gang
    if len(parties) > 1 and gang.need:
        # Tasks that are not part of the first mix can stand in for others, and stay confined.
        parties = [
            party for party in parties if party.demand or (party.asked.required and party.tasks)
        ]
    if not parties:
        yield ()
        return
    if len(parties) == 1:
        for nodes in _places(session, ask, parties[0]):
            yield () if nodes is None else (dict.fromkeys(parties[0].shapes, nodes),)
        return
    own = [party.shapes for party in parties]
    looked = itertools.islice(_combinations(session, ask, parties), LOOKS)
    fitting = (chosen for chosen in looked if _hold(session, ask, parties, chosen))
    for chosen in itertools.islice(fitting, COMBINATIONS):
        parts = zip(chosen, own, strict=True)
        yield tuple(dict.fromkeys(shapes, nodes) for nodes, shapes in parts if nodes is not None)
    # What is merely preferred must not be the reason why nothing is found.
    strict = [party for party in parties if party.asked.required]
    if len(strict) < len(parties):
        yield from _together(session, ask, strict)


def _combinations(
    session: Session, ask: Ask, parties: Sequence[Party]
) -> Iterator[Sequence[BoolArray | None]]:
    """Yield places of all parties, those of roles inside the place of their job."""
    job, *roles = parties

    def several(party: Party, outer: BoolArray | None) -> Iterator[BoolArray | None]:
        places = _distinct(_places(session, ask, party, len(parties), outer))
        return itertools.islice(places, PLACES)

    if not any(role.pod_sets[0] in job.pod_sets for role in roles):
        yield from itertools.product(*(several(party, None) for party in parties))
        return
    for outer in several(job, None):
        # An exempt role is not confined to the place of its job.
        inner = (
            several(role, outer if role.pod_sets[0] in job.pod_sets else None) for role in roles
        )
        yield from ((outer, *chosen) for chosen in itertools.product(*inner))


def _distinct(places: Iterable[BoolArray | None]) -> Iterator[BoolArray | None]:
    """Yield each place once: a domain is often all that a wider one has for the gang."""
    seen = set[bytes | None]()
    for nodes in places:
        mark = None if nodes is None else nodes.tobytes()
        if mark not in seen:
            seen.add(mark)
            yield nodes


def _places(
    session: Session, ask: Ask, party: Party, most: int = 1, outer: BoolArray | None = None
) -> Iterator[BoolArray | None]:
    """Yield where to try the party, (N,) or None for everywhere; `most` of what is equal.

    `outer`: (N,) the only nodes that count; None: those that the ask allows.
    """
    home = party.home(session)
    outer = ask.allowed if outer is None else outer
    if party.levels:
        fitting = filter(party.allows, _fitting(session, ask, party, most, outer))
        yield from _around(party, home) if home else fitting
    if not party.asked.required:
        yield None


def _hold(
    session: Session, ask: Ask, parties: Sequence[Party], chosen: Sequence[BoolArray | None]
) -> bool:
    """Return whether nodes that several parties are to have may have room for all of these."""
    common = dict[bytes, tuple[BoolArray, list[Party]]]()
    for party, nodes in zip(parties, chosen, strict=True):
        if nodes is not None:
            common.setdefault(nodes.tobytes(), (nodes, []))[1].append(party)
    for nodes, several in common.values():
        if len(several) > 1:
            # A role is part of its job as well.
            parts = {id(tasks): (tasks, n) for party in several for tasks, n in party.demand}
            demand = list(parts.values())
            one, room = Domains(np.where(nodes, 0, -1), 1), Room.now(session, ask)
            tasks = list({id(t): t for party in several for t in party.tasks}.values())
            fits = room.share(demand, one, nodes)[0] >= 1
            if not fits and not _fits_in_a_mix(ask.gang, tasks, room.fitting(tasks, one)).any():
                return False
    return True


def _around(party: Party, home: Sequence[int]) -> Iterator[BoolArray]:
    """Yield the domains in which members are, level by level."""
    # Members settle it: in their own domain first, at the narrowest level that has room.
    *narrower, widest = (level.around(home) for level in party.levels)
    yield from filter(party.allows, narrower)
    # Members may run in two domains of it already, and their peers return to either.
    yield widest


def _fitting(
    session: Session, ask: Ask, party: Party, most: int, outer: BoolArray | None
) -> Iterator[BoolArray]:
    """Yield where the party may fit: in one domain, or in few narrow ones within a wider one.

    Few of the widest will do, too, where it need not lie in one. `most`: of equal domains.
    """
    # The next ones are asked for when the first were tried, which leaves its marks on a fit.
    across = not party.asked.required
    gang, levels = party.gang, list[Domains](party.levels)
    if outer is not None:
        levels = [level.inside(outer) for level in levels]
    room, demand = _in_slices(party, Room.now(session, ask))

    def share(level: Domains, nodes: BoolArray | None) -> FloatArray:
        return room.share(demand, level, nodes)

    for i, level in enumerate(levels if demand else ()):
        held = share(level, None)
        # The tightest first, so that larger domains stay whole for larger gangs.
        order = np.argsort(held, kind="stable")
        large = room.differing(gang, level, order[held[order] >= 1].tolist(), most)
        # Where the gang must lie in one, each is tried; else the tightest, and the emptiest.
        for d in _ends(large) if across else large:
            whole = level.domain == d
            yield from _few(levels[:i], whole, share)
            yield whole
    if across:
        yield from _few(levels, np.ones(len(levels[0].domain), np.bool_), share)
    elif party.slicing is None:
        for level in levels:
            yield from _for_other_mixes(party, room, level, share(level, None), most)


def _for_other_mixes(
    party: Party, room: Room, level: Domains, share: FloatArray, most: int
) -> Iterator[BoolArray]:
    """Yield the domains for other mixes of an elastic gang; `share`: (D,) of the first mix."""
    fitting = room.fitting(party.tasks, level)
    possible = _fits_in_a_mix(party.gang, party.tasks, fitting)
    if party.demand:
        possible &= share < 1
    # The tightest first. If the gang can do without the party, a few of the emptiest are enough.
    spare = party.gang.minimum_of(party.tasks) <= 0
    order = np.argsort(-fitting if spare else fitting, kind="stable")
    found = room.differing(party.gang, level, order[possible[order]].tolist(), most)
    for d in itertools.islice(found, TRIES if spare else None):
        yield level.domain == d


def _fits_in_a_mix(
    gang: GangState, tasks: Sequence[PodSetState], fitting: FloatArray
) -> BoolArray:
    """Return (D,) where so many of these tasks may suffice, in any mix; False if there is one."""
    possible: BoolArray = (fitting >= gang.minimum_of(tasks)) & gang.is_elastic
    return possible


def _ends(domains: Iterable[int]) -> Iterator[int]:
    """Yield the first of the domains, and the last of the others."""
    # One by one: the first mostly will do, and which of the others are equal is expensive.
    several = iter(domains)
    yield from itertools.islice(several, TRIES)
    yield from deque(several, maxlen=1)


def _in_slices(party: Party, room: Room) -> tuple[Room, Demand]:
    """Return room and demand as whole slices have it, where that of one role alone is asked."""
    demand = party.demand
    if party.slicing is None or len(demand) != 1:
        return room, demand
    ((tasks, count),) = demand
    if tasks.pod_set not in party.slicing.pod_sets:
        return room, demand
    shape, whole = tasks.pod_set.shape, count // party.slicing.length * party.slicing.length
    capacity = {**room.capacity, shape: usable(party.slicing, room.capacity[shape])}
    return (Room(capacity, room.free), [(tasks, whole)]) if whole else (room, demand)


def _few(
    levels: Sequence[Domains],
    nodes: BoolArray,
    share: Callable[[Domains, BoolArray], FloatArray],
) -> Iterator[BoolArray]:
    """Yield the fewest domains of each level that hold the gang together, among the nodes."""
    for level in levels:
        held = share(level, nodes)
        order = np.argsort(-held, kind="stable")
        sums = np.cumsum(held[order])
        # Shares of 1 may come out a little less as a sum.
        count = int(np.searchsorted(sums, 1 - 1e-9)) + 1
        if count > len(order):
            continue
        before = sums[count - 2] if count > 1 else 0.0
        rest = order[count - 1 :]
        # Of those that could be the last one, the smallest.
        last = rest[held[rest] >= 1 - before - 1e-9][-1]
        yield nodes & level.within(np.append(order[: count - 1], last))


def _refusals(session: Session, levels: Levels, gang: GangState) -> Iterator[Refusal | None]:
    """Yield why the parties of the gang will have no place, however much comes free."""
    for party in levels.parties(gang):
        yield levels.unknown(party)
        strict = party.asked.required or party.slicing is not None
        if not strict or not gang.need or party.home(session):
            continue
        if party.slicing is not None:
            whole = _whole_slices(party, party.slicing, Room.empty(session, gang))
            if whole is not None and whole[0] < whole[1]:
                yield Refusal(Reason.EXCEEDS_CLUSTER, f"{_sliced(party, whole)}, even empty")
        if not party.asked.required:
            continue
        room, level = Room.empty(session, gang), party.levels[-1]
        share = _share(session, party, room)
        tasks = party.tasks
        fits = (share >= 1).any() or (
            gang.is_elastic and _fits_in_a_mix(gang, tasks, room.fitting(tasks, level)).any()
        )
        if not fits:
            whose = f'no domain of the node label "{level.label}" could hold {_who(party)}'
            best = _best(session, party, room, share) if levels.is_own(party) else ""
            yield Refusal(Reason.EXCEEDS_CLUSTER, f"{whose}, even empty{best}")


def _cramped(
    session: Session, levels: Levels, gang: GangState, strict: Sequence[Party]
) -> Refusal:
    """Return which of the parties finds no domain, and what the best one lacks."""
    if not any(map(levels.is_own, strict)):
        return Refusal(Reason.FRAGMENTED, _no_domain(strict[0]))

    room, cut = Room.now(session, Ask(gang)), next((p for p in strict if p.slicing), None)
    one = [party for party in strict if party.asked.required]
    shares = [_share(session, party, room) for party in one]
    if cut is not None and cut.slicing and all((share >= 1).any() for share in shares):
        whole = _whole_slices(cut, cut.slicing, room)
        return Refusal(Reason.FRAGMENTED, _sliced(cut, whole))
    tight = min(range(len(one)), key=lambda i: bool((shares[i] >= 1).any()))
    best = _best(session, one[tight], room, shares[tight])
    return Refusal(Reason.FRAGMENTED, f"{_no_domain(one[tight])}{best}")


def _no_domain(party: Party) -> str:
    label = party.asked.level
    return f'no single domain of the node label "{label}" has room for {_who(party)}'


def _whole_slices(party: Party, slicing: Slicing, room: Room) -> tuple[int, int] | None:
    """Return for how many whole slices there is room, and of how many; None: of several roles."""
    demand = [(tasks, n) for tasks, n in party.demand if tasks.pod_set in slicing.pod_sets]
    if len(demand) != 1:
        return None
    ((tasks, count),) = demand
    fitting = int(usable(slicing, room.capacity[tasks.pod_set.shape]).sum())
    return fitting // slicing.length, count // slicing.length


def _sliced(party: Party, whole: tuple[int, int] | None) -> str:
    """Return that slices do not fit, and how many would."""
    asked = party.asked
    slices = f'slices of {asked.slice_size}, each in one domain of "{asked.slice_level}"'
    if whole is None or whole[0] >= whole[1]:
        return f"no room for {_who(party)} in {slices}"
    return f"room for {whole[0]} of {whole[1]} {slices}"


def _share(session: Session, party: Party, room: Room) -> FloatArray:
    """Return (D,) as `Room.share`, of those domains in which the party may lie."""
    domains, home = party.levels[-1], party.home(session)
    where = domains.domain >= 0
    if home:
        where = where & domains.around(home)
    return room.share(party.demand, domains, where)


def _who(party: Party) -> str:
    return "the whole gang" if party.role is None else f"all of {party.role or 'its pods'}"


def _best(session: Session, party: Party, room: Room, share: FloatArray) -> str:
    """Return which domain has most of what the party asks for, and what that one lacks."""
    level = party.levels[-1]
    if not level.names:
        return ": no node has it"
    best = int(share.argmax())
    nodes = level.domain == best
    demand = party.demand
    fits = [
        f"{min(int(room.capacity[tasks.pod_set.shape][nodes].sum()), count)} of {count}"
        f"{tasks.pod_set.role and ' '}{tasks.pod_set.role}"
        for tasks, count in demand
    ]
    free = np.maximum(room.free[nodes], 0).sum(axis=0, dtype=np.float64)
    short = diagnosis.excess(session, demand, free)
    lack = " and ".join(f"{diagnosis.amount(name, least)} {name}" for name, least in short.items())
    more = f" and lacks {lack}" if lack else ", but not for all together" * bool(share[best] >= 1)
    return f': the best, "{level.names[best]}", has room for {", ".join(fits)}{more}'
