# SPDX-License-Identifier: Apache-2.0
"""The corpus of manifests that cannot be meant: a table of changes to one good job per kind."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from support.builders.job_kinds import SORTS, container

TABLE = Path(__file__).parents[2] / "corpus" / "broken.yaml"
LEADS = {"XGBoostJob": "Master", "MPIJob": "Launcher", "MPIJob-v2beta1": "Launcher"}
"""Sorts whose good job is more than its workers."""


@dataclass(frozen=True, slots=True)
class Broken:
    """One manifest, who refuses it, and the words that must be said."""

    id: str
    sort: str
    document: dict[str, Any]
    by: str
    says: tuple[str, ...]
    told: str
    """All that the status says of it, empty where the table does not give it."""
    shared: int | None = None
    """Which row of those for every kind it is, None for one of this sort alone."""


def sorts() -> tuple[str, ...]:
    """Return the sorts of job that the table is about."""
    return tuple(yaml.load(TABLE.read_text(), yaml.CSafeLoader))[1:]


def good(sort: str) -> dict[str, Any]:
    """Return a job of two workers with nothing wrong."""
    framework = SORTS[sort]
    pod = {"metadata": {}, "spec": {"containers": [{"name": container(sort), "image": "train:1"}]}}
    counts = {**({LEADS[sort]: 1} if sort in LEADS else {}), "Worker": 2}
    roles = {
        type_: {"replicas": count, "restartPolicy": "Never", "template": copy.deepcopy(pod)}
        for type_, count in counts.items()
    }
    return {
        "apiVersion": framework.api_version,
        "kind": framework.kind,
        "metadata": {"name": f"good-{sort.lower()}"},
        "spec": {
            framework.spec_field: roles,
            "runPolicy": {"cleanPodPolicy": "Running", "schedulingPolicy": {}},
        },
    }


def corpus() -> Iterator[Broken]:
    """Yield every manifest; those for every kind first."""
    table = yaml.load(TABLE.read_text(), yaml.CSafeLoader)
    shared = table.pop("every kind")
    for sort in table:
        for index, row in enumerate((*shared, *table[sort])):
            if (special := row.get("but", {}).get(sort, {})) is not None:
                made = _broken(sort, index, {**row, **special})
                yield replace(made, shared=index) if index < len(shared) else made


def sample() -> Iterator[Broken]:
    """Yield the manifests of one sort alone; of those for every kind one sort each, in turns."""
    turns: dict[int, list[Broken]] = defaultdict(list)
    for row in corpus():
        if row.shared is None:
            yield row
        else:
            turns[row.shared].append(row)
    for index, rows in turns.items():
        yield rows[index % len(rows)]


def _broken(sort: str, index: int, row: dict[str, Any]) -> Broken:
    document = good(sort)
    document["metadata"]["name"] = f"{sort.lower()}-{index}"
    for target, source in row.get("copy", {}).items():
        _put(document, _steps(sort, target), copy.deepcopy(_find(document, _steps(sort, source))))
    for place, value in row.get("put", {}).items():
        _put(document, _steps(sort, place), copy.deepcopy(value))
    for place in row.get("drop", ()):
        *way, last = _steps(sort, place)
        del _find(document, way)[last]
    what = " ".join(str(row.get(key, "")) for key in ("put", "copy", "drop"))
    says = tuple(map(str, row["says"]))
    told, api = row.get("told", ""), SORTS[sort].api
    for word, shown in {
        "{roles}": SORTS[sort].spec_field,
        "{types}": ", ".join(f'"{type_}"' for type_ in sorted(api.types)),
        "{name}": container(sort),
    }.items():
        told = told.replace(word, shown)
    return Broken(f"{sort} {what.strip()}", sort, document, row.get("by", "apply"), says, told)


def _steps(sort: str, place: str) -> list[Any]:
    """Return the way to a place: R the map of roles, W the workers, C their container, L what
    leads them, LC its container, P the run policy, S the scheduling policy, name the job's;
    anything else is a field of the spec.
    """
    roles = SORTS[sort].spec_field
    workers, leader = ["spec", roles, "Worker"], ["spec", roles, LEADS.get(sort, "")]
    starts = {
        "R": ["spec", roles],
        "W": workers,
        "C": [*workers, "template", "spec", "containers", 0],
        "L": leader,
        "LC": [*leader, "template", "spec", "containers", 0],
        "P": ["spec", "runPolicy"],
        "S": ["spec", "runPolicy", "schedulingPolicy"],
        "name": ["metadata", "name"],
    }
    first, *rest = place.split(".")
    return [*starts.get(first, ["spec", first]), *rest]


def _find(document: Any, steps: list[Any]) -> Any:
    for step in steps:
        whole = isinstance(document, dict)
        document = document.setdefault(step, {}) if whole else document[step]
    return document


def _put(document: Any, steps: list[Any], value: Any) -> None:
    *way, last = steps
    _find(document, way)[last] = value
