# SPDX-License-Identifier: Apache-2.0
"""The corpus of manifests that cannot be meant: a table of changes to one good job per kind."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from muster.frameworks import FRAMEWORKS

TABLE = Path(__file__).parent / "corpus" / "broken.yaml"
ROLES = {"XGBoostJob": ("Master", "Worker")}
"""Kinds whose good job is more than its workers."""


@dataclass(frozen=True, slots=True)
class Broken:
    """One manifest, who refuses it, and the words that must be said."""

    id: str
    document: dict[str, Any]
    by: str
    says: tuple[str, ...]


def kinds() -> tuple[str, ...]:
    """Return the kinds that the table is about."""
    return tuple(yaml.safe_load(TABLE.read_text()))[1:]


def good(kind: str) -> dict[str, Any]:
    """Return a job of two workers with nothing wrong."""
    framework = FRAMEWORKS[kind]
    container = {"name": framework.container, "image": "train:1"}
    pod = {"metadata": {}, "spec": {"containers": [container]}}
    counts = {"Master": 1, "Worker": 2}
    roles = {
        type_: {
            "replicas": counts[type_],
            "restartPolicy": "Never",
            "template": copy.deepcopy(pod),
        }
        for type_ in ROLES.get(kind, ("Worker",))
    }
    return {
        "apiVersion": framework.api_version,
        "kind": kind,
        "metadata": {"name": f"good-{kind.lower()}"},
        "spec": {framework.spec_field: roles, "runPolicy": {"schedulingPolicy": {}}},
    }


def corpus() -> Iterator[Broken]:
    """Yield every manifest; those for every kind first."""
    table = yaml.safe_load(TABLE.read_text())
    shared = table.pop("every kind")
    for kind in table:
        for index, row in enumerate((*shared, *table[kind])):
            yield _broken(kind, index, row)


def _broken(kind: str, index: int, row: dict[str, Any]) -> Broken:
    document = good(kind)
    document["metadata"]["name"] = f"{kind.lower()}-{index}"
    for target, source in row.get("copy", {}).items():
        _put(document, _steps(kind, target), copy.deepcopy(_find(document, _steps(kind, source))))
    for place, value in row.get("put", {}).items():
        _put(document, _steps(kind, place), copy.deepcopy(value))
    for place in row.get("drop", ()):
        *way, last = _steps(kind, place)
        del _find(document, way)[last]
    what = " ".join(str(row.get(key, "")) for key in ("put", "copy", "drop"))
    says = tuple(map(str, row["says"]))
    return Broken(f"{kind} {what.strip()}", document, row.get("by", "apply"), says)


def _steps(kind: str, place: str) -> list[Any]:
    """Return the way to a place: R the map of roles, W the workers, C their container, P the run
    policy, S the scheduling policy, name the job's; anything else is a field of the spec.
    """
    roles = FRAMEWORKS[kind].spec_field
    workers = ["spec", roles, "Worker"]
    starts = {
        "R": ["spec", roles],
        "W": workers,
        "C": [*workers, "template", "spec", "containers", 0],
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
