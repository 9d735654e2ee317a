# SPDX-License-Identifier: Apache-2.0
"""Which nodes may be at fault, and for how long."""

from __future__ import annotations

from muster.cluster.suspects import LATELY, Suspects


def test_two_jobs_make_a_suspect():
    """One job that fails twice may be at fault itself."""
    suspects = Suspects()
    for job, at in (("a", 10.0), ("a", 20.0)):
        suspects.note("n1", job, at)
    assert suspects.nodes(30.0) == frozenset()
    suspects.note("n1", "b", 40.0)
    suspects.note("n2", "b", 40.0)
    assert suspects.nodes(50.0) == {"n1"}
    assert suspects.nodes(60.0) is suspects.nodes(70.0)


def test_the_memory_decays():
    """An hour after the last but one failure, and whatever is told late is old already."""
    suspects = Suspects()
    suspects.note("n1", "a", 10.0)
    suspects.note("n1", "b", 100.0)
    assert suspects.nodes(10.0 + LATELY - 1) == {"n1"}
    assert suspects.nodes(10.0 + LATELY) == frozenset()
    suspects.note("n1", "a", 5.0)
    assert suspects.nodes(20.0 + LATELY) == frozenset()
    suspects.note("n1", "a", 90.0)
    assert suspects.nodes(20.0 + LATELY) == {"n1"}
