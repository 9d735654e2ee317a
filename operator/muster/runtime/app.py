# SPDX-License-Identifier: Apache-2.0
"""The operator as a process: its parts put together, started in order, stopped cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path

from muster import frameworks
from muster.allocator import policyfile
from muster.allocator.loop import Loop
from muster.allocator.members import GangSettings
from muster.api import names
from muster.api.model import Json, Unreadable
from muster.cluster.gangs import GangRules
from muster.controller.model import Context
from muster.dashboard import server
from muster.dashboard.server import Dashboard, Source
from muster.frameworks.base import Framework, Waiting
from muster.gang import GangFacts
from muster.kube import access, leaderelection
from muster.kube.admission import Admission
from muster.kube.auth import ConfigurationError, connect
from muster.kube.certificates import PairFiles
from muster.kube.client import BROKEN, ApiError, FencedError, Kube
from muster.kube.events import EventRecorder
from muster.kube.leaderelection import LeaderElector, Timings
from muster.kube.loops import run_on
from muster.kube.tokens import Bearers
from muster.kube.workqueue import WorkQueue
from muster.runtime import handlers, health, logs, metrics
from muster.runtime.front import HEARTBEAT_SECONDS, Front, Health
from muster.runtime.metrics import Metrics
from muster.runtime.reconciler import Reconciler
from muster.runtime.webhook import Endpoint
from muster.scheduler.model import namespace_of
from muster.scheduler.policy import PolicyError
from muster.settings import Settings, TemplateError
from muster.store import permissions
from muster.store.away import AwayNodes
from muster.store.informers import Informers
from muster.store.jobs import DocumentLimits
from muster.store.ondemand import GoneNodes
from muster.store.outages import Outage
from muster.store.permissions import Grants, Losses
from muster.store.store import Callbacks, Store

log = logging.getLogger(__name__)

PASSES_AT_ONCE = 1024
"""Reconciles mostly wait in flow control; those that write status must not delay new pods."""
METRICS_PATH = "/metrics"
LEASE_REQUESTS = 2
"""Concurrent requests about the lease: one that has no answer, and the next one."""


class Operator:
    """All parts of one running operator."""

    def __init__(
        self, settings: Settings, connection: Kube, waiting: Waiting, front: Front, leases: Kube
    ) -> None:
        """Connect the parts. `leases`: the connection of the `front`, by which it leads."""
        self.settings = settings
        self.front, self.leases = front, leases
        self.waiting = waiting
        self.kube = connection
        self.lock_namespace = settings.lock_namespace or connection.namespace
        self.backend = settings.backend
        self.frameworks = settings.frameworks
        self.metrics = Metrics()
        self.recorder = EventRecorder(connection)
        self.queue = WorkQueue(
            self._pass,
            width=PASSES_AT_ONCE,
            quiet=(FencedError,),
            trouble=(ApiError, *BROKEN),
            tenant=namespace_of,
            failed=self.metrics.failed_pass,
            took=self.metrics.pass_seconds.observe,
        )
        connection.recovered = self._recovered
        self.store = Store(
            self.backend,
            self.frameworks,
            settings.namespaces,
            Callbacks(
                self.queue.add,
                self._trigger,
                unreadable=self._tell,
                ended=self._on_pod_ended,
                space_removed=self.metrics.forget,
            ),
            settings.site,
            settings.node_lost_after,
            settings.node_lost_share,
            DocumentLimits(settings.max_job_bytes_per_namespace, settings.max_job_bytes),
        )
        self.informers = Informers(connection, self.store)
        self.policy = policyfile.PolicyFile(settings.scheduler_conf)
        self.loop = (
            Loop(
                connection,
                self.store,
                self.policy.get,
                self._loop_settings,
                self.metrics.cycles,
                self._publish,
                self.recorder,
                self._context if settings.dry_run_pods else None,
            )
            if self.backend.embedded
            else None
        )
        self.reconciler = Reconciler(
            connection,
            self.store,
            self.backend,
            self._context,
            self.recorder,
            self.metrics,
            self.loop,
        )
        self.gone_nodes = GoneNodes(connection, self.store)
        self.leader: LeaderElector | None = None
        self.metrics.cycles.names_gangs = not settings.hide_other_namespaces
        if not settings.hide_other_namespaces:
            for prefix, launchers in self.metrics.launchers.items():
                launchers.find = partial(self._launchers, prefix)
        self.metrics.unreadable.find = lambda: {
            (kind,): count for kind, count in self.store.unreadable().items()
        }
        self.metrics.requests.find = lambda: connection.requests
        self.metrics.waiting_passes.set_function(lambda: len(self.queue))
        self.metrics.silent_nodes.set_function(lambda: self.store.away.silent)
        self.metrics.dropped_events.set_function(lambda: self.recorder.dropped)
        self.endpoint = _endpoint(settings, connection, self.frameworks)
        if (endpoint := self.endpoint) is not None:
            self.metrics.certificate.set_function(lambda: endpoint.admission.expires)
        rows = [row for row in frameworks.rows() if row.kind in self.store.frameworks]
        self.operators = [row.operator.name for row in rows]
        self.grants = Grants(connection, self.informers, rows, settings.namespaces, self._trigger)
        name = self.lock_namespace, settings.leader_election_id
        lease = name if settings.leader_elect else None
        self.needed = permissions.needed(self.backend, self.frameworks, settings.namespaces, lease)
        self.losses = Losses(connection, self.needed, settings.overlay, self._permissions_changed)
        self.metrics.missing_permissions.set_function(lambda: len(self.losses.missing))
        self.problem, self.unfollowed = "starting", ""
        self._stop = asyncio.Event()
        self._relisted, self._restored = asyncio.Event(), asyncio.Event()
        connection.set_back = self._set_back

    async def serve(self) -> int:
        """Run until a signal, or until the lease is lost; return the exit code."""
        settings, front = self.settings, self.front.loop
        loop = asyncio.get_running_loop()
        await run_on(front, self.front.handle_signals(loop, self._stop.set))
        beating = asyncio.create_task(self._beat(), name="heartbeat")
        # First: a process that waits for permissions or the lease must report why.
        try:
            serving = metrics.serve(
                self.metrics,
                settings,
                self.front,
                loop,
                {} if self.loop is None else self.loop.decision_log.pages,
                Bearers(self.kube, METRICS_PATH, lambda _user: HTTPStatus.OK)
                if settings.metrics_secure
                else None,
            )
            servers = await run_on(front, serving)
        except OSError as error:
            log.error("metrics or health cannot be served: %s", error)  # noqa: TRY400 -- enough
            await self.kube.close()
            return 2
        pages = []
        if (page := self._page()) is not None:
            try:
                pages.append(await server.serve(settings.dashboard_bind, page))
            except OSError as error:
                # Jobs are not to wait for it.
                log.warning("the page is not served: %s", error)
        code = await self._work() if await self._permitted() else 0
        for each in pages:
            await each.cleanup()
        for each in servers:
            await run_on(front, each.cleanup())
        await self.kube.close()
        beating.cancel()
        await run_on(front, self.front.ignore_signals())
        return code

    async def _beat(self) -> None:
        while True:
            unwell = health.unwell(self.loop, self.informers, time.monotonic())
            beat = Health(self._unready(), unwell, self.reconciler.unstored)
            self.front.beat(beat)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def _page(self) -> Dashboard | None:
        loop, settings = self.loop, self.settings
        if loop is None or settings.dashboard_bind == "0":
            return None
        kube = None if settings.dashboard_auth == "none" else self.kube
        source = Source(
            lambda: loop.seen,
            self.store,
            loop.decision_log.entries,
            # Where nobody is asked who he is, nobody's rights are known.
            read=kube.text_for if kube else None,
        )
        loop.onlooker = source.past.saw
        return Dashboard(source, kube)

    async def _permitted(self) -> bool:
        """Return True once this account may do all that is needed, False at a signal to stop."""
        asking = asyncio.create_task(self._ask(), name="permissions")
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stop.is_set():
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            return False
        await asking
        return True

    async def _ask(self) -> None:
        await access.wait(self.kube, self.needed, self.settings.overlay, self._lacking)
        self.kube.denied = self._doubt
        # Before any pass: a kind whose permissions are unknown counts as not permitted.
        await self.grants.look()

    def _lacking(self, problem: str) -> None:
        self.problem = problem or "starting"
        if problem:
            log.error("%s", problem)
        else:
            log.info("the account has the permissions that it needs")

    async def _work(self) -> int:
        """Work until a signal or the end of a part; return the exit code.

        The work ends first, then the lease is given back.
        """
        leader = self.leader = self._leader()
        parts = {
            asyncio.create_task(self.informers.run(), name="informers"),
            asyncio.create_task(self.grants.run(), name="grants"),
            asyncio.create_task(self.losses.run(), name="permissions"),
            asyncio.create_task(self._lead(leader), name="work"),
        }
        # Alone there are no jobs to follow.
        if self.frameworks:
            following = handlers.follow(
                self.kube,
                self.frameworks,
                self.settings.namespaces,
                self.store.jobs.show,
                self._relisted.set,
                self._cannot_follow,
                self._restored,
            )
            parts.add(asyncio.create_task(following, name="kopf"))
        if self.endpoint is not None:
            parts.add(asyncio.create_task(self.endpoint.admission.run(), name="admission"))
            parts.add(asyncio.create_task(self.endpoint.run(), name="webhook"))
        stopping = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait({*parts, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if (error := task.exception()) is not None:
                log.error("%s ended", task.get_name(), exc_info=error)
        for task in {*parts, stopping}:
            task.cancel()
        # No pass is under way from here on, so the lease may go to somebody else.
        await asyncio.gather(*parts, stopping, return_exceptions=True)
        if leader is not None:
            await leader.release()
        return 0 if done == {stopping} else 1

    def _doubt(self, message: str) -> None:
        self.losses.doubt(message)
        self.grants.doubt()

    def _cannot_follow(self, why: str) -> None:
        self.unfollowed = why and f"cannot follow jobs: {why}"

    def _set_back(self) -> None:
        """Restart the watches of jobs: they would show nothing of a restored server's versions."""
        self.informers.set_jobs_back()
        self._restored.set()
        self._relisted.set()

    async def _lead(self, leader: LeaderElector | None) -> None:
        """Work while this process leads; returning means that it does not any more."""
        # A standby follows everything too, so that it takes over with a full store.
        await self.informers.synced()
        # A standby is ready too: a rolling update waits for it before it stops the leader.
        self.problem = ""
        if leader is None:
            await self._act()
        else:
            await leader.lead(self._act)

    async def _act(self) -> None:
        """Do all that one process alone may do, for ever."""
        # Again: what was granted meanwhile, and the jobs as the leader before left them.
        await self.informers.synced()
        log.info("working: gang scheduler %s", self.backend.name)
        self.metrics.leads.set(1)
        self.store.jobs.ended = self.metrics.ended
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._decide())
            tasks.create_task(self.recorder.run())
            tasks.create_task(self.informers.audit_jobs(self._relisted))
            if home := self.settings.policy_namespace:
                published = self.settings.published
                tasks.create_task(policyfile.publish(self.kube, home, self.policy, published))
            if self.settings.dashboard_bind != "0":
                lease = self.settings.leader_election_id
                tasks.create_task(leaderelection.show(self.kube, self.lock_namespace, lease))

    async def _decide(self) -> None:
        """Reconcile and schedule, with all before them that other operators have left."""
        await self.reconciler.takeover.look_at_all()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.queue.run(self.store.jobs.all_keys))
            if self.loop is not None:
                self.loop.trigger()
                report_outages(self.store.away, self.recorder, self._lease)
                tasks.create_task(self.loop.run())
                tasks.create_task(self.gone_nodes.run())

    async def _pass(self, key: str) -> float | None:
        after = await self.reconciler.reconcile(key)
        if after is None and self.store.jobs.find(key) is None:
            self.queue.forget(key)
        return after

    def _publish(self, key: str) -> None:
        self.reconciler.hurry(key)
        self.queue.add(key, at_once=True)

    def _recovered(self) -> None:
        self.queue.hurry()
        if self.loop is not None:
            self.loop.retry()

    def _permissions_changed(self) -> None:
        # Also what dry runs were refused.
        self.store.dry_runs.changed()
        self.store.jobs.enqueue_all()
        if self.loop is not None:
            self.loop.retry(granted=True)

    def _on_pod_ended(self, key: str) -> None:
        self.reconciler.on_pod_ended(key)

    def _launchers(self, prefix: str) -> Mapping[tuple[str, ...], float]:
        return {
            (batch.name, batch.namespace): 1
            for framework, job in self.store.jobs.owners()
            if framework.operator.own_metrics == prefix
            for batch in self.store.children.makers(job)
        }

    def _tell(self, about: Json, why: Unreadable) -> None:
        text = f"{why.reason}; until it can be read, it counts as the worst that it may mean"
        self.recorder.emit(about, "Warning", names.Event.UNREADABLE, text, once=True)

    def _trigger(self) -> None:
        if self.loop is not None:
            self.loop.trigger()

    def _leader(self) -> LeaderElector | None:
        settings = self.settings
        if not settings.leader_elect:
            return None
        identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        timings = Timings(settings.lease_duration, settings.renew_deadline, settings.retry_period)
        return LeaderElector(
            self.leases,
            self.lock_namespace,
            settings.leader_election_id,
            identity,
            timings,
            fenced=self.kube,
            loop=self.front.loop,
            responsive=self.front.responsive,
        )

    def _lease(self) -> Json | None:
        return None if self.leader is None else self.leader.reference

    def _context(self, namespace: str) -> Context:
        api = self.store.groups.api
        lacking, lost = self.grants.lacking, self.losses.blocks(namespace)
        if lost:
            lacking = dict.fromkeys(self.operators, lost)
        limited = self.store.quotas.admission(namespace).limits_containers
        missing = self.backend.cure if self.store.groups.missing else ""
        return Context(
            cluster_domain=self.settings.cluster_domain,
            waiting=replace(self.waiting, limited=limited),
            placement=self.settings.placement,
            gangs=GangFacts(
                priorities=self.store.priorities,
                default_queue=self.settings.default_queue,
                max_schedule_timeout=self.settings.max_schedule_timeout,
                queues=self.store.groups.queues,
                api_version=api.api_version if api else "",
            ),
            missing=missing,
            lacking=lacking,
        )

    def _loop_settings(self) -> GangSettings:
        settings = self.settings
        return GangSettings(
            GangRules.of(settings, self.store.classes),
            settings.member_hold,
            settings.on_hold_expired,
            settings.hide_other_namespaces,
            settings.schedule_period,
            settings.pending_pods_budget,
        )

    def _unready(self) -> str:
        if self.store.groups.missing:
            return f"the API of the gang scheduler is not served: {self.backend.cure}"
        problem = self.problem or self.losses.problem or self.unfollowed
        return problem or health.unready(self.loop, self.informers, time.monotonic())


def _endpoint(settings: Settings, connection: Kube, kinds: Sequence[Framework]) -> Endpoint | None:
    if settings.admission_bind == "0":
        return None
    given = PairFiles(Path(settings.admission_cert), Path(settings.admission_key))
    admission = Admission(
        connection,
        settings.admission_configuration,
        settings.admission_lifetime,
        given if settings.admission_cert else None,
    )
    return Endpoint(settings.admission_bind, admission, kinds, settings.site)


def report_outages(
    away: AwayNodes, recorder: EventRecorder, lease: Callable[[], Json | None]
) -> None:
    """Log outages of nodes, current and future, and record events on the leader's Lease."""

    def changed(outage: Outage, *, once: bool = False) -> None:
        log.warning("%s", outage.message)
        if (about := lease()) is None:
            return
        kind, reason = "Warning", names.Event.NODE_OUTAGE_STARTED
        if outage.ended:
            kind, reason = "Normal", names.Event.NODE_OUTAGE_ENDED
        recorder.emit(about, kind, reason, outage.message, of=outage.where, once=once)

    for outage in away.outages:
        # The previous leader may have reported it.
        changed(outage, once=True)
    away.outage_changed = changed


def tune_interpreter() -> None:
    """Set the interpreter's garbage collection and thread switching for a long-running loop."""
    # The objects of the imports live as long as the process, so collections skip them.
    gc.freeze()
    # A request creates hundreds of objects without cycles. The default, 700, costs 10 % of CPU.
    gc.set_threshold(20_000)
    # The default, 5 ms, limits the loop to 200 requests per second while another thread computes.
    sys.setswitchinterval(0.0005)


def main(settings: Settings) -> int:
    """Run the operator; return the exit code of the process."""
    logs.begin(settings.verbosity)
    # As many open connections as the system allows: each watch needs one of its own.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if settings.ignored:
        log.info("accepted and ignored: %s", " ".join(settings.ignored))
    tune_interpreter()
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    """Serve the front on this loop, and work in another thread; return the exit code."""
    front = Front()
    try:
        waiting = settings.waiting()
        leases = await _connect(settings, LEASE_REQUESTS)
        try:
            return await asyncio.to_thread(asyncio.run, _work(settings, waiting, front, leases))
        finally:
            await leases.close()
    except (ConfigurationError, TemplateError) as error:
        log.error("%s", error)  # noqa: TRY400 -- the sentence is enough
        return 2


async def _work(settings: Settings, waiting: Waiting, front: Front, leases: Kube) -> int:
    connection = await _connect(settings, settings.concurrency)
    try:
        operator = Operator(settings, connection, waiting, front, leases)
    except (OSError, PolicyError) as error:
        log.error("--scheduler-conf=%s: %s", settings.scheduler_conf, error)  # noqa: TRY400 -- as above
        await connection.close()
        return 2
    return await operator.serve()


async def _connect(settings: Settings, width: int) -> Kube:
    return await connect(
        settings.kubeconfig, settings.master, settings.context or None, width=width
    )
