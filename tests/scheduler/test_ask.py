# SPDX-License-Identifier: Apache-2.0
"""What a search is asked."""

import numpy as np

from muster.scheduler.ask import Ask
from muster.scheduler.model import CPU
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_session


def one_gang(**parts):
    """Return a session in which one gang waits, and its tasks."""
    parts = {"nodes": [make_node(name="n1", cpu=4), make_node(name="n2", cpu=4)], **parts}
    gang = make_gang(roles=[make_role(replicas=2, cpu=1)])
    session = make_session(gangs=[gang], **parts)
    return session, session.gangs[0], session.gangs[0].tasks[0]


def test_regions_of_nested_asks_are_intersected():
    """A confined ask keeps the outer confinement, and the outer ask stays as it is."""
    session, gang, tasks = one_gang()
    shape = tasks.pod_set.shape
    outer = Ask(gang).inside({shape: np.array([True, False])})
    inner = outer.inside({shape: np.array([True, True])})
    nowhere = inner.inside({shape: np.array([False, True])})
    assert [session.pick(ask, tasks, 2).order for ask in (outer, inner, nowhere)] == [
        [0, 0],
        [0, 0],
        [],
    ]
    assert session.pick(Ask(gang), tasks, 2).order == [0, 1]


def test_reserved_resources_are_free_only_for_asks_that_ignore_the_reservation():
    """Both kinds of ask can be answered in turn from one session."""
    session, gang, tasks = one_gang(nodes=[make_node(cpu=4)])
    kept = np.zeros_like(session.room.idle)
    kept[0, CPU] = 3000
    session.room.reserve(kept, np.zeros_like(kept), 0.0)
    asks = (Ask(gang), Ask(gang, unreserved=True), Ask(gang))
    assert [session.fit(ask, tasks).capacity.tolist() for ask in asks] == [[1], [4], [1]]


def test_ending_pods_count_only_for_asks_that_may_be_promised_resources():
    """An ask that is to start now has only what is free now."""
    pods = [make_pod(cpu=4, deleting=True)]
    session, gang, _ = one_gang(nodes=[make_node(cpu=4)], pods=pods)
    assert session.counts_ending(Ask(gang))
    assert not session.counts_ending(Ask(gang, ending=False))


def test_fullest_node_comes_first_only_for_tight_asks():
    """The plugins prefer the emptiest node; a tight ask packs."""
    session, gang, tasks = one_gang(pods=[make_pod(node="n2", cpu=1)])
    asks = (Ask(gang), Ask(gang, tight=True), Ask(gang))
    assert [session.pick(ask, tasks, 1).order for ask in asks] == [[0], [1], [0]]
