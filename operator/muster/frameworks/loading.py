# SPDX-License-Identifier: Apache-2.0
"""Jobs from documents: keys normalized, old fields folded in, defaults applied, all problems."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Final

from muster.api import leasts, names, podtemplate, quantity, schema, status, topology
from muster.api.edge import integer, mapping, parse_time, sequence, text
from muster.api.jobs import MAX_REPLICAS
from muster.api.model import (
    SHARED_ABOVE,
    Job,
    Json,
    Notice,
    Problem,
    Replica,
    RunPolicy,
    SchedulingPolicy,
    packed,
)
from muster.frameworks import misspelt
from muster.frameworks.base import Framework, beyond, negative, unsupported

MAX_PROBLEMS: Final = 1000
"""Problems of a job that are listed. A document of 3 MB may have a million."""
_MAX_BYTES: Final = 1_572_864 - 65_536
"""Of spec and uids: what etcd takes in one request, less metadata, conditions and verdict."""
_UID_BYTES: Final = 39
_SMALL: Final = 500
"""The status of a job with so many pods is never too large."""
_OVERRULED: Final = "spec.{0} is ignored because spec.runPolicy.{0} is set"
_FINALIZERS: Final = (
    "spec.{}[{}].template.metadata.finalizers is ignored: pods that nobody lets go would hold "
    "their nodes and their names for ever"
)

_NOT_SCALED: Final = (
    "spec.elasticPolicy.metrics is ignored because MultiKueue dispatched the job: Kueue would "
    "suspend the job once its replicas differ from those of its Workload"
)


@dataclass(frozen=True, slots=True)
class Site:
    """The operator's settings by which jobs are read."""

    domain: str = ""
    """The cluster domain."""
    home: str = ""
    """The operator's own namespace, in which no job may be; empty: it runs in none."""
    shared_above: int = SHARED_ABOVE
    """The most pods of a job that each carry what all must know."""
    max_replicas: int = MAX_REPLICAS
    """A job of more pods has a problem and 0 replicas of each role."""


DEFAULT_SITE: Final = Site()


def load(
    framework: Framework,
    document: object,
    site: Site = DEFAULT_SITE,
    operators: Container[str] = (),
) -> Job:
    """Return the job that a document describes. Never raises: errors stand in `problems`.

    What cannot be read is left out. `operators`: those that made children of the job.
    """
    raw = mapping(document)
    framework = framework.chosen(raw, operators)
    meta, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    annotations = _texts(meta.get("annotations"))
    policy, overruled = fold(framework.api.old_policy, spec)
    readable, written = _roles(framework, spec)
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
        annotations=annotations,
        replicas=tuple(_replica(framework, type_, role) for type_, role in readable.items()),
        run_policy=_run_policy(policy, leasts.readable(annotations)),
        options={key: _option(spec.get(key), d) for key, d in framework.spec.options.items()},
        status=status.read(raw.get("status")),
        service=_service(framework, meta),
        shared_above=site.shared_above,
        notices=(
            *_ignored(names.Event.LEGACY_FIELD_IGNORED, map(_OVERRULED.format, overruled)),
            *_ignored(names.Event.FINALIZERS_IGNORED, _held(framework, readable)),
        ),
    )
    own: Iterable[Notice] = ()
    excess: tuple[Problem, ...] = ()
    asked = sum(max(replica.replicas, 0) for replica in job.replicas)
    if asked > site.max_replicas:
        detail = f"must be less than or equal to {site.max_replicas} pods in all"
        excess = (Problem(f"spec.{framework.spec_field}", f"Invalid value: {asked}: {detail}"),)
    try:
        wrong = _problems(framework, spec, job, site.domain, written, excess)
        found = tuple(islice(wrong, MAX_PROBLEMS))
        if site.home and job.namespace == site.home:
            # Its pods could use the operator's service account, with all its permissions.
            said = (
                f"Forbidden: {site.home} is the operator's own namespace; use another one for jobs"
            )
            found = (Problem("metadata.namespace", said), *found)
        own = () if found else tuple(_own_notices(framework, job, site.domain))
    except Exception as error:  # noqa: BLE001 -- what its kind's rules did not foresee, whatever
        found = (Problem("", f"cannot be read: {type(error).__name__}: {error}"),)
    if excess:
        # Whatever enumerates the pods of a job must find none: the number has no bound.
        job = replace(job, replicas=tuple(replace(role, replicas=0) for role in job.replicas))
    told = (*job.notices, *own, *misspelt.notices(job))
    return replace(job, problems=found, notices=told)


def _ignored(reason: names.Event, messages: Iterable[str]) -> Iterator[Notice]:
    return (Notice("Warning", reason, message) for message in messages)


def _own_notices(framework: Framework, job: Job, domain: str) -> Iterator[Notice]:
    yield from framework.spec.notices(job)
    made = framework.autoscaler
    if made and job.is_multikueue_copy and made(job) is not None:
        yield Notice("Warning", names.Event.AUTOSCALER_IGNORED, _NOT_SCALED)
    listed = ", ".join(dict.fromkeys(_overwritten(framework, job, domain)))
    if listed:
        text_ = f"Muster sets {listed} in each pod; their values in the pod templates are ignored"
        yield Notice("Warning", names.Event.ENVIRONMENT_OVERWRITTEN, text_)


def _overwritten(framework: Framework, job: Job, domain: str) -> Iterator[str]:
    """Yield the variables of the templates that get another value in the pods."""
    for replica in job.replicas:
        containers = replica.template["spec"]["containers"]
        if not any(container.get("env") for container in containers):
            continue
        environment = framework.pods.environment(job, replica, domain)
        # The first pod of a role may have variables that the others have not.
        entries = {e["name"]: e for index in (1, 0) for e in environment.entries(index)}
        for index in environment.targets(containers):
            written = containers[index].get("env") or ()
            yield from (e["name"] for e in written if entries.get(e["name"], e) != e)


def _held(framework: Framework, roles: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for type_, role in roles.items():
        if mapping(role["template"].get("metadata")).get("finalizers"):
            yield _FINALIZERS.format(framework.spec_field, type_)


def fold(fields: Iterable[str], spec: Mapping[str, Any]) -> tuple[Json, tuple[str, ...]]:
    """Return the spec's `runPolicy` with these of its top-level fields, and those it overrules."""
    written = mapping(spec.get("runPolicy"))
    policy = {name: value for name, value in written.items() if _given(name, value)}
    old = {name: spec[name] for name in fields if _given(name, spec.get(name))}
    ignored = tuple(name for name in old if policy.get(name, old[name]) != old[name])
    return old | policy, ignored


def _given(name: str, value: object) -> bool:
    """Say whether a field of the policy says anything; an empty cleanPodPolicy never did."""
    return bool(value) if name == "cleanPodPolicy" else value is not None


def _problems(
    framework: Framework,
    spec: Mapping[str, Any],
    job: Job,
    domain: str,
    written: Sequence[Problem],
    excess: Sequence[Problem],
) -> Iterator[Problem]:
    """Yield all problems of a job: `written` by its roles, `excess` by the number of its pods."""
    own = tuple(framework.spec.check(spec, job))
    yield from own
    if own and framework.spec.first_breach:
        return
    reported = {problem.path for problem in own}
    hosts = _host_names(framework, job, domain or "cluster.local")
    others = chain(
        _name_problems(framework, job), written, excess, _value_problems(framework, job), hosts
    )
    yield from (problem for problem in others if problem.path not in reported)
    roles = spec.get(framework.spec_field)
    # A kind's own rules may count on every role: one that could not be read is not in the job.
    readable = isinstance(roles, dict) and len(roles) == len(job.replicas)
    # These rules may enumerate the pods of the job.
    if readable and not own and not excess:
        yield from framework.spec.validate(job, domain)
        yield from _too_large(framework, spec, job)


def _too_large(framework: Framework, spec: Mapping[str, Any], job: Job) -> Iterator[Problem]:
    """Yield that a restart of all pods would not fit into the status, which lists their uids."""
    if job.total > _SMALL:
        most = (_MAX_BYTES - len(json.dumps(spec))) // _UID_BYTES
        if job.total > most:
            detail = (
                f"Invalid value: {job.total}: must be less than or equal to {max(most, 0)} pods: "
                "the status names each that is restarted, and with it the job would be larger "
                "than the API server takes"
            )
            yield Problem(f"spec.{framework.spec_field}", detail)


def _roles(
    framework: Framework, spec: Mapping[str, Any]
) -> tuple[dict[str, Mapping[str, Any]], list[Problem]]:
    """Return the readable roles, in canonical order, and what is wrong with all roles."""
    path, roles = f"spec.{framework.spec_field}", spec.get(framework.spec_field)
    wrong, found, seen = list[Problem](), dict[str, Mapping[str, Any]](), dict[str, str]()
    if not (isinstance(roles, dict) and roles):
        detail = "must have at least 1 replica type" if roles == {} else "must be required"
        wrong = [Problem(path, f"Required value: {detail}")]
    for key, role in mapping(roles).items():
        more: Iterable[Problem] = ()
        if type_ := canonical(framework, key):
            unread = tuple(islice(_unreadable(framework, type_, role), MAX_PROBLEMS))
            if not unread:
                found[type_] = role
            more = chain(unread, _incomplete(framework, type_, role))
            if type_ in seen:
                detail = f'Duplicate value: "{key}": means the same as "{seen[type_]}"'
                more = (Problem(f"{path}[{key}]", detail),)
            seen.setdefault(type_, str(key))
        elif len(wrong) < MAX_PROBLEMS:
            more = (unsupported(f"{path}[{key}]", key, sorted(framework.api.types)),)
        wrong += islice(more, MAX_PROBLEMS - len(wrong))
    return {type_: found[type_] for type_ in framework.api.types if type_ in found}, wrong


def _replica(framework: Framework, type_: str, role: Mapping[str, Any]) -> Replica:
    replicas = integer(role.get("replicas"))
    policy = framework.roles.restart_policies.get(type_, framework.roles.restart_policy)
    return Replica(
        type=type_,
        replicas=framework.roles.counts.get(type_, 1) if replicas is None else replicas,
        restart_policy=text(role.get("restartPolicy")) or policy,
        packed=packed(role["template"]),
        numbered=type_ not in framework.roles.unnumbered,
        batch=type_ in framework.roles.batch,
    )


def _run_policy(raw: Mapping[str, Any], by_role: Mapping[str, int]) -> RunPolicy:
    managed_by = raw.get("managedBy")
    return RunPolicy(
        clean_pod_policy=text(raw.get("cleanPodPolicy")) or names.CleanPodPolicy.NONE,
        ttl_seconds_after_finished=integer(raw.get("ttlSecondsAfterFinished")),
        active_deadline_seconds=integer(raw.get("activeDeadlineSeconds")),
        backoff_limit=integer(raw.get("backoffLimit")),
        suspend=raw.get("suspend") is True,
        managed_by=None if managed_by is None else text(managed_by),
        scheduling=_scheduling(mapping(raw.get("schedulingPolicy")), by_role),
    )


def _scheduling(raw: Mapping[str, Any], by_role: Mapping[str, int]) -> SchedulingPolicy:
    asked, least = raw.get("minResources"), integer(raw.get("minAvailable"))
    return SchedulingPolicy(
        min_available=sum(by_role.values()) if by_role and least is None else least,
        leasts=by_role,
        queue=text(raw.get("queue")),
        min_resources=None if asked is None else {k: str(v) for k, v in mapping(asked).items()},
        priority_class=text(raw.get("priorityClass")),
        schedule_timeout_seconds=integer(raw.get("scheduleTimeoutSeconds")),
    )


def _service(framework: Framework, meta: Mapping[str, Any]) -> str:
    asked = mapping(meta.get("annotations")).get(names.SERVICE) == names.SERVICE_OF_JOB
    one = framework.pods.one_service or (asked and framework.pods.services)
    return names.flat(text(meta.get("name"))) if one else ""


def _texts(value: object) -> dict[str, str]:
    return {key: item for key, item in mapping(value).items() if isinstance(item, str)}


def _option(value: object, default: object) -> object:
    """Return the value if it has the default's type; any value is right for a default of None."""
    return value if default is None or isinstance(value, type(default)) else default


def _object(required: tuple[str, ...] = (), **fields: Json) -> Json:
    kept = {"x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "properties": fields, "required": required, **kept}


def _list(item: Json) -> Json:
    return {"type": "array", "items": item}


_TEXT: Final[Json] = {"type": "string"}
_OBJECTS: Final = _list(_object())
_TEMPLATE: Final = _object(
    metadata=_object(labels=_object(), annotations=_object(), finalizers=_list(_TEXT)),
    spec=_object(
        schedulerName=_TEXT,
        priorityClassName=_TEXT,
        schedulingGates=_OBJECTS,
        volumes=_OBJECTS,
        dnsConfig=_object(),
        containers=_list(
            _object(
                name=_TEXT,
                volumeMounts=_OBJECTS,
                env=_list(_object(("name",), name=_TEXT)),
                ports=_list(
                    _object(("containerPort",), containerPort={"type": "integer"}, name=_TEXT)
                ),
            )
        ),
    ),
)
"""The schema of those fields of a pod template that a job's pods are made of."""


def canonical(framework: Framework, key: object) -> str | None:
    """Return the replica type that a key means in any case, or None."""
    wanted = str(key).lower()
    return next((type_ for type_ in framework.api.types if type_.lower() == wanted), None)


def _name_problems(framework: Framework, job: Job) -> Iterator[Problem]:
    """Yield problems of the name, alone or as the start of service and host names (DNS labels)."""
    reasons = names.dns1035(job.name)
    if reasons and not framework.pods.one_service:
        detail = f'Invalid value: "{job.name}": should match: {",".join(reasons)}'
        yield Problem("metadata.name", detail)
        return
    if not (framework.pods.services or framework.pods.one_service):
        return
    # As upstream, which names the last worker of an MPIJob, not its launcher.
    roles = sorted(job.replicas, key=lambda role: not role.numbered)
    children = [role.pod_name(job.name, max(role.replicas - 1, 0)) for role in roles]
    longest = max(children, key=len, default=job.name)
    if reasons := names.dns1035(longest):
        said = "will not able to create pod and service with invalid DNS label"
        detail = f'Invalid value: "{job.name}": {said} "{longest}": {", ".join(reasons)}'
        yield Problem("metadata.name", detail)


def _unreadable(framework: Framework, type_: str, role: object) -> Iterator[Problem]:
    """Yield what forbids reading one role."""
    path, spec = f"spec.{framework.spec_field}[{type_}].template", part(role, "spec")
    if not _containers(role):
        yield Problem(f"{path}.spec.containers", "Required value: must be specified")
        return
    yield from schema.problems(_TEMPLATE, mapping(role)["template"], path)
    # The amounts of thousands of containers take seconds to parse.
    if any(problem.path.endswith(("spec", "containers")) for problem in _too_many(path, role)):
        return
    try:
        podtemplate.requests(dict(spec))
    except (ValueError, TypeError, AttributeError) as error:
        where = podtemplate.unreadable_part(dict(spec))
        yield Problem(f"{path}.spec{where}", f"Invalid value: {error}")


def part(role: object, name: str) -> Mapping[str, Any]:
    """Return `metadata` or `spec` of a role's template, empty if it is no object."""
    return mapping(mapping(mapping(role).get("template")).get(name))


def _containers(role: object) -> list[dict[str, Any]]:
    """Return the containers of a role's template; none if they are not what they must be."""
    containers = sequence(part(role, "spec").get("containers"))
    return containers if all(isinstance(c, dict) for c in containers) else []


def _incomplete(framework: Framework, type_: str, role: object) -> Iterator[Problem]:
    path = f"spec.{framework.spec_field}[{type_}].template"
    containers = _containers(role)
    yield from _too_many(path, role)
    for where, error in podtemplate.too_many_terms(dict(part(role, "spec"))):
        yield Problem(f"{path}.spec.{where}", error)
    for index, container in enumerate(containers):
        if not text(container.get("image")):
            where = f"{path}.spec.containers[{index}].image"
            yield Problem(where, "Required value: must be required")
    names_ = [container.get("name") for container in containers]
    if names_ and framework.pods.container and framework.pods.container not in names_:
        name = framework.pods.container_shown or framework.pods.container
        detail = f"must have at least one container with name {name}"
        yield Problem(f"{path}.spec.containers", f"Required value: {detail}")


MOST_IN_A_POD: Final = 64
"""Containers of a template, and resources that they name: no pod that runs anywhere has more."""
MOST_LABELS: Final = 256
"""Labels, ports, volumes and nodeSelector entries of a template: they are kept of each pod."""


def _too_many(path: str, role: object) -> Iterator[Problem]:
    """Yield what is not to be counted, of which there is so much."""
    spec = part(role, "spec")
    every = [mapping(c) for kind in podtemplate.LISTS for c in sequence(spec.get(kind))]
    parts = [mapping(holder.get("resources")) for holder in (*every, spec)]
    resources = {
        r for part in parts for kind in ("requests", "limits") for r in mapping(part.get(kind))
    }
    ports = [port for container in every for port in sequence(container.get("ports"))]
    labels = mapping(part(role, "metadata").get("labels"))
    for where, found, most, what in (
        (".containers", every, MOST_IN_A_POD, "containers, with those of initContainers"),
        ("", resources, MOST_IN_A_POD, "resources"),
        (".containers", ports, MOST_LABELS, "ports"),
        (".volumes", sequence(spec.get("volumes")), MOST_LABELS, "volumes"),
        (".nodeSelector", mapping(spec.get("nodeSelector")), MOST_LABELS, "entries"),
        (".metadata.labels", labels, MOST_LABELS, "labels"),
    ):
        if len(found) > most:
            whole = f"{path}{where if what == 'labels' else f'.spec{where}'}"
            yield Problem(whole, f"Too many: {len(found)}: must have at most {most} {what}")


def _value_problems(framework: Framework, job: Job) -> Iterator[Problem]:
    """Yield values outside their sets and numbers below zero."""
    policy = job.run_policy
    if policy.managed_by is not None and policy.managed_by not in framework.managers:
        yield unsupported(_MANAGED_BY, policy.managed_by, sorted(framework.managers))
    if policy.clean_pod_policy not in set(names.CleanPodPolicy):
        path = "spec.runPolicy.cleanPodPolicy"
        yield unsupported(path, policy.clean_pod_policy, sorted(names.CleanPodPolicy))
    for replica in job.replicas:
        path = f"spec.{framework.spec_field}[{replica.type}]"
        yield from negative(f"{path}.replicas", replica.replicas)
        if replica.type in framework.api.single and replica.replicas != 1:
            yield Problem(f"{path}.replicas", "Forbidden: must be 1")
        if replica.restart_policy not in (known := framework.roles.policies):
            yield unsupported(f"{path}.restartPolicy", replica.restart_policy, known)
    yield from _annotations(framework, job)
    for name, value in (
        ("ttlSecondsAfterFinished", policy.ttl_seconds_after_finished),
        ("activeDeadlineSeconds", policy.active_deadline_seconds),
        ("backoffLimit", policy.backoff_limit),
        ("schedulingPolicy.minAvailable", policy.scheduling.min_available),
    ):
        yield from negative(f"spec.runPolicy.{name}", value)
    for name, amount in (policy.scheduling.min_resources or {}).items():
        try:
            quantity.units(name, amount)
        except ValueError as error:
            detail = f'Invalid value: "{amount}": {error}'
            yield Problem(f"spec.runPolicy.schedulingPolicy.minResources[{name}]", detail)


def _annotations(framework: Framework, job: Job) -> Iterator[Problem]:
    path = f"spec.{framework.spec_field}[{{}}].template.metadata"
    parts = [("metadata", job.annotations)]
    parts += [(path.format(r.type), r.annotations) for r in job.replicas]
    for where, given in parts:
        for key, wrong in topology.problems(given):
            yield Problem(f"{where}.annotations[{key}]", wrong)
    asked = job.annotations.get(names.SERVICE, names.SERVICE_OF_JOB)
    if asked != names.SERVICE_OF_JOB:
        where = f"metadata.annotations[{names.SERVICE}]"
        yield unsupported(where, asked, (names.SERVICE_OF_JOB,))
    for wrong in _least_problems(job):
        yield Problem(f"metadata.annotations[{names.MIN_AVAILABLE}]", wrong)


LONGEST_HOST_NAME: Final = 64
"""Characters that Linux grants a host name (HOST_NAME_MAX)."""


def _host_names(framework: Framework, job: Job, domain: str) -> Iterator[Problem]:
    """Yield what templates say of the names by which one service for all pods finds them."""
    if not (framework.pods.services and job.service):
        return
    for replica in job.replicas:
        path = f"spec.{framework.spec_field}[{replica.type}].template.spec"
        spec, last = replica.template["spec"], max(replica.replicas - 1, 0)
        for field in ("hostname", "subdomain"):
            if spec.get(field):
                asked = f"{names.SERVICE}: {names.SERVICE_OF_JOB}"
                yield Problem(
                    f"{path}.{field}",
                    f"Forbidden: annotation {asked} gives each pod its own; take one of them away",
                )
        host = f"{replica.pod_name(job.name, last)}{beyond(job, domain)}"
        if spec.get("setHostnameAsFQDN") is True and len(host) > LONGEST_HOST_NAME:
            detail = (
                f'Invalid value: true: the host name would be "{host}" and Linux allows '
                f"{LONGEST_HOST_NAME} characters; use shorter names"
            )
            yield Problem(f"{path}.setHostnameAsFQDN", detail)


def _least_problems(job: Job) -> Iterator[str]:
    try:
        asked = leasts.read(job.annotations)
    except ValueError as error:
        yield str(error)
        return
    there = {replica.role: replica for replica in job.replicas}
    for role, least in asked.items():
        if role not in there:
            yield schema.unsupported(role, (one.type for one in job.replicas))
        elif least > there[role].replicas:
            yield (
                f"Invalid value: {least}: must be less than or equal to the "
                f"{there[role].replicas} replicas of {there[role].type}"
            )
    total, whole = sum(asked.values()), job.run_policy.scheduling.min_available
    if asked and whole != total:
        yield f"Invalid value: {total} in all: runPolicy.schedulingPolicy.minAvailable is {whole}"


_MANAGED_BY = "spec.runPolicy.managedBy"


@dataclass(frozen=True, slots=True)
class Ruling:
    """The answer to one request."""

    problems: tuple[Problem, ...] = ()
    """Why it is refused; empty: it is not."""
    warnings: tuple[str, ...] = ()


def review(
    framework: Framework,
    document: object,
    before: object = None,
    site: Site = DEFAULT_SITE,
) -> Ruling:
    """Return what is to be said of a new version of a job; `before` is the old one. Never raises.

    What the old version breaks as well does not forbid the new one: a job stays writable when the
    rules grow, and nothing keeps a job that is being deleted.
    """
    job = load(framework, document, site)
    if job.deleting:
        return Ruling()
    warnings = tuple(notice.message for notice in job.notices if notice.type == "Warning")
    if before is None:
        return Ruling(job.problems, warnings)
    old = load(framework, before, site)
    # Sets: a hostile document has as many problems as bytes.
    known = frozenset(old.problems)
    kept = tuple(problem for problem in job.problems if problem in known)
    new = [problem for problem in job.problems if problem not in known]
    manager = job.run_policy.managed_by
    if manager != old.run_policy.managed_by:
        shown = "null" if manager is None else f'"{manager}"'
        new.insert(0, Problem(_MANAGED_BY, f"Invalid value: {shown}: field is immutable"))
    return Ruling(tuple(new), (*map(str, kept), *warnings))
