# SPDX-License-Identifier: Apache-2.0
"""`muster render`: what the controller core makes of a job whose objects all exist and run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from muster import frameworks
from muster.api import crds, edge, manifest, names, schema
from muster.api.edge import mapping, text
from muster.api.model import Job, Json, ObjectView, Problem, Replica
from muster.commands import output
from muster.commands.arguments import ArgumentError
from muster.controller import reconcile
from muster.controller.model import Context, Create, Observed
from muster.controller.scope import scope_of
from muster.frameworks import DEFAULT_SITE, Site, load, of
from muster.frameworks.base import Framework, framework_container, with_port
from muster.gang import GangBackend, GangFacts
from muster.settings import Settings
from muster.store import parse

PASSES = 8
"""More than any job needs until nothing is missing."""
UID = "given-by-the-server"
MAX_START_CHARS = 58
"""Characters of generateName that a name begins with; five others follow."""
_LIST = "List"
"""What a kind ends in whose objects are lists of others."""
_TEXTS = ("labels", "annotations")
_OF_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_META = {"properties": dict.fromkeys(_TEXTS, _OF_TEXTS)}
_STANDS = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


class UnreadableError(ArgumentError):
    """The file is no YAML, or there is none."""


def run(files: Sequence[str], settings: Settings, namespace: str = "") -> int:
    """Print what jobs become, return the exit code. Raises UnreadableError, TemplateError."""
    made: list[Json] = []
    wrong: list[str] = []
    ignored: list[str] = []
    site = settings.site
    # The settings that shape what a job becomes, as far as they need no cluster.
    context = Context(
        cluster_domain=settings.cluster_domain,
        waiting=settings.waiting(),
        placement=settings.placement,
        gangs=GangFacts(default_queue=settings.default_queue),
    )
    every = ((file, document) for file in files for document in documents(file))
    for number, (file, document) in enumerate(every):
        framework = frameworks.FRAMEWORKS.get(text(document.get("kind")))
        if framework is None:
            continue
        whole = as_served(framework, named(document, number), namespace)
        name = f"{file}: {framework.kind} {text(mapping(whole.get('metadata')).get('name'))}"
        found = tuple(problems(framework, whole, site))
        wrong += (f"{name}: {problem}" for problem in found)
        notices = load(framework, whole, site).notices
        ignored += (f"{name}: {each.message}" for each in notices if each.type == "Warning")
        if not found:
            made += objects(framework, whole, settings.backend, context, site)
    if not made and not wrong:
        raise UnreadableError(
            f"{', '.join(files)}: no job found; kinds are {', '.join(frameworks.FRAMEWORKS)}"
        )
    if made:
        output.write(yaml.dump_all(made, Dumper=manifest.Plain, sort_keys=False, width=99))
    for warning in ignored:
        output.complain(warning, "warning: ")
    for problem in wrong:
        output.complain(problem, "")
    return int(bool(wrong))


def problems(framework: Framework, document: Json, site: Site = DEFAULT_SITE) -> Iterator[Problem]:
    """Yield the problems of a job, as the API server would store it, by schema and rules."""
    version = text(document.get("apiVersion")).removeprefix(f"{names.GROUP}/")
    if version not in framework.api.versions:
        served = (f"{names.GROUP}/{served}" for served in framework.api.versions)
        yield Problem("apiVersion", schema.unsupported(document.get("apiVersion"), served))
        return
    spec = crds.job_spec(framework.api, version)
    found = (
        *schema.problems(_META, mapping(document.get("metadata")), "metadata"),
        *schema.problems(spec, mapping(document.get("spec")), "spec"),
    )
    seen = {problem.path for problem in found}
    yield from found
    job = load(framework, document, site)
    yield from (problem for problem in job.problems if problem.path not in seen)


def objects(
    framework: Framework,
    document: Json,
    backend: GangBackend,
    context: Context,
    site: Site = DEFAULT_SITE,
) -> list[Json]:
    """Return the job with its defaults, then all that it creates, in the order of creation.

    The document must have no problems. A suspended job is shown as if it were resumed, and one
    of another controller creates nothing.
    """
    job = load(framework, document, replace(site, domain=context.cluster_domain))
    job = replace(job, run_policy=replace(job.run_policy, suspend=False), generation=1)
    framework = of(job)
    made: dict[tuple[str, str], Json] = {}
    # Several, since some pods come only once others run: a launcher that waits for its workers.
    for _ in range(PASSES):
        observed = _observe(job, framework, made.values())
        actions = reconcile.reconcile(observed, framework, backend, context)
        documents = [action.doc for action in actions if isinstance(action, Create)]
        fresh = {_key(document): document for document in documents}
        if fresh.keys() <= made.keys():
            break
        made |= fresh
    return [_defaulted(framework, document, job, backend, context), *made.values()]


def documents(file: str) -> Iterator[Json]:
    """Yield the objects of a file, `-` for standard input. Raises UnreadableError."""
    try:
        written = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from error
    yield from parsed(written, file)


def parsed(written: str | bytes, called: str) -> Iterator[Json]:
    """Yield the objects of a file with that name. Raises UnreadableError."""
    try:
        for number, document in enumerate(manifest.documents(written), start=1):
            yield from _listed(document, f"{called}: document {number}: ")
    except manifest.ManifestError as error:
        raise UnreadableError(f"{called}: {error}") from error


def _listed(document: Any, where: str, at: str = "") -> Iterator[Json]:
    """Yield a document's objects; messages have `where` and path `at`. Raises UnreadableError."""
    if not isinstance(document, dict):
        raise UnreadableError(f"{where}{at or 'it'} is no object")
    kind, listed = text(document.get("kind")), document.get("items")
    items = f"{at}.items" if at else "items"
    named = kind.endswith(_LIST) or not kind
    if isinstance(listed, list):
        of = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix(_LIST)}
        for index, each in enumerate(listed):
            # The API server leaves out of which kind the items of a TFJobList are.
            known = {**of, **each} if isinstance(each, dict) and named and of["kind"] else each
            yield from _listed(known, where, f"{items}[{index}]")
    elif "items" not in document or not named:
        yield document
    elif listed is not None:
        raise UnreadableError(f"{where}{items} is no list")


def named(document: Json, number: int = 0) -> Json:
    """Return a document with a name such as the API server makes of generateName."""
    meta = mapping(document.get("metadata"))
    start = text(meta.get("generateName"))
    if meta.get("name") or not start:
        return document
    return {**document, "metadata": {**meta, "name": f"{start[:MAX_START_CHARS]}{number:05}"}}


def as_served(framework: Framework, document: Json, namespace: str) -> Json:
    """Return the document with what the API server adds, and without what it would not keep."""
    version = text(document.get("apiVersion")).removeprefix(f"{names.GROUP}/")
    defaults = framework.api.defaults.get(version, {})
    meta = dict(mapping(named(document).get("metadata")))
    for field in _TEXTS:
        if isinstance(given := meta.get(field), dict):
            # Unlike in the spec, a value that is null is an empty one.
            meta[field] = {key: "" if v is None else v for key, v in given.items()}
    where = namespace or text(meta.get("namespace")) or "default"
    return {
        "apiVersion": document.get("apiVersion"),
        "kind": framework.kind,
        "metadata": {**meta, "namespace": where, "uid": UID},
        "spec": {**defaults, **edge.without_nulls(mapping(document.get("spec")))},
    }


def _observe(job: Job, framework: Framework, made: Iterable[Json]) -> Observed:
    kinds: dict[str, list[Json]] = {}
    for document in made:
        meta = {**document["metadata"], "uid": "/".join(_key(document))}
        kinds.setdefault(document["kind"], []).append({**document, "metadata": meta, **_STANDS})
    group = next(iter(kinds.get("PodGroup", kinds.get("PodDisruptionBudget", ()))), None)
    return Observed(
        job=job,
        now=0.0,
        # Services are created for pods on nodes.
        pods=tuple(replace(parse.pod(each), node="any") for each in kinds.get("Pod", ())),
        services=_children("Service", kinds),
        configs=_children("ConfigMap", kinds),
        batches=tuple(map(parse.batch, kinds.get(names.BATCH_JOB, ()))),
        companions=tuple(
            view for part in framework.companions for view in _children(part.kind, kinds)
        ),
        secrets={key: "" for part in framework.pods.companions for key in part.keys},
        autoscalers=_children(names.AUTOSCALER, kinds),
        group=parse.group(group) if group else None,
        placements=dict.fromkeys(job.pod_names(job.replicas), ""),
    )


def _children(kind: str, kinds: Mapping[str, Sequence[Json]]) -> tuple[ObjectView, ...]:
    return tuple(map(parse.child, kinds.get(kind, ())))


def _key(document: Json) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def _defaulted(
    framework: Framework, document: Json, job: Job, backend: GangBackend, context: Context
) -> Json:
    """Return the document with every default that the operator goes by."""
    scope = scope_of(Observed(job=job, now=0.0), framework, backend, context)
    policy, written = job.run_policy, mapping(document["spec"].get("runPolicy"))
    # Backends without queues have none, and that of Volcano may be named by an annotation.
    group = backend.group(job, scope.facts) or {"spec": {}}
    scheduling = {
        "minAvailable": scope.minimum,
        **{key: value for key, value in group["spec"].items() if key == "queue"},
        **mapping(written.get("schedulingPolicy")),
    }
    named = {key: value for key, value in job.options.items() if value is not None}
    run_policy = {
        "cleanPodPolicy": str(policy.clean_pod_policy),
        "suspend": False,
        **mapping(written),
        **({"schedulingPolicy": scheduling} if backend.apis else {}),
    }
    spec = {**document["spec"], **named, "runPolicy": run_policy}
    roles = {role.type: _role(framework, role) for role in job.replicas}
    meta = {key: value for key, value in document["metadata"].items() if key != "uid"}
    return {**document, "metadata": meta, "spec": {**spec, framework.spec_field: roles}}


def _role(framework: Framework, role: Replica) -> Json:
    template = role.template
    listening = framework_container(framework, template)
    containers = [
        with_port(framework, container) if container is listening else container
        for container in template["spec"]["containers"]
    ]
    spec = {**template["spec"], "containers": containers}
    return {
        "replicas": role.replicas,
        "restartPolicy": str(role.restart_policy),
        "template": {**template, "spec": spec},
    }
