# SPDX-License-Identifier: Apache-2.0
"""`muster explain`: what the operator decided on jobs and gangs, as their status reports it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from muster.api import edge, kueue, status
from muster.api.edge import mapping, sequence
from muster.api.kueue import is_dispatched
from muster.api.model import GroupView, Job, Json, PodView
from muster.api.reasons import GangPhase
from muster.api.status import FirstFailure, JobStatus, Verdict
from muster.commands import jobreport, live, published, questions
from muster.commands.arguments import Reference
from muster.commands.jobreport import Standing, time_text
from muster.commands.live import RefusedError, connected
from muster.commands.output import NO, TEXT, WIDE, YES, Answer, data, plain
from muster.commands.questions import LIVE, Asked
from muster.commands.snapshot import empty_store
from muster.frameworks import FRAMEWORKS
from muster.gang import podgroup
from muster.kube import resources
from muster.kube.client import ApiError, Kube
from muster.kube.resources import Resource
from muster.settings import Settings
from muster.store import parse
from muster.store.informers import OURS
from muster.store.store import Store

_BLANK: Final = Verdict("", "")
LINES: Final = 20
"""Of the log."""
WIDTH: Final = 500
"""Characters of a line: a progress bar may be one line."""
OTHER_KINDS: Final = ("PodGroup", "Job", "Pod")
"""Kinds of objects without a job of Muster that may belong to a gang."""


def of_job(job: Job, pods: Iterable[PodView] = (), group: GroupView | None = None) -> Standing:
    """Return how a job stands. `group`: its PodGroup, which names the default queue."""
    verdict = job.verdict or _BLANK
    queue = job.run_policy.scheduling.queue or (
        edge.text(group.spec.get("queue")) if group else ""
    )
    return Standing(
        job.key,
        verdict.state or jobreport.state(job),
        kueue.local_queue(job) or queue,
        verdict,
        jobreport.messages(job),
        _placed(pods),
        job.created,
        jobreport.starts(verdict),
        kueue.DISPATCHED if is_dispatched(job) else "",
    )


def of_group(store: Store, key: str) -> Standing:
    """Return how a gang of pods stands that belong to no job, by its PodGroup or its pods."""
    pods = [pod for pod, _ in store.foreign.members(key)]
    group = store.podgroups.find(key)
    if group is not None:
        verdict = podgroup.verdict(group)
    elif waiting := [pod for pod in pods if not pod.node]:
        reason, message = waiting[0].doubt
        verdict = Verdict("", GangPhase.WAITING, reason=reason, message=message)
    else:
        runs = all(pod.phase == "Running" or pod.terminal for pod in pods)
        verdict = Verdict("", GangPhase.RUNNING if runs else GangPhase.PLACED)
    queue = edge.text(group.spec.get("queue")) if group else ""
    messages = (verdict.message,) if verdict.message else ()
    created = min(pod.created for pod in pods)
    starts, placed = jobreport.starts(verdict), _placed(pods)
    return Standing(key, verdict.state, queue, verdict, messages, placed, created, starts)


def _placed(pods: Iterable[PodView]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pod.name, pod.node) for pod in pods if pod.node and not pod.terminal))


def document(standing: Standing) -> Json:
    """Return what programs read: `status.gang`, and the state and message of other jobs."""
    gang = standing.verdict if standing.verdict.state else None
    written = status.write(JobStatus(gang=gang)).get("gang", {})
    written |= {"state": standing.state, "message": " ".join(standing.messages)}
    reported = {} if standing.reported is None else {"reported": time_text(standing.reported)}
    return {"gang": standing.key, "verdict": written, **reported}


async def explain(settings: Settings, what: Reference | None, asked: Asked) -> Answer:
    """Return the report on a job, PodGroup or batch Job, named directly or by one of its pods.

    Without a reference, or with a selector: one line for each job and gang.
    """
    if asked.what_if or asked.cluster != LIVE:
        return await questions.what_if(settings, what, asked)
    async with connected(settings) as kube:
        named = what is not None and not what.selector
        space = (what.namespace if what else "") or asked.namespace or kube.namespace
        reader = _Reader(kube, "" if asked.everywhere and not named else space)
        await reader.read(what.selector if what else "")
        problem = await published.operator_problem(kube, settings)
        if what is None or not named:
            answer = _listing(reader.standings(selected=what is not None), asked.output)
        else:
            answer = await _named(reader, what, asked.output, stale=bool(problem))
        if problem:
            problem += "; the status that it stored last is shown"
        parts = filter(None, (answer.complaint, problem, *reader.unread))
        return replace(answer, complaint="; ".join(parts))


class _Reader:
    """Reads jobs, PodGroups and pods with the rights of the user, in one namespace or in all."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube, self.namespace = kube, namespace
        self.store = empty_store()
        self.unread: list[str] = []
        """What could not be read, in sentences."""
        self._reported: dict[str, float | None] = {}

    async def read(self, selector: str) -> None:
        """Read all. Raises ApiError if jobs cannot be read, and connection errors."""
        params = {"labelSelector": selector} if selector else {}
        for job, read in await live.jobs(self.kube, self.namespace, **params):
            self.store.put(read)
            self._report(job.key, read)
        for resource, params in ((resources.PODS, {}), (resources.BATCH_JOBS, OURS)):
            for each in await self._known(resource, **params):
                self.store.put(each)
        for api in self.store.groups.backend.apis:
            found = await self._known(api)
            groups = self.store.groups.use(api)
            for each in found:
                groups.apply(each)
                metadata = each["metadata"]
                self._report(f"PodGroup/{metadata['namespace']}/{metadata['name']}", each)

    async def _known(self, resource: Resource, **params: str) -> list[Json]:
        try:
            return await live.served(self.kube, resource, self.namespace, **params)
        except ApiError as error:
            self.unread.append(f"{resource.plural} were not read: {error.message}")
            return []

    def _report(self, key: str, read: Json) -> None:
        entries = map(mapping, sequence(mapping(read.get("metadata")).get("managedFields")))
        times = (e.get("time") for e in entries if e.get("subresource") == "status")
        self._reported[key] = max(filter(None, map(edge.parse_time, times)), default=None)

    def standing(self, key: str) -> Standing:
        job = self.store.jobs.get(key)
        if job is None:
            found = of_group(self.store, key)
        else:
            found = of_job(job, self.store.children.own_pods(job).values(), self.store.group(job))
        return replace(found, reported=self._reported.get(key))

    def standings(self, *, selected: bool) -> list[Standing]:
        """Return the jobs that have not finished and all gangs, or the selected jobs."""
        jobs = self.store.jobs
        keys = [job.key for job in jobs if selected or not job.status.finished]
        found = map(self.standing, (*keys, *(() if selected else self.store.foreign)))
        return sorted(
            found, key=lambda s: (s.healthy, s.queue, s.verdict.position or 0, s.created, s.key)
        )


async def _named(reader: _Reader, what: Reference, output: str, *, stale: bool) -> Answer:
    store, where = reader.store, reader.namespace
    key = questions.key_of((*(job.key for job in store.jobs), *store.foreign), store, what, where)
    job = store.jobs.get(key)
    if job is None and key not in store.foreign:
        absent = await _absent(reader.kube, where, what)
        raise RefusedError("; ".join((absent, *reader.unread)))
    standing = reader.standing(key)
    if output != TEXT:
        return _listing([standing], output)
    told = list(jobreport.lines(standing))
    if job is not None and kueue.is_held_or_dispatched(job):
        found = await live.workload(reader.kube, job)
        on = (found,) if isinstance(found, str) else found.lines(dispatched=is_dispatched(job))
        told[1:1] = [f"  {line}" for line in on]
    if stale and standing.reported is not None:
        told.append(f"  reported: {time_text(standing.reported)}")
    if job is not None:
        told += await _first_failure(reader.kube, job)
    text = "".join(f"{plain(line)}\n" for line in told)
    return Answer(text, YES if standing.healthy else NO)


async def _absent(kube: Kube, namespace: str, what: Reference) -> str:
    """Return that there is no such object, and what to write. Raises connection errors."""
    if not what.kind or any(live.is_kind(what.kind, each) for each in FRAMEWORKS):
        return await live.nowhere(kube, namespace, what)
    if any(live.is_kind(what.kind, each) for each in OTHER_KINDS):
        return f"{what} in namespace {namespace} does not exist, or belongs to no gang"
    kinds = ", ".join(map(str.lower, (*FRAMEWORKS, *OTHER_KINDS)))
    return f"{what}: {what.kind} is no kind of job or gang; the kinds are {kinds}"


def _listing(standings: Sequence[Standing], output: str) -> Answer:
    code = YES if all(each.healthy for each in standings) else NO
    if output not in (TEXT, WIDE):
        return Answer(data(list(map(document, standings)), output), code)
    return Answer(jobreport.table(standings, output), code)


async def _first_failure(kube: Kube, job: Job) -> list[str]:
    """Return the lines on a job's first failure. The caller needs the permission for its log."""
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
        yield f"    {line[:WIDTH]}"
