# SPDX-License-Identifier: Apache-2.0
"""Whose pods are there without a node while they wait."""

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from muster.allocator.pending import PendingPods, showable, shows
from muster.allocator.tracker import GangMemory
from muster.api.reasons import GangPhase, Reason
from muster.scheduler.decision import Decision
from muster.scheduler.decision import Verdict as Ruling


def decides(key, *, blocked_by=(), reason=Reason.NOT_ENOUGH_RESOURCES):
    """Return the decision on a gang that waits."""
    ruling = Ruling(GangPhase.WAITING, reason, "", "", 1, 0, 0, 1, blocked_by=blocked_by)
    return Decision(key, ruling)


def test_who_may_show_pods_under_a_quota():
    """None that it refuses or that no node would help, and of a namespace one at a time."""
    decisions = [
        decides("a/refused", blocked_by=("resourcequota/a/few",)),
        decides("a/never", reason=Reason.EXCEEDS_RESOURCE_QUOTA),
        decides("a/closed", reason=Reason.QUEUE_NOT_OPEN),
        decides("a/unbound", reason=Reason.WAITING_FOR_VOLUME),
        decides("a/first"),
        decides("a/second"),
        decides("b/first", reason=Reason.NO_NODE_LARGE_ENOUGH, blocked_by=("queue/q",)),
        decides("a/shown"),
    ]
    charged = {d.gang: d.gang[0] for d in decisions if d.gang != "a/shown"}
    assert list(showable(decisions, charged)) == ["a/first", "b/first", "a/shown"]


def test_pods_of_a_waiting_job_are_shown_before_surplus_pods():
    """A job without a position follows all others, whatever gangs of other kinds precede them."""
    memories = {}
    for key in ("a/surplus", "a/waits"):
        tasks = (SimpleNamespace(gated=False, places={0: key}),)
        facts = SimpleNamespace(remade=True, pods={}, tasks=tasks)
        verdict = SimpleNamespace(since=1.0)
        memories[key] = GangMemory(uid=key, facts=facts, verdict=verdict)
    gangs = MagicMock()
    gangs.__iter__.side_effect = lambda: iter(memories.items())
    gangs.memory, gangs.facts = memories.get, lambda key, _now: memories[key].facts
    gangs.attempt = lambda key, work, now, else_: work(key, now)
    surplus, waits = decides("a/surplus"), decides("a/waits")
    waits = replace(waits, verdict=replace(waits.verdict, position=5))
    PendingPods(gangs, lambda _at: None).show([surplus, waits], 1, 1000.0)
    assert [call.args[0] for call in gangs.take.call_args_list] == ["a/waits"]


class TestShows:
    """Pods of the head of the queue are created without a node, within the budget."""

    HIDDEN = (("a", ["a0", "a1"]), ("b", ["b0", "b1"]), ("c", ["c0"]))

    @pytest.mark.parametrize(
        ("budget", "others", "expected"),
        [
            (9, 0, {"a": 2, "b": 2, "c": 1}),
            (5, 0, {"a": 2, "b": 2, "c": 1}),
            (3, 0, {"a": 2}),
            (9, 7, {"a": 2}),
            (9, 8, {}),
            (1, 0, {"a": 2}),
            (1, 1, {"a": 2}),
            (2, 2, {}),
            (2, 7, {"a": 2}),
            (0, 0, {}),
        ],
    )
    def test_gangs_are_shown_whole_within_the_budget(self, budget, others, expected):
        """No gang passes one that does not fit, nor waits for one above the budget."""
        granted = shows(self.HIDDEN, {"other": others}, budget, "a")
        assert {key: len(pods) for key, pods in granted.items()} == expected

    def test_gangs_share_the_budget_as_if_an_oversized_first_gang_were_not_there(self):
        """Its pods, hidden or shown, are not charged; only the first may exceed the budget.

        A gang that shows all is passed: the next one has its turn.
        """
        wishes = [("a", ["a0", "a1", "a2"]), *self.HIDDEN[1:]]
        assert set(shows(wishes, {}, 2, "a")) == {"a", "b"}
        assert shows([("a", []), *self.HIDDEN[1:]], {"a": 3}, 2, "a") == {"b": {"b0", "b1"}}
        assert shows([("a", ["a2"]), ("c", ["c0"])], {"a": 2}, 2, "a") == {
            "a": {"a2"},
            "c": {"c0"},
        }
        assert shows([("b", ["b0", "b1", "b2"]), ("c", ["c0"])], {}, 2, "a") == {}
        assert shows([("a", []), *self.HIDDEN[2:]], {"a": 2}, 3, "a") == {"c": {"c0"}}
