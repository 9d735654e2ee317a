# SPDX-License-Identifier: Apache-2.0
"""Finds out what admission makes of the pods of a template, before the first of them is placed.

One request for each template of a namespace that is not known yet. Whatever does not come of it,
or not soon, is no reason not to place: the template counts then as it is written.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from muster import frameworks
from muster.allocator.background import Background
from muster.allocator.members import Ask
from muster.api.backoff import QUOTA, after_refusal
from muster.api.model import Job
from muster.cluster import dryrun
from muster.cluster.dryrun import NO_DRY_RUN, SERVICE, Answer, Key
from muster.controller import templates
from muster.controller.model import Context, Refusal
from muster.gang import standing
from muster.kube import clock
from muster.kube.client import NOT_WRITTEN, ApiError, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import PODS, SERVICES
from muster.store.store import Store

log = logging.getLogger(__name__)
AT_ONCE: Final = 0.05
"""Seconds for which a cycle waits for answers: as long as it would pause."""
PATIENCE: Final = 30.0
"""Seconds a gang waits, the maximum of a webhook: a server slow to refuse one is slow for all."""
AGAIN: Final = 60.0
"""Seconds after which it is tried again where nothing could be found out."""
_OPEN: Final = re.compile(f"{QUOTA}|{NO_DRY_RUN}")
"""Messages of errors that a creation need not get."""
ASKED: Final = "\0"
"""Replaces the name of the pod that was tried, since other jobs share the refusal."""


def is_rejected(job: Job, error: ApiError) -> bool:
    """Return whether an error of a dry run keeps the pods of the job from being created."""
    # Without permission nothing is known about the pod; the client reports that.
    if error.unpermitted or not dryrun.is_rejected(error.code, error.message):
        return False
    # The controller creates the job's own ServiceAccount before the pods.
    made = (part.name(job) for part in frameworks.of(job).companions)
    return not any(f'"{name}" not found' in error.message for name in made)


class PodTrials:
    """Makes dry runs for jobs, and tells them what a policy refuses."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        context: Callable[[str], Context],
        trigger: Callable[[], None],
    ) -> None:
        self._kube, self._store, self._context = kube, store, context
        self._trigger = trigger
        self.background = Background()
        """Has to run: what it ends is not answered any more."""
        self._askers: dict[Key, dict[str, Ask]] = {}
        """Of the questions that are under way, by job."""
        self._refused: dict[Key, int] = {}
        """How often in a row."""
        store.dry_runs.made = True

    async def look(self, asks: Collection[Ask]) -> None:
        """Request all unknown results; return when most are in. Later ones trigger a cycle."""
        now = clock.now()
        fresh = set()
        for ask in asks:
            known = self._store.dry_runs.get(ask.key, now, since=ask.since)
            if known is not None:
                self._tell(ask, known)
                continue
            # Jobs of one template share a question; the answer is told to each of them.
            if ask.key not in self._askers:
                self._askers[ask.key] = {}
                fresh.add(self.background.spawn(self._try(ask)))
            self._askers[ask.key][ask.job.key] = ask
        if fresh:
            # Only for new requests: slow ones have delayed one cycle and trigger another.
            _, late = await asyncio.wait(fresh, timeout=AT_ONCE)
            for task in late:
                task.add_done_callback(lambda _: self._trigger())

    async def _try(self, ask: Ask) -> None:
        # Before the request: what changes while it is under way makes its answer void.
        now, under = clock.now(), self._store.dry_runs.changes(ask.job.namespace)
        try:
            answer = replace(await self._answer(ask, now), under=under)
        finally:
            askers = self._askers.pop(ask.key)
        if under != self._store.dry_runs.changes(ask.job.namespace):
            # The change may have removed the reason of a refusal.
            self._trigger()
            return
        self._store.dry_runs.put(ask.key, answer)
        for asker in askers.values():
            self._tell(asker, answer)

    async def _answer(self, ask: Ask, now: float) -> Answer:
        try:
            return await self._asked(ask, now)
        except ApiError as error:
            if is_rejected(ask.job, error):
                return self._refusal(ask, error, clock.now())
            # The name of the pod is in use, or a ServiceAccount or class that it needs is missing:
            # neither says that admission rejects the pod.
            to_come = dryrun.is_rejected(error.code, error.message) and not error.unpermitted
            if error.reason == "AlreadyExists" or to_come or _OPEN.search(error.message):
                return Answer(now + AGAIN, at=now)
            problem = ApiError(0, error.reason, error.message, None)
        # Whatever a template makes of that: without an answer each cycle would ask again.
        except Exception as error:
            if not isinstance(error, NOT_WRITTEN):
                log.exception("%s: its pods cannot be tried", ask.job.key)
            problem = ApiError(0, type(error).__name__, f"no answer: {error!r}", None)
        log.info("%s: its pods cannot be tried: %s", ask.job.key, problem.message)
        if ask.since == -math.inf:
            return Answer(now + AGAIN)
        # No running pods make room for pods that may never be created.
        return self._refusal(ask, problem, clock.now())

    async def _asked(self, ask: Ask, now: float) -> Answer:
        """Return what the API server answers. Raises ApiError, NOT_WRITTEN."""
        lacking = self._context(ask.job.namespace).lacking
        if missing := lacking.get(frameworks.of(ask.job).operator.name):
            raise ApiError(0, "Forbidden", missing, None)
        # Without a node: none is chosen yet.
        sent = self._builder(ask).pod(ask.index)
        path = PODS.path(ask.job.namespace)
        async with asyncio.timeout(PATIENCE):
            stored, refused = await asyncio.gather(
                self._kube.dry_run(path, sent, PriorityLevel.PLACEMENT),
                self._service_error(ask, now),
            )
        answer = dryrun.shown(sent, stored, now)
        if refused is not None:
            found = self._refusal(ask, refused, clock.now())
            return replace(found, stored=answer.stored, kind=SERVICE)
        self._refused.pop(ask.key, None)
        return answer

    async def _service_error(self, ask: Ask, now: float) -> ApiError | None:
        """Return why admission rejects the Service of the pod, None if it does not.

        Only of a gang without pods on nodes: later, the Service is retried beside the running
        pods. An accepted Service is the answer for all jobs of its namespace.
        """
        job, key = ask.job, (ask.job.namespace, SERVICE)
        pods = self._store.children.own_pods(job).values()
        started = standing.was_admitted(job) or any(pod.node for pod in pods)
        serves = frameworks.of(job).pods.services and not job.service
        if started or not serves or self._store.dry_runs.get(key, now):
            return None
        under = self._store.dry_runs.changes(job.namespace)
        path, sent = SERVICES.path(job.namespace), self._builder(ask).service(ask.index)
        try:
            await self._kube.dry_run(path, sent, PriorityLevel.PLACEMENT)
        except ApiError as error:
            if is_rejected(job, error):
                return error
            log.info("%s: its Services cannot be tried: %s", job.key, error.message)
            return None
        self._store.dry_runs.put(key, Answer(now + dryrun.LIFETIME, under=under))
        return None

    def _refusal(self, ask: Ask, error: ApiError, now: float) -> Answer:
        # Whoever edits his templates makes ever new keys: rather than grow, all counts begin anew.
        if len(self._refused) >= dryrun.MOST:
            self._refused.clear()
        times = self._refused[ask.key] = self._refused.get(ask.key, 0) + 1
        until = now + after_refusal("Pod", error.code, error.message).pause(times)
        message = error.message.replace(f'"{_pod_name(ask)}"', ASKED)
        return Answer(until, refused=message, reason=error.reason, at=now)

    def _tell(self, ask: Ask, answer: Answer) -> None:
        if answer.refused:
            kind, name = answer.kind, _pod_name(ask)
            message = answer.refused.replace(ASKED, f'"{name}"')
            refusal = Refusal(kind, name, answer.reason, message, answer.until)
            log.warning("%s: %s %s would be refused: %s", ask.job.key, kind, name, message)
            self._store.jobs.refuse(ask.job, refusal)

    def _builder(self, ask: Ask) -> templates.PodBuilder:
        job = ask.job
        framework, context = frameworks.of(job), self._context(job.namespace)
        return templates.pod_builder(job, framework, ask.replica, self._store.backend, context)


def _pod_name(ask: Ask) -> str:
    return ask.replica.pod_name(ask.job.name, ask.index)
