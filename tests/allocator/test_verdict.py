# SPDX-License-Identifier: Apache-2.0
"""What the allocator says of gangs, and when it is news."""

from dataclasses import replace

import pytest

from muster.allocator.verdict import (
    HOLD_EXPIRED,
    LATE,
    RECORDED,
    RELEASE,
    SOMEBODY,
    Cause,
    called,
    dated,
    discreet,
    foreign,
    is_news,
    of_gang,
    released,
    unnamed,
)
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.api.status import Verdict
from muster.scheduler.decision import Verdict as Ruling
from support.builders.objects import make_job, make_replica, make_template

PREEMPT = Cause(DeletionReason.PREEMPT, "TFJob/team/large")
BLANK = Verdict("muster", "Waiting", "mnist", 2)
WAITS = Verdict("muster", "Waiting", "mnist", 2, reason="NotEnoughResources", since=10.0)


def test_a_ruling_in_the_words_of_the_job():
    """Amounts are quantities, places are counted from 1, no place is none."""
    ruling = Ruling(
        state=GangPhase.WAITING,
        reason=Reason.NOT_ENOUGH_RESOURCES,
        message="long",
        summary="short",
        min_member=2,
        placed=0,
        ready=0,
        total=2,
        shortage={"cpu": 1500},
        position=3,
        eta=70.0,
        blocked_by=("TFJob/team/other",),
    )
    verdict = of_gang("mnist", "muster", ruling)
    assert verdict == replace(
        WAITS,
        since=None,
        message="long",
        summary="short",
        shortage={"cpu": "1500m"},
        position=3,
        eta=70.0,
        blocked_by=("TFJob/team/other",),
    )
    assert of_gang("mnist", "muster", replace(ruling, position=0)).position is None


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ("TFJob/team/large", "TFJob/team/large"),
        ("TFJob/other/large", SOMEBODY),
        ("PodGroup/teams/large", SOMEBODY),
        ("queue/other", "queue/other"),
        ("resourcequota/team/pods", "resourcequota/team/pods"),
    ],
)
def test_names_of_other_namespaces(other, name):
    """Only jobs and groups of the same namespace are named, queues and quotas always."""
    assert called(other, "PyTorchJob/team/mnist") == name


def test_a_discreet_verdict():
    """Wherever a name stands in a sentence; the list has no stranger twice."""
    sentence = "1 node(s) full; the room is kept for {0}; moving {1} would do."
    others = ("TFJob/other/one", "TFJob/team/own", "TFJob/third/two")
    for other, name in (("TFJob/other/one", SOMEBODY), ("TFJob/team/own", "TFJob/team/own")):
        text = sentence.format(other, "JAXJob/fourth/b.c")
        said = replace(WAITS, message=text, summary=text, blocked_by=others)
        text = sentence.format(name, SOMEBODY)
        told = replace(said, message=text, summary=text, blocked_by=(SOMEBODY, "TFJob/team/own"))
        assert discreet(said, "TFJob/team/mnist") == told
    assert Cause(DeletionReason.PREEMPT, SOMEBODY).sentence == f"preempt: evicted for {SOMEBODY}"


@pytest.mark.parametrize(
    "key",
    [
        "TFJob/other/one", "TFJob other/one", "pod-group/other/one", "pod-group other/one",
        "PodGroup.scheduling.x-k8s.io/other/one", "PodGroup.scheduling.x-k8s.io other/one",
        "odd-kind/other/one.two", "PodGroup/other/One_2",
    ],
)  # fmt: skip
def test_every_kind_of_gang_is_left_unnamed(key):
    """Other people's groups are called by what names them, apart or not."""
    for sentence in ("1/2 placed: kept for {}", "preempt: evicted for {}; Only 3/4 nodes", "{}"):
        assert unnamed(sentence.format(key), "team".__eq__) == sentence.format(SOMEBODY)
        own = sentence.format(key.replace("other/", "team/"))
        assert unnamed(own, "team".__eq__) == own


def test_a_job_of_another_scheduler():
    """It is named, and no change of load will help."""
    job = make_job(replicas=[make_replica(template=make_template(scheduler="other"))])
    verdict = foreign(job, BLANK)
    assert verdict.reason == "ForeignScheduler"
    assert "another scheduler (other)" in verdict.message
    assert not verdict.ever_possible


def test_a_job_of_no_pods():
    """Nobody else is blamed; the message says what to do."""
    verdict = foreign(make_job(replicas=[make_replica(replicas=0)]), BLANK)
    assert verdict.reason == "NotEnoughTasks"
    assert verdict.message == "the job asks for no pods; set the replicas of a role"


@pytest.mark.parametrize(
    ("cause", "written", "reason", "message"),
    [
        (PREEMPT, None, "Preempted", PREEMPT.sentence),
        (RECORDED, replace(BLANK, reason="Preempted", message="for X"), "Preempted", "for X"),
        (RECORDED, replace(BLANK, reason="Fragmented", message="x"), "NotEnoughTasks", LATE),
        (RELEASE, None, "NotEnoughTasks", LATE),
        (HOLD_EXPIRED, None, "NotEnoughTasks", LATE),
    ],
    ids=["for-another", "an-earlier-process-knew", "for-itself", "group", "nobody-knows"],
)
def test_a_gang_that_begins_anew(cause, written, reason, message):
    """It says for whom, as long as anybody remembers it."""
    verdict = released(BLANK, written, cause)
    assert (verdict.state, verdict.reason, verdict.message) == ("Released", reason, message)


@pytest.mark.parametrize(
    ("before", "since"),
    [(None, 99.0), (WAITS, 10.0), (replace(WAITS, since=None), 99.0),
     (replace(WAITS, reason="Fragmented"), 99.0)],
    ids=["first", "same", "undated", "other-reason"],
)  # fmt: skip
def test_since_when(before, since):
    """The time at which this reason was first given."""
    assert dated(WAITS, before, 99.0).since == since


@pytest.mark.parametrize(
    ("eta", "published"),
    [(1000.0, 1000.0), (1014.0, 1000.0), (990.0, 1000.0), (1016.0, 1016.0), (None, None)],
)
def test_a_time_of_start_that_drifts(eta, published):
    """By little it stays what was published, so that nobody writes for a second's sake."""
    before = replace(WAITS, eta=1000.0)
    assert dated(replace(WAITS, eta=eta), before, 99.0).eta == published
    assert dated(replace(before, eta=eta), WAITS, 99.0).eta == eta


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({"reason": "Fragmented"}, True),
        ({"state": "Placed"}, True),
        ({"placed": 1}, True),
        ({"position": 7}, False),
        ({"message": "other counts", "summary": "other", "shortage": {"cpu": "1"}}, False),
    ],
)
def test_what_is_news(change, news):
    """Another reason is; other numbers for the same reason can wait."""
    assert is_news(replace(WAITS, **change), WAITS) is news
    assert is_news(WAITS, None)


def test_deferred_search_alone_is_no_news():
    """Searches of many gangs are deferred and end in turns; other changes are news as ever."""
    deferred = replace(WAITS, reason="Deferred")
    assert not is_news(deferred, WAITS)
    assert not is_news(WAITS, deferred)
    assert is_news(replace(deferred, state="Running"), WAITS)
