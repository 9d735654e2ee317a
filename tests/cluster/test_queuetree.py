# SPDX-License-Identifier: Apache-2.0
"""The tree that queues make, also where their objects do not go together."""

import pytest

from muster.cluster.queues import FLAT, QueueInput, QueueShape, parse_queue, shape_document
from muster.cluster.queuetree import LEVELS, settle

A, B, C = (QueueShape(parent) for parent in "abc")


def queue(name, shape=FLAT, kept=FLAT, cpu=None, *, guarantee=None, had=None):
    """Return a queue; amounts are of CPUs."""
    capability = {} if cpu is None else {"cpu": cpu}
    shape = QueueShape(shape.parent, {"cpu": guarantee}) if guarantee else shape
    kept = QueueShape(kept.parent, {"cpu": had}) if had else kept
    return QueueInput(name, capability=capability, shape=shape, kept=kept)


def stand(*queues):
    """Return name -> (parent, guarantee, problem)."""
    return {
        name: (each.shape.parent, each.shape.guarantee.get("cpu", 0), each.problem)
        for name, each in settle(queues).items()
    }


def test_a_tree():
    """As the objects say; nothing is said of queues side by side."""
    assert settle([queue("a"), queue("b", cpu=3)]) == {}
    assert stand(queue("a"), queue("b", A), queue("c", B, guarantee=3)) == {
        "a": ("", 0, ""),
        "b": ("a", 0, ""),
        "c": ("b", 3, ""),
    }


def test_a_parent_that_is_not_there():
    """The last one counts, as long as it is there; else the queue is a part of the cluster."""
    why = 'its parent "c" does not exist'
    assert stand(queue("a"), queue("b", C, kept=A))["b"] == ("a", 0, why)
    assert stand(queue("b", C, kept=A))["b"] == ("", 0, why)
    assert stand(queue("b", C))["b"] == ("", 0, why)


def test_a_ring():
    """Whoever was changed last closes it, and keeps its place; else nobody is below another."""
    why = "it would be a part of itself: a in b in a"
    assert stand(queue("a", B), queue("b", A, kept=A)) == {"a": ("", 0, why), "b": ("a", 0, "")}
    both = stand(queue("a", B), queue("b", A))
    assert both == {"a": ("", 0, why), "b": ("", 0, why)}
    below = stand(queue("a", B), queue("b", A, kept=A), queue("c", A, guarantee=2))
    assert below["c"] == ("a", 2, "")
    assert stand(queue("a", A))["a"] == ("", 0, "it would be a part of itself: a in a")


def test_too_many_levels():
    """The last ones that do not fit are parts of the cluster."""
    names = [f"q{i}" for i in range(LEVELS + 1)]
    chain = [queue(n, QueueShape(up)) for n, up in zip(names, ["", *names], strict=False)]
    why = f"more than {LEVELS} queues would stand one below the other"
    found = stand(*chain)
    assert found[names[-1]] == ("", 0, why)
    assert found[names[-2]] == (names[-3], 0, "")


BEYOND = 'its guarantee of {}m cpu is more than the capability of its parent "a" leaves'
PARENT = queue("a", cpu=5)


@pytest.mark.parametrize(
    ("queues", "stands"),
    [
        ([PARENT, queue("b", A, guarantee=6)], ("a", 0, BEYOND.format(6))),
        (
            [PARENT, queue("c", A, A, guarantee=3, had=3), queue("b", A, guarantee=3)],
            ("a", 0, BEYOND.format(3)),
        ),
        ([PARENT, queue("b", A, A, guarantee=6, had=4)], ("a", 4, BEYOND.format(6))),
        ([PARENT, queue("b", A, A, guarantee=6, had=6)], ("a", 0, BEYOND.format(6))),
        (
            [queue("b", cpu=5, guarantee=6)],
            ("", 0, "its guarantee of 6m cpu is above its capability"),
        ),
    ],
    ids=["too-much", "taken", "before", "lowered-parent", "own"],
)
def test_a_guarantee_that_cannot_be_given(queues, stands):
    """The last one counts if it can be given; those that others have already come first."""
    assert stand(*queues)["b"] == stands
    assert all(not problem for name, (*_, problem) in stand(*queues).items() if name != "b")


def test_what_the_status_keeps_is_read_back():
    """So that whoever comes after this process finds the same tree."""
    shape = QueueShape("a", {"cpu": 1500}, {"memory": 2**30}, {"nvidia.com/gpu": 0}, {"cpu": 7})
    spec = {"parent": "gone"}
    document = {
        "metadata": {"name": "q"},
        "spec": spec,
        "status": {"shape": shape_document(shape)},
    }
    found = parse_queue(document)
    assert (found.shape, found.kept) == (QueueShape("gone"), shape)


@pytest.mark.parametrize("odd", [3, [], "x", {"parent": 3}, {"guarantee": {"cpu": "much"}}])
def test_a_status_that_nobody_can_read_keeps_nothing(odd):
    """It costs the queue nothing else."""
    document = {"metadata": {"name": "q"}, "spec": {"parent": "a"}, "status": {"shape": odd}}
    assert parse_queue(document).kept == FLAT
    assert parse_queue(document | {"status": odd}).kept == FLAT


@pytest.mark.parametrize("spec", [{"parent": 3}, {"deserved": {"cpu": "-1"}}])
def test_a_place_that_nobody_can_read(spec):
    """It is the whole queue that cannot be read then."""
    with pytest.raises(ValueError, match=r"no name|negative"):
        parse_queue({"metadata": {"name": "q"}, "spec": spec})
