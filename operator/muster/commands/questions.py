# SPDX-License-Identifier: Apache-2.0
"""What `muster explain`, `simulate` and `snapshot` answer: a text and an exit code."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from muster.allocator import view
from muster.allocator.policyfile import PolicyFile
from muster.api import edge, names, quantity
from muster.api.model import Job, Json
from muster.api.reasons import GangPhase
from muster.cluster import recording
from muster.cluster.gangs import GangInput, GangRules
from muster.cluster.recording import Recording, UnreadableError
from muster.commands import failure, queues, render, tables
from muster.commands.simulate import OfferError, with_offers
from muster.commands.snapshot import observe
from muster.commands.tables import JSON, TEXT, WIDE, YAML, Column
from muster.kube import client
from muster.kube.auth import ConfigurationError, connect
from muster.kube.client import BROKEN, ApiError, Kube
from muster.scheduler.decision import Decision, Verdict
from muster.scheduler.model import namespace_of
from muster.scheduler.policy import PolicyError
from muster.settings import Settings
from muster.store.store import Store

LIVE: Final = "live"
YES, NO, UNKNOWN = 0, 1, 2
FAILURES: Final = (
    ApiError,
    ConfigurationError,
    OfferError,
    PolicyError,
    UnreadableError,
    render.UnreadableError,
    OSError,
    *BROKEN,
)
"""What is told in a sentence, with the code UNKNOWN."""
FROM_OUTSIDE: Final = (
    "as an allocator that begins now would see it: what a running one has promised to pods that "
    "are not there yet, it alone knows (--from=URL asks it)"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Text for standard output, a sentence for standard error, and the exit code."""

    text: str
    code: int = YES
    complaint: str = ""


async def snapshot(settings: Settings, source: str) -> Answer:
    """Return a recording as a file: of the cluster now, or of a running allocator by its URL.

    Of the cluster it is what an allocator would see that began now, which is said.
    """
    if source != LIVE:
        url = source if "/debug/" in source else f"{source.rstrip('/')}/debug/snapshot"
        return Answer(await client.fetch(url))
    async with connected(settings) as kube:
        _, seen = await _live(settings, kube)
    return Answer(recording.dump(seen, seen.decide()), complaint=FROM_OUTSIDE)


def replay(file: str) -> Answer:
    """Return the decisions of a recording, made again; NO if they are not those it holds."""
    seen, told = recording.load(read(file))
    again = recording.decisions_text(seen.decide())
    if again != told:
        return Answer(again, NO, f"{file}: other decisions than those that it holds")
    return Answer(again)


@dataclass(frozen=True, slots=True)
class Asked:
    """Of what a question is, and how it is to be answered."""

    cluster: str = LIVE
    """Or a file."""
    namespace: str = ""
    everywhere: bool = False
    """Where all gangs stand, of all namespaces."""
    output: str = TEXT
    """One of `tables.FORMATS`."""


async def simulate(settings: Settings, files: Sequence[str], asked: Asked) -> Answer:
    """Say whether the jobs of these files would fit, and where; NO if one of them would not.

    Asked of all gangs, say where these would stand beside the jobs.
    """
    if asked.cluster == LIVE:
        async with connected(settings) as kube:
            _, seen = await _live(settings, kube)
    else:
        seen, _ = recording.load(read(asked.cluster))
    documents = [document for file in files for document in render.documents(file)]
    seen, keys = with_offers(seen, documents, asked.namespace)
    decisions = seen.decide()
    answer = _answer(seen, keys, decisions, asked)
    if asked.everywhere:
        return replace(_all(seen, "", decisions, asked.output), code=answer.code)
    return answer


async def explain(settings: Settings, what: str, asked: Asked) -> Answer:
    """Say where a gang stands: by its job, its PodGroup, its batch Job or one of its pods.

    Where none is named, say it of all of the namespace, or of all there are.
    """
    kind, _, name = what.partition("/")
    failed = []
    if asked.cluster == LIVE:
        async with connected(settings) as kube:
            store, seen = await _live(settings, kube)
            place = asked.namespace or kube.namespace
            job = _job(store, kind, place, name)
            if job is not None and asked.output == TEXT:
                failed = await failure.report(kube, job)
        # A recording has no names of pods, so only the live cluster can be asked by one.
        key = _find(seen, kind, place, name) or _of_pods(store, kind, place, name)
    else:
        seen, place = recording.load(read(asked.cluster))[0], asked.namespace or "default"
        key = _find(seen, kind, place, name)
    if not what:
        return _all(seen, "" if asked.everywhere else place, seen.decide(), asked.output)
    if key:
        answer = _answer(seen, [key], seen.decide(), asked)
        return replace(answer, text=answer.text + "".join(failed))
    if failed:
        return Answer(f"{what} in namespace {place}: not at work\n{''.join(failed)}", NO)
    why = "not there, at its end, or of another scheduler"
    return Answer("", UNKNOWN, f"{kind}/{name} in namespace {place}: {why}")


def _job(store: Store, kind: str, namespace: str, name: str) -> Job | None:
    """Return the job; the kind as in `_find`."""
    kinds = (kind.lower(), kind.lower().removesuffix("s"))
    keys = (f"{known}/{namespace}/{name}" for known in store.frameworks if known.lower() in kinds)
    return next(filter(None, map(store.jobs.get, keys)), None)


def _answer(
    seen: Recording, keys: Sequence[str], decisions: Sequence[Decision], asked: Asked
) -> Answer:
    found = {d.gang: d for d in decisions if d.gang in keys}
    output = asked.output
    code = YES if all(fits(found.get(key)) for key in keys) else NO
    if output in (JSON, YAML):
        text = recording.decisions_text(list(found.values()))
        return Answer(text if output == JSON else tables.data(json.loads(text), YAML), code)
    unknown = view.open_questions(found.values())
    foretold = seen.forecast(unknown) if unknown else {}
    if output == WIDE:
        return Answer(_table(seen, keys, found, foretold, wide=True), code)
    return Answer("".join(of_gang(seen, key, decisions, foretold) for key in keys), code)


def _all(seen: Recording, namespace: str, decisions: Sequence[Decision], output: str) -> Answer:
    """Say where the gangs of a namespace stand, or all: who waits first, in their order."""
    found = {d.gang: d for d in decisions}
    gangs = [g for g in seen.gangs if namespace in ("", namespace_of(g.key))]
    keys = [gang.key for gang in sorted(gangs, key=lambda gang: _order(gang, found))]
    code = YES if all(fits(found.get(key)) for key in keys) else NO
    there = [found[key] for key in keys if key in found]
    if output in (JSON, YAML):
        written = {each["gang"]: each for each in json.loads(recording.decisions_text(there))}
        placed: Json = {"verdict": {"state": str(GangPhase.RUNNING)}}
        told = [written.get(key, {"gang": key, **placed}) for key in keys]
        return Answer(tables.data(told, output), code)
    asked = view.open_questions(there)
    foretold = seen.forecast(asked) if asked else {}
    text = _table(seen, keys, found, foretold, wide=output == WIDE)
    return Answer(text if keys else "no gangs\n", code)


def _order(gang: GangInput, decisions: Mapping[str, Decision]) -> tuple[Any, ...]:
    decision = decisions.get(gang.key)
    place = decision.verdict.position if decision else 0
    return fits(decision), gang.queue, place, gang.created, gang.key


def _table(
    seen: Recording,
    keys: Sequence[str],
    decisions: Mapping[str, Decision],
    foretold: Mapping[str, float],
    *,
    wide: bool,
) -> str:
    """Return the gangs, one line each."""
    queue_of = {gang.key: gang.queue for gang in seen.gangs}
    size_of = {gang.key: _size(gang) for gang in seen.gangs}

    def told(read: Callable[[Verdict], str]) -> Callable[[str], str]:
        return lambda key: read(decisions[key].verdict) if key in decisions else ""

    def lacks(verdict: Verdict) -> str:
        return ", ".join(f"{quantity.format(r, n)} {r}" for r, n in verdict.shortage.items())

    def standing(key: str) -> str:
        return told(lambda verdict: verdict.summary)(key) or size_of[key]

    def starts(key: str) -> str:
        decision = decisions.get(key)
        if decision is None or fits(decision):
            return ""
        possible = decision.verdict.ever_possible
        return _start(decision.verdict, foretold.get(key)) if possible else "never as things are"

    columns: list[Column[str]] = [
        Column("GANG", str),
        Column("STATE", lambda key: told(lambda v: str(v.state))(key) or str(GangPhase.RUNNING)),
        Column("QUEUE", lambda key: queue_of[key]),
        Column("POSITION", told(lambda verdict: str(verdict.position or ""))),
        Column("STARTS", starts),
        Column("STANDING", standing),
        Column("REASON", told(lambda verdict: str(verdict.reason)), wide=True),
        Column("LACKS", told(lacks), wide=True),
        Column("BEHIND", told(lambda verdict: ", ".join(verdict.blocked_by)), wide=True),
    ]
    return tables.table(columns, keys, wide=wide)


def _find(seen: Recording, kind: str, namespace: str, name: str) -> str:
    """Return the key of the gang; the kind may be in any case, and in the plural."""
    kinds = (kind.lower(), kind.lower().removesuffix("s"))
    wanted = {(each, namespace, name) for each in kinds}
    for gang in seen.gangs:
        dialect, *where = gang.key.split("/", 2)
        if (dialect.lower(), *where) in wanted:
            return gang.key
    return ""


def _of_pods(store: Store, kind: str, namespace: str, name: str) -> str:
    """Return the key of the gang that has a pod of that name, or of that batch Job."""
    of_job = kind.lower() in ("job", "jobs")
    for key in store.foreign:
        for pod, _ in store.foreign.members(key):
            # Kubernetes up to 1.26 has the short label alone.
            labels = (pod.labels.get(names.BATCH_JOB_NAME), pod.labels.get("job-name"))
            if pod.namespace == namespace and name in (labels if of_job else (pod.name,)):
                return key
    return ""


@asynccontextmanager
async def connected(settings: Settings, attempts: int = client.ATTEMPTS) -> AsyncIterator[Kube]:
    """Give the door to the cluster of these settings."""
    context = settings.context or None
    kube = await connect(
        settings.kubeconfig, settings.master, context, settings.concurrency, attempts
    )
    try:
        yield kube
    finally:
        await kube.close()


async def _live(settings: Settings, kube: Kube) -> tuple[Store, Recording]:
    """Return what is known of the cluster, and what a cycle would see."""
    chosen = PolicyFile(settings.scheduler_conf).get()
    rules = GangRules.of(settings, {})
    return await observe(kube, rules, settings.member_hold, chosen, time.time())


def read(file: str) -> str:
    """Return what a file holds. Raises OSError."""
    return Path(file).read_text(encoding="utf-8")


HOLDERS: Final = 5
"""How many of those that hold a short resource are named."""
OTHERS: Final = "pods of others"


def of_gang(
    recording: Recording,
    key: str,
    decisions: Sequence[Decision],
    foretold: Mapping[str, float] | None = None,
) -> str:
    """Return the report on a gang of the recording, in lines.

    `foretold`: when gangs start that have no reservation, if nothing else comes.
    """
    gang = next(gang for gang in recording.gangs if gang.key == key)
    decision = next((d for d in decisions if d.gang == key), None)
    if decision is None:
        held = _places(recording, gang, _held(gang))
        lines = iter([f"{key}: placed, {_size(gang)}", *held])
    else:
        start = _start(decision.verdict, (foretold or {}).get(key))
        lines = _lines(recording, gang, decision, start)
    return "\n".join([*lines, *queues.of_gang(recording, key)]) + "\n"


def fits(decision: Decision | None) -> bool:
    """Say whether the gang starts now, or runs already."""
    return decision is None or decision.verdict.state in (GangPhase.PLACED, GangPhase.RUNNING)


def _start(verdict: Verdict, foretold: float | None) -> str:
    if verdict.eta is not None:
        return edge.format_time(verdict.eta)
    if foretold is None:
        return "unknown"
    return f"about {edge.format_time(foretold)}, if nothing else comes"


def _lines(recording: Recording, gang: GangInput, decision: Decision, start: str) -> Iterator[str]:
    verdict = decision.verdict
    if fits(decision):
        yield f"{gang.key}: fits now, {verdict.placed} of {verdict.total} pods"
        given = [(_name(gang, p.role, p.index), p.node) for p in decision.placements]
        yield from _places(recording, gang, [*_held(gang), *given])
        if verdict.reason:
            yield f"  the rest waits: {verdict.message}"
        return
    possible = "not now" if verdict.ever_possible else "impossible as things are"
    yield f"{gang.key}: {str(verdict.state).lower()}, {possible}: {verdict.reason}"
    yield f"  {verdict.message}"
    yield from _obstacles(recording, verdict)
    if gang.leasts:
        listed = ", ".join(f"{least} {role}" for role, least in gang.leasts.items())
        yield f"  at the least together: {listed}"
    if verdict.blocked_by:
        yield f"  behind {', '.join(dict.fromkeys(verdict.blocked_by))}"
    if verdict.position:
        yield f"  position {verdict.position} in queue {gang.queue}"
    if verdict.ever_possible:
        yield f"  starts: {start}"
    yield from _costs(recording, decision)


def _costs(recording: Recording, decision: Decision) -> Iterator[str]:
    """Yield the gangs that would have to move, and the pods that would be evicted."""
    for move in decision.moves:
        yield f"  {move.gang} {'moves' if decision.evictions else 'could move'}:"
        moved = next(each for each in recording.gangs if each.key == move.gang)
        places = [(_name(moved, p.role, p.index), p.node) for p in move.placements]
        yield from (f"  {line}" for line in _nodes(places))
    for eviction in decision.evictions:
        pod = f"{eviction.gang} {eviction.role}-{eviction.index}"
        yield f"  would evict {pod} from {eviction.node} ({eviction.action})"


def _obstacles(recording: Recording, verdict: Verdict) -> Iterator[str]:
    for resource, lack in verdict.shortage.items():
        yield f"  lacks {quantity.format(resource, lack)} {resource} for the whole gang"
    for text, count in verdict.ruled_out.items():
        yield f"  {count} of {len(recording.nodes)} nodes: {text}"
    for resource in view.short(verdict.shortage, verdict.ruled_out):
        for who, amount in holders(recording, resource)[:HOLDERS]:
            yield f"  {quantity.format(resource, amount)} {resource} held by {who}"


def holders(recording: Recording, resource: str) -> list[tuple[str, int]]:
    """Return the gangs that use a resource with their amounts, the largest first.

    Pods outside of gangs are one entry.
    """
    held: Counter[str] = Counter()
    for gang in recording.gangs:
        for role in gang.roles:
            held[gang.key] += len(role.held) * dict(role.shape.requests).get(resource, 0)
    used = sum(dict(pod.requests).get(resource, 0) for pod in recording.pods)
    held[OTHERS] = used - sum(held.values())
    found = [(who, amount) for who, amount in held.items() if amount > 0]
    return sorted(found, key=lambda item: (-item[1], item[0]))


def _size(gang: GangInput) -> str:
    held = len(_held(gang))
    done = sum(role.succeeded for role in gang.roles)
    return f"{held} pods on nodes" + (f", {done} done" if done else "")


def _held(gang: GangInput) -> list[tuple[str, str]]:
    return [(_name(gang, r.role, index), node) for r in gang.roles for index, node in r.held]


def _places(
    recording: Recording, gang: GangInput, placed: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield on which nodes pods are, and in which domains of the labels that the gang asks for."""
    yield from _nodes(placed)
    asked = (gang.topology, *(role.topology for role in gang.roles))
    labels = {node.name: node.labels for node in recording.nodes}
    for level, found in view.domains(asked, labels, (node for _, node in placed)).items():
        parts = (f"{name} ({count} pods)" for name, count in sorted(found.items()))
        yield f"  {level}: {', '.join(parts)}"


def _nodes(placed: Sequence[tuple[str, str]]) -> Iterator[str]:
    by_node: dict[str, list[str]] = {}
    for pod, node in placed:
        by_node.setdefault(node, []).append(pod)
    for node, pods in sorted(by_node.items()):
        yield f"  {node}: {', '.join(pods)}"


def _name(gang: GangInput, role: str, index: int) -> str:
    """Return the name of a job's pod; foreign pods are told apart by number."""
    return names.child(gang.key.rsplit("/", 1)[1], role, index) if role else f"pod {index}"
