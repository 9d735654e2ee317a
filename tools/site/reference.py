# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference.md, every field of every kind, and docs/reasons.md, every reason."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import reasondocs
import yaml

import crdgen
import crdmodels
from muster.frameworks import FRAMEWORKS

ROOT = Path(__file__).parents[2]
HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by `make crds` from the models. -->
# Fields of all kinds

What the API server accepts, with what each field means. A pod template is Kubernetes' own: it is
checked in full, and not repeated here. `muster render -f JOB.yaml` shows what a job becomes.
"""
COMMON = """
## What all jobs have in common

`spec` holds a map of roles, named for the kind, and a run policy.
"""
STATUS = """
## The status of all jobs
"""
REASONS = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by `make crds` from tools/site/reasondocs.py. -->
# Why a gang waits

A gang that waits, or runs without all of its pods, has one of these reasons. For a job it is in
`status.gang.reason`, in the column REASON of `kubectl get -o wide` and in an event. For a PodGroup
it is the reason of the condition `Unschedulable`. `muster explain`, the dashboard and the metric
`muster_gangs` show the same reason. The message that comes with it names objects and amounts.

The column *ends* is "alone" if the gang can start without a change to the job or the cluster, for
example when other jobs finish. Otherwise `status.gang.everPossible` is false.

| reason | meaning | where it shows | ends | what to do |
|---|---|---|---|---|"""
ROLE = "Of each role, in the map that the kind has:"
POLICY = "Of `spec.runPolicy`:"
SIMULATED = "local.muster.kubeflow.org/"
TEMPLATES = {"template", "metrics", "namespaceSelector", "labelSelector"}
"""Fields whose own fields are Kubernetes'."""


def page() -> str:
    """Return the page."""
    made = crdgen.documents(row.api for row in FRAMEWORKS.values())
    roots = {document["spec"]["names"]["kind"]: document["spec"] for document in made.values()}
    examples = {each["kind"]: each for each in documents()}
    parts = [HEAD, COMMON, ROLE, "", *table(fields(crdgen.schema(crdmodels.ReplicaSpec)))]
    parts += ["", POLICY, "", *table(fields(crdgen.schema(crdmodels.RunPolicy)))]
    for kind, spec in roots.items():
        parts += section(kind, spec)
        parts += ["", "```yaml", yaml.safe_dump(examples[kind], sort_keys=False).rstrip(), "```"]
    parts += [STATUS, *table(fields(crdgen.job_status()))]
    return "\n".join(parts) + "\n"


def section(kind: str, spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is said of one kind: versions, roles, its own fields."""
    versions = ", ".join(f"`{spec['group']}/{each['name']}`" for each in spec["versions"])
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    yield f"\n## {kind}\n"
    yield f"{schema['spec'].get('description', '')}\n".lstrip()
    yield f"Versions: {versions}."
    framework = FRAMEWORKS.get(kind)
    if framework is not None:
        roles = ", ".join(framework.api.types)
        yield f"Roles, in `spec.{framework.spec_field}`: {roles}."
        if framework.pods.container:
            port = f"`{framework.pods.port_name}` ({framework.pods.port})"
            yield f"Its container is called `{framework.pods.container}`, its port {port}."
        left_out = {framework.spec_field, "runPolicy"}
        own = {k: v for k, v in schema["spec"]["properties"].items() if k not in left_out}
        listed = list(fields({"properties": own}))
        yield from ("", *table(listed)) if listed else ()
        return
    yield from ("", *table(fields(schema["spec"])))
    if "properties" in schema.get("status", {}):
        yield from ("", "Its status:", "", *table(fields(schema["status"])))


def documents() -> Iterator[dict[str, Any]]:
    """Yield what the examples hold, so that the simplest of a kind comes last."""
    files = sorted((ROOT / "examples").rglob("*.yaml"), key=lambda file: "simple" in file.stem)
    for file in files:
        found = [each for each in yaml.safe_load_all(file.read_text()) if isinstance(each, dict)]
        found = [plain(each) for each in found if "kind" in each]
        yield from sorted(found, key=lambda each: -len(yaml.safe_dump(each)))


def plain(value: Any) -> Any:
    """Return a document without what is for simulated nodes alone."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    parts = {k: plain(v) for k, v in value.items() if not k.startswith(SIMULATED)}
    return {k: v for k, v in parts.items() if v or k not in ("annotations", "metadata")}


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield path, type and meaning of each field, parents first."""
    for name, part in schema.get("properties", {}).items():
        at = f"{path}.{name}" if path else name
        yield at, shape(part), meaning(part) or ("as in Kubernetes" if name in TEMPLATES else "")
        if name in TEMPLATES:
            continue
        for mark, inner in (("", part), ("[]", part.get("items")), (".*", rest(part))):
            if isinstance(inner, dict):
                yield from fields(inner, f"{at}{mark}")


def rest(part: Mapping[str, Any]) -> Any:
    """Return the schema of a map's values."""
    return part.get("additionalProperties")


def shape(part: Mapping[str, Any]) -> str:
    """Return a type for people."""
    if part.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in part:
        return " \\| ".join(f"`{each}`" if each else '`""`' for each in part["enum"])
    if part.get("type") == "array":
        return f"list of {shape(part['items'])}"
    inner = rest(part)
    if isinstance(inner, dict):
        return f"map to {shape(inner)}"
    return str(part.get("format") if part.get("format") == "date-time" else part.get("type", ""))


def meaning(part: Mapping[str, Any]) -> str:
    """Return what is said of a field, with its bounds and default."""
    bounds = [
        f"{word} {part[key]}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"))
        if key in part
    ]
    default = [f"default: `{json.dumps(part['default'])}`"] if "default" in part else []
    said = str(part.get("description", "")).rstrip(".")
    return "; ".join(filter(None, [said, *bounds, *default])).replace("|", "\\|")


def table(found: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the lines of a table of fields."""
    yield "| field | type | what |\n|---|---|---|"
    for path, type_, what in found:
        yield f"| `{path}` | {type_} | {what} |"


def reasons() -> str:
    """Return the page of reasons."""
    rows = (
        f"| `{reason}` | {row.meaning} | {row.shown} "
        f"| {'alone' if reason.ever_possible else 'by a change'} | {row.remedy} |"
        for reason, row in reasondocs.ROWS.items()
    )
    return "\n".join((REASONS, *rows)) + "\n"


def main() -> int:
    """Write the pages; with --check, return 1 if any of them is not as it would be written."""
    stale = 0
    for name, fresh in (("reference", page()), ("reasons", reasons())):
        path = ROOT / "docs" / f"{name}.md"
        if path.exists() and path.read_text(encoding="utf-8") == fresh:
            continue
        if "--check" in sys.argv:
            print(f"docs/{name}.md: is not fresh; run make crds")
            stale = 1
        else:
            path.write_text(fresh, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
