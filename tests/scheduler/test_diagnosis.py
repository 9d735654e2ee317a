# SPDX-License-Identifier: Apache-2.0
"""Sentences about what does not fit."""

import pytest

from muster.scheduler import cycle, diagnosis, policy
from muster.scheduler.diagnosis import Obstacles
from support.builders.scheduler import make_gang, make_node, make_pod, make_role, make_snapshot


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 4000, "4"),
        ("nvidia.com/gpu", 8000, "8"),
        ("pods", 0, "0"),
        ("memory", 512, "512"),
        ("memory", 16 << 30, "16Gi"),
        ("memory", 3 << 29, "1.5Gi"),
        ("ephemeral-storage", 2 << 40, "2Ti"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("memory", 1 << 70, "1024Ei"),
    ],
)
def test_amount(resource, value, text):
    """Amounts read as in manifests."""
    assert diagnosis.amount(resource, value) == text


def test_sentence_is_sorted_by_count_then_name():
    """The most frequent reason comes first, of none there are none; pod slots are called pods."""
    found = Obstacles({"cpu": 2, "pods": 3}, {"node(s) were unschedulable": 2})
    assert found.sentence(7) == (
        "0/7 nodes are available, 3 too many pods, 2 insufficient cpu, "
        "2 node(s) were unschedulable"
    )
    assert Obstacles({}, {}).sentence(0) == "0/0 nodes are available"


def test_nodes_that_a_plugin_of_two_tiers_bars_are_counted_once():
    """The second answer, of the same texts, bars no further node and takes nothing away."""
    tiers = [{"plugins": [{"name": "gang"}, {"name": "predicates"}]}] * 2
    taint = {"key": "x", "effect": "NoSchedule"}
    nodes = [make_node(name="n1", taints=[taint]), make_node(name="n2", cpu=1)]
    gang = make_gang(roles=[make_role(replicas=2, cpu=2)])
    (decision,) = cycle.schedule(
        make_snapshot(nodes=nodes, gangs=[gang]), policy.parse({"tiers": tiers})
    )
    assert decision.verdict.ruled_out["node(s) had untolerated taint {x: }"] == 1


@pytest.mark.parametrize(
    ("cpu", "gpu", "replicas", "told"),
    [
        # The CPUs are in use, but without other pods only the GPUs are too few.
        (1, 2, 5, "3 nodes lack nvidia.com/gpu (need 5*2, all nodes together 6)"),
        (1, 3, 2, "3 nodes lack nvidia.com/gpu (need 2*3, largest node 2)"),
        # The sum of all nodes is large enough, their parts are not.
        (3, 0, 4, "3 nodes lack cpu (need 4*3, all nodes hold 3 of them)"),
    ],
)
def test_summary_of_a_gang_that_never_fits_names_what_empty_nodes_lack(cpu, gpu, replicas, told):
    """The amounts of the summary are too small even if no other pod runs."""
    nodes = [make_node(name=f"n{i}", cpu=5, gpu=2) for i in range(3)]
    pods = [make_pod(name=f"p{i}", node=f"n{i}", cpu=5) for i in range(3)]
    gang = make_gang(
        roles=[make_role(replicas=replicas, cpu=cpu, **({"gpu": gpu} if gpu else {}))]
    )
    (decision,) = cycle.schedule(
        make_snapshot(nodes=nodes, pods=pods, gangs=[gang]), policy.DEFAULT
    )
    assert not decision.verdict.ever_possible
    summary = decision.verdict.summary.replace("\N{MULTIPLICATION SIGN}", "*")
    assert summary == f"0/{replicas} placed: {told}"
