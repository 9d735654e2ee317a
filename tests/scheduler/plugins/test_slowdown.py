# SPDX-License-Identifier: Apache-2.0
"""Who has waited for long, measured by how long it runs, goes first."""

import pytest

from muster.scheduler import policy
from support.builders.scheduler import make_gang, make_node, make_role, make_session


def order(*gangs, now=1000.0, head_start="0"):
    """Return the gangs in the order in which they would be tried."""
    plugin = {"name": "slowdown", "arguments": {"slowdown.headStart": head_start}}
    rules = policy.parse({"tiers": [{"plugins": [plugin]}]})
    session = make_session(with_policy=rules, nodes=[make_node()], gangs=gangs, now=now)
    return [gang.spec.key for gang in sorted(session.gangs, key=session.order)]


def gang(key, created, seconds=None, cpu=1):
    """Return a gang of two pods that came then and runs for so long."""
    length = {} if seconds is None else {"duration": seconds}
    return make_gang(key=key, created=created, roles=[make_role(replicas=2, cpu=cpu)], **length)


def test_the_wait_counts_against_the_length():
    """A short one passes a long one, whose turn comes as it waits; of equal ones the oldest."""
    short, long = gang("short", 990.0, 10.0), gang("long", 500.0, 3600.0)
    assert order(long, short) == ["short", "long"]
    assert order(long, gang("short", 999.0, 100.0)) == ["long", "short"]
    assert order(gang("b", 900.0, 60.0), gang("a", 900.0, 60.0)) == ["a", "b"]


def test_the_wait_counts_against_the_share():
    """Gangs that ask for less come first until the others have waited in proportion."""
    large = gang("large", 800.0, 60.0, cpu=4)
    assert order(large, gang("small", 900.0, 60.0)) == ["small", "large"]
    assert order(large, gang("small", 980.0, 60.0)) == ["large", "small"]


def test_who_does_not_say_is_taken_to_run_for_a_day():
    """As who says more than that; nobody has waited for less, and nothing divides by nothing."""
    assert order(gang("later", 2000.0, 0.0), gang("now", 999.0, 0.0)) == ["now", "later"]
    unknown, week = gang("unknown", 500.0), gang("week", 600.0, 7 * 86_400.0)
    assert order(week, unknown, gang("hours", 600.0, 7200.0)) == ["hours", "unknown", "week"]


def test_who_has_just_come_goes_by_what_he_asks_for():
    """By the head start of everybody, 0 or more, which is little against a long wait."""
    with pytest.raises(ValueError, match="0 or more"):
        order(head_start="-1")
    gangs = gang("first", 990.0, 600.0), gang("short", 999.0, 60.0)
    assert order(*gangs) == ["first", "short"]
    assert order(*gangs, head_start="100") == ["short", "first"]
    assert order(gang("first", -9000.0, 600.0), gangs[1], head_start="100") == ["first", "short"]
