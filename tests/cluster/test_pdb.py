# SPDX-License-Identifier: Apache-2.0
"""Which pods a PodDisruptionBudget keeps."""

import dataclasses

import pytest

from muster.cluster.pdb import Budgets, parse
from support.builders.objects import make_pod
from support.rehearsal.call_count import calls


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
    ("made", "count", "forbids"),
    [
        (budget({"matchLabels": {"app": "x"}}), 2, True),
        (budget({"matchLabels": {"app": "x"}}, allowed=2), 2, False),
        (budget({"matchLabels": {"app": "y"}}), 2, False),
        (budget({"matchExpressions": [{"key": "app", "operator": "Exists"}]}), 2, True),
        (budget({}), 2, True),
        (budget(None), 2, False),
        (budget({}, namespace="other"), 2, False),
        # One that allows nothing, or of which nothing is known, forbids a single pod.
        (budget({}, allowed=0), 1, True),
        (budget({}, allowed=None), 1, True),
        (budget({}), 1, False),
    ],
)
def test_forbid(made, count, forbids):
    """It counts the pods that it selects in its namespace against what it allows."""
    budgets, pods = Budgets(), PODS[:count]
    budgets.changed(None, made)
    assert budgets.forbid("team", pods) is forbids
    budgets.changed(made, None)
    assert not budgets.forbid("team", pods)


def test_budgets_are_held_against_kinds_of_pods():
    """However many of both there are, each of which has labels of its own that nobody asks for."""
    budgets = Budgets()
    for i in range(200):
        budgets.changed(
            None, dataclasses.replace(budget({"matchLabels": {"app": "y"}}), name=f"b{i}")
        )

    def cost(count):
        labels = ({"app": "x", "own": str(i)} for i in range(count))
        pods = [dataclasses.replace(PODS[0], labels=each) for each in labels]
        assert not budgets.forbid("team", pods)
        return calls(lambda: budgets.forbid("team", pods))

    assert cost(400) < 4 * cost(4)


def test_too_many_kinds_and_budgets_count_as_the_worst():
    """Whoever has so many of both is rather not evicted; nobody waits for the answer."""
    budgets, count = Budgets(), 200
    for i in range(count):
        made = budget({"matchExpressions": [{"key": f"k{i}", "operator": "Exists"}]}, allowed=9)
        budgets.changed(None, dataclasses.replace(made, name=f"b{i}"))
    pods = [dataclasses.replace(PODS[0], labels={f"k{i}": "x"}) for i in range(count)]
    assert budgets.forbid("team", pods)
    assert calls(lambda: budgets.forbid("team", pods)) < 20 * count
    assert not budgets.forbid("team", pods[: count // 4])


def test_kinds_and_large_selectors_count_as_the_worst():
    """One user could else stop the scheduler with a few budgets of 1,000 requirements each."""
    asked = [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(1000)]
    budgets = Budgets()
    budgets.changed(None, budget({"matchExpressions": asked, "matchLabels": {}}, allowed=999))
    pods = [dataclasses.replace(PODS[0], labels={f"k{i}": "x"}) for i in range(100)]
    assert budgets.forbid("team", pods)
    assert calls(lambda: budgets.forbid("team", pods)) < 1000


def test_versions_never_come_back():
    """What was found by one is good for as long as it is that one."""
    budgets, seen = Budgets(), [0]
    for made in (budget({}), budget({}, allowed=2)):
        budgets.changed(None, made)
        seen.append(budgets.version("team"))
        budgets.changed(made, None)
        assert budgets.version("team") == 0
    assert len(set(seen)) == 3
    assert budgets.version("other") == 0
