# SPDX-License-Identifier: Apache-2.0
"""What the actions of the controller, and of the scheduler inside, have to be allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from muster.api import names
from muster.frameworks.base import Framework
from muster.gang import GangBackend, Permission

LIST_WATCH = ("list", "watch")
CHILDREN = ("get", *LIST_WATCH, "create", "patch", "delete")
EVENTS = Permission("", "events", ("create", "patch"))
PRIORITIES = Permission("scheduling.k8s.io", "priorityclasses", LIST_WATCH, everywhere=True)
EVERY_JOB = (
    Permission("", "pods", CHILDREN),
    Permission("", "services", CHILDREN),
    Permission("", "configmaps", CHILDREN),
    EVENTS,
    PRIORITIES,
)
"""What jobs of every kind need, under every gang backend."""
ALONE = (EVENTS, Permission("", "pods", ("delete",)), PRIORITIES)
"""What a scheduler needs that no jobs belong to, beside its backend's."""
AUTOSCALING = Permission("autoscaling", "horizontalpodautoscalers", CHILDREN)


def needed(backend: GangBackend, frameworks: Collection[Framework]) -> Iterator[Permission]:
    """Yield what jobs of these kinds need; without any, what the scheduler alone does."""
    if not frameworks:
        yield from _alone(backend)
        return
    yield from EVERY_JOB
    yield from backend.permissions
    for framework in frameworks:
        yield from of_kind(framework)


def of_kind(framework: Framework) -> Iterator[Permission]:
    """Yield what the jobs of one kind need for themselves."""
    yield Permission(names.GROUP, framework.plural, ("get", *LIST_WATCH, "delete"))
    yield Permission(names.GROUP, f"{framework.plural}/status", ("patch",))
    if framework.autoscaler:
        yield AUTOSCALING


def _alone(backend: GangBackend) -> Iterator[Permission]:
    """Yield what a scheduler needs without jobs: it makes no groups and takes none away."""
    yield from ALONE
    groups = {api.plural for api in backend.apis}
    for permission in backend.permissions:
        verbs = permission.verbs
        if permission.resource in groups:
            verbs = tuple(verb for verb in verbs if verb not in ("get", "create", "delete"))
        yield replace(permission, verbs=verbs)
