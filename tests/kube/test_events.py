# SPDX-License-Identifier: Apache-2.0
"""What is said again, and what is not."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from muster.kube import events
from muster.kube.client import ApiError
from muster.kube.events import AGAIN_SECONDS, BACKLOG, MEMORY_SECONDS, PLENTY, EventRecorder

JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "mnist", "namespace": "team", "uid": "u"},
}
OTHER = {**JOB, "metadata": {**JOB["metadata"], "uid": "v"}}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        # Other words, another reason and another job are news.
        (
            [(JOB, "Error", "a"), (JOB, "Error", "a"), (JOB, "Error", "b"), (JOB, "Failed", "a"),
             (OTHER, "Error", "a")],
            [True, False, True, True, True],
        ),
        # Of a pod it is once whatever the words, until the reason is another one.
        (
            [(JOB, "BackOff", "10s", "pod"), (JOB, "BackOff", "20s", "pod"),
             (JOB, "BackOff", "20s", "twin"), (JOB, "ErrImagePull", "no such image", "pod")],
            [True, False, True, True],
        ),
    ],
    ids=["object", "pod"],
)  # fmt: skip
def test_event_that_is_to_be_recorded_once_is_recorded_once(told, said):
    """The recorder compares the object, the reason, and the message or the pod."""
    recorder = EventRecorder(None)
    found = [
        recorder.emit(about, "Warning", reason, message, once=True, of="".join(of))
        for about, reason, message, *of in told
    ]
    assert found == said


def test_more_than_the_backlog_is_dropped_and_counted():
    """Nothing waits for an event; a restart is a restart and is recorded each time."""
    recorder = EventRecorder(None)
    assert [recorder.emit(JOB, "Warning", "Restarting", "again") for _ in range(2)] == [True] * 2
    for index in range(BACKLOG + 2):
        recorder.emit(JOB, "Normal", "Reason", str(index))
    assert recorder.dropped == 3


def test_what_others_tell_too_is_left_out_under_load():
    """A thousand jobs that wait come before their groups."""
    recorder = EventRecorder(None)
    assert recorder.emit(JOB, "Warning", "Unschedulable", "first", spare=True)
    for number in range(PLENTY):
        assert recorder.emit(JOB, "Warning", "Unschedulable", str(number))
    assert not recorder.emit(JOB, "Warning", "Unschedulable", "more", spare=True)
    assert recorder.emit(JOB, "Warning", "Unschedulable", "more")
    assert recorder.dropped == 1


@asynccontextmanager
async def running(recorder):
    """Write what is recorded, until the block ends."""
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_who_says_much_is_heard_behind_himself():
    """Another namespace's events find room, and their turn, whatever a first one has to say."""
    server = Server()
    victim = {**JOB, "metadata": {**JOB["metadata"], "namespace": "victim", "uid": "w"}}
    recorder = EventRecorder(server)
    for index in range(BACKLOG + 1):
        recorder.emit(JOB, "Normal", "Reason", str(index))
    assert recorder.emit(victim, "Warning", "Unschedulable", "why", spare=True)
    assert recorder.emit(victim, "Warning", "Failed", "why")
    assert recorder.dropped == 1
    async with running(recorder):
        await asyncio.sleep(0.01)
    first = list(server.held.values())[:8]
    told = {e["reason"] for e in first if e["involvedObject"]["uid"] == "w"}
    assert told == {"Unschedulable", "Failed"}


class Server:
    """Keeps events as a server does."""

    def __init__(self):
        """Begin with none."""
        self.held, self.writes = {}, 0

    async def create(self, path, body, _urgency):
        """Create one, unless its name is taken."""
        self.writes += 1
        name = body["metadata"]["name"]
        if name in self.held:
            raise ApiError(409, "AlreadyExists", "there is one", None)
        metadata = {**body["metadata"], "uid": f"uid-{self.writes}"}
        self.held[name] = {**body, "metadata": metadata}
        return self.held[name]

    async def patch(self, path, exactly, body, _urgency):
        """Change one."""
        self.writes += 1
        name = path.rsplit("/", 1)[1]
        if name not in self.held or self.held[name]["metadata"]["uid"] != exactly.uid:
            return None
        self.held[name] |= body
        return self.held[name]

    async def apply(self, path, body, _urgency):
        """Say something of one."""
        self.writes += 1
        name = path.rsplit("/", 1)[1].partition("?")[0]
        metadata = {**self.held[name]["metadata"], **body["metadata"]}
        self.held[name] |= {**body, "metadata": metadata}
        return self.held[name]


def written(server, *told):
    """Let a new process record this; each is (reason, message, once) or None: all is written."""

    async def story():
        async with running(EventRecorder(server)) as recorder:
            for each in told:
                if each is None:
                    await asyncio.sleep(0.01)
                    continue
                *words, once = each
                recorder.emit(JOB, "Warning", *words, once=once, source="tfjob-controller")
            await asyncio.sleep(0.01)
        assert recorder.dropped == 0

    asyncio.run(story())
    return sorted((e["reason"], e["message"], e["count"]) for e in server.held.values())


AGAIN = ("Restarting", "again", False)


def test_what_happens_again_is_counted_in_the_event_that_is_there():
    """Whether the first one is written by then or not, and by a process that follows.

    What is told once is not told again.
    """
    server, once = Server(), ("Failed", "why", True)
    written(server, AGAIN, AGAIN, once)
    assert written(server, AGAIN, once) == [("Failed", "why", 1), ("Restarting", "again", 3)]
    server = Server()
    assert written(server, AGAIN, AGAIN, None, AGAIN) == [("Restarting", "again", 3)]
    assert {e["source"]["component"] for e in server.held.values()} == {"tfjob-controller"}


async def test_an_event_that_the_server_has_dropped_begins_anew():
    """It keeps them for an hour."""
    server = Server()
    async with running(EventRecorder(server)) as recorder:
        for _ in range(2):
            recorder.emit(JOB, "Normal", "Reason", "text")
            await asyncio.sleep(0.01)
            assert [e["count"] for e in server.held.values()] == [1]
            server.held.clear()


def clock(monkeypatch):
    """Return a list of the present time, which the recorder reads."""
    now = [0.0]
    told = SimpleNamespace(monotonic=lambda: now[0], time=lambda: 0.0)
    monkeypatch.setattr(events, "time", told)
    return now


async def settled():
    """Let all that is under way come to its end: none of it waits for a time."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_what_was_recorded_again_is_remembered_longest(monkeypatch):
    """Else it would be forgotten, and told anew, as if it were as old as its first time."""
    now = clock(monkeypatch)
    monkeypatch.setattr(events, "REMEMBERED", 2)
    recorder = EventRecorder(None)
    said = [recorder.emit(JOB, "Warning", reason, "a", once=True) for reason in ("X", "Y")]
    now[0] = MEMORY_SECONDS + 1
    said += [recorder.emit(JOB, "Warning", reason, "a", once=True) for reason in ("X", "Z", "X")]
    assert said == [True, True, True, True, False]


async def test_what_was_to_be_told_once_and_was_not_written_is_told_again(monkeypatch):
    """After a while: passes that repeat themselves do not bring as many refusals."""
    now, server = clock(monkeypatch), Server()
    create = server.create

    async def refused(*_asked):
        server.writes += 1
        raise ApiError(403, "Forbidden", "no", None)

    server.create = refused
    async with running(EventRecorder(server)) as recorder:
        for _ in range(3):
            recorder.emit(JOB, "Warning", "Failed", "why", once=True)
            await settled()
        assert (server.writes, recorder.dropped) == (1, 1)
        server.create, now[0] = create, AGAIN_SECONDS + 1
        for _ in range(3):
            recorder.emit(JOB, "Warning", "Failed", "why", once=True)
            await settled()
    assert [(e["reason"], e["count"]) for e in server.held.values()] == [("Failed", 1)]


def test_what_found_no_room_may_be_told_again(monkeypatch):
    """Though it was to be told once."""
    now = clock(monkeypatch)
    monkeypatch.setattr(events, "BACKLOG", 0)
    recorder = EventRecorder(None)
    said = [recorder.emit(JOB, "Warning", "Failed", "why", once=True) for _ in range(2)]
    now[0] = AGAIN_SECONDS + 1
    said.append(recorder.emit(JOB, "Warning", "Failed", "why", once=True))
    assert (said, recorder.dropped) == ([True, False, True], 2)


async def test_no_count_is_lost_while_an_event_is_being_written():
    """What happens during a write is counted by the next one, which comes after it."""
    server = Server()
    plain, gate = server.patch, asyncio.Event()

    async def slow(*asked):
        await gate.wait()
        return await plain(*asked)

    server.patch = slow
    async with running(EventRecorder(server)) as recorder:
        for _ in range(4):
            recorder.emit(JOB, "Warning", "Restarting", "again")
            await settled()
        gate.set()
        await settled()
    assert [e["count"] for e in server.held.values()] == [4]


class Slow(Server):
    """Takes a moment for each event, or for ever."""

    def __init__(self, seconds):
        """Begin; `seconds` are for each."""
        super().__init__()
        self.seconds = seconds

    async def create(self, path, body, urgency):
        """Create one then."""
        await asyncio.sleep(self.seconds)
        return await super().create(path, body, urgency)


def ended(server, count):
    """Record so many, end at once, and return after how many seconds that has ended."""

    async def story():
        recorder = EventRecorder(server)
        task = asyncio.create_task(recorder.run())
        await settled()
        for number in range(count):
            recorder.emit(JOB, "Normal", "Created", f"{number}")
        began = asyncio.get_running_loop().time()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return asyncio.get_running_loop().time() - began

    return asyncio.run(story())


def test_what_waits_at_the_end_is_written_yet():
    """No process after this one says it."""
    server = Slow(0.001)
    ended(server, 100)
    assert {event["message"] for event in server.held.values()} == {str(n) for n in range(100)}


def test_the_end_does_not_wait_for_a_server_that_is_slow():
    """A standby waits for the lease."""
    assert events.GOODBYE <= ended(Slow(60.0), 100) < events.GOODBYE + 1.0
