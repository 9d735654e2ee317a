# SPDX-License-Identifier: Apache-2.0
"""Writes that bring a job's pods, services and config maps to what they should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from muster.api import deletion
from muster.api.deletion import Evidence
from muster.api.model import GroupView, Json, ObjectView, PodView
from muster.api.reasons import DeletionReason
from muster.controller import dependents, gangstatus, podgroup, policies, replacement
from muster.controller.jobpods import Member, PodFate, is_leftover, is_orphan
from muster.controller.model import Action, Create, Delete, Patch
from muster.controller.scope import Scope
from muster.controller.templates import PodBuilder, document
from muster.frameworks.base import labels
from muster.gang import Update, standing
from muster.gang.base import owner


class Doomed(NamedTuple):
    """A pod that may be deleted. Built by `doomed` alone, which asks the rule."""

    pod: PodView
    reason: DeletionReason


def doomed(scope: Scope, views: Iterable[PodView], *reasons: DeletionReason) -> Sequence[Doomed]:
    """Return the pods that may be deleted, each with the first reason that permits it."""
    found, views = [], tuple(views)
    # The evidence costs as much as the job has pods, and mostly no pod is to be deleted.
    seen = _evidence(scope) if views else Evidence()
    for view in views:
        permitted = (reason for reason in reasons if deletion.is_permitted(reason, seen, view))
        if (reason := next(permitted, None)) is not None:
            found.append(Doomed(view, reason))
    return found


def _evidence(scope: Scope) -> Evidence:
    job = scope.job
    return Evidence(
        suspended=job.run_policy.suspend,
        finished=job.status.finished,
        invalid=bool(job.problems),
        clean_pod_policy=job.run_policy.clean_pod_policy,
        unwanted=frozenset(pod.uid for pod in scope.roster.surplus),
        duplicates=scope.roster.duplicates,
        counted=frozenset(uid for it in job.status.replicas.values() for uid in it.restarted),
        restarts_whole=job.restarts_whole,
        run_ended=scope.run_ended,
        started=_has_started(scope),
    )


def surplus(scope: Scope) -> Sequence[Doomed]:
    """Return the pods that the job does not want."""
    return doomed(scope, scope.roster.surplus, DeletionReason.DUPLICATE, DeletionReason.SURPLUS)


def delete_job(scope: Scope) -> Iterator[Delete]:
    """Yield the deletion of the job, with which garbage collection deletes its pods."""
    job, reason = scope.job, DeletionReason.EXPIRED
    if deletion.is_permitted(reason, _evidence(scope)):
        yield Delete(job.api_version, job.kind, job.namespace, job.name, job.uid, reason)


def pod_deletions(pods: Iterable[Doomed]) -> Iterator[Delete]:
    """Yield the deletions of those that are not being deleted yet, or would be for ever."""
    for pod, why in pods:
        if pod.fenced or not pod.deleting:
            # Its node is out of service for good: no kubelet will ever confirm the end.
            object_ = pod.api_version, pod.kind, pod.namespace, pod.name, pod.uid
            yield Delete(*object_, why, pod.fenced, pod.phase)


def conflict(scope: Scope) -> str:
    """Return why an object of somebody else stands in the way, in a sentence, or nothing."""
    blocking = [("Pod", pod.name) for pod in scope.roster.foreign]
    blocking += [
        (view.kind, view.name)
        for view in others(scope)
        if not (is_leftover(scope.observed, scope.framework, view) or _adoptable(scope, view))
    ]
    if not blocking:
        return ""
    # The same one in every pass, or the status would change with the order of reads.
    kind, name = min(blocking)
    wording = scope.framework.life.wording
    return wording.of(wording.taken, scope.job, other=name, of=kind)


def _adoptable(scope: Scope, view: ObjectView | GroupView) -> bool:
    # A group is adopted only if the backend updates it in place instead of recreating it.
    update = scope.backend.api(view.api_version).update if isinstance(view, GroupView) else None
    if update not in (None, Update.PATCH):
        return False
    if view.kind in _NEVER_ADOPTED or view.kind in scope.backend.companions:
        return False
    return is_orphan(scope.job, scope.framework, view)


def others(scope: Scope) -> Iterator[ObjectView | GroupView]:
    """Yield the objects that have names of the job's children and are not the job's."""
    seen = scope.observed
    views = (*seen.configs, *seen.services, *seen.companions, *seen.batches)
    if dependents.autoscaler(scope) is not None:
        views += seen.autoscalers
    yield from (view for view in views if not scope.owns(view))
    group = podgroup.of_another(scope)
    if group and scope.backend.apis:
        yield group


_NEVER_ADOPTED: Final = frozenset({"Secret", "RoleBinding"})
"""Somebody else may have the keys that are in the one, and cannot change for whom the other is."""


def adoptions(scope: Scope) -> Iterator[Patch]:
    """Yield what makes the job the owner of matching objects that have none."""
    body = {"metadata": {"ownerReferences": [owner(scope.job)]}}
    found = (v for v in others(scope) if _adoptable(scope, v) and not v.deleting)
    for view in (*scope.roster.orphans, *found):
        yield Patch.of(view, body, adopts=True)


def labellings(scope: Scope, builders: Mapping[str, PodBuilder]) -> Iterator[Patch]:
    """Yield the patches that set Muster's labels on what another operator has made.

    A service selects by them once its pod has them, so that it finds the pod's replacement.
    """
    bare = set()
    for member in scope.roster.members:
        pod, builder = member.pod, builders[member.replica.role]
        made_here = pod.kind == "Pod" and not pod.removed
        lacking = builder.unmarked(pod.index, pod.labels) if made_here else {}
        if lacking and not pod.deleting:
            bare.add(pod.name)
            yield _labelled(pod, lacking, {})
    # Of services that have our labels nothing else is kept.
    services = filter(scope.owns, scope.observed.services)
    turned = {view.name: view for view in services if view.content}
    for builder in builders.values() if turned else ():
        for index in range(builder.replica.replicas):
            view = turned.get(builder.name(index))
            if view is not None and view.name not in bare:
                marks = builder.marks(index)
                selector = dict.fromkeys(view.content["spec"].get("selector") or ()) | marks
                yield _labelled(view, marks, {"spec": {"selector": selector}})


def _labelled(view: PodView | ObjectView, marks: Mapping[str, str], more: Json) -> Patch:
    return Patch.of(view, {"metadata": {"labels": dict(marks)}, **more})


def config_writes(scope: Scope) -> Iterator[Action]:
    """Yield what creates the config maps that the pods refer to, and keeps them true."""
    there = {view.name: view for view in scope.observed.configs}
    api, marks = ("v1", "ConfigMap"), labels(scope.job, scope.framework)
    wanted = scope.framework.pods.configs(scope.job, scope.context.cluster_domain)
    for name, data in wanted.items():
        view = there.get(name)
        if view is None:
            yield Create.of(document(scope.job, api, name, marks, data=dict(data)))
        elif scope.owns(view) and view.data != data and not view.deleting:
            # In a merge patch null takes a key away; what is left out stays.
            gone = dict.fromkeys(key for key in view.data if key not in data)
            yield Patch.of(view, {"data": {**gone, **data}})


def removals(scope: Scope, creates: Iterable[Create]) -> Iterator[Delete]:
    """Yield the deletions of pods that are not wanted, or are to be replaced.

    While the gang scheduler is missing nothing is replaced: it could not be created again. A
    failed pod that backs off is deleted together with the creation of its successor.
    """
    yield from pod_deletions(surplus(scope))
    if scope.backend.apis and scope.context.missing:
        return
    # One that RESTARTS stays until its restart is written: a crash in between loses no count.
    fates: tuple[PodFate, ...] = (PodFate.COUNTED, PodFate.LOST, PodFate.PEER_LOST)
    if scope.replaced_peers and scope.hindrance is not None:
        # The gang could not start again.
        fates = (PodFate.LOST,)
    replaced = (*scope.roster.having(*fates), *scope.rerun)
    created = {create.name for create in creates}
    waiting = {m.pod.uid for m in scope.waiting if scope.job.place(*_place(m)) not in created}
    pods = (member.pod for member in replaced if not member.pod.removed)
    going = (pod for pod in pods if pod.uid not in waiting)
    yield from pod_deletions(doomed(scope, going, *_REPLACED))


_REPLACED: Final = (
    DeletionReason.FENCED,
    DeletionReason.RESTARTED,
    DeletionReason.REPLACED,
    DeletionReason.PEER_LOST,
    DeletionReason.NEW_RUN,
)


def _place(member: Member) -> tuple[str, int]:
    return member.replica.role, member.index


def creations(scope: Scope, builders: Mapping[str, PodBuilder]) -> Iterator[Create]:
    """Yield the missing pods that may be created now, in canonical order.

    A launcher comes after the workers, also if a batch Job creates it: the workers should run when
    it starts. The successor of a failed pod comes after its back-off.
    """
    before = {_place(member): member.pod for member in scope.waiting}
    # Names and places: a pod of another operator may fill a place under a name of its own.
    taken = scope.roster.names - {pod.name for pod in before.values()}
    places = scope.roster.places - before.keys()
    for role, builder in sorted(builders.items(), key=lambda item: not item[1].replica.numbered):
        nodes = creatable(scope, builder)
        for index in range(builder.replica.replicas):
            name = builder.name(index)
            node = "" if nodes is None else nodes.get(name)
            if name in taken or (role, index) in places or node is None:
                continue
            failed = before.get((role, index))
            if failed is None:
                yield _creation(builder, index, node)
            elif scope.now >= replacement.due_on(failed, node):
                yield _creation(builder, index, node, replacement.history(failed))


def _creation(
    builder: PodBuilder, index: int, node: str, history: Mapping[str, str] | None = None
) -> Create:
    if builder.replica.batch:
        return Create.of(builder.batch_job())
    build = partial(builder.pod, index, node, history)
    named = (node and builder.on_node) or builder.spec.get("nodeName")
    return Create("Pod", builder.name(index), build, placed=bool(named))


def _waiting(scope: Scope) -> frozenset[str]:
    """Return the types whose pods must still wait for all others to be ready."""
    late = scope.framework.gang.later(scope.job)
    if not late:
        return late
    first = [role for role in scope.job.replicas if role.type not in late]
    ready = sum(m.pod.ready for m in scope.roster.having(PodFate.STAYS) if m.replica in first)
    return late if ready < sum(role.replicas for role in first) else frozenset()


def creatable(scope: Scope, builder: PodBuilder) -> Mapping[str, str] | None:
    """Return the nodes of the pods that may be created; None: all may, without a node."""
    if builder.replica.type in _waiting(scope):
        return {}
    if not builder.allocated:
        return None
    placements = scope.observed.placements or {}
    limited = scope.job.run_policy.active_deadline_seconds is not None
    if builder.replica.batch and limited and not builder.spec.get("schedulingGates"):
        # A batch Job's own clock runs from the start: of one that waits it would run out.
        return {name: node for name, node in placements.items() if node}
    return placements


def service_writes(
    scope: Scope, builders: Mapping[str, PodBuilder], fresh: Iterable[Create]
) -> Iterator[Action]:
    """Yield the missing services of pods that exist or are being created, and the surplus.

    Pods that wait for the allocator need none: a gang may have ten thousand of them.
    """
    if not scope.framework.pods.services:
        return
    pods = {pod.name for pod in scope.roster.own} | {create.name for create in fresh}
    placed = {name for name, node in (scope.observed.placements or {}).items() if node}
    placed |= {pod.name for pod in scope.roster.own if pod.node}
    taken = {view.name for view in scope.observed.services}
    wanted: set[str] = set()
    for builder in () if scope.job.service else builders.values():
        for index in range(builder.replica.replicas):
            name = builder.name(index)
            wanted.add(name)
            needed = name in pods and (name in placed or not builder.allocated)
            if needed and name not in taken and scope.observed.refusal is None:
                yield Create("Service", name, partial(builder.service, index))
    unwanted = (view for view in scope.observed.services if view.name not in wanted)
    yield from dependents.removals(scope, unwanted)


def teardown(
    scope: Scope, pods: Sequence[Doomed], *, lonely_services: bool = True
) -> Iterator[Delete]:
    """Yield deletions of pods and services; `lonely_services`: also services without a pod."""
    going = {pod.name for pod, _ in pods}
    staying = {pod.name for pod in scope.roster.own} - going
    yield from pod_deletions(pods)
    ending = (
        view
        for view in scope.observed.services
        if view.name in going or (lonely_services and view.name not in staying)
    )
    yield from dependents.removals(scope, ending)


def may_create(scope: Scope) -> bool:
    """Say whether new pods may appear, as far as server, gang scheduler and back-off allow."""
    rested = scope.now >= (policies.restart_due(scope.job) or 0.0)
    # As far as the backend's API and its group show.
    unserved = scope.backend.apis and (scope.context.missing or podgroup.of_another(scope))
    ready = not unserved and scope.backend.may_create_pods(scope.observed.group)
    possible = scope.hindrance is None and ready
    # Lost members start together with the peers that are replaced.
    restarts = bool(scope.replaced_peers) or bool(scope.rerun)
    restarts = restarts or scope.restart_at is not None or gangstatus.awaits_members(scope)
    # New pods would read another owner's object of that name, such as a deleted job's hosts.
    misled = not all(map(scope.owns, (*scope.observed.configs, *scope.observed.companions)))
    waits = restarts or bool(gangstatus.names_in_use(scope)) or misled
    return rested and possible and not waits


def taken_down(scope: Scope) -> bool:
    """Say whether a gang that the server did not let become whole is to be undone."""
    return scope.hindrance is not None and bool(scope.backend.apis) and not _has_started(scope)


def _has_started(scope: Scope) -> bool:
    """Return whether the gang ran or exists, as far as a member that may run shows."""
    may_run = bool(scope.roster.having(PodFate.UNREACHABLE))
    # Members of a gang that restarts exist until they are deleted together.
    again = scope.roster.having(PodFate.RESTARTS, PodFate.COUNTED)
    there = gangstatus.existing(scope) + (len(again) if scope.job.restarts_whole else 0)
    exists = there >= standing.needed(gangstatus.kept(scope))
    return may_run or exists or standing.has_run(scope.job)
