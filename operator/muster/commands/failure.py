# SPDX-License-Identifier: Apache-2.0
"""Which rank of a job failed first, with the end of its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.api import edge
from muster.api.model import Job, Json
from muster.api.status import FirstFailure
from muster.commands.output import plain
from muster.kube import resources
from muster.kube.client import ApiError, Kube
from muster.store import parse

LINES: Final = 20
"""Of the log."""
WIDTH: Final = 500
"""Characters of a line: a progress bar may be one line."""


async def report(kube: Kube, job: Job) -> list[str]:
    """Return the lines on the first failure of a job, none if there is none.

    The log is read here and now, with the permissions of who asks: nobody keeps it.
    """
    first = job.status.first_failure
    if first is None:
        return []
    lines = [f"  {first}", f"  at {edge.format_time(first.failure_time)}"]
    if first.message:
        lines += ["  its message:", *_shown(first.message)]
    if first.container:
        lines += await _log(kube, job.namespace, first)
    return lines


async def _log(kube: Kube, namespace: str, first: FirstFailure) -> list[str]:
    try:
        pod = await kube.get(resources.PODS.path(namespace, first.pod))
        kept = dict(_kept(pod, first))
        if not kept:
            return ["  its log is gone: the pod was made anew"]
        at = first.failure_time if first.failure_time in kept else max(kept)
        asked = {"container": first.container, "tailLines": str(LINES), "previous": kept[at]}
        log = await kube.text(resources.PODS.path(namespace, first.pod, "log"), **asked)
    except ApiError as error:
        return [f"  its log cannot be read: {error.message}"]
    later = "" if at == first.failure_time else f" when it failed again at {edge.format_time(at)}"
    return [f"  the end of its log{later}:", *_shown(log)]


def _kept(pod: Json, first: FirstFailure) -> Iterator[tuple[float, str]]:
    """Yield the ends of the failed runs that have a log, and whether another came since."""
    view = parse.pod(pod)
    for ends, before in ((view.past_failures, "true"), (view.ends, "false")):
        for end in ends:
            if end.container == first.container and end.exit_code:
                yield end.at or first.failure_time, before


def _shown(text: str) -> Iterator[str]:
    """Yield the last lines of what a program wrote."""
    for line in text.splitlines()[-LINES:]:
        yield f"    {plain(line[:WIDTH])}"
