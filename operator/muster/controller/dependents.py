# SPDX-License-Identifier: Apache-2.0
"""What a job needs beside its pods, such as an autoscaler: created first, removed with the job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from muster.api import edge, names
from muster.api.model import GroupView, Json, ObjectView
from muster.api.reasons import DeletionReason
from muster.controller.model import Action, Create, Delete, Patch
from muster.controller.scope import Scope
from muster.controller.templates import document
from muster.frameworks.base import Companion, labels


def writes(scope: Scope, *, lasting: bool = False) -> Iterator[Action]:
    """Yield the creations and corrections; `lasting`: only those that a suspended job keeps."""
    job = scope.job
    there = {(view.kind, view.name): view for view in scope.observed.companions}
    marks = {**labels(job, scope.framework), names.APP: names.flat(job.name)}
    for part in scope.framework.companions:
        content = _content(scope, part)
        view = there.get((part.kind, part.name(job)))
        if content is None:
            yield from removals(scope, [view] if view is not None and part.leaves else ())
        elif view is None:
            if scope.observed.refusal is None and (part.lasting or not lasting):
                body, api = edge.merged(content, part.fixed(job)), (part.api_version, part.kind)
                yield Create.of(document(job, api, part.name(job), marks, **body))
        elif scope.owns(view) and not view.deleting:
            change = _change(part, content, view.content)
            if change:
                yield Patch.of(view, change)


def _content(scope: Scope, part: Companion) -> Json | None:
    job, secrets = scope.job, scope.observed.secrets
    if not part.wanted(job) or (part.keys and not secrets):
        return None
    if part.keys:
        return {"data": dict(secrets)}
    pods = tuple(member.pod for member in scope.roster.members)
    return part.content(job, scope.context.cluster_domain, pods)


def _change(part: Companion, content: Json, stored: Json) -> Json:
    """Return the fields that are kept true and are not, as a merge patch."""
    if not part.keys:
        changes = ((k, _mending(stored.get(k), value)) for k, value in content.items())
        return {key: change for key, change in changes if change}
    there = stored.get("data") or {}
    # Keys that are there stay: new ones would lock out pods that hold the old.
    if set(there) == set(part.keys):
        return {}
    return {"data": {**dict.fromkeys(there), **content["data"]}}


def _mending(stored: Any, asked: Any) -> Any:
    """Return what is missing of a field's value, nothing if it says all that is asked."""
    if not isinstance(asked, dict):
        return None if edge.covers(stored, asked) else asked
    change: Json = {}
    for key, value in asked.items():
        there = (stored or {}).get(key)
        surplus = set(there or ()) - set(value) if isinstance(value, dict) else ()
        # In a merge patch null takes a key away.
        if surplus:
            change[key] = {**dict.fromkeys(sorted(surplus)), **value}
        elif not edge.covers(there, value):
            change[key] = value
    return change


def autoscaler(scope: Scope) -> Json | None:
    """Return the autoscaler of the job, None if it has none.

    A copy of MultiKueue's has none: Kueue suspends a job whose replicas differ from its quota.
    """
    job, made = scope.job, scope.framework.autoscaler
    spec = made(job) if made else None
    if spec is None or job.is_multikueue_copy:
        return None
    target = {"apiVersion": job.api_version, "kind": job.kind, "name": job.name}
    marks, api = labels(job, scope.framework), (names.AUTOSCALING_API, names.AUTOSCALER)
    spec = {"scaleTargetRef": target, **spec}
    return document(job, api, names.flat(job.name), marks, spec=spec)


def autoscaler_writes(scope: Scope) -> Iterator[Action]:
    """Yield what brings the autoscaler to what it should be."""
    wanted = autoscaler(scope)
    if wanted is None:
        yield from removals(scope, scope.observed.autoscalers)
    elif not scope.observed.autoscalers:
        if scope.observed.autoscaler_refusal is None:
            yield Create.of(wanted)
    else:
        spec = wanted["spec"]
        for view in scope.observed.autoscalers:
            ours = scope.owns(view) and not view.deleting
            if ours and not edge.covers(view.spec, spec):
                yield Patch.of(view, {"spec": spec})


def removals(scope: Scope, views: Iterable[ObjectView | GroupView]) -> Iterator[Delete]:
    """Yield the deletions of the job's objects without pods that are not being deleted yet."""
    why = DeletionReason.DEPENDENT
    for view in views:
        if scope.owns(view) and not view.deleting:
            yield Delete(view.api_version, view.kind, view.namespace, view.name, view.uid, why)
