# SPDX-License-Identifier: Apache-2.0
"""What annotations say of where pods are to lie."""

import pytest

from muster.api import topology
from muster.cluster.gangs import topology_of
from muster.scheduler.model import Topology

OURS, THEIRS = "muster.kubeflow.org/topology-", "kueue.x-k8s.io/podset-"


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({}, None),
        ({f"{OURS}required": "rack"}, Topology("rack", required=True)),
        ({f"{OURS}preferred": "example.com/rack"}, Topology("example.com/rack", required=False)),
        ({f"{THEIRS}required-topology": "zone"}, Topology("zone", required=True)),
        ({f"{THEIRS}preferred-topology": "zone"}, Topology("zone", required=False)),
        (
            {f"{OURS}slice-required": "nvlink", f"{OURS}slice-size": "8"},
            Topology(slice_level="nvlink", slice_size=8),
        ),
        (
            {
                f"{THEIRS}required-topology": "zone",
                f"{THEIRS}slice-required-topology": "rack",
                f"{THEIRS}slice-size": "4",
            },
            Topology("zone", required=True, slice_level="rack", slice_size=4),
        ),
        ({f"{OURS}required": "none"}, Topology(exempt=True)),
        ({f"{OURS}slice-required": "nvlink"}, None),
        ({f"{OURS}slice-required": "nvlink", f"{OURS}slice-size": "0"}, None),
        ({f"{OURS}required": ""}, None),
        ({f"{OURS}required": 3}, None),
    ],
)
def test_what_is_asked(annotations, asked):
    """Ours and those of Kueue mean the same; what cannot be read asks for nothing."""
    assert topology_of(annotations, {}) == asked


def test_who_is_in_a_queue_of_kueue():
    """Kueue itself sees to what its annotations say, nobody else to what ours do."""
    theirs, queued = {f"{THEIRS}required-topology": "zone"}, {"kueue.x-k8s.io/queue-name": "q"}
    assert topology_of(theirs, queued) is None
    both = {**theirs, f"{OURS}preferred": "rack"}
    assert topology_of(both, queued) == Topology("rack", required=False)


@pytest.mark.parametrize("text", ["", "a b", "/rack", "rack/", "-rack", "a/b/c", 3, "r" * 64])
def test_no_label(text):
    """Only the key of a label is a level."""
    ((key, wrong),) = topology.problems({f"{OURS}required": text})
    assert key == f"{OURS}required"
    assert "write the key of a node label" in wrong


def test_two_levels():
    """One of them would have to be left out."""
    asked = {f"{OURS}required": "zone", f"{THEIRS}preferred-topology": "rack"}
    ((key, wrong),) = topology.problems(asked)
    assert key == f"{THEIRS}preferred-topology"
    assert wrong == f"Forbidden: {OURS}required says it already; write one of them"


@pytest.mark.parametrize("size", ["", "0", "-1", "x", "1.5", 4])
def test_no_size(size):
    """A slice has at least one rank."""
    given = {f"{OURS}slice-required": "rack", f"{OURS}slice-size": size}
    ((key, wrong),) = topology.problems(given)
    assert key == f"{OURS}slice-size"
    assert "from 1 on" in wrong


@pytest.mark.parametrize(("key", "other"), [("required", "size"), ("size", "required")])
def test_half_of_what_a_slice_is(key, other):
    """Its label and its size go together."""
    given = {f"{OURS}slice-{key}": {"required": "rack", "size": "2"}[key]}
    (problem,) = topology.problems(given)
    assert problem == (
        f"{OURS}slice-{key}",
        f"Required value: {OURS}slice-{other} is to be given as well",
    )
