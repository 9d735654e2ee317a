# SPDX-License-Identifier: Apache-2.0
"""fragmentation places a task where it leaves the fewest devices without use, to the digit."""

import numpy as np

from muster.scheduler import policy
from muster.scheduler.ask import Ask
from muster.scheduler.plugins.fragmentation import workload
from support.builders.scheduler import make_gang, make_node, make_role, make_session, make_snapshot


def rules(weight="1"):
    """Return a policy in which fragmentation alone scores."""
    option = {"name": "fragmentation", "arguments": {"fragmentation.weight": weight}}
    return policy.parse({"tiers": [{"plugins": [{"name": "gang"}, option]}]})


def ranks(*, nodes, gangs, weight="1"):
    """Return the rank of each node for the next task of the first gang."""
    session = make_session(with_policy=rules(weight), nodes=nodes, gangs=gangs)
    return session.fit(Ask(session.gangs[0]), session.gangs[0].tasks[0]).rank.tolist()


def gang(key, *, replicas=1, **amounts):
    """Return a gang of one role."""
    return make_gang(key=f"team/{key}", roles=[make_role(replicas=replicas, **amounts)])


def test_the_formula():
    """Half of the tasks want two devices, half one: of one that is left half is of no use.

    n1 has two free, n2 has three. On n1 one of two goes and one is left: 2 * 0 useless before,
    1 * 1/2 after. On n2 two are left of three: 3 * 0 before, 2 * 0 after.
    """
    nodes = [make_node(name="n1", gpu=2), make_node(name="n2", gpu=3)]
    both = [gang("a", gpu=1), gang("b", gpu=2)]
    assert ranks(nodes=nodes, gangs=both) == [-50, 0]
    assert ranks(nodes=nodes, gangs=both, weight="3") == [-150, 0]


def test_what_is_of_no_use_anyway_goes_first():
    """A node without enough cpu for the larger tasks is where the smaller ones belong."""
    nodes = [make_node(name="n1", gpu=4), make_node(name="n2", gpu=4, cpu=2)]
    mixed = [gang("a", gpu=1, cpu=1), gang("b", replicas=3, gpu=1, cpu=4)]
    # On n2 three quarters of each device were useless before, and one device less is so now.
    assert ranks(nodes=nodes, gangs=mixed) == [0, 75]


def test_tasks_without_devices_keep_away_from_them():
    """A task of cpu alone goes where it takes none from the devices."""
    nodes = [make_node(name="n1", gpu=2, cpu=4), make_node(name="n2", gpu=2, cpu=8)]
    mixed = [gang("a", cpu=2), gang("b", gpu=1, cpu=4)]
    assert ranks(nodes=nodes, gangs=mixed) == [-100, 0]
    assert ranks(nodes=[make_node(), make_node(name="n2")], gangs=[gang("a", cpu=2)]) == [0, 0]


def test_who_runs_counts_as_well_as_who_waits():
    """The tasks of a cluster are those of all its gangs, by how many they are."""
    held = [(i, "n1") for i in range(3)]
    running = make_gang(key="team/run", roles=[make_role(gpu=2, cpu=1, held=held)])
    snapshot = make_snapshot(gangs=[running, gang("a", gpu=1)], nodes=[make_node(gpu=8)])
    known = workload(snapshot)
    column = snapshot.resources.index("nvidia.com/gpu")
    assert known.devices.tolist() == [column]
    assert known.classes[:, column].tolist() == [2000, 1000]
    assert known.shares.tolist() == [0.75, 0.25]
    free = np.zeros((1, len(snapshot.resources)), np.int64)
    free[0, :] = 1000
    # One device and one cpu: too little for those that want two devices.
    assert known.useless(free).tolist() == [750]
