# SPDX-License-Identifier: Apache-2.0
"""What is remembered of the last hour's decisions."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from builders_scheduler import make_gang, make_role, run
from muster.allocator import decisionlog
from muster.allocator.decisionlog import DecisionLog
from muster.scheduler.decision import Move
from seen import rich

WAITS = make_gang(key="team/waits", roles=[make_role(replicas=1, cpu=9)])
MOVE = {"gang": "team/a", "placements": []}
STARTS = make_gang(key="team/starts")


def make_chronicle():
    """Return one whose pods are called after role and index."""
    return DecisionLog(lambda: None, lambda _gang, role, index: f"{role}-{index}")


def told(chronicle, gang=""):
    """Return what it tells."""
    return json.loads(chronicle.decisions(gang))


def test_only_news_is_kept():
    """A wait is told once per reason, a start with its pods and their nodes."""
    chronicle = make_chronicle()
    decisions = tuple(run(gangs=[WAITS, STARTS]).values())
    chronicle.decided(0.0, decisions)
    chronicle.decided(1.0, [d for d in decisions if not d.placements])
    first, second = told(chronicle)
    assert (first["gang"], first["at"]) == ("team/starts", "1970-01-01T00:00:00Z")
    assert [(p["pod"], p["node"]) for p in first["placements"]] == [
        ("worker-0", "n1"),
        ("worker-1", "n1"),
    ]
    assert second["verdict"]["reason"] == "NoNodeLargeEnough"
    assert told(chronicle, "team/waits") == [second]
    assert told(chronicle, "team/other") == []


def test_another_proposal_is_news():
    """Who could be moved is kept, also while the reason stays the same."""
    chronicle = make_chronicle()
    (decision,) = run(gangs=[WAITS]).values()
    chronicle.decided(0.0, [decision])
    for _ in range(2):
        chronicle.decided(1.0, [replace(decision, moves=(Move("team/a", ()),))])
    assert [entry.get("moves") for entry in told(chronicle)] == [None, [MOVE]]


def test_an_hour_is_kept(monkeypatch):
    """And no more than so many decisions, the youngest."""
    chronicle = make_chronicle()
    (decision,) = run(gangs=[STARTS]).values()
    for at in (0.0, 3000.0, 4000.0):
        chronicle.decided(at, [decision])
    assert len(told(chronicle)) == 2
    monkeypatch.setattr(decisionlog, "KEPT", 1)
    chronicle.decided(4001.0, [])
    (left,) = told(chronicle)
    assert left["at"] == "1970-01-01T01:06:40Z"


def test_a_snapshot_is_taken_when_it_is_asked_for():
    """Of the next cycle; otherwise nothing is recorded."""

    async def story():
        stirred = asyncio.Event()
        chronicle = DecisionLog(stirred.set, lambda *_: "")
        view, decisions = rich()
        asked = []
        chronicle.begin(lambda: asked.append(1))
        chronicle.decided(0.0, decisions)
        assert asked == []
        answer = asyncio.create_task(chronicle.pages["/debug/snapshot"]({}))
        await stirred.wait()
        chronicle.begin(lambda: view)
        chronicle.decided(1.0, decisions)
        return await answer, (view, decisions)

    text, seen = asyncio.run(story())
    assert text == decisionlog.recording.dump(*seen)
