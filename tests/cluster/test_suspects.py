# SPDX-License-Identifier: Apache-2.0
"""Which nodes may be at fault, for whom, and for how long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.cluster.suspects import JOBS, LATELY, Suspects


def test_two_jobs_make_a_suspect():
    """One job that fails twice may be at fault itself."""
    suspects = Suspects()
    for job, at in (("a", 10.0), ("a", 20.0)):
        suspects.note("n1", "team", job, at)
    assert suspects.nodes("team", 30.0) == frozenset()
    suspects.note("n1", "team", "b", 40.0)
    suspects.note("n2", "team", "b", 40.0)
    assert suspects.nodes("team", 50.0) == {"n1"}
    assert suspects.nodes("team", 60.0) is suspects.nodes("team", 70.0)


def test_nobody_makes_suspects_for_others_alone():
    """However many jobs he lets fail, and wherever; of two namespaces one job each will do."""
    suspects = Suspects()
    for number in range(100):
        suspects.note(f"n{number % 3}", "evil", f"job-{number}", 10.0 + number)
    assert suspects.nodes("evil", 120.0) == {"n0", "n1", "n2"}
    assert suspects.nodes("team", 120.0) == frozenset()
    suspects.note("n1", "team", "a", 130.0)
    for namespace in ("team", "other"):
        assert suspects.nodes(namespace, 140.0) == {"n1"}
    assert suspects.nodes("evil", 140.0) == {"n0", "n1", "n2"}
    assert suspects.nodes("evil", 150.0) is suspects.nodes("evil", 160.0)


def test_the_memory_decays():
    """An hour after the last but one failure, and whatever is told late is old already."""
    suspects = Suspects()
    suspects.note("n1", "team", "a", 10.0)
    suspects.note("n1", "team", "b", 100.0)
    assert suspects.nodes("team", 10.0 + LATELY - 1) == {"n1"}
    assert suspects.nodes("team", 10.0 + LATELY) == frozenset()
    suspects.note("n1", "team", "a", 5.0)
    assert suspects.nodes("team", 20.0 + LATELY) == frozenset()
    suspects.note("n1", "team", "a", 90.0)
    assert suspects.nodes("team", 20.0 + LATELY) == {"n1"}


FAILURES = st.lists(
    st.tuples(
        st.sampled_from(["n1", "n2"]),
        st.sampled_from(["red", "blue"]),
        st.sampled_from("abcd"),
        st.floats(0, 2 * LATELY),
    )
)


@given(failures=FAILURES, now=st.floats(0, 3 * LATELY), looks=st.booleans())
def test_what_is_forgotten_makes_no_difference(failures, now, looks):
    """As if every failure of every job were remembered, in whatever order they are told."""
    suspects, last = Suspects(), {}
    for node, namespace, job, at in failures:
        suspects.note(node, namespace, f"{namespace}-{job}", at)
        if looks:
            suspects.nodes(namespace, min(now, at))
        key = node, namespace, job
        last[key] = max(at, last.get(key, at))
    recent = [key for key, at in last.items() if at + LATELY > now]
    for mine in ("red", "blue"):
        wanted = {
            node
            for node in ("n1", "n2")
            if len({n for at, n, _ in recent if at == node}) >= JOBS
            or sum((at, n) == (node, mine) for at, n, _ in recent) >= JOBS
        }
        assert suspects.nodes(mine, now) == wanted
