# SPDX-License-Identifier: Apache-2.0
"""The corpus of broken manifests, held against the rules without a cluster."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import gang
from muster.api.model import Problem
from muster.commands import render
from muster.controller.model import Context, Observed
from muster.controller.reconcile import reconcile
from muster.frameworks import FRAMEWORKS, load, of
from muster.frameworks.loading import review
from support.builders import invalid_jobs

CORPUS = tuple(invalid_jobs.corpus())
RULES = [row for row in CORPUS if row.by in ("apply", "status")]
LATER = [row for row in CORPUS if row.by not in ("apply", "status")]
LEAST = 200

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def served(document):
    """Return a manifest as the API server keeps it."""
    return render.as_served(FRAMEWORKS[document["kind"]], document, "team")


def problems(document):
    """Return all that is said against a manifest."""
    return list(render.problems(FRAMEWORKS[document["kind"]], served(document)))


def test_the_corpus_is_large_and_every_row_is_another():
    """Of each sort of job, with every way of being refused."""
    assert len({str(row.document["spec"]) + row.id for row in CORPUS}) == len(CORPUS) >= LEAST
    for sort in invalid_jobs.sorts():
        found = {row.by for row in CORPUS if row.sort == sort}
        assert found == {"apply", "status", "pods", "verdict", "event"}


@pytest.mark.parametrize("sort", invalid_jobs.sorts())
def test_the_job_that_is_broken_was_good(sort):
    """Else the corpus would prove nothing."""
    assert not problems(invalid_jobs.good(sort))


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.id)
def test_what_is_wrong_is_said(row):
    """One sentence names the place and what would be right."""
    texts = [str(problem) for problem in problems(row.document)]
    wanted = [word.lower() for word in row.says]
    assert any(all(word in text.lower() for word in wanted) for text in texts), texts


@pytest.mark.parametrize("row", LATER, ids=lambda row: row.id)
def test_what_only_a_cluster_can_know_is_let_in(row):
    """The rules do not guess what nodes, queues and pods there are."""
    assert not problems(row.document)


def paths(document, prefix=()):
    """Return the path of every value inside a document."""
    items = ()
    if isinstance(document, dict | list):
        items = document.items() if isinstance(document, dict) else enumerate(document)
    return [prefix, *(path for key, item in items for path in paths(item, (*prefix, key)))]


@given(st.data(), st.sampled_from(CORPUS), st.lists(JSON, max_size=3))
def test_no_further_garbage_makes_anything_raise(data, row, garbage):
    """The rules, the webhook's answer, the rendering and a whole pass take what comes."""
    document = copy.deepcopy(served(row.document))
    for value in garbage:
        *way, last = data.draw(st.sampled_from(paths(document)[1:]))
        inner = document
        for step in way:
            inner = inner[step]
        inner[last] = value
    framework = FRAMEWORKS[row.document["kind"]]
    found = list(render.problems(framework, document))
    assert all(isinstance(problem, Problem) for problem in found)
    assert all(map(str, found))
    review(framework, document, row.document)
    for backend in (gang.NONE, gang.EMBEDDED):
        job = load(framework, document)
        observed = Observed(job=job, now=2e9, placements={})
        reconcile(observed, of(job), backend, Context())
