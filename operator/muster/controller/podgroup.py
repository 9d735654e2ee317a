# SPDX-License-Identifier: Apache-2.0
"""The job's group object: made, kept true, and gone with the job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from muster.api import names
from muster.api.model import GroupView, Json
from muster.api.status import Verdict
from muster.controller import dependents
from muster.controller.events import is_alarming, normal, warning
from muster.controller.jobpods import is_orphan
from muster.controller.model import Action, Create, Delete, Emit, Patch
from muster.controller.scope import Scope
from muster.gang import Update, podgroup

POD_GROUP_IMMUTABLE: Final = "PodGroupImmutable"
_DELETED: Final = names.Event.SUCCESSFUL_DELETE_POD_GROUP


def of_another(scope: Scope) -> GroupView | None:
    """Return the group under the job's name that is neither the job's nor to be used by it."""
    group = scope.observed.group
    if group is None or scope.owns(group) or is_lent(scope, group):
        return None
    return group


def is_lent(scope: Scope, group: GroupView) -> bool:
    """Say whether somebody made the group by hand for the job, which uses it and leaves it."""
    labelled = is_orphan(scope.job, scope.framework, group)
    return group.kind == "PodGroup" and not (group.owner or labelled or group.deleting)


def writes(scope: Scope) -> Iterator[Action]:
    """Yield what brings the group object to what it should be."""
    group, wanted = scope.observed.group, scope.backend.group(scope.job, scope.group_facts)
    if wanted is None:
        yield from _removal(scope)
    elif scope.context.missing:
        return
    elif group is None:
        yield from _creations(scope, *scope.backend.before(scope.job, scope.group_facts), wanted)
    elif not group.deleting and not of_another(scope):
        # Fields that this cluster's CRD prunes would differ, and be written, in each reconcile.
        dropped = scope.context.dropped.get(group.kind, frozenset())
        difference = scope.backend.difference(group, wanted, dropped)
        if difference:
            yield from _update(scope, group, difference)


def _creations(scope: Scope, *documents: Json) -> Iterator[Create]:
    """Yield the creation of a group and what stands beside it."""
    beside = (v for v in scope.observed.companions if v.kind in scope.backend.companions)
    if scope.hindrance is None and all(map(scope.owns, beside)):
        yield from map(Create.of, documents)


def _update(scope: Scope, group: GroupView, difference: Json) -> Iterator[Action]:
    taken = scope.backend.in_place(group, difference)
    fixed = taken != difference and not is_lent(scope, group)
    replaced = scope.backend.api(group.api_version).update is Update.REPLACE
    # Without pods nothing is bound to the group, and it can be recreated with the fixed field.
    if fixed and (replaced or not scope.roster.own):
        yield from dependents.removals(scope, (group,))
        return
    if taken:
        if not is_lent(scope, group):
            # What is there and says something else is made anew.
            yield from _creations(scope, *scope.backend.before(scope.job, scope.group_facts))
        yield Patch.of(group, taken)
    if fixed and scope.fresh:
        text = "The group cannot change while pods exist; the new value applies after a restart"
        yield normal(POD_GROUP_IMMUTABLE, text)


def _removal(scope: Scope) -> Iterator[Delete]:
    """Yield the group's deletion, if there is one of ours."""
    group = scope.observed.group
    return dependents.removals(scope, () if group is None else (group,))


def end(scope: Scope) -> Iterator[Action]:
    """Yield the deletion of the group with its job, and the events about it."""
    for action in _removal(scope):
        yield action
        text = f"Job has been terminated. Deleting {action.kind}"
        yield normal(names.Event.JOB_TERMINATED, text)
        budget = action.kind == "PodDisruptionBudget"
        event = names.Event.SUCCESSFUL_DELETE_PDB if budget else _DELETED
        yield normal(event, f"Deleted {action.kind}: {action.name}")


def announcement(scope: Scope, verdict: Verdict | None) -> Iterator[Patch | Emit]:
    """Yield what publishes the verdict on the group itself, where Muster is its scheduler."""
    group = scope.observed.group
    if not scope.backend.embedded or verdict is None or group is None or group.deleting:
        return
    if not of_another(scope):
        body = podgroup.difference(group, verdict, scope.now)
        if body:
            yield Patch.of(group, body)
            if is_alarming(verdict) and podgroup.is_news(group, verdict.reason):
                text = verdict.message or verdict.reason
                yield replace(warning(names.Event.UNSCHEDULABLE, text), group=group)
