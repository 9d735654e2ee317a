# SPDX-License-Identifier: Apache-2.0
"""Where the job's gang stands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.api import names
from muster.api.backoff import QUOTA
from muster.api.edge import cut
from muster.api.model import PodView
from muster.api.reasons import GangPhase, Reason
from muster.api.status import JobStatus, ReplicaStatus, Verdict
from muster.controller import replacement
from muster.controller.jobpods import PodFate
from muster.controller.scope import Scope
from muster.gang import standing
from muster.gang.base import FIRST_REPORT, GROUP_GRACE

SUMMARY: Final = 120
"""Characters of a summary that still fit the column GANG."""
_OBSTACLES: Final = frozenset(
    {
        Reason.BLOCKED,
        Reason.CREATION_REFUSED,
        Reason.EXCEEDS_RESOURCE_QUOTA,
        Reason.GANG_SCHEDULER_MISSING,
        Reason.NAMES_IN_USE,
        Reason.NODE_UNREACHABLE,
    }
)


def look_again(scope: Scope) -> float | None:
    """Return when a foreign scheduler's silence is to be reported, if that is still to come."""
    group, backend = scope.observed.group, scope.backend
    if scope.context.missing or backend.read is None:
        return None
    if group is None:
        last = scope.job.status.gang
        reported = last is not None and last.reason == Reason.GROUP_MISSING
        return None if reported or not scope.roster.own else scope.now + GROUP_GRACE
    return None if backend.admits(group) else group.created + FIRST_REPORT


def names_in_use(scope: Scope) -> tuple[PodView, ...]:
    """Return the terminating pods whose names a gang needs before any of its pods is created.

    Empty for a gang that has a member on a node: a replacement waits for its own name only.
    """
    own = scope.roster.own
    if not scope.backend.apis or any(standing.has_node(p) and not p.deleting for p in own):
        return ()
    terminating = {pod.name: pod for pod in own if pod.deleting}
    terminating |= {pod.name: pod for pod in scope.roster.leftovers}
    if not terminating:
        return ()
    needed = standing.first_names(scope.job, standing.needed(scope.minimum))
    found = (pod for name, pod in terminating.items() if name in needed)
    return tuple(sorted(found, key=lambda pod: (pod.created, pod.name)))


def is_admitted(scope: Scope) -> bool:
    """Return whether a pod of the job has, or had, a node."""
    there = (pod for pod in scope.roster.own if not pod.deleting)
    return any(pod.node or pod.phase != "Pending" for pod in there)


def run_time(scope: Scope, status: JobStatus) -> float | None:
    """Return from when on the deadline of the job counts, None if it does not yet."""
    return standing.admission_time(status) if scope.backend.apis else status.start_time


def exists(scope: Scope) -> bool:
    """Return whether the gang has all members that must stay together, on whichever nodes."""
    return existing(scope) >= standing.needed(kept(scope))


def existing(scope: Scope) -> int:
    """Return the number of members that exist and did not fail."""
    return sum(member.pod.phase != "Failed" for member in scope.roster.having(PodFate.STAYS))


def kept(scope: Scope) -> int:
    """Return how many must stay together: what is wanted since the gang was whole is no part."""
    known, most = had(scope), scope.observed.losses.kept
    # Of an invalid job no pod may be left. A 0 here would be read back as not known.
    still = standing.needed(sum(most.values()) if most else scope.job.total)
    return scope.minimum if known is None else min(scope.minimum, known, still)


def had(scope: Scope) -> int | None:
    """Return how many members the gang had when it last was whole, None if that is not known."""
    # Without a gang scheduler the status counts the pods that run, fewer after a loss.
    known = scope.observed.losses.had if scope.observed.placements is None else None
    return standing.had(scope.job) if known is None else known


def awaits_members(scope: Scope) -> bool:
    """Return whether no replacement is created before other members are removed or ready again."""
    pods = (member.pod for member in scope.roster.members)
    restarts = scope.job.restarts_whole and standing.has_run(scope.job)
    least = standing.needed(kept(scope))
    return restarts and standing.awaits_members(pods, scope.job.total, least)


def verdict(scope: Scope, counted: Mapping[str, ReplicaStatus]) -> Verdict | None:
    """Return where the gang stands; None without a gang scheduler, or with nothing to say."""
    if not scope.backend.apis:
        return None
    at_first = _at_first(scope)
    found = _obstacle(scope, counted) or (
        _embedded(at_first, counted) if scope.backend.embedded else _foreign(at_first)
    )
    if found is None:
        return None
    grows = standing.has_run(scope.job) and _ready(counted) < standing.needed(scope.minimum)
    if grows and not scope.backend.embedded:
        # The difference would count as lost members.
        found = replace(found, min_member=kept(scope))
    # Late roles do not run yet: Running, for all, would make later gaps count as lost members.
    if (
        found.state == GangPhase.RUNNING
        and at_first.facts.later
        and not standing.has_run(scope.job)
    ):
        found = replace(found, state=GangPhase.PLACED)
    return _dated(scope, _stranded(scope, found))


def _dated(scope: Scope, found: Verdict) -> Verdict:
    """Return the verdict, with since when its reason holds, across other changes of it."""
    last = scope.job.status.gang
    same = last is not None and last.reason == found.reason
    since = last.since if last and same else (found.since or scope.now)
    # Whole seconds, as they are read back: a fraction would be a change in every pass.
    admitted = standing.admission_time(scope.job.status)
    # A foreign scheduler's verdict may arrive before the nodes of the pods.
    if admitted is None and (is_admitted(scope) or standing.ran(found)):
        admitted = float(math.floor(scope.now))
    return replace(
        found,
        message=cut(found.message),
        summary=cut(found.summary),
        admission_time=admitted,
        since=float(math.floor(since)) if found.reason and since is not None else None,
        eta=None if found.eta is None else float(math.floor(found.eta)),
    )


def blocked(scope: Scope, found: Verdict | None, why: str) -> Verdict | None:
    """Return the verdict on the gang of a job of which nothing may be made, for that reason.

    The allocator gives away the room of what is missing: only pods that are there are placed.
    """
    placed = _placed(scope)
    if found is None or not scope.backend.embedded or is_released(found):
        return found
    if placed >= standing.needed(scope.minimum) or standing.has_run(scope.job):
        return found
    begun = placed and standing.was_admitted(scope.job)
    state = GangPhase.PLACED if begun else GangPhase.WAITING
    summary = f"{placed}/{scope.job.total} placed: {why}"[:SUMMARY]
    calm = _calm(found, state, placed, summary)
    return _dated(scope, replace(calm, reason=Reason.BLOCKED, message=why))


def _stranded(scope: Scope, found: Verdict) -> Verdict:
    """Return the verdict, with the reason NodeUnreachable if members are on unreachable nodes."""
    members = (member.pod for member in scope.roster.members)
    pods = [pod for pod in members if pod.unreachable and not pod.fenced]
    if not pods or is_evicted(found):
        return found
    nodes = sorted({pod.node for pod in pods})
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    where = f"{', '.join(nodes[:3])}{more}"
    message = (
        f"{len(pods)} pod(s) on unreachable node(s) {where} may still be running. They are "
        f"recreated when they are gone, or when their Node is deleted or has the taint "
        f"{names.OUT_OF_SERVICE_TAINT}. With the annotation {names.REPLACE_UNREACHABLE}: "
        f"{names.REPLACE_BY_FORCE} they are recreated once they are treated as lost"
    )
    summary = f"{found.ready}/{scope.job.total} running, unreachable: {where}"[:SUMMARY]
    reason = Reason.NODE_UNREACHABLE
    return replace(found, reason=reason, message=message, summary=summary)


def _at_first(scope: Scope) -> Scope:
    """Return the scope by which the state of a gang that has not run yet is derived.

    Roles whose pods are created after the others count only once those run.
    """
    late = scope.framework.gang.later(scope.job)
    if not late or standing.has_run(scope.job):
        return scope
    up = (m.replica.type for m in scope.roster.having(PodFate.STAYS) if m.pod.phase == "Running")
    types = late.difference(up)
    later = sum(role.replicas for role in scope.job.replicas if role.type in types)
    return replace(scope, facts=replace(scope.facts, later=later))


def _obstacle(scope: Scope, counted: Mapping[str, ReplicaStatus]) -> Verdict | None:
    """Return the verdict on a gang that the API server itself holds up."""
    if existing(scope) >= standing.needed(scope.minimum):
        return None
    reason, message = "", ""
    if scope.context.missing:
        reason, message = Reason.GANG_SCHEDULER_MISSING, scope.context.missing
    elif scope.hindrance:
        message = scope.hindrance.message
        # By its message: the API server's plain 403 has no reason of its own for quotas.
        quota = QUOTA in message
        reason = Reason.EXCEEDS_RESOURCE_QUOTA if quota else Reason.CREATION_REFUSED
    elif not is_released(scope.job.status.gang) and (pods := names_in_use(scope)):
        reason, message = Reason.NAMES_IN_USE, _in_use(pods)
    if not reason:
        return None
    ready, total = _ready(counted), scope.job.total
    # A gang that restarts waits for its own pods, and keeps the claim to its nodes.
    keeps = reason == Reason.NAMES_IN_USE and standing.was_admitted(scope.job)
    state = _phase(scope, ready) or (GangPhase.PLACED if keeps else GangPhase.WAITING)
    first = replace(_first(scope), min_member=kept(scope), ready=ready)
    found = _calm(first, state, ready, f"{ready}/{total} placed: {message}"[:SUMMARY])
    return replace(found, reason=reason, message=message)


def _in_use(pods: Sequence[PodView]) -> str:
    oldest = pods[0]
    where = f" on node {oldest.node}" if oldest.node else ""
    return (
        f"{len(pods)} pod(s) that are being deleted still have names that this gang needs. "
        f"The oldest one is {oldest.name}{where}"
    )


def _phase(scope: Scope, ready: int) -> GangPhase | None:
    """Return the state of a gang by the members it had, None if it was not admitted."""
    least, admitted = standing.needed(kept(scope)), standing.was_admitted(scope.job)
    # Also if the job was scaled up before the gang that was admitted ran.
    if admitted and ready >= least:
        return GangPhase.RUNNING
    if standing.has_run(scope.job):
        return GangPhase.DEGRADED
    return GangPhase.PLACED if admitted and _placed(scope) >= least else None


def _placed(scope: Scope) -> int:
    return standing.placed(member.pod for member in scope.roster.having(PodFate.STAYS))


def _ready(counted: Mapping[str, ReplicaStatus]) -> int:
    return sum(replica.active + replica.succeeded for replica in counted.values())


def _last_verdict(scope: Scope) -> Verdict | None:
    """Return the last verdict; of one about an obstacle that is gone, where the gang stood then.

    Without any it would be taken for one that was let run before there were gangs.
    """
    last = scope.job.status.gang
    if last is None or last.reason not in _OBSTACLES:
        return last
    # A refusal lasts until the next attempt is answered, which a slow webhook delays.
    if last.reason == Reason.CREATION_REFUSED and not existing(scope):
        return last
    return replace(last, reason=Reason.NONE, message="", summary="")


def _first(scope: Scope) -> Verdict:
    """Return the verdict on a gang of which only its scheduler and its name are known."""
    scheduler = scope.backend.scheduler_name or scope.backend.name
    return Verdict(scheduler, GangPhase.PLACED, names.flat(scope.job.name))


def _foreign(scope: Scope) -> Verdict | None:
    """Return what a foreign scheduler says; its last verdict holds until there is another."""
    pods = tuple(pod for pod in scope.roster.own if not pod.suspended)  # no suspended batch Jobs
    found = scope.backend.verdict(
        scope.observed.group, scope.job, scope.group_facts, pods, scope.now
    )
    last = _last_verdict(scope)
    # An operator with another backend wrote it, about a queue and nodes that do not matter now.
    if last and last.scheduler not in (scope.backend.name, _first(scope).scheduler):
        last = last if standing.was_admitted(scope.job) else None
    return found or last or _first_placed(scope)


def _first_placed(scope: Scope) -> Verdict | None:
    """Return the verdict on a gang with its first nodes, of which its scheduler says nothing."""
    if standing.has_run(scope.job) or not is_admitted(scope):
        return None
    least, placed = standing.needed(scope.minimum), _placed(scope)
    state = GangPhase.PLACED if placed >= least else GangPhase.QUEUED
    first = replace(_first(scope), min_member=least)
    return _calm(first, state, placed, f"{placed}/{scope.job.total} placed")


def _embedded(scope: Scope, counted: Mapping[str, ReplicaStatus]) -> Verdict | None:
    """Return the allocator's latest verdict, overtaken by what the pods show."""
    # After a restart of the operator nobody has decided yet: what is written holds until then.
    last = scope.observed.verdict or _last_verdict(scope)
    needed, failed = standing.needed(scope.minimum), sum(scope.facts.unreplaced.values())
    total = scope.job.total - failed
    ready, placed = _ready(counted), _placed(scope)
    if last is None and not placed:
        return None
    last = last or _first(scope)
    last = replace(last, min_member=kept(scope), ready=ready)
    # Its pods may run on for as long as they get to end: that is not the gang's standing.
    if is_evicted(scope.observed.verdict):
        return last
    whole = replace(last, min_member=scope.minimum)
    # What runs says more than any verdict, which was made before.
    if ready >= needed:
        text = f"{ready}/{scope.job.total} running" + (f", {failed} failed" if failed else "")
        return _calm(whole, GangPhase.RUNNING, max(placed, ready), text)
    stays = last.state != GangPhase.RELEASED
    # After a counted restart of the whole gang it has not run before all its pods run again.
    restarts = scope.job.restarts_whole and any(it.restarted for it in counted.values())
    has_run = standing.has_run(scope.job) and not restarts
    # The allocator's verdict may be older than the loss of the members that ran.
    left = ready or any(member.pod.phase == "Running" for member in scope.roster.members)
    if has_run and (standing.ran(last) or (left and stays)):
        return _partly(scope, last, total)
    if standing.ran(last):
        last = _begun(scope, last)
    if placed >= needed:
        return _calm(whole, GangPhase.PLACED, placed, f"{placed}/{total} placed")
    phase = _phase(scope, ready) if stays else None
    grows = None if phase is GangPhase.DEGRADED else phase
    return _growing(last, grows, total, placed) if grows else last


def _begun(scope: Scope, last: Verdict) -> Verdict:
    """Return the verdict on a gang that has some members on nodes and never ran as a whole.

    The allocator reports such a gang as Degraded, like one that ran. With that state it would
    count as one that ran. If the API server then refused the missing pods, the others would stay.
    """
    admitted = standing.was_admitted(scope.job)
    return replace(last, state=GangPhase.PLACED if admitted else GangPhase.WAITING)


def _partly(scope: Scope, last: Verdict, total: int) -> Verdict:
    """Return the verdict on a gang that ran, and of which not all run that must run together."""
    going = scope.roster.having(PodFate.GOES)
    ending = sum(standing.is_ending(member.pod) for member in going)
    least = standing.needed(last.min_member)
    if last.ready >= total:
        found = _calm(last, GangPhase.RUNNING, last.ready, f"{last.ready}/{total} running")
        message = f"there are {total} pods, minMember is {scope.minimum}"
        return replace(found, reason=Reason.NOT_ENOUGH_TASKS, message=message)
    if last.ready >= least:
        growing = _growing(last, GangPhase.RUNNING, total, last.ready)
        return replace(growing, placed=max(_placed(scope), last.ready))
    if last.ready and last.ready + ending >= least:
        text = f"{last.ready}/{total} running, {ending} ending"
        return _calm(last, GangPhase.RUNNING, last.ready, text)
    return _degraded(scope, last, least, total)


def _growing(last: Verdict, state: GangPhase, total: int, there: int) -> Verdict:
    if last.state == state:  # as it is written: the allocator says of none that lacks some
        return replace(last, placed=there)
    message, summary = last.message, f"{there}/{total} {str(state).lower()}"
    # None, if the minimum is larger than the job.
    if more := max(0, total - there):
        message = f"{more} more pod(s) wait: {message}" if message else ""
        summary = f"{summary}, {more} more wait"
    return replace(last, state=state, placed=there, message=message, summary=summary)


def is_evicted(last: Verdict | None) -> bool:
    """Say whether the gang is made to go, so that another gets its room."""
    evicted = (Reason.PREEMPTED, GangPhase.RELEASED)
    return last is not None and (last.reason, last.state) == evicted


def is_released(found: Verdict | None) -> bool:
    """Return whether all pods of the gang are evicted, for another gang or for a restart."""
    return found is not None and found.state == GangPhase.RELEASED


def is_awaited(found: Verdict | None, written: Verdict | None) -> bool:
    """Say whether evictions wait until that can be read: whose room it will be, and who leaves."""
    if found is None or found.state not in (GangPhase.RESERVED, GangPhase.RELEASED):
        return False
    return written is None or written.state != found.state


def _calm(last: Verdict, state: GangPhase, placed: int, summary: str) -> Verdict:
    """Return the verdict with that state alone, and nothing that holds the gang up."""
    kept = Verdict(last.scheduler, state, last.pod_group, last.min_member, placed, last.ready)
    return replace(kept, summary=summary)


def _degraded(scope: Scope, last: Verdict, needed: int, total: int) -> Verdict:
    message = f"{last.ready} of the {needed} pods that must run together run"
    backing_off = sum(replacement.due(member.pod) > scope.now for member in scope.waiting)
    if backing_off:
        # No resources are missing, whatever the scheduler reports of a gang that is not placed.
        message = f"{message}, {backing_off} failed and will be replaced after a back-off"
        last = replace(last, reason=Reason.NONE, message="")
    return replace(
        last,
        state=GangPhase.DEGRADED,
        placed=last.ready,
        reason=last.reason or Reason.NOT_ENOUGH_TASKS,
        message=last.message or message,
        summary=f"{last.ready}/{total} running",
    )
