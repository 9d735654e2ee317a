# SPDX-License-Identifier: Apache-2.0
"""The corpus of broken manifests, held against the rules without a cluster."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import broken
from muster import gang
from muster.api.model import Problem
from muster.controller.model import Context, Observed
from muster.controller.reconcile import reconcile
from muster.frameworks import FRAMEWORKS, load
from muster.frameworks.admission import review
from muster.runtime import render

CORPUS = tuple(broken.corpus())
RULES = [row for row in CORPUS if row.by in ("apply", "status")]
LATER = [row for row in CORPUS if row not in RULES]
LEAST = 150

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_the_corpus_is_large_and_every_row_is_another():
    """Of each kind, with every way of being refused."""
    assert len({str(row.document["spec"]) + row.id for row in CORPUS}) == len(CORPUS) >= LEAST
    for kind in broken.kinds():
        found = {row.by for row in CORPUS if row.document["kind"] == kind}
        assert found == {"apply", "status", "pods", "verdict", "event"}


@pytest.mark.parametrize("kind", broken.kinds())
def test_the_job_that_is_broken_was_good(kind):
    """Else the corpus would prove nothing."""
    assert not list(render.problems(FRAMEWORKS[kind], broken.good(kind)))


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.id)
def test_what_is_wrong_is_said(row):
    """One sentence names the place and what would be right."""
    found = list(render.problems(FRAMEWORKS[row.document["kind"]], row.document))
    texts = [str(problem) for problem in found]
    wanted = [word.lower() for word in row.says]
    assert any(all(word in text.lower() for word in wanted) for text in texts), texts


@pytest.mark.parametrize("row", LATER, ids=lambda row: row.id)
def test_what_only_a_cluster_can_know_is_let_in(row):
    """The rules do not guess what nodes, queues and pods there are."""
    assert not list(render.problems(FRAMEWORKS[row.document["kind"]], row.document))


def paths(document, prefix=()):
    """Return the path of every value inside a document."""
    items = ()
    if isinstance(document, dict | list):
        items = document.items() if isinstance(document, dict) else enumerate(document)
    return [prefix, *(path for key, item in items for path in paths(item, (*prefix, key)))]


@settings(deadline=None)  # the first of each kind makes a schema
@given(st.data(), st.sampled_from(CORPUS), st.lists(JSON, max_size=3))
def test_no_further_garbage_makes_anything_raise(data, row, garbage):
    """The rules, the webhook's answer, the rendering and a whole pass take what comes."""
    document = copy.deepcopy(row.document)
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
        observed = Observed(job=load(framework, document), now=2e9, placements={})
        reconcile(observed, framework, backend, Context())
