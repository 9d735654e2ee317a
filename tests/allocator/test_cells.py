# SPDX-License-Identifier: Apache-2.0
"""What gangs cost that nobody can look at, or not in a moment: themselves, and nobody else."""

from __future__ import annotations

import asyncio
import math

import pytest

from muster.allocator import cells
from muster.allocator.cells import GIVEN_UP, KEPT, Deferrals, Turns
from muster.allocator.tracker import NOT_NOW
from muster.api.reasons import GangPhase, Reason
from muster.scheduler.decision import Decision, Verdict
from muster.scheduler.model import Deferred
from support.builders.scheduler import make_gang

NOW = 1000.0


def decided(key, *, deferred=True):
    """Return a decision about a gang, by default one whose search was cut off."""
    verdict = Verdict(GangPhase.WAITING, Reason.DEFERRED, "", "", 1, 0, 0, 1)
    return Decision(key, verdict, deferred=deferred)


def test_deferrals_count_the_cycles_in_a_row() -> None:
    """A gang whose search has ended starts again from the first limit."""
    deferrals = Deferrals()
    assert deferrals.decided([decided("a/x"), decided("a/y")], changed=True)
    assert deferrals.next == Deferred({"a/x": 1, "a/y": 1}, alone="a/x")
    assert deferrals.decided([decided("a/x", deferred=False), decided("a/y")], changed=True)
    assert deferrals.next == Deferred({"a/y": 2}, alone="a/y")
    assert not deferrals.decided([decided("a/y", deferred=False)], changed=True)
    assert deferrals.next == Deferred()


def test_verdict_stands_until_something_changes() -> None:
    """A gang whose search has ended does not search again in the cycles for the others."""
    deferrals = Deferrals()
    deferrals.decided([decided("a/x", deferred=False), decided("a/y")], changed=True)
    assert deferrals.decided([decided("a/x"), decided("a/y")], changed=False)
    assert deferrals.next.counts == {"a/y": 2}
    assert not deferrals.decided([decided("a/x"), decided("a/y", deferred=False)], changed=False)
    assert deferrals.decided([decided("a/x"), decided("a/y")], changed=True)
    assert deferrals.next.counts == {"a/x": 1, "a/y": 1}


def test_namespaces_take_turns_to_search_alone() -> None:
    """A namespace with many deferred gangs does not delay the one gang of another."""
    deferrals, alone = Deferrals(), []
    for cycle in range(6):
        late = [decided("b/late")] if cycle else []
        several = [*(decided(f"a/{i}") for i in range(9)), *late]
        deferrals.decided(several, changed=True)
        alone.append(deferrals.next.alone)
    assert [key.partition("/")[0] for key in alone] == ["a", "a", "b", "a", "b", "a"]


def test_gang_searches_alone_although_new_namespaces_appear_in_each_cycle() -> None:
    """A gang in a namespace that has had its turn waits only for namespaces before it."""
    deferrals, alone = Deferrals(), []
    for cycle in range(6):
        several = [decided("own/x"), *(decided(f"new-{cycle - i}/y") for i in range(2))]
        deferrals.decided(several, changed=True)
        alone.append(deferrals.next.alone)
    assert alone.count("own/x") > 1


def test_gang_deferred_for_longest_searches_alone() -> None:
    """Gangs that come first in the order do not keep the others waiting."""
    deferrals = Deferrals()
    deferrals.decided([decided("a/late")], changed=True)
    deferrals.decided([decided("a/first"), decided("a/late")], changed=True)
    assert deferrals.next.alone == "a/late"


def kept(turns, gangs, now, untried=()):
    """Return the keys of those that keep their turns."""
    found = turns.pass_by(gangs, untried, now)
    return [gang.key for gang in found if gang.refusal is not NOT_NOW]


def test_turns_that_are_in_vain_are_kept_for_a_while() -> None:
    """Then those behind get theirs, and what did nothing wrong loses nothing."""
    turns, end = Turns(), NOW + KEPT
    gangs = [make_gang(key=key) for key in ("TFJob/a/changed", "TFJob/a/new", "TFJob/a/fine")]
    everybody, fine = [gang.key for gang in gangs], ["TFJob/a/fine"]
    for now in (NOW, end - 1):
        assert kept(turns, gangs, now, untried=["TFJob/a/new"]) == everybody
        assert turns.had(["TFJob/a/changed", "TFJob/a/new"], now) == end
    assert kept(turns, gangs, end, untried=["TFJob/a/new"]) == fine
    # Nothing but this triggers the cycle that places the gang that has changed.
    assert turns.had([], end) == end
    last = end + GIVEN_UP - 1
    assert kept(turns, gangs, last, untried=["TFJob/a/new"]) == ["TFJob/a/changed", *fine]
    assert turns.had([], last + 1) == math.inf
    assert kept(turns, gangs, last + 1, untried=["TFJob/a/new"]) == everybody


def test_only_turns_one_after_the_other_count() -> None:
    """Every cycle without any of the namespace gives it all its time; others have their own."""
    turns, gangs = Turns(), [make_gang(key="TFJob/a/new"), make_gang(key="TFJob/b/new")]
    both = [gang.key for gang in gangs]
    turns.had(both, NOW)
    turns.had(["TFJob/b/new"], NOW + 1)
    assert turns.had(both, NOW + 2) == NOW + KEPT
    assert kept(turns, gangs, NOW + KEPT, untried=both) == ["TFJob/a/new"]
    assert turns.had(["TFJob/a/new"], NOW + KEPT) == NOW + 2 + KEPT


@pytest.mark.parametrize(("limit", "left_out"), [(0.5, 16), (2.5, 2)])
def test_what_there_is_no_time_left_for_is_of_the_guilty_namespace(
    monkeypatch: pytest.MonkeyPatch, limit: float, left_out: int
) -> None:
    """However its gangs are called and when they came: those of others are looked at."""
    clock = iter(range(1000))
    monkeypatch.setattr(cells, "SEARCH", limit)
    monkeypatch.setattr(cells.time, "monotonic", lambda: next(clock))
    gangs = [make_gang(key=f"{'evil' if i % 2 else 'good'}/{i}") for i in range(32)]

    async def attempt(some):
        if any(gang.key in ("evil/9", "evil/21") for gang in some):
            raise ValueError("not understood")
        return [gang.key for gang in some]

    result, culprits = asyncio.run(cells.search(attempt, gangs))
    assert {key for key in result if key.startswith("good")} == {
        gang.key for gang in gangs if gang.key.startswith("good")
    }
    assert len(culprits) == left_out
