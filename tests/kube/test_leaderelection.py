# SPDX-License-Identifier: Apache-2.0
"""When a standby takes a lease that is given back, and one that nobody renews."""

import asyncio
import contextlib
import copy
import math
import selectors
import socket
import time

import pytest

from muster.api.names import LEADS
from muster.kube import clock
from muster.kube.client import ApiError, GarbledError
from muster.kube.leaderelection import LeaderElector, Timings, show
from muster.settings import Settings

QUICK = Timings(2.0, 1.8, 0.1)
SHIPPED = Timings(Settings().lease_duration, Settings().renew_deadline, Settings().retry_period)


class Hurried(selectors.SelectSelector):
    """Whoever waits for some time is woken at once, and the clock is put forward."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def select(self, timeout=None):
        """Pass the time if nothing else happens."""
        found = super().select(0)
        if not found:
            self.now += timeout
        return found


def hurried(story, monkeypatch):
    """Return what a story returns, by a clock that waits for nobody."""
    hurried = Hurried()
    loop = asyncio.SelectorEventLoop(hurried)
    monkeypatch.setattr(loop, "time", lambda: hurried.now)
    monkeypatch.setattr(clock, "since_boot", lambda: hurried.now)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(story)


class Leases:
    """An API server of one Lease, as the elector knows it."""

    def __init__(self):
        self.lease = None
        self.version = 0
        self.lease_until = math.inf
        self.garbled = 0
        """So many of the next questions get an answer of somebody else."""
        self.unanswered = 0
        """So many of the next questions never get an answer."""
        self.overtaken = 0
        """After so many of the next questions a write that was under way is carried out."""
        self.down_until, self.latency = 0.0, 0.0
        """When it can be reached again, and seconds that each answer takes."""

    async def get(self, _path):
        """Read the lease."""
        if self.unanswered:
            self.unanswered -= 1
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency)
        if clock.since_boot() < self.down_until:
            raise ApiError(503, "ServiceUnavailable", "down", None)
        if self.garbled:
            self.garbled -= 1
            return {"error": "upstream"}
        if self.lease is None:
            raise ApiError(404, "NotFound", "no lease", None)
        found = copy.deepcopy(self.lease)
        if self.overtaken:
            self.overtaken -= 1
            await self.replace(_path, found, None)
        return found

    async def create(self, _path, body, _urgency):
        """Store the first lease."""
        return await self.replace(_path, body, _urgency)

    async def replace(self, _path, body, _urgency):
        """Store a lease made from the one that is stored."""
        await asyncio.sleep(self.latency)
        if self.garbled:
            self.garbled -= 1
            raise GarbledError
        stored = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if body["metadata"].get("resourceVersion") != stored:
            raise ApiError(409, "Conflict", "another version", None)
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"] |= {"resourceVersion": str(self.version), "uid": "lease-uid"}
        return copy.deepcopy(self.lease)


def elector(kube, name="one", timings=QUICK):
    """Return the elector of a process of that name."""
    return LeaderElector(kube, "system", "muster", name, timings)


async def leading(timings=QUICK, kube=None):
    """Return an API server and the elector of a process that leads there."""
    kube = kube or Leases()
    leader = elector(kube, timings=timings)
    await leader.acquire()
    return kube, leader


async def taken(timings, after):
    """Return the seconds until a standby leads, once the leader has done `after`."""
    loop = asyncio.get_running_loop()
    kube, leader = await leading(timings)
    standby = asyncio.create_task(elector(kube, "two", timings).acquire())
    await asyncio.sleep(0.05)
    began = loop.time()
    await after(leader)
    await standby
    assert kube.lease["spec"]["holderIdentity"] == "two"
    return loop.time() - began


async def nothing(_leader):
    """Do nothing, as the dead do."""


@pytest.mark.parametrize(
    ("after", "least", "most"), [(LeaderElector.release, 0.0, 1.0), (nothing, 8.0, 14.0)]
)
def test_a_standby_takes_what_is_given_back_at_once(monkeypatch, after, least, most):
    """Long before the next renewal; the lease of a dead leader is taken after its time."""
    assert least <= hurried(taken(SHIPPED, after), monkeypatch) < most


async def test_a_leader_whose_machine_slept_does_not_renew(monkeypatch):
    """Another may lead by then."""
    kube, leader = await leading()
    version = kube.version
    woken = clock.since_boot() + 60.0
    monkeypatch.setattr(clock, "since_boot", lambda: woken)
    await asyncio.wait_for(leader.hold(), 60)
    assert kube.version == version


async def test_leader_that_finds_another_holder_stops_at_once():
    """The clocks of a virtual machine that is paused stand still, but others take over."""
    kube, leader = await leading(Timings(60.0, 40.0, 0.01))
    kube.lease["spec"]["holderIdentity"], kube.lease["metadata"]["resourceVersion"] = "two", "9"
    await asyncio.wait_for(leader.hold(), 5.0)
    assert kube.lease_until == 0.0


async def test_an_answer_of_somebody_else_ends_no_leader():
    """A proxy's own JSON is no Lease; the next look finds it again."""
    kube, leader = await leading()
    kube.garbled = 3
    holding = asyncio.create_task(leader.hold())
    await asyncio.sleep(1.0)
    assert kube.garbled == 0
    assert not holding.done()
    holding.cancel()


@pytest.mark.parametrize(("unanswered", "down", "latency"), [(0, 7, 0), (1, 7, 0), (0, 0, 3.5)])
def test_a_request_without_an_answer_costs_neither_the_leader_nor_a_standby_the_lease(
    monkeypatch, unanswered, down, latency
):
    """One without an answer leaves time for another, as do seven seconds of refusals.

    A slow server, say one whose etcd is slow, keeps its leader.
    """

    async def story():
        kube = Leases()
        leader = elector(kube, timings=SHIPPED)
        kube.unanswered = 1
        await leader.acquire()
        kube.unanswered, kube.down_until = unanswered, clock.since_boot() + down
        kube.latency = latency
        holding = asyncio.create_task(leader.hold())
        await asyncio.sleep(30.0)
        assert not holding.done()
        holding.cancel()
        kube.unanswered = 1
        await leader.release()

    hurried(story(), monkeypatch)


async def test_a_renewal_that_was_under_way_does_not_keep_the_lease_from_being_given_back():
    """Nobody waits for the answer of a process that ends, but the server carries it out."""
    kube, leader = await leading()
    kube.overtaken = 2
    await leader.release()
    assert kube.lease["spec"]["holderIdentity"] == ""


async def test_the_lease_is_renewed_however_long_the_work_takes_to_begin():
    """The work ends with the lease."""
    kube = Leases()
    leader = elector(kube, timings=Timings(60.0, 40.0, 0.01))
    ends = []

    async def work():
        try:
            while kube.version < 5:  # noqa: ASYNC110 -- renewing has no event
                await asyncio.sleep(0.001)
            kube.lease_until = 0.0
            await asyncio.Event().wait()
        finally:
            ends.append(kube.version)

    await asyncio.wait_for(leader.lead(work), 120)
    assert len(ends) == 1


def led_from_another_thread(work, **fields):
    """Lead on a loop whose lease is renewed on the loop of this thread; return the API."""
    kube = Leases()

    async def story():
        loop, timings = asyncio.get_running_loop(), Timings(1.0, 0.8, 0.1)
        leader = LeaderElector(kube, "system", "muster", "one", timings, loop=loop, **fields)

        async def lead():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(leader.lead(lambda: work(kube)), 20)
            await leader.release()

        await asyncio.to_thread(asyncio.run, lead())

    asyncio.run(story())
    return kube


def test_lease_is_renewed_while_the_loop_of_the_work_is_blocked():
    """A loop that is blocked for longer than the lease lasts costs it neither lease nor fence."""
    seen = []

    async def work(kube):
        before = kube.version
        time.sleep(2.0)  # noqa: ASYNC251 -- blocks the loop
        seen.append((kube.version - before, kube.lease_until - clock.since_boot()))
        raise TimeoutError

    with pytest.raises(ExceptionGroup):
        led_from_another_thread(work)
    ((renewals, left),) = seen
    assert renewals >= 5
    assert left > 0


def test_lease_is_not_renewed_while_the_work_hangs():
    """The work is canceled, and the lease is released."""
    ends = []

    async def work(kube):
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(kube.lease_until <= clock.since_boot())

    kube = led_from_another_thread(work, responsive=lambda: False)
    assert ends == [True]
    assert kube.lease["spec"]["holderIdentity"] == ""


def test_leader_that_hangs_after_a_slow_renewal_waits_between_attempts(monkeypatch):
    """The next renewal is due at once then, and is put off as long as the work hangs."""
    looks = []

    async def story():
        kube, leader = await leading(SHIPPED)
        kube.latency = 3.0
        monkeypatch.setattr(leader, "_responsive", lambda: looks.append(1) or len(looks) < 2)
        holding = asyncio.create_task(leader.hold())
        await asyncio.sleep(5.0)
        for _ in range(100):
            await asyncio.sleep(0)
        holding.cancel()

    hurried(story(), monkeypatch)
    assert len(looks) < 10


class Pods:
    """An API server of the pods of one namespace, by name their labels; it refuses so often."""

    def __init__(self, labels, *refusals):
        self.labels, self.refusals = labels, list(refusals)

    async def get(self, path, labelSelector=""):  # noqa: N803 -- what the API calls it
        """Read one, or those of a label."""
        if self.refusals:
            raise ApiError(self.refusals.pop(0), "", "no", None)
        key, _, value = labelSelector.partition("=")
        if key:
            found = [name for name, labels in self.labels.items() if labels.get(key) == value]
            return {"items": [self._pod(name) for name in found]}
        name = path.rpartition("/")[2]
        if name not in self.labels:
            raise ApiError(404, "NotFound", "no pod", None)
        return self._pod(name)

    def _pod(self, name):
        return {"metadata": {"name": name, "uid": f"uid of {name}"}}

    async def patch(self, path, exactly, body, _urgency):
        """Write labels, or take them away."""
        name = path.rpartition("/")[2]
        assert exactly.uid == f"uid of {name}"
        labels = {**self.labels[name], **body["metadata"]["labels"]}
        self.labels[name] = {key: value for key, value in labels.items() if value is not None}


@pytest.mark.parametrize("before", ["me", "peer", "nobody"])
@pytest.mark.parametrize("refusals", [(), (503,), (500, 429)])
def test_the_pod_that_leads_bears_the_label_alone(before, refusals, monkeypatch):
    """Whoever bore it before, and though the server is in trouble; of this Lease alone."""
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    others = {"another": {LEADS: "kube-batch"}, "plain": {"app": "x"}}
    labels = {**others, "me": {"app": "muster"}, "peer": {"app": "muster"}}
    labels.get(before, {})[LEADS] = "muster"
    pods = Pods(labels, *refusals)
    hurried(show(pods, "muster-system", "muster"), monkeypatch)
    assert pods.labels == {
        **others,
        "me": {"app": "muster", LEADS: "muster"},
        "peer": {"app": "muster"},
    }


@pytest.mark.parametrize(("labels", "refusals"), [({"me": {}}, [403]), ({"peer": {}}, [])])
def test_without_a_right_or_a_pod_nobody_bears_it(labels, refusals, monkeypatch, caplog):
    """The log says why, and nobody asks for ever."""
    caplog.set_level("INFO")
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    pods = Pods(labels, *refusals)
    hurried(show(pods, "muster-system", "muster"), monkeypatch)
    assert pods.labels == labels
    assert "pod muster-system/me of the leader is not labelled" in caplog.text


class Troubled(Leases):
    """Refuses some of the next replacements, and counts all questions."""

    def __init__(self):
        """Begin without trouble."""
        super().__init__()
        self.asked, self.refusals = 0, []

    async def get(self, path):
        """Read the lease."""
        self.asked += 1
        return await super().get(path)

    async def replace(self, path, body, urgency):
        """Store a lease, unless that is refused."""
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop(0)
        return await super().replace(path, body, urgency)


@pytest.mark.parametrize(
    "trouble",
    [ApiError(429, "", "busy", None), ApiError(500, "", "", None), TimeoutError()],
    ids=["429", "500", "broken"],
)
async def test_the_lease_is_given_back_though_the_server_stumbles(trouble):
    """A standby would wait for all of its duration."""
    kube, leader = await leading(Timings(15.0, 10.0, 0.1), Troubled())
    kube.refusals.append(trouble)
    await asyncio.wait_for(leader.release(), 5.0)
    assert kube.lease["spec"]["holderIdentity"] == ""


async def test_who_never_tried_to_lead_ends_without_asking(caplog):
    """The server may not answer, and there is nothing to be given back."""
    kube = Troubled()
    await elector(kube, timings=SHIPPED).release()
    assert kube.asked == 0
    assert "not released" not in caplog.text


async def test_reference_of_the_lease_has_its_uid():
    """`kubectl describe` finds events by the uid."""
    _, leader = await leading(SHIPPED)
    assert leader.reference == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "system", "name": "muster", "uid": "lease-uid"},
    }
