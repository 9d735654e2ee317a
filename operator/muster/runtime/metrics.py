# SPDX-License-Identifier: Apache-2.0
"""What is counted, and the two small servers that show it: /metrics, /healthz and /readyz."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster import frameworks
from muster.allocator.metrics import CycleMetrics
from muster.api.model import Job
from muster.frameworks.base import Framework

LABELS = ("job_namespace", "framework")
TRANSITIONS = {
    "Created": "created",
    "Succeeded": "successful",
    "Failed": "failed",
    "Restarting": "restarted",
}
DELETED = "deleted"
OWN_OUTCOMES = ("created", "successful", "failed")
"""What operators of one kind counted, without labels."""
OBJECTS = {
    ("Pod", "created"): "created_pods",
    ("Pod", "deleted"): "deleted_pods",
    ("Pod", "refused"): "failed_pods",
    ("PodGroup", "created"): "created_pod_groups",
    ("PodGroup", "deleted"): "deleted_pod_groups",
    ("Service", "created"): "succeeded_service_creation",
    ("Service", "refused"): "failed_service_creation",
}
Page = Callable[[Mapping[str, str]], Awaitable[str]]
"""Query parameters -> a JSON text. TimeoutError: there is none at present."""
Launcher = tuple[str, str, str]
"""(prefix of the metric, name of the batch Job that starts a job's program, its namespace)"""


class Launchers(Collector):
    """One sample per launcher, by which other numbers about its pods are found."""

    def __init__(self) -> None:
        self.find: Callable[[], Iterable[Launcher]] = tuple
        """Set by who knows the jobs."""

    def collect(self) -> Iterable[Metric]:
        """Return the launchers that there are."""
        labels = ("launcher", "namespace")
        found = sorted(self.find())
        for prefix in sorted({row.operator.own_metrics for row in frameworks.rows()} - {""}):
            family = GaugeMetricFamily(f"{prefix}_job_info", "Launchers of jobs.", labels=labels)
            for whose, launcher, namespace in found:
                if whose == prefix:
                    family.add_metric([launcher, namespace], 1)
            yield family


class UnreadableObjects(Collector):
    """How many stored objects cannot be read, by kind."""

    def __init__(self) -> None:
        self.find: Callable[[], Mapping[str, int]] = dict
        """Set by who knows the objects."""

    def collect(self) -> Iterable[Metric]:
        """Return the kinds of which there are any."""
        text = "Stored objects that cannot be understood, and count as the worst they may mean."
        family = GaugeMetricFamily("muster_unreadable_objects", text, labels=("kind",))
        for kind, count in sorted(self.find().items()):
            family.add_metric([kind], count)
        yield family


class Metrics:
    """The operator's numbers, by the names that training-operator's dashboards know."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._jobs = {
            outcome: Counter(
                f"training_operator_jobs_{outcome}",
                f"Jobs {outcome}.",
                LABELS,
                registry=self.registry,
            )
            for outcome in (*TRANSITIONS.values(), DELETED)
        }
        self._own = {
            (prefix, outcome): Counter(
                f"{prefix}_jobs_{outcome}", f"{row.kind}s {outcome}.", registry=self.registry
            )
            for row in frameworks.rows()
            if (prefix := row.operator.own_metrics)
            for outcome in OWN_OUTCOMES
        }
        self.launchers = Launchers()
        self.registry.register(self.launchers)
        self.unreadable = UnreadableObjects()
        self.registry.register(self.unreadable)
        self._objects = {
            key: Counter(name, f"{key[0]}s {key[1]}.", registry=self.registry)
            for key, name in OBJECTS.items()
        }
        self.cycles = CycleMetrics(self.registry)
        self.dropped_events = Gauge(
            "muster_events_dropped", "Events that were not written.", registry=self.registry
        )

    def became(self, job: Job, framework: Framework, condition: str) -> None:
        """Count that a condition of a job has become true."""
        outcome = TRANSITIONS.get(condition)
        if outcome is not None:
            self._jobs[outcome].labels(job.namespace, framework.operator.metric).inc()
            if (own := self._own.get((framework.operator.own_metrics, outcome))) is not None:
                own.inc()

    def ended(self, framework: Framework, namespace: str) -> None:
        """Count a job that was deleted, by whomever."""
        self._jobs[DELETED].labels(namespace, framework.operator.metric).inc()

    def count(self, kind: str, verb: str) -> None:
        """Count an object that this process created or deleted, or that the server refused."""
        counter = self._objects.get((kind, verb))
        if counter is not None:
            counter.inc()


async def serve(
    metrics: Metrics,
    metrics_bind: str,
    health_bind: str,
    unready: Callable[[], str],
    pages: Mapping[str, Page] | None = None,
) -> list[web.AppRunner]:
    """Start the servers; `unready` says why the process cannot work, or nothing.

    `pages` are served beside the metrics, as JSON, by their paths. The address `0` leaves that
    server out; one address for both makes one server. Raises OSError when an address is taken.
    """

    async def show(_request: web.Request) -> web.Response:
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_request: web.Request) -> web.Response:
        reason = unready()
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    health = [web.get("/healthz", healthy), web.get("/readyz", ready)]
    routes: dict[str, list[web.RouteDef]] = {}
    shown = [
        web.get("/metrics", show),
        *(_page(path, page) for path, page in (pages or {}).items()),
    ]
    for address, handlers in ((metrics_bind, shown), (health_bind, health)):
        if address != "0":
            routes.setdefault(address, []).extend(handlers)
    return [await _start(address, handlers) for address, handlers in routes.items()]


def _page(path: str, page: Page) -> web.RouteDef:
    async def answer(request: web.Request) -> web.Response:
        try:
            return web.json_response(text=await page(request.query))
        except TimeoutError:
            return web.Response(text="this process is not at work\n", status=503)

    return web.get(path, answer)


async def _start(address: str, handlers: list[web.RouteDef]) -> web.AppRunner:
    app = web.Application()
    app.add_routes(handlers)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = address.rpartition(":")
    await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    return runner
