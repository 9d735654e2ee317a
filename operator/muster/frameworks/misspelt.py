# SPDX-License-Identifier: Apache-2.0
"""Annotations of a job that Muster does not read, because their name or value is misspelt."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
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
        # The search for a similar name is expensive, and a job may have thousands of annotations.
        message = f"{'; '.join(message() for message in found[:MAX_SHOWN])}{more}"
        yield Notice("Warning", names.Event.ANNOTATION_IGNORED, message)


def _of(
    written: Mapping[str, object], known: Mapping[str, tuple[str, ...]], where: str
) -> Iterator[Callable[[], str]]:
    for name in sorted(written):
        if not name.startswith(names.OWN_PREFIX):
            continue
        if name not in known:
            yield partial(_unknown, name, known, where)
        elif known[name] and written[name] not in known[name]:
            yield partial(_unsupported, name, str(written[name])[:MAX_VALUE_CHARS], known[name])


def _unsupported(name: str, value: str, choices: tuple[str, ...]) -> str:
    listed = " or ".join(choices)
    return f"annotation {name}: value {json.dumps(value)} is ignored: write {listed}"


def _unknown(name: str, known: Mapping[str, tuple[str, ...]], where: str) -> str:
    return f"annotation {name} in {where} is ignored: {_remedy(name, known)}"


def _remedy(name: str, known: Mapping[str, tuple[str, ...]]) -> str:
    if name in names.JOB_ANNOTATIONS:
        return "write it in metadata.annotations of the job"
    suffixes = {each.removeprefix(names.OWN_PREFIX): each for each in known}
    written = name.removeprefix(names.OWN_PREFIX).lower()
    near = difflib.get_close_matches(written, suffixes, n=1)
    if near:
        return f"did you mean {suffixes[near[0]]}?"
    return f"{names.OWN_PREFIX} has {', '.join(suffixes)}"
