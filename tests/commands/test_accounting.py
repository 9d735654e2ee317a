# SPDX-License-Identifier: Apache-2.0
"""What became of the time that jobs asked devices for: it adds up, whatever is known."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.commands import accounting
from muster.commands.accounting import History, Life, Place, Run, State

TIMES = st.integers(min_value=0, max_value=40).map(float)
MAYBE = st.none() | TIMES


def history(*lives, **fields):
    """Return a job of one place, created at 0."""
    places = (Place(1.0, lives),)
    return History(
        "TFJob", "team", "mnist", "default", **{"created": 0.0, "places": places, **fields}
    )


def told(job, until=100.0):
    """Return the spans of its place, those of one state that follow each other as one."""
    spans = (s for s in accounting.timeline(job, job.places[0], until) if s.begins < s.ends)
    alike = (list(found) for _, found in itertools.groupby(spans, key=lambda s: s.state))
    return [(str(found[0].state), found[0].begins, found[-1].ends) for found in alike]


RAN = Life(0.0, 10.0, 12.0, (Run(15.0, 60.0),), ended=60.0)
FAILED = Life(0.0, 10.0, 12.0, (Run(15.0, 30.0, failed=True),), ended=30.0, failed=True)
AGAIN = Life(31.0, 35.0, 36.0, (Run(40.0),))
EVICTED = Life(10.0, 10.0, ended=30.0, preempted=True, gone=True)

CASES = {
    "waits": (history(), [("queued", 0, 100)]),
    "has a node": (
        history(Life(0.0, 10.0), started=10.0),
        [("queued", 0, 10), ("placed", 10, 100)],
    ),
    "starts": (
        history(Life(0.0, 10.0, 12.0), started=10.0),
        [("queued", 0, 10), ("placed", 10, 12), ("starting", 12, 100)],
    ),
    "ran to its end": (
        history(RAN, started=10.0, ran=15.0, ended=60.0),
        [("queued", 0, 10), ("placed", 10, 12), ("starting", 12, 15), ("running", 15, 60)],
    ),
    "ends before its job": (
        history(RAN, started=10.0, ended=80.0),
        [("queued", 0, 10), ("placed", 10, 12), ("starting", 12, 15), ("running", 15, 60),
         ("done", 60, 80)],
    ),
    "is made anew": (
        history(FAILED, AGAIN, started=10.0, restarted=True),
        [("queued", 0, 10), ("placed", 10, 12), ("starting", 12, 15), ("redone", 15, 30),
         ("queued", 30, 35), ("placed", 35, 36), ("starting", 36, 40), ("running", 40, 100)],
    ),
    "is to be made anew": (
        history(FAILED, started=10.0),
        [("queued", 0, 10), ("placed", 10, 12), ("starting", 12, 15), ("redone", 15, 30),
         ("queued", 30, 100)],
    ),
    "failed with its job": (
        history(FAILED, started=10.0, ended=40.0),
        [("queued", 0, 10), ("placed", 10, 12), ("starting", 12, 15), ("redone", 15, 30),
         ("done", 30, 40)],
    ),
    "is started again in its pod": (
        history(Life(0.0, 10.0, 12.0, (Run(15.0, 30.0, failed=True), Run(40.0)))),
        [("queued", 0, 10), ("placed", 10, 12), ("starting", 12, 15), ("redone", 15, 30),
         ("starting", 30, 40), ("running", 40, 100)],
    ),
    "and was so more than once": (
        history(Life(0.0, 10.0, 12.0, (Run(15.0, 30.0, failed=True), Run(40.0)), unseen=True)),
        [("queued", 0, 10), ("placed", 10, 12), ("unknown", 12, 15), ("redone", 15, 30),
         ("starting", 30, 40), ("running", 40, 100)],
    ),
    "was evicted": (
        history(EVICTED, AGAIN, started=10.0),
        [("queued", 0, 10), ("preempted", 10, 30), ("queued", 30, 35), ("placed", 35, 36),
         ("starting", 36, 40), ("running", 40, 100)],
    ),
    "was evicted and waits": (
        history(EVICTED, started=10.0),
        [("queued", 0, 10), ("preempted", 10, 30), ("queued", 30, 100)],
    ),
    "is on its way out": (
        history(Life(0.0, 10.0, 12.0, (Run(15.0),), preempted=True), started=10.0),
        [("queued", 0, 10), ("preempted", 10, 100)],
    ),
    "has only its status left": (
        history(started=10.0, ran=20.0, ended=90.0),
        [("queued", 0, 10), ("unknown", 10, 20), ("running", 20, 90)],
    ),
    "had failures, and only its status is left": (
        history(started=10.0, ran=20.0, ended=90.0, restarted=True),
        [("queued", 0, 10), ("redone", 10, 20), ("running", 20, 90)],
    ),
    "has only an event left": (
        history(Life(10.0, 10.0, gone=True), started=10.0, ran=20.0, ended=90.0),
        [("queued", 0, 10), ("placed", 10, 20), ("running", 20, 90)],
    ),
    "lost pods that nobody remembers": (
        history(AGAIN, started=10.0),
        [("queued", 0, 10), ("unknown", 10, 31), ("queued", 31, 35), ("placed", 35, 36),
         ("starting", 36, 40), ("running", 40, 100)],
    ),
    "lost pods by failures": (
        history(Life(10.0, 10.0, gone=True, ended=20.0), AGAIN, started=10.0, restarted=True),
        [("queued", 0, 10), ("redone", 10, 20), ("queued", 20, 35), ("placed", 35, 36),
         ("starting", 36, 40), ("running", 40, 100)],
    ),
    "misses its pod": (
        history(started=10.0, ran=20.0),
        [("queued", 0, 10), ("unknown", 10, 100)],
    ),
    "is suspended": (history(suspended=0.0), [("suspended", 0, 100)]),
    "ran and is suspended": (
        history(started=10.0, suspended=50.0),
        [("queued", 0, 10), ("unknown", 10, 50), ("suspended", 50, 100)],
    ),
    "was suspended": (
        history(Life(50.0, 60.0), resumed=50.0, started=60.0),
        [("unknown", 0, 50), ("queued", 50, 60), ("placed", 60, 100)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_place_that(name):
    """Was these things, one after the other."""
    job, spans = CASES[name]
    assert told(job) == spans


def runs():
    """Return runs, in no order."""
    return st.builds(Run, TIMES, MAYBE, st.booleans())


def lives():
    """Return pods whose times may contradict each other, as clocks and people have it."""
    switches = {name: st.booleans() for name in ("failed", "preempted", "gone", "unseen")}
    times = {"placed": MAYBE, "started": MAYBE, "ended": MAYBE}
    several = st.lists(runs(), max_size=2).map(tuple)
    return st.builds(Life, TIMES, runs=several, **times, **switches)


PLACES = st.builds(
    Place, st.sampled_from((1.0, 8.0, 0.5)), st.lists(lives(), max_size=3).map(tuple)
)
HISTORIES = st.builds(
    History,
    kind=st.just("TFJob"),
    namespace=st.sampled_from("ab"),
    name=st.sampled_from("cd"),
    queue=st.sampled_from("ef"),
    created=TIMES,
    ended=MAYBE,
    started=MAYBE,
    ran=MAYBE,
    restarted=st.booleans(),
    suspended=MAYBE,
    resumed=MAYBE,
    places=st.lists(PLACES, max_size=3).map(tuple),
)


@given(HISTORIES, TIMES, TIMES, TIMES)
def test_the_states_add_up_to_what_was_asked_for(job, first, second, third):
    """From creation to end, without gap or overlap, also of a part of that time."""
    a, b, c = sorted((first, second, third))
    for place in job.places:
        spans = list(accounting.timeline(job, place, c))
        assert spans[0].begins == job.created
        assert all(s.begins <= s.ends for s in spans)
        assert [s.ends for s in spans[:-1]] == [s.begins for s in spans[1:]]
        end = c if job.ended is None else min(job.ended, c)
        assert spans[-1].ends == max(end, job.created)
    whole, parts = (
        accounting.row(job, a, c),
        (accounting.row(job, a, b), accounting.row(job, b, c)),
    )
    assert sum(whole.seconds.values()) == pytest.approx(whole.total)
    for row in parts:
        assert sum(row.seconds.values()) == pytest.approx(row.total)
    assert sum(row.total for row in parts) == pytest.approx(whole.total)


@given(st.lists(HISTORIES, max_size=6))
def test_the_sums_are_those_of_all_jobs(jobs):
    """By whatever they are grouped."""
    rows = [accounting.row(job, 0.0, 40.0) for job in jobs]
    for key in (("queue",), ("namespace",)):
        found = accounting.summed(rows, key)
        assert sum(r.total for r in found) == pytest.approx(sum(r.total for r in rows))
        for state in State:
            every = sum(r.seconds[state] for r in rows)
            assert sum(r.seconds[state] for r in found) == pytest.approx(every)
