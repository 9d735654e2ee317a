# SPDX-License-Identifier: Apache-2.0
"""proportion: every queue gets its due of each resource, by weight, up to what it asks for.

deserved_q = min(cap_q, L * weight_q) per resource, with cap_q = min(request_q, capability_q) and
the level L at which the sum of all is min(total, sum of cap).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler import diagnosis
from muster.scheduler.decision import Decision, Placement, Verdict
from muster.scheduler.hooks import VETO, YES, Answers, Claim, Hooks, Parsed
from muster.scheduler.model import (
    PODS,
    UNLIMITED,
    FloatArray,
    Gang,
    IntArray,
    Queue,
    Refusal,
    Snapshot,
)
from muster.scheduler.session import Session
from muster.scheduler.state import GangState, QueueState

EXACT: Final = 1e-9
"""Relative error that dividing by weights may make."""


def answer(session: Session, _arguments: Parsed) -> Hooks:
    """Order queues by share, hold back those that have their due, keep to capabilities."""
    queues = list(session.snapshot.queues.values())

    def due() -> Mapping[str, FloatArray]:
        return session.remember((__name__, "due"), lambda: _due(asking(), session))

    def asking() -> Mapping[str, Queue]:
        return session.remember((__name__, "asking"), lambda: _asking(session))

    def share(queue: QueueState) -> float:
        return _share(queue.allocated, due()[queue.spec.name])

    def overused(queue: QueueState) -> bool:
        lacks = asking()[queue.spec.name].request > queue.allocated
        lacks[PODS] = False
        held, owed = queue.allocated[lacks], due()[queue.spec.name][lacks]
        return bool(held.any() and (held >= owed).all())

    bounded = {queue.name for queue in queues if (queue.capability < UNLIMITED).any()}

    def admissible(gang: GangState, amount: FloatArray) -> Refusal | None:
        return _admissible(gang, amount) if gang.spec.queue in bounded else None

    def within(gang: GangState, amount: FloatArray) -> bool:
        if gang.queue is None:
            return False
        wanted = amount > 0
        wanted[PODS] = False
        owed = due()[gang.queue.spec.name] * (1 + EXACT)
        return bool((gang.queue.allocated + amount <= owed)[wanted].all())

    def reclaimable(claim: Claim) -> Answers:
        columns = np.flatnonzero(claim.gang.lacking() > 0)
        columns = columns[columns != PODS]
        names = claim.victims.queues
        spare = [_spare(session.queues.get(name), due().get(name), columns) for name in names]
        return _over(claim, spare, columns)

    return Hooks(
        queue_order=share,
        overused=overused,
        admissible=admissible,
        within=within,
        reclaimable=reclaimable,
    )


def _spare(queue: QueueState | None, due: FloatArray | None, columns: IntArray) -> list[float]:
    """Return what a queue holds above its due; nothing of one that does not exist."""
    if queue is None or due is None:
        return [0.0] * len(columns)
    spare: list[float] = (queue.allocated[columns] - due[columns] * (1 - EXACT)).tolist()
    return spare


def _over(claim: Claim, spare: Sequence[list[float]], columns: IntArray) -> Answers:
    """Let go what leaves its queue no less than its due of something that the claimant lacks.

    In all resources at once that cannot be asked for: what one is short of keeps a queue from
    its due of the others. What goes needs that resource too, so it cannot claim it back.
    """
    victims = claim.victims
    queues = victims.queue[claim.units].astype(np.int64).tolist()
    amounts = claim.amounts[:, columns].tolist()
    answers = np.full(len(queues), VETO)
    for i, (queue, amount) in enumerate(zip(queues, amounts, strict=True)):
        left = spare[queue]
        takes = [have >= take for have, take in zip(left, amount, strict=True) if take]
        if any(takes):
            answers[i] = YES
            if claim.together:
                left[:] = [have - take for have, take in zip(left, amount, strict=True)]
    return answers


def _asking(session: Session) -> Mapping[str, Queue]:
    """Return the queues by name as they ask for what could start: the rest parks no share."""
    queues = dict(session.snapshot.queues)
    # A queue alone shares with nobody.
    if sum(bool(queue.request.any()) for queue in queues.values()) > 1:
        for gang in session.gangs:
            idle = diagnosis.idle_demand(session, gang) if gang.queue is not None else None
            if idle is not None and idle.any():
                queue = queues[gang.spec.queue]
                queues[queue.name] = _less(queue, idle)
    return queues


def _less(queue: Queue, idle: FloatArray) -> Queue:
    return replace(queue, request=queue.request - idle)


def _due(queues: Mapping[str, Queue], session: Session) -> Mapping[str, FloatArray]:
    due = deserved(list(queues.values()), session.snapshot.nodes.shared)
    return dict(zip(queues, due, strict=True))


def deserved(queues: Sequence[Queue], total: FloatArray) -> FloatArray:
    """Return (queues, R) what each queue is due of `total` (R,)."""
    due = np.zeros((len(queues), len(total)))
    for column in range(len(total)):
        caps = np.array([min(q.request[column], q.capability[column]) for q in queues])
        weights = np.array([q.weight for q in queues], np.float64)
        due[:, column] = fill(caps, weights, float(total[column]))
    return due


def fill(caps: FloatArray, weights: FloatArray, total: float) -> FloatArray:
    """Return min(cap, level * weight) for the level at which all of `total` is used, or all caps.

    Queues are satisfied in the order of cap / weight; what is left goes to the others by weight.
    """
    given = np.zeros(len(caps))
    weight = float(weights.sum())
    for i in np.argsort(caps / weights, kind="stable").tolist():
        given[i] = min(caps[i], total * weights[i] / weight)
        total -= given[i]
        weight -= weights[i]
    return given


def _share(allocated: FloatArray, due: FloatArray) -> float:
    held = allocated > 0
    held[PODS] = False
    if (due[held] <= 0).any():
        return float("inf")
    return float((allocated[held] / due[held]).max(initial=0))


def _admissible(gang: GangState, amount: FloatArray) -> Refusal | None:
    if gang.queue is None:
        return None
    queue = gang.queue.spec
    limited = queue.capability < UNLIMITED
    if not limited.any():
        return None
    limited &= amount > 0
    if (gang.allocated + amount > queue.capability)[limited].any():
        text = f'the gang asks for more than the capability of queue "{queue.name}"'
        return Refusal(Reason.EXCEEDS_QUEUE_CAPABILITY, text)
    if (gang.queue.allocated + amount > queue.capability)[limited].any():
        text = f'queue "{queue.name}" would exceed its capability'
        return Refusal(Reason.QUEUE_OVERUSED, text)
    return None


@dataclass(frozen=True, slots=True)
class Share:
    """One queue. Amounts by resource, those of 0 left out; pod slots are not shared."""

    allocated: Mapping[str, int]
    deserved: Mapping[str, int]
    request: Mapping[str, int] = field(default_factory=dict)
    """What its gangs hold and want."""
    pending: int = 0
    """Gangs that wait."""
    running: int = 0
    """Gangs that have all they need."""
    unknown: int = 0
    """Gangs that were whole and are not any more."""


def shares(snapshot: Snapshot, decisions: Iterable[Decision]) -> Mapping[str, Share]:
    """Return the share of each queue once what was decided is done."""
    known = {d.gang: d for d in decisions}
    queues = dict(snapshot.queues)
    allocated = {name: queue.allocated.copy() for name, queue in queues.items()}
    counts = {name: {"pending": 0, "running": 0, "unknown": 0} for name in queues}
    for gang in snapshot.gangs:
        if gang.queue not in counts:
            continue
        decision = known.get(gang.key)
        given = () if decision is None else decision.placements
        if given:
            allocated[gang.queue] += _amount(snapshot, gang, given)
        elif decision is not None and not _counts(decision.verdict):
            idle = sum((p.coming for p in gang.pod_sets), np.zeros(len(snapshot.resources)))
            queues[gang.queue] = _less(queues[gang.queue], idle)
        counts[gang.queue][_phase(gang, len(given))] += 1
    due = deserved(list(queues.values()), snapshot.nodes.shared)
    names = snapshot.resources
    return {
        name: Share(
            _named(names, allocated[name]),
            _named(names, owed),
            _named(names, queue.request),
            **counts[name],
        )
        for (name, queue), owed in zip(queues.items(), due, strict=True)
    }


def _counts(verdict: Verdict) -> bool:
    """Say whether the demand of a gang that waits so counts, as `_asking` has it."""
    limited = any(name.startswith("resourcequota/") for name in verdict.blocked_by)
    return verdict.reason.wants_room and not limited


def _phase(gang: Gang, given: int) -> str:
    if gang.ready + given >= gang.min_member:
        return "running"
    return "unknown" if gang.admitted else "pending"


def _amount(snapshot: Snapshot, gang: Gang, given: Sequence[Placement]) -> FloatArray:
    tasks = {(placement.role, placement.index) for placement in given}
    amount = np.zeros(len(snapshot.resources))
    for pod_set in gang.pod_sets:
        count = sum((pod_set.role, index) in tasks for index in pod_set.waiting)
        if count:
            amount += count * snapshot.shapes[pod_set.shape].request
    return amount


def _named(names: Sequence[str], amounts: FloatArray) -> Mapping[str, int]:
    found = {name: int(amount) for name, amount in zip(names, amounts.tolist(), strict=True)}
    return {name: amount for name, amount in found.items() if amount and name != names[PODS]}
