# SPDX-License-Identifier: Apache-2.0
"""One scheduling cycle, from a snapshot to decisions: one for every gang that is not whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing

from muster.api.reasons import GangPhase, Reason
from muster.scheduler import diagnosis
from muster.scheduler.actions import ACTIONS
from muster.scheduler.actions.allocate import honor
from muster.scheduler.actions.deadlock import break_deadlock
from muster.scheduler.actions.protect import keep, keep_moved, protect, resume
from muster.scheduler.actions.reserve import head_since, heads
from muster.scheduler.actions.restart import restart
from muster.scheduler.budget import DEFERRED
from muster.scheduler.decision import Decision, Verdict
from muster.scheduler.model import UNLIMITED, Refusal, Snapshot
from muster.scheduler.policy import Policy
from muster.scheduler.ranks import placements
from muster.scheduler.session import Around, Session, unwatched
from muster.scheduler.state import GangState


def schedule(
    snapshot: Snapshot, policy: Policy, around: Around = unwatched
) -> tuple[Decision, ...]:
    """Return one decision for every gang that is not whole, in the order to be carried out.

    Equal snapshots give equal decisions, whatever the order of their gangs. `around` is entered
    for the work of each action and each plugin, for somebody to measure it; it changes nothing.
    """
    if not any(gang.is_incomplete for gang in snapshot.gangs):
        return ()
    preempts = "preempt" in policy.actions
    with closing(Session(snapshot, policy.openers(around), preempts=preempts)) as session:
        # The order is that of rights: gangs that are moved, members of admitted gangs, gangs with
        # nominated nodes, victims for earlier promises, gangs that restart, then the earliest
        # estimated start time or the queue head that waited for too long. The policy's actions
        # place the others.
        keep_moved(session)
        protect(session)
        keep(session)
        resume(session, [evict for name in policy.actions if (evict := ACTIONS[name].evicts)])
        restart(session, search=True)
        honor(session)
        for action in policy.actions:
            with around("action", action):
                ACTIONS[action].run(session, policy.arguments.get(action, {}))
        restart(session, search=False)
        break_deadlock(session)
        return decisions(session)


_TERMINATING = Refusal(Reason.NOT_ENOUGH_RESOURCES, "waiting for pods that are terminating")
_REPLACED_LATER = Refusal(
    Reason.NOT_ENOUGH_RESOURCES, "waiting for pods that are terminating or in back-off"
)
_RESTARTS = Refusal(Reason.NOT_ENOUGH_RESOURCES, "all its pods restart soon, as it lost members")
_GATED = Refusal(Reason.SCHEDULING_GATED, "waiting for scheduling gates to be removed")
_UNTRIED = Refusal(Reason.UNSUPPORTED_CONSTRAINT, "no action of the policy places such tasks")
_WHOLE = Refusal(Reason.NONE, "")


def decisions(session: Session) -> tuple[Decision, ...]:
    """Return what was decided: gangs with placements first, as placed, then those that wait."""
    started = set(map(id, session.started))
    rest = sorted((j for j in session.gangs if id(j) not in started), key=session.order)
    places, positions = Counter[str](), dict[str, int]()
    for gang in (gang for gang in rest if gang.need):
        places[gang.spec.queue] += 1
        positions[gang.spec.key] = places[gang.spec.queue]
    first = heads(session, rest)
    evicted = session.evictions()
    return tuple(
        Decision(
            gang=gang.spec.key,
            verdict=_verdict(session, gang, positions),
            placements=placements(session, gang, gang.placed()) if id(gang) in started else (),
            evictions=tuple(evicted.get(gang.spec.key, ())) if gang.evicts else (),
            nominations=placements(session, gang, gang.nominations()),
            moves=gang.moves,
            room=gang.room,
            deferred=_is_deferred(session, gang),
            head_since=(head_since(session, gang) if first.get(gang.spec.queue) is gang else None),
        )
        for gang in (*session.started, *rest)
    )


def _verdict(session: Session, gang: GangState, positions: Mapping[str, int]) -> Verdict:
    """Return the verdict. `positions`: key -> place in its queue, from 1."""
    spec, state = gang.spec, _state(session, gang)
    total = spec.ready + spec.missing
    placed = spec.ready if state in (GangPhase.WAITING, GangPhase.RESERVED) else gang.ready
    refusal = _refusal(session, gang)
    message, summary, runs = "", "", state is GangPhase.RUNNING
    if refusal.reason:
        lacking = min(gang.need or gang.left + gang.shut, total)
        message = f"{lacking}/{total} tasks in gang unschedulable: {refusal.sentence}"
        if runs and not spec.missing:
            message = refusal.sentence  # its minimum is larger than the gang
        summary = f": {gang.summary or refusal.sentence}"
    goal = total if state in (GangPhase.RUNNING, GangPhase.PLACED) else spec.min_member
    return Verdict(
        state=state,
        reason=refusal.reason,
        message=message,
        summary=f"{placed}/{goal} placed{summary}",
        min_member=spec.min_member,
        placed=placed,
        ready=spec.ready,
        total=total,
        shortage=gang.shortage,
        position=0 if runs else positions.get(spec.key, 0),
        eta=gang.eta,
        blocked_by=gang.blocked_by,
        ever_possible=refusal.reason.ever_possible,
        ruled_out=refusal.nodes,
    )


def _is_deferred(session: Session, gang: GangState) -> bool:
    """Return whether the search for the gang was cut off before it found anything."""
    cut = gang.spec.key in session.budget.cut
    return cut and (gang.need > gang.promised or gang.spec.refusal is DEFERRED)


def _refusal(session: Session, gang: GangState) -> Refusal:
    if gang.shut and not gang.left and gang.queue and gang.queue.shut_by:
        return diagnosis.closed(gang.queue.shut_by)
    if not gang.need and not gang.left:
        return _GATED if _is_gated(gang) else _WHOLE
    # What a first search found before it was cut off is true, and mostly all there is to find.
    again = gang.spec.key in session.snapshot.deferred.counts
    if _is_deferred(session, gang) and (again or gang.refusal is None):
        return DEFERRED
    return gang.refusal or _awaited(gang, session.snapshot.now)


def _awaited(gang: GangState, now: float) -> Refusal:
    """Return what a gang waits for that no action refused."""
    if any(pod_set.returning for pod_set in gang.spec.pod_sets):
        return _REPLACED_LATER
    if now < gang.spec.restarts_from < UNLIMITED:
        return _RESTARTS
    if gang.promised:
        return _TERMINATING
    return _GATED if _is_gated(gang) else _UNTRIED


def _is_gated(gang: GangState) -> bool:
    return any(pod_set.gated for pod_set in gang.spec.pod_sets)


def _state(session: Session, gang: GangState) -> GangPhase:
    if not gang.need:
        return GangPhase.RUNNING if gang.spec.ready >= gang.spec.min_member else GangPhase.PLACED
    if gang.lost:
        return GangPhase.RELEASED
    if gang.spec.admitted:
        return GangPhase.DEGRADED
    if gang.spec.ready and not gang.spec.missing:
        return GangPhase.RUNNING
    if gang.reserved or (gang.promised and session.rules.pipelined(gang)):
        return GangPhase.RESERVED
    return GangPhase.WAITING
