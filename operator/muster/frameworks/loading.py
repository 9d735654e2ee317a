# SPDX-License-Identifier: Apache-2.0
"""A job's document in, the job out: keys normalised, old fields folded in, defaults applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from muster.api import names, status
from muster.api.edge import integer, mapping, parse_time, text
from muster.api.model import Job, Json, Notice, Problem, Replica, RunPolicy, SchedulingPolicy
from muster.frameworks import validation
from muster.frameworks.base import Framework


def load(
    framework: Framework, document: object, domain: str = "", home: str = ""
) -> Job:
    """Return the job that a document of this kind describes, by the rules that are its own.

    Never raises: what is wrong with it stands in `problems`, and what cannot be read is left
    out. `domain` is the operator's cluster domain, `home` its own namespace, in which no job may
    be; empty where it runs in none.
    """
    raw = mapping(document)
    framework = framework.chosen(raw)
    meta, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    policy, overruled = fold(framework.api.old_policy, spec)
    roles = mapping(spec.get(framework.spec_field))
    readable = _readable(framework, roles)
    job = Job(
        kind=framework.kind,
        api_version=framework.api_version,
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        generation=integer(meta.get("generation")) or 0,
        created=parse_time(meta.get("creationTimestamp")) or 0.0,
        deleting=meta.get("deletionTimestamp") is not None,
        labels=_texts(meta.get("labels")),
        annotations=_texts(meta.get("annotations")),
        replicas=tuple(_replica(framework, type_, role) for type_, role in readable.items()),
        run_policy=_run_policy(policy),
        options={key: _option(spec.get(key), d) for key, d in framework.spec.options.items()},
        status=status.read(raw.get("status")),
        notices=tuple(_overruled(overruled)),
    )
    found = (*_out_of_place(job, home), *_problems(framework, spec, job, domain))
    own = () if found else framework.spec.notices(job)
    return replace(job, problems=found, notices=(*job.notices, *own))


def fold(fields: Iterable[str], spec: Mapping[str, Any]) -> tuple[Json, tuple[str, ...]]:
    """Return the spec's `runPolicy` with these of its top-level fields, and those it overrules.

    A field is overruled only if the run policy says something else.
    """
    written = mapping(spec.get("runPolicy"))
    policy = {name: value for name, value in written.items() if value is not None}
    old = {name: spec[name] for name in fields if spec.get(name) is not None}
    ignored = tuple(name for name in old if policy.get(name, old[name]) != old[name])
    return old | policy, ignored


def _problems(
    framework: Framework, spec: Mapping[str, Any], job: Job, domain: str
) -> Iterator[Problem]:
    written = tuple(validation.of_document(framework, spec))
    own = tuple(framework.spec.check(spec, job))
    yield from own
    if own and framework.spec.first_breach:
        return
    reported = {problem.path for problem in own}
    others = (*validation.of_name(job), *written, *validation.of_values(framework, job))
    yield from (problem for problem in others if problem.path not in reported)
    roles = spec.get(framework.spec_field)
    # A kind's own rules may count on every role: one that could not be read is not in the job.
    if not own and isinstance(roles, dict) and len(roles) == len(job.replicas):
        yield from framework.spec.validate(job, domain)


def _out_of_place(job: Job, home: str) -> Iterator[Problem]:
    # Its pods could run under the operator's own account, and so do what they like everywhere.
    if home and job.namespace == home:
        said = f"Forbidden: {home} is the operator's own namespace; use another one for jobs"
        yield Problem("metadata.namespace", said)


def _overruled(fields: Iterable[str]) -> Iterator[Notice]:
    for field in fields:
        message = f"spec.{field} is ignored because spec.runPolicy.{field} is set"
        yield Notice("Warning", names.Event.LEGACY_FIELD_IGNORED, message)


def _readable(framework: Framework, roles: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the roles whose template can be trusted, in canonical order."""
    found: dict[str, Mapping[str, Any]] = {}
    for key, role in roles.items():
        type_ = validation.canonical(framework, key)
        if type_ and not any(validation.unreadable(framework, type_, role)):
            found[type_] = role
    return {type_: found[type_] for type_ in framework.api.types if type_ in found}


def _replica(framework: Framework, type_: str, role: Mapping[str, Any]) -> Replica:
    replicas = integer(role.get("replicas"))
    policy = framework.roles.restart_policies.get(type_, framework.roles.restart_policy)
    return Replica(
        type=type_,
        replicas=framework.roles.counts.get(type_, 1) if replicas is None else replicas,
        restart_policy=text(role.get("restartPolicy")) or policy,
        template=role["template"],
        numbered=type_ not in framework.roles.unnumbered,
        batch=type_ in framework.roles.batch,
    )


def _run_policy(raw: Mapping[str, Any]) -> RunPolicy:
    managed_by = raw.get("managedBy")
    return RunPolicy(
        clean_pod_policy=text(raw.get("cleanPodPolicy")) or names.CleanPodPolicy.NONE,
        ttl_seconds_after_finished=integer(raw.get("ttlSecondsAfterFinished")),
        active_deadline_seconds=integer(raw.get("activeDeadlineSeconds")),
        backoff_limit=integer(raw.get("backoffLimit")),
        suspend=raw.get("suspend") is True,
        managed_by=None if managed_by is None else text(managed_by),
        scheduling=_scheduling(mapping(raw.get("schedulingPolicy"))),
    )


def _scheduling(raw: Mapping[str, Any]) -> SchedulingPolicy:
    asked = raw.get("minResources")
    return SchedulingPolicy(
        min_available=integer(raw.get("minAvailable")),
        queue=text(raw.get("queue")),
        min_resources=None if asked is None else {k: str(v) for k, v in mapping(asked).items()},
        priority_class=text(raw.get("priorityClass")),
        schedule_timeout_seconds=integer(raw.get("scheduleTimeoutSeconds")),
    )


def _texts(value: object) -> dict[str, str]:
    return {key: item for key, item in mapping(value).items() if isinstance(item, str)}


def _option(value: object, default: object) -> object:
    """Return the value if it has the default's type; any value is right for a default of None."""
    return value if default is None or isinstance(value, type(default)) else default
