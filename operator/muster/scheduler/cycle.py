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
    rest = sorted((j for j in session.gangs if id(j) not in started), key=session.order)
    positions = _positions(gang for gang in rest if gang.need)
    names = session.snapshot.nodes.names
    return tuple(
        Decision(
            gang=gang.spec.key,
            verdict=_verdict(session, gang, positions),
            placements=gang.placed(names) if id(gang) in started else (),
            evictions=session.evictions(gang) if gang.evicts else (),
            nominations=gang.nominations(names),
            moves=gang.moves,
        )
        for gang in (*session.started, *rest)
    )


def _positions(waiting: Iterable[GangState]) -> Mapping[str, int]:
    """Return key -> place in its queue, from 1."""
    places: Counter[str] = Counter()
    positions = {}
    for gang in waiting:
        places[gang.spec.queue] += 1
        positions[gang.spec.key] = places[gang.spec.queue]
    return positions


def _verdict(session: Session, gang: GangState, positions: Mapping[str, int]) -> Verdict:
    spec, state = gang.spec, _state(session, gang)
    total = spec.ready + spec.missing
    placed = spec.ready if state in (GangPhase.WAITING, GangPhase.RESERVED) else gang.ready
    refusal = _refusal(gang)
    message = summary = ""
    if refusal.reason:
        lacking = min(gang.need or gang.left, total)
        message = f"{lacking}/{total} tasks in gang unschedulable: {refusal.sentence}"
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
        position=positions.get(spec.key, 0),
        eta=gang.eta,
        blocked_by=gang.blocked_by,
        ever_possible=refusal.reason.ever_possible,
        ruled_out=refusal.nodes,
    )


def _refusal(gang: GangState) -> Refusal:
    if not gang.need and not gang.left:
        return _GATED if any(pod_set.gated for pod_set in gang.spec.pod_sets) else _WHOLE
    if gang.refusal is not None:
        return gang.refusal
    if gang.promised or any(pod_set.returning for pod_set in gang.spec.pod_sets):
        return _ENDING
    return _UNTRIED


def _state(session: Session, gang: GangState) -> GangPhase:
    if not gang.need:
        return GangPhase.RUNNING if gang.spec.ready >= gang.spec.min_member else GangPhase.PLACED
    if gang.lost:
        return GangPhase.RELEASED
    if gang.spec.admitted:
        return GangPhase.DEGRADED
    if gang.reserved or (gang.promised and session.rules.pipelined(gang)):
        return GangPhase.RESERVED
    return GangPhase.WAITING
