# SPDX-License-Identifier: Apache-2.0
"""What a newly started allocator would see, and jobs not yet submitted as gangs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from muster import frameworks, gang
from muster.allocator import tracker
from muster.allocator.members import GangSettings, JobMembers, PodGroupMembers
from muster.allocator.usage import Usage
from muster.api import edge, names
from muster.api.edge import mapping, text
from muster.api.jobs import MAX_REPLICAS
from muster.api.model import Json, Unreadable
from muster.cluster import recording
from muster.cluster.gangs import GangInput, GangRules
from muster.cluster.queues import QueueInput
from muster.cluster.recording import Recording
from muster.commands import render
from muster.commands.live import RefusedError
from muster.kube.client import Kube
from muster.scheduler.model import Snapshot
from muster.scheduler.policy import Policy
from muster.settings import Settings
from muster.store.informers import Informers
from muster.store.store import NOBODY, Callbacks, Store


def empty_store(
    scheduler_names: tuple[str, ...] = names.SCHEDULER_NAMES, callbacks: Callbacks = NOBODY
) -> Store:
    """Return a store for all kinds of jobs and all namespaces, in which nothing is known yet."""
    backend = gang.choose(None, scheduler_names=scheduler_names)
    return Store(backend, frameworks.FRAMEWORKS.values(), callbacks=callbacks)


async def observe(
    kube: Kube, settings: Settings, chosen: Policy, now: float
) -> tuple[Store, Recording]:
    """Return the cluster and what a cycle would see. Raises ApiError, connection errors."""
    store = empty_store(tuple(sorted(settings.scheduler_names)))
    informers = Informers(kube, store)
    await informers.read()
    found, queues, snapshot = look(store, settings, chosen, now)
    rules = GangRules.of(settings, store.classes)
    return store, recording.take(store.columns, found, queues, rules, snapshot, chosen)


def look(
    store: Store, settings: Settings, chosen: Policy, now: float
) -> tuple[Sequence[GangInput], Sequence[QueueInput], Snapshot]:
    """Return what a cycle sees of what is known."""
    rules = GangRules.of(settings, store.classes)
    found = list(inputs(store, rules, settings.member_hold, now))
    queues = Usage().counted(rules.queues(store.queues), now, chosen.half_life)
    # Nobody knows what was moved before, so that all may be.
    moves = () if chosen.moves else None
    return found, queues, store.columns.snapshot(found, queues, now, moves)


def inputs(store: Store, rules: GangRules, hold: float, now: float) -> Iterator[GangInput]:
    """Yield the gangs that wait or have pods. `hold`: the member hold in seconds."""
    for members in (JobMembers(store), PodGroupMembers(store)):
        members.begin(GangSettings(rules, hold))
        for key in sorted(members.gangs()):
            facts = members.facts(key, None, now)
            if facts is not None:
                found = tracker.step(tracker.begin(facts), facts, now).memory.input
                if found is not None:
                    yield found


def with_offers(
    recording: Recording, documents: Iterable[Json], namespace: str
) -> tuple[Recording, Sequence[str]]:
    """Return the recording with the documents' gangs, the youngest of all, and their keys.

    They replace gangs of equal keys. Only jobs, pods and PodGroups count. Raises RefusedError.
    """
    store = _known(recording)
    for number, document in enumerate(documents):
        for stored in _stored(render.named(document, number), namespace, recording.now):
            admission = store.quotas.admission(stored["metadata"]["namespace"])
            # A pod gets the defaults of its namespace, as from the API server.
            store.put(admission.admitted(stored) if stored["kind"] == "Pod" else stored)
    # Held for 0 s: a gang that never ran has lost no member.
    found = list(inputs(store, recording.rules, 0.0, recording.now))
    keys = [gang.key for gang in found]
    for job in store.jobs:
        if job.key not in keys:
            raise RefusedError(f"{job.key}: none of its pods is to be placed by this scheduler")
    if not keys:
        kinds = ", ".join((*frameworks.FRAMEWORKS, "Job", "Pod"))
        raise RefusedError(f"no pod for this scheduler in it; kinds are {kinds}")
    kept = [gang for gang in recording.gangs if gang.key not in keys]
    return replace(recording, gangs=(*kept, *found)), keys


def _known(recording: Recording) -> Store:
    """Return a store that knows of a recording what decides on pods before they are there."""
    names = tuple(sorted(recording.rules.scheduler_names))
    store = empty_store(names, Callbacks(unreadable=_refuse))
    store.priorities = dict(recording.rules.priorities)
    # Discovery is not asked: PodGroups in files are of Muster's own API.
    store.groups.use(gang.EMBEDDED.apis[0])
    recording.restore(store.columns)
    return store


def _refuse(about: Json, why: Unreadable) -> None:
    raise RefusedError(f"{about['kind']}/{about['metadata']['name']}: {why.reason}")


def _stored(document: Json, namespace: str, now: float) -> Iterator[Json]:
    """Yield the objects that come of a document, as the API server would store them."""
    kind = text(document.get("kind"))
    if kind in frameworks.FRAMEWORKS:
        served = render.as_served(frameworks.FRAMEWORKS[kind], document, namespace)
        for problem in render.problems(frameworks.FRAMEWORKS[kind], served):
            raise RefusedError(f"{kind}/{served['metadata'].get('name')}: {problem}")
        yield _with_identity(served, "", now)
    elif kind in ("Pod", "PodGroup"):
        yield _with_identity(document, namespace, now)
    elif kind == "Job":
        yield from _pods(_with_identity(document, namespace, now))


def _with_identity(written: Json, namespace: str, now: float) -> Json:
    document = edge.without_nulls(written)
    metadata = mapping(document.get("metadata"))
    name = text(metadata.get("name")) or "unnamed"
    where = namespace or text(metadata.get("namespace")) or "default"
    given = {
        "name": name,
        "namespace": where,
        # A pod has none before it is there: until then its ephemeral volumes have no claims.
        "uid": "" if document.get("kind") == "Pod" else f"{document.get('kind')}/{where}/{name}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": edge.format_time(now),
    }
    return {**document, "metadata": {**metadata, **given}}


def _pods(job: Json) -> Iterator[Json]:
    """Yield the pods with which a batch Job begins."""
    spec, metadata = mapping(job.get("spec")), job["metadata"]
    at_once = edge.integer(spec.get("parallelism"))
    count = 1 if at_once is None else at_once
    completions = edge.integer(spec.get("completions"))
    template = mapping(spec.get("template"))
    if (total := count if completions is None else min(count, completions)) > MAX_REPLICAS:
        detail = f"Invalid value: {total}: simulate takes at most {MAX_REPLICAS} pods of a Job"
        raise RefusedError(f"Job/{metadata['name']}: spec.parallelism: {detail}")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    owner |= {"name": metadata["name"], "uid": metadata["uid"]}
    for index in range(total):
        own: Mapping[str, Any] = {
            **mapping(template.get("metadata")),
            "name": f"{metadata['name']}-{index}",
            "namespace": metadata["namespace"],
            "uid": "",
            "resourceVersion": "1",
            "creationTimestamp": metadata["creationTimestamp"],
            "ownerReferences": [owner],
        }
        labels = {**mapping(own.get("labels")), names.BATCH_JOB_NAME: metadata["name"]}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**own, "labels": labels},
            "spec": dict(mapping(template.get("spec"))),
        }
