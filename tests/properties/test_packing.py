# SPDX-License-Identifier: Apache-2.0
"""Against the best that can be done, found by trying everything on small clusters."""

from hypothesis import event, example, given
from hypothesis import strategies as st

from muster.scheduler import policy
from support.builders.scheduler import make_gang, make_node, make_role, make_template, run

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def make_nodes(amounts):
    """Return the documents of these nodes."""
    return [
        make_node(name=f"n{i}", cpu=cpu, gpu=gpu, labels={HOST: f"n{i}", "zone": zone})
        for i, (cpu, gpu, zone) in enumerate(amounts)
    ]


def as_gang(roles, term=None, **fields):
    """Return a gang, the pods of whose roles each keep near to, or apart from, their like."""
    made = []
    for name, (count, cpu, gpu) in zip(("worker", "ps", "chief"), roles, strict=False):
        spec = {"cpu": cpu, "gpu": gpu, "labels": {"role": name, "gang": fields.get("key", "")}}
        if term:
            kind, key = term
            like = {"topologyKey": key, "labelSelector": {"matchLabels": spec["labels"]}}
            spec["affinity"] = {kind: {REQUIRED: [like]}}
        made.append(make_role(role=name, replicas=count, template=make_template(**spec)))
    return make_gang(roles=made, **fields)


def splits(count, limits):
    """Yield how many of so many equal tasks each node may get."""
    if not limits:
        if not count:
            yield ()
        return
    for first in range(min(count, limits[0]) + 1):
        for rest in splits(count - first, limits[1:]):
            yield (first, *rest)


def allowed(split, zones, term):
    """Say whether a role spread like this keeps to its term."""
    if term is None:
        return True
    kind, key = term
    groups = range(len(split)) if key == HOST else zones
    held = {}
    for group, count in zip(groups, split, strict=True):
        held[group] = held.get(group, 0) + count
    if kind == "podAffinity":
        return sum(count > 0 for count in held.values()) <= 1
    return all(count <= 1 for count in held.values())


def outcomes(free, zones, roles, term):
    """Yield what is free on the nodes after each way to place all of the gang."""
    if not roles:
        yield free
        return
    (count, cpu, gpu), *rest = roles
    limits = [min(c // cpu if cpu else count, g // gpu if gpu else count) for c, g in free]
    for split in splits(count, limits):
        if allowed(split, zones, term):
            left = tuple((c - n * cpu, g - n * gpu) for (c, g), n in zip(free, split, strict=True))
            yield from outcomes(left, zones, rest, term)


NODES = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 4), st.sampled_from("ab")), min_size=1, max_size=4
)
"""(cpu, gpu, zone) of each."""
ROLES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=2
)
"""(tasks, cpu, gpu) of each."""
TERMS = st.sampled_from(
    [None, ("podAntiAffinity", HOST), ("podAffinity", "zone"), ("podAntiAffinity", "zone")]
)


@given(nodes=NODES, roles=ROLES, term=TERMS)
@example(
    nodes=[(4, 0, "a"), (6, 0, "b")], roles=[(1, 2, 0), (3, 2, 0)], term=("podAffinity", "zone")
)
def test_what_fits_alone_is_never_refused(nodes, roles, term):
    """A gang on an empty cluster starts exactly if there is any way to place it."""
    free = tuple((cpu, gpu) for cpu, gpu, _ in nodes)
    zones = [zone for _, _, zone in nodes]
    possible = next(outcomes(free, zones, roles, term), None) is not None
    decision = run(nodes=make_nodes(nodes), gangs=[as_gang(roles, term)])["team/a"]
    event(f"possible: {possible}, term: {term}")
    assert bool(decision.placements) == possible


RACKS = st.lists(st.integers(1, 5), min_size=5, max_size=9).map(
    lambda cpus: [(cpu, 0, "abcdefg"[i % 7]) for i, cpu in enumerate(cpus)]
)
"""(cpu, gpu, rack) of each."""
IN_ONE = policy.parse(
    {
        "tiers": [
            {
                "plugins": [
                    {"name": "gang"},
                    {"name": "predicates"},
                    {"name": "topology", "arguments": {"topology.required": "zone"}},
                ]
            }
        ]
    }
)


@given(
    nodes=RACKS,
    roles=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.just(0)), min_size=2, max_size=2
    ),
)
def test_in_one_rack_if_any_holds_all_roles(nodes, roles):
    """Each is a candidate, judged by all that the gang's roles take of it together."""
    racks = {zone: [(c, g) for c, g, z in nodes if z == zone] for _, _, zone in nodes}
    holds = {
        zone
        for zone, free in racks.items()
        if next(outcomes(tuple(free), [zone] * len(free), roles, None), None) is not None
    }
    decision = run(nodes=make_nodes(nodes), gangs=[as_gang(roles)], with_policy=IN_ONE)["team/a"]
    chosen = {nodes[int(placement.node[1:])][2] for placement in decision.placements}
    event(f"possible: {bool(holds)}")
    assert bool(chosen) == bool(holds)
    assert chosen <= holds
    assert len(chosen) <= 1
