# SPDX-License-Identifier: Apache-2.0
"""Policy files: kube-batch's form, and what is said about a wrong one."""

from __future__ import annotations

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


def plugin(**option):
    """Return a document with this plugin alone."""
    return {"tiers": [{"plugins": [option]}]}


def configured(**part):
    """Return a document with this configuration of an action alone."""
    return {"configurations": [part]}


def argument(name, key, value, text):
    """Return a plugin with a wrong argument, where it is, and what is reported."""
    return plugin(name=name, arguments={key: value}), f"{PLUGIN}.arguments.{key}", text


def of_action(name, key, value, text):
    """Return the same of an action."""
    return configured(name=name, arguments={key: value}), f"{CONFIGURED}.arguments.{key}", text


CONFIGURED = "configurations[0]"
PLUGIN = "tiers[0].plugins[0]"
WRONG = [
    ([], "", "must be a mapping"),
    ("allocate", "", "must be a mapping"),
    ({"action": "allocate"}, "action", '"action" is no key of a policy; did you mean "actions"?'),
    ({"actions": "alocate"}, "actions", '"alocate" is no action; did you mean "allocate"?'),
    ({"actions": "xyz"}, "actions", "Known are: allocate, backfill, defragment, enqueue"),
    ({"actions": ["allocate"]}, "actions", 'write the names in one string: "allocate, backfill"'),
    ({"actions": " , "}, "actions", "names no action"),
    ({"tiers": {}}, "tiers", "must be a list"),
    ({"tiers": [[]]}, "tiers[0]", "must be a mapping"),
    ({"tiers": [{"plugin": []}]}, "tiers[0].plugin", 'did you mean "plugins"?'),
    ({"tiers": [{"plugins": "gang"}]}, "tiers[0].plugins", "must be a list"),
    ({"tiers": [{"plugins": ["gang"]}]}, PLUGIN, "must be a mapping"),
    (plugin(), f"{PLUGIN}.name", "a plugin needs a name"),
    (plugin(name="gangs"), f"{PLUGIN}.name", '"gangs" is no plugin; did you mean "gang"?'),
    (plugin(name="BinPack"), f"{PLUGIN}.name", 'did you mean "binpack"?'),
    (
        plugin(name="drf", enabledJobOrder=False),
        f"{PLUGIN}.enabledJobOrder",
        'did you mean "enableJobOrder"?',
    ),
    (plugin(name="drf", enableJobOrder="no"), f"{PLUGIN}.enableJobOrder", "is either true or"),
    argument(
        "nodeorder",
        "leastrequest.weight",
        1,
        'is no argument of nodeorder; did you mean "leastrequested.weight"?',
    ),
    argument(
        "nodeorder",
        "leastrequested.weight",
        "much",
        '"much" is no weight; write a number, 0 or more',
    ),
    argument("binpack", "binpack.cpu", "-1", "no weight"),
    argument("binpack", "binpack.cpu", "inf", "no weight"),
    argument("binpack", "binpack.resources.", "1", "is no argument of binpack"),
    argument("binpack", "binpack.shape", "0:0,0:100", "like 0:0,100:100"),
    argument("binpack", "binpack.shape", "0:0,100:101", "is no shape"),
    argument("predicates", "predicate.PIDPressureEnable", "maybe", "neither true nor false"),
    argument("gang", "x", 1, "gang takes none"),
    ({"configurations": {}}, "configurations", "must be a list"),
    (configured(), f"{CONFIGURED}.name", "names no action"),
    (configured(name="gang"), f"{CONFIGURED}.name", '"gang" is no action'),
    (configured(name="preempt", argument={}), f"{CONFIGURED}.argument", '"arguments"?'),
    of_action("preempt", "mode", "move", "preempt takes none"),
    of_action(
        "defragment",
        "defragment.moves",
        1,
        'is no argument of defragment; did you mean "defragment.mode"?',
    ),
    of_action("defragment", "defragment.mode", "ask", '"ask" is neither move nor propose'),
    *[
        of_action(
            "defragment",
            "defragment.movesPerHour",
            count,
            f'"{count}" is no number of moves; write 1 or more',
        )
        for count in (0, -1, "1.5", "many")
    ],
    (plugin(name="gang", arguments=[1]), f"{PLUGIN}.arguments", "must be a mapping"),
]


@pytest.mark.parametrize(("document", "key", "text"), WRONG, ids=[str(row[0]) for row in WRONG])
def test_wrong(document, key, text):
    """A wrong policy names its key, and the nearest right one if a name is wrong."""
    with pytest.raises(PolicyError) as caught:
        policy.parse(document)
    assert caught.value.key == key
    assert text in caught.value.message
    assert str(caught.value) == (f"{key}: {caught.value.message}" if key else caught.value.message)
