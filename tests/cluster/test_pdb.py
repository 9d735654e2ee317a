# SPDX-License-Identifier: Apache-2.0
"""Which pods a PodDisruptionBudget keeps."""

from __future__ import annotations

import dataclasses

import pytest

from builders import make_pod
from muster.cluster.pdb import Budgets, parse


def budget(selector, allowed=1, namespace="team"):
    """Return a parsed budget."""
    return parse(
        {
            "metadata": {"namespace": namespace, "name": "b"},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed},
        }
    )


PODS = [
    dataclasses.replace(make_pod(name=f"p{i}"), labels={"app": "x"}, node="n", deleting=False)
    for i in range(2)
]


@pytest.mark.parametrize(
    ("made", "forbids"),
    [
        (budget({"matchLabels": {"app": "x"}}), True),
        (budget({"matchLabels": {"app": "x"}}, allowed=2), False),
        (budget({"matchLabels": {"app": "y"}}), False),
        (budget({"matchExpressions": [{"key": "app", "operator": "Exists"}]}), True),
        (budget({}), True),
        (budget(None), False),
        (budget({}, namespace="other"), False),
    ],
)
def test_forbid(made, forbids):
    """It counts the pods that it selects in its namespace against what it allows."""
    budgets = Budgets()
    budgets.changed(None, made)
    assert budgets.forbid("team", PODS) is forbids
    budgets.changed(made, None)
    assert not budgets.forbid("team", PODS)


@pytest.mark.parametrize(("allowed", "forbids"), [(0, True), (None, True), (1, False)])
def test_the_last_one(allowed, forbids):
    """A budget that allows nothing, or of which nobody has said what it allows, keeps one pod."""
    budgets = Budgets()
    budgets.changed(None, budget({}, allowed=allowed))
    assert budgets.forbid("team", PODS[:1]) is forbids
