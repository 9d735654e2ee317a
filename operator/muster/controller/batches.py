# SPDX-License-Identifier: Apache-2.0
"""The batch Jobs that make a role's pod: held back and let go with their job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from muster.api import names
from muster.api.model import BatchView, Json
from muster.api.reasons import DeletionReason
from muster.controller import pods, policies
from muster.controller.model import Action, Create, Patch
from muster.controller.scope import Scope
from muster.controller.templates import COPIED_ON_RESUME, PodBuilder


def own(scope: Scope) -> tuple[BatchView, ...]:
    """Return the job's batch Jobs that are there and go on."""
    return tuple(
        batch
        for batch in scope.observed.batches
        if scope.owns(batch) and not (batch.deleting or batch.end)
    )


def suspensions(scope: Scope, doomed: Iterable[pods.Doomed]) -> Iterator[Patch]:
    """Yield what suspends those that may be deleted: their controller deletes their pods."""
    uids = {pod.uid for pod, _ in doomed}
    for batch in own(scope):
        if batch.uid in uids and not batch.suspended:
            yield Patch.of(batch, {"spec": {"suspend": True}})


def held_back(scope: Scope, builders: Mapping[str, PodBuilder]) -> Iterator[Create]:
    """Yield the creation of those that are not there, suspended, if they may be early."""
    late = scope.framework.gang.later(scope.job)
    for builder in builders.values():
        wanted = builder.replica.batch and builder.replica.type not in late
        if wanted and builder.name(0) not in scope.roster.names and scope.observed.refusal is None:
            yield Create.of(builder.batch_job(suspend=True))


def resumptions(scope: Scope, builders: Mapping[str, PodBuilder]) -> Iterator[Action]:
    """Yield what lets those go that may have their pod now, as the template is by now."""
    ending = {pod.uid for pod in scope.roster.own if pod.deleting}
    for builder, batch in _existing(scope, builders):
        nodes = pods.creatable(scope, builder)
        placed = nodes is None or builder.name(0) in nodes
        if not (batch.suspended and batch.uid not in ending and placed):
            continue
        wanted = builder.batch_job()
        template = wanted["spec"]["template"]
        if _is_outdated(scope, batch, wanted):
            # It cannot be changed: the next pass creates it again.
            found = (pod for pod in scope.roster.own if pod.uid == batch.uid)
            yield from pods.pod_deletions(pods.doomed(scope, found, DeletionReason.RECREATED))
            continue
        if batch.started:
            # Only one that has never started may change its template.
            yield Patch.of(batch, {"status": {"startTime": None}}, "status")
        spec = {key: template["spec"].get(key) for key in COPIED_ON_RESUME}
        # A merge keeps what it does not name.
        spec["nodeSelector"] = dict.fromkeys(batch.selector) | (spec["nodeSelector"] or {})
        change = {"template": {"metadata": template["metadata"], "spec": spec}, "suspend": False}
        yield Patch.of(batch, {"spec": change})


def limit_changes(scope: Scope, builders: Mapping[str, PodBuilder]) -> Iterator[Patch]:
    """Yield what gives the batch Jobs the limits that were changed after their creation."""
    wanted = scope.framework.roles.batch_spec(scope.job)
    for _, batch in _existing(scope, builders):
        changed = {
            key: wanted.get(key)
            for key, default in names.BATCH_LIMITS.items()
            if wanted.get(key, default) != batch.limits.get(key, default)
        }
        if batch.ttl is not None:
            # Of mpi-operator's: it could go before its end is written, and would run once more.
            changed["ttlSecondsAfterFinished"] = None
        if changed:
            yield Patch.of(batch, {"spec": changed})


def _existing(
    scope: Scope, builders: Mapping[str, PodBuilder]
) -> Iterator[tuple[PodBuilder, BatchView]]:
    """Yield each builder whose batch Job exists, with that batch Job."""
    there = {batch.name: batch for batch in own(scope)}
    for builder in builders.values():
        batch = there.get(builder.name(0)) if builder.replica.batch else None
        if batch is not None:
            yield builder, batch


def _is_outdated(scope: Scope, batch: BatchView, wanted: Json) -> bool:
    """Return whether a suspended batch Job has another template, which it cannot change.

    One that has pods keeps them and their logs, unless no scheduler would place its next pod.
    """
    spec = wanted["spec"]["template"]["spec"]
    # The API server sets this default.
    default = "default-scheduler"
    if (batch.scheduler or default) != (spec.get("schedulerName") or default):
        return True
    has_pods = any(pod.owner == batch.as_owner for pod in scope.observed.pods)
    current = wanted["metadata"]["annotations"][names.TEMPLATE_HASH]
    return not has_pods and batch.template_hash != current


def expiries(scope: Scope) -> Iterator[Action]:
    """Yield the patches that let batch Jobs of a finished job expire.

    Only after the job's end is written: otherwise a restarted operator would run them again.
    """
    ttl = policies.time_to_live(scope.job)
    for batch in scope.observed.batches:
        if scope.owns(batch) and not batch.deleting and ttl is not None and batch.ttl != ttl:
            yield Patch.of(batch, {"spec": {"ttlSecondsAfterFinished": ttl}})
