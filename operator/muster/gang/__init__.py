# SPDX-License-Identifier: Apache-2.0
"""The schedulers that can start a job's pods together: one frozen value each, and their table.

Rule: a backend answers three questions, the group document, the link from a pod to it, and
whether pods may be created yet; nothing outside branches on its name, and it writes nothing
itself. Below is `api`; beside it, unknown to it, `frameworks`; above it `controller` asks, and
`kube` learns which permissions a backend needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from muster.api import names
from muster.gang.base import GangBackend
from muster.gang.embedded import EMBEDDED
from muster.gang.kube_batch import KUBE_BATCH, KUBE_BATCH_OBJECTS
from muster.gang.kubernetes import KUBERNETES
from muster.gang.model import GangFacts, GroupApi, Link, Permission, Update
from muster.gang.scheduler_plugins import SCHEDULER_PLUGINS
from muster.gang.volcano import VOLCANO

__all__ = [
    "BACKENDS",
    "EMBEDDED",
    "KUBERNETES",
    "KUBE_BATCH",
    "KUBE_BATCH_OBJECTS",
    "NONE",
    "SCHEDULER_PLUGINS",
    "VOLCANO",
    "GangBackend",
    "GangFacts",
    "GroupApi",
    "Link",
    "Permission",
    "Update",
    "choose",
]

NONE = GangBackend(name="none")

BACKENDS = {
    backend.name: backend
    for backend in (NONE, EMBEDDED, VOLCANO, SCHEDULER_PLUGINS, KUBE_BATCH, KUBERNETES)
}


def choose(
    value: str | None,
    *,
    kube_batch_object: str = "auto",
    scheduler_names: Sequence[str] = names.SCHEDULER_NAMES,
) -> GangBackend:
    """Return the backend that `--gang-scheduler-name=<value>` means; None is the absent flag.

    Other strings name a scheduler-plugins instance. `scheduler_names`: of the embedded allocator;
    its pods get the first. Raises ValueError for an unknown `kube_batch_object`.
    """
    if kube_batch_object not in KUBE_BATCH_OBJECTS:
        known = ", ".join(KUBE_BATCH_OBJECTS)
        raise ValueError(f'"{kube_batch_object}" is none of {known}')
    if value is None:
        value = EMBEDDED.name
    backend = BACKENDS.get(value.lower() or NONE.name)
    if backend is None:
        return dataclasses.replace(
            SCHEDULER_PLUGINS, scheduler_name=value, scheduler_names=(value,)
        )
    if backend.embedded:
        first, *others = scheduler_names
        return dataclasses.replace(backend, scheduler_name=first, scheduler_names=(first, *others))
    return KUBE_BATCH_OBJECTS[kube_batch_object] if backend is KUBE_BATCH else backend
