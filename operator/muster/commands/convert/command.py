# SPDX-License-Identifier: Apache-2.0
"""What the command prints: files read and converted, and the result checked like any other job."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import yaml

from muster.api import manifest
from muster.api.edge import text
from muster.api.model import Json
from muster.commands import output, render
from muster.commands.convert import Conversion, convert
from muster.frameworks import FRAMEWORKS


def run(files: Sequence[str], to: str, style: str, *, strict: bool) -> int:
    """Convert the jobs of files, return the exit code. Raises render.UnreadableError."""
    given = [document for file in files for document in render.documents(file)]
    made = convert(given, to_trainjob=to == "trainjob")
    if not made.jobs:
        raise render.UnreadableError(f"{', '.join(files)}: no job found")
    output.write(written(made.documents, style))
    for loss in made.losses:
        output.complain(str(loss), "lost: ")
    wrong = list(problems(made))
    for problem in wrong:
        output.complain(problem, "wrong: ")
    return int(bool(wrong or (strict and made.losses)))


def written(documents: Sequence[Json], style: str) -> str:
    """Return documents as YAML, or as JSON that kubectl reads."""
    if style == "yaml":
        return yaml.dump_all(documents, Dumper=manifest.Plain, sort_keys=False, width=99)
    listed = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    return f"{json.dumps(documents[0] if len(documents) == 1 else listed, indent=2)}\n"


def problems(made: Conversion) -> Iterator[str]:
    """Yield what is wrong with the jobs of v1 that came out."""
    for document in made.documents:
        framework = FRAMEWORKS.get(text(document.get("kind")))
        if framework is None:
            continue
        served = render.as_served(framework, document, "")
        for problem in render.problems(framework, served):
            yield f"{framework.kind} {text(served['metadata'].get('name'))}: {problem}"
