# SPDX-License-Identifier: Apache-2.0
"""`muster demo`: real TFJobs as gangs on a local cluster, shown live with a page, then drawn."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import muster
from muster.api import manifest
from muster.api.names import JobState
from muster.api.status import JobStatus
from muster.kube import loops
from muster.local import cluster, history, options, processes, runner, timeline
from muster.local.handle import LOOPBACK, Cluster, ClusterError
from muster.local.history import JobSight, PodSight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from muster.local.history import Sight, Stay, Watch
    from muster.local.runner import Runner

    Say = Callable[[str], None]

NAME = "demo"
NODES = 4
GPUS = 4
LIMIT_SECONDS = 120.0
"""After the first job is applied."""

FIRST = "tfjob-gang-waits.yaml"
WAITS = "second"
THEN = ("tfjob-ps-worker-gpu.yaml", "tfjob-exit-code.yaml", "tfjob-simple.yaml")
_VERDICT_SECONDS = 10.0
_DRAIN_SECONDS = 5.0
_SHAPE = {"cpu": "8", "memory": "32Gi", history.GPU: str(GPUS), "pods": "110"}
ENDS = "local.muster.kubeflow.org/ends"
"""Annotation of a job: the state that it is meant to come to, if that is not Succeeded."""

_TICK_SECONDS = 1.0
_TIME = 8
_NAME = 14
_STATE = 11
# A job is created before it waits or runs; that it was, kubectl has said.
_SILENT = ("", JobState.CREATED)
_INDENT = _TIME + _NAME + _STATE


def main(*, keep: bool = False) -> int:
    """Run the show; 0 only if every job ended as meant. `keep`: leave all as it is."""
    begun = time.monotonic()
    try:
        _show(keep=keep)
    except ClusterError as error:
        print(f"muster demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        processes.hush()
        print("muster demo: interrupted", file=sys.stderr)
        return 130
    _say(f"All jobs ended as they are meant to, in {time.monotonic() - begun:.0f} s.")
    return 0


def _show(*, keep: bool) -> None:
    """Bring up a cluster, play, and delete the cluster; a kept cluster is deleted on errors.

    A cluster that is not kept has its own name and ends with this process.
    """
    examples, manifests = _shipped("examples"), _shipped("manifests") / "overlays" / "embedded"
    name = NAME if keep else f"{NAME}-{os.getpid()}"
    _say(f"A real API server with {NODES} simulated nodes, {GPUS} GPUs each:")
    wanted = options.Options(name=name, nodes=NODES, shapes=(_SHAPE,), tied=not keep)
    made = cluster.up(wanted, _say, fresh=True)
    try:
        page = f"{LOOPBACK}:{cluster.free_port()}"
        flags = (f"--dashboard-bind-address={page}", "--dashboard-auth=none")
        operator = runner.start(made, manifests, flags)
        operator.wait_ready()
        _say("Muster is ready: an operator with the rights that it ships, and no more.")
        _say(f"Watch on a page: http://{page}/")
        try:
            loops.run(_play(made, operator, examples))
        except ShowError as error:
            raise ShowError(f"{error}\nThe operator's log:\n{operator.log_tail()}") from error
    except BaseException:
        cluster.down(name)
        raise
    if keep:
        _say(f'Kept: eval "$(muster local env --name {name})"; kubectl get tfjobs,pods')
        _say(f"To end it: muster local down --name {name}\n")
    else:
        cluster.down(name)


async def _play(where: Cluster, operator: Runner, examples: Path) -> None:
    since = time.monotonic()
    async with history.watched(where, "default", since) as watch:
        show = Show(where, watch, say=_say, check=operator.check)
        await show.apply(examples, FIRST)
        if not await show.listen(lambda: show.waits(WAITS), _VERDICT_SECONDS):
            raise ShowError(
                f"{WAITS} does not say within {_VERDICT_SECONDS:.0f} s why it waits; "
                f"{show.unfinished()}"
            )
        _say(f"\n{WAITS} waits and holds nothing. Smaller jobs may have what is left:")
        await show.apply(examples, *THEN)
        if not await show.listen(show.ended, LIMIT_SECONDS):
            raise ShowError(f"after {LIMIT_SECONDS:.0f} s {show.unfinished()}")
        await show.listen(show.story.drained, _DRAIN_SECONDS)
        _say(f"\n$ kubectl get tfjobs\n{where.kubectl('get', 'tfjobs').strip()}\n")
    nodes = [timeline.Node(f"node-{index + 1}", GPUS) for index in range(NODES)]
    _say(timeline.render(show.story, nodes))


def _shipped(folder: str) -> Path:
    found = muster.shipped(folder)
    if found is None:
        raise ShowError(
            f"the folder {folder} of Muster's repository is missing from this installation: "
            "run `make demo` in a clone"
        )
    return found


def _say(text: str) -> None:
    print(text, flush=True)


class ShowError(ClusterError):
    """It does not end as it is meant to; the message says what is wrong."""


def jobs(text: str) -> Mapping[str, str]:
    """Return name -> state that it is meant to come to, for each job in a file's text."""
    found: dict[str, str] = {}
    for document in manifest.documents(text):
        if document["kind"].endswith("Job"):
            meta = document["metadata"]
            found[meta["name"]] = (meta.get("annotations") or {}).get(ENDS, JobState.SUCCEEDED)
    return found


class Show:
    """One namespace of a cluster on which an operator runs. `story` is what was seen so far."""

    def __init__(
        self,
        where: Cluster,
        watch: Watch,
        *,
        namespace: str = "default",
        say: Say = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`say` gets each line; `check` is called every second and may raise."""
        self.meant: dict[str, str] = {}
        self.story = history.Story()
        self._where, self._watch, self._namespace = where, watch, namespace
        self._say, self._check = say, check
        self._shown: dict[str, tuple[str, str]] = {}

    async def apply(self, folder: Path, *files: str) -> None:
        """Apply examples as a user does; ClusterError with kubectl's message if one is refused."""
        for path in map(folder.joinpath, files):
            self._say(f"\n$ kubectl apply -f examples/{path.name}")
            self.meant |= jobs(await asyncio.to_thread(path.read_text))
            apply = ("apply", "-n", self._namespace, "-f", str(path))
            self._say((await asyncio.to_thread(self._where.kubectl, *apply)).strip())

    async def listen(self, until: Callable[[], bool], seconds: float) -> bool:
        """Listen until `until` is true, else False. ShowError once a job has the wrong end."""
        deadline = time.monotonic() + seconds
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            sight = await self._watch.next(min(left, _TICK_SECONDS))
            self._check()
            if sight is not None:
                self.take(sight)
        return True

    def status(self, job: str) -> JobStatus:
        """Return a job's last status, an empty one before the job was seen."""
        return self.story.jobs[job][-1].status if job in self.story.jobs else JobStatus()

    def waits(self, job: str) -> bool:
        """Whether a job's gang waits and has said why."""
        status = self.status(job)
        return status.state == JobState.QUEUED and bool(status.gang and status.gang.reason)

    def ended(self) -> bool:
        """Whether every job is in the state that it is meant to come to."""
        return not self.unfinished()

    def unfinished(self) -> str:
        """Say which jobs are not in the state that they are meant to come to."""
        return "; ".join(
            f"{job} is {self.status(job).state or 'without a state'}, not {state}"
            for job, state in self.meant.items()
            if self.status(job).state != state
        )

    def take(self, sight: Sight) -> None:
        """Add a sight and print its news. ShowError for a job with the wrong end."""
        if isinstance(sight, PodSight):
            before = self.story.stays.get(sight.uid)
            self.story.add(sight)
            self._of_pod(sight, before)
            return
        self.story.add(sight)
        status, (state, why) = sight.status, _told(sight)
        last_state, last_why = self._shown.get(sight.name, ("", ""))
        silent = state not in {JobState.QUEUED, JobState.INVALID, JobState.BLOCKED}
        if state not in _SILENT and (state != last_state or not (silent or why == last_why)):
            self._shown[sight.name] = (state, why)
            self._tell(sight, sight.name, state, why)
        meant = self.meant.get(sight.name, status.state)
        if status.state in history.ENDED and status.state != meant:
            condition = status.condition(status.state)
            reason = status.reason or (condition.message if condition else "no reason given")
            raise ShowError(f"{sight.name} is {status.state}, not {meant}: {reason}")

    def _of_pod(self, pod: PodSight, before: Stay | None) -> None:
        stay = self.story.stays.get(pod.uid)
        if stay is None:
            return
        if before is None:
            stays = self.story.of(pod.job)
            earlier = [each.ending for each in stays if each.pod == pod.name][:-1]
            if earlier[-1:] == ["Failed"]:
                self._tell(pod, pod.job, "", f"{pod.name} runs again, on {pod.node}")
            nodes = {each.pod: each.node for each in stays}
            known = self.story.jobs.get(pod.job)
            if not earlier and known and len(nodes) == known[-1].pods:
                counts = sorted(Counter(nodes.values()).items())
                who = f"all {len(nodes)} pods" if len(nodes) > 1 else "its pod is"
                places = ", ".join(f"{count} on {node}" for node, count in counts)
                self._tell(pod, pod.job, "", f"{who} placed: {places}")
        if stay.ending == "Failed" and not (before and before.ending):
            code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
            self._tell(pod, pod.job, "", f"{pod.name} on {pod.node} ended{code}")

    def _tell(self, sight: Sight, job: str, state: str, words: str) -> None:
        time, name = f"{sight.at:5.1f} s ", f"{job:<{_NAME}.{_NAME - 1}}"
        lines = textwrap.wrap(words, timeline.WIDTH - _INDENT, break_long_words=False) or [""]
        text = f"\n{'':{_INDENT}}".join(lines)
        self._say(f"{time}{name}{state:<{_STATE}}{text}".rstrip())


def _told(job: JobSight) -> tuple[str, str]:
    """Return the state of a job and its reason: the verdict of the gang while the job waits."""
    status, state = job.status, job.status.state
    if job.gone:
        return "deleted", ""
    if state in {JobState.INVALID, JobState.BLOCKED}:
        return state, status.reason
    if state == JobState.QUEUED:
        return state, "" if status.gang is None else status.gang.summary or status.gang.message
    told = state in history.ENDED or state == JobState.RESTARTING
    condition = status.condition(state)
    return state, condition.message if condition and told else ""
