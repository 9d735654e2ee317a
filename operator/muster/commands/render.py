# SPDX-License-Identifier: Apache-2.0
"""`muster render`: what a job would become, found out by the controller core without a cluster.

The passes are those of the operator; in between, everything that was created is there and runs.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from muster import frameworks
from muster.api import crds, names, schema
from muster.api.edge import integer, mapping, text
from muster.api.jobs import MAX_REPLICAS
from muster.api.model import SHARED_ABOVE, Job, Json, ObjectView, Problem, Replica
from muster.controller import reconcile, templates
from muster.controller.model import Context, Create, Observed
from muster.controller.scope import scope_of
from muster.frameworks import load, of
from muster.frameworks.base import Framework, Waiting, framework_container, with_port
from muster.gang import GangBackend
from muster.settings import Settings
from muster.store import parse

PASSES = 8
"""More than any job needs until nothing is missing."""
MOST_ALIKE = 10
"""Values for each character of a file at the most: only aliases of aliases make more."""
LONGEST_NUMBER = 70
"""Characters: 64 bits may be written one by one."""
DEEPEST = 100
"""Objects and lists in each other: what is deeper is of nobody's making."""
UID = "given-by-the-server"
WIDTH = 100
"""Characters of a place that are told; a key may have a million, and thousands of values below."""
_LIST = "List"
"""What a kind ends in whose objects are lists of others."""
_STANDS = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


class UnreadableError(Exception):
    """The file is no YAML, or there is none."""


def render(files: Sequence[str], settings: Settings, namespace: str = "") -> tuple[str, list[str]]:
    """Return what the jobs of these files become, as YAML, and what is wrong with them.

    `-` is standard input. Raises UnreadableError.
    """
    made: list[Json] = []
    wrong: list[str] = []
    for file in files:
        for document in documents(file):
            framework = frameworks.FRAMEWORKS.get(text(document.get("kind")))
            if framework is None:
                continue
            whole = as_served(framework, document, namespace)
            name = f"{file}: {framework.kind} {text(mapping(whole.get('metadata')).get('name'))}"
            limits = settings.cluster_domain, settings.max_replicas_per_job
            found = tuple(problems(framework, whole, *limits))
            wrong += (f"{name}: {problem}" for problem in found)
            if not found:
                given = settings.backend, context_of(settings), settings.shared_above
                made += objects(framework, whole, *given)
    if not made and not wrong:
        raise UnreadableError(
            f"{', '.join(files)}: no job found; kinds are {', '.join(frameworks.FRAMEWORKS)}"
        )
    return yaml.dump_all(made, Dumper=crds.Plain, sort_keys=False, width=99), wrong


def problems(
    framework: Framework, document: Json, domain: str = "", max_replicas: int = MAX_REPLICAS
) -> Iterator[Problem]:
    """Yield all that forbids the job to run, by its schema and by the rules of its kind.

    `document` is as the API server would store it.
    """
    version = text(document.get("apiVersion")).removeprefix(f"{names.GROUP}/")
    if version not in framework.api.versions:
        served = (f"{names.GROUP}/{served}" for served in framework.api.versions)
        yield Problem("apiVersion", schema.unsupported(document.get("apiVersion"), served))
        return
    spec = _schema(framework.kind, version)
    found = tuple(schema.problems(spec, mapping(document.get("spec")), "spec"))
    seen = {problem.path for problem in found}
    yield from found
    job = load(framework, document, domain, max_replicas=max_replicas)
    yield from (problem for problem in job.problems if problem.path not in seen)


@cache
def _schema(kind: str, version: str) -> Json:
    return crds.job_spec(frameworks.FRAMEWORKS[kind].api, version)


def objects(
    framework: Framework,
    document: Json,
    backend: GangBackend,
    context: Context,
    shared_above: int = SHARED_ABOVE,
) -> list[Json]:
    """Return the job with its defaults, then all that it creates, in the order of creation.

    The document must have no problems. A suspended job is shown as if it were resumed, and one
    of another controller creates nothing.
    """
    job = load(framework, document, context.cluster_domain, shared_above=shared_above)
    job = replace(job, run_policy=replace(job.run_policy, suspend=False), generation=1)
    framework = of(job)
    made: dict[tuple[str, str], Json] = {}
    # Several, since some pods come only once others run: a launcher that waits for its workers.
    for _ in range(PASSES):
        observed = _observe(job, framework, made.values())
        actions = reconcile.reconcile(observed, framework, backend, context)
        fresh = {_key(a.doc): a.doc for a in actions if isinstance(a, Create)}
        if fresh.keys() <= made.keys():
            break
        made |= fresh
    return [_defaulted(framework, document, job, backend, context), *made.values()]


def context_of(settings: Settings) -> Context:
    """Return the settings that shape what a job becomes, as far as they need no cluster."""
    return Context(
        cluster_domain=settings.cluster_domain,
        waiting=Waiting(
            settings.pytorch_init_image,
            settings.pytorch_init_tries,
            delivery_image=settings.mpi_delivery_image,
        ),
        placement=settings.placement,
        default_queue=settings.default_queue,
        scheduler_names=settings.scheduler_names,
    )


def documents(file: str) -> Iterator[Json]:
    """Yield the documents of a YAML file, `-` for standard input. Raises UnreadableError."""
    try:
        written = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{file}: {error}") from error
    yield from parsed(written, file)


def parsed(written: str, called: str) -> Iterator[Json]:
    """Yield the documents of a YAML text, which is `called` so. Raises UnreadableError."""
    left = iter(range(MOST_ALIKE * len(written)))
    try:
        for number, each in enumerate(yaml.load_all(written, _Loader), start=1):
            yield from _document(each, left, f"{called}: document {number}")
    except (ValueError, yaml.YAMLError) as error:
        raise UnreadableError(f"{called}: {_sentence(error)}") from error
    except RecursionError as error:
        raise UnreadableError(f"{called}: too deep, or part of itself") from error


def _document(value: object, left: Iterator[int], called: str) -> list[Json]:
    try:
        return list(_listed(_plain(value, left), ""))
    except UnreadableError as error:
        raise UnreadableError(f"{called}: {error}") from error


def _sentence(error: Exception) -> str:
    """Return in one line what is wrong with a text, and where in it."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        place = error.problem_mark
        return f"line {place.line + 1}, column {place.column + 1}: {error.problem}"
    return " ".join(str(error).split())


def _listed(document: Any, at: str) -> Iterator[Json]:
    """Yield the objects of a document, which may be a list of them. Raises UnreadableError."""
    if document is None:
        return
    if not isinstance(document, dict):
        raise UnreadableError(f"{at or 'it'} is no object")
    kind, listed = text(document.get("kind")), document.get("items")
    items = f"{at}.items" if at else "items"
    named = kind.endswith(_LIST) or not kind
    if isinstance(listed, list):
        of = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix(_LIST)}
        for index, each in enumerate(listed):
            # The API server leaves out of which kind the items of a TFJobList are.
            known = {**of, **each} if isinstance(each, dict) and named and of["kind"] else each
            yield from _listed(known, f"{items}[{index}]")
    elif "items" not in document or not named:
        yield document
    elif listed is not None:
        raise UnreadableError(f"{items} is no list")


class _Loader(yaml.SafeLoader):
    """Reads what kubectl reads: no key twice, and dates are texts."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 -- as PyYAML has it
        """Return the mapping. Raises YAMLError for one that says something twice."""
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key.value, str)]
        for tag, key in set(keys) if len(set(keys)) < len(keys) else ():
            if keys.count((tag, key)) > 1 and not tag.endswith(":merge"):
                said = f"the key {key!r} is there twice"
                raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in rules if not tag.endswith((":timestamp", ":value"))]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _number(loader: _Loader, node: yaml.ScalarNode) -> object:
    """Return a number; 12:30 is a text, and no number to the base of sixty."""
    if ":" in node.value:
        return node.value
    whole = node.tag.endswith(":int")
    try:
        if len(node.value) <= LONGEST_NUMBER:
            return loader.construct_yaml_int(node) if whole else loader.construct_yaml_float(node)
    except ValueError:
        pass
    said = f"{node.value[:40]} is no number that Kubernetes has"
    raise yaml.constructor.ConstructorError(None, None, said, node.start_mark)


for _tag in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _number)


def _plain(value: object, left: Iterator[int], at: str = "", depth: int = 0) -> Any:
    """Return a value as JSON has it. Raises UnreadableError for what it has not.

    `left`: an item for each value that there may be, aliases written out; `at`: where it stands.
    """
    if next(left, None) is None:
        raise UnreadableError("its aliases stand for too much")
    if depth > DEEPEST:
        raise UnreadableError(f"{at}: too deep, or part of itself")
    if isinstance(value, dict):
        found: Json = {}
        for key, item in value.items():
            name = _key_text(key)
            inner = f"{at:.{WIDTH}}.{name:.{WIDTH}}" if at else f"{name:.{WIDTH}}"
            if name in found:
                raise UnreadableError(f"the key {inner} is there twice")
            found[name] = _plain(item, left, inner, depth + 1)
        return found
    if isinstance(value, list):
        within = f"{at:.{WIDTH}}"
        return [_plain(item, left, f"{within}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, bool | str | None) or integer(value) is not None:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    said = "a number beyond 64 bits" if isinstance(value, int) else f"{value!r:.40}"
    raise UnreadableError(f"{at}: {said} is nothing that JSON has")


def _key_text(key: object) -> str:
    return key if isinstance(key, str) else json.dumps(key, default=str)


def as_served(framework: Framework, document: Json, namespace: str) -> Json:
    """Return the document with what the API server adds, and without what it would not keep."""
    version = text(document.get("apiVersion")).removeprefix(f"{names.GROUP}/")
    defaults = framework.api.defaults.get(version, {})
    meta = mapping(document.get("metadata"))
    where = namespace or text(meta.get("namespace")) or "default"
    return {
        "apiVersion": document.get("apiVersion"),
        "kind": framework.kind,
        "metadata": {**meta, "namespace": where, "uid": UID},
        "spec": {**defaults, **mapping(document.get("spec"))},
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
        pods=tuple(map(parse.pod, kinds.get("Pod", ()))),
        services=_children("Service", kinds),
        configs=_children("ConfigMap", kinds),
        batches=tuple(map(parse.batch, kinds.get(names.BATCH_JOB, ()))),
        companions=tuple(
            view for part in framework.companions for view in _children(part.kind, kinds)
        ),
        secrets={key: "" for part in framework.pods.companions for key in part.keys},
        autoscalers=_children(names.AUTOSCALER, kinds),
        group=parse.group(group["apiVersion"], group["kind"], group) if group else None,
        placements={pod.name: "" for pod in templates.wanted_pods(job)},
    )


def _children(kind: str, kinds: Mapping[str, Sequence[Json]]) -> tuple[ObjectView, ...]:
    return tuple(map(parse.child_of(kind), kinds.get(kind, ())))


def _key(document: Json) -> tuple[str, str]:
    return document["kind"], document["metadata"]["name"]


def _defaulted(
    framework: Framework, document: Json, job: Job, backend: GangBackend, context: Context
) -> Json:
    """Return the document with every default that the operator goes by."""
    scope = scope_of(Observed(job=job, now=0.0), framework, backend, context)
    policy, written = job.run_policy, mapping(document["spec"].get("runPolicy"))
    scheduling = {
        "minAvailable": scope.minimum,
        "queue": policy.scheduling.queue or context.default_queue,
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
    listening = framework_container(framework, role.template)
    containers = [
        with_port(framework, container) if container is listening else container
        for container in role.template["spec"]["containers"]
    ]
    spec = {**role.template["spec"], "containers": containers}
    return {
        "replicas": role.replicas,
        "restartPolicy": str(role.restart_policy),
        "template": {**role.template, "spec": spec},
    }
