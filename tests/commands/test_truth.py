# SPDX-License-Identifier: Apache-2.0
"""Status, `muster explain`, dashboard and PodGroup show one decision: that of the operator."""

import json
from dataclasses import replace

import pytest

from muster.allocator import view
from muster.api import status
from muster.api.reasons import GangPhase, Reason
from muster.api.status import JobStatus, Verdict
from muster.commands import explain, jobreport
from muster.frameworks import FRAMEWORKS, load
from muster.gang import podgroup
from support.apiserver.read_only import job
from support.builders import sample_clusters
from support.builders.objects import make_group
from support.builders.recorded_decisions import RECORDED
from support.builders.scheduler import make_gang, make_node, make_role

KEY = "TFJob/team/mnist"
RECORDED_VERDICTS = {
    decision["verdict"]["reason"]: decision["verdict"]
    for text in RECORDED.values()
    for decision in json.loads(text)["decided"]
    if "reason" in decision["verdict"]
}
"""Reason -> what the scheduler decided in a recorded situation, for the reasons that it gives."""
MUSTER = Verdict("muster", "", pod_group="mnist", min_member=2)
WAITING = {
    reason: replace(
        MUSTER,
        state=GangPhase.WAITING,
        reason=str(reason),
        message=RECORDED_VERDICTS.get(reason, {}).get("message", f"The message of {reason}."),
        summary=RECORDED_VERDICTS.get(reason, {}).get("summary", f"0/2 placed: {reason}"),
        position=3,
        blocked_by=("TFJob/team/other",),
        shortage={"cpu": "3"},
        ever_possible=reason.ever_possible,
    )
    for reason in Reason
    if reason
}
RUNS = replace(MUSTER, state=GangPhase.RUNNING, placed=2, ready=2, summary="2/2 running")
HEALTHY = {
    "placed": replace(RUNS, state=GangPhase.PLACED, ready=0, summary="2/2 placed"),
    "starting": replace(RUNS, state=GangPhase.PLACED, ready=1, summary="1/2 running"),
    "running": RUNS,
    "minimum-runs": replace(RUNS, min_member=1, placed=1, ready=1, summary="1/2 running"),
    "surplus-waits": replace(RUNS, min_member=1, placed=1, message="1 more pod waits"),
    "succeeding": replace(RUNS, ready=2, summary="1/2 succeeded"),
    "grew": replace(RUNS, min_member=3, placed=3, ready=3, summary="3/3 running"),
    "restarted": replace(RUNS, since=100.0),
    "admitted": replace(RUNS, admission_time=100.0),
    "without-group": replace(RUNS, pod_group="", summary=""),
}
CASES = [*(pytest.param(v, id=r) for r, v in WAITING.items()),
         *(pytest.param(v, id=n) for n, v in HEALTHY.items())]  # fmt: skip


def contradicting(verdict):
    """Return what a cycle that decides differently has seen and decided."""
    # A gang that waits by its status would fit, and one that runs by its status lacks a node.
    cpu = 9 if not verdict.reason else 1
    gang = make_gang(key=KEY, roles=[make_role(replicas=2, cpu=cpu)])
    _, seen = sample_clusters.saw([make_node(name="n1")], [gang], ())
    return seen


@pytest.mark.parametrize("verdict", CASES)
def test_every_view_of_a_gang_shows_the_decision_of_the_operator(verdict):
    """The views agree for every reason, also where a new computation would contradict it."""
    document = job(workers=2)
    document["metadata"] |= {"namespace": "team"}
    document["status"] = status.write(JobStatus(state="Queued", gang=verdict))
    stored = load(FRAMEWORKS["TFJob"], document)
    decided = (str(verdict.state), verdict.reason, verdict.message)

    told = explain.document(explain.of_job(stored))["verdict"]
    assert (told["state"], told.get("reason", ""), told["message"]) == decided
    first, *lines = jobreport.lines(explain.of_job(stored))
    assert first.startswith(f"{KEY}: {verdict.state.lower()}")
    assert first.endswith(verdict.reason)
    assert not verdict.message or f"  {verdict.message}" in lines

    shown = view.make(contradicting(verdict), [stored])["gangs"][KEY]
    assert (shown["state"], shown.get("reason", ""), shown.get("message", "")) == decided
    assert shown.get("behind", []) == list(verdict.blocked_by)
    assert shown.get("short", []) == list(verdict.shortage)
    assert shown.get("position") == verdict.position

    group = make_group()
    patch = podgroup.difference(group, verdict, 1.0)
    if patch is not None:
        group = replace(
            group, phase=patch["status"]["phase"], conditions=patch["status"]["conditions"]
        )
    written = podgroup.verdict(group)
    assert (written.reason, written.message if verdict.reason else "") == (
        decided[1], verdict.message if verdict.reason else "",
    )  # fmt: skip
