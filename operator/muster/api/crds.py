# SPDX-License-Identifier: Apache-2.0
"""The CustomResourceDefinitions that this version ships: tools/crdgen.py writes them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

import muster
from muster.api import manifest, names
from muster.api.jobs import Kind
from muster.api.model import Json

_OTHERS: Final = tuple(f"{names.SCHEDULING_GROUP}_{each}.yaml" for each in ("podgroups", "queues"))


def texts(kinds: Iterable[Kind]) -> dict[str, str]:
    """Return the text of every file by its name, those of `kinds` first. Raises OSError."""
    return {name: _text(name) for name in (*map(_file, kinds), *_OTHERS)}


def documents(kinds: Iterable[Kind]) -> list[Json]:
    """Return every CustomResourceDefinition, those of `kinds` first. Raises OSError."""
    return [manifest.document(text) for text in texts(kinds).values()]


def job_spec(kind: Kind, version: str) -> Json:
    """Return the schema of a kind's spec, with its rules and the defaults of that version."""
    return _specs(_file(kind))[version]


@cache
def _specs(name: str) -> dict[str, Json]:
    versions = manifest.document(_text(name))["spec"]["versions"]
    roots = {each["name"]: each["schema"]["openAPIV3Schema"] for each in versions}
    return {version: root["properties"]["spec"] for version, root in roots.items()}


def _file(kind: Kind) -> str:
    return f"{names.GROUP}_{kind.plural}.yaml"


def _text(name: str) -> str:
    folder = muster.shipped("crds")
    if folder is None:
        raise FileNotFoundError("the folder crds is missing from this installation")
    return (folder / name).read_text(encoding="utf-8")
