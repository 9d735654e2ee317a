# SPDX-License-Identifier: Apache-2.0
"""gang: a gang starts with its minimum or not at all, and gangs that wait go before extras.

Nor is a gang broken to make room: it gives back what it has above its minimum, or goes whole.
"""

from __future__ import annotations

import numpy as np

from muster.api.reasons import Reason
from muster.scheduler.hooks import YES, Answers, Claim, Hooks, Parsed
from muster.scheduler.model import Refusal
from muster.scheduler.session import Session
from muster.scheduler.state import GangState


def answer(_session: Session, _arguments: Parsed) -> Hooks:
    """Answer by `min_member`."""
    return Hooks(
        job_order=lambda gang: float(_ready(gang)),
        valid=_valid,
        ready=_ready,
        pipelined=_pipelined,
        preemptable=_evictable,
        reclaimable=_evictable,
    )


def _evictable(claim: Claim) -> Answers:
    # No policy lets a gang be broken, so that the action offers only what leaves gangs whole.
    return np.full(len(claim.units), YES)


def _ready(gang: GangState) -> bool:
    whole = gang.ready >= gang.spec.min_member
    return whole and not (gang.spec.leasts and any(gang.lacks().values()))


def _pipelined(gang: GangState) -> bool:
    whole = gang.ready + gang.promised >= gang.spec.min_member
    return whole and not (gang.spec.leasts and any(gang.lacks(promised=True).values()))


def _valid(gang: GangState) -> Refusal | None:
    """Return what has too few pods for its minimum: the gang, or one of its roles."""
    spec = gang.spec
    for role, least in (spec.leasts or {"": spec.min_member}).items():
        own = [pod_set for pod_set in spec.pod_sets if not spec.leasts or pod_set.role == role]
        gated, wanted = sum(pod_set.gated for pod_set in own), sum(p.total for p in own)
        pods = f"pods of {role}" if spec.leasts else "pods"
        if wanted < least:
            minimum = f"{least} are the least" if spec.leasts else f"minMember is {least}"
            return Refusal(Reason.NOT_ENOUGH_TASKS, f"there are {wanted} {pods}, {minimum}")
        if wanted - gated < least:
            text = f"{gated} of {wanted} {pods} have scheduling gates, {least} must start together"
            return Refusal(Reason.SCHEDULING_GATED, text)
    return None
