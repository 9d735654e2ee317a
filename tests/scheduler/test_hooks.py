# SPDX-License-Identifier: Apache-2.0
"""Answers of several plugins become one."""

import numpy as np
import pytest

from muster.api.reasons import Reason
from muster.scheduler.capacity import Stack
from muster.scheduler.hooks import Hooks, Rules
from muster.scheduler.model import Refusal
from support.builders.scheduler import make_gang, make_node, make_role, make_snapshot


def no(text):
    """Return a refusal with that sentence."""
    return Refusal(Reason.QUEUE_OVERUSED, text)


@pytest.fixture
def shape():
    """Return the shape of a task on a cluster of three nodes."""
    nodes = [make_node(name=f"n{i}") for i in range(3)]
    snapshot = make_snapshot(nodes=nodes, gangs=[make_gang(roles=[make_role(replicas=1)])])
    return next(iter(snapshot.shapes.values()))


def test_nobody_asked(shape):
    """Without plugins everything is allowed and nothing preferred."""
    rules = Rules([])
    assert rules.queue_order(None) == ()
    assert rules.valid(None) is None
    assert rules.admissible(None, None) is None
    assert rules.ready(None)
    assert rules.pipelined(None)
    assert not rules.overused(None)
    codes, texts = rules.feasible(shape)
    assert (codes.tolist(), texts) == ([0, 0, 0], ())
    stack = Stack(None, shape, np.arange(3), np.ones(3, np.int64))
    assert rules.score(shape)(stack).tolist() == [0, 0, 0]


def test_first_refusal_is_told():
    """Of several refusals the first is told."""
    rules = Rules([[Hooks(valid=lambda _: None)], [Hooks(valid=lambda _: no("a"))],
                   [Hooks(valid=lambda _: no("b"))]])  # fmt: skip
    assert rules.valid(None) == no("a")


@pytest.mark.parametrize(
    ("answers", "everyone", "anyone"),
    [([True, True], True, True), ([True, False], False, True), ([False, False], False, False)],
)
def test_all_and_any(answers, everyone, anyone):
    """Ready and pipelined need all plugins, overused one."""
    tier = [
        Hooks(ready=lambda _, a=a: a, pipelined=lambda _, a=a: a, overused=lambda _, a=a: a)
        for a in answers
    ]
    rules = Rules([tier])
    found = rules.ready(None), rules.pipelined(None), rules.overused(None)
    assert found == (everyone, everyone, anyone)


def test_feasible_keeps_the_first_reason(shape):
    """A node barred by two plugins counts for the first one's reason."""
    one = Hooks(feasible=lambda _: (np.array([1, 0, 0], np.int16), ("a",)))
    two = Hooks(feasible=lambda _: (np.array([2, 1, 0], np.int16), ("b", "c")))
    codes, texts = Rules([[one, two]]).feasible(shape)
    assert [texts[code - 1] if code else "" for code in codes] == ["a", "b", ""]


def test_scores_add_up(shape):
    """Scores are summed; a plugin that has none for the shape is left out."""
    stack = Stack(None, shape, np.arange(3), np.ones(3, np.int64))
    ones = Hooks(score=lambda _: lambda s: np.ones(len(s.nodes)))
    rules = Rules([[ones, Hooks(score=lambda _: None)], [ones]])
    assert rules.score(shape)(stack).tolist() == [2, 2, 2]
