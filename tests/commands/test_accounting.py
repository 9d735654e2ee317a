# SPDX-License-Identifier: Apache-2.0
"""What became of the time that jobs asked devices for: it adds up, whatever is known."""

import itertools
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from muster.commands import accounting
from muster.commands.accounting import History, Life, Place, Run, State

TIMES = st.integers(min_value=0, max_value=40).map(float)
MAYBE = st.none() | TIMES


def history(*lives, **fields):
    """Return a job of one place, created at 0."""
    places = (Place(1.0, lives),)
    return History({"job": "mnist"}, **{"created": 0.0, "places": places, **fields})


def told(job, until=100.0):
    """Return the spans of its place, those of one state that follow each other as one."""
    spans = (s for s in accounting.timeline(job, job.places[0], until) if s.begins < s.ends)
    alike = (list(found) for _, found in itertools.groupby(spans, key=lambda s: s.state))
    return [(str(found[0].state), found[0].begins, found[-1].ends) for found in alike]


CORPUS = Path(__file__).parents[1] / "corpus" / "accounting.yaml"
CASES = yaml.safe_load(CORPUS.read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_place_that(name):
    """Was these things, one after the other."""
    case = CASES[name]
    lives = [
        Life(**{**pod, "runs": tuple(Run(**run) for run in pod.get("runs", ()))})
        for pod in case["pods"]
    ]
    assert told(history(*lives, **case["job"])) == list(map(tuple, case["states"]))


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
    st.fixed_dictionaries({"namespace": st.sampled_from("ab"), "queue": st.sampled_from("ef")}),
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
