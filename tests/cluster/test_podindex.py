# SPDX-License-Identifier: Apache-2.0
"""Indices by label against the comparison of every pod with every selection."""

from collections import Counter
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from muster.cluster import podindex
from muster.cluster.podaffinity import TermCounts
from muster.cluster.podindex import LabelIndex, TermIndex
from muster.cluster.pods import parse_use
from muster.cluster.selectors import Expression, Identity, PodAffinityTerm, Selection, chosen
from muster.scheduler.model import Link
from support.builders.scheduler import make_pod

VALUES = ("x", "y", "5", "")
LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(VALUES))
EXPRESSIONS = st.builds(
    Expression,
    st.sampled_from("abcd"),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Nonsense"]),
    st.lists(st.sampled_from([*VALUES, "z"]), max_size=3).map(tuple),
)
SELECTORS = st.one_of(st.none(), st.lists(EXPRESSIONS, max_size=3).map(tuple))
SPACES = ("one", "two", "three")
SELECTIONS = st.builds(
    Selection, st.frozensets(st.sampled_from([*SPACES, "unknown"])), SELECTORS, SELECTORS
)


@given(rows=st.lists(LABELS, max_size=8), selector=SELECTORS)
def test_label_index_matches_the_rows_that_meet_the_selector(rows, selector):
    """Every operator, and those that label selectors do not have, match as in a comparison."""
    index = LabelIndex()
    for labels in rows:
        index.add(labels)
    expected = [selector is not None and chosen(selector, labels) for labels in rows]
    assert index.matching(selector).tolist() == expected


PODS = st.builds(
    lambda name, namespace, labels, node, deleting: parse_use(
        make_pod(name=name, namespace=namespace, labels=labels, node=node, deleting=deleting)
    ),
    st.sampled_from("pqrs"),
    st.sampled_from([*SPACES, "unknown"]),
    LABELS,
    st.sampled_from(["n1", "n2", "n3"]),
    st.booleans(),
)
CHANGES = st.one_of(
    PODS,
    st.sampled_from("pqrs"),
    st.tuples(st.sampled_from(SPACES), st.one_of(st.none(), LABELS)),
    st.lists(SELECTIONS, min_size=1, max_size=2).map(tuple),
)


@given(
    changes=st.lists(CHANGES, max_size=25),
    questions=st.lists(st.lists(SELECTIONS, min_size=1, max_size=2).map(tuple), max_size=3),
    slack=st.sampled_from([1, 4, 1000]),
)
def test_answers_are_those_of_a_comparison_after_any_changes(changes, questions, slack):
    """Pods and namespaces come, change and go; the index is dropped and built again between."""
    counts, pods = TermCounts(), {}

    def check(question):
        counts.forget()
        answer = counts.ask(question, pods.values())
        matched = [
            use
            for use in pods.values()
            if all(counts.matches(one, Identity(use.namespace, use.labels)) for one in question)
        ]
        for amounts, expected in (
            (answer.there, Counter(use.node for use in matched)),
            (answer.going, Counter(use.node for use in matched if use.deleting)),
        ):
            assert +Counter(dict(zip(counts.numbers, amounts.tolist(), strict=False))) == expected

    with mock.patch.object(podindex, "SLACK", slack):
        for change in changes:
            match change:
                case str(name):
                    if name in pods:
                        counts.put(pods.pop(name), -1)
                case (str(name), labels):
                    counts.space_changed(name, labels)
                case tuple():
                    check(change)
                case use:
                    if use.name in pods:
                        counts.put(pods.pop(use.name), -1)
                    pods[use.name] = use
                    counts.put(use, 1)
            for question in questions:
                check(question)


TERMS = st.builds(PodAffinityTerm, st.just(Link.APART), st.just("zone"), SELECTIONS)


@given(terms=st.lists(TERMS), removed=st.sets(st.integers(0, 9)), labels=LABELS)
def test_term_index_returns_every_term_that_selects_a_pod(terms, removed, labels):
    """Terms that were removed are not returned, and nothing is left of them."""
    index, kept = TermIndex(terms), [t for i, t in enumerate(terms) if i not in removed]
    kept = [term for term in kept if term not in {terms[i] for i in removed if i < len(terms)}]
    for term in set(terms) - set(kept):
        index.remove(term)
    identity, counts = Identity("one", labels), TermCounts()
    found = list(index.candidates(identity))
    assert len(found) == len(set(found))
    assert set(found) <= set(kept)
    assert {t for t in kept if counts.matches(t.who, identity)} <= set(found)
    for term in set(kept):
        index.remove(term)
    assert (index._by_label, index._others) == ({}, {})
