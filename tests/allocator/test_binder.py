# SPDX-License-Identifier: Apache-2.0
"""What is recorded of pods that have come to their nodes, and what follows a refusal."""

import asyncio
import contextlib
import dataclasses
from collections import Counter
from types import SimpleNamespace

import pytest

from muster import gang
from muster.allocator import binder
from muster.allocator.background import MAX_UNDER_WAY
from muster.allocator.verdict import Cause
from muster.api.backoff import Backoff
from muster.api.reasons import DeletionReason
from muster.cluster import storage
from muster.kube.client import ApiError, Exactly
from muster.kube.flowcontrol import FlowControl, PriorityLevel
from muster.runtime.metrics import Metrics
from muster.store.store import Store
from support.builders import scheduler
from support.builders.objects import make_job, make_pod, make_replica


def room(_pod, _node):
    """Let every pod have its node."""
    return contextlib.nullcontext(enter_result=True)


class Recorder:
    """Keeps the events that would be written."""

    def __init__(self):
        """Begin in silence."""
        self.events = []

    def emit(self, about, kind, reason, message, *, spare=False, **_more):
        """Keep it."""
        self.events += [(about["kind"], about["metadata"]["name"], kind, reason, message, spare)]


def recorded_by(job, record):
    """Return the events that `record(binder)` emits where that job is known."""
    recorder, store = Recorder(), SimpleNamespace(jobs={job.key: job})
    record(binder.Binder(None, store, None, recorder, None, None))
    return recorder.events


def recorded(count):
    """Return the events about so many workers, which come last first."""
    job = make_job(replicas=[make_replica(replicas=count)])
    names = list(job.pod_names(job.replicas))
    pods = [make_pod(name=name, node=f"n{i}") for i, name in enumerate(names)]
    return recorded_by(job, lambda made: made.record_arrivals(job.key, pods[::-1]))


def test_each_pod_has_an_event_where_it_is():
    """On the pod itself, where people look for it; other news come first."""
    assert recorded(2) == [
        ("Pod", f"mnist-worker-{i}", "Normal", "Scheduled", text, True)
        for i, text in (
            (1, "Successfully assigned team/mnist-worker-1 to n1"),
            (0, "Successfully assigned team/mnist-worker-0 to n0"),
        )
    ]


def test_many_share_one_event():
    """Up to 32 apart, 33 together on the job, by the order of their indices."""
    assert [len(recorded(count)) for count in (0, 32)] == [0, 32]
    text = "Successfully assigned 33 pods: mnist-worker-0 … mnist-worker-32"
    assert recorded(33) == [("TFJob", "mnist", "Normal", "Scheduled", text, False)]


async def is_written(made):
    """Return once nothing is left to be said of any pod."""
    while made._marks:
        await written()


CAUSE = Cause(DeletionReason.PREEMPT, "TFJob/team/large")


class Server:
    """Refuses evictions so."""

    def __init__(self, code, message):
        """Remember what to answer."""
        self.error, self.asked, self.deleted = ApiError(code, "", message, None), 0, 0

    async def create(self, _path, _body, _urgency, **_still):
        """Refuse."""
        self.asked += 1
        if self.error is not None:
            raise self.error

    dry_run = create

    async def delete(self, *_args, **_more):
        """Delete."""
        self.deleted += 1


async def written():
    """Wait for more turns of the loop than a write takes."""
    for _ in range(20):
        await asyncio.sleep(0)


BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
BUDGETS = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)


@pytest.mark.parametrize(
    ("code", "message", "deleted"),
    [
        (429, BUDGET, 1),
        (500, BUDGETS, 1),
        (404, "not found", 0),
        (403, 'pods "x" is forbidden: User "muster" cannot create resource "pods/eviction"', 0),
        (403, 'admission webhook "guard" denied the request: never on Fridays', 0),
        (500, "Internal error occurred: failed calling webhook", 0),
        (422, "invalid", 0),
        (400, 'admission webhook "guard" does not support dry run', 0),
        (503, "the server is busy", 0),
    ],
)
@pytest.mark.parametrize("dry", [False, True])
async def test_only_a_budget_is_overridden(code, message, deleted, dry):
    """Other refusals, also of dry runs, are reported, and end what was still to be evicted."""
    server, recorder, told = Server(code, message), Recorder(), []
    store, pod = Store(gang.EMBEDDED, ()), make_pod(node="n1")
    after = room, told.extend, lambda _pod: not told
    made = binder.Binder(server, store, Metrics().cycles, recorder, None, *after)
    accepted = bool(deleted) or code in (400, 404)
    for i in range(3):
        if dry:
            assert made.passes("TFJob/team/low", [pod], CAUSE) is (i > 0 and accepted)
        else:
            made.evict(pod, CAUSE)
        await written()
    assert server.deleted == (3 if deleted and not dry else 0)
    refused = [event for event in recorder.events if event[3] == "EvictionRefused"]
    asked = 3 if code == 503 else 1 if accepted is dry else 3
    told_of = [] if accepted or code == 503 else [pod] * asked
    assert (server.asked, len(refused), told) == (asked, len(told_of), told_of)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ApiError(403, "", "cannot create resource", None), False),
        (TimeoutError(), False),
        (ApiError(400, "", "does not support dry run", None), True),
        (None, True),
    ],
)
async def test_nothing_is_evicted_for_a_pod_that_could_not_be_bound(error, passes):
    """The pod backs off, and an event on the pod names the error."""
    server, recorder, failed = Server(403, ""), Recorder(), []
    server.error = error
    more = Metrics().cycles, recorder, failed.append, room
    made = binder.Binder(server, Store(gang.EMBEDDED, ()), *more)
    assert not made.binds(pod := make_pod(), "n1")
    await written()
    assert (failed, len(recorder.events)) == (([], 0) if passes else ([pod], 1))
    assert made.binds(pod, "n1") is passes


async def test_dry_runs_of_a_large_gang_are_few_at_once_and_end_with_a_refusal(monkeypatch):
    """Each takes 12 KB. What passed is valid for a while."""
    monkeypatch.setattr(binder, "PASSED_SECONDS", 0.5)
    pods = [make_pod(name=f"p{i}", uid=f"u{i}", node="n1") for i in range(2 * MAX_UNDER_WAY + 1)]
    server, store, told = Server(403, "no"), Store(gang.EMBEDDED, ()), []
    made = binder.Binder(server, store, Metrics().cycles, Recorder(), None, room, told.append)
    for error, asked in ((server.error, MAX_UNDER_WAY), (None, MAX_UNDER_WAY + len(pods))):
        server.error = error
        assert not made.passes("TFJob/team/low", pods, CAUSE)
        while made._under_way:  # noqa: ASYNC110 -- it is nearly over
            await asyncio.sleep(0)
        assert server.asked == asked
    assert told == [pods[:MAX_UNDER_WAY], []]
    assert made.passes("TFJob/team/low", pods, CAUSE)
    while made._passed:  # noqa: ASYNC110 -- until its time is over
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("own", "asked"), [(None, None), (30, None), (3600, None), (3601, 3600), (2**63 - 1, 3600)]
)
@pytest.mark.parametrize("budget", [False, True])
async def test_who_makes_room_has_an_hour_to_end(own, asked, budget):
    """Also where a budget is overridden. No attempt is repeated after the release has ended."""
    leaves = [True]

    class Taker:
        async def create(self, _path, body, _urgency, still):
            self.seconds, self.still = body["deleteOptions"].get("gracePeriodSeconds"), still
            if budget:
                raise ApiError(429, "", BUDGET, None)

        async def delete(self, _path, _uid, _urgency, *, grace, still):
            assert budget
            self.seconds, self.still = grace, still

    server, store = Taker(), Store(gang.EMBEDDED, ())
    after = room, lambda _pods: None, lambda _pod: bool(leaves)
    made = binder.Binder(server, store, Metrics().cycles, Recorder(), lambda _pod: None, *after)
    made.evict(dataclasses.replace(make_pod(node="n1"), grace=own), CAUSE)
    await written()
    assert server.seconds == asked
    assert server.still()
    leaves.clear()
    assert not server.still()


def test_only_a_pod_of_a_deleted_node_has_no_grace_period():
    """No kubelet would end it. One on a node that is known may be running."""
    store, pod = Store(gang.EMBEDDED, ()), make_pod(node="n1")
    store.away._inhabited = lambda _node: [pod]
    assert binder.grace(store, pod) is None
    store.confirm_gone("n1")
    assert binder.grace(store, pod) == 0


@pytest.mark.parametrize("volume", [None, storage.VolumeView("pv", None, (), version="5")])
async def test_claim_gets_the_volume_or_the_node_of_its_consumer(volume):
    """A volume is claimed in the version that was observed; else the claim is told its node."""
    claim = storage.parse_claim({"metadata": {"name": "c", "namespace": "team", "uid": "u"}})
    asked = []

    class Taker:
        async def patch(self, path, exactly, body, _urgency):
            asked.append((path, exactly, body))

    store = Store(gang.EMBEDDED, ())
    made = binder.Binder(Taker(), store, Metrics().cycles, Recorder(), lambda _: None, room)
    made.serve(storage.Consumer(claim, volume, "n1"))
    await written()
    ((path, exactly, body),) = asked
    if volume is None:
        expected = "/api/v1/namespaces/team/persistentvolumeclaims/c"
        assert (path, exactly) == (expected, Exactly("u"))
        assert body["metadata"]["annotations"] == {"volume.kubernetes.io/selected-node": "n1"}
    else:
        assert (path, exactly) == ("/api/v1/persistentvolumes/pv", Exactly(version="5"))
        owner = {"kind": "PersistentVolumeClaim", "namespace": "team", "name": "c", "uid": "u"}
        assert body["spec"] == {"claimRef": {"apiVersion": "v1", **owner}}
        assert body["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}


def test_a_node_that_is_suspected():
    """It is said on the job, whose pods went elsewhere."""
    job = make_job()
    events = recorded_by(job, lambda made: made.record_suspect(job.key, "n1"))
    assert events == [("TFJob", "mnist", "Warning", "NodeSuspected", "n1", False)]


def shown(version, node="", uid="u", name="pod"):
    """Return a pod that waits, unless it has a node, as the server has it."""
    document = scheduler.make_pod(name=name, namespace="team", phase="Pending", node=node, uid=uid)
    document["metadata"]["resourceVersion"] = version
    return {"kind": "Pod", **document}


class Slow:
    """Takes as long for each patch as nobody lets it go on."""

    def __init__(self):
        """Begin with none."""
        self.flow, self.begun, self.said, self.go_on = FlowControl(1), [], [], asyncio.Event()

    async def has_taken(self, count):
        """Return once it has taken so many."""
        while len(self.said) < count:  # noqa: ASYNC110 -- it is nearly there
            await asyncio.sleep(0.01)

    async def patch(self, _path, _exactly, body, urgency, _kind):
        """Take a patch when its turn comes."""
        node = body["status"]["nominatedNodeName"]
        self.begun.append(node)
        async with self.flow.enter(urgency, "team"):
            await self.go_on.wait()
            self.said.append(node)


async def test_the_last_word_about_a_pod_is_written_last():
    """Others are evicted when it can be read; so no earlier one may come after it, or wait."""
    server, store = Slow(), Store(gang.EMBEDDED, ())
    store.put(shown("1"))
    pod = store.children.pod("team", "pod")
    made = binder.Binder(server, store, Metrics().cycles, Recorder(), lambda _pod: None, room)
    async with server.flow.enter(PriorityLevel.GROUP):
        for message, node in (("full", ""), ("still", ""), ("makes room", "n1")):
            made.mark(pod, message, node, record=False)
            await written()
        assert server.begun == [None]
        assert len(server.flow._waiting[PriorityLevel.PLACEMENT]) == 1
    server.go_on.set()
    await server.has_taken(2)
    made.mark(pod, "full again", "", record=False)
    await server.has_taken(3)
    assert server.said == [None, "n1", None]


async def test_marks_of_many_pods_are_written_by_few_at_once():
    """A write that waits takes 12 KB. Evictions wait for a nomination, which goes out directly."""
    server, store = Slow(), Store(gang.EMBEDDED, ())
    made = binder.Binder(server, store, Metrics().cycles, Recorder(), lambda _pod: None, room)
    names = [f"pod-{i}" for i in range(MAX_UNDER_WAY + 40)]
    for name in names:
        store.put(shown("1", uid=name, name=name))
        made.mark(store.children.pod("team", name), "full", "", record=False)
    await asyncio.sleep(0)
    assert len(server.begun) == MAX_UNDER_WAY
    made.mark(store.children.pod("team", names[-1]), "makes room", "n1", record=False)
    await asyncio.sleep(0)
    assert server.begun[MAX_UNDER_WAY:] == ["n1"]
    server.go_on.set()
    await server.has_taken(len(names))
    assert Counter(server.said) == {None: len(names) - 1, "n1": 1}
    server.go_on.clear()
    for name in names:
        made.mark(store.children.pod("team", name), "full again", "", record=False)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(made.background.run(), 0.01)
    await asyncio.sleep(0)
    assert not [*made.background._tasks, *made.background._running]


@pytest.mark.parametrize("fate", ["taken", "refused", "bound", "another"])
async def test_what_could_not_be_said_of_a_pod_is_said_again(fate, monkeypatch):
    """For as long as it waits: autoscalers see no other reason to make room."""
    monkeypatch.setattr(binder, "AFTER_REFUSAL", Backoff(0.001, 0.01))

    class Refusing:
        tries = 0

        async def patch(self, *_asked):
            self.tries += 1
            if self.tries < 4:
                raise ApiError(503, "", "no", None)
            over.set()
            if fate == "refused":
                raise ApiError(403, "Forbidden", "no", None)
            if fate != "taken":
                store.put(shown("2", node="n1") if fate == "bound" else shown("2", uid="v"))
                raise ApiError(503, "", "no", None)

    over, server, store = asyncio.Event(), Refusing(), Store(gang.EMBEDDED, ())
    store.put(shown("1"))
    made = binder.Binder(server, store, Metrics().cycles, Recorder(), lambda _pod: None, room)
    made.mark(store.children.pod("team", "pod"), "full", "", record=False)
    await over.wait()
    await is_written(made)
    assert server.tries == 4


@pytest.mark.parametrize("change", ["bound", "labelled"])
async def test_a_pod_that_was_bound_meanwhile_is_not_called_unschedulable(change, monkeypatch):
    """What was to be said waits behind what is urgent; it is meant for the pod as it was seen."""
    monkeypatch.setattr(binder, "AFTER_REFUSAL", Backoff(0.001, 0.01))

    class Server:
        stored, said, conflicts = shown("1"), [], 0

        async def patch(self, _path, exactly, body, _urgency, _kind):
            if exactly.version not in ("", self.stored["metadata"]["resourceVersion"]):
                self.conflicts += 1
                store.put(self.stored)
                raise ApiError(409, "Conflict", "it has changed", None)
            self.said.append(body["status"]["conditions"][0]["status"])

    server, store = Server(), Store(gang.EMBEDDED, ())
    store.put(server.stored)
    made = binder.Binder(server, store, Metrics().cycles, Recorder(), lambda _pod: None, room)
    made.mark(store.children.pod("team", "pod"), "full", "", record=False)
    server.stored = shown("2", node="n1" if change == "bound" else "")
    await is_written(made)
    made.mark(store.children.pod("team", "pod"), "full again", "", record=False)
    await is_written(made)
    assert (server.conflicts, server.said) == (1, [] if change == "bound" else ["False"] * 2)
