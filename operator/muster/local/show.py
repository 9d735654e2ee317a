# SPDX-License-Identifier: Apache-2.0
"""Jobs under way: files are applied, what happens is told and remembered until all have ended."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from typing import TYPE_CHECKING

import yaml

from muster.api.names import JobState
from muster.local import chart, history
from muster.local.history import JobSight
from muster.local.story import Story

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from muster.local.chart import Paint
    from muster.local.handle import Cluster
    from muster.local.history import Sight
    from muster.local.watching import Watching

    Say = Callable[[str], None]

ENDS = "local.muster.kubeflow.org/ends"
"""Annotation of a job: the state that it is meant to come to, if that is not Succeeded."""

_TICK_SECONDS = 1.0


class ShowError(Exception):
    """It does not end as it is meant to; the message says what is wrong."""


def jobs(text: str) -> Mapping[str, str]:
    """Return name -> state that it is meant to come to, for each job in a file's text."""
    found: dict[str, str] = {}
    for document in yaml.safe_load_all(text):
        if document and document["kind"].endswith("Job"):
            meta = document["metadata"]
            found[meta["name"]] = (meta.get("annotations") or {}).get(ENDS, JobState.SUCCEEDED)
    return found


class Show:
    """One namespace of a cluster on which an operator runs. `seen` is all that was heard."""

    def __init__(
        self,
        where: Cluster,
        watch: Watching,
        *,
        namespace: str = "default",
        say: Say = lambda _: None,
        check: Callable[[], None] = lambda: None,
        paint: Paint = chart.plain,
    ) -> None:
        """`say` gets each line; `check` is called every second and may raise."""
        self.seen: list[Sight] = []
        self.meant: dict[str, str] = {}
        self._latest: dict[str, JobSight] = {}
        self._where = where
        self._watch = watch
        self._namespace = namespace
        self._say = say
        self._check = check
        self._story = Story(paint)

    async def apply(self, path: Path, shown: str = "") -> None:
        """Apply a file as a user does; ShowError with kubectl's words if it is refused."""
        self._say(f"\n$ kubectl apply -f {shown or path}")
        self.meant |= jobs(await asyncio.to_thread(path.read_text))
        words = ("apply", "-n", self._namespace, "-f", str(path))
        self._say(await asyncio.to_thread(self.kubectl, *words))

    def kubectl(self, *words: str) -> str:
        """Run kubectl and return what it printed; ShowError if it fails."""
        done = subprocess.run(
            [str(self._where.files.bin / "kubectl"), *words],
            env={**os.environ, **self._where.env()},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ShowError(f"kubectl {' '.join(words)}:\n{done.stderr.strip()}")
        return done.stdout.strip()

    async def listen(self, until: Callable[[], bool], seconds: float) -> bool:
        """Listen until `until` is true, asked after each sight; False if it never was.

        ShowError as soon as a job has ended otherwise than it was meant to.
        """
        deadline = time.monotonic() + seconds
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            sight = await self._watch.next(min(left, _TICK_SECONDS))
            self._check()
            if sight is not None:
                self._hear(sight)
        return True

    def state(self, job: str) -> str:
        """Return a job's state, empty while it has none."""
        return self._latest[job].status.state if job in self._latest else ""

    def waits(self, job: str) -> bool:
        """Whether a job's gang waits and has said why."""
        latest = self._latest.get(job)
        gang = latest.status.gang if latest else None
        return self.state(job) == JobState.QUEUED and gang is not None and bool(gang.reason)

    def ended(self) -> bool:
        """Whether every job is in the state that it is meant to come to."""
        return all(self.state(job) == state for job, state in self.meant.items())

    def settled(self) -> bool:
        """Whether no pod is on a node any more."""
        return all(stay.end is not None for stay in history.stays(self.seen))

    def unfinished(self) -> str:
        """Say which jobs are not in the state that they are meant to come to."""
        return "; ".join(
            f"{job} is {self.state(job) or 'without a state'}, not {state}"
            for job, state in self.meant.items()
            if self.state(job) != state
        )

    def _hear(self, sight: Sight) -> None:
        self.seen.append(sight)
        for line in self._story.hear(sight):
            self._say(line)
        if isinstance(sight, JobSight):
            self._latest[sight.name] = sight
            state, meant = sight.status.state, self.meant.get(sight.name)
            if meant is not None and state in history.ENDED and state != meant:
                raise ShowError(f"{sight.name} is {state}, not {meant}: {_why(sight)}")


def _why(job: JobSight) -> str:
    condition = job.status.condition(job.status.state)
    return job.status.reason or (condition.message if condition else "no reason given")
