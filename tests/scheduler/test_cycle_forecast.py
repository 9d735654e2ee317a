# SPDX-License-Identifier: Apache-2.0
"""The number of cycles of a forecast; its stories are in scenarios/scheduler/starts-*.yaml."""

from muster.scheduler import cycle, policy
from support.builders.scheduler import make_gang, make_node, make_role, make_snapshot


def test_it_looks_no_further_than_so_many_cycles(monkeypatch):
    """Of a long queue only the beginning is told."""
    task = [make_role(replicas=1, cpu=4)]
    gangs = [make_gang(key=f"team/w{i}", created=i, duration=10.0, roles=task) for i in range(10)]
    snapshot = make_snapshot(nodes=[make_node(cpu=4)], gangs=gangs)

    def told():
        return len(cycle.forecast(snapshot, policy.DEFAULT, [gang.key for gang in gangs]))

    assert told() == 10
    monkeypatch.setattr(cycle, "LOOKS", 4 * len(gangs))
    assert told() == 4
    monkeypatch.setattr(cycle, "CYCLES", 2)
    assert told() == 2
