# SPDX-License-Identifier: Apache-2.0
"""For how long room is kept for the gangs of one namespace in a queue."""

from __future__ import annotations

from math import inf

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
