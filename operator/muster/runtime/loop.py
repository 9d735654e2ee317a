# SPDX-License-Identifier: Apache-2.0
"""The embedded allocator at work: snapshot, cycle, promises, verdicts, bindings.

A promise is a node that a pod has been given and is not yet seen on. Its room is taken in the
columns from the moment of the decision; the pod's appearance, or a withdrawal, settles it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import aiohttp

from muster.api import names, quantity
from muster.api.model import Job, Json, PodView, Verdict
from muster.controller import policies
from muster.runtime import gangs
from muster.runtime.cache import PODS, Cache
from muster.runtime.gangs import GangRules
from muster.runtime.gate import Urgency
from muster.runtime.kube import STRATEGIC_PATCH, ApiError, FencedError, Kube
from muster.runtime.metrics import Metrics
from muster.runtime.shapes import PodShape
from muster.runtime.snapshot import GangInput
from muster.scheduler import cycle
from muster.scheduler.model import Decision
from muster.scheduler.model import Verdict as Ruling
from muster.scheduler.policy import Policy

log = logging.getLogger(__name__)

SHORTEST_PAUSE = 0.01
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 30.0
BUSY_SHARE = 1.0
"""A cycle that took t seconds is followed by a pause of as long, at most a schedule period."""
PENDING_AFTER = 0.5
"""Seconds a gang waits before its pods are created unbound, so that a gang that starts at the
next change is never created twice over."""
SCHEDULER = "embedded"


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How the allocator runs; seconds."""

    rules: GangRules
    schedule_period: float = 1.0
    pending_pods_budget: int = 500
    member_hold: float = 120.0


@dataclass(slots=True)
class _State:
    """What is remembered of one job between cycles."""

    namespace: str
    promised: dict[str, str] = field(default_factory=dict)
    """Pod name -> node."""
    previous: dict[str, str] = field(default_factory=dict)
    """Pod name -> the node that its last pod had."""
    unbound: frozenset[str] = frozenset()
    """Names of pods that may be created without a node."""
    verdict: Verdict | None = None
    binding: set[str] = field(default_factory=set)
    broken_since: float | None = None
    shapes: tuple[int, dict[str, PodShape]] = (-1, {})
    token: tuple[object, ...] = ()
    input: GangInput | None = None


class Loop:
    """Runs scheduling cycles when something changed. All methods belong to the event loop."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        policy: Callable[[], Policy],
        settings: Callable[[], LoopSettings],
        metrics: Metrics,
        touched: Callable[[str], None],
    ) -> None:
        self._kube, self._cache, self._policy = kube, cache, policy
        self._settings, self._metrics, self._touched = settings, metrics, touched
        cache.arrived = self.arrived
        self._changed = asyncio.Event()
        self._states: dict[str, _State] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.cycles = 0

    def stir(self) -> None:
        """Ask for a cycle; many changes make one."""
        self._changed.set()

    def placements(self, job: Job) -> Mapping[str, str]:
        """Return pod name -> node ("" = unbound) for the pods that may be created now."""
        state = self._states.get(job.uid)
        if state is None:
            return {}
        return {**dict.fromkeys(state.unbound, ""), **state.promised}

    def verdict(self, job: Job) -> Verdict | None:
        """Return the latest word on the gang."""
        state = self._states.get(job.uid)
        return state.verdict if state is not None else None

    async def run(self) -> None:
        """Run cycles for ever. Raises nothing: a cycle that fails is told and tried again."""
        pause = FIRST_BACKOFF
        while True:
            await self._changed.wait()
            self._changed.clear()
            started = time.monotonic()
            try:
                await self._cycle()
            except Exception:
                log.exception("a scheduling cycle failed, again in %.1f s", pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_BACKOFF)
                self.stir()
                continue
            pause = FIRST_BACKOFF
            took = time.monotonic() - started
            period = self._settings().schedule_period
            await asyncio.sleep(min(max(SHORTEST_PAUSE, took * BUSY_SHARE), period))

    async def _cycle(self) -> None:
        now, settings = time.time(), self._settings()
        jobs = {job.key: job for job in self._candidates(now)}
        inputs = [g for job in jobs.values() if (g := self._input(job, settings, now))]
        self._forget({job.uid for job in jobs.values()})
        started = time.monotonic()
        snapshot = self._cache.columns.snapshot(inputs, list(self._cache.queues.values()), now)
        taken = time.monotonic()
        decisions = await asyncio.to_thread(cycle.schedule, snapshot, self._policy())
        self.cycles += 1
        self._metrics.snapshot.observe(taken - started)
        self._metrics.cycle.observe(time.monotonic() - taken)
        for decision in decisions:
            job = self._cache.job(decision.gang)
            # The job may have changed while the cycle was under way: its next cycle will see.
            if job is not None and job is jobs[decision.gang]:
                self._accept(job, decision, now)
        self._budget([d for d in decisions if not d.placements], jobs, settings, now)
        self._metrics.holds.set(sum(g.admitted and _missing(g) > 0 for g in inputs))

    def _candidates(self, now: float) -> Iterator[Job]:
        for job in self._cache.jobs():
            if job.deleting or job.problems or job.status.finished or job.run_policy.suspend:
                continue
            if policies.is_ours(job) and self._cache.refusal(job, now) is None:
                yield job

    # One job's gang.

    def _input(self, job: Job, settings: LoopSettings, now: float) -> GangInput | None:
        pods = self._cache.own_pods(job.uid)
        state = self._states.get(job.uid)
        if state is None:
            nodes = {name: pod.node for name, pod in pods.items() if pod.node}
            state = self._states[job.uid] = _State(job.namespace, previous=nodes)
        self._settle(job, state, pods)
        hold = None if state.broken_since is None else state.broken_since + settings.member_hold
        held = hold is not None and now < hold
        revision = self._cache.revision(job.uid)
        token = (job, revision, len(state.promised), hold, held, settings.rules)
        if (
            len(token) == len(state.token)
            and all(a is b or a == b for a, b in zip(token[1:], state.token[1:], strict=True))
            and state.token[0] is job
        ):
            return state.input
        state.token = token
        state.input = self._gang(job, state, pods, settings, hold)
        self._watch_hold(state, now, settings)
        return state.input

    def _gang(
        self,
        job: Job,
        state: _State,
        pods: Mapping[str, PodView],
        settings: LoopSettings,
        hold: float | None,
    ) -> GangInput | None:
        if state.shapes[0] != job.generation:
            state.shapes = (job.generation, gangs.shapes_of(job))
        gang = gangs.gang(
            job, pods, state.promised, state.previous, settings.rules, state.shapes[1], hold
        )
        if gang is None:
            state.unbound = frozenset(gangs.names_of(job, job.replicas))
            self._tell(job, state, _foreign(job))
            return None
        # Pods that another scheduler places, or that wait at a gate, need no promise.
        free = [r for r in job.replicas if gangs.gated(r) or not gangs.ours(r, settings.rules)]
        if free:
            state.unbound |= frozenset(gangs.names_of(job, free))
            self._touched(job.key)
        return gang

    def arrived(self, pod: PodView) -> None:
        """Take note of a pod on its node: a promise is kept, or nobody promised anything."""
        state = self._states.get(pod.owner_uid)
        if state is None or pod.terminal or pod.deleting:
            return
        state.promised.pop(pod.name, None)
        state.previous[pod.name] = pod.node

    def _settle(self, job: Job, state: _State, pods: Mapping[str, PodView]) -> None:
        """Bind pods that came without the node they were promised."""
        for name, node in state.promised.items():
            pod = pods.get(name)
            if pod is not None and not (pod.node or pod.deleting or pod.terminal or pod.gated):
                self._bind(job, pod, node)

    def _watch_hold(self, state: _State, now: float, settings: LoopSettings) -> None:
        gang = state.input
        if gang is None or not gang.admitted or _missing(gang) <= 0:
            state.broken_since = None
        elif state.broken_since is None:
            state.broken_since = now
            asyncio.get_running_loop().call_later(settings.member_hold + 0.05, self.stir)

    def _forget(self, living: set[str]) -> None:
        for uid in [uid for uid in self._states if uid not in living]:
            state = self._states.pop(uid)
            for name in state.promised:
                self._cache.columns.forget(state.namespace, name)
            if state.promised:
                self.stir()

    # What was decided.

    def _accept(self, job: Job, decision: Decision, now: float) -> None:
        state = self._states[job.uid]
        pods = self._cache.own_pods(job.uid)
        shapes = {r.role: state.shapes[1][r.type] for r in job.replicas}
        for placement in decision.placements:
            name = names.child(job.name, placement.role, placement.index)
            state.promised[name] = placement.node
            shape = shapes[placement.role]
            self._cache.columns.assume(job.namespace, name, placement.node, shape)
            pod = pods.get(name)
            if pod is not None and not pod.node and not pod.deleting and not pod.terminal:
                self._bind(job, pod, placement.node)
        if decision.placements:
            if state.verdict is None or state.verdict.state == "Waiting":
                self._metrics.gang_wait.observe(max(0.0, now - job.created))
            self._touched(job.key)
        self._tell(job, state, _verdict(job, decision.verdict))

    def _tell(self, job: Job, state: _State, verdict: Verdict) -> None:
        before = state.verdict
        if before is None and job.status.gang is not None:
            before = job.status.gang
        same = before is not None and before.reason == verdict.reason and before.since
        verdict = replace(verdict, since=before.since if same and before else time.time())
        if verdict == state.verdict:
            return
        state.verdict = verdict
        self._touched(job.key)

    def _budget(
        self,
        waiting: Sequence[Decision],
        jobs: Mapping[str, Job],
        settings: LoopSettings,
        now: float,
    ) -> None:
        """Let the gangs at the head of the queue show their pods, within the budget."""
        left = settings.pending_pods_budget
        ordered = sorted(waiting, key=lambda d: d.verdict.position or len(waiting) + 1)
        for decision in ordered:
            job = jobs[decision.gang]
            state = self._states[job.uid]
            since = state.verdict.since if state.verdict and state.verdict.since else now
            if now - since < PENDING_AFTER:
                loop = asyncio.get_running_loop()
                loop.call_later(PENDING_AFTER + 0.01 - (now - since), self.stir)
                continue
            mine = [r for r in job.replicas if gangs.ours(r, settings.rules)]
            wanted = gangs.names_of(job, mine)
            if len(wanted) > left and left < settings.pending_pods_budget:
                break
            granted = frozenset(wanted[:left])
            left -= len(granted)
            if not granted <= state.unbound:
                state.unbound |= granted
                self._touched(job.key)
            self._mark_unschedulable(job, decision.verdict)

    # Writes of the allocator's own.

    def _bind(self, job: Job, pod: PodView, node: str) -> None:
        state = self._states[job.uid]
        if pod.uid not in state.binding:
            state.binding.add(pod.uid)
            self._spawn(self._bind_one(job.uid, pod, node))

    async def _bind_one(self, uid: str, pod: PodView, node: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(pod.namespace, pod.name, "binding")
        try:
            await self._kube.create(path, body, Urgency.PLACEMENT)
            self._metrics.binds.labels("bound").inc()
        except (ApiError, FencedError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("pod %s/%s was not bound to %s: %s", pod.namespace, pod.name, node, error)
            self._metrics.binds.labels("error").inc()
            self._unbind(uid, pod, node)

    def _unbind(self, uid: str, pod: PodView, node: str) -> None:
        """Take back what a binding that failed had promised; a pod is bound once at the most."""
        state = self._states.get(uid)
        if state is not None:
            state.binding.discard(pod.uid)
            if state.promised.get(pod.name) == node:
                del state.promised[pod.name]
                self._cache.columns.forget(pod.namespace, pod.name)
        self.stir()

    def _mark_unschedulable(self, job: Job, ruling: Ruling) -> None:
        """Tell autoscalers and people on each unbound pod why it waits, once per reason."""
        for pod in self._cache.own_pods(job.uid).values():
            fresh = not pod.node and not pod.deleting and pod.phase == "Pending" and not pod.gated
            if fresh and pod.message != ruling.message and ruling.message:
                self._spawn(self._mark_one(pod, ruling.message))

    async def _mark_one(self, pod: PodView, message: str) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        body: Json = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        path = PODS.path(pod.namespace, pod.name, "status")
        try:
            self._cache.put(await self._kube.patch(path, body, Urgency.STATUS, STRATEGIC_PATCH))
        except (ApiError, FencedError, aiohttp.ClientError, TimeoutError) as error:
            log.info("pod %s/%s was not marked: %s", pod.namespace, pod.name, error)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _missing(gang: GangInput) -> int:
    there = sum(len(role.held) + role.succeeded for role in gang.roles)
    return gang.min_member - there


def _foreign(job: Job) -> Verdict:
    named = {(r.template.get("spec") or {}).get("schedulerName") for r in job.replicas}
    others = ", ".join(sorted(name for name in named if name))
    return Verdict(
        scheduler=SCHEDULER,
        state="Waiting",
        pod_group=names.flat(job.name),
        min_member=gangs.minimum(job),
        reason="ForeignScheduler",
        message=f"the pods name another scheduler ({others}), which places them one by one",
        summary=f"placed by {others}",
    )


def _verdict(job: Job, ruling: Ruling) -> Verdict:
    return Verdict(
        scheduler=SCHEDULER,
        state=str(ruling.state),
        pod_group=names.flat(job.name),
        min_member=ruling.min_member,
        placed=ruling.placed,
        ready=ruling.ready,
        reason=str(ruling.reason),
        message=ruling.message,
        summary=ruling.summary,
        position=ruling.position or None,
        shortage={r: quantity.format(r, amount) for r, amount in ruling.shortage.items()},
        ever_possible=ruling.ever_possible,
    )
