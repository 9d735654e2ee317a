# SPDX-License-Identifier: Apache-2.0
"""Jobs that are not submitted yet, as the gangs that they would be."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from muster.api import edge, names
from muster.api.edge import mapping, text
from muster.api.model import Job, Json
from muster.frameworks import FRAMEWORKS
from muster.gang import EMBEDDED
from muster.runtime import observe, render
from muster.runtime.kube import Kube
from muster.runtime.recording import Recording


class OfferError(ValueError):
    """A job that could not run anywhere; the message says why."""


def with_offers(
    recording: Recording, documents: Iterable[Json], namespace: str
) -> tuple[Recording, Sequence[str]]:
    """Return the recording with the gangs of these documents, the youngest of all, and their keys.

    Jobs of all kinds, batch Jobs, pods and PodGroups count, other documents do not; a gang that
    was there under the same key is replaced. Raises OfferError.
    """
    rules = recording.rules
    cache = observe.empty_cache(cast("Kube", None), tuple(sorted(rules.scheduler_names)))
    cache.priorities = dict(rules.priorities)
    cache.groups.use(EMBEDDED.apis[0])
    for node in recording.nodes:
        cache.columns.node_changed(None, node)
    for quota in recording.quota_views():
        cache.quotas.quota_changed(None, quota)
    for limits in recording.ranges:
        cache.quotas.limits_changed(None, limits)
    for document in documents:
        for stored in _stored(document, namespace, recording.now):
            cache.put(stored)
    found = list(observe.inputs(cache, rules, 0.0, recording.now))
    keys = [gang.key for gang in found]
    _check(cache.jobs, keys)
    kept = [gang for gang in recording.gangs if gang.key not in keys]
    return dataclasses.replace(recording, gangs=(*kept, *found)), keys


def _check(jobs: Iterable[Job], keys: Sequence[str]) -> None:
    for job in jobs:
        if job.key not in keys:
            raise OfferError(f"{job.key}: none of its pods is to be placed by this scheduler")
    if not keys:
        kinds = ", ".join((*FRAMEWORKS, "Job", "Pod"))
        raise OfferError(f"no pod for this scheduler in it; kinds are {kinds}")


def _stored(document: Json, namespace: str, now: float) -> Iterator[Json]:
    """Yield the objects that come of a document, as the API server would store them."""
    kind = text(document.get("kind"))
    if kind in FRAMEWORKS:
        served = render.as_served(FRAMEWORKS[kind], document, namespace)
        for problem in render.problems(FRAMEWORKS[kind], served):
            raise OfferError(f"{kind}/{served['metadata'].get('name')}: {problem}")
        yield _with_identity(served, "", now)
    elif kind in ("Pod", "PodGroup"):
        yield _with_identity(document, namespace, now)
    elif kind == "Job":
        yield from _pods(_with_identity(document, namespace, now))


def _with_identity(document: Json, namespace: str, now: float) -> Json:
    metadata = mapping(document.get("metadata"))
    name = text(metadata.get("name")) or text(metadata.get("generateName")) or "unnamed"
    where = namespace or text(metadata.get("namespace")) or "default"
    given = {
        "name": name,
        "namespace": where,
        "uid": f"{document.get('kind')}/{where}/{name}",
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
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    owner |= {"name": metadata["name"], "uid": metadata["uid"]}
    for index in range(count if completions is None else min(count, completions)):
        own: Mapping[str, Any] = {
            **mapping(template.get("metadata")),
            "name": f"{metadata['name']}-{index}",
            "namespace": metadata["namespace"],
            "uid": f"{metadata['uid']}/{index}",
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
