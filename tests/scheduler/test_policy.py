# SPDX-License-Identifier: Apache-2.0
"""Policy files: kube-batch's form, and what is said about a wrong one."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from muster.scheduler import policy
from muster.scheduler.policy import DEFAULT, Option, Policy, PolicyError

EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"
SEEDS = Path(__file__).parents[1] / "seeds"
SEED = """
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


def test_seed_file_is_the_default():
    """The seed's file says what happens without a file, the namespaces' quotas apart."""
    without = tuple(tuple(o for o in tier if o.name != "quota") for tier in DEFAULT.tiers)
    assert policy.parse(yaml.safe_load(SEED)) == replace(DEFAULT, tiers=without)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_files_of_the_examples_are_understood(path):
    """Every name in them is known; what they are for is in stories of their own."""
    assert policy.parse(yaml.safe_load(path.read_text())).tiers


def test_the_binpack_policy_scores_like_the_seed():
    """It has the weights and the shape of the seed, and no other score."""
    seed = yaml.safe_load((SEEDS / "kube-scheduler-binpack.yaml").read_text())
    args = seed["pluginConfig"][0]["args"]
    plugins = {
        plugin["name"]: plugin.get("arguments", {})
        for tier in yaml.safe_load((EXAMPLES / "binpack.yaml").read_text())["tiers"]
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


def test_empty_file_is_the_default():
    """What a file leaves out is as without a file."""
    assert policy.parse({}) == DEFAULT
    assert policy.parse({"actions": "allocate"}) == Policy(("allocate",), DEFAULT.tiers)


def test_switches_and_arguments():
    """Hooks are switched off by either spelling, arguments become values."""
    text = """
    tiers:
    - plugins:
      - {name: drf, enableJobOrder: false}
      - {name: predicates, disablePredicate: true, enableNodeOrder: true,
         arguments: {predicate.MemoryPressureEnable: true, predicate.DiskPressureEnable: "False"}}
      - name: binpack
        arguments: {binpack.weight: 10, binpack.resources: "nvidia.com/gpu, example.com/foo",
          binpack.resources.example.com/foo: "3", binpack.shape: "0:0,50:100"}
    """
    (tier,) = policy.parse(yaml.safe_load(text)).tiers
    assert tier == (
        Option("drf", off=frozenset({"head_order", "job_order"})),
        Option(
            "predicates",
            off=frozenset({"feasible", "regions"}),
            arguments={
                "predicate.MemoryPressureEnable": True,
                "predicate.DiskPressureEnable": False,
            },
        ),
        Option(
            "binpack",
            arguments={
                "binpack.weight": 10.0,
                "binpack.resources": ("nvidia.com/gpu", "example.com/foo"),
                "binpack.resources.example.com/foo": 3.0,
                "binpack.shape": ((0.0, 0.0), (50.0, 100.0)),
            },
        ),
    )


def test_arguments_of_an_action():
    """They stand as in Volcano's files, and only who moves gangs needs to know of moves."""
    text = """
    actions: "allocate, defragment"
    configurations:
    - name: defragment
      arguments: {defragment.mode: propose, defragment.movesPerHour: 2}
    """
    parsed = policy.parse(yaml.safe_load(text))
    given = {"defragment.mode": "propose", "defragment.movesPerHour": 2}
    assert parsed.arguments == {"defragment": given}
    assert parsed.moves
    assert not DEFAULT.moves


WRONG = yaml.safe_load((Path(__file__).parents[1] / "corpus" / "policies.yaml").read_text())


@pytest.mark.parametrize("row", WRONG, ids=lambda row: str(row["policy"]))
def test_wrong(row):
    """A wrong policy names its key, and the nearest right one if a name is wrong."""
    with pytest.raises(PolicyError) as caught:
        policy.parse(row["policy"])
    key, message = caught.value.key, caught.value.message
    assert key == row["key"]
    assert row["says"] in message
    assert str(caught.value) == (f"{key}: {message}" if key else message)
