# SPDX-License-Identifier: Apache-2.0
"""What the command prints: files read and converted, and the result checked like any other job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import yaml

from muster.api import crds
from muster.api.edge import mapping, text
from muster.api.model import Json
from muster.commands import render
from muster.commands.convert import Conversion, convert
from muster.frameworks import FRAMEWORKS


class Printed(NamedTuple):
    """What goes to standard output and to standard error."""

    text: str
    lost: tuple[str, ...]
    wrong: tuple[str, ...]
    """What forbids a job that came out to run."""


def run(files: Sequence[str], to: str, output: str) -> Printed:
    """Convert the jobs of these files, `-` for standard input. Raises render.UnreadableError."""
    given = [document for file in files for document in render.documents(file)]
    made = convert(given, to_trainjob=to == "trainjob")
    if not made.jobs:
        raise render.UnreadableError(f"{', '.join(files)}: no job found")
    return Printed(
        written(made.documents, output), tuple(map(str, made.losses)), tuple(problems(made))
    )


def written(documents: Sequence[Json], output: str) -> str:
    """Return documents as YAML, or as JSON that kubectl reads."""
    if output == "yaml":
        return yaml.dump_all(documents, Dumper=crds.Plain, sort_keys=False, width=99)
    listed = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    return f"{json.dumps(documents[0] if len(documents) == 1 else listed, indent=2)}\n"


def problems(made: Conversion) -> Iterator[str]:
    """Yield what is wrong with the jobs of v1 that came out."""
    for document in made.documents:
        framework = FRAMEWORKS.get(text(document.get("kind")))
        if framework is None:
            continue
        meta = mapping(document.get("metadata"))
        name = text(meta.get("name")) or f"{text(meta.get('generateName'))}00000"
        given = {**document, "metadata": {**meta, "name": name}}
        for problem in render.problems(framework, render.as_served(framework, given, "")):
            yield f"{framework.kind} {name}: {problem}"
