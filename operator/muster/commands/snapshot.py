# SPDX-License-Identifier: Apache-2.0
"""What an allocator would see that began to work now: the cluster as it is, read once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from muster import frameworks, gang
from muster.allocator import tracker
from muster.allocator.members import GangSettings, JobMembers, PodGroupMembers
from muster.allocator.usage import Usage
from muster.api import names
from muster.cluster import recording
from muster.cluster.assemble import assemble
from muster.cluster.gangs import GangInput, GangRules
from muster.cluster.queues import QueueInput
from muster.cluster.recording import Recording
from muster.kube.client import ApiError, Kube
from muster.scheduler.model import Snapshot
from muster.scheduler.policy import Policy
from muster.store.informers import Informers
from muster.store.store import NOBODY, Callbacks, Store

Look = tuple[Sequence[GangInput], Sequence[QueueInput], Snapshot]
"""What goes into a snapshot, and it."""
log = logging.getLogger(__name__)


def empty_store(
    scheduler_names: tuple[str, ...] = names.SCHEDULER_NAMES, callbacks: Callbacks = NOBODY
) -> Store:
    """Return a store for all kinds of jobs and all namespaces, in which nothing is known yet."""
    backend = gang.choose(None, scheduler_names=scheduler_names)
    return Store(backend, frameworks.FRAMEWORKS.values(), callbacks=callbacks)


async def observe(
    kube: Kube, rules: GangRules, hold: float, chosen: Policy, now: float
) -> tuple[Store, Recording]:
    """Read the cluster; return what is known of it, and what a cycle would see.

    `hold`: seconds for which the room of missing members is kept. Raises ApiError and connection
    errors.
    """
    store = empty_store(tuple(sorted(rules.scheduler_names)))
    informers = Informers(kube, store)
    await informers.read()
    await read_optional(informers)
    found, queues, snapshot = look(store, rules, hold, chosen, now)
    rules = rules.knowing(store.classes)
    return store, recording.take(store.columns, found, queues, rules, snapshot, chosen)


async def read_optional(informers: Informers) -> None:
    """Read once what few clusters need, as far as this account may. Raises connection errors."""
    for kind, permission in informers.store.backend.optional.items():
        try:
            await informers.read_granted(kind)
        except ApiError as error:
            log.warning("%s is not looked at: %s", permission.purpose, error.message)


def look(store: Store, rules: GangRules, hold: float, chosen: Policy, now: float) -> Look:
    """Return what a cycle sees of what is known."""
    rules = rules.knowing(store.classes)
    found = list(inputs(store, rules, hold, now))
    queues = Usage().counted(rules.queues(store.queues), now, chosen.half_life)
    # Nobody knows what was moved before, so that all may be.
    moves = () if chosen.moves else None
    return found, queues, assemble(store.columns, found, queues, now, moves)


def inputs(store: Store, rules: GangRules, hold: float, now: float) -> Iterator[GangInput]:
    """Yield all gangs of which something is to be placed, or has been."""
    for members in (JobMembers(store), PodGroupMembers(store)):
        members.begin(GangSettings(rules, hold))
        for key in sorted(members.gangs()):
            facts = members.facts(key, {}, now)
            if facts is not None:
                found = tracker.step(tracker.begin(facts), facts, now).input
                if found is not None:
                    yield found
