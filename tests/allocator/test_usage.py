# SPDX-License-Identifier: Apache-2.0
"""What queues have used over time."""

import math
from dataclasses import replace

import pytest

from muster.allocator.tracker import NOT_NOW
from muster.allocator.usage import PERIOD, Usage
from muster.api import edge
from muster.cluster.queues import QueueInput, parse_queue
from muster.scheduler import cycle, division, policy
from muster.scheduler.model import QueueHistory
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)

DAY = 86400.0
START = 1_700_000_000.0


def holding(cpus):
    """Return a snapshot in which queue `a` holds so many of 8 CPUs, and `b` nothing."""
    gang = make_gang(queue="a", roles=[make_role(held=[(i, "n1") for i in range(cpus)], cpu=1)])
    return make_snapshot(
        nodes=[make_node(cpu=8)],
        pods=[make_pod(cpu=cpus)],
        queues=[make_queue(name="a"), make_queue(name="b")],
        gangs=[gang] if cpus else [],
    )


class Story:
    """Counts at given times; queues hold what they held at the last one."""

    def __init__(self, **status):
        """Begin with what the status of `a` says."""
        self.usage = Usage()
        document = {"metadata": {"name": "a"}, "status": {"usage": status}}
        self.queues = [parse_queue(document), QueueInput("b")]

    def at(self, seconds, cpus=0, half_life=DAY):
        """Return what `a` and `b` have used by then, and when to look again."""
        found = self.usage.counted(self.queues, START + seconds, half_life)
        again = self.usage.record(holding(cpus), ()) - START
        return [round(queue.usage, 3) for queue in found], again


def test_what_is_held_counts_and_is_forgotten():
    """Half of it after each half-life, so that the whole cluster for ever has a bound."""
    story = Story()
    assert story.at(0.0, 4) == ([0.0, 0.0], PERIOD)
    (used, other), again = story.at(600.0)
    assert (other, again) == (0.0, 600.0 + PERIOD)
    assert used == pytest.approx(300.0, rel=0.01)
    assert story.at(600.0 + DAY)[0] == [pytest.approx(used / 2, abs=0.01), 0.0]
    assert story.at(600.0 + 40 * DAY) == ([0.0, 0.0], math.inf)
    story = Story()
    story.at(0.0, 8)
    assert story.at(100 * DAY)[0] == [round(DAY / math.log(2), 3), 0.0]


@pytest.mark.parametrize(
    ("asks", "part"), [({"example.com/none": 4}, 0.0), ({"cpu": "8E"}, 1.0), ({"cpu": 2}, 0.25)]
)
def test_more_than_there_is_counts_as_all_of_it(asks, part):
    """What a pod names that no node has, or has so much of, is not forgotten for years else."""
    gang = make_gang(queue="a", roles=[make_role(held=[(0, "n1")], **asks)])
    snapshot = make_snapshot(nodes=[make_node(cpu=8)], queues=[make_queue(name="a")], gangs=[gang])
    assert division.dominant_shares(snapshot) == {"a": part}


def test_whoever_comes_after_goes_on():
    """With what the status says, less what was forgotten since; what is not there is nothing."""
    story = Story(seconds=1000, at=edge.format_time(START))
    assert story.at(DAY)[0] == [500.0, 0.0]
    for odd in (
        {},
        {"seconds": 1000},
        {"seconds": "x", "at": []},
        {"at": edge.format_time(START)},
    ):
        assert Story(**odd).at(DAY)[0] == [0.0, 0.0]
    ahead = Story(seconds=1000, at=edge.format_time(START + DAY))
    assert ahead.at(0.0)[0] == [1000.0, 0.0]


def test_usage_without_the_plugin_is_counted_and_lowers_no_share():
    """The half-life is the default one."""
    story = Story(seconds=1000, at=edge.format_time(START))
    assert story.at(0.0, 4, half_life=None) == ([1000.0, 0.0], PERIOD)
    assert story.at(60.0, 4, half_life=None)[0] == [pytest.approx(1030.0, abs=0.2), 0.0]
    queues = story.usage.counted(story.queues, START + 60, None)
    assert [queue.fairshare for queue in queues] == [False, True]


def started(since=None, **fields):
    """Return a snapshot with a waiting gang of queue `a`, and a decision on it."""
    gang = make_gang(
        key="team/x", uid="x", queue="a", roles=[make_role(replicas=2, cpu=1)], **fields
    )
    queues = [make_queue(name="a"), make_queue(name="b")]
    snapshot = make_snapshot(nodes=[make_node(cpu=8)], queues=queues, gangs=[gang], now=START)
    (decision,) = cycle.schedule(snapshot, policy.DEFAULT)
    if since is not None:
        decision = replace(decision, placements=(), head_since=since)
    return snapshot, [decision]


def test_usage_of_a_start_counts_from_the_cycle_that_decides_it():
    """A gang that ends before the next cycle is counted too, and its start is recorded."""
    usage, queues = Usage(), [QueueInput("a"), QueueInput("b")]
    usage.counted(queues, START, DAY)
    usage.record(*started())
    first, other = usage.counted(queues, START + 60, DAY)
    assert first.usage == pytest.approx(15.0, rel=0.01)
    assert (first.history.last_start, other.history.last_start) == (START, 0.0)
    # A replaced member is no start.
    usage = Usage()
    usage.counted([QueueInput("a")], START, DAY)
    usage.record(*started(admitted=True))
    (queue,) = usage.counted([QueueInput("a")], START, DAY)
    assert queue.history.last_start == 0.0


def test_the_head_of_a_queue_survives_a_restart():
    """The status stores the head and its time; a head that is left out of a cycle keeps them."""
    usage = Usage()
    usage.counted([QueueInput("a")], START, DAY)
    usage.record(*started(since=START - 30))
    written = usage.documents(START + PERIOD)["a"]
    assert written == {
        "seconds": 0,
        "at": edge.format_time(START),
        "head": "x",
        "headSince": edge.format_time(START - 30),
    }
    document = {"metadata": {"name": "a"}, "status": {"usage": written}}
    usage = Usage()
    (queue,) = usage.counted([parse_queue(document)], START, DAY)
    assert queue.history == QueueHistory(0.0, "x", START - 30)
    snapshot, _ = started(refusal=NOT_NOW)
    usage.record(snapshot, cycle.schedule(snapshot, policy.DEFAULT))
    assert usage.counted([QueueInput("a")], START, DAY)[0].history == queue.history
    usage.record(snapshot, ())
    assert usage.counted([QueueInput("a")], START, DAY)[0].history == QueueHistory()


def test_it_is_written_once_a_minute():
    """In whole seconds, and not for queues that used nothing."""
    story = Story()
    story.at(0.0, 8)
    assert story.usage.documents(START) == {}
    story.at(30.0, 8)
    assert story.usage.documents(START + 30) == {}
    story.at(60.0, 8)
    document = {"seconds": 59, "at": edge.format_time(START + 60)}
    assert story.usage.documents(START + 60) == {"a": document}
    assert story.usage.documents(START + 61) == {}


def test_a_write_of_it_changes_no_queue():
    """It asks for no cycle."""
    status = {"usage": {"seconds": 3, "at": edge.format_time(START)}}
    document = {"metadata": {"name": "a"}, "status": status}
    assert parse_queue(document) == QueueInput("a")
    assert parse_queue(document).used == (3.0, START)
