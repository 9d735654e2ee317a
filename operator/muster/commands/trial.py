# SPDX-License-Identifier: Apache-2.0
"""A job that somebody pastes into the page: what would come of it, as `muster simulate` says it.

As a program it is the process that `dashboard.trial` starts: it may take as long as it likes and
as little memory as it is left, and nobody else waits for it.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, Final

from muster import frameworks
from muster.api.edge import mapping, text
from muster.api.model import Json
from muster.cluster.recording import Recording
from muster.commands import questions, render
from muster.commands.questions import Asked
from muster.commands.simulate import OfferError

PLURALS: Final = {"Pod": "pods", "PodGroup": "podgroups", "Job": "jobs"}
"""What counts beside the kinds of jobs."""
MEMORY: Final = 2**30
"""Bytes: four times what 10,000 nodes of 80,000 pods take."""
LONGEST: Final = 2**18
"""Characters of an answer."""


def parsed(written: str) -> Sequence[Json]:
    """Return the documents of a text. Raises ValueError."""
    try:
        return list(render.parsed(written, "the job"))
    except render.UnreadableError as error:
        raise ValueError(str(error)) from error


def tried(
    saw: Recording, documents: Iterable[Json], visible: Collection[str] | None = None
) -> str:
    """Return what `muster simulate` says. Raises ValueError.

    `visible`: the namespaces of which gangs may be named; None: all.
    """
    answer = questions.tried(saw, documents, Asked(visible=visible))
    if not answer.text:
        raise OfferError("there is no job in it")
    return answer.text


def creates(documents: Iterable[Json]) -> Iterator[tuple[str, str, str]]:
    """Yield the API group, resource and namespace of all that would be created, if it counts."""
    for document in documents:
        kind = text(document.get("kind"))
        row = frameworks.FRAMEWORKS.get(kind)
        plural = PLURALS.get(kind, "") if row is None else row.plural
        if plural:
            where = text(mapping(document.get("metadata")).get("namespace")) or "default"
            yield text(document.get("apiVersion")).rpartition("/")[0], plural, where


def main(asked: BinaryIO, told: BinaryIO) -> None:
    """Answer one question, whose text comes first.

    What would be created is said; then come the namespaces of which may be told, all that was
    seen but pods, those in parts, and an empty part.
    """

    def say(key: str, value: object) -> None:
        told.write(json.dumps({key: value}).encode() + b"\n")
        told.flush()

    try:
        documents = parsed(json.loads(asked.readline()))
        say("creates", sorted(set(creates(documents))))
        visible, saw = _load(asked), _load(asked)
        pods = tuple(pod for part in iter(lambda: _load(asked), ()) for pod in part)
        saw = replace(saw, pods=pods)
        say("text", tried(saw, documents, visible)[:LONGEST])
    except ValueError as error:
        say("wrong", str(error)[:LONGEST])
    except MemoryError:
        say("wrong", "that is too large to be tried here")


def _load(asked: BinaryIO) -> Any:
    # By this operator, through a pipe of its own.
    return pickle.load(asked)  # noqa: S301


if __name__ == "__main__":
    # The allocator goes first; where all others are busy, too, it still has to end in time.
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    main(sys.stdin.buffer, sys.stdout.buffer)
