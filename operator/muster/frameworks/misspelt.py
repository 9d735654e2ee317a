# SPDX-License-Identifier: Apache-2.0
"""Annotations of a job that Muster does not read, because their name or value is misspelt."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Final

from muster.api import names
from muster.api.model import Job, Notice

MAX_SHOWN: Final = 5
"""Annotations of a job that one notice names."""
MAX_VALUE_CHARS: Final = 40


def notices(job: Job) -> Iterator[Notice]:
    """Yield one notice about all annotations of Muster that have no effect."""
    found = list(_of(job.annotations, names.JOB_ANNOTATIONS, "metadata.annotations"))
    for role in job.replicas:
        where = f"the template of {role.type}"
        found += _of(role.annotations, names.TEMPLATE_ANNOTATIONS, where)
    if found:
        more = f"; and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
        message = f"{'; '.join(found[:MAX_SHOWN])}{more}"
        yield Notice("Warning", names.Event.ANNOTATION_IGNORED, message)


def _of(
    written: Mapping[str, object], known: Mapping[str, tuple[str, ...]], where: str
) -> Iterator[str]:
    for name in sorted(written):
        if not name.startswith(names.OWN_PREFIX):
            continue
        if name not in known:
            yield f"annotation {name} in {where} is ignored: {_remedy(name, known)}"
        elif known[name] and written[name] not in known[name]:
            value, choices = str(written[name])[:MAX_VALUE_CHARS], " or ".join(known[name])
            yield f"annotation {name}: value {json.dumps(value)} is ignored: write {choices}"


def _remedy(name: str, known: Mapping[str, tuple[str, ...]]) -> str:
    if name in names.JOB_ANNOTATIONS:
        return "write it in metadata.annotations of the job"
    suffixes = {each.removeprefix(names.OWN_PREFIX): each for each in known}
    written = name.removeprefix(names.OWN_PREFIX).lower()
    near = difflib.get_close_matches(written, suffixes, n=1)
    if near:
        return f"did you mean {suffixes[near[0]]}?"
    return f"{names.OWN_PREFIX} has {', '.join(suffixes)}"
