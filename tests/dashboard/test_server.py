# SPDX-License-Identifier: Apache-2.0
"""The page over HTTP: what is sent to whom, and that nothing is made for nobody."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import aiohttp
import pytest

from muster.dashboard import server as dashboard
from muster.dashboard.server import Dashboard
from muster.kube.client import ApiError
from support.apiserver.memory import tfjob
from support.builders import sample_clusters
from support.builders.sample_clusters import Server
from support.rehearsal.dashboard_source import EVENT, SEEN, Hall

CHURN = "XGBoostJob/ranking/churn"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Wait for moments only."""
    monkeypatch.setattr(dashboard, "PAUSE", 0.01)
    monkeypatch.setattr(dashboard, "SHARE", 0)


@asynccontextmanager
async def served(hall, server=None):
    """Serve the page; give a function that asks for a path."""
    runner = await dashboard.serve("127.0.0.1:0", Dashboard(hall.source, server))
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with aiohttp.ClientSession() as session:

            def ask(path, token="", body=None, session=session, **headers):
                sent = headers | ({"Authorization": f"Bearer {token}"} if token else {})
                method = "GET" if body is None else "POST"
                return session.request(method, f"{base}{path}", data=body, headers=sent)

            yield ask
    finally:
        await runner.cleanup()


async def code_of(ask, *words, **headers):
    """Return the status of an answer."""
    async with ask(*words, **headers) as answer:
        return answer.status


async def json_of(ask, *words):
    """Return the JSON of an answer."""
    async with ask(*words) as answer:
        return await answer.json()


async def event(response):
    """Return the next event of a stream: its fields."""
    lines = []
    while True:
        line = (await response.content.readline()).decode().rstrip("\n")
        if not line and lines and not lines[0].startswith(":"):
            return dict(one.split(": ", 1) for one in lines)
        lines = [*lines, line] if line else []


async def test_the_page_comes_from_the_package_alone():
    """Under a policy that lets the browser ask nobody else, and be shown by nobody else."""
    async with served(Hall()) as ask:
        for path in ("/", "/page.css", "/page.js", "/icon.svg"):
            async with ask(path) as answer:
                text = await answer.text()
                assert answer.status == 200
                assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
                assert "//" not in text.replace("http://www.w3.org/2000/svg", "").replace(
                    "// ", ""
                ), path
        async with ask("/") as answer:
            assert "<script src=" in await answer.text()


async def test_a_page_follows_by_differences():
    """From the view that it has; one that is not known any more is sent anew."""
    hall = Hall()
    async with served(hall) as ask:
        whole = await json_of(ask, "/api/view")
        assert whole["view"]["gangs"][CHURN]["queue"] == "product"
        async with ask(f"/api/events?from={whole['version']}") as stream:
            hall.seen = sample_clusters.without(SEEN, CHURN)
            first = await event(stream)
        changes = json.loads(first["data"])
        assert changes["gangs"] == {CHURN: None}
        assert changes["nodes"].keys() == {"gpu-c-4"}
        # Who comes back is told what he missed.
        async with ask(f"/api/events?from={whole['version']}") as stream:
            assert await event(stream) == first
        # A number of thousands of digits is not even read.
        began = whole["version"].split("-")[0]
        for other in ("gone-1", "", f"{whole['version']}9", f"{began}-{'9' * 5000}"):
            async with ask(f"/api/events?from={other}") as stream:
                assert (await event(stream))["event"] == "again"


async def test_view_is_made_for_viewers_only_and_once(monkeypatch):
    """A view is made at the first request, kept for the next ones, and forgotten when idle.

    Suspended jobs, which the store parses on demand, are parsed for it once.
    """
    made, listed = [], []
    make = dashboard.view.make
    monkeypatch.setattr(
        dashboard.view, "make", lambda *of: made.append(1) or listed.extend(of[1]) or make(*of)
    )
    hall = Hall()
    held = tfjob(Worker=1, policy={"suspend": True})
    held["metadata"] |= {"namespace": "vision", "uid": "u-2", "resourceVersion": "1"}
    hall.store.jobs.show("TFJob", held, gone=False)
    async with served(hall) as ask:
        await asyncio.sleep(0.02)
        assert (hall.looked, made) == (0, [])
        for _ in range(3):
            assert await code_of(ask, "/api/view") == 200
        assert (len(made), [job.replicas for job in listed]) == (1, [()])
        looked = hall.looked
        await asyncio.sleep(0.2)
        assert hall.looked == looked
    made.clear()
    monkeypatch.setattr(dashboard, "IDLE", 0.05)
    async with served(Hall()) as ask:
        for count in (1, 2):
            async with ask("/api/view"):
                assert len(made) == count
            await asyncio.sleep(0.2)


async def test_a_process_that_is_not_at_work_says_so():
    """A standby, and one that has only begun."""
    async with served(Hall(None)) as ask, ask("/api/view") as answer:
        assert answer.status == 503
        assert "not at work" in await answer.text()


@pytest.mark.parametrize(
    ("header", "allowed", "refused"),
    [
        ("Host", ("localhost:1", "[::1]:1"), ("evil.example",)),
        ("Sec-Fetch-Site", ("same-origin", "none"), ("cross-site", "same-site")),
    ],
)
async def test_page_without_authentication_answers_to_its_own_pages_alone(
    header, allowed, refused
):
    """A page of the web could use a name of its own for this machine, or see what loads."""
    async with served(Hall()) as ask:
        for path in ("/api/view", "/api/events?from=", f"/api/gang?key={CHURN}"):
            for value in allowed:
                assert await code_of(ask, path, **{header: value}) == 200, (value, path)
            for value in refused:
                assert await code_of(ask, path, **{header: value}) == 403, (value, path)


async def test_one_gang_is_told_with_its_job():
    """Its conditions and pods; one that is not there is not found."""
    hall = Hall(why=lambda key: [{"at": "now", "gang": key, "verdict": {"reason": "Fragmented"}}])
    document = tfjob(name="mine")
    document["metadata"] |= {"namespace": "vision", "uid": "u", "resourceVersion": "1"}
    hall.store.jobs.show("TFJob", document, gone=False)
    async with served(hall) as ask:
        assert (await json_of(ask, "/api/gang?key=TFJob/vision/mine"))["pods"] == []
        assert await json_of(ask, "/api/why?key=TFJob/vision/mine") == [
            {"at": "now", "placed": 0, "verdict": {"reason": "Fragmented"}}
        ]
        assert (await json_of(ask, "/api/gang?key=JAXJob/language/llama-70b"))["levels"] == {
            sample_clusters.RACK: {"rack-b": 7}
        }
        for key in ("TFJob/vision/other", "x", ""):
            assert await code_of(ask, f"/api/gang?key={key}") == 404
    async with served(Hall()) as ask, ask(f"/api/why?key={CHURN}") as answer:
        assert answer.status == 404


async def test_who_may_look_sees_what_he_may_see():
    """All, his own namespaces, or nothing; the server is asked once a minute.

    An API server that gives no answer does not let anybody in.
    """
    server = Server(admin={"*"}, tenant={"ranking"}, late={"*"}, stranger=None)
    async with served(Hall(), server) as ask:
        for token, status in (("", 401), ("wrong", 401), ("stranger", 403)):
            for path in ("/api/view", "/api/events?from=", f"/api/gang?key={CHURN}"):
                assert await code_of(ask, path, token) == status, (token, path)
        assert (await json_of(ask, "/api/view", "admin"))["view"]["gangs"].keys() > {CHURN}
        asked = server.asked
        assert await code_of(ask, "/api/view", "admin") == 200
        assert server.asked == asked
        async with ask("/api/view", "tenant") as answer:
            text = await answer.text()
        seen = json.loads(text)
        assert seen["namespaces"] == ["ranking"]
        assert {k for k in seen["view"]["gangs"] if not k.startswith("~")} == {
            CHURN, "TFJob/ranking/ads-nightly", "TFJob/ranking/embeddings",
        }  # fmt: skip
        assert "llama" not in text
        # As if it were not there.
        for path in ("gang", "why"):
            async with ask(f"/api/{path}?key=JAXJob/language/llama-70b", "tenant") as answer:
                assert answer.status == 404
                assert "llama" not in await answer.text()
        server.broken = True
        assert await code_of(ask, "/api/view", "late") == 503


async def test_a_right_that_is_taken_away_ends_the_page(monkeypatch):
    """As soon as the server is asked again."""
    monkeypatch.setattr("muster.kube.tokens.KEPT_SECONDS", 0.0)
    server = Server(admin={"*"})
    async with served(Hall(), server) as ask:
        version = (await json_of(ask, "/api/view", "admin"))["version"]
        async with ask(f"/api/events?from={version}", "admin") as stream:
            await asyncio.sleep(0.02)
            server.bearers["admin"] = {"ranking"}
            assert (await event(stream))["event"] == "again"
        server.bearers["admin"] = None
        assert await code_of(ask, "/api/view", "admin") == 403


async def follow(ask, token=""):
    """Return a stream of differences that a viewer opens."""
    version = (await json_of(ask, "/api/view", token))["version"]
    stream = await ask(f"/api/events?from={version}", token)
    assert stream.status == 200
    return stream


async def is_replaced(stream):
    """Return whether the server ended a stream in favor of a newer one."""
    async with asyncio.timeout(20):
        return (await event(stream))["event"] == "replaced"


async def test_fifth_stream_of_a_viewer_ends_its_oldest():
    """A viewer has 4 streams; those of other viewers continue."""
    server = Server(tenant={"ranking"}, admin={"*"})
    hall = Hall()
    async with served(hall, server) as ask:
        other = await follow(ask, "admin")
        own = [await follow(ask, "tenant") for _ in range(6)]
        assert [await is_replaced(stream) for stream in own[:2]] == [True, True]
        hall.seen = sample_clusters.without(SEEN, CHURN)
        for stream in (other, *own[2:]):
            assert "id" in await event(stream)
            stream.close()


@pytest.mark.parametrize("token", ["", "shared"])
async def test_streams_of_a_shared_token_are_counted_by_address(token):
    """Without authentication or with one token for all, addresses tell viewers apart."""
    hall, server = Hall(), Server(shared={"*"}) if token else None
    async with served(hall, server) as ask, AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        away = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        first = await follow(ask, token)
        far = partial(ask, session=away)
        others = [await follow(far, token) for _ in range(5)]
        assert await is_replaced(others[0])
        hall.seen = sample_clusters.without(SEEN, CHURN)
        for stream in (first, *others[1:]):
            assert "id" in await event(stream)
            stream.close()


async def test_beyond_this_machine_it_is_encrypted():
    """A token is no plain text on a network."""
    runner = await dashboard.serve("0.0.0.0:0", Dashboard(Hall().source, Server()))
    try:
        url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            assert answer.status == 200
    finally:
        await runner.cleanup()


async def test_what_was_decided_names_nobody_either():
    """Of one's own gang: who kept it from starting, whose pods went, where others move to."""
    theirs, mine = "TFJob/secret/plan-b", "TFJob/ranking/embeddings"
    gone = [{"gang": key, "role": "Worker", "index": 3, "node": "n"} for key in (theirs, CHURN)]
    said = {"message": f"evicted for {theirs}", "summary": f"behind {theirs}"}
    entry = {
        "at": "now", "gang": mine, "evictions": gone, "placements": gone[:1],
        "moves": [{"gang": theirs, "placements": []}],
        "verdict": {**said, "blocked_by": [theirs, "queue/product", CHURN]},
    }  # fmt: skip
    server = Server(tenant={"ranking"}, admin={"*"})
    async with served(Hall(why=lambda _: [entry]), server) as ask:
        shown = {"at": "now", "placed": 1, "verdict": said}
        assert await json_of(ask, f"/api/why?key={mine}", "admin") == [shown]
        async with ask(f"/api/why?key={mine}", "tenant") as answer:
            text = await answer.text()
        assert "secret" not in text
        assert "plan-b" not in text
        (told,) = json.loads(text)
        assert told["verdict"] == {
            "message": "evicted for a job of another namespace",
            "summary": "behind a job of another namespace",
        }


async def test_conditions_name_nobody_either():
    """A job's own status may, where its operator lets it."""
    server = Server(tenant={"vision"}, admin={"*"})
    hall = Hall()
    document = tfjob(name="mine")
    document["metadata"] |= {"namespace": "vision", "uid": "u", "resourceVersion": "1"}
    said = "preempt: evicted for TFJob secret/plan-b, for TFJob/secret/plan and TFJob vision/own"
    document["status"] = {"conditions": [{
        "type": "Restarting", "status": "True", "reason": "Preempted", "message": said,
        "lastTransitionTime": "2026-09-21T14:13:20Z", "lastUpdateTime": "2026-09-21T14:13:20Z",
    }]}  # fmt: skip
    hall.store.jobs.show("TFJob", document, gone=False)
    async with served(hall, server) as ask:
        told = {}
        for token in ("admin", "tenant"):
            told[token] = (await json_of(ask, "/api/gang?key=TFJob/vision/mine", token))[
                "conditions"
            ][0]["message"]
        other = "a job of another namespace"
        assert told == {
            "admin": said,
            "tenant": f"preempt: evicted for {other}, for {other} and TFJob vision/own",
        }


async def test_more_rights_than_are_kept_apart_put_nobody_out(monkeypatch):
    """Who looks goes on; who comes then is told, until one of them has gone."""
    monkeypatch.setattr(dashboard, "MOST_GROUPS", 2)
    server = Server(a={"ranking"}, b={"vision"}, c={"speech"})
    hall = Hall()
    async with served(hall, server) as ask:
        version = (await json_of(ask, "/api/view", "a"))["version"]
        async with ask(f"/api/events?from={version}", "a") as stream:
            for token, status in (("b", 200), ("c", 503)):
                assert await code_of(ask, "/api/view", token) == status
            hall.seen = sample_clusters.without(SEEN, CHURN)
            assert json.loads((await event(stream))["data"])["gangs"] == {CHURN: None}
            monkeypatch.setattr(dashboard, "SILENCE", 0.2)
            await asyncio.sleep(0.3)
            assert await code_of(ask, "/api/view", "c") == 200
            hall.seen = SEEN
            fresh = {}
            while "data" not in fresh or CHURN not in json.loads(fresh["data"])["gangs"]:
                fresh = await event(stream)
                assert "event" not in fresh


async def test_what_cannot_be_shown_is_said_once(monkeypatch, caplog):
    """Not at each question, and not as an empty cluster; it is tried again later."""
    make = dashboard.view.make
    broken = [True]

    def maybe(*parts):
        if broken:
            raise ValueError("odd")
        return make(*parts)

    monkeypatch.setattr(dashboard.view, "make", maybe)
    monkeypatch.setattr(dashboard, "PAUSE", 0.2)
    async with served(Hall()) as ask:
        for _ in range(3):
            async with ask("/api/view") as answer:
                assert answer.status == 503
                assert "cannot be shown" in await answer.text()
        assert len(caplog.records) == 1
        broken.clear()
        await asyncio.sleep(0.3)
        assert await code_of(ask, "/api/view") == 200


async def test_who_held_what_before_is_told():
    """By who has watched meanwhile, from what he knows on; to a tenant without others' names."""
    server = Server(admin={"*"}, tenant={"vision"})

    async def past(ask, token, version=""):
        async with ask(f"/api/past?from={version}", token) as answer:
            assert answer.status == 200
            return await answer.json()

    hall = Hall()
    hall.goes_on(SEEN)
    async with served(hall, server) as ask:
        while (told := await past(ask, "admin"))["since"] is None:
            pass
        assert (told["since"], told["rows"]) == (SEEN.snapshot.now, [])
        hall.goes_on(sample_clusters.without(SEEN, CHURN))
        while not (later := await past(ask, "admin", told["version"]))["rows"]:
            pass
        assert later["rows"][0][1:4] == ["gpu-c-4", CHURN, "worker"]
        assert (await past(ask, "admin", later["version"]))["rows"] == []
        # From another process's number on nothing is known.
        assert (await past(ask, "admin", "other-1"))["rows"] == later["rows"]
        seen = await past(ask, "tenant")
        assert seen["rows"][0][1:6] == ["gpu-c-4", "", "", "0", 2.0]
        assert "churn" not in json.dumps(seen)
        assert await code_of(ask, "/api/past") == 401


async def test_what_cannot_be_noted_costs_the_past_alone(monkeypatch, caplog):
    """That is said once, and no more is told than is known since."""
    take, broken = dashboard.Past.take, [True]

    def maybe(past, snapshot):
        if broken:
            raise ValueError("odd")
        take(past, snapshot)

    monkeypatch.setattr(dashboard.Past, "take", maybe)
    hall = Hall()
    async with served(hall) as ask:
        for _ in range(3):
            hall.goes_on(SEEN)
            await asyncio.sleep(0.03)
            assert await code_of(ask, "/api/view") == 200
        assert len(caplog.records) == 1
        broken.clear()
        hall.goes_on(SEEN)
        told = {"since": None}
        while told["since"] is None:
            told = await json_of(ask, "/api/past")


async def test_what_is_read_is_read_by_the_rights_of_who_looks():
    """Events of a job and of its pods, and logs, with his header; what he may not, he is told."""
    asked = []

    async def read(who, path, params):
        asked.append((who, path, params))
        if who == "Bearer blind":
            raise ApiError(403, "Forbidden", "you may not", None)
        if who == "Bearer slow":
            raise TimeoutError
        if who == "Bearer odd":
            return "<html>"
        return "step 1\n" if path.endswith("/log") else json.dumps({"items": [EVENT]})

    mine = {"vision"}
    server = Server(good=mine, blind=mine, slow=mine, odd=mine, other={"ranking"})
    spaces = "/api/v1/namespaces/vision"
    hall = Hall(read=read)
    hall.brings()
    async with served(hall, server) as ask:
        key = "key=TFJob/vision/mine"
        async with ask(f"/api/happened?{key}", "good") as answer:
            assert await answer.json() == [
                {"at": 1_790_000_000, "type": "Normal", "reason": "Queued",
                 "message": "waits", "count": 3},
            ]  # fmt: skip
        assert await code_of(ask, f"/api/happened?{key}&pod=mine-worker-0", "good") == 200
        async with ask(f"/api/log?{key}&pod=mine-worker-0", "good") as answer:
            assert await answer.text() == "step 1\n"
        events, of_pod, log = asked
        selector = {"fieldSelector": "involvedObject.uid=u-1", "limit": "200"}
        assert events == ("Bearer good", f"{spaces}/events", selector)
        assert of_pod[2]["fieldSelector"] == "involvedObject.uid=p-1"
        assert log[:2] == ("Bearer good", f"{spaces}/pods/mine-worker-0/log")
        assert log[2]["container"] == "tensorflow"
        for token, status in (("blind", 502), ("slow", 502), ("other", 404), ("", 401)):
            for path in ("happened?", "log?pod=mine-worker-0&"):
                assert await code_of(ask, f"/api/{path}{key}", token) == status, (token, path)
        assert await code_of(ask, f"/api/happened?{key}", "odd") == 502
        # No name of a pod that is not the job's is asked for.
        before = len(asked)
        for path in ("log", "happened"):
            assert await code_of(ask, f"/api/{path}?{key}&pod=../../x", "good") == 404
        assert len(asked) == before
    async with served(hall := Hall()) as ask:
        hall.brings()
        assert await code_of(ask, f"/api/happened?{key}") == 404


WORKLOAD = {
    "metadata": {"name": "tfjob-mine-1", "creationTimestamp": "2026-09-21T14:13:20Z"},
    "status": {
        "clusterName": "worker1",
        "admissionChecks": [{"name": "multikueue", "state": "Ready", "message": "reserved"}],
        "conditions": [
            {"type": "Admitted", "status": "True", "reason": "Admitted", "message": "It is."}
        ],
    },
}


async def test_dispatched_job_is_shown_with_its_workload_and_local_queue():
    """The Workload is read with the rights of the viewer; other jobs have none."""
    asked, listing = [], {"items": [WORKLOAD]}

    async def read(who, path, params):
        asked.append((who, path, params))
        if who == "Bearer blind":
            raise ApiError(403, "Forbidden", "you may not", None)
        if path == "/apis/kueue.x-k8s.io":
            return json.dumps({"preferredVersion": {"version": "v1beta2"}})
        return json.dumps(listing)

    hall, mine = Hall(read=read), {"vision"}
    hall.brings(**{"kueue.x-k8s.io/queue-name": "team-queue"})
    path, key = "/api/workload?key=TFJob/vision/mine", "TFJob/vision/mine"
    async with served(hall, Server(good=mine, blind=mine, other={"ranking"})) as ask:
        job = (await json_of(ask, "/api/view", "good"))["view"]["jobs"][key]
        assert (job["dispatched"], job["localQueue"]) == ("dispatched by MultiKueue", "team-queue")
        found = await json_of(ask, path, "good")
        assert (found["name"], found["place"]) == ("tfjob-mine-1", "on cluster worker1")
        assert found["checks"] == ["multikueue: Ready: reserved"]
        (condition,) = found["conditions"]
        assert (condition["type"], condition["message"]) == ("Admitted", "It is.")
        workloads = "/apis/kueue.x-k8s.io/v1beta2/namespaces/vision/workloads"
        selector = {"labelSelector": "kueue.x-k8s.io/job-uid=u-1"}
        assert asked[-1] == ("Bearer good", workloads, selector)
        for token, status in (("blind", 502), ("other", 404), ("", 401)):
            assert await code_of(ask, path, token) == status, token
        listing["items"] = []
        assert await json_of(ask, path, "good") == {}
        hall.brings("plain")
        assert await code_of(ask, "/api/workload?key=TFJob/vision/plain", "good") == 404
