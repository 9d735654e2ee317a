# SPDX-License-Identifier: Apache-2.0
"""The reasons for which pods may be deleted or evicted."""

from __future__ import annotations

import pytest

from muster.api.deletion import Evidence, is_permitted
from muster.api.reasons import DeletionReason
from support.builders.objects import make_pod

RUNS = make_pod(phase="Running", node="n1")
FAILED = make_pod(phase="Failed", node="n1")
DONE = make_pod(phase="Succeeded", node="n1")
FENCED = make_pod(phase="Running", node="n1", unreachable=True, lost=True, fenced=True)
SILENT = make_pod(phase="Running", node="n1", unreachable=True)
JOB = make_pod(kind="Job", suspended=True)
SURPLUS = Evidence(unwanted={RUNS.uid})
COUNTED = {"counted": {RUNS.uid}}
CLAIMED = Evidence(claimant="TFJob/team/large")
RELEASED = Evidence(released=True)
PERMITTED = {
    DeletionReason.SUSPENDED: (Evidence(suspended=True), RUNS),
    DeletionReason.SURPLUS: (SURPLUS, RUNS),
    DeletionReason.DUPLICATE: (Evidence(unwanted={RUNS.uid}, duplicates={RUNS.uid}), RUNS),
    DeletionReason.FINISHED: (Evidence(finished=True, clean_pod_policy="All"), RUNS),
    DeletionReason.EXPIRED: (Evidence(finished=True), RUNS),
    DeletionReason.RESTARTED: (Evidence(**COUNTED, restarts_whole=True), RUNS),
    DeletionReason.REPLACED: (Evidence(), FAILED),
    DeletionReason.FENCED: (Evidence(), FENCED),
    DeletionReason.PEER_LOST: (Evidence(restarts_whole=True), RUNS),
    DeletionReason.NEW_RUN: (Evidence(run_ended=True), DONE),
    DeletionReason.UNDONE: (Evidence(started=False), RUNS),
    DeletionReason.RECREATED: (Evidence(), JOB),
    DeletionReason.PREEMPT: (CLAIMED, RUNS),
    DeletionReason.RECLAIM: (CLAIMED, RUNS),
    DeletionReason.DEFRAGMENT: (CLAIMED, RUNS),
    DeletionReason.DEADLOCK: (CLAIMED, RUNS),
    DeletionReason.RELEASE: (Evidence(restartable=True), RUNS),
    DeletionReason.HOLD_EXPIRED: (RELEASED, RUNS),
    DeletionReason.RECORDED: (RELEASED, RUNS),
}


def test_every_reason_except_dependent_permits_something() -> None:
    """A new reason gets a row."""
    assert PERMITTED.keys() == set(DeletionReason) - {DeletionReason.DEPENDENT}


@pytest.mark.parametrize("reason", PERMITTED, ids=str)
def test_pod_is_deleted_for_a_reason_that_holds(reason) -> None:
    """The evidence of a row permits the deletion."""
    assert is_permitted(reason, *PERMITTED[reason])


@pytest.mark.parametrize("pod", [RUNS, SILENT], ids=["runs", "silent"])
@pytest.mark.parametrize("reason", DeletionReason, ids=str)
def test_pod_that_may_run_is_not_deleted_without_evidence(reason, pod) -> None:
    """No reason holds by itself for a running pod, on an unreachable node or not."""
    assert not is_permitted(reason, Evidence(), pod)


@pytest.mark.parametrize(
    ("reason", "seen", "pod"),
    [
        (DeletionReason.SURPLUS, Evidence(unwanted={RUNS.uid}, invalid=True), RUNS),
        (DeletionReason.DUPLICATE, SURPLUS, RUNS),
        (DeletionReason.SURPLUS, Evidence(unwanted={DONE.uid}, finished=True), DONE),
        (DeletionReason.FINISHED, Evidence(finished=True, clean_pod_policy="None"), RUNS),
        (DeletionReason.FINISHED, Evidence(finished=True, clean_pod_policy="Running"), DONE),
        (DeletionReason.FINISHED, Evidence(clean_pod_policy="All"), RUNS),
        (DeletionReason.RESTARTED, Evidence(**COUNTED), RUNS),
        (DeletionReason.RESTARTED, Evidence(restarts_whole=True), FAILED),
        (DeletionReason.PEER_LOST, Evidence(restarts_whole=True), SILENT),
        (DeletionReason.PEER_LOST, Evidence(restarts_whole=True), DONE),
        (DeletionReason.NEW_RUN, Evidence(run_ended=True), RUNS),
        (DeletionReason.HOLD_EXPIRED, Evidence(restartable=True, may_run=True), RUNS),
        (DeletionReason.RELEASE, Evidence(restartable=True, may_run=True), RUNS),
    ],
    ids=[
        "surplus of an invalid job",
        "only pod of its index",
        "terminated surplus of a finished job",
        "cleanPodPolicy None",
        "cleanPodPolicy Running",
        "job not finished",
        "counted pod of a job that restarts single pods",
        "restart not counted",
        "peer on an unreachable node",
        "peer that succeeded",
        "running pod of a new run",
        "missing member of a job may run",
        "missing member may run",
    ],
)
def test_pod_is_kept_where_the_reason_does_not_hold(reason, seen, pod) -> None:
    """The reason is named, but the observed pod or job does not bear it out."""
    assert not is_permitted(reason, seen, pod)
