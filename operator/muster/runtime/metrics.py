# SPDX-License-Identifier: Apache-2.0
"""What is counted, and the small servers that show it, and how the process is."""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster import frameworks, version
from muster.allocator.decisionlog import BusyError
from muster.allocator.metrics import SECONDS, CycleMetrics
from muster.api.model import Job
from muster.frameworks.base import Framework
from muster.kube import serving
from muster.kube.loops import run_on
from muster.kube.tokens import Bearers
from muster.runtime.front import Front
from muster.settings import Settings

log = logging.getLogger(__name__)
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
Page = Callable[[Mapping[str, str]], Coroutine[None, None, str]]
"""Query parameters -> a JSON text. TimeoutError: there is none at present."""


class Table(Collector):
    """Numbers that somebody keeps anyhow, by the values of some labels."""

    def __init__(
        self,
        family: type[GaugeMetricFamily | CounterMetricFamily],
        name: str,
        text: str,
        *labels: str,
    ) -> None:
        self._family, self._name, self._text, self._labels = family, name, text, labels
        self.find: Callable[[], Mapping[tuple[str, ...], float]] = dict
        """Set by who knows them."""

    def collect(self) -> Iterable[Metric]:
        """Return those that there are."""
        family = self._family(self._name, self._text, labels=self._labels)
        for values, count in sorted(self.find().items()):
            family.add_metric(values, count)
        yield family


class Metrics:
    """The operator's numbers, by the names that training-operator's dashboards know."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        self._jobs = {
            outcome: counter(f"training_operator_jobs_{outcome}", f"Jobs {outcome}.", LABELS)
            for outcome in (*TRANSITIONS.values(), DELETED)
        }
        own = {row.operator.own_metrics: f"{row.kind}s" for row in frameworks.rows()}
        own.pop("", None)
        self._own = {
            (prefix, outcome): counter(f"{prefix}_jobs_{outcome}", f"{kinds} {outcome}.")
            for prefix, kinds in own.items()
            for outcome in OWN_OUTCOMES
        }
        text, labels = "Launchers of jobs.", ("launcher", "namespace")
        self.launchers = {
            prefix: Table(GaugeMetricFamily, f"{prefix}_job_info", text, *labels) for prefix in own
        }
        """By prefix: the batch Jobs by which other numbers about their pods are found."""
        self.unreadable = Table(
            GaugeMetricFamily,
            "muster_unreadable_objects",
            "Stored objects that cannot be understood, and count as the worst they may mean.",
            "kind",
        )
        self.requests = Table(
            CounterMetricFamily,
            "muster_api_requests",
            "Requests to the API server, each try; code 0: no answer came.",
            "verb",
            "code",
        )
        for table in (*self.launchers.values(), self.unreadable, self.requests):
            self.registry.register(table)
        self._objects = {
            key: counter(name, f"{key[0]}s {key[1]}.") for key, name in OBJECTS.items()
        }
        self.cycles = CycleMetrics(self.registry)
        self.dropped_events = gauge("muster_events_dropped", "Events that were not written.")
        self.silent_nodes = gauge("muster_nodes_silent", "Nodes whose condition Ready is Unknown.")
        self.missing_permissions = gauge(
            "muster_permissions_missing", "What the account needs and may not do any more."
        )
        self._failed_passes = counter(
            "muster_passes_failed",
            "Passes over a job that met an error which nobody expected.",
            ["reason"],
        )

        self.waiting_passes = gauge("muster_passes_waiting", "Jobs that wait for a pass.")
        self.pass_seconds = Histogram(
            "muster_pass_seconds", "One pass over a job.", buckets=SECONDS, registry=self.registry
        )
        self.leads = gauge("muster_leader", "1 for the replica that works.")
        self.certificate = gauge(
            "muster_webhook_certificate_expiry_timestamp_seconds",
            "Until when the certificate of the webhook is good; 0: there is none.",
        )
        build = gauge("muster_build_info", "1 for what runs.", ["version", "python"])
        build.labels(version(), platform.python_version()).set(1)
        self.dropped_fields = counter(
            "muster_group_fields_dropped",
            "Fields of groups that the API server left out.",
            ["kind", "field"],
        )

    def became(self, job: Job, framework: Framework, condition: str) -> None:
        """Count that a condition of a job has become true."""
        outcome = TRANSITIONS.get(condition)
        if outcome is not None:
            labels = (job.namespace, framework.operator.metric)
            # A series that begins with its first event shows no rate of it: all begin with a job.
            for counter in self._jobs.values():
                counter.labels(*labels)
            self._jobs[outcome].labels(*labels).inc()
            if (own := self._own.get((framework.operator.own_metrics, outcome))) is not None:
                own.inc()

    def ended(self, framework: Framework, namespace: str) -> None:
        """Count a job that was deleted, by whomever."""
        self._jobs[DELETED].labels(namespace, framework.operator.metric).inc()

    def forget(self, namespace: str) -> None:
        """Remove the series of a namespace that was deleted."""
        for counter in self._jobs.values():
            for row in frameworks.rows():
                counter.remove(namespace, row.operator.metric)

    def failed_pass(self, reason: str) -> None:
        """Count a pass that failed, by the name of its error."""
        self._failed_passes.labels(reason).inc()

    def count(self, kind: str, verb: str) -> None:
        """Count an object that this process created or deleted, or that the server refused."""
        counter = self._objects.get((kind, verb))
        if counter is not None:
            counter.inc()


async def serve(
    metrics: Metrics,
    settings: Settings,
    front: Front,
    loop: asyncio.AbstractEventLoop,
    pages: Mapping[str, Page],
    guard: Bearers[HTTPStatus] | None = None,
) -> list[serving.Server]:
    """Start the servers, one per address. Raises OSError if one is in use, but not of `pages`.

    `front` answers the probes on the running loop; metrics and `pages`, JSON for debugging by
    path, are read on the working `loop`. With a `guard`, metrics need TLS and its authorization.
    """

    async def read(authorization: str) -> tuple[HTTPStatus, bytes]:
        status = HTTPStatus.OK if guard is None else await guard.find(authorization)
        return status, generate_latest(metrics.registry) if status is HTTPStatus.OK else b""

    async def show(request: web.Request) -> web.Response:
        status, body = await run_on(loop, read(request.headers.get("Authorization", "")))
        if status is not HTTPStatus.OK:
            return web.Response(status=status, text=f"{status.phrase}\n")
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    health = [
        web.get("/healthz", _probe(lambda: (front.health.unwell, ""))),
        web.get("/readyz", _probe(lambda: (front.health.unready, front.health.warning))),
    ]
    routes: dict[str, list[web.RouteDef]] = {}
    for address, shown in ((settings.metrics_bind, [web.get("/metrics", show)]),
                           (settings.health_bind, health)):  # fmt: skip
        if address != "0":
            routes.setdefault(address, []).extend(shown)
    tls = None if guard is None else await asyncio.to_thread(serving.own_context, "muster-metrics")
    runners = [
        await serving.start(address, shown, tls if address == settings.metrics_bind else None)
        for address, shown in routes.items()
    ]
    if pages and settings.debug_bind != "0":
        try:
            shown = [_page(path, page, loop) for path, page in pages.items()]
            runners.append(await serving.start(settings.debug_bind, shown, None))
        except OSError as error:
            log.warning("pages for debugging are not served on %s: %s", settings.debug_bind, error)
    return runners


def _probe(ask: Callable[[], tuple[str, str]]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        problem, warning = ask()
        lines = filter(None, (problem or "ok", warning))
        text = "".join(f"{line}\n" for line in lines)
        return web.Response(text=text, status=503 if problem else 200)

    return answer


def _page(path: str, page: Page, loop: asyncio.AbstractEventLoop) -> web.RouteDef:
    async def answer(request: web.Request) -> web.Response:
        try:
            return web.json_response(text=await run_on(loop, page(request.query)))
        except TimeoutError:
            return web.Response(text="this process is not at work\n", status=503)
        except BusyError as error:
            return web.Response(text=f"{error}\n", status=503)

    return web.get(path, answer)
