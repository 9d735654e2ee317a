# SPDX-License-Identifier: Apache-2.0
"""What gangs cost that nobody can look at, or not in a moment: themselves, and nobody else."""

from __future__ import annotations

import asyncio

import pytest

from muster.allocator import cells
from muster.allocator.cells import Deferrals
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


def test_cycle_that_fails_without_gangs_after_a_culprit_raises_its_error() -> None:
    """No gang is the cause then."""
    outcomes = iter([ValueError("a gang"), None, ValueError("no gang")])

    async def attempt(_some):
        if error := next(outcomes):
            raise error

    with pytest.raises(ValueError, match="no gang"):
        asyncio.run(cells.search(attempt, [make_gang(key="a/x")]))


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
