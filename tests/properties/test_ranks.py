# SPDX-License-Identifier: Apache-2.0
"""Members that are numbered through the domains: in any cluster, of any gang that asks for it."""

from collections import Counter
from itertools import groupby

from hypothesis import event, example, given
from hypothesis import strategies as st

from muster.scheduler import policy
from muster.scheduler.actions.allocate import allocate
from muster.scheduler.model import Topology
from muster.scheduler.ranks import placements
from muster.scheduler.session import Session
from support.builders.scheduler import make_gang, make_node, make_role, make_snapshot

LEVELS = ("zone", "rack", "block")
RULES = {
    "tiers": [
        {"plugins": [{"name": "gang"}, {"name": "nodeorder"}]},
        {
            "plugins": [
                {"name": "predicates"},
                {"name": "topology", "arguments": {"topology.levels": "zone, rack, block"}},
            ]
        },
    ]
}


@st.composite
def clusters(draw):
    """Return nodes in blocks of racks of zones; some have no labels but that of their zone."""
    nodes = []
    for i in range(draw(st.integers(1, 12))):
        zone, rack, block = (draw(st.integers(0, 2)) for _ in LEVELS)
        labels = [
            ("zone", f"{zone}"),
            ("rack", f"{zone}{rack}"),
            ("block", f"{zone}{rack}{block}"),
        ]
        kept = dict(labels[: draw(st.sampled_from([1, 3, 3, 3]))])
        nodes.append(make_node(name=f"n{i:02}", cpu=draw(st.integers(1, 4)), labels=kept))
    return nodes


@st.composite
def gangs(draw):
    """Return a gang of one or two roles that asks for a level, required or preferred."""
    topology = Topology(draw(st.sampled_from(LEVELS)), draw(st.booleans()))
    sizes = draw(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 2)), min_size=1, max_size=2))
    roles = [
        make_role(role=role, replicas=count, cpu=cpu)
        for role, (count, cpu) in zip(("chief", "worker"), sizes, strict=False)
    ]
    return make_gang(topology=topology, roles=roles)


def decided(nodes, gang, rules=RULES):
    """Return the gang's session and state, once it has its nodes if there are any."""
    snapshot = make_snapshot(nodes=nodes, gangs=[gang])
    session = Session(snapshot, policy.parse(rules).openers())
    allocate(session)
    return session, session.gangs[0]


def is_in_runs(values):
    """Say whether equal values follow each other."""
    runs = [value for value, _ in groupby(values)]
    return len(runs) == len(set(runs))


ZONED, RACKED = {"zone": "0"}, {"zone": "0", "rack": "01", "block": "010"}
SOME_RACKED = [
    make_node(name=f"n{i}", cpu=2 if i < 2 else 1, labels=labels)
    for i, labels in enumerate((ZONED, RACKED, {"zone": "1"}, *[RACKED] * 4, ZONED, ZONED))
]
SIZES = {"chief": 3, "worker": 8}
TWO_ROLES = [make_role(role=role, replicas=n, cpu=1) for role, n in SIZES.items()]


@given(nodes=clusters(), gang=gangs())
@example(SOME_RACKED, make_gang(topology=Topology("zone"), roles=TWO_ROLES))
def test_ranks_of_a_domain_are_consecutive(nodes, gang):
    """At every level and on each node; across roles, too, where their tasks are equal."""
    session, state = decided(nodes, gang)
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
    line = sorted((p.role, p.index, p.node) for p in placements(session, state, state.placed()))
    alike = len({role.shape for role in gang.roles}) == 1
    event(f"placed: {bool(line)}, roles: {len(gang.roles)}, alike: {alike}")
    parts = [line] if alike else [list(p) for _, p in groupby(line, lambda each: each[0])]
    for part in parts:
        where = [node for _, _, node in part]
        assert is_in_runs(where)
        for level in LEVELS:
            assert is_in_runs([labels[node].get(level, labels[node]["zone"]) for node in where])


@given(nodes=clusters(), gang=gangs())
def test_the_nodes_are_those_that_were_chosen(nodes, gang):
    """To number the members changes nothing but which of equal ones is where."""
    session, state = decided(nodes, gang)
    names, shapes = session.snapshot.nodes.names, {}
    for tasks in state.tasks:
        shapes[tasks.pod_set.role] = tasks.pod_set.shape
    chosen = [(tasks.pod_set.shape, names[node]) for tasks, _, node in state.placed()]
    numbered = placements(session, state, state.placed())
    assert Counter((shapes[p.role], p.node) for p in numbered) == Counter(chosen)
    before = {(tasks.pod_set.role, index) for tasks, index, _ in state.placed()}
    assert {(p.role, p.index) for p in numbered} == before


@given(
    racks=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4),
    count=st.integers(1, 14),
    size=st.integers(1, 5),
)
def test_slices_are_placed_exactly_if_they_can_be(racks, count, size):
    """Each so many consecutive ranks in one rack, the last ones as many as are left."""
    nodes = [
        make_node(name=f"n{i}{j}", cpu=cpu, labels={"rack": f"r{i}"})
        for i, cpus in enumerate(racks)
        for j, cpu in enumerate(cpus)
    ]
    asked = Topology(slice_level="rack", slice_size=size)
    gang = make_gang(topology=asked, roles=[make_role(replicas=count, cpu=1)])
    session, state = decided(nodes, gang, {})
    found = sorted((p.index, p.node[:2]) for p in placements(session, state, state.placed()))
    room, (whole, rest) = [sum(cpus) for cpus in racks], divmod(count, size)
    possible = any(
        room[at] >= rest
        and sum((free - rest * (i == at)) // size for i, free in enumerate(room)) >= whole
        for at in range(len(room))
    )
    event(f"possible: {possible}")
    assert len(found) == count * possible
    for at in range(0, len(found), size):
        assert len({rack for _, rack in found[at : at + size]}) == 1
