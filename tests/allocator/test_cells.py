# SPDX-License-Identifier: Apache-2.0
"""What gangs cost that nobody can look at, or not in a moment: themselves, and nobody else."""

from __future__ import annotations

import asyncio
import math

import pytest

from muster.allocator import cells
from muster.allocator.cells import GIVEN_UP, KEPT, Quarantine, Search, Turns
from muster.allocator.tracker import NOT_NOW
from muster.api.reasons import GangPhase, Reason
from muster.scheduler.decision import Decision, Verdict
from muster.scheduler.session import EFFORT
from support.builders.scheduler import make_gang

NOW = 1000.0
DEAR = 10_000
"""What a gang costs that rests for ten seconds."""


def make_decision(gang, *, effort=0, state=GangPhase.WAITING, reason=Reason.NOT_ENOUGH_RESOURCES):
    """Return what was decided about a gang."""
    verdict = Verdict(state, reason, "", "", min_member=1, placed=0, ready=0, total=1)
    return Decision(gang.key, verdict, effort=effort)


def rested(quarantine, gangs, now=NOW):
    """Return the keys of those for which nobody looks for room."""
    found = quarantine.pass_by(gangs, now)
    assert {gang.key for gang in found} == {gang.key for gang in gangs}
    return [gang.key for gang in found if gang.refusal is NOT_NOW]


def test_a_gang_that_took_long_in_vain_rests() -> None:
    """It stays in the picture, as it is each time; the next look is by time."""
    dear, other = make_gang(key="a/dear"), make_gang(key="a/other")
    quarantine = Quarantine()
    decisions = [make_decision(dear, effort=DEAR), make_decision(other, effort=10)]
    assert quarantine.rest([dear, other], decisions, NOW) == NOW + 10
    assert rested(quarantine, [dear, other]) == ["a/dear"]
    again = [quarantine.pass_by([dear], NOW)[0] for _ in range(2)]
    assert again[0] is again[1]
    assert rested(quarantine, [dear, other], NOW + 10) == []


def test_what_changes_all_the_time_rests_no_less() -> None:
    """Another edit of the same gang is no way around."""
    quarantine = Quarantine()
    dear = make_gang(key="a/dear")
    quarantine.rest([dear], [make_decision(dear, effort=DEAR)], NOW)
    assert rested(quarantine, [make_gang(key="a/dear", priority=1)], NOW + 9) == ["a/dear"]


def test_many_rest_for_longer_than_one() -> None:
    """All of them together cost no more of the time than one does; others' are not counted."""
    quarantine = Quarantine()
    gangs = [make_gang(key=f"a/{i}") for i in range(3)]
    for gang in gangs:
        quarantine.rest(gangs, [make_decision(gang, effort=DEAR)], NOW)
    assert rested(quarantine, gangs, NOW + 10) == ["a/1", "a/2"]
    assert rested(quarantine, gangs, NOW + 20) == ["a/2"]
    alone = make_gang(key="b/0")
    quarantine.rest([alone], [make_decision(alone, effort=DEAR)], NOW)
    assert rested(quarantine, [alone], NOW + 10) == []


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
    assert turns.had([], end) == math.inf
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


def test_a_search_that_was_cut_short_goes_further_at_its_next_turn() -> None:
    """Room that is hard to find is found in the end; who has enough gets no more."""
    quarantine = Quarantine()
    hard, dear = make_gang(key="a/hard"), make_gang(key="b/dear")
    now = NOW
    for terms in (2 * EFFORT, 4 * EFFORT, 8 * EFFORT):
        used = make_decision(hard, effort=terms // 2), make_decision(dear, effort=DEAR)
        now = quarantine.rest([hard, dear], used, now) + 600
        found = {gang.key: gang.effort for gang in quarantine.pass_by([hard, dear], now)}
        assert found == {"a/hard": terms, "b/dear": 0}
    enough = make_decision(hard, effort=terms - 1)
    quarantine.rest([hard], [enough], now)
    assert quarantine.pass_by([hard], now + 600)[0].effort == terms
    quarantine.pass_by([], now + 600)
    assert quarantine.pass_by([hard], now + 600)[0].effort == 0


def test_nobody_is_looked_at_for_longer_than_he_rests() -> None:
    """Whatever he asks for: the others have their share of the time."""
    quarantine, hard = Quarantine(), make_gang(key="a/hard")
    for _ in range(9):
        quarantine.rest([hard], [make_decision(hard, effort=cells.LARGEST)], NOW)
    assert quarantine.pass_by([hard], NOW + 600)[0].effort == cells.LARGEST
    assert cells.LARGEST * cells.PAUSE == cells.LONGEST_REST


def test_who_was_put_off_has_its_turn_at_once() -> None:
    """Nothing has to change for that. Who got in, or keeps room, does not rest."""
    put_off, placed = make_gang(key="a/late"), make_gang(key="a/placed")
    quarantine = Quarantine()
    decided = make_decision(put_off, reason=Reason.DEFERRED)
    assert quarantine.rest([put_off], [decided], NOW) == NOW
    done = make_decision(placed, effort=DEAR, state=GangPhase.PLACED)
    kept = make_decision(put_off, effort=DEAR, state=GangPhase.RESERVED)
    assert quarantine.rest([put_off, placed], [done, kept], NOW) == float("inf")
    assert rested(quarantine, [put_off, placed]) == []


def test_a_gang_over_which_cycles_fail_does_not_come_back_by_every_edit() -> None:
    """The first may mend it. Each failure costs all others a search."""
    quarantine, edits = Quarantine(), [make_gang(key="a/bad", priority=i) for i in range(4)]
    quarantine.put(edits[0], NOW)
    assert quarantine.pass_by([edits[0]], NOW + 1) == []
    assert quarantine.pass_by([edits[1]], NOW + 1) == [edits[1]]
    quarantine.put(edits[1], NOW)
    assert quarantine.pass_by([edits[2]], NOW + 1) == []
    assert quarantine.pass_by([edits[2]], NOW + cells.SHORTEST) == [edits[2]]
    quarantine.put(edits[2], NOW)
    assert quarantine.pass_by([edits[3]], NOW + cells.SHORTEST) == []
    assert quarantine.pass_by([edits[3]], NOW + cells.RETRY) == [edits[3]]


def test_what_there_is_no_time_left_for_is_of_the_guilty_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However its gangs are called and when they came: those of others are looked at."""
    clock = iter(range(1000))
    monkeypatch.setattr(cells, "SEARCH", 2.5)
    monkeypatch.setattr(cells.time, "monotonic", lambda: next(clock))
    gangs = [make_gang(key=f"{'evil' if i % 2 else 'good'}/{i}") for i in range(32)]

    async def attempt(some):
        if any(gang.key in ("evil/9", "evil/21") for gang in some):
            raise ValueError("not understood")
        return [gang.key for gang in some]

    outcome = asyncio.run(Search(attempt).run(gangs))
    assert {key for key in outcome.result if key.startswith("good")} == {
        gang.key for gang in gangs if gang.key.startswith("good")
    }
