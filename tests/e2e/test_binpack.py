# SPDX-License-Identifier: Apache-2.0
"""Policies of `examples/policies` about nodes: to be filled up, to be near each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from support.e2e.harness import Api, StartOperator, add_nodes, node_of, tfjob

pytestmark = pytest.mark.e2e


SEEDS = Path(__file__).parents[1] / "seeds"
POLICIES = Path(__file__).parents[2] / "examples" / "policies"
POLICY = POLICIES / "binpack.yaml"
NODE = {"cpu": "8", "nvidia.com/gpu": "4"}


def nodes_of_seed(api: Api) -> list[str]:
    """Apply the job of seed 004 and return the nodes of its pods, of the PS first.

    One PS and four workers with a GPU each, on two nodes with four GPUs each.
    """
    add_nodes(api, NODE, NODE)
    api.create_file(SEEDS / "tfjob-v1-binpack.yaml")
    pods = api.wait_pods(5, "Running", "tf-smoke-gpu")
    by_name = {pod["metadata"]["name"]: node_of(pod) for pod in pods}
    return [by_name[name] for name in sorted(by_name)]


def test_the_policy_says_what_the_seed_says() -> None:
    """Weights and shape of the seed's RequestedToCapacityRatio, and no other score."""
    seed = yaml.safe_load((SEEDS / "kube-scheduler-binpack.yaml").read_text())
    args = seed["pluginConfig"][0]["args"]
    plugins = {
        plugin["name"]: plugin.get("arguments", {})
        for tier in yaml.safe_load(POLICY.read_text())["tiers"]
        for plugin in tier["plugins"]
    }
    binpack = plugins["binpack"]
    assert args["resourcetoweightmap"] == {
        "cpu": int(binpack["binpack.cpu"]),
        "nvidia.com/gpu": int(binpack["binpack.resources.nvidia.com/gpu"]),
    }
    assert seed["plugins"]["score"]["enabled"][0]["weight"] == int(binpack["binpack.weight"])
    points = ",".join(f"{p['utilization']}:{p['score']}" for p in args["functionshape"])
    assert points == binpack["binpack.shape"]
    assert "nodeorder" not in plugins


def test_it_lands_on_one_node_with_binpack(api: Api, start_operator: StartOperator) -> None:
    """The PS draws all workers to its node, although none of them asks for cpu."""
    start_operator(f"--scheduler-conf={POLICY}")
    assert nodes_of_seed(api) == ["node-1"] * 5


def test_it_lands_on_two_nodes_without(api: Api, start_operator: StartOperator) -> None:
    """By default pods are spread."""
    start_operator()
    assert len(set(nodes_of_seed(api))) == 2


def test_a_gang_stays_in_one_rack_with_topology(api: Api, start_operator: StartOperator) -> None:
    """Two nodes of one rack hold it, so it is not spread over the four nodes of both."""
    for index, name in enumerate(add_nodes(api, *[{"cpu": "2"}] * 4)):
        labels = {"example.com/rack": f"r{index % 2}", "topology.kubernetes.io/zone": "z"}
        api.patch("Node", name, {"metadata": {"labels": labels}})
    start_operator(f"--scheduler-conf={POLICIES / 'topology.yaml'}")
    api.create(tfjob("near", workers=4, run="forever", resources={"cpu": "1"}))
    used = {node_of(pod) for pod in api.wait_pods(4, "Running", "near")}
    assert used in ({"node-1", "node-3"}, {"node-2", "node-4"})
