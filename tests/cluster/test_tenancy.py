# SPDX-License-Identifier: Apache-2.0
"""Who holds what on which node, as the scheduler core gets to know it."""

from __future__ import annotations

from builders_scheduler import make_columns, make_gang, make_node, make_queue, make_role
from muster.cluster.assemble import assemble

WAITS = make_gang(key="team/waits", roles=[make_role(replicas=1, cpu=1)])


def rows(columns, *gangs):
    """Return (gang, node, cpu) of what is held."""
    snapshot = assemble(columns, [*gangs, WAITS], [make_queue()], 0.0)
    found = snapshot.tenancy
    return [
        (gang.key, snapshot.nodes.names[found.nodes[row]], int(found.amounts[row, 1]))
        for i, gang in enumerate(found.gangs)
        for row in range(found.bounds[i], found.bounds[i + 1])
    ]


def holds(*held, cpu=1, key="team/a"):
    """Return a gang of tasks on those nodes."""
    return make_gang(key=key, roles=[make_role(cpu=cpu, held=list(enumerate(held)))])


def test_one_row_per_gang_role_and_node():
    """Tasks of one shape on one node are added up; nodes that have gone are left out."""
    columns = make_columns(nodes=[make_node(name="n1"), make_node(name="n2")])
    gang = holds("n2", "n1", "n2", "gone", cpu=2)
    assert sorted(rows(columns, gang)) == [("team/a", "n1", 2000), ("team/a", "n2", 4000)]


def test_nobody_waits():
    """Then nobody needs to know."""
    columns = make_columns(nodes=[make_node(name="n1")])
    assert assemble(columns, [holds("n1")], [make_queue()], 0.0).tenancy is None


def test_rows_follow_changes():
    """Of gangs and of nodes, whose positions shift; what has not changed is kept."""
    columns = make_columns(nodes=[make_node(name="n2")])
    first, second = holds("n2"), holds("n2", key="team/b")
    assert rows(columns, first, second) == [("team/a", "n2", 1000), ("team/b", "n2", 1000)]
    before = assemble(columns, [first, WAITS], [make_queue()], 0.0).tenancy
    assert assemble(columns, [first, WAITS], [make_queue()], 1.0).tenancy is before
    more = make_columns(nodes=[make_node(name="n1"), make_node(name="n2")])
    assert rows(more, first) == [("team/a", "n2", 1000)]
    changed = holds("n2", "n2")
    assert rows(columns, changed, second) == [("team/a", "n2", 2000), ("team/b", "n2", 1000)]
    assert rows(columns) == []


def test_rows_have_every_resource():
    """A resource that was unknown when a gang was first seen adds a column."""
    columns = make_columns(nodes=[make_node(name="n1")])
    gang = holds("n1")
    assert rows(columns, gang)
    wide = make_gang(key="team/gpu", roles=[make_role(gpu=1, held=[(0, "n1")])])
    snapshot = assemble(columns, [gang, wide, WAITS], [make_queue()], 0.0)
    assert snapshot.tenancy.amounts.shape == (2, len(snapshot.resources))
