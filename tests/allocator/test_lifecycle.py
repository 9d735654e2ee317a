# SPDX-License-Identifier: Apache-2.0
"""The lifecycle of a gang, by its table of transitions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from muster.allocator.lifecycle import NEW, RELEASED, TRANSITIONS, Lifecycle, Members, State

COMPLETE = Members(
    minimum=2,
    ready=2,
    terminating=0,
    assumed=0,
    has_node=True,
    recreated=True,
    removed=False,
    suspended=False,
)
NONE = replace(COMPLETE, ready=0, has_node=False)
LOST = replace(COMPLETE, ready=1)


@pytest.mark.parametrize(
    ("before", "members", "state", "missing_since"),
    [
        (NEW, NONE, State.WAITING, None),
        (NEW, replace(NONE, assumed=2), State.STARTING, None),
        (NEW, replace(LOST, assumed=1), State.STARTING, None),
        (NEW, LOST, State.STARTING, 5.0),
        (NEW, COMPLETE, State.RUNNING, None),
        (Lifecycle(State.STARTING, 1.0), LOST, State.STARTING, 1.0),
        (Lifecycle(State.STARTING), NONE, State.WAITING, None),
        (Lifecycle(State.RUNNING), COMPLETE, State.RUNNING, None),
        (Lifecycle(State.RUNNING), LOST, State.DEGRADED, 5.0),
        (Lifecycle(State.RUNNING), replace(LOST, terminating=1), State.RUNNING, None),
        (Lifecycle(State.RUNNING), replace(LOST, suspended=True), State.RUNNING, None),
        (Lifecycle(State.DEGRADED, 1.0), LOST, State.DEGRADED, 1.0),
        (Lifecycle(State.DEGRADED, 1.0), replace(LOST, assumed=1), State.DEGRADED, 1.0),
        (Lifecycle(State.DEGRADED, 1.0), COMPLETE, State.RUNNING, None),
        (Lifecycle(State.DEGRADED, 1.0), NONE, State.DEGRADED, 1.0),
        (Lifecycle(State.DEGRADED, 1.0), replace(NONE, recreated=False), State.WAITING, None),
        (RELEASED, LOST, State.RELEASING, None),
        (RELEASED, replace(NONE, removed=True), State.WAITING, None),
    ],
)
def test_members_advance_lifecycle(
    before: Lifecycle, members: Members, state: State, missing_since: float | None
) -> None:
    """The observed members decide the next state and the start of the member hold."""
    assert before.advance(members, 5.0) == Lifecycle(state, missing_since)


def test_evaluation_of_same_members_changes_nothing() -> None:
    """For every combination of members the table ends in a state that they do not change."""
    for state, ready, terminating, assumed in product(State, range(3), range(2), range(2)):
        for has_node, recreated, removed, suspended in product((True, False), repeat=4):
            members = Members(
                2, ready, terminating, assumed, has_node, recreated, removed, suspended
            )
            once = Lifecycle(state).advance(members, 1.0)
            assert once.advance(members, 2.0) == once
            assert once.was_complete <= (ready > 0 or state is not State.WAITING)


def test_no_row_of_the_table_leads_to_a_release() -> None:
    """Observed members alone never release a gang: that takes an eviction or an expired hold."""
    assert State.RELEASING not in {to for _, _, to in TRANSITIONS}
