# SPDX-License-Identifier: Apache-2.0
"""One scheduling cycle, from a snapshot to decisions: one for every gang that is not whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from muster.api.reasons import GangPhase, Reason
from muster.scheduler.actions import ACTIONS
from muster.scheduler.actions.protect import keep, protect, resume
from muster.scheduler.decision import Decision, Verdict
from muster.scheduler.model import Refusal, Snapshot
from muster.scheduler.policy import Policy
from muster.scheduler.session import Around, Session, unwatched
from muster.scheduler.state import GangState


def schedule(
    snapshot: Snapshot, policy: Policy, around: Around = unwatched
) -> tuple[Decision, ...]:
    """Return one decision for every gang that is not whole, in the order to be carried out.

    Equal snapshots give equal decisions, whatever the order of their gangs. `around` is entered
    for the work of each action and each plugin, for somebody to measure it; it changes nothing.
    """
    if not any(gang.missing or gang.ready < gang.min_member for gang in snapshot.gangs):
        return ()
    session = Session(snapshot, policy.openers(around))
    protect(session)
    keep(session)
    resume(session, [ACTIONS[name].run for name in policy.actions if ACTIONS[name].evicts])
    for action in policy.actions:
        with around("action", action):
            ACTIONS[action].run(session, policy.arguments.get(action, {}))
    return decisions(session)


_ENDING = Refusal(Reason.NOT_ENOUGH_RESOURCES, "waiting for pods that are ending")
_GATED = Refusal(Reason.SCHEDULING_GATED, "waiting for scheduling gates to be removed")
_UNTRIED = Refusal(Reason.UNSUPPORTED_CONSTRAINT, "no action of the policy places such tasks")
_WHOLE = Refusal(Reason.NONE, "")


def decisions(session: Session) -> tuple[Decision, ...]:
    """Return what was decided: gangs with placements first, as placed, then those that wait."""
    started = set(map(id, session.started))
    rest = sorted((j for j in session.jobs if id(j) not in started), key=session.order)
    positions = _positions(job for job in rest if job.need)
    names = session.snapshot.nodes.names
    return tuple(
        Decision(
            gang=job.gang.key,
            verdict=_verdict(session, job, positions),
            placements=job.placed(names) if id(job) in started else (),
            evictions=session.evictions(job) if job.evicts else (),
            nominations=job.nominations(names),
            moves=job.moves,
        )
        for job in (*session.started, *rest)
    )


def _positions(waiting: Iterable[GangState]) -> Mapping[str, int]:
    """Return key -> place in its queue, from 1."""
    places: Counter[str] = Counter()
    positions = {}
    for job in waiting:
        places[job.gang.queue] += 1
        positions[job.gang.key] = places[job.gang.queue]
    return positions


def _verdict(session: Session, job: GangState, positions: Mapping[str, int]) -> Verdict:
    gang, state = job.gang, _state(session, job)
    total = gang.ready + gang.missing
    placed = gang.ready if state in (GangPhase.WAITING, GangPhase.RESERVED) else job.ready
    refusal = _refusal(job)
    message = summary = ""
    if refusal.reason:
        lacking = min(job.need or job.left, total)
        message = f"{lacking}/{total} tasks in gang unschedulable: {refusal.sentence}"
        summary = f": {job.summary or refusal.sentence}"
    goal = total if state in (GangPhase.RUNNING, GangPhase.PLACED) else gang.min_member
    return Verdict(
        state=state,
        reason=refusal.reason,
        message=message,
        summary=f"{placed}/{goal} placed{summary}",
        min_member=gang.min_member,
        placed=placed,
        ready=gang.ready,
        total=total,
        shortage=job.shortage,
        position=positions.get(gang.key, 0),
        eta=job.eta,
        blocked_by=job.blocked_by,
        ever_possible=refusal.reason.ever_possible,
        ruled_out=refusal.nodes,
    )


def _refusal(job: GangState) -> Refusal:
    if not job.need and not job.left:
        return _GATED if any(pod_set.gated for pod_set in job.gang.pod_sets) else _WHOLE
    if job.refusal is not None:
        return job.refusal
    if job.promised or any(pod_set.returning for pod_set in job.gang.pod_sets):
        return _ENDING
    return _UNTRIED


def _state(session: Session, job: GangState) -> GangPhase:
    if not job.need:
        return GangPhase.RUNNING if job.gang.ready >= job.gang.min_member else GangPhase.PLACED
    if job.lost:
        return GangPhase.RELEASED
    if job.gang.admitted:
        return GangPhase.DEGRADED
    if job.reserved or (job.promised and session.rules.pipelined(job)):
        return GangPhase.RESERVED
    return GangPhase.WAITING
