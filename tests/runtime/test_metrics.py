# SPDX-License-Identifier: Apache-2.0
"""What is counted of jobs, and who is shown it: each transition once, whatever its reason."""

import asyncio
import gzip
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.exposition import generate_latest

import muster
from muster import frameworks
from muster.allocator.decisionlog import DecisionLog
from muster.api import names
from muster.controller.model import Emit
from muster.frameworks import FRAMEWORKS
from muster.kube.serving import start
from muster.local.cluster import free_port
from muster.runtime.front import Front, Health
from muster.runtime.metrics import Metrics, serve
from muster.settings import Settings
from muster.store.jobs import Jobs
from support.apiserver.memory import tfjob
from support.builders import mpijobs


def shown(metrics):
    """Return sample with its labels -> value, as a scrape finds it."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def test_every_name_of_jobs_is_served_from_the_start():
    """Those without labels show nothing yet, those with labels come with their first job."""
    text = generate_latest(Metrics().registry).decode()
    words = ("created", "deleted", "successful", "failed", "restarted")
    assert all(f"# TYPE training_operator_jobs_{word}_total counter" in text for word in words)
    assert "# TYPE mpi_operator_job_info gauge" in text
    plain = [f"mpi_operator_jobs_{word}_total" for word in ("created", "successful", "failed")]
    plain += [f"{verb}_pods_total" for verb in ("created", "deleted", "failed")]
    plain += ["created_pod_groups_total", "deleted_pod_groups_total"]
    plain += ["succeeded_service_creation_total", "failed_service_creation_total"]
    found = shown(Metrics())
    assert {name: found.get(name) for name in plain} == dict.fromkeys(plain, 0.0)


@pytest.mark.parametrize(("version", "own"), [("v1", 0), ("v2beta1", 1)])
def test_v2beta1_has_counters_of_its_own(version, own):
    """Beside those of all kinds."""
    metrics = Metrics()
    job = frameworks.load(FRAMEWORKS["MPIJob"], mpijobs.mpijob(version))
    for condition in ("Created", "Running", "Failed"):
        metrics.became(job, frameworks.of(job), condition)
    found = shown(metrics)
    labels = f'{{framework="mpi",job_namespace="{job.namespace}"}}'
    assert found[f"training_operator_jobs_created_total{labels}"] == 1
    assert found[f"training_operator_jobs_failed_total{labels}"] == 1
    assert found["mpi_operator_jobs_created_total"] == own
    assert found["mpi_operator_jobs_failed_total"] == own
    assert found["mpi_operator_jobs_successful_total"] == 0


def test_launchers_and_unreadable_objects_are_counted_while_they_exist():
    """By the batch Job's name and namespace, and by kind."""
    metrics, launchers, unreadable = Metrics(), {("one-launcher", "team"): 1}, {("Queue",): 2}
    metrics.launchers["mpi_operator"].find = lambda: launchers
    metrics.unreadable.find = lambda: unreadable
    samples = {
        'mpi_operator_job_info{launcher="one-launcher",namespace="team"}': 1,
        'muster_unreadable_objects{kind="Queue"}': 2,
    }
    assert samples.items() <= shown(metrics).items()
    launchers.clear()
    unreadable.clear()
    assert not samples.keys() & shown(metrics).keys()


def test_the_process_says_what_it_is():
    """Its version, whether it works, and what it asked of the server."""
    metrics = Metrics()
    metrics.requests.find = lambda: {("GET", "200"): 3, ("POST", "0"): 1}
    metrics.leads.set(1)
    found = shown(metrics)
    (build,) = (name for name in found if name.startswith("muster_build_info"))
    assert f'version="{muster.version()}"' in build
    assert found["muster_leader"] == 1
    assert found['muster_api_requests_total{code="200",verb="GET"}'] == 3
    assert found['muster_api_requests_total{code="0",verb="POST"}'] == 1


def test_what_becomes_of_jobs_is_told_from_the_first_of_a_namespace():
    """With 0 until then: of a series that begins with 1 nobody sees that it rose.

    A stream of namespaces with jobs leaves no series.
    """
    metrics = Metrics()
    framework, before = FRAMEWORKS["TFJob"], set(shown(metrics))
    metrics.became(frameworks.load(framework, tfjob()), framework, "Created")
    found = {name: count for name, count in shown(metrics).items() if "framework=" in name}
    told = {name.partition("{")[0]: count for name, count in found.items() if "_total" in name}
    words = {"created": 1, "deleted": 0, "failed": 0, "restarted": 0, "successful": 0}
    assert told == {f"training_operator_jobs_{word}_total": n for word, n in words.items()}
    metrics.forget("team")
    assert set(shown(metrics)) == before


def test_jobs_have_no_series_of_their_own():
    """However many there are of a namespace; only launchers do, as mpi-operator had it."""
    metrics = Metrics()

    def tell(*jobs):
        for name in jobs:
            document = tfjob(name=name)
            job = frameworks.load(FRAMEWORKS["TFJob"], document)
            for condition in ("Created", "Running", "Succeeded"):
                metrics.became(job, FRAMEWORKS["TFJob"], condition)
        return set(shown(metrics))

    assert tell("one") == tell("two", "three")


def test_a_failure_counts_whatever_its_reason():
    """A launcher's batch Job gives its own reason, which tells nothing of the transition."""
    made = mpijobs.world("v2beta1")
    made.launch()
    made.settle().close(end="Failed", failed=7, reason="BackoffLimitExceeded", message="too often")
    emitted = [action for action in made.decide() if isinstance(action, Emit)]
    counted = [(emit.transition, emit.reason) for emit in emitted if emit.transition]
    assert counted == [(names.Condition.FAILED, "BackoffLimitExceeded")]


def test_a_job_ends_once_whoever_deleted_it():
    """Also one that was made anew before its end was seen."""
    metrics = Metrics()
    jobs = Jobs({"TFJob": FRAMEWORKS["TFJob"]}, lambda _key: None, lambda: None)

    def version(number, uid):
        document = tfjob()
        document["metadata"] |= {"resourceVersion": str(number), "uid": uid}
        return document

    shown_jobs = jobs.collections["TFJob"]
    shown_jobs.take(version(1, "a"))
    shown_jobs.remove(version(2, "a"))
    shown_jobs.take(version(3, "b"))
    jobs.ended = metrics.ended
    shown_jobs.take(version(4, "c"))
    (job,) = jobs
    shown_jobs.discard(job.namespace, job.name, "c")
    shown_jobs.remove(version(5, "c"))
    labels = '{framework="tensorflow",job_namespace="team"}'
    assert shown(metrics)[f"training_operator_jobs_deleted_total{labels}"] == 2


@pytest.mark.parametrize(
    ("manager", "count"),
    [(None, 1), ("kubeflow.org/training-operator", 1), ("kueue.x-k8s.io/multikueue", 0)],
)
@pytest.mark.parametrize("read", [True, False])
def test_deleted_job_of_another_controller_is_not_counted(manager, count, read):
    """Whether the job was parsed before or not, and also with a deletion timestamp."""
    metrics = Metrics()
    jobs = Jobs({"TFJob": FRAMEWORKS["TFJob"]}, lambda _key: None, lambda: None)
    jobs.ended = metrics.ended
    document = tfjob(policy={"managedBy": manager} if manager else {})
    document["metadata"] |= {"resourceVersion": "1", "uid": "a"}
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    jobs.show("TFJob", document, gone=False)
    assert not read or len(list(jobs)) == 1
    jobs.show("TFJob", document, gone=True)
    labels = '{framework="tensorflow",job_namespace="team"}'
    assert shown(metrics).get(f"training_operator_jobs_deleted_total{labels}", 0) == count


def beating(*health):
    """Return a main thread that has had a heartbeat."""
    front = Front()
    front.beat(Health(*health or ("",)))
    return front


@asynccontextmanager
async def served(*, guard=None, pages=None, front=None):
    """Run the servers of a process; give a function that sends a request to one of them."""
    binds = {name: f"127.0.0.1:{free_port()}" for name in ("metrics", "health", "debug")}
    settings = Settings(**{f"{name}_bind": address for name, address in binds.items()})
    loop = asyncio.get_running_loop()
    runners = await serve(Metrics(), settings, front or beating(), loop, pages or {}, guard)
    async with aiohttp.ClientSession() as session:

        async def ask(server, path, scheme="http", **headers):
            url = f"{scheme}://{binds[server]}{path}"
            async with session.get(url, headers=headers, ssl=False) as response:
                return response.status, await response.text()

        try:
            yield ask
        finally:
            for runner in runners:
                await runner.cleanup()


async def test_pages_for_debugging_are_not_where_the_metrics_are():
    """They have an address of their own, which is the machine's alone."""

    async def page(_query):
        return "{}"

    async with served(pages={"/debug/decisions": page}) as ask:
        assert await ask("debug", "/debug/decisions") == (200, "{}")
        for server in ("metrics", "health"):
            assert (await ask(server, "/debug/decisions"))[0] == 404
        assert (await ask("metrics", "/metrics"))[0] == 200
        assert (await ask("health", "/metrics"))[0] == 404


async def test_one_dump_at_a_time():
    """Each costs a second of work."""
    log = DecisionLog(lambda: None)

    async with served(pages=log.pages) as ask:
        first = asyncio.create_task(ask("debug", "/debug/snapshot"))
        await asyncio.sleep(0.2)
        for path in log.pages:
            status, text = await ask("debug", path)
            assert (status, text) == (503, "somebody else asks at this moment; one at a time\n")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_what_strangers_pack_stays_packed():
    """A small body that becomes a large one would hold up the event loop of all that works."""
    bomb = gzip.compress(bytes(2**20))

    async def show(request):
        return web.Response(body=await request.read())

    address = f"127.0.0.1:{free_port()}"
    runner = await start(address, [web.post("/", show)], None)
    headers = {"Content-Encoding": "gzip"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/", data=bomb, headers=headers) as answer,
    ):
        assert await answer.read() == bomb
    await runner.cleanup()


async def test_probes_say_what_is_wrong():
    """Each its own; a warning stands in a line of its own and leaves the process ready."""
    front = beating()
    async with served(front=front) as ask:
        assert await ask("health", "/readyz") == await ask("health", "/healthz") == (200, "ok\n")
        front.beat(Health("cycles fail"))
        assert await ask("health", "/readyz") == (503, "cycles fail\n")
        assert (await ask("health", "/healthz"))[0] == 200
        front.beat(Health("cycles fail", "a cycle hangs"))
        assert await ask("health", "/healthz") == (503, "a cycle hangs\n")
        front.beat(Health("", "", "fields are dropped"))
        assert await ask("health", "/readyz") == (200, "ok\nfields are dropped\n")
        assert await ask("health", "/healthz") == (200, "ok\n")


async def test_metrics_for_those_who_may_read_them():
    """Over TLS, by their token."""

    class Guard:
        async def find(self, authorization):
            known = authorization == "Bearer good"
            return HTTPStatus.OK if known else HTTPStatus.UNAUTHORIZED

    async with served(guard=Guard()) as ask:
        good = {"Authorization": "Bearer good"}
        assert (await ask("metrics", "/metrics", "https", **good))[0] == 200
        assert await ask("metrics", "/metrics", "https") == (401, "Unauthorized\n")
        assert (await ask("health", "/readyz"))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await ask("metrics", "/metrics", "http", **good)
