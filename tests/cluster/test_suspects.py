# SPDX-License-Identifier: Apache-2.0
"""Which nodes may be at fault, for whom, and for how long."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from muster.cluster.suspects import JOBS, LATELY, MAX_FAILURES, NODES, Suspects


def test_two_jobs_make_a_suspect():
    """One job that fails twice may be at fault itself."""
    suspects = Suspects()
    for job, at in (("a", 10.0), ("a", 20.0)):
        suspects.note("n1", "team", job, at, program=True)
    assert suspects.nodes("team", 30.0) == frozenset()
    suspects.note("n1", "team", "b", 40.0, program=True)
    assert suspects.nodes("team", 50.0) == {"n1"}
    assert suspects.nodes("team", 60.0) is suspects.nodes("team", 70.0)


def test_program_that_fails_on_two_nodes_marks_none():
    """Two such programs on the same healthy nodes mark none of these either."""
    suspects = Suspects()
    for job in "ab":
        suspects.note("n1", "team", job, 10.0, program=True)
    assert suspects.nodes("team", 20.0) == {"n1"}
    for job in "ab":
        suspects.note("n2", "team", job, 30.0, program=True)
    assert suspects.nodes("team", 40.0) == frozenset()
    # Once the first failure is forgotten there is one node again.
    assert suspects.nodes("team", 20.0 + LATELY) == {"n2"}


def test_refusals_on_two_nodes_mark_both():
    """A kubelet refuses a pod before its program starts."""
    suspects = Suspects()
    for job in "ab":
        for node in ("n1", "n2"):
            suspects.note(node, "team", job, 10.0, program=False)
    assert suspects.nodes("team", 20.0) == {"n1", "n2"}


def test_nobody_makes_suspects_for_others_alone():
    """However many jobs he lets fail, and wherever; of two namespaces one job each will do."""
    suspects = Suspects()
    for number in range(100):
        suspects.note(f"n{number % 3}", "evil", f"job-{number}", 10.0 + number, program=True)
    assert suspects.nodes("evil", 120.0) == {"n0", "n1", "n2"}
    assert suspects.nodes("team", 120.0) == frozenset()
    suspects.note("n1", "team", "a", 130.0, program=True)
    for namespace in ("team", "other"):
        assert suspects.nodes(namespace, 140.0) == {"n1"}
    assert suspects.nodes("evil", 140.0) == {"n0", "n1", "n2"}
    assert suspects.nodes("evil", 150.0) is suspects.nodes("evil", 160.0)


def test_failures_of_a_namespace_are_limited():
    """The oldest failures are forgotten first, so that a namespace takes no more memory."""
    suspects = Suspects()
    for number in range(MAX_FAILURES + 1):
        suspects.note(
            "n1" if number < 2 else "n2", "evil", f"{number}", 10.0 + number, program=True
        )
    assert suspects.nodes("evil", 10.0 + MAX_FAILURES) == {"n2"}


def test_the_memory_decays():
    """An hour after the last but one failure, and whatever is told late is old already."""
    suspects = Suspects()
    suspects.note("n1", "team", "a", 10.0, program=True)
    suspects.note("n1", "team", "b", 100.0, program=True)
    assert suspects.nodes("team", 10.0 + LATELY - 1) == {"n1"}
    assert suspects.nodes("team", 10.0 + LATELY) == frozenset()
    suspects.note("n1", "team", "a", 5.0, program=True)
    assert suspects.nodes("team", 20.0 + LATELY) == frozenset()
    suspects.note("n1", "team", "a", 90.0, program=True)
    assert suspects.nodes("team", 20.0 + LATELY) == {"n1"}


FAILURES = st.lists(
    st.tuples(
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["red", "blue"]),
        st.sampled_from("abcd"),
        st.floats(0, 2 * LATELY),
        st.booleans(),
    )
)


@given(failures=FAILURES, now=st.floats(0, 3 * LATELY), looks=st.booleans())
def test_what_is_forgotten_makes_no_difference(failures, now, looks):
    """As if every failure of every job were remembered, in whatever order they are told."""
    suspects, last = Suspects(), {}
    for node, namespace, job, at, program in failures:
        suspects.note(node, namespace, f"{namespace}-{job}", at, program=program)
        if looks:
            suspects.nodes(namespace, min(now, at))
        key = node, namespace, job, program
        last[key] = max(at, last.get(key, at))
    recent = [key for key, at in last.items() if at + LATELY > now]
    nodes_of = defaultdict(set)
    for node, namespace, job, program in recent:
        if program:
            nodes_of[namespace, job].add(node)
    marks = {
        (node, namespace, job)
        for node, namespace, job, program in recent
        if not program or len(nodes_of[namespace, job]) < NODES
    }
    for mine in ("red", "blue"):
        wanted = {
            node
            for node in ("n1", "n2", "n3")
            if len({n for at, n, _ in marks if at == node}) >= JOBS
            or sum((at, n) == (node, mine) for at, n, _ in marks) >= JOBS
        }
        assert suspects.nodes(mine, now) == wanted
