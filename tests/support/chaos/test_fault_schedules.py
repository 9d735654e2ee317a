# SPDX-License-Identifier: Apache-2.0
"""The schedules of faults are the same each time, and who looks on sees what must never happen."""

import pytest

from support.chaos import invariants
from support.chaos.invariants import Seen


def pod(at, uid, phase="Running", *, index="1", node="n1", gone=False, going=False):
    """Return what was seen of a pod of a rank."""
    labels = {
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": index,
    }
    metadata = {"name": f"mnist-worker-{index}", "namespace": "team", "uid": uid, "labels": labels}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    spec = {"containers": [container], "nodeName": node}
    return Seen(
        at, "Pod", {"metadata": metadata, "spec": spec, "status": {"phase": phase}}, gone=gone
    )


def job(at, *conditions, suspend=False):
    """Return what was seen of its job."""
    metadata = {"name": "mnist", "namespace": "team"}
    told = [{"type": type_, "status": "True"} for type_ in conditions]
    spec = {"runPolicy": {"suspend": suspend}}
    return Seen(at, "TFJob", {"metadata": metadata, "spec": spec, "status": {"conditions": told}})


@pytest.mark.parametrize(
    ("later", "wrong"),
    [
        ([pod(2, "b")], 1),
        ([pod(2, "a", going=True), pod(3, "b")], 1),
        ([pod(2, "a", gone=True), pod(3, "b")], 0),
        ([pod(2, "a", "Failed"), pod(3, "b")], 0),
        ([pod(2, "b", index="2")], 0),
    ],
)
def test_two_pods_of_one_rank_at_once_are_seen(later, wrong):
    """One that is being deleted still runs."""
    assert len(list(invariants.twins([pod(1, "a"), *later]))) == wrong


def test_a_rank_that_is_made_again_after_success_is_seen():
    """After a failure it may be."""
    risen = [pod(1, "a", "Succeeded"), pod(2, "a", "Succeeded", gone=True), pod(3, "b")]
    again = [pod(1, "a", "Failed"), pod(2, "a", "Failed", gone=True), pod(3, "b")]
    assert [rank[3] for rank, _ in invariants.risen(risen)] == ["1"]
    assert list(invariants.risen(again)) == []
    assert (
        invariants.runs(risen) == invariants.runs(again) == {("team", "mnist", "worker", "1"): 2}
    )


def test_half_a_gang_is_seen_when_it_stands_too_long():
    """Not while it is whole, done, or suspended."""
    half = [pod(1, "a", index="0"), pod(20, "a", index="0")]
    size = {("team", "mnist"): 2}
    assert len(invariants.halves(half, size, 10)) == 1
    assert invariants.halves(half, size, 30) == []
    whole = [pod(1, "a", index="0"), pod(2, "b"), pod(40, "b")]
    assert invariants.halves(whole, size, 10) == []
    assert invariants.halves([half[0], pod(2, "b", "Succeeded"), half[1]], size, 10) == []
    assert invariants.halves([half[0], job(2, "Failed"), half[1]], size, 10) == []
    assert invariants.halves([half[0], job(2, suspend=True), half[1]], size, 10) == []


def test_a_node_with_too_many_pods_is_seen():
    """What has ended holds no room."""
    full = [pod(1, "a", index="0"), pod(2, "b", index="1")]
    assert len(list(invariants.overfull(full, {"n1": 3}))) == 1
    assert list(invariants.overfull(full, {"n1": 4})) == []
    ended = [pod(1, "a", index="0"), pod(2, "a", "Succeeded", index="0"), pod(3, "b")]
    assert list(invariants.overfull(ended, {"n1": 2})) == []


def test_what_a_list_shows_was_not_at_once_with_what_is_gone():
    """A watch that had to begin anew knows no order: one that came in another's place is no twin
    of it, and takes no room beside it.
    """
    old, ended = pod(1, "a", index="0"), pod(1, "b", index="1")
    listed = [pod(2, "c", index="0").object, pod(2, "b", "Succeeded", index="1").object]
    told = invariants.caught_up([old.object, ended.object], listed)
    seen = [old, ended, *(Seen(2, "Pod", o, gone=event == "DELETED") for event, o in told)]
    assert list(invariants.overfull(seen, {"n1": 4})) == []
    assert list(invariants.twins(seen)) == []
    assert [one.gone for one in seen[2:]] == [True, False, False]
