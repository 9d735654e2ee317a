# SPDX-License-Identifier: Apache-2.0
"""What is remembered of the last hour's decisions."""

import asyncio
import json
from dataclasses import replace

import pytest

from muster.allocator import decisionlog
from muster.allocator.decisionlog import DecisionLog
from muster.scheduler.decision import Move
from support.builders.scheduler import make_gang, make_role, run
from support.builders.snapshots import rich

WAITS = make_gang(key="team/waits", roles=[make_role(replicas=1, cpu=9)])
MOVE = {"gang": "team/a", "placements": []}
STARTS = make_gang(key="team/starts")


def make_log():
    """Return one that asks nobody for a cycle."""
    return DecisionLog(lambda: None)


def kept(log, gang=""):
    """Return what it shows."""
    return json.loads(log.decisions(gang))


def test_only_news_is_kept():
    """A wait is kept once per reason, a start with its tasks and their nodes."""
    log = make_log()
    decisions = tuple(run(gangs=[WAITS, STARTS]).values())
    log.decided(0.0, decisions)
    log.decided(1.0, [d for d in decisions if not d.placements])
    first, second = kept(log)
    assert (first["gang"], first["at"]) == ("team/starts", "1970-01-01T00:00:00Z")
    assert first["placements"] == [
        {"role": "worker", "index": index, "node": "n1"} for index in range(2)
    ]
    assert second["verdict"]["reason"] == "NoNodeLargeEnough"
    assert kept(log, "team/waits") == [second]
    assert kept(log, "team/other") == []


def test_another_proposal_is_news():
    """Who could be moved is kept, also while the reason stays the same."""
    log = make_log()
    (decision,) = run(gangs=[WAITS]).values()
    log.decided(0.0, [decision])
    for _ in range(2):
        log.decided(1.0, [replace(decision, moves=(Move("team/a", ()),))])
    assert [entry.get("moves") for entry in kept(log)] == [None, [MOVE]]


def test_an_hour_is_kept(monkeypatch):
    """And no more than so many decisions, the youngest."""
    log = make_log()
    (decision,) = run(gangs=[STARTS]).values()
    for at in (0.0, 3000.0, 4000.0):
        log.decided(at, [decision])
    assert len(kept(log)) == 2
    monkeypatch.setattr(decisionlog, "KEPT", 1)
    log.decided(4001.0, [])
    (left,) = kept(log)
    assert left["at"] == "1970-01-01T01:06:40Z"


def test_a_snapshot_is_taken_when_it_is_asked_for():
    """Of the next cycle; otherwise nothing is recorded."""

    async def story():
        triggered = asyncio.Event()
        log = DecisionLog(triggered.set)
        view, decisions = rich()
        asked = []
        log.begin(lambda: asked.append(1))
        log.decided(0.0, decisions)
        assert asked == []
        answer = asyncio.create_task(log.pages["/debug/snapshot"]({}))
        await triggered.wait()
        log.begin(lambda: view)
        log.decided(1.0, decisions)
        return await answer, (view, decisions)

    text, seen = asyncio.run(story())
    assert text == decisionlog.recording.dump(*seen)


async def test_a_snapshot_that_cannot_be_made_is_told_to_who_asks():
    """The cycle goes on."""
    log = make_log()
    asked = asyncio.create_task(log.snapshot())
    await asyncio.sleep(0)
    log.begin(lambda: 1 // 0)
    log.decided(0.0, ())
    with pytest.raises(ZeroDivisionError):
        await asked
