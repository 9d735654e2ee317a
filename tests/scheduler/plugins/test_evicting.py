# SPDX-License-Identifier: Apache-2.0
"""What each plugin says of running tasks that might make room."""

import numpy as np
import pytest

from muster.api.reasons import DeletionReason
from muster.scheduler import policy
from muster.scheduler.actions.eviction import lawful_of
from muster.scheduler.ask import Ask
from muster.scheduler.hooks import NO, VETO, YES, Claim, Hooks, Rules
from support.builders.scheduler import make_gang, make_node, make_queue, make_role, make_session


def running(key, count, *, cpu=1, **fields):
    """Return a gang of which all tasks run on one node."""
    held = tuple((i, "n1") for i in range(count))
    return make_gang(key=f"team/{key}", roles=[make_role(held=held, cpu=cpu)], **fields)


def ask(name, hook, gangs, *, together=False, queues=None, claimant=None, order=None):
    """Return what the plugin alone answers of every unit, in the order of gangs and tasks."""
    waits = claimant or make_gang(
        key="team/zz", priority=5, roles=[make_role(replicas=2, cpu=1)], queue="default"
    )
    rules = policy.parse({"tiers": [{"plugins": [{"name": name}]}]})
    session = make_session(
        with_policy=rules, nodes=[make_node(cpu=10)], gangs=[*gangs, waits], queues=queues
    )
    opened, *_ = [opener(session) for tier in rules.openers() for opener in tier]
    gang = next(gang for gang in session.gangs if gang.spec.key == waits.key)
    units = np.arange(len(session.victims.gang)) if order is None else np.array(order)
    return getattr(opened, hook)(Claim(gang, session.victims, units, together)).tolist()


def test_priority():
    """A lower priority may go, an equal one is for others to say, a higher one never goes."""
    gangs = [running("a", 1, priority=4), running("b", 1, priority=5), running("c", 1, priority=6)]
    assert ask("priority", "preemptable", gangs) == [YES, NO, VETO]


def test_conformance():
    """What the cluster needs is vetoed, for both hooks."""
    gangs = [running("a", 1), running("b", 1, critical=True)]
    for hook in ("preemptable", "reclaimable"):
        assert ask("conformance", hook, gangs) == [YES, VETO]


def test_no_gang_is_broken_under_any_policy():
    """Units are the end of a gang, and each task of one that may lose some; all may go.

    A surplus that was taken in this cycle cannot be taken again by another count.
    """
    gangs = [running("a", 4, min_member=2), running("b", 3)]
    session = make_session(
        nodes=[make_node(cpu=10)],
        gangs=[*gangs, make_gang(key="team/zz", roles=[make_role(replicas=1, cpu=1)])],
    )
    (gang,) = session.gangs
    victims = session.victims
    assert victims.surplus.tolist() == [2, 0]
    assert victims.whole.tolist() == [True, *[False] * 4, True]

    def going(units):
        return lawful_of(victims, np.array(units), lambda order: order).tolist()

    assert going([0, 1, 2, 3, 4, 5]) == [0, 1, 2, 5]
    assert going([1, 2, 3]) == [1, 2]
    chosen = np.array([False, False, False, True, True, False])
    session.evict(Ask(gang), chosen, DeletionReason.PREEMPT)
    assert victims.surplus.tolist() == [0, 0]
    assert going([0, 1, 2]) == [0]
    session.undo(0)
    assert victims.surplus.tolist() == [2, 0]
    assert not victims.evicted.any()
    assert session.room.free(np.array([0]), future=True).tolist() == [
        session.room.idle[0].tolist()
    ]


@pytest.mark.parametrize(("together", "answers"), [(False, [YES] * 3), (True, [YES, NO, NO])])
def test_drf(together, answers):
    """Extras may go while that leaves their gang a share no smaller than the claimant's."""
    gangs = [running("a", 4, min_member=1)]
    claimant = make_gang(key="team/zz", roles=[make_role(replicas=3, cpu=1)])
    parts = {"claimant": claimant, "together": together}
    assert ask("drf", "preemptable", gangs, order=[1, 2, 3], **parts) == answers
    assert ask("drf", "preemptable", gangs, order=[0], **parts) == [NO]


def test_proportion():
    """Of a queue above its due goes what leaves it its due, one after another."""
    gangs = [running(key, 2, queue="q1") for key in "abcd"]
    queues = [make_queue(name="q1"), make_queue(name="q2")]
    claimant = make_gang(key="team/zz", queue="q2", roles=[make_role(replicas=6, cpu=1)])
    parts = {"queues": queues, "claimant": claimant}
    assert ask("proportion", "reclaimable", gangs, **parts) == [YES] * 4
    answers = ask("proportion", "reclaimable", gangs, together=True, **parts)
    assert answers == [YES, VETO, VETO, VETO]
    missing = [running("a", 2, queue="gone")]
    assert ask("proportion", "reclaimable", missing, **parts) == [VETO]


def answering(*words):
    """Return a plugin that gives these answers, of the first units of a claim."""
    return Hooks(preemptable=lambda claim: np.array([words[unit] for unit in claim.units]))


@pytest.mark.parametrize(
    ("tiers", "units"),
    [
        pytest.param([], [], id="nobody-answers"),
        pytest.param([[Hooks()], [answering(YES, NO, YES)]], [0, 2], id="one-answers"),
        pytest.param(
            [[answering(YES, YES, NO), answering(NO, YES, YES)]], [1], id="all-of-a-tier"
        ),
        pytest.param([[answering(YES, NO, NO)], [answering(YES, YES, YES)]], [0], id="first-tier"),
        pytest.param(
            [[answering(NO, NO, NO)], [answering(NO, YES, YES)]], [1, 2], id="empty-tier"
        ),
        pytest.param([[answering(YES, YES, NO)], [answering(VETO, YES, YES)]], [1], id="a-veto"),
        pytest.param(
            [[answering(YES, NO, NO)], [answering(VETO, YES, NO)]], [1], id="veto-of-all"
        ),
    ],
)
def test_tiers(tiers, units):
    """Within a tier all agree; the first tier with any decides; a veto holds everywhere."""
    assert Rules(tiers).evictable("preemptable", None, None, np.arange(3)).tolist() == units
