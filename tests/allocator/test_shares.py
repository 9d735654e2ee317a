# SPDX-License-Identifier: Apache-2.0
"""For how long room is kept for the gangs of one namespace in a queue."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from muster.allocator.shares import AGAIN, Reservations
from muster.cluster.queues import QueueInput


def queues(seconds=60.0):
    """Return a queue with that limit, and one without."""
    short = QueueInput("short", reservation_seconds=seconds)
    return {"short": short, "free": QueueInput("free")}


class Story:
    """Cycles at times, each with whom room is kept for; nobody holds what he has used up."""

    def __init__(self):
        """Begin with nothing."""
        self.kept, self.queues = Reservations(), queues()

    def cycle(self, at, *wanting):
        """Return for whom room is kept, and when to look again."""
        found = self.kept.limited(list(self.queues.values()), at)
        spent = {queue.name: queue.spent for queue in found}
        holders = [(q, space) for q, space in wanting if space not in spent[q]]
        return holders, self.kept.kept(holders, self.queues)

    def restart(self):
        """Go on as another process, by what is written."""
        written = {queue: self.kept.written(queue) for queue in self.queues}
        self.kept = Reservations()
        self.kept.resume(written)


def test_a_reservation_ends_and_may_begin_again():
    """After as long as it lasted; the cycle at its end is asked for."""
    story, mine = Story(), ("short", "team")
    assert story.cycle(0.0, mine) == ([mine], 60.0 + AGAIN)
    assert story.cycle(30.0, mine) == ([mine], 60.0 + AGAIN)
    assert story.cycle(61.0, mine) == ([], 121.0 + AGAIN)
    assert story.cycle(100.0, mine)[0] == []
    assert story.cycle(122.0, mine) == ([mine], 122.0 + 60.0 + AGAIN)


def test_other_gangs_of_the_namespace_count_too():
    """Who waits in turns gets no more; who did without for a while has it back."""
    story, mine = Story(), ("short", "team")
    for at in (0.0, 10.0, 20.0):
        assert story.cycle(at, mine)[0] == [mine]
    assert story.cycle(30.0)[0] == []
    assert story.cycle(45.0, mine) == ([mine], 45.0 + 45.0 + AGAIN)
    assert story.cycle(91.0, mine)[0] == []


def test_others_have_their_own_time():
    """Of the same queue, and in queues without a limit."""
    story, mine, theirs = Story(), ("short", "team"), ("short", "else")
    story.cycle(0.0, mine)
    assert story.cycle(61.0, mine, theirs)[0] == [theirs]
    free = ("free", "team")
    assert story.cycle(200.0, free)[0] == [free]
    assert story.cycle(10_000.0, free) == ([free], inf)


def test_nothing_is_remembered_of_who_has_it_all_back():
    """Names of namespaces that are gone do not pile up."""
    story = Story()
    story.cycle(0.0, ("short", "team"))
    story.cycle(30.0)
    assert story.cycle(61.0) == ([], inf)
    assert not story.kept._accounts


def test_nobody_begins_anew_with_a_process():
    """Not who holds a reservation, nor who has used his time up."""
    story, mine = Story(), ("short", "team")
    assert story.cycle(0.0, mine)[0] == [mine]
    story.restart()
    assert story.cycle(30.0, mine) == ([mine], 60.0 + AGAIN)
    story.restart()
    assert story.cycle(61.0, mine) == ([], 121.0 + AGAIN)
    story.restart()
    assert story.cycle(100.0, mine)[0] == []
    story.restart()
    assert story.cycle(122.0, mine)[0] == [mine]


def test_what_is_written_changes_with_who_holds_what():
    """Not with each cycle, of which there are many a second."""
    story, mine = Story(), ("short", "team")
    story.cycle(0.0, mine)
    said = {"since": "1970-01-01T00:00:00Z", "seconds": 0, "held": True, "spent": False}
    for at in (1.0, 30.0, 59.0):
        story.cycle(at, mine)
        assert story.kept.written("short") == {"team": said}
    story.cycle(61.0, mine)
    after = {"since": "1970-01-01T00:01:01Z", "seconds": 60, "held": False, "spent": True}
    assert story.kept.written("short") == {"team": after}
    assert story.kept.written("free") == {}


def test_what_somebody_else_has_written_is_not_believed():
    """What is no account is none."""
    kept = Reservations()
    odd = {"a": 1, "b": {"since": "soon", "seconds": 1}, "c": {"since": None}, "d": {"seconds": 5}}
    kept.resume({"short": odd, "free": [1], "other": None})
    assert kept.written("short") == {}


STEPS = st.lists(
    st.tuples(st.integers(1, 50), st.sampled_from([(), (("short", "a"),), (("short", "b"),)]))
)


@given(steps=STEPS, restarts=st.sets(st.integers(0, 20)))
def test_restarts_make_no_difference(steps, restarts):
    """At whichever cycles: the same gangs have room kept for them for as long."""
    one, other, now = Story(), Story(), 0.0
    for number, (seconds, wanting) in enumerate(steps):
        now += seconds
        if number in restarts:
            other.restart()
        assert one.cycle(now, *wanting) == other.cycle(now, *wanting)


def test_a_limit_that_changes():
    """It counts from then on; without one nobody waits any more."""
    story, mine = Story(), ("short", "team")
    story.cycle(0.0, mine)
    story.queues = queues(20.0)
    assert story.cycle(30.0, mine)[0] == []
    story.queues = queues(inf)
    assert story.cycle(31.0, mine) == ([mine], inf)
    story.queues = queues(1.0)
    assert story.cycle(32.0, mine)[0] == [mine]
    assert story.cycle(33.5, mine)[0] == []
