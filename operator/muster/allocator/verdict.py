# SPDX-License-Identifier: Apache-2.0
"""The published verdict on a gang: its state, and the gang that its pods are evicted for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from muster.api import quantity
from muster.api.model import Job
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.api.status import Verdict
from muster.scheduler.decision import Verdict as Ruling
from muster.scheduler.model import namespace_of

SOMEBODY: Final = "a job of another namespace"
"""A gang of which no more is said to those who are not in its namespace."""
_KEY: Final = re.compile(
    r"(?<![\w./-])(?:[A-Za-z][\w.-]*/|(?:[A-Z][\w.-]*|pod-group) )[-a-z0-9]+/[-.\w]*\w"
)
"""A gang's key in a sentence, or kind and name apart; keys of unmanaged groups may differ."""
_COUNT: Final = re.compile(r".*[/ ]\d+/\d+")
"""So many of so many look alike."""
LATE: Final = "members were missing for too long; it starts anew"
RESTARTS: Final = "it lost members, and restarts where all its pods fit"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why pods are deleted or evicted, and for which gang."""

    reason: DeletionReason
    claimant: str = ""
    """Preempting gang's key or name; empty: its own gang restarts or could not be made whole."""

    @property
    def evicts(self) -> bool:
        """Whether pods are evicted. Else they are deleted, since Muster recreates them."""
        return self.reason not in _DELETES

    @property
    def sentence(self) -> str:
        """`preempt: evicted for TFJob team/large`."""
        if not self.claimant:
            return f"{self.reason}: {self.text}"
        return f"{self.reason}: evicted for {self.claimant.replace('/', ' ', 1)}"

    @property
    def text(self) -> str:
        """Why the gang starts again without a claimant."""
        return RESTARTS if self.reason is DeletionReason.PEER_LOST else LATE


_DELETES: Final = (DeletionReason.HOLD_EXPIRED, DeletionReason.RECORDED, DeletionReason.PEER_LOST)

RELEASE: Final = Cause(DeletionReason.RELEASE)
HOLD_EXPIRED: Final = Cause(DeletionReason.HOLD_EXPIRED)
RECORDED: Final = Cause(DeletionReason.RECORDED)
ETA_SLACK: Final = 15.0
"""Seconds by which a time of start may be wrong without being published anew."""


def of_gang(pod_group: str, scheduler: str, ruling: Ruling) -> Verdict:
    """Return the scheduler core's ruling as a verdict for people, without its time."""
    return Verdict(
        scheduler=scheduler,
        state=str(ruling.state),
        pod_group=pod_group,
        min_member=ruling.min_member,
        placed=ruling.placed,
        ready=ruling.ready,
        reason=str(ruling.reason),
        message=ruling.message,
        summary=ruling.summary,
        position=ruling.position or None,
        eta=ruling.eta,
        blocked_by=ruling.blocked_by,
        shortage={r: quantity.format(r, amount) for r, amount in ruling.shortage.items()},
        ever_possible=ruling.ever_possible,
    )


def called(other: str, to: str) -> str:
    """Return how the gang `other` is called to the gang `to`, which may not know all names."""
    # Queues have no namespace, and of quotas only those of its own are in its way.
    is_gang = other.count("/") == to.count("/")
    return SOMEBODY if is_gang and namespace_of(other) != namespace_of(to) else other


def discreet(verdict: Verdict, to: str) -> Verdict:
    """Return what may be said to a gang that may not know the names of other namespaces' gangs."""
    own = namespace_of(to)
    return replace(
        verdict,
        message=unnamed(verdict.message, own.__eq__),
        summary=unnamed(verdict.summary, own.__eq__),
        blocked_by=tuple(dict.fromkeys(called(other, to) for other in verdict.blocked_by)),
    )


def unnamed(text: str, visible: Callable[[str], bool]) -> str:
    """Return a sentence without the names of gangs of namespaces that are not to be known."""

    def name(key: re.Match[str]) -> str:
        known = visible(namespace_of(key[0].replace(" ", "/", 1))) or _COUNT.fullmatch(key[0])
        return key[0] if known else SOMEBODY

    return _KEY.sub(name, text)


def waits(blank: Verdict, reason: Reason, message: str, summary: str = "") -> Verdict:
    """Return the verdict on the gang of `blank`, which the scheduler core is not asked about."""
    return replace(
        blank,
        state=GangPhase.WAITING,
        reason=reason,
        message=message,
        summary=summary or message,
        ever_possible=reason.ever_possible,
    )


def released(blank: Verdict, written: Verdict | None, cause: Cause) -> Verdict:
    """Return the verdict on a gang that restarts. `written`: the verdict that its status has."""
    reason = Reason.PREEMPTED
    if cause.claimant:
        text = cause.sentence
    elif cause == RECORDED and written is not None and written.reason == reason:
        text = written.message  # an earlier process knew for whom
    else:
        restarts = cause == RECORDED and written is not None and written.message == RESTARTS
        reason, text = Reason.NOT_ENOUGH_TASKS, RESTARTS if restarts else cause.text
    return replace(waits(blank, reason, text), state=GangPhase.RELEASED)


def foreign(job: Job, blank: Verdict) -> Verdict:
    """Return the verdict on a job none of whose pods the allocator places."""
    if not job.total:
        message = "the job asks for no pods; set the replicas of a role"
        return waits(blank, Reason.NOT_ENOUGH_TASKS, message, "no pods wanted")
    named = {(r.template.get("spec") or {}).get("schedulerName") for r in job.replicas}
    others = ", ".join(sorted(name for name in named if name))
    message = f"the pods name another scheduler ({others}), which places them one by one"
    return waits(blank, Reason.FOREIGN_SCHEDULER, message, f"placed by {others}")


def dated(verdict: Verdict, before: Verdict | None, now: float) -> Verdict:
    """Return the verdict with its reason's start, and the published ETA if it moved little."""
    if before is None:
        return replace(verdict, since=now)
    since = before.since if before.reason == verdict.reason else None
    eta = verdict.eta
    if eta is not None and before.eta is not None and abs(eta - before.eta) <= ETA_SLACK:
        eta = before.eta
    return replace(verdict, since=since or now, eta=eta)


def is_news(verdict: Verdict, before: Verdict | None) -> bool:
    """Return whether the verdict differs from the last one in more than numbers.

    Searches of thousands of gangs are deferred and end in turns; each turn would be a write.
    """
    if before is None:
        return True
    deferred = Reason.DEFERRED in (verdict.reason, before.reason)
    said = (before.state, deferred or before.reason, before.placed, before.min_member)
    now = (verdict.state, deferred or verdict.reason, verdict.placed, verdict.min_member)
    return said != now
