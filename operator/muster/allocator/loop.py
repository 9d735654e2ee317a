# SPDX-License-Identifier: Apache-2.0
"""The embedded allocator's loop: one cycle at a time, in a thread, after changes.

Decisions are void for gangs or resources changed since. Triggers during a cycle cause another.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

from muster.allocator import cells, devices, tracker
from muster.allocator.binder import Binder
from muster.allocator.cells import Deferrals
from muster.allocator.decisionlog import DecisionLog
from muster.allocator.dryrun import PodTrials
from muster.allocator.eviction import Evictions, Moves
from muster.allocator.gangs import Effects, GangTracker
from muster.allocator.members import GangSettings, JobMembers, PodGroupMembers
from muster.allocator.metrics import CycleMetrics
from muster.allocator.pending import PendingPods
from muster.allocator.shares import Reservations
from muster.allocator.status import GroupStatus, QueueStatus
from muster.allocator.tracker import FRESH_FOR, NOT_NOW, UNTRIED, GangMemory
from muster.allocator.usage import Usage
from muster.allocator.view import Seen
from muster.api.backoff import Backoff
from muster.api.model import Job, PodView
from muster.api.reasons import GangPhase
from muster.api.status import Verdict
from muster.cluster import gangs, recording
from muster.cluster.gangs import GangInput
from muster.cluster.state import Flight
from muster.controller.model import Context
from muster.kube import clock
from muster.kube.client import Kube, is_unsure
from muster.kube.events import EventRecorder
from muster.scheduler import cycle
from muster.scheduler.decision import Decision
from muster.scheduler.model import Refusal, Snapshot, namespace_of
from muster.scheduler.policy import Policy
from muster.store.store import Store

log = logging.getLogger(__name__)
SHORTEST_PAUSE = 0.05
"""Seconds between two cycles at the least: of a hundred jobs that come in each asks for one."""
BACKOFF = Backoff(0.1, 30.0)
DOUBT = 5.0
"""Seconds until an unanswered creation is observed; servers cancel those of lost clients."""
BUSY_SHARE, IDLE_SHARE = 1.0, 3.0
"""Pauses as multiples of a cycle's duration, the second after an idle one; at most a period."""
SILENT = 2.0
"""Seconds after which an unanswered dry run is published as the reason why a gang waits."""
SLICE = 0.01
"""Seconds for which others wait while very many gangs are evaluated."""
NEWS_PER_SECOND = 25
"""Writes per second of all gangs for numbers alone; these wait a second or longer."""


class Loop:
    """Runs scheduling cycles when something changed. All methods belong to the event loop."""

    def __init__(
        self,
        kube: Kube,
        store: Store,
        policy: Callable[[], Policy],
        settings: Callable[[], GangSettings],
        metrics: CycleMetrics,
        enqueue: Callable[[str], None],
        recorder: EventRecorder | None = None,
        context: Callable[[str], Context] | None = None,
    ) -> None:
        """Make the loop. `context`: of a namespace, where the pods of jobs are to be tried."""
        self._kube, self._store, self._policy = kube, store, policy
        self._settings, self._metrics = settings, metrics
        recorder = recorder or EventRecorder(kube)
        binder = self._binder = Binder(
            kube, store, metrics, recorder,
            self._not_bound, self._binding, self._refused, self._leaves,
        )  # fmt: skip
        self._reservations = Reservations()
        self.queue_status = QueueStatus(kube, store, self._reservations.written)
        self._group_status = GroupStatus(kube, store, recorder)
        self._jobs = JobMembers(store, enqueue)
        self._trials = None if context is None else PodTrials(kube, store, context, self.trigger)
        kinds = self._jobs, PodGroupMembers(store, self._group_status.enqueue)
        effects = Effects(binder, self._metrics, self._wake)
        self.gangs = GangTracker(
            store.columns, kinds, effects, lambda name: metrics.unreadable.labels(name).inc()
        )
        self._deferrals = Deferrals()
        self._once: frozenset[str] = frozenset()
        """Gangs that were decided in vain in the last cycle."""
        self._vain: frozenset[str] = frozenset()
        """Those of them twice in a row, held back: constant edits must not starve other gangs."""
        self._untried: dict[str, float] = {}
        """Gang whose dry run is not answered -> since when."""
        self._left_out: dict[str, float] = {}
        """Gang over which a cycle failed -> until when it is left out."""
        self._evictions = Evictions(
            self.gangs, store.budgets, self._metrics, self._wake, binder.passes
        )
        self._pending = PendingPods(self.gangs, self._wake)
        self._moves = Moves()
        self._usage = Usage()
        store.arrived = self.arrived
        store.foreign.enqueue = self._group_status.enqueue
        self._inputs: Sequence[GangInput] = ()
        """The gangs of the last cycle."""
        self._metrics.shares = lambda: self.queue_status.shares
        # Counted for who asks: a cycle is not to go through all gangs for it.
        self._metrics.holds.set_function(
            lambda: sum(g.admitted and gangs.missing(g) > 0 for g in self._inputs)
        )
        self._metrics.misled.set_function(lambda: sum(g.misled for g in self._inputs))
        self.decision_log = DecisionLog(self.trigger)
        self._changed, self._news = asyncio.Event(), True
        self._alarm: asyncio.TimerHandle | None = None
        self._next = math.inf
        self.seen: Seen | None = None
        """By the last cycle, for who looks on."""
        self.onlooker: Callable[[Snapshot], None] = lambda _snapshot: None
        """Called with what each cycle saw."""
        self.cycles = 0
        self.failures, self.failing_since = 0, 0.0
        """Cycles that have failed in a row, and since when (`time.monotonic()`)."""
        self.problem = ""
        """Why the last one failed."""
        self.busy_since = 0.0
        """When the cycle that is under way began (`time.monotonic()`); 0: none is."""

    def trigger(self) -> None:
        """Ask for a cycle; many changes make one."""
        self._news = True
        self._changed.set()

    def retry(self, *, granted: bool = False) -> None:
        """Place pods at once that pause: the API server accepts writes again.

        `granted`: permissions were granted, and refused writes are repeated, too.
        """
        self.gangs.retry(clock.now(), granted=granted)
        if granted:
            for key in self._group_status.keys():  # noqa: SIM118 -- no mapping
                self._group_status.enqueue(key)
        self.trigger()

    def placements(self, job: Job) -> Mapping[str, str]:
        """Return pod name -> node ("" = unbound) for the pods that may be created now."""
        memory = self._memory(job)
        return {} if memory is None else {**dict.fromkeys(memory.unbound, ""), **memory.nodes}

    def verdict(self, job: Job) -> Verdict | None:
        """Return the latest verdict on the gang."""
        memory = self._memory(job)
        return None if memory is None else memory.verdict

    def _memory(self, job: Job) -> GangMemory | None:
        memory = self.gangs.memory(job.key)
        return memory if memory is not None and memory.uid == job.uid else None

    async def run(self) -> None:
        """Run cycles for ever, and write on groups and queues where they stand."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._binder.background.run())
            group.create_task(devices.follow(self._kube, self._devices_changed))
            if self._trials is not None:
                group.create_task(self._trials.background.run())
            group.create_task(self._group_status.run(self.gangs.memory))
            group.create_task(self.queue_status.run())
            group.create_task(self._run())

    async def _run(self) -> None:
        """Run cycles. Raises nothing: a cycle that fails is logged and tried again."""
        # Here, as all queues have been read by now, also after writes of an earlier leader.
        written = self._store.queue_status.items()
        self._reservations.resume({name: said.get("reservations") for name, (_, said) in written})
        while True:
            await self._changed.wait()
            # Before the look, not after it: what changes while a cycle decides asks for the next.
            self._changed.clear()
            self.busy_since = started = time.monotonic()
            try:
                gave = await self._cycle()
            except Exception as error:  # noqa: BLE001 -- logged and repeated, whatever it is
                await asyncio.sleep(self._failed(error))
                self.trigger()
                continue
            finally:
                self.busy_since = 0.0
            self.failures, self.problem = 0, ""
            took = time.monotonic() - started
            self._metrics.whole.observe(took * 1e3)
            period = self._settings().schedule_period
            # Hundreds that wait for what is not there leave the process to others.
            share = BUSY_SHARE if gave else IDLE_SHARE
            await asyncio.sleep(min(max(SHORTEST_PAUSE, took * share), period))

    def _failed(self, error: Exception) -> float:
        """Take in that a cycle failed; return the pause after it."""
        if not self.failures:
            self.failing_since = time.monotonic()
        self.failures += 1
        pause = BACKOFF.pause(self.failures)
        cause = f"{type(error).__name__}: {error}"
        # Its traceback once: the next ones would only be the same.
        shown = None if cause == self.problem else error
        log.error("a scheduling cycle failed, again in %.1f s: %s", pause, cause, exc_info=shown)
        self.problem = cause
        self._metrics.failed()
        return pause

    async def _cycle(self) -> bool:
        """Decide and carry it out; say whether anybody gets room by it, now or soon."""
        settings = self._settings()
        # Each gang and limit reports its time in every cycle: one timer without leftovers.
        self._next = math.inf
        inputs, now = await self._evaluate(settings)
        if self._trials is not None and self._jobs.asks:
            await self._trials.look(list(self._jobs.asks.values()))
            # Anything may have changed during the await; without changes this costs little.
            inputs, now = await self._evaluate(settings)
        columns, policy = self._store.columns, self._policy()
        changed, self._news = self._news, False
        self._left_out = {key: until for key, until in self._left_out.items() if now < until}
        late = self._late(now)
        found = [
            replace(gang, refusal=late[gang.key])
            if gang.key in late and not _has_claim(gang)
            else gang
            for gang in inputs
            if gang.key not in self._left_out
        ]
        seen, snapshot, decisions = await self._decide(found, policy, now)
        self._wake(min(self._left_out.values(), default=math.inf))
        if self._deferrals.decided(decisions, changed=changed):
            self._changed.set()
        self._wake(self._usage.record(snapshot, decisions))
        held_back = {gang.key for gang in found if gang.refusal is NOT_NOW}
        held_back |= {d.gang for d in decisions if d.deferred} & self._deferrals.ended
        decisions = self._standing([d for d in decisions if d.gang not in held_back], now)
        self.seen = Seen(snapshot, decisions)
        self.onlooker(snapshot)
        queues = settings.rules.queues(self._store.queues)
        self.queue_status.cycle(snapshot, decisions, queues, self._usage.documents(now))
        self._carry_out(decisions, now, seen)
        # Behind the pods: only one that has come to its node says where its volume is to be.
        for consumer in columns.consumers():
            self._binder.serve(consumer)
        self._pending.show(decisions, settings.pending_pods_budget, now)
        self._look_ahead(decisions, inputs, now)
        self._wake(_end_of_grace(snapshot, decisions))
        looked = snapshot.moves is not None
        self._wake(self._moves.next(decisions, policy, now, looked=looked))
        self._inputs = inputs
        self._set_alarm()
        return any(d.placements or d.evictions for d in decisions)

    def _late(self, now: float) -> dict[str, Refusal]:
        """Return the gangs that may get no nodes yet, as pods wait for admission before that.

        A dry run that takes long is published: the gang would wait without a reason.
        """
        self._untried = {key: self._untried.get(key, now) for key in self._jobs.untried}
        late = dict.fromkeys(self._vain, NOT_NOW)
        for key, since in self._untried.items():
            late[key] = UNTRIED if now >= since + SILENT else NOT_NOW
            self._wake(since + SILENT if now < since + SILENT else math.inf)
        if self._vain:
            self._wake(now)
        return late

    def _devices_changed(self, names: frozenset[str]) -> None:
        self._store.columns.device_resources = names
        self.trigger()

    async def _evaluate(self, settings: GangSettings) -> tuple[Sequence[GangInput], float]:
        """Return the gangs to place, and the time after the evaluation.

        After a start all are new, perhaps with thousands of pods: the event loop runs in between.
        Decisions about gangs that change meanwhile are void.
        """
        found, started = list[GangInput](), time.monotonic()
        for gang in self.gangs.evaluate(settings, clock.now()):
            if gang is not None:
                found.append(gang)
            if time.monotonic() - started >= SLICE:
                await asyncio.sleep(0)
                started = time.monotonic()
        return found, clock.now()

    def _standing(self, decisions: Sequence[Decision], now: float) -> tuple[Decision, ...]:
        """Return those decisions that may be carried out.

        A job that changed since may want other roles or sizes, which the roles and indices of the
        decision do not match: all of the decision is void, and the change has triggered a cycle.
        """
        untried, is_as_seen = self._jobs.untried, self.gangs.is_as_seen
        vain = [
            d
            for d in decisions
            if not self.gangs.attempt(d.gang, is_as_seen, now, else_=False)
            or (d.gang in untried and (d.placements or d.evictions))
        ]
        # Other gangs did not get the nodes of these. The answer of a dry run triggers a cycle.
        once = frozenset(
            d.gang for d in vain if (d.placements or d.evictions) and d.gang not in untried
        )
        self._vain, self._once = once & self._once, once
        # Who would have made room for one of these stays where he is.
        left = {d.gang for d in vain} | {it.gang for d in vain for it in d.evictions}
        return tuple(d for d in decisions if d.gang not in left)

    async def _decide(
        self, inputs: Sequence[GangInput], policy: Policy, now: float
    ) -> tuple[int, Snapshot, tuple[Decision, ...]]:
        """Return what was decided, from what, and how often that had changed before.

        Gangs over which that fails are left out, and told so.
        """
        rules, columns = self._settings().rules, self._store.columns
        queues = self._reservations.limited(rules.queues(self._store.queues), now)
        queues = self._usage.counted(queues, now, policy.half_life)

        async def attempt(
            gangs: Sequence[GangInput],
        ) -> tuple[int, Snapshot, tuple[Decision, ...]]:
            # Watches go on while a thread decides: after changes free resources are checked.
            seen, started = columns.changes, time.monotonic()
            moves, deferred = self._moves.asked(policy, now), self._deferrals.next
            snapshot = columns.snapshot(gangs, queues, now, moves, deferred)
            self._metrics.snapshot.observe(time.monotonic() - started)
            self.decision_log.begin(
                lambda: recording.take(columns, gangs, queues, rules, snapshot, policy)
            )
            around = self._metrics.around
            decided = await asyncio.to_thread(cycle.schedule, snapshot, policy, around)
            return seen, snapshot, decided

        started = time.monotonic()
        (seen, snapshot, decisions), culprits = await cells.search(attempt, inputs)
        self.cycles += 1
        for gang, error in culprits:
            self._left_out[gang.key] = now + cells.RETRY
            self.gangs.refuse(gang.key, error, now)
        self.decision_log.decided(now, decisions)
        self._metrics.cycle.observe(time.monotonic() - started)
        self._metrics.decided(decisions, snapshot)
        return seen, snapshot, decisions

    def _carry_out(self, decisions: Sequence[Decision], now: float, seen: int) -> None:
        pace = max(FRESH_FOR, len(decisions) / NEWS_PER_SECOND)
        moved = set[str]()
        for decision in decisions:
            carry_out = partial(self._carry_out_one, decision, seen, moved, pace)
            self.gangs.attempt(decision.gang, carry_out, now, else_=None)

    def _carry_out_one(
        self,
        decision: Decision,
        seen: int,
        moved: set[str],
        pace: float,
        _key: str,
        now: float,
    ) -> None:
        if decision.evictions:
            period = self._settings().schedule_period
            starts = self._may_start(decision, now)
            if not (starts and self._evictions.make_room(decision, now, period, pace)):
                # Not to be accepted either: its nodes are nominated for as long as others are on
                # their way out, and they are not. What it waits for need not trigger a cycle.
                self._wake(now + period)
                return
            self._moves.made(decision, now)
            moved.update(move.gang for move in decision.moves)
        if decision.gang in moved:
            return  # what else it wants is looked at from where it will be
        if not self.gangs.accept(decision, now, seen, pace):
            # Its obstacle may have triggered no cycle: a pod that takes resources lets none start.
            self.trigger()

    def _may_start(self, decision: Decision, now: float) -> bool:
        """Return whether dry runs accepted what the evictions are for; start those missing."""
        moves = {move.gang for move in decision.moves}
        jobs = {decision.gang, *moves}
        tried = [self._jobs.are_tried(key, now, moves=key in moves) for key in jobs]
        then, facts = self.gangs.facts_then(decision.gang), self.gangs.facts(decision.gang, now)
        if then is None or facts is None:
            return False
        places = then.nodes(decision.nominations)
        seen = {place: pod for place in places if (pod := then.pods.get(place)) and not pod.node}
        # A pod of another controller that was deleted meanwhile may not be recreated.
        there = {pod.uid for pod in facts.pods.values() if tracker.is_to_be_placed(pod)}
        if not (facts.remade or there.issuperset(pod.uid for pod in seen.values())):
            return False
        # The dry run of one pod is enough: bindings are refused by permission or by a webhook.
        first = next((p for p, pod in seen.items() if not pod.deleting), None)
        return (first is None or self._binder.binds(seen[first], places[first])) and all(tried)

    def _look_ahead(
        self, decisions: Sequence[Decision], inputs: Sequence[GangInput], now: float
    ) -> None:
        """Run a cycle when a reservation begins, or when time alone makes one possible."""
        reserved = [
            d
            for d in decisions
            # Also of a broken gang whose hold is over: when it finds its room is known then.
            if d.verdict.state is GangPhase.RESERVED or d.verdict.eta is not None
        ]
        queue_of = {gang.key: gang.queue for gang in inputs}
        holders = ((queue_of[d.gang], namespace_of(d.gang)) for d in reserved)
        self._wake(self._reservations.kept(holders, self._store.queues))
        for decision in reserved:
            if decision.verdict.eta is not None:
                # A time that is over already would make the cycles follow each other.
                self._wake(max(decision.verdict.eta, now + FRESH_FOR))
        if not reserved:
            patience = {gang.key: gang.drains_from - gang.created for gang in inputs}
            for decision in decisions:
                # The head of the k-th queue may get a reservation after k times its patience.
                since, step = decision.head_since, patience.get(decision.gang, math.inf)
                if since is not None and 0 < step < math.inf:
                    self._wake(since + step * (max(now - since, 0.0) // step + 1))
        self._metrics.reservations.set(len(reserved))

    def _wake(self, at: float) -> None:
        if at < self._next:
            self._next = at
            # A cycle under way hears of many such times, and sets one timer for all at its end.
            if not self.busy_since:
                self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None
        if self._next < math.inf:
            pause = max(SHORTEST_PAUSE, self._next - clock.now())
            self._alarm = asyncio.get_running_loop().call_later(pause, self.trigger)

    # What happens to pods.

    def arrived(self, pod: PodView) -> None:
        """Take in that a pod has a node."""
        if self.gangs.arrived(pod, clock.now()):
            self.trigger()

    def creating(self, job: Job, name: str, node: str) -> AbstractContextManager[bool]:
        """Keep a pod's resources during the block that creates it; False: not its node any more.

        If no answer comes, they are kept as long as the pod may still be created.
        """
        flight = self.gangs.send(job.key, name, node, name) if self._memory(job) else None
        return self._sent(flight, shown=True)

    def _binding(self, pod: PodView, node: str) -> AbstractContextManager[bool]:
        """Do so for a pod that is there and is bound to its node."""
        return self._sent(self.gangs.send_pod(pod, node), shown=False)

    @contextmanager
    def _sent(self, flight: Flight | None, *, shown: bool) -> Iterator[bool]:
        """End the flight with the block; `shown`: the server's answer shows the pod."""
        if flight is None:
            yield False
            return
        # A binding's answer shows no pod: the flight keeps its resources until a watch does.
        doubt = not shown
        try:
            yield True
        except BaseException as error:
            # Also of a pass that is cancelled: what it had sent may be carried out all the same.
            doubt = is_unsure(error)
            raise
        finally:
            if doubt:
                flight.answered = True
                asyncio.get_running_loop().call_later(DOUBT, self._landed, flight)
            else:
                self._landed(flight)

    def _landed(self, flight: Flight) -> None:
        # No watch tells of a pod that was not made: whoever waits for its room would wait on.
        if self._store.columns.landed(flight):
            self.trigger()

    def _not_bound(self, pod: PodView) -> None:
        self.gangs.not_bound(pod, clock.now())
        self.trigger()

    def _leaves(self, pod: PodView) -> bool:
        return self.gangs.is_leaving(pod)

    def _refused(self, pods: Sequence[PodView]) -> None:
        for pod in pods:
            self.gangs.not_evicted(pod, clock.now())
        self.trigger()


def _has_claim(gang: GangInput) -> bool:
    """Return whether nodes are kept for members that the gang lost, or as others are evicted."""
    return gang.admitted or gang.owed or any(role.nominated for role in gang.roles)


def _end_of_grace(snapshot: Snapshot, decisions: Sequence[Decision]) -> float:
    """Return when a gang has next run for so long that it may be evicted, if any might wait."""
    waits = any(d.verdict.state is GangPhase.WAITING for d in decisions)
    ends = map(snapshot.spared_until, snapshot.gangs if waits else ())
    return min((end for end in ends if end > snapshot.now), default=math.inf)
