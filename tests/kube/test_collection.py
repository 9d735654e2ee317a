# SPDX-License-Identifier: Apache-2.0
"""A collection that is followed namespace by namespace."""

import pytest

from muster.kube.collection import Collection

A, B, OTHER = (("a", "x"), ("b", "x"), ("other", "x"))


def document(key, version, uid="u1"):
    """Return an object at one version."""
    namespace, name = key
    metadata = {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


@pytest.fixture
def changes():
    """Return where changes are noted."""
    return []


@pytest.fixture
def held(changes):
    """Return a collection of two namespaces, of which the versions are kept."""

    def note(before, after):
        changes.append((before, after))

    return Collection(lambda d: int(d["metadata"]["resourceVersion"]), note, ["a", "b"])


def test_a_list_of_one_namespace_says_nothing_of_another(held, changes):
    """What it does not hold is gone from its own; all is known when all have been listed."""
    for key in (A, B):
        held.take(document(key, 1))
    assert not held.complete
    held.listed("a", set(), 5)
    assert (set(held.objects), held.complete) == ({B}, False)
    held.listed("b", {B}, 5)
    assert (held.objects, held.complete) == ({B: 1}, True)
    assert changes == [(None, 1), (None, 1), (1, None)]


def test_each_namespace_has_its_own_progress(held):
    """An answer is late only where list and watch have shown that much."""
    held.listed("a", set(), 10)
    held.apply(document(A, 7))
    held.apply(document(B, 7))
    assert held.objects == {B: 7}
    held.reach("b", 20)
    held.apply(document(B, 8))
    held.apply(document(OTHER, 9))  # Nothing would show its end.
    assert held.objects == {B: 8}


def test_what_was_written_during_the_list(held):
    """It is newer than the list, and stays."""
    held.listed("a", set(), 5)
    held.apply(document(A, 8))
    held.listed("a", set(), 7)
    assert held.objects == {A: 8}
    held.listed("a", set(), 8)
    assert held.objects == {}


def test_what_the_parser_cannot_read_is_taken_at_its_worst(changes, caplog):
    """It is told once while the reason is the same, and forgotten with the object."""
    told = []

    def parse(document):
        raise ZeroDivisionError(document["metadata"]["name"] + "\n")

    kept = Collection(
        parse,
        lambda before, after: changes.append((before, after)),
        cautious=lambda _document, why: why.reason,
        told=lambda about, why: told.append((about["kind"], why.reason)),
    )
    for version in (5, 5, 4, 6):
        kept.take(document(A, version))
    said = "ZeroDivisionError: x?"
    assert changes == [(None, said), (said, said)]
    assert told == [("Pod", said)]
    assert [why.reason for why in kept.unreadable.values()] == [said]
    assert [r.getMessage() for r in caplog.records] == [f"Pod a/x cannot be read: {said}"]
    kept.remove(document(A, 7))
    assert (changes[-1], kept.unreadable) == ((said, None), {})


def test_object_that_is_read_in_part_keeps_its_value_and_is_reported_once(changes, caplog):
    """The reason is reported again for another object of the name, and ends with its cause."""
    told, wrong = [], ["too many"]
    kept = Collection(
        lambda document: document["metadata"]["uid"],
        lambda before, after: changes.append((before, after)),
        told=lambda about, why: told.append((about["metadata"]["uid"], why.reason)),
        unread=lambda _value: wrong[0],
    )
    for version in (5, 6):
        kept.take(document(A, version))
    assert changes == [(None, "u1"), ("u1", "u1")]
    assert told == [("u1", "too many")]
    assert [why.reason for why in kept.unreadable.values()] == ["too many"]
    assert [r.getMessage() for r in caplog.records] == ["Pod a/x cannot be read: too many"]
    kept.take(document(A, 7, "u2"))
    assert told == [("u1", "too many"), ("u2", "too many")]
    wrong[0] = ""
    kept.take(document(A, 8, "u2"))
    assert kept.unreadable == {}


def test_what_nobody_knows_the_worst_of_is_left_out(changes):
    """Also where it was readable before."""
    broken = []

    def parse(document):
        return 1 / (document["metadata"]["name"] not in broken)

    kept = Collection(parse, lambda before, after: changes.append((before, after)))
    kept.take(document(A, 5))
    broken.append("x")
    kept.take(document(A, 6))
    assert (changes, kept.objects) == ([(None, 1), (1, None)], {})
    broken.clear()
    kept.take(document(A, 7))
    assert (changes[-1], kept.objects, kept.unreadable) == ((None, 1), {A: 1}, {})


def test_the_end_of_an_earlier_one_of_the_name(held, changes):
    """It is not the end of the one that has the name now, on whichever way it is shown."""
    held.take(document(A, 5, "second"))
    held.remove(document(A, 4, "first"))
    held.discard(*A, "first")
    assert held.objects == {A: 5}
    held.discard(*A, "second")
    held.discard(*A, "second")
    held.remove(document(A, 6, "second"))
    assert changes == [(None, 5), (5, None)]


def test_an_answer_that_comes_after_the_end_brings_nothing_back(held, changes):
    """Whoever shows ends may tell nothing of how far he has come otherwise."""
    held.listed("a", set(), 5)
    held.take(document(A, 6))
    held.remove(document(A, 8))
    for version in (7, 8):
        held.apply(document(A, version))
    assert (held.objects, changes) == ({}, [(None, 6), (6, None)])
    held.apply(document(A, 9, "u2"))
    assert held.objects == {A: 9}
    held.remove(document(B, 8))
    assert not held.complete


def test_what_a_write_has_shown_to_be_gone_does_not_come_back(held, changes):
    """A watch that is behind shows how it was before; the next one of that name is another."""
    held.take(document(A, 1, "first"))
    held.discard(*A, "first")
    held.take(document(A, 2, "first"))
    assert held.objects == {}
    held.apply(document(A, 4, "second"))
    held.take(document(A, 3, "first"))
    held.remove(document(A, 3, "first"))
    assert changes == [(None, 1), (1, None), (None, 4)]
    held.discard(*A, "second")
    held.listed("a", {A}, 4)
    held.take(document(A, 4, "second"))
    assert held.objects == {}, "the list, too, was of before"
    held.set_back("a", 2)
    held.take(document(A, 2, "second"))
    assert held.objects == {A: 2}, "a server that was set back may have it again"


def test_a_list_from_before_says_nothing_of_an_end(held, changes):
    """What was made and deleted since is in no list; whoever is late may show it once more."""
    held.listed("a", set(), 5)
    held.apply(document(A, 8))
    held.discard(*A, "u1")
    held.listed("a", set(), 7)
    held.apply(document(A, 9))
    held.take(document(A, 8))
    assert (held.objects, changes) == ({}, [(None, 8), (8, None)])
    held.listed("a", set(), 10)
    held.take(document(A, 11, "u2"))
    assert held.objects == {A: 11}
