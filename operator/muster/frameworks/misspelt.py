# SPDX-License-Identifier: Apache-2.0
"""Annotations of a job that Muster does not read, because their name or value is misspelt."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Any, Final

from muster.api import names
from muster.api.model import Job, Notice

MAX_SHOWN: Final = 5
"""Annotations of a job that one notice names."""
MAX_VALUE_CHARS: Final = 40
_Known = Mapping[str, tuple[str, ...]]


def notices(job: Job) -> Iterator[Notice]:
    """Yield one notice about all annotations of Muster that have no effect."""
    places: list[tuple[Mapping[str, Any], _Known, str]]
    places = [(job.annotations, names.JOB_ANNOTATIONS, "metadata.annotations")]
    for role in job.replicas:
        where = f"the template of {role.type}"
        places.append((role.annotations, names.TEMPLATE_ANNOTATIONS, where))
    found = [
        (name, written[name], known, where)
        for written, known, where in places
        for name in sorted(written)
        if name.startswith(names.OWN_PREFIX)
        if name not in known or (known[name] and written[name] not in known[name])
    ]
    if found:
        more = f"; and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
        # The search for a similar name is expensive, and a job may have thousands of annotations.
        message = f"{'; '.join(starmap(_message, found[:MAX_SHOWN]))}{more}"
        yield Notice("Warning", names.Event.ANNOTATION_IGNORED, message)


def _message(name: str, value: object, known: _Known, where: str) -> str:
    if name not in known:
        return f"annotation {name} in {where} is ignored: {_remedy(name, known)}"
    shown, listed = json.dumps(str(value)[:MAX_VALUE_CHARS]), " or ".join(known[name])
    return f"annotation {name}: value {shown} is ignored: write {listed}"


def _remedy(name: str, known: _Known) -> str:
    if name in names.JOB_ANNOTATIONS:
        return "write it in metadata.annotations of the job"
    suffixes = {each.removeprefix(names.OWN_PREFIX): each for each in known}
    written = name.removeprefix(names.OWN_PREFIX).lower()
    near = difflib.get_close_matches(written, suffixes, n=1)
    if near:
        return f"did you mean {suffixes[near[0]]}?"
    return f"{names.OWN_PREFIX} has {', '.join(suffixes)}"
