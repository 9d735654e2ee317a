# SPDX-License-Identifier: Apache-2.0
"""Requests to an API server: what is tried again, what is known then, and who may write."""

import asyncio
import gc
import json
import weakref
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from muster.kube import client, clock
from muster.kube.client import ApiError, Exactly, FencedError, Kube, UnwantedError
from muster.kube.flowcontrol import FlowControl, PriorityLevel
from support.apiserver.stub import served

PATH = "/api/v1/namespaces/team/pods"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


def failure(code, reason, message="no", **headers):
    """Return how a server says no."""
    status = {"kind": "Status", "reason": reason, "message": message}
    return web.Response(status=code, text=json.dumps(status), headers=headers)


def stored(uid="u"):
    """Return how a server shows an object."""
    return web.json_response({"kind": "Pod", "metadata": {"name": "p", "uid": uid}})


@asynccontextmanager
async def played(*answers):
    """Give a client whose server answers so, and what that is asked."""
    asked, left = [], list(answers)

    async def answer(request):
        asked.append((request.method, await request.text()))
        found = left.pop(0)
        return found if isinstance(found, web.Response) else await found

    async with served(answer) as url:
        kube = Kube(url, lambda _width: aiohttp.ClientSession(), "muster", 4)
        try:
            yield kube, asked
        finally:
            await kube.close()


async def late(seconds):
    """Show an object so much later."""
    await asyncio.sleep(seconds)
    return stored()


async def refused(writing):
    """Return the error of a request."""
    with pytest.raises(ApiError) as caught:
        await writing
    return caught.value


@pytest.mark.parametrize(
    ("method", "error", "passes"),
    [
        ("GET", ApiError(503, "", "", None), True),
        ("PATCH", ApiError(429, "TooManyRequests", "", 1.0), True),
        ("POST", ApiError(429, "TooManyRequests", BUDGET, 10.0), False),
        ("POST", ApiError(500, "InternalError", 'failed calling webhook "x"', None), False),
        ("POST", ApiError(409, "Conflict", "", None), True),
        ("POST", ApiError(409, "AlreadyExists", "", None), False),
        ("PATCH", ApiError(409, "Conflict", "", None), False),
        ("GET", ApiError(404, "NotFound", "", None), False),
        ("POST", ApiError(422, "Invalid", "", None), False),
    ],
)
def test_what_may_pass(method, error, passes):
    """A busy server, and two writes that met; not what will be the same the next time."""
    assert error.passing(method) is passes


async def test_a_write_is_tried_again():
    """Each try is counted, and the server is heard."""
    busy = failure(429, "TooManyRequests", **{"Retry-After": "0"})
    async with played(busy, failure(503, ""), stored()) as (kube, asked):
        found = await kube.patch(PATH + "/p", Exactly("u"), {}, PriorityLevel.SUPPORT)
    assert found["metadata"]["name"] == "p"
    assert kube.requests == {("PATCH", code): 1 for code in ("429", "503", "200")}
    assert len(asked) == 3


@pytest.mark.parametrize(
    "answers",
    [
        (stored(),),
        (failure(422, "Invalid"),),
        (failure(503, "ServiceUnavailable", **{"Retry-After": "0"}), stored()),
    ],
    ids=["accepted", "refused", "retried"],
)
async def test_answered_write_releases_all_that_it_had(answers):
    """The memory is free before a garbage collection: thousands of writes would add up."""

    class Document(dict):
        """A document that can be referred to weakly."""

    async def wanted():
        return True

    async with played(*answers) as (kube, _):
        document = Document(kind="Pod")
        left = weakref.ref(document), weakref.ref(wanted)
        gc.disable()
        try:
            with suppress(ApiError):
                await kube.create(PATH, document, PriorityLevel.PLACEMENT, wanted)
            del document, wanted
            assert [one() for one in left] == [None, None]
        finally:
            gc.enable()


async def test_an_answer_that_is_no_http_is_one_that_did_not_come():
    """A broken proxy's word ends nothing: the request is tried again."""
    told = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"kind":"Pod"}'
    answers = [b"HTTP/1.1 nonsense\r\n\r\n", told]

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop(0))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        kube = Kube(f"http://127.0.0.1:{port}", lambda _: aiohttp.ClientSession(), "m", 4)
        try:
            assert await kube.get(PATH) == {"kind": "Pod"}
            assert kube.requests == {("GET", "0"): 1, ("GET", "200"): 1}
        finally:
            await kube.close()


@pytest.mark.parametrize("before", [(), (failure(500, "InternalError"),)], ids=["first", "next"])
async def test_what_went_wrong_half_way_may_have_been_done(before):
    """The error of the next try says so; that of a first one does not."""
    async with played(*before, failure(409, "AlreadyExists", "there")) as (kube, _):
        error = await refused(kube.create(PATH, {}, PriorityLevel.PLACEMENT))
    assert (error.code, error.reason, error.message) == (409, "AlreadyExists", "there")
    assert error.unsure is bool(before)


async def test_what_may_have_been_made_is_made_again_only_where_it_is_wanted():
    """Made, and gone again with its owner before the lost answer is missed, it would come back."""
    asks = []

    async def wanted():
        asks.append(len(asks))
        return len(asks) < 2

    busy = failure(429, "TooManyRequests", **{"Retry-After": "0"})
    lost = [failure(504, "Timeout", **{"Retry-After": "0"}) for _ in range(2)]
    async with played(busy, *lost) as (kube, asked):
        with pytest.raises(UnwantedError):
            await kube.create(PATH, {}, PriorityLevel.PLACEMENT, wanted)
    assert len(asked) == 3
    assert asks == [0, 1]


async def test_creation_that_is_unwanted_when_it_has_its_turn_is_not_sent():
    """The client asks only then: the creation may have waited for minutes."""
    left = [True, False]
    async with played(late(0.05)) as (kube, asked):
        kube.flow_control = FlowControl(1)
        made = (
            kube.create(PATH, {}, PriorityLevel.PLACEMENT, None, lambda: left.pop(0)) for _ in "ab"
        )
        first, second = await asyncio.gather(*made, return_exceptions=True)
    assert first["metadata"]["uid"] == "u"
    assert isinstance(second, UnwantedError)
    assert (len(asked), left) == (1, [])


@pytest.mark.parametrize(
    ("answers", "gone"),
    [
        ([failure(404, "NotFound")], True),
        ([failure(409, "Conflict"), stored("another")], True),
        ([failure(409, "Conflict"), failure(404, "NotFound")], True),
        ([failure(409, "Conflict"), stored()], False),
    ],
    ids=["gone", "replaced", "gone-meanwhile", "still-there"],
)
async def test_just_that_object_is_deleted(answers, gone):
    """Its uid is part of the request; another one under its name is left alone."""
    async with played(*answers) as (kube, asked):
        deletion = kube.delete(PATH + "/p", "u", PriorityLevel.PLACEMENT, grace=0)
        told = (await deletion) if gone else (await refused(deletion)).code
    assert told == (None if gone else 409)
    sent = json.loads(asked[0][1])
    assert (sent["preconditions"], sent["gracePeriodSeconds"]) == ({"uid": "u"}, 0)


async def test_page_of_a_proxy_does_not_show_that_an_object_is_gone():
    """Its watch would be ignored from then on, though a pod may still run."""
    pages = [web.Response(status=404, text="<html>") for _ in "ab"]
    async with played(*pages) as (kube, _):
        deletion = kube.delete(PATH + "/p", "u", PriorityLevel.PLACEMENT)
        change = kube.patch(PATH + "/p", Exactly("u"), {}, PriorityLevel.PLACEMENT)
        assert [(await refused(each)).code for each in (deletion, change)] == [404, 404]


async def test_what_waits_for_a_connection_leaves_within_the_lease_or_not_at_all():
    """Somebody else may lead by the time at which there is one."""
    async with played(late(0.6)) as (kube, asked):
        kube.session._connector._limit = 1
        slow = asyncio.create_task(kube.get(PATH))
        await asyncio.sleep(0.05)
        kube.lease_until = clock.since_boot() + 0.2
        with pytest.raises(FencedError):
            await kube.create(PATH, {}, PriorityLevel.PLACEMENT)
        await slow
    assert [method for method, _ in asked] == ["GET"]


async def test_a_machine_that_slept_past_its_lease_writes_nothing_when_it_wakes(monkeypatch):
    """The clock of timers stood still meanwhile; that of the lease did not."""
    async with played(stored()) as (kube, asked):
        woken = clock.since_boot() + 60.0
        kube.lease_until = clock.since_boot() + 10.0
        await kube.create(PATH, {}, PriorityLevel.PLACEMENT)
        monkeypatch.setattr(clock, "since_boot", lambda: woken)
        with pytest.raises(FencedError):
            await kube.create(PATH, {}, PriorityLevel.PLACEMENT)
    assert [method for method, _ in asked] == ["POST"]


async def test_who_does_not_lead_writes_nothing_but_the_lease():
    """Reading goes on."""
    async with played(stored(), stored()) as (kube, asked):
        kube.lease_until = 0.0
        with pytest.raises(FencedError):
            await kube.create(PATH, {}, PriorityLevel.PLACEMENT)
        lease = "/apis/coordination.k8s.io/v1/namespaces/muster/leases/muster"
        held = {"metadata": {"resourceVersion": "1"}}
        await kube.replace(lease, held, PriorityLevel.LEADERSHIP)
        await kube.get(PATH)
    assert [method for method, _ in asked] == ["PUT", "GET"]


async def test_an_answer_that_is_no_json():
    """A proxy may have given it; what it says is in the error."""
    page = web.Response(status=400, reason="Bad Request", text="<html>no such door</html>")
    async with played(page) as (kube, _):
        error = await refused(kube.get(PATH))
    assert (error.reason, error.message) == ("Bad Request", "<html>no such door</html>")


async def test_failures_between_answers_are_ends_of_outages_only_once_in_a_while(monkeypatch):
    """Behind a load balancer with one broken server all back-offs would end with each answer."""
    monkeypatch.setattr(client, "WARMING", 0.3)
    again = {"Retry-After": "0"}
    answers = [it for _ in range(4) for it in (failure(503, "", **again), stored())]
    ends = []
    async with played(*answers) as (kube, _):
        kube.recovered = lambda: ends.append(1)
        for _ in range(4):
            await kube.get(PATH + "/p")
        assert len(ends) == 1
        await asyncio.sleep(0.4)
    assert len(ends) == 2
