# SPDX-License-Identifier: Apache-2.0
"""Pods of a job that do not run as they should: one message each, for its status."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from muster.controller import replacement
from muster.controller.jobpods import Member, PodFate, refused
from muster.controller.scope import Scope

MAX_PROBLEMS: Final = 3
"""Maximum number of pods in the status: many pods of a job have the same problem."""


def found(scope: Scope) -> str:
    """Return the messages of the first pods that have a problem, in canonical order."""
    messages = (message for member in scope.roster.members for message in _of(member))
    return " ".join(islice(messages, MAX_PROBLEMS))


def _of(member: Member) -> Iterator[str]:
    pod = member.pod
    if member.fate is PodFate.LOST and refused(pod):
        yield replacement.rejection(pod)
    elif pod.phase == "Pending" and pod.rejection:
        # The rejected pod is removed, and its successor does not run yet.
        yield pod.rejection
