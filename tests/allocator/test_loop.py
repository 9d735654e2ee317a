# SPDX-License-Identifier: Apache-2.0
"""The allocator's loop: what changes while a cycle is under way, and what wakes it."""

import asyncio
import contextlib
import gc
import math
import time
from dataclasses import replace

import pytest

from muster.allocator import cells, loop, members, pending, tracker
from muster.api import edge
from muster.api.backoff import Backoff
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.cluster.state import ClusterColumns
from muster.controller.model import Context, Refusal
from muster.runtime import health
from muster.scheduler import cycle, policy
from muster.scheduler.decision import Decision, Eviction, Verdict
from muster.scheduler.model import Deferred
from support.builders.scheduler import (
    make_gang,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)
from support.rehearsal import call_count
from support.rehearsal.allocator_loop import KEY, PATIENCE, Looping, Silence, running

LOW = "TFJob/team/low"


class Story(Looping):
    """A loop on two nodes of two CPUs each."""

    def __init__(self):
        """Begin with the nodes."""
        super().__init__(Silence(), {name: {"cpu": 2} for name in ("n1", "n2")})

    def create(self, *, name="mnist", workers=4, queue=None, **more):
        """Show a job."""
        spec = {} if queue is None else {"runPolicy": {"schedulingPolicy": {"queue": queue}}}
        return self.show_job(name, workers, spec=spec, **more)

    def foreign(self, node="n1"):
        """Show a pod of somebody else that takes a CPU."""
        self.put({"kind": "Pod", **make_pod(name="foreign", node=node, cpu=1)})

    def verdict(self, key=KEY):
        """Return the gang's latest reason and summary."""
        found = self.loop.verdict(self.store.jobs.get(key))
        return (found.reason, found.summary) if found else None

    def state(self, key=KEY):
        """Return the latest state: how far the gang has come."""
        found = self.loop.verdict(self.store.jobs.get(key))
        return found and found.state

    def worker(self, job, name, node):
        """Show a pod of a job that runs on its node."""
        self.show_worker(name, job, f"uid-{job}", node=node)

    async def run_low(self, **fields):
        """Show a job, and let its pods run where it is placed."""
        self.create(name="low", **fields)
        await self.until(lambda: self.placements(LOW))
        for name, node in list(self.placements(LOW).items()):
            self.worker("low", name, node)

    @property
    def promised(self):
        """The room that is taken for pods that are not there yet."""
        return dict(self.store.columns.assumed)

    async def promised_next(self):
        """Return what is promised when the next cycle has looked."""
        looked = asyncio.get_running_loop().create_future()
        self.meanwhile.append(lambda: looked.set_result(self.promised))
        self.loop.trigger()
        return await asyncio.wait_for(looked, PATIENCE)


async def test_the_default_queue_needs_no_object():
    """One that somebody makes counts in its place, and another one that is named must exist."""
    async with running(Story()) as s:
        limit = {"capability": {"cpu": "3"}}
        s.put({"kind": "Queue", "metadata": {"name": "default"}, "spec": limit})
        s.create()
        await s.until(s.verdict)
        assert s.verdict()[0] == "ExceedsQueueCapability"
        s.store.gone("Queue", "", "default", "uid-default")
        await s.until(s.placements)
        s.create(name="other", queue="team-a")
        await s.until(lambda: s.verdict("TFJob/team/other"))
        assert s.verdict("TFJob/team/other")[0] == "QueueNotFound"


async def test_device_classes_count_from_the_next_cycle():
    """The verdict on a gang that waits names them."""
    async with running(Story()) as s:
        resources = {"requests": {"example.com/gpu": "1"}}
        container = {"name": "tensorflow", "image": "i", "resources": resources}
        s.create(template={"containers": [container]})
        await s.until(s.verdict)
        assert s.verdict()[0] == "NoNodeLargeEnough"
        s.loop._changed.clear()
        s.loop._devices_changed(frozenset({"example.com/gpu"}))
        assert s.loop._changed.is_set()
        await s.until(lambda: s.verdict()[0] == "DevicesAllocatedByDRA")


@pytest.mark.parametrize(
    "loss",
    [lambda s: s.foreign(), lambda s: s.store.gone("Node", "", "n2", "uid-n2")],
)
async def test_room_that_goes_while_a_cycle_decides(loss):
    """Nothing of the gang is promised, and the next cycle says why (S2)."""
    async with running(Story()) as s:
        s.meanwhile.append(lambda: loss(s))
        s.create()
        await s.until(s.verdict)
        assert not s.promised
        assert s.verdict()[0] in ("NotEnoughResources", "ExceedsCluster")


async def test_evaluation_of_many_gangs_leaves_turns_of_the_event_loop_to_others(monkeypatch):
    """After a start every gang is evaluated, and the lease and the probes need the loop too."""
    monkeypatch.setattr(loop, "SLICE", 0.0)
    evaluated = {}
    real = members.JobMembers.facts

    def facts(self, key, *more):
        evaluated.setdefault(key, turn())
        return real(self, key, *more)

    async with running(Story()) as s, call_count.turns() as turn:
        monkeypatch.setattr(members.JobMembers, "facts", facts)
        for number in range(10):
            s.create(name=f"job-{number}", workers=100)
        await s.until(lambda: s.verdict("TFJob/team/job-9"))
        assert len(set(evaluated.values())) == 10


async def test_a_job_that_changes_or_goes_while_a_cycle_decides():
    """What was decided is forgotten, the next cycle decides for the new one, or for the others."""
    async with running(Story()) as s:
        s.meanwhile.append(lambda: s.create(workers=3, generation=2))
        s.create()
        await s.until(s.placements)
        assert len(s.promised) == len(s.placements()) == 3
    async with running(Story()) as s:
        s.meanwhile.append(lambda: s.store.gone("TFJob", "team", "mnist", "uid-mnist"))
        s.create()
        s.create(name="other")
        await s.until(lambda: s.placements("TFJob/team/other"))
        assert {name for _, name in s.promised} == {f"other-worker-{i}" for i in range(4)}


async def test_a_status_that_is_written_while_a_cycle_decides():
    """What was decided holds; unless the job is blocked since, so that nothing is created."""
    async with running(Story()) as s:
        fields = {"workers": 2, "creationTimestamp": edge.format_time(time.time())}
        said = {"conditions": [{"type": "Created", "status": "True"}]}
        s.meanwhile.append(lambda: s.create(status=said, **fields))
        s.create(**fields)
        await s.until(s.placements)
        assert s.loop.cycles == 1
        blocked = {"state": "Blocked"}
        s.meanwhile.append(lambda: s.create(name="other", status=blocked, **fields))
        s.create(name="other", **fields)
        assert len(await s.promised_next()) == 2
        assert len(await s.promised_next()) == 2


async def test_a_job_that_changes_while_each_cycle_decides():
    """It is held back in every third cycle: else its edits would keep everybody else waiting."""
    async with running(Story()) as s:
        oldest, edits = edge.format_time(0.0), []

        def edit():
            edits.append(time.time())
            s.create(creationTimestamp=oldest, generation=len(edits) + 1)
            asyncio.get_running_loop().call_soon(s.meanwhile.append, edit)

        s.meanwhile.append(edit)
        s.create(creationTimestamp=oldest)
        s.create(name="low", namespace="other", workers=2)
        await s.until(lambda: s.placements("TFJob/other/low"))
        assert not s.placements()


async def test_one_change_of_a_job_while_a_cycle_decides_costs_it_no_nodes():
    """Those behind it wait for the next cycle, which decides for it again."""
    async with running(Story()) as s:
        fields = {"creationTimestamp": edge.format_time(0.0)}
        s.meanwhile.append(lambda: s.create(annotations={"a": "b"}, **fields))
        s.create(**fields)
        s.create(name="low", namespace="other", workers=2)
        await s.until(s.placements)
        assert not s.placements("TFJob/other/low")


async def test_a_job_that_goes_while_its_pods_are_created():
    """Its room is the next one's when the server has answered, and not before."""
    async with running(Story()) as s:
        s.create()
        await s.until(s.placements)
        job, given = s.store.jobs.get(KEY), s.placements()
        with contextlib.ExitStack() as writes:
            for name, node in given.items():
                assert writes.enter_context(s.loop.creating(job, name, node))
            s.store.gone("TFJob", "team", "mnist", "uid-mnist")
            s.create(name="other")
            await s.until(lambda: s.verdict("TFJob/team/other"))
            assert not s.placements("TFJob/team/other")
        await s.until(lambda: s.placements("TFJob/team/other"))
        # Whoever comes with the places of before is told that they are not his any more.
        with s.loop.creating(job, "mnist-worker-0", given["mnist-worker-0"]) as still:
            assert not still


async def test_a_pod_of_which_nobody_knows_whether_it_was_created():
    """Its room is kept until it is seen; from then on it is the pod's."""
    async with running(Story()) as s:
        s.create()
        await s.until(s.placements)
        known, given = s.store.jobs.get(KEY), s.placements()
        for name, node in given.items():
            with contextlib.suppress(TimeoutError), s.loop.creating(known, name, node):
                raise TimeoutError
        s.store.gone("TFJob", "team", "mnist", "uid-mnist")
        s.create(name="other", workers=1)
        await s.until(lambda: s.verdict("TFJob/team/other"))
        assert not s.placements("TFJob/team/other")
        s.worker("mnist", "mnist-worker-0", given["mnist-worker-0"])
        s.store.gone("Pod", "team", "mnist-worker-0", "uid-mnist-worker-0")
        await s.until(lambda: s.placements("TFJob/team/other"))
        assert list(s.placements("TFJob/team/other").values()) == [given["mnist-worker-0"]]


async def test_the_end_of_a_refusal_is_an_event():
    """Nothing else happens; the gang is placed when its time has come."""
    async with running(Story()) as s:
        s.create()
        await s.until(s.placements)
        job, until = s.store.jobs.get(KEY), time.time() + 0.3
        s.store.jobs.refuse(job, Refusal("Pod", "p", "Forbidden", "exceeded quota", until))
        assert not await s.promised_next()
        await s.until(s.placements)
        assert time.time() >= until
        assert len(s.promised) == 4


async def test_pods_of_a_gang_that_waits_are_shown_by_and_by():
    """Without a node, after a moment, with no other event."""
    async with running(Story()) as s:
        created = time.time()
        s.create(workers=5)
        await s.until(s.verdict)
        assert not s.placements()
        await s.until(s.placements)
        assert time.time() >= created + pending.PENDING_AFTER
        assert set(s.placements().values()) == {""}
        assert not s.promised


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"schedulingGates": [{"name": "a"}]}, "SchedulingGated"),
        ({"schedulerName": "other"}, "ForeignScheduler"),
    ],
)
async def test_pods_with_gates_or_of_another_scheduler_are_created_at_once(spec, reason):
    """Without a node; the verdict gives the reason."""
    async with running(Story()) as s:
        s.create(template=spec)
        await s.until(lambda: s.verdict() and s.verdict()[0] == reason)
        await s.until(lambda: list(s.placements().values()) == [""] * 4)


async def test_nobody_is_evicted_before_it_is_written():
    """First whose room it will be, then who leaves: each by the status of the job."""
    async with running(Story()) as s:
        s.policy, s.priorities = policy.parse({"actions": "allocate, preempt"}), {"high": 10}
        await s.run_low()
        document = s.create()
        urgent = {"schedulingPolicy": {"priorityClass": "high"}}
        document["spec"]["runPolicy"] = urgent
        document = s.put({**document, "metadata": {**document["metadata"], "generation": 2}})
        await s.until(lambda: s.state() == "Reserved")
        await s.promised_next()
        await s.promised_next()
        assert s.state(LOW) == "Placed"
        status = {"gang": {"state": "Reserved", "reason": "", "scheduler": "muster"}}
        s.put({**document, "status": status})
        await s.until(lambda: s.state(LOW) == "Released")
        pods = s.store.children.own_pods(s.store.jobs.get("TFJob/team/low")).values()
        assert [pod.deleting for pod in pods] == [False] * 4


async def test_nobody_is_evicted_for_a_gang_whose_pods_went_meanwhile():
    """Nobody makes them again here."""
    group = "pod-group.scheduling.sigs.k8s.io"
    labels = {f"{group}/name": "g", f"{group}/min-available": "2"}
    async with running(Story()) as s:
        s.policy = policy.parse({"actions": "allocate, preempt"})
        await s.run_low()

        def chosen():
            if "uid-low-worker-0" in s.loop._binder._passed:
                s.store.gone("Pod", "team", "a", "uid-a")
            return s._policy()

        s.loop._policy = chosen
        for name in ("a", "b"):
            pod = _pod_of_muster(name, labels=labels, nominated="n1")
            pod["spec"]["priority"] = 10
            s.put(pod)
        while s.store.children.pod("team", "a"):
            await s.promised_next()
        await s.promised_next()
        assert not s.loop.gangs.memory(LOW).leaving


NOW = 1_700_000_000.0


def reserved(eta=None):
    """Return a decision that keeps room for a gang, until then if that is known."""
    return decided(GangPhase.RESERVED, eta=eta)


def decided(state, key="team/a", eta=None, head_since=None):
    """Return a decision without placements."""
    verdict = Verdict(state, Reason.NONE, "", "", 1, 0, 0, 1, eta=eta)
    return Decision(key, verdict, head_since=head_since)


async def test_nobody_is_told_to_make_room_for_a_gang_that_is_given_nothing_yet():
    """Neither is anything evicted, nor does the one hear of it that would have been."""
    async with running(Story()) as s:
        other = "TFJob/team/other"
        for name in ("low", "other"):
            s.create(name=name, workers=1)
        s.create()
        await s.until(lambda: s.placements(LOW) and s.placements(other) and s.verdict())
        goes = Eviction(LOW, "worker", 0, "n1", DeletionReason.PREEMPT)
        made = [
            replace(decided(GangPhase.RESERVED, KEY), evictions=(goes,)),
            decided(GangPhase.RELEASED, LOW),
            decided(GangPhase.PLACED, other),
        ]
        assert s.loop._standing(made, NOW) == tuple(made)
        s.loop._jobs.untried.add(KEY)
        assert s.loop._standing(made, NOW) == (made[2],)


@pytest.mark.parametrize(
    ("decisions", "patience", "wakes", "count"),
    [
        ([reserved(NOW + 60)], math.inf, NOW + 60, 1),
        ([reserved(NOW + 60), reserved(NOW + 30)], math.inf, NOW + 30, 2),
        ([reserved(NOW - 5)], math.inf, NOW + loop.FRESH_FOR, 1),
        ([reserved()], 100.0, math.inf, 1),
        ([decided(GangPhase.WAITING, head_since=NOW - 70)], 100.0, NOW + 30, 0),
        ([decided(GangPhase.WAITING, head_since=NOW - 170)], 100.0, NOW + 30, 0),
        ([decided(GangPhase.WAITING, head_since=NOW - 70)], 0.0, math.inf, 0),
        ([decided(GangPhase.WAITING, head_since=NOW - 70)], math.inf, math.inf, 0),
        ([decided(GangPhase.WAITING, "team/b", head_since=NOW - 70)], 100.0, math.inf, 0),
        ([decided(GangPhase.WAITING)], 100.0, math.inf, 0),
        ([], 100.0, math.inf, 0),
    ],
)
def test_looking_ahead(decisions, patience, wakes, count):
    """A cycle runs when a reservation begins, or when waiting for long makes one possible."""
    s = Story()
    s.loop.busy_since = NOW
    gang = make_gang(key="team/a", created=5.0, drains_from=5.0 + patience)
    s.loop._look_ahead(decisions, [gang], NOW)
    assert s.loop._next == wakes
    assert s.loop._metrics.reservations._value.get() == count


BAD = "TFJob/team/bad"


def sick(monkeypatch, module, name, is_bad):
    """Let a function raise where `is_bad` says so of its arguments."""
    well = getattr(module, name)

    def fails(*given, **more):
        if is_bad(*given):
            raise OverflowError("int too large to convert")
        return well(*given, **more)

    monkeypatch.setattr(module, name, fails)


PLACES = {
    "what it asks": (members.gangs, "asks", lambda job, *_: job.name == "bad"),
    "whether it is to run": (members.gangs, "wants_pods", lambda job: job.name == "bad"),
    "its step": (tracker, "step", lambda _memory, facts, _now: facts.asks.key == BAD),
    "its tasks": (tracker.tasks, "roles", lambda sets, *_: "bad" in str(sets[0].places)),
    "taking it in": (ClusterColumns, "snapshot", lambda _, own, *_q: BAD in {g.key for g in own}),
    "deciding": (cycle, "schedule", lambda seen, *_: BAD in {g.key for g in seen.gangs}),
    "reading what was decided": (tracker, "outcome", lambda facts, _: facts.asks.key == BAD),
    "accepting": (tracker, "accepted", lambda _memory, facts, *_: facts.asks.key == BAD),
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_gang_that_is_not_understood_costs_itself_alone(monkeypatch, caplog, place):
    """It is told so; all others are placed in the same cycle, and it follows once it is mended."""
    monkeypatch.setattr(cells, "RETRY", 0.5)
    sick(monkeypatch, *PLACES[place])
    async with running(Story()) as s:
        s.create(name="bad", workers=1)
        s.create(name="good", workers=1)
        await s.until(lambda: s.verdict(BAD) and s.placements("TFJob/team/good"))
        assert (s.loop.cycles, s.loop.failures) == (1, 0)
        reason, summary = s.verdict(BAD)
        assert (reason, summary) == ("Unreadable", "not understood")
        said = s.loop.verdict(s.store.jobs.get(BAD)).message
        assert "OverflowError: int too large to convert" in said
        for name in ("third", "fourth"):
            s.create(name=name, workers=1)
            await s.until(lambda name=name: s.placements(f"TFJob/team/{name}"))
        assert len([r for r in caplog.records if r.exc_info]) == 1
        monkeypatch.undo()
        s.create(name="bad", workers=2, generation=2)
        await s.until(lambda: s.verdict(BAD)[0] != "Unreadable")
        assert s.verdict(BAD)[0] == "NotEnoughResources"
        assert len(s.promised) == 3


async def test_a_gang_with_which_another_makes_a_cycle_fail(monkeypatch):
    """Each goes well alone: the last straw is left out, all others are placed."""
    pair = {"TFJob/team/one", "TFJob/team/two"}
    sick(monkeypatch, cycle, "schedule", lambda seen, *_: pair <= {g.key for g in seen.gangs})
    async with running(Story()) as s:
        for name in ("one", "two", "three"):
            s.create(name=name, workers=1)
        await s.until(lambda: s.placements("TFJob/team/three"))
        placed = [name for name in pair if s.placements(name)]
        reasons = [s.verdict(name)[0] for name in pair if name not in placed]
        assert (len(placed), reasons) == (1, ["Unreadable"])


async def test_a_gang_that_a_cycle_fails_over_is_not_tried_in_each(monkeypatch):
    """It is left out for a minute: others are not to wait for the search."""
    tried = []

    def seen(snapshot, *_):
        tried.append(len(snapshot.gangs))
        return any(gang.key == BAD for gang in snapshot.gangs)

    sick(monkeypatch, cycle, "schedule", seen)
    async with running(Story()) as s:
        s.create(name="bad", workers=1)
        await s.until(lambda: s.verdict(BAD))
        tried.clear()
        for name in ("one", "two", "three"):
            s.create(name=name, workers=1)
            await s.until(lambda name=name: s.placements(f"TFJob/team/{name}"))
        assert tried == [1, 2, 3]


async def test_cycles_that_fail_whoever_is_left_out(monkeypatch, caplog):
    """It is nobody's fault: all is tried again, told once at length, and shown by the probes."""
    monkeypatch.setattr(loop, "BACKOFF", Backoff(0.01, 0.01))
    sick(monkeypatch, ClusterColumns, "snapshot", lambda *_: True)
    async with running(Story()) as s:
        s.create()
        while s.loop.failures < 3:  # noqa: ASYNC110 -- a cycle that fails tells nobody
            await asyncio.sleep(0.05)
        assert s.verdict() is None
        now = time.monotonic()
        said = health.unready(s.loop, (), now)
        assert "cycles in a row have failed: OverflowError: int too large" in said
        assert health.unwell(s.loop, (), now) == ""
        assert "have failed for 301 s" in health.unwell(s.loop, (), s.loop.failing_since + 301)
        monkeypatch.undo()
        await s.until(s.placements)
        assert (health.unready(s.loop, (), now), health.unwell(s.loop, (), now + 1e6)) == ("", "")
    assert len([r for r in caplog.records if r.exc_info]) == 1


async def test_a_pod_whose_arrival_cannot_be_recorded_stops_nobody(monkeypatch):
    """The watch that shows it goes on."""
    sick(monkeypatch, tracker, "arrived", lambda _memory, place, *_: "bad" in place)
    async with running(Story()) as s:
        s.create(name="bad", workers=1)
        await s.until(lambda: s.placements(BAD))
        s.worker("bad", "bad-worker-0", "n1")
        assert s.verdict(BAD)[0] == "Unreadable"
        s.create(name="good", workers=1)
        await s.until(lambda: s.placements("TFJob/team/good"))


@pytest.mark.parametrize(
    ("started", "phase", "wakes"),
    [
        (700.0, GangPhase.WAITING, 1300.0),
        (None, GangPhase.WAITING, 1600.0),
        (100.0, GangPhase.WAITING, math.inf),
        (700.0, GangPhase.PLACED, math.inf),
    ],
)
def test_a_cycle_runs_when_a_gang_may_be_evicted(started, phase, wakes):
    """If any waits; what has run for long enough may be at once."""
    runs = make_gang(key="team/runs", roles=[make_role(held=[(0, "n1")], cpu=1)], started=started)
    queue = make_queue(min_runtime=600.0)
    snapshot = make_snapshot(gangs=[runs], queues=[queue, make_queue(name="other")])
    assert loop._end_of_grace(snapshot, [decided(phase)]) == wakes


async def test_what_is_kept_for_a_namespace_is_written_and_comes_free_in_time():
    """By a cycle of its own, though nothing else happens; the gang is told why it waits on."""
    async with running(Written()) as s:
        s.patience = 0.0
        limits = {"reservationLimits": {"maxSeconds": 1}}
        s.put({"kind": "Queue", "metadata": {"name": "default"}, "spec": limits})
        await s.run_low()
        since = time.time()
        s.create()
        await s.until(lambda: s.state() == "Reserved")
        await s.until(lambda: s.state() == "Waiting")
        assert time.time() - since >= 1.0
        said = s.loop.verdict(s.store.jobs.get(KEY)).message
        assert 'queue "default" has kept room for its namespace' in said
        await s.until(lambda: s.state() == "Reserved")
        written = [s.server.written.get_nowait() for _ in range(s.server.written.qsize())]
        found = next(status for status in written if status.get("reservations"))
        assert found["running"] == found["pending"] == 1
        assert edge.parse_time(found["reservations"]["team"]) == pytest.approx(since, abs=PATIENCE)


class Written(Story):
    """The same, beside a server that takes the status of queues."""

    def __init__(self):
        """Begin with none."""
        super().__init__()
        self.server.written = asyncio.Queue()
        self.server.patch = self._patch

    async def _patch(self, path, _exactly, body, *_):
        if "/queues/" not in path:
            raise TimeoutError
        self.server.written.put_nowait(body["status"])


async def test_who_asks_for_a_cycle_between_two_gets_it():
    """What arrives then may be due before the timer that the last cycle has set."""
    s = Story()
    s.loop._changed.clear()
    for pause in (60.0, 0.05, 30.0):
        s.loop._wake(time.time() + pause)
    await asyncio.wait_for(s.loop._changed.wait(), PATIENCE)


async def test_a_cycle_that_gives_nothing_leaves_the_process_to_others(monkeypatch):
    """Whatever asks for cycles all the time, while hundreds wait for what is not there."""
    decide = cycle.schedule

    def slow(*args):
        time.sleep(0.05)
        return decide(*args)

    monkeypatch.setattr(cycle, "schedule", slow)
    async with running(Story()) as s:
        s.create(workers=50)
        await s.until(s.verdict)
        before, ends = s.loop.cycles, time.monotonic() + 2.0
        while time.monotonic() < ends:
            s.loop.trigger()
            await asyncio.sleep(0.005)
        assert 0 < s.loop.cycles - before <= 2.0 / (0.05 + loop.IDLE_SHARE * 0.05) + 1


async def test_deferred_search_goes_on_without_any_change(monkeypatch):
    """Each cycle that cut a search off is followed by one in which the gang searches further."""
    decide, seen = cycle.schedule, []

    def cut_off(snapshot, *args):
        seen.append(snapshot.deferred)
        decisions = decide(snapshot, *args)
        return tuple(replace(each, deferred=len(seen) < 6) for each in decisions)

    monkeypatch.setattr(cycle, "schedule", cut_off)
    async with running(Story()) as s:
        s.create(workers=50)
        async with asyncio.timeout(PATIENCE):
            while len(seen) < 6:  # noqa: ASYNC110 -- a cycle that repeats a verdict notifies nobody
                await asyncio.sleep(0.01)
        assert seen[5] == Deferred({KEY: 5}, alone=KEY)


class Hanging:
    """An API server that takes every write and never answers; it notes what it was sent."""

    def __init__(self):
        """Begin with nothing."""
        self.asked = []

    def __getattr__(self, verb):
        async def write(path, *_args, **_more):
            self.asked.append((verb, path))
            await asyncio.Event().wait()

        return write


def _pod_of_muster(name, **fields):
    """Return a pod of somebody else's that Muster is to give a node."""
    pod = make_pod(name=name, namespace="team", node="", phase="Pending", cpu=1, **fields)
    pod["spec"]["schedulerName"] = "muster"
    return {"kind": "Pod", **pod}


async def test_nothing_that_the_loop_began_outlives_it():
    """Neither a binding nor a dry run: after it the lease goes to somebody else."""
    server = Hanging()
    made = Looping(server, {"n1": {"cpu": "4"}}, context=lambda _namespace: Context())
    running = asyncio.create_task(made.loop.run())
    made.put(_pod_of_muster("alone"))
    made.show_job("mnist", 2)
    wanted = [("create", "/api/v1/namespaces/team/pods/alone/binding")]
    wanted.append(("dry_run", "/api/v1/namespaces/team/pods"))
    async with asyncio.timeout(PATIENCE):
        while not set(wanted) <= set(server.asked):  # noqa: ASYNC110 -- writes tell nobody
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    asked = list(server.asked)
    made.loop._binder.bind(made.store.children.pod("team", "alone"), "n1")
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
    assert server.asked == asked


class Stumbling:
    """An API server that can be asked nothing for once: the file of a token is away, say."""

    def __init__(self, fails=1):
        """Begin with nothing."""
        self.bindings, self.again, self.fails = 0, asyncio.Event(), fails

    async def get(self, _path):
        """Serve nothing."""
        raise TimeoutError

    async def create(self, path, *_args, **_more):
        """Bind, but for the first times."""
        self.bindings += path.endswith("/binding")
        if 0 < self.bindings <= self.fails:
            raise OSError("no token")
        if self.bindings:
            self.again.set()
        return {"kind": "Status"}


async def test_a_binding_that_ends_of_what_nobody_expected_is_tried_again(caplog):
    """Its room would be kept for ever; the error is told when it happens."""
    server = Stumbling()
    async with running(Looping(server, {"n1": {"cpu": "4"}})) as made:
        made.put(_pod_of_muster("alone"))
        await asyncio.wait_for(server.again.wait(), PATIENCE)
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert "no token" in caplog.text


async def test_pods_are_bound_without_their_pause_once_the_server_accepts_bindings(monkeypatch):
    """They would wait for a minute after the permission was granted again."""
    monkeypatch.setattr(tracker, "RETRIES", Backoff(300.0, 300.0))
    server = Stumbling(fails=2)
    async with running(Looping(server, {"n1": {"cpu": "4"}})) as made, asyncio.timeout(PATIENCE):
        made.put(_pod_of_muster("alone"))
        while server.bindings < 2:  # noqa: ASYNC110 -- writes tell nobody
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert server.bindings == 2
        made.loop.retry()
        await server.again.wait()


async def test_gang_that_is_held_back_after_changes_is_placed_without_another_change():
    """It is held back in one cycle, and nothing else triggers the next one."""
    async with running(Story()) as s:

        def change(generation):
            s.create(generation=generation)
            if generation == 2:
                loop_ = asyncio.get_running_loop()
                loop_.call_soon(s.meanwhile.append, lambda: change(3))

        s.meanwhile.append(lambda: change(2))
        s.create()
        await s.until(s.placements)
