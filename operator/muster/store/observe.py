# SPDX-License-Identifier: Apache-2.0
"""What is known of one job and all that belongs to it, as the controller core wants to see it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from muster.api import names
from muster.api.model import BatchView, Job, ObjectView
from muster.controller import meaning
from muster.controller.model import Observed
from muster.frameworks.base import Framework
from muster.kube import resources
from muster.kube.resources import Resource
from muster.store import ondemand
from muster.store.ondemand import Unwatched
from muster.store.store import Store


def observe(
    store: Store, unwatched: Unwatched, job: Job, framework: Framework, now: float
) -> Observed:
    """Return what the watches show, and the strangers that hold names which the job wants.

    Without companions that nobody watches, and without what an allocator knows of the gang.
    """

    def children(kind: str, wanted: Sequence[str]) -> tuple[ObjectView, ...]:
        found = store.children.of(job, kind, wanted)
        return (*found, *unwatched.children(job, kind, wanted))

    def companions() -> Iterator[ObjectView]:
        made = meaning.as_made(job, framework, there.values())
        for part in framework.companions:
            if part.kind not in ondemand.KINDS and part.wanted(made):
                name = part.name(job)
                yield from (v for v in children(part.kind, (name,)) if v.name == name)
        for kind in store.backend.companions:
            yield from unwatched.children(job, kind, (names.flat(job.name),))

    pods = list(job.pod_names(job.replicas))
    roles = [role for role in job.replicas if role.batch] if framework.roles.batch else ()
    batches = children(names.BATCH_JOB, tuple(job.pod_names(roles))) if roles else ()
    scalers = (names.flat(job.name),) if framework.autoscaler else ()
    there = {pod.uid: pod for pod in store.children.pods(job, pods)}
    lost, loses_at = store.away.look(job, there, now)
    there |= lost
    own = {pod.name: pod for pod in there.values() if pod.owner == job.as_owner}
    losses, failed = store.losses(job, own, now, deletes=True)
    there |= {pod.uid: pod for pod in failed.values()}
    return Observed(
        job=job,
        now=now,
        pods=(*there.values(), *unwatched.pods(job, pods)),
        loses_at=None if loses_at == math.inf else loses_at,
        losses=losses,
        services=children("Service", pods),
        configs=children("ConfigMap", tuple(framework.pods.configs(job, ""))),
        batches=tuple(view for view in batches if isinstance(view, BatchView)),
        companions=tuple(companions()),
        autoscalers=children(names.AUTOSCALER, scalers),
        group=store.group(job),
        refusal=store.jobs.refusal(job, now),
        autoscaler_refusal=store.jobs.refusal(job, now, of_autoscaler=True),
    )


def resource(store: Store, api_version: str, kind: str) -> Resource:
    """Return where objects that a job is made of live, the job itself included."""
    key, known = (api_version, kind), resources.OF_KIND.get(kind)
    if known is not None and known.api_version == api_version:
        return known
    group, _, version = api_version.rpartition("/")
    framework = store.frameworks.get(kind)
    if framework is not None:
        return Resource(group, version, framework.plural)
    rows = (api for api in store.backend.apis if (api.api_version, api.kind) == key)
    return next(rows, Resource(group, version, f"{kind.lower()}s"))
