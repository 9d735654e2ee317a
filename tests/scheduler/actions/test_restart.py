# SPDX-License-Identifier: Apache-2.0
"""What the search for other nodes of a gang that restarts may cost."""

from muster.scheduler import budget
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, run


def decided():
    """Return what is decided for a gang whose master fits where its worker runs."""
    master = make_role(role="master", waiting=[0], previous={0: "n2"}, cpu=8)
    worker = make_role(role="worker", held=[(0, "n1")], cpu=4)
    gang = make_gang(roles=[master, worker], admitted=True, hold_until=999.0, restarts_from=990.0)
    nodes = [make_node(name="n1", cpu=8), make_node(name="n3", cpu=4)]
    return run(nodes=nodes, pods=[make_pod(name="w", cpu=4)], gangs=[gang])["team/a"]


def test_search_for_other_nodes_goes_on_in_a_later_cycle(monkeypatch):
    """A search that the budget cuts off evicts nothing."""
    assert len(decided().evictions) == 1
    monkeypatch.setattr(budget, "FIRST", 1)
    decision = decided()
    assert (decision.evictions, decision.moves, decision.deferred) == ((), (), True)
