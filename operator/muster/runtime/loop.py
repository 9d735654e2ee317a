# SPDX-License-Identifier: Apache-2.0
"""The embedded allocator at work: one cycle at a time, in a thread, when something changed."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from muster.api import names
from muster.api.model import Job, PodView, Verdict
from muster.runtime import arrivals, gangs, recording, rulings, tasks
from muster.runtime.assemble import assemble
from muster.runtime.binder import Binder
from muster.runtime.chronicle import Chronicle
from muster.runtime.cyclemetrics import Stopwatch
from muster.runtime.evictions import Evictions
from muster.runtime.foreign import Foreign
from muster.runtime.gangs import GangInput, GangRules
from muster.runtime.gangstate import NOT_NOW, GangState, patience
from muster.runtime.kube import Kube
from muster.runtime.metrics import Metrics
from muster.runtime.moves import Moves
from muster.runtime.queuestatus import QueueStatus
from muster.runtime.recorder import Recorder
from muster.runtime.showing import Showing
from muster.runtime.store import Store
from muster.scheduler import cycle
from muster.scheduler.decision import Decision, State
from muster.scheduler.policy import Policy

log = logging.getLogger(__name__)

SHORTEST_PAUSE = 0.05
"""Seconds between two cycles at the least: of a hundred jobs that come in each asks for one."""
FIRST_BACKOFF, LAST_BACKOFF = 0.1, 30.0
BUSY_SHARE = 1.0
"""A cycle that took t seconds is followed by a pause of as long, at most a schedule period."""
FRESH_FOR = 1.0
NEWS_PER_SECOND = 50
"""Other numbers for the same reason are told after a second, or so late that all gangs together
make so many writes."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How the allocator runs; seconds."""

    rules: GangRules
    schedule_period: float = 1.0
    pending_pods_budget: int = 500
    member_hold: float = 120.0
    on_hold_expired: str = ""
    """`keep`, `restart` or `release`; empty: restart if the job allows it, else keep."""


class Loop:
    """Runs scheduling cycles when something changed. All methods belong to the event loop."""

    def __init__(
        self,
        kube: Kube,
        cache: Store,
        policy: Callable[[], Policy],
        settings: Callable[[], LoopSettings],
        metrics: Metrics,
        touched: Callable[[str], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._cache, self._policy = cache, policy
        self._settings, self._metrics, self._touched = settings, metrics.cycles, touched
        self._recorder = recorder = recorder or Recorder(kube)
        self._binder = Binder(kube, cache, self._metrics, recorder, self._not_bound)
        self.foreign = Foreign(kube, cache, self._binder, recorder, self._metrics, self._wake)
        cache.arrived = self.arrived
        self.queue_status = QueueStatus(kube, cache)
        self._metrics.shares = lambda: self.queue_status.shares
        self.chronicle = Chronicle(self.stir, self._pod_name)
        self._changed = asyncio.Event()
        self._states: dict[str, GangState] = {}
        self._evictions = Evictions(
            cache, self._binder, self.foreign, self._states, self._metrics, self._wake
        )
        self._moves = Moves()
        self._showing = Showing(cache, self._binder, self._states, touched, self._wake)
        self._alarm: asyncio.TimerHandle | None = None
        self._next = math.inf
        self._waiting = 0
        self.cycles = 0

    def stir(self) -> None:
        """Ask for a cycle; many changes make one."""
        self._changed.set()

    def placements(self, job: Job) -> Mapping[str, str]:
        """Return pod name -> node ("" = unbound) for the pods that may be created now."""
        state = self._states.get(job.uid)
        if state is None:
            return {}
        return {**dict.fromkeys(state.unbound, ""), **state.promises.nodes}

    def verdict(self, job: Job) -> Verdict | None:
        """Return the latest word on the gang."""
        state = self._states.get(job.uid)
        return state.verdict if state is not None else None

    async def run(self) -> None:
        """Run cycles for ever, and tell of them on groups and queues."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.foreign.run())
            group.create_task(self.queue_status.run())
            group.create_task(self._run())

    async def _run(self) -> None:
        """Run cycles. Raises nothing: a cycle that fails is told and tried again."""
        pause = FIRST_BACKOFF
        while True:
            await self._changed.wait()
            self._changed.clear()
            started = time.monotonic()
            try:
                await self._cycle()
            except Exception:
                log.exception("a scheduling cycle failed, again in %.1f s", pause)
                self._metrics.failed()
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_BACKOFF)
                self.stir()
                continue
            pause = FIRST_BACKOFF
            took = time.monotonic() - started
            self._metrics.carried_out(took)
            period = self._settings().schedule_period
            await asyncio.sleep(min(max(SHORTEST_PAUSE, took * BUSY_SHARE), period))

    async def _cycle(self) -> None:
        now, settings = time.time(), self._settings()
        self._next = math.inf
        jobs = {job.key: job for job in self._cache.jobs if gangs.wants_pods(job)}
        self._forget({job.uid for job in jobs.values()})
        inputs = [g for job in jobs.values() if (g := self._input(job, settings, now))]
        inputs += self.foreign.inputs(
            settings.rules, settings.member_hold, settings.on_hold_expired, now
        )
        started = time.monotonic()
        columns = self._cache.columns
        queues = list(self._cache.queues.values())
        policy = self._policy()
        snapshot = assemble(columns, inputs, queues, now, self._moves.asked(policy, now))
        seen, taken = columns.changes, time.monotonic()
        self.chronicle.begin(
            lambda: recording.take(columns, inputs, queues, settings.rules, snapshot, policy)
        )
        watch = Stopwatch()
        decisions = await asyncio.to_thread(cycle.schedule, snapshot, policy, watch.around)
        self.cycles += 1
        self.chronicle.decided(now, decisions)
        self._metrics.snapshot.observe(taken - started)
        self._metrics.cycle.observe(time.monotonic() - taken)
        self._metrics.measured(watch)
        self._metrics.decided(decisions, snapshot)
        held_back = {gang.key for gang in inputs if gang.refusal is NOT_NOW}
        # A job that changed while the cycle was under way is looked at by the next one.
        decisions = tuple(
            d
            for d in decisions
            if d.gang not in held_back
            and (self._cache.jobs.get(d.gang) is jobs.get(d.gang) or self.foreign.knows(d.gang))
        )
        self._waiting = len(decisions)
        self.queue_status.cycle(snapshot, decisions)
        self._carry_out(decisions, jobs, now, seen)
        for consumer in columns.consumers():
            self._binder.serve(consumer)
        waiting = [d for d in decisions if d.gang in jobs and not d.placements]
        self._showing.show(waiting, jobs, settings.rules, settings.pending_pods_budget, now)
        self._look_ahead(decisions, inputs, now)
        looked = snapshot.moves is not None
        self._wake(self._moves.next(decisions, policy, now, looked=looked))
        self._metrics.holds.set(sum(g.admitted and gangs.missing(g) > 0 for g in inputs))
        self._set_alarm()

    def _carry_out(
        self, decisions: Sequence[Decision], jobs: Mapping[str, Job], now: float, seen: int
    ) -> None:
        moved = set[str]()
        for decision in decisions:
            if decision.evictions:
                if not self._make_room(jobs, decision, now):
                    continue
                self._moves.made(decision, now)
                moved.update(move.gang for move in decision.moves)
            if decision.gang in moved:
                continue  # what else it wants is looked at from where it will be
            if decision.gang in jobs:
                self._accept(jobs[decision.gang], decision, now, seen)
            elif not self.foreign.accept(decision, now, seen):
                self.stir()

    def _look_ahead(
        self, decisions: Sequence[Decision], inputs: Sequence[GangInput], now: float
    ) -> None:
        """Run a cycle when a reservation begins, or when time alone makes one possible."""
        reserved = [d for d in decisions if d.verdict.state is State.RESERVED]
        for decision in reserved:
            if decision.verdict.eta is not None:
                self._wake(max(decision.verdict.eta, now + FRESH_FOR))
        if not reserved:
            waiting = {d.gang for d in decisions if d.verdict.state is State.WAITING}
            ahead = (g.drains_from for g in inputs if g.key in waiting and g.drains_from > now)
            self._wake(min(ahead, default=math.inf))
        self._metrics.reservations.set(len(reserved))

    def _wake(self, at: float) -> None:
        """Ask for a cycle at that time at the latest."""
        self._next = min(self._next, at)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None
        if self._next < math.inf:
            pause = max(SHORTEST_PAUSE, self._next - time.time())
            self._alarm = asyncio.get_running_loop().call_later(pause, self.stir)

    def _forget(self, living: set[str]) -> None:
        for uid in self._states.keys() - living:
            promises = self._states.pop(uid).promises
            promises.withdraw_all()

    # One job's gang.

    def _input(self, job: Job, settings: LoopSettings, now: float) -> GangInput | None:
        state = self._states.get(job.uid)
        if state is None:
            state = self._states[job.uid] = GangState(job, self._cache, self._wake)
        hold = settings.member_hold
        gang = state.input(job, settings.rules, hold, now)
        if state.overdue(now, hold) and _gives_up(job, settings):
            log.warning("%s: members have been missing for %.0f s, it begins anew", job.key, hold)
            state.release()
            gang = state.input(job, settings.rules, hold, now)
        self._free(job, state, settings.rules)
        if gang is None:
            self._tell(job, state, rulings.foreign(job, self._scheduler), now)
        elif state.released or (state.cause is not None and now < state.rests_until):
            verdict = rulings.released(job, self._scheduler, state.cause)
            self._tell(job, state, verdict, now)
        elif now < state.rests_until:
            text = f"its pods were not created within {patience(job):.0f} s"
            self._tell(job, state, self._lacking(job, text), now)
        self._evictions.repeat(job, state, now)
        pods = self._cache.own_pods(job.uid)
        for name, node in state.promises.nodes.items():
            if name in pods:
                self._bind(state, pods[name], node)
        return gang

    def _lacking(self, job: Job, text: str) -> Verdict:
        return rulings.waits(job, self._scheduler, names.Verdict.NOT_ENOUGH_TASKS, text, text)

    def _free(self, job: Job, state: GangState, rules: GangRules) -> None:
        """Let pods be created that another scheduler places, or that wait at a gate."""
        free = [r for r in job.replicas if tasks.gated(r) or not gangs.ours(r, rules)]
        pods = frozenset(gangs.names_of(job, free))
        if not pods <= state.unbound:
            state.unbound |= pods
            self._touched(job.key)

    @property
    def _scheduler(self) -> str:
        return self._cache.backend.scheduler_name

    def arrived(self, pod: PodView) -> None:
        """Take note of a pod that has a node."""
        state = self._states.get(pod.owner_uid)
        if state is None:
            self.foreign.arrived(pod)
        else:
            state.arrived(pod, time.time())
            if not state.promises.nodes:
                self._settled(state, pod.owner_uid)

    def _settled(self, state: GangState, uid: str) -> None:
        """Take note of a gang of which every pod that was given a node is there."""
        # The hold ends with it; that, too, is found by a cycle.
        if state.broken_since is not None:
            self.stir()
        if (job := self._cache.jobs.get(self._cache.jobs.key_of(uid) or "")) is not None:
            arrivals.tell(self._recorder, job, state.take_arrivals())
            self._metrics.started(state.waited(job, time.time()))

    # What was decided.

    def _make_room(self, jobs: Mapping[str, Job], decision: Decision, now: float) -> bool:
        """Evict for a gang as decided, once that is told; say whether it is done."""
        job, period = jobs.get(decision.gang), self._settings().schedule_period
        if job is None:
            announced = self.foreign.announce(decision, now)
        else:
            announced = self._evictions.is_announced(job, decision, now)
            if not announced:
                verdict = _verdict(job, self._scheduler, decision)
                self._tell(job, self._states[job.uid], verdict, now)
        if announced and self._evictions.carry_out(decision, now, period):
            return True
        self._wake(now + period)
        return False

    def _accept(self, job: Job, decision: Decision, now: float, seen: int) -> None:
        state = self._states[job.uid]
        if decision.placements:
            if not self._promise(job, state, decision, now, seen):
                self.stir()
                return
            self._touched(job.key)
        state.owed = False
        state.nominated = {
            job.place(kept.role, kept.index): kept.node for kept in decision.nominations
        }
        self._tell(job, state, _verdict(job, self._scheduler, decision), now)

    def _promise(
        self, job: Job, state: GangState, decision: Decision, now: float, seen: int
    ) -> bool:
        """Give the pods their nodes; none if others have taken room since it was `seen`."""
        pods, columns = self._cache.own_pods(job.uid), self._cache.columns
        shapes = {r.role: state.shapes[r.type] for r in job.replicas}
        made: list[str] = []
        for placement in decision.placements:
            name = job.place(placement.role, placement.index)
            pod, shape = pods.get(name), shapes[placement.role]
            if pod is not None and pod.node and not pod.terminal:
                continue
            if columns.changes != seen and not columns.fits(placement.node, shape):
                state.promises.withdraw(made)
                return False
            state.promises.make(name, placement.node, shape, now)
            made.append(name)
        wanted = now if state.begun else job.created
        for name in made:
            pod = pods.get(name)
            if pod is not None:
                self._bind(state, pod, state.promises.nodes[name])
            self._metrics.placed(now - (wanted if pod is None else pod.created))
        state.unbound -= frozenset(made)
        state.placed_at, state.cause = now, None
        return True

    def _tell(self, job: Job, state: GangState, verdict: Verdict, now: float) -> None:
        before = state.verdict or job.status.gang
        verdict = rulings.dated(verdict, before, now)
        if verdict == state.verdict:
            return
        due = state.told + max(FRESH_FOR, self._waiting / NEWS_PER_SECOND)
        if now < due and not rulings.is_news(verdict, state.verdict):
            self._wake(due)
            return
        state.verdict, state.told = verdict, now
        self._touched(job.key)

    # Bindings.

    def _bind(self, state: GangState, pod: PodView, node: str) -> None:
        """Bind a pod, once: the answer may come before the watch shows its node."""
        there = pod.node or pod.deleting or pod.terminal or pod.gated
        if not there and pod.uid not in state.binding:
            state.binding.add(pod.uid)
            self._binder.bind(pod, node)

    def _pod_name(self, gang: str, role: str, index: int) -> str:
        job = self._cache.jobs.get(gang)
        if job is not None:
            return job.place(role, index)
        pod = self.foreign.pod(gang, index)
        return "" if pod is None else pod.name

    def _not_bound(self, pod: PodView) -> None:
        state = self._states.get(pod.owner_uid)
        if state is None:
            self.foreign.not_bound(pod)
        else:
            state.not_bound(pod, time.time())
        self.stir()


def _verdict(job: Job, scheduler: str, decision: Decision) -> Verdict:
    return rulings.of_gang(names.flat(job.name), scheduler, decision.verdict)


def _gives_up(job: Job, settings: LoopSettings) -> bool:
    """Say whether a gang that cannot be made whole is to start anew."""
    wanted = settings.on_hold_expired
    return wanted != "keep" if wanted else gangs.restarts(job)
