# SPDX-License-Identifier: Apache-2.0
"""Restarts of a whole gang that lost a member.

Peers of a replaced rank hang. With the annotation `muster.kubeflow.org/restart: gang` they are
therefore replaced together with it. Container exits of such a gang are counted restarts
(`conditions.to_restart`); losses are not counted and have no back-off. Failures of peers after a
loss are part of it (`losses`).
A restart, a release and a resume begin a new run. If the pods of the job form one collective,
members that succeeded in the previous run are replaced as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final

from muster.api import names
from muster.controller import gangstatus
from muster.controller.jobpods import PodFate, refused
from muster.controller.model import DryRun, Emit, Patch
from muster.controller.scope import Scope
from muster.controller.templates import PodBuilder
from muster.gang import standing

_NAMED: Final = 10
"""Maximum number of pods that an event names."""


def with_replaced_members(scope: Scope) -> Scope:
    """Return the scope in which a gang that restarts replaces its other members as well.

    Running peers of lost members have the fate PEER_LOST once all lost members have nodes. The
    embedded scheduler evicts them itself (`scheduler.actions.restart`), unless the gang grows or
    has pods of another scheduler. With other schedulers they have it some seconds after a loss.
    None has it while the server refuses pods of the job.
    """
    lost = scope.job.restarts_whole and _lost_members(scope)
    if scope.framework.life.collective(scope.job):
        # Members that succeeded have to run again.
        scope = replace(scope, run_ended=lost or gangstatus.is_released(scope.job.status.gang))
    peers = [m for m in scope.roster.having(PodFate.STAYS) if m.pod.phase == "Running"]
    if not (lost and peers and scope.hindrance is None and _lost_members_fit(scope)):
        return scope
    if scope.observed.placements is None:
        at = scope.observed.losses.restart_at
        scope = replace(scope, restart_at=at)
        if at is None or scope.now < at:
            return scope
    members = tuple(
        replace(m, fate=PodFate.PEER_LOST) if m in peers else m for m in scope.roster.members
    )
    return replace(scope, roster=replace(scope.roster, members=members))


def _lost_members(scope: Scope) -> bool:
    away = (PodFate.GOES, PodFate.RESTARTS, PodFate.COUNTED)
    # A terminating member counts until it is removed. Failed members restart the gang otherwise.
    waits = bool(scope.roster.having(*away)) or not standing.has_run(scope.job)
    roster = scope.roster
    # Also a pod on a place that has another one by now.
    others = (pod for pod in roster.surplus if pod.uid in roster.duplicates)
    members = (member.pod for member in roster.members)
    waits = waits or any(map(standing.may_run, chain(members, others)))
    # A rejected pod never ran: its successor joins peers that lost nothing.
    rejected = sum(refused(member.pod) for member in scope.roster.having(PodFate.LOST))
    there = gangstatus.existing(scope) + rejected
    return not (waits or there >= standing.needed(gangstatus.kept(scope)))


def _lost_members_fit(scope: Scope) -> bool:
    """Return whether all members that the gang lost and needs can be created now."""
    roster, placements = scope.roster, scope.observed.placements
    # Those that succeeded need nodes as well, and have none before they are removed.
    if scope.rerun:
        return False
    if placements is None:
        return True
    lost = {member.pod.name for member in roster.having(PodFate.LOST)}
    # A pod without a node is created only to show it to autoscalers.
    placed = [name for name, node in placements.items() if node]
    free = sum(name in lost or name not in roster.names for name in placed)
    return gangstatus.existing(scope) + free >= standing.needed(gangstatus.kept(scope))


def marks(scope: Scope) -> Iterator[Patch]:
    """Yield the annotations of a lost member's peers with the number of members before.

    The status counts only running pods: after a loss, a restarted operator would not know it.
    """
    lost = scope.observed.losses
    if not scope.backend.apis and lost.restart_at is not None:
        body = {"metadata": {"annotations": {names.GANG_HAD: str(lost.had)}}}
        stay = (member.pod for member in scope.roster.having(PodFate.STAYS))
        behind = (pod for pod in stay if not pod.removed and pod.gang_had != lost.had)
        yield from (Patch.of(pod, body) for pod in behind)


def dry_runs(scope: Scope, builders: Mapping[str, PodBuilder]) -> Iterator[DryRun]:
    """Yield dry runs of one pod of each role, which precede the deletion of peers.

    Admission decides before the API server checks whether a pod of that name exists.
    """
    if scope.replaced_peers and scope.hindrance is None:
        replaced = scope.roster.having(PodFate.COUNTED, PodFate.LOST)
        ended = {(m.replica.role, m.index) for m in replaced if m.pod.terminal}
        places = scope.roster.places - ended
        for role, builder in builders.items():
            indices = range(builder.replica.replicas)
            missing = (i for i in indices if (role, i) not in places)
            if indices:
                yield DryRun(partial(builder.pod, next(missing, 0)))


def events(scope: Scope) -> Iterator[Emit]:
    """Yield the events of a gang whose peers fail or are replaced because of a lost member."""
    peers = scope.roster.having(PodFate.PEER_LOST)
    failed = [m.pod.name for m in scope.roster.having(PodFate.LOST) if m.pod.part_of_loss]
    reason = names.reason(scope.job.kind, names.Condition.RESTARTING)
    if failed:
        message = f"{len(failed)} pod(s) failed after the gang lost members, which is not counted"
        yield Emit("Warning", reason, f"{message}: {', '.join(failed[:_NAMED])}")
    if peers:
        message = (
            f"All pods of the gang restart because it lost members: {len(peers)} running pods "
            "are replaced together with them"
        )
        yield Emit("Warning", reason, message)
