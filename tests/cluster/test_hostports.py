# SPDX-License-Identifier: Apache-2.0
"""Tables of counts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, strategies

from muster.api import model
from muster.cluster import gangs, hostports
from muster.cluster.gangs import GangInput
from muster.cluster.pods import PodShape
from muster.frameworks import FRAMEWORKS, load
from muster.scheduler.model import HostPort
from muster.scheduler.session import Session
from support.apiserver.memory import of_kind
from support.builders.scheduler import make_gang, make_role, make_snapshot, make_template


@pytest.mark.parametrize(("kind", "port"), [("PyTorchJob", 23456), ("TFJob", 2222)])
def test_framework_port_is_a_host_port_on_the_network_of_the_host(monkeypatch, kind, port):
    """Each pod gets the port, so that no node takes two of them, also without a dry run.

    Whatever other threads read meanwhile: their templates may replace this one in the cache.
    """
    monkeypatch.setattr(model, "_unpacked", model._unpacked.__wrapped__)
    document = of_kind(kind, Worker=2)
    (field,) = [key for key in document["spec"] if key.endswith("ReplicaSpecs")]
    document["spec"][field]["Worker"]["template"]["spec"]["hostNetwork"] = True
    job = load(FRAMEWORKS[kind], document)
    found = gangs.shapes_of(job, gangs.templates(job))["Worker"].ports
    assert found == {HostPort("TCP", "*", port)}


PORTS = strategies.builds(
    HostPort,
    strategies.sampled_from(("TCP", "UDP")),
    strategies.sampled_from(("*", "10.0.0.1", "10.0.0.2")),
    strategies.integers(80, 82),
)
SETS = strategies.frozensets(PORTS, max_size=6)


def _meet(one: HostPort, other: HostPort) -> bool:
    """Say as one would by hand whether two ports cannot be on one node."""
    if (one.protocol, one.port) != (other.protocol, other.port):
        return False
    return one.address == other.address or "*" in (one.address, other.address)


@given(
    pods=strategies.lists(
        strategies.tuples(strategies.sampled_from("ab"), SETS, strategies.booleans())
    ),
    gone=strategies.integers(0, 3),
    wanted=SETS,
)
def test_what_meets_is_what_meets_one_by_one(pods, gone, wanted):
    """Looked up by number or tried one by one: the same ports of those that are left count."""
    table, shape = hostports.HostPorts(), PodShape(())
    uses = [
        replace(shape.use("team", f"p{i}", node), ports=ports, deleting=ending)
        for i, (node, ports, ending) in enumerate(pods)
    ]
    for use in uses:
        table.put(use, 1)
    for use in uses[:gone]:
        table.put(use, -1)
    index = {"a": 0, "b": 1}
    found = table.taken(wanted, index)
    for number, only in ((0, False), (1, True)):
        counts = {"a": 0, "b": 0}
        for node, ports, ending in pods[gone:]:
            if ending or not only:
                counts[node] += sum(any(_meet(one, other) for other in wanted) for one in ports)
        told = found[number]
        assert [0, 0] if told is None else told.tolist() == list(counts.values())
        if not only:
            for node, count in counts.items():
                there = (use for use in uses[gone:] if use.node == node)
                assert hostports.meet(there, wanted) == (count > 0)
    for use in uses[gone:]:
        table.put(use, -1)
    assert table.taken(wanted, index) == (None, None)


def _gang(name: str, ports: Iterable[HostPort]) -> GangInput:
    """Return a gang of one task that takes them on its node."""
    documents = [
        {"hostPort": p.port, "protocol": p.protocol, "hostIP": p.address.replace("*", "")}
        for p in ports
    ]
    role = make_role(replicas=1, template=make_template(ports=documents))
    return make_gang(key=f"team/{name}", roles=[role])


@given(one=SETS, other=SETS)
def test_a_session_counts_what_meets_a_shape(one, other):
    """As many of the ports as meet one that a shape wants."""
    snapshot = make_snapshot(gangs=[_gang("a", one), _gang("b", other)])
    session = Session(snapshot, ())
    shapes = {gang.key: gang.pod_sets[0].shape for gang in snapshot.gangs}
    met = session.met(snapshot.shapes[shapes["team/a"]].ports)
    assert met.get(shapes["team/b"], 0) == sum(any(_meet(p, q) for q in other) for p in one)


def test_thousands_of_ports_cost_as_many_looks():
    """A tenant may store jobs of 3,000 ports each: 9 million pairs of each two of them."""
    gangs = [
        _gang(str(job), [HostPort("TCP", "*", 3000 * job + port) for port in range(3000)])
        for job in range(1, 9)
    ]
    snapshot = make_snapshot(gangs=gangs)
    started = time.process_time()
    session = Session(snapshot, ())
    for gang in snapshot.gangs:
        assert session.met(snapshot.shapes[gang.pod_sets[0].shape].ports)
    assert time.process_time() - started < 1
