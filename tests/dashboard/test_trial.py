# SPDX-License-Identifier: Apache-2.0
"""Jobs are tried in processes of their own: what comes of them, and what they may not cost."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from dataclasses import replace

import psutil
import pytest
import yaml

from dashboard.test_server import SEEN
from muster.dashboard import trial
from muster.dashboard.trial import NoAnswerError, Trials, Viewer
from support.apiserver.memory import tfjob
from support.builders import sample_clusters

TAKEN, _ = sample_clusters.small()
JOB = yaml.safe_dump(tfjob(name="fresh", Worker=1))
SAYS = "import sys\nsys.stdin.readline()\nprint('{}', flush=True)\n"
"""A program that takes a job in and says this."""


def program(text):
    """Return a program in place of the real one, without what that imports."""
    return [sys.executable, "-I", "-S", "-c", text]


CREATES = SAYS.format('{"creates": []}')
ANSWERS = CREATES + SAYS.format('{"text": "it fits"}').removeprefix("import sys\n")
HANGS = CREATES + "sys.stdin.read()\nimport time\ntime.sleep(600)"


def viewer(name="anna", visible=None, asked=None):
    """Return somebody who may have anything tried."""

    async def sight(creates):
        if asked is not None:
            asked.extend(creates)
        return visible

    return Viewer(name, sight)


async def record():
    """Return what a cycle saw."""
    return TAKEN


def left():
    """Return the children of this process, and how many files it has open."""
    return psutil.Process().children(), psutil.Process().num_fds()


def test_a_job_is_tried_on_what_a_cycle_saw():
    """By the real program, in the words of `muster simulate`; a tenant is told no other's name."""
    asked = []

    async def story():
        trials = Trials(record)
        job = yaml.safe_dump(tfjob(name="fresh", Worker={"replicas": 9, "template": GPU}))
        told = await trials.run(job, viewer(visible={"team"}, asked=asked))
        with pytest.raises(ValueError, match="the job: line 1, column"):
            await trials.run("a: [", viewer())
        return told

    GPU = {"spec": {"containers": [  # noqa: N806
        {"name": "tensorflow", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    ]}}  # fmt: skip
    told = asyncio.run(story())
    assert asked == [("kubeflow.org", "tfjobs", "team")]
    assert told.startswith("TFJob/team/fresh: waiting, not now: ")
    assert "nvidia.com/gpu held by a job of another namespace" in told
    assert not [gang.key for gang in SEEN.snapshot.gangs if gang.key.split("/")[2] in told]


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (HANGS, NoAnswerError, "not worked out within"),
        ("", NoAnswerError, "the operator's log says why"),
        (CREATES, NoAnswerError, "the operator's log says why"),
        (SAYS.format('{"wrong": "no job"}'), ValueError, "no job"),
        (SAYS.format('{"creates": [' + "[1]," * 16 + "[1]]}"), ValueError, "try fewer at once"),
    ],
    ids=["hangs", "ends", "ends later", "wrong", "many"],
)
def test_what_gives_no_answer_is_ended_and_said(monkeypatch, caplog, text, error, told):
    """In a sentence; no process is left, and no end of a pipe, and the next one has its turn."""
    monkeypatch.setattr(trial, "LIMIT", 1.0 if text == HANGS else 60.0)
    monkeypatch.setattr(trial, "SHARE", 0)

    async def story():
        trials = Trials(record, program(text))
        with pytest.raises(error, match=told):
            await trials.run(JOB, viewer())
        with pytest.raises(error, match=told):
            await trials.run(JOB, viewer())

    asyncio.run(story())
    before = left()
    asyncio.run(story())
    assert left() == before
    assert before[0] == []
    assert ("a job could not be tried" in caplog.text) == ("log says why" in told)


def test_what_ends_while_it_is_handed_the_cluster_is_said():
    """Though the thread that hands it over is still at it."""

    async def large():
        return replace(TAKEN, unserved="x" * 2**24)

    async def story():
        trials = Trials(large, program(CREATES))
        with pytest.raises(NoAnswerError, match="log says why"):
            await trials.run(JOB, viewer())

    asyncio.run(story())


def test_what_is_said_before_all_was_heard_counts():
    """As of a process that has no memory left for the cluster, and says so."""

    async def large():
        return replace(TAKEN, unserved="x" * 2**24)

    async def story():
        early = CREATES + SAYS.format('{"wrong": "too large"}').splitlines()[-1]
        with pytest.raises(ValueError, match="too large"):
            await Trials(large, program(early)).run(JOB, viewer())

    asyncio.run(story())


def test_who_may_not_have_it_tried_costs_no_look_at_the_cluster():
    """What forbids it is raised as it is."""
    looked = []

    async def look():
        looked.append(1)
        return TAKEN

    async def forbids(_creates):
        raise LookupError("not you")

    async def story():
        trials = Trials(look, program(ANSWERS))
        with pytest.raises(LookupError):
            await trials.run(JOB, Viewer("anna", forbids))

    asyncio.run(story())
    assert looked == []


def test_one_at_a_time_for_each_viewer_and_for_all():
    """Who has one tried already is refused, who has none waits; a few wait at the most."""
    inside, most = [], []

    async def look():
        inside.append(1)
        most.append(len(inside))
        await asyncio.sleep(0.05)
        inside.pop()
        return TAKEN

    async def story():
        trials = Trials(look, program(ANSWERS))
        names = [f"viewer-{i}" for i in range(trial.MOST)]
        running = [asyncio.create_task(trials.run(JOB, viewer(name))) for name in names]
        await asyncio.sleep(0)
        with pytest.raises(NoAnswerError, match="another one of yours"):
            await trials.run(JOB, viewer(names[-1]))
        with pytest.raises(NoAnswerError, match="too many"):
            await trials.run(JOB, viewer("late"))
        assert await asyncio.gather(*running) == ["it fits"] * trial.MOST
        assert await trials.run(JOB, viewer("late")) == "it fits"

    asyncio.run(story())
    assert set(most) == {1}


def test_it_takes_a_share_of_the_time(monkeypatch):
    """As long as it took to hand over what was seen, ten times, it is not done again."""
    monkeypatch.setattr(trial, "_hand_over", lambda *_: time.sleep(0.05))

    async def story():
        trials = Trials(record, program(ANSWERS.replace("sys.stdin.readline()", "", 2)))
        ended = []
        for _ in range(2):
            await trials.run(JOB, viewer())
            ended.append(time.monotonic())
        return ended

    first, second = asyncio.run(story())
    assert second - first >= trial.SHARE * 0.05


def test_a_cluster_is_handed_over_in_pieces():
    """After each of which others have the interpreter: none is larger than 64 KiB and a value."""

    class Pipe(io.BytesIO):
        largest = 0

        def write(self, data):
            self.largest = max(self.largest, len(data))
            return super().write(data)

    taken, _ = sample_clusters.large(2000, 200)
    pipe = Pipe()
    trial._hand_over(pipe, taken, None)
    assert len(pipe.getvalue()) > 2**20
    assert pipe.largest < 2**17
