# SPDX-License-Identifier: Apache-2.0
"""The HorizontalPodAutoscaler of a job that asks for one: there while the job may run."""

from __future__ import annotations

from collections.abc import Iterator

from muster.api import edge, names
from muster.api.model import Json
from muster.controller.children import labels
from muster.controller.model import Action, Create, Delete, Patch
from muster.controller.scope import Scope
from muster.gang.base import owner


def wanted(scope: Scope) -> Json | None:
    """Return the autoscaler that the job asks for, None if it asks for none."""
    job, made = scope.job, scope.framework.autoscaler
    spec = made(job) if made else None
    if spec is None:
        return None
    target = {"apiVersion": job.api_version, "kind": job.kind, "name": job.name}
    return {
        "apiVersion": names.AUTOSCALING_API,
        "kind": names.AUTOSCALER,
        "metadata": {
            "name": names.flat(job.name),
            "namespace": job.namespace,
            "labels": labels(job, scope.framework),
            "ownerReferences": [owner(job)],
        },
        "spec": {"scaleTargetRef": target, **spec},
    }


def writes(scope: Scope) -> Iterator[Action]:
    """Yield what brings the autoscaler to what it should be."""
    document = wanted(scope)
    if document is None:
        yield from removal(scope)
    elif not scope.observed.autoscalers:
        if scope.refusal is None:
            yield Create(document)
    else:
        spec = document["spec"]
        for view in scope.observed.autoscalers:
            ours = view.owner_uid == scope.job.uid and not view.deleting
            if ours and not edge.covers(view.spec, spec):
                yield Patch(view.api_version, view.kind, view.namespace, view.name, {"spec": spec})


def removal(scope: Scope) -> Iterator[Delete]:
    """Yield the deletion of the job's autoscaler, if there is one."""
    for view in scope.observed.autoscalers:
        if view.owner_uid == scope.job.uid and not view.deleting:
            yield Delete(view.api_version, view.kind, view.namespace, view.name, view.uid)
