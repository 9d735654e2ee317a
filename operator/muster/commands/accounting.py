# SPDX-License-Identifier: Apache-2.0
"""What became of the time for which jobs asked for devices: histories in, rows out.

Of each pod's place the time from the job's creation to its end is cut into spans, of which each is
in one state; so they always add up. What nothing tells is `unknown`, and counted as that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SLACK: Final = 2.0
"""Seconds by which a pod may come after its job's start time and be its first: times are whole
seconds, and written by several clocks."""


class State(StrEnum):
    """What a replica was at a time."""

    QUEUED = "queued"
    """It waited for a node."""
    PLACED = "placed"
    """It had a node, whose kubelet had not begun."""
    STARTING = "starting"
    """Images, init containers, a pause before the program is started again."""
    RUNNING = "running"
    REDONE = "redone"
    """It ran, and failed: what came after its last checkpoint is done again, or is lost."""
    PREEMPTED = "preempted"
    """It had its node, and was evicted to make room for another."""
    SUSPENDED = "suspended"
    DONE = "done"
    """The pod had ended and its job had not: nobody held the devices."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Run:
    """A program at work; times are in seconds since the epoch."""

    begins: float
    ends: float | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Life:
    """One pod of a replica."""

    created: float
    placed: float | None = None
    started: float | None = None
    """When the kubelet took it up."""
    runs: tuple[Run, ...] = ()
    ended: float | None = None
    failed: bool = False
    preempted: bool = False
    gone: bool = False
    """It is known by its events alone."""
    unseen: bool = False
    """There were runs before those that are known."""


@dataclass(frozen=True, slots=True)
class Place:
    """One pod that the job wants, and the pods that were it, in order."""

    amount: float
    """Of the resource, that it asks for."""
    lives: tuple[Life, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """One job."""

    names: Mapping[str, str]
    """Its kind, namespace, job and queue, as rows show them."""
    created: float
    ended: float | None = None
    started: float | None = None
    """When it first had a pod on a node."""
    ran: float | None = None
    """When it was last said to run."""
    restarted: bool = False
    suspended: float | None = None
    """Since when it is."""
    resumed: float | None = None
    """When it last was."""
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A state from one time to another."""

    state: State
    begins: float
    ends: float


def timeline(history: History, place: Place, until: float) -> Iterator[Span]:
    """Yield the states from creation to end, or `until`, without a gap or a negative span."""
    end = max(min(until if history.ended is None else history.ended, until), history.created)
    stop = end if history.suspended is None else max(min(history.suspended, end), history.created)
    at, state = history.created, State.QUEUED
    for moment, after in _marks(history, place.lives):
        then = min(max(moment, at), stop)
        yield Span(state, at, then)
        at, state = then, after
    yield Span(state, at, stop)
    yield Span(State.SUSPENDED, stop, end)


Marks = Iterator[tuple[float, State]]
"""From when on it is in which state."""


def _marks(history: History, lives: Sequence[Life]) -> Marks:
    yield from _before(history, lives)
    for life in lives:
        last = life is lives[-1]
        yield life.created, State.QUEUED
        if life.placed is not None:
            yield life.placed, State.PREEMPTED if life.preempted else State.PLACED
            if not life.preempted:
                yield from _gone(history, life, last=last) if life.gone else _held(life)
        if life.ended is not None:
            waits = not last or (history.ended is None and (life.failed or life.gone))
            yield life.ended, State.QUEUED if waits else State.DONE


def _before(history: History, lives: Sequence[Life]) -> Marks:
    """Yield what the job's status tells of the time before the first pod that is known."""
    if history.resumed is not None:
        # Whether it was suspended from its creation on, or ran before, is not kept.
        yield history.created, State.UNKNOWN
        yield history.resumed, State.QUEUED
    began = history.started
    if began is None or (lives and lives[0].created <= began + SLACK):
        return
    yield began, State.REDONE if history.restarted else State.UNKNOWN
    if not lives and history.ran is not None:
        yield history.ran, State.RUNNING if history.ended is not None else State.UNKNOWN


def _gone(history: History, life: Life, *, last: bool) -> Marks:
    if last and history.ended is not None and history.ran is not None:
        yield history.ran, State.RUNNING
    elif life.placed is not None:
        yield life.placed, State.REDONE if history.restarted else State.UNKNOWN


def _held(life: Life) -> Marks:
    if life.started is not None:
        yield life.started, State.UNKNOWN if life.unseen else State.STARTING
    for run in life.runs:
        yield run.begins, State.REDONE if run.failed else State.RUNNING
        if run.ends is not None:
            yield run.ends, State.STARTING


@dataclass(frozen=True, slots=True)
class Row:
    """Amounts of the resource times seconds, by state: of a job, or of several."""

    names: Mapping[str, str]
    """The fields that all of them share."""
    seconds: Mapping[State, float]
    total: float
    """What was asked for, times the time from creation to end."""


def row(history: History, since: float, until: float) -> Row:
    """Return what became of the part of a job's time that lies between these."""
    found = dict.fromkeys(State, 0.0)
    for place in history.places:
        for span in timeline(history, place, until):
            found[span.state] += place.amount * _within(span.begins, span.ends, since, until)
    end = until if history.ended is None else history.ended
    asked = sum(place.amount for place in history.places)
    total = asked * _within(history.created, end, since, until)
    return Row(history.names, found, total)


def _within(begins: float, ends: float, since: float, until: float) -> float:
    return max(0.0, min(ends, until) - max(begins, since))


def summed(rows: Iterable[Row], names: Sequence[str]) -> list[Row]:
    """Return one row for all rows that are equal in these names."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for each in rows:
        groups.setdefault(tuple(each.names[name] for name in names), []).append(each)
    return [
        Row(
            dict(zip(names, key, strict=True)),
            {state: sum(each.seconds[state] for each in found) for state in State},
            sum(each.total for each in found),
        )
        for key, found in sorted(groups.items())
    ]
