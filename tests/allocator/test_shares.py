# SPDX-License-Identifier: Apache-2.0
"""The time for which a queue reserves nodes for the gangs of one namespace."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from muster.allocator.shares import DELAY, Reservations
from muster.cluster.queues import QueueInput

MINE, THEIRS = ("short", "team"), ("short", "else")


def queues(seconds=60.0):
    """Return a queue with that limit, and one without a limit."""
    short = QueueInput("short", reservation_seconds=seconds)
    return {"short": short, "free": QueueInput("free")}


class Story:
    """Cycles in which each waiting namespace gets a reservation unless its time is over."""

    def __init__(self):
        """Start without reservations."""
        self.kept, self.queues = Reservations(), queues()

    def cycle(self, at, *wanting):
        """Return the namespaces that have reservations, and the time of the next cycle."""
        found = self.kept.limited(list(self.queues.values()), at)
        spent = {queue.name: queue.spent for queue in found}
        holders = [(q, space) for q, space in wanting if space not in spent[q]]
        return holders, self.kept.kept(holders, self.queues)

    def restart(self):
        """Continue as another leader, from the status of the queues."""
        written = {queue: self.kept.written(queue) for queue in self.queues}
        self.kept = Reservations()
        self.kept.resume(written)


def test_reservations_pause_for_as_long_as_they_lasted():
    """Each end asks for a cycle; after the pause a new window begins."""
    story = Story()
    assert story.cycle(0.0, MINE) == ([MINE], 60.0 + DELAY)
    assert story.cycle(30.0, MINE) == ([MINE], 60.0 + DELAY)
    assert story.cycle(61.0, MINE) == ([], 120.0 + DELAY)
    assert story.cycle(100.0, MINE)[0] == []
    assert story.cycle(121.0, MINE) == ([MINE], 121.0 + 60.0 + DELAY)


def test_interrupted_reservations_do_not_prolong_the_window():
    """The time counts from the first reservation of any gang of the namespace."""
    story = Story()
    for at in (0.0, 20.0, 40.0):
        assert story.cycle(at, MINE)[0] == [MINE]
        assert story.cycle(at + 10.0)[0] == []
    assert story.cycle(61.0, MINE)[0] == []


def test_other_namespaces_and_queues_are_not_limited():
    """The window of one namespace changes nothing for another one, or for another queue."""
    story, free = Story(), ("free", "team")
    story.cycle(0.0, MINE)
    assert story.cycle(61.0, MINE, THEIRS)[0] == [THEIRS]
    assert story.cycle(200.0, free)[0] == [free]
    assert story.cycle(10_000.0, free) == ([free], inf)


def test_window_is_forgotten_at_its_end():
    """Names of namespaces do not accumulate."""
    story = Story()
    story.cycle(0.0, MINE)
    story.cycle(30.0)
    assert story.cycle(120.0) == ([], inf)
    assert story.kept.written("short") == {}


def test_changed_limit_applies_to_the_current_window():
    """Without a limit the window ends."""
    story = Story()
    story.cycle(0.0, MINE)
    story.queues = queues(20.0)
    assert story.cycle(30.0, MINE)[0] == []
    story.queues = queues(inf)
    assert story.cycle(31.0, MINE) == ([MINE], inf)


def test_status_stores_the_beginning_of_a_window():
    """The status does not change with each cycle."""
    story = Story()
    for at in (0.0, 1.0, 59.0, 61.0):
        story.cycle(at, MINE)
        assert story.kept.written("short") == {"team": "1970-01-01T00:00:00Z"}
    assert story.kept.written("free") == {}


def test_invalid_times_in_the_status_are_ignored():
    """A time in the future, too."""
    story = Story()
    odd = {"a": 1, "b": "soon", "c": None, "d": "2100-01-01T00:00:00Z"}
    story.kept.resume({"short": odd, "free": [1], "other": None})
    story.cycle(0.0)
    assert story.kept.written("short") == {}


STEPS = st.lists(st.tuples(st.integers(1, 50), st.sampled_from([(), (MINE,), (THEIRS,)])))


@given(steps=STEPS, restarts=st.sets(st.integers(0, 20)))
def test_restarts_make_no_difference(steps, restarts):
    """A new leader grants the same reservations for the same time."""
    one, other, now = Story(), Story(), 0.0
    for number, (seconds, wanting) in enumerate(steps):
        now += seconds
        if number in restarts:
            other.restart()
        assert one.cycle(now, *wanting) == other.cycle(now, *wanting)


@given(steps=STEPS)
def test_a_namespace_reserves_for_half_of_the_time_at_most(steps):
    """Reservations end one limit after the first, and begin again two limits after it."""
    story, now, first = Story(), 0.0, None
    for seconds, wanting in steps:
        now += seconds
        holders, _ = story.cycle(now, *wanting)
        if first is None or now >= first + 120.0:
            first = now if MINE in holders else None
        assert MINE not in holders or now < first + 60.0
