# SPDX-License-Identifier: Apache-2.0
"""predicates: a task goes only to nodes that suit its constraints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from muster.scheduler import hooks
from muster.scheduler.ask import Ask
from muster.scheduler.domains import Domains
from muster.scheduler.hooks import Arguments, Barred, Hooks, Parsed, Within
from muster.scheduler.levels import Room
from muster.scheduler.model import AffinityTerm, Shape
from muster.scheduler.session import Session
from muster.scheduler.state import PodSetState

_PRESSURE: Final = (
    ("predicate.MemoryPressureEnable", "node(s) had memory pressure"),
    ("predicate.DiskPressureEnable", "node(s) had disk pressure"),
    ("predicate.PIDPressureEnable", "node(s) had process id pressure"),
)
ATTEMPTS: Final = 32
"""How many domains are tried for a gang whose members must be near each other."""
ARGUMENTS: Final[Arguments] = {name: hooks.switch for name, _ in _PRESSURE}


def answer(session: Session, parsed: Parsed) -> Hooks:
    """Bar nodes by the shape's own constraints, and by pressure where the arguments say so."""
    watched = [(i, text) for i, (name, text) in enumerate(_PRESSURE) if parsed.get(name)]
    pressure = session.snapshot.nodes.pressure

    def feasible(shape: Shape) -> Barred:
        codes, texts = shape.barred, shape.texts
        for column, text in watched:
            texts = (*texts, text)
            strained = (codes == 0) & pressure[:, column]
            codes = np.where(strained, len(texts), codes).astype(np.int16)
        return codes, texts

    return Hooks(feasible=feasible, regions=lambda ask: _regions(session, ask))


def _regions(session: Session, ask: Ask) -> Sequence[Sequence[Within]] | None:
    """Return where a gang may gather whose members must be near each other or share a volume.

    The first of them decides it, so it must not go where the others have no room.
    """
    options = [*_near(session, ask), *_sharing(session, ask)]
    if not options:
        return None
    # The choice for the first is made before the others are confined at all.
    several = [options[0], *([{}, *others] for others in options[1:])]
    return [*itertools.islice(itertools.product(*several), ATTEMPTS), ()]


def _near(session: Session, ask: Ask) -> Iterator[Sequence[Within]]:
    """Yield, of roles whose terms are met by the same pods, the domains with room for them."""
    free: dict[object, tuple[AffinityTerm, list[PodSetState]]] = {}
    gang, future = ask.gang, ask.ahead or session.counts_ending(ask)
    for tasks in gang.tasks:
        for term in session.room.affinity.loose(tasks.pod_set.shape, future=future)[:1]:
            # Where tasks do not match their own term, tasks of other roles come first.
            others = [t for t in gang.tasks if not term.itself and term.adds.get(t.pod_set.shape)]
            if term.itself or others:
                key = id(term.domain), frozenset(term.adds)
                free.setdefault(key, (term, []))[1].extend([tasks, *others])
    for term, members in sorted(free.values(), key=lambda item: -item[0].domain.max(initial=-1)):
        near = [(tasks, count) for tasks, count in gang.demand() if count and tasks in members]
        domains = Domains(term.domain, len(term.counts))
        held = Room.now(session, ask).share(near, domains, term.domain >= 0)
        shapes = [tasks.pod_set.shape for tasks in members]
        order = [d for d in np.argsort(held, kind="stable").tolist() if held[d] >= 1]
        if order:
            yield [dict.fromkeys(shapes, term.domain == d) for d in order[:ATTEMPTS]]


def _sharing(session: Session, ask: Ask) -> Iterator[Sequence[Within]]:
    """Yield, of each role with a claim, where each volume that it may get can be reached."""
    future = ask.ahead or session.counts_ending(ask)
    for tasks in ask.gang.tasks:
        shape, wanted = tasks.pod_set.shape, min(ask.gang.wanted(tasks), tasks.left)
        choices = session.room.affinity.stock.choices(shape) if wanted > 0 else ()
        fit = partial(session.fit, ask, tasks, future=future)
        found = [{shape: each} for each in choices if fit().capacity[each].sum() >= wanted]
        if found:
            yield [{}, *found]
