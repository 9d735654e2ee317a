# SPDX-License-Identifier: Apache-2.0
"""What the scheduler would decide: `muster simulate`, `snapshot` and `explain --what-if`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from muster.allocator import verdict as verdicts
from muster.allocator import view
from muster.api import edge, names, quantity
from muster.api.reasons import GangPhase
from muster.api.status import Verdict as Reported
from muster.cluster import recording
from muster.cluster.gangs import GangInput, GangRules
from muster.cluster.recording import Recording, UnreadableError
from muster.commands import jobreport, live, published, queues, render, tables, top
from muster.commands.arguments import Reference
from muster.commands.jobreport import Standing
from muster.commands.output import json_text, plain
from muster.commands.simulate import OfferError, with_offers
from muster.commands.snapshot import observe
from muster.commands.tables import JSON, TEXT, WIDE, YAML
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
        return Answer(json_text(await client.fetch(url)))
    _, seen, unknown, _ = await _observed(settings, Asked())
    text = json_text(recording.dump(seen, seen.decide()))
    return Answer(text, complaint="; ".join(filter(None, (FROM_OUTSIDE, unknown))))


def replay(file: str) -> Answer:
    """Return the decisions of a recording, made again; NO if they are not those it holds."""
    seen, told = recorded(file)
    again = recording.decisions_text(seen.decide())
    if again != told:
        return Answer(json_text(again), NO, f"{file}: other decisions than those that it holds")
    return Answer(json_text(again))


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
    what_if: bool = False
    """Compute a decision instead of reporting the operator's."""


async def simulate(settings: Settings, files: Sequence[str], asked: Asked) -> Answer:
    """Say whether the jobs of these files would fit, and where; NO if one of them would not.

    Asked of all gangs, say where these would stand beside the jobs.
    """
    _, seen, unknown, _ = await _observed(settings, asked)
    documents = [document for file in files for document in render.documents(file)]
    seen, keys = with_offers(seen, documents, asked.namespace)
    decisions = seen.decide()
    answer = replace(_answer(seen, keys, decisions, asked), complaint=unknown)
    if asked.everywhere:
        return replace(answer, text=_all(seen, "", decisions, asked.output).text)
    return answer


async def what_if(settings: Settings, what: Reference | None, asked: Asked) -> Answer:
    """Return what the scheduler would decide now on the gang that the reference names.

    Without a reference: one line for each gang.
    """
    store, seen, unknown, place = await _observed(settings, asked)
    answer = _supposed(seen, store, what, asked, place)
    return replace(answer, complaint="; ".join(filter(None, (answer.complaint, unknown))))


def _supposed(
    seen: Recording, store: Store | None, what: Reference | None, asked: Asked, place: str
) -> Answer:
    if what is None:
        return _all(seen, "" if asked.everywhere else place, seen.decide(), asked.output)
    if what.selector:
        raise OfferError(f"--selector={what.selector}: a computation is of one name, or of all")
    place = what.namespace or place
    known = [gang.key for gang in seen.gangs]
    keys = matching(known, what, place)
    if not keys and store is not None:
        keys = [key for key in known if key == key_of_pod(store, what, place)]
    if len(keys) > 1:
        return Answer("", UNKNOWN, f"{what} in namespace {place} matches {', '.join(keys)}")
    if not keys:
        return Answer("", UNKNOWN, f"the scheduler has no gang {what} in namespace {place}")
    return _answer(seen, keys, seen.decide(), asked)


def matching(known: Iterable[str], what: Reference, namespace: str) -> list[str]:
    """Return those of these keys of gangs and jobs that the reference may mean."""
    there = [key for key in dict.fromkeys(known) if key.endswith(f"/{namespace}/{what.name}")]
    kinds = {key: key.partition("/")[0] for key in there}
    # Gangs of several APIs may share a kind.
    exact = [key for key in there if kinds[key].lower() == what.kind.lower()]
    return exact or [k for k in there if not what.kind or live.is_kind(what.kind, kinds[k])]


def key_of_pod(store: Store, what: Reference, namespace: str) -> str:
    """Return the key of the job or gang to which a pod, batch Job or PodGroup belongs."""
    if live.is_kind(what.kind, "PodGroup"):
        for job in store.jobs:
            if (job.namespace, names.flat(job.name)) == (namespace, what.name):
                return job.key
    if not what.kind or live.is_kind(what.kind, "Pod"):
        pod = store.children.pod(namespace, what.name)
        if pod is not None:
            return top.holder(store, pod)
    for key in store.foreign if not what.kind or live.is_kind(what.kind, "Job") else ():
        for pod, _ in store.foreign.members(key):
            # Kubernetes up to 1.26 has the short label alone.
            labels = (pod.labels.get(names.BATCH_JOB_NAME), pod.labels.get("job-name"))
            if pod.namespace == namespace and what.name in labels:
                return key
    return ""


def _answer(
    seen: Recording,
    keys: Sequence[str],
    decisions: Sequence[Decision],
    asked: Asked,
) -> Answer:
    found = {d.gang: d for d in decisions if d.gang in keys}
    output = asked.output
    code = YES if all(fits(found.get(key)) for key in keys) else NO
    if output in (JSON, YAML):
        text = recording.decisions_text(list(found.values()))
        text = json_text(text) if output == JSON else tables.data(json.loads(text), YAML)
        return Answer(text, code)
    if output == WIDE:
        return Answer(_listing(seen, keys, decisions, WIDE).text, code)
    foretold = _foretold(seen, found.values())
    return Answer("".join(of_gang(seen, key, decisions, foretold) for key in keys), code)


def _foretold(seen: Recording, decisions: Iterable[Decision]) -> Mapping[str, float]:
    unknown = view.open_questions(decisions)
    return seen.forecast(unknown) if unknown else {}


def _all(seen: Recording, namespace: str, decisions: Sequence[Decision], output: str) -> Answer:
    """Return the gangs of a namespace, or all: waiting gangs first, in their order."""
    found = {d.gang: d for d in decisions}
    gangs = [g for g in seen.gangs if namespace in ("", namespace_of(g.key))]
    keys = [gang.key for gang in sorted(gangs, key=lambda gang: _order(gang, found))]
    return _listing(seen, keys, decisions, output)


def _listing(
    seen: Recording, keys: Sequence[str], decisions: Sequence[Decision], output: str
) -> Answer:
    """Return gangs, one line each."""
    found = {d.gang: d for d in decisions if d.gang in keys}
    gangs = {gang.key: gang for gang in seen.gangs}
    code = YES if all(fits(found.get(key)) for key in keys) else NO
    if output in (JSON, YAML):
        written = {
            d["gang"]: d for d in json.loads(recording.decisions_text(list(found.values())))
        }
        runs = {"state": str(GangPhase.RUNNING)}
        told = [written.get(key, {"gang": key, "verdict": runs}) for key in keys]
        return Answer(tables.data(told, output), code)
    foretold = _foretold(seen, found.values())
    rows = [_standing(gangs[key], found.get(key), foretold.get(key)) for key in keys]
    return Answer(jobreport.table(rows, output), code)


def _order(gang: GangInput, decisions: Mapping[str, Decision]) -> tuple[Any, ...]:
    decision = decisions.get(gang.key)
    place = decision.verdict.position if decision else 0
    return fits(decision), gang.queue, place, gang.created, gang.key


def _standing(gang: GangInput, decision: Decision | None, foretold: float | None) -> Standing:
    """Return how a gang would stand by a decision; None: it runs."""
    if decision is None:
        verdict, starts = Reported("", GangPhase.RUNNING, summary=_size(gang)), ""
    else:
        ruling, starts = decision.verdict, ""
        verdict = verdicts.of_gang("", "", ruling)
        if not fits(decision):
            starts = _start(ruling, foretold) if ruling.ever_possible else "never as things are"
    verdict = replace(verdict, summary=verdict.summary or _size(gang))
    return Standing(gang.key, verdict.state, gang.queue, verdict, (), (), gang.created, starts)


@asynccontextmanager
async def connected(settings: Settings, attempts: int = live.TRIES) -> AsyncIterator[Kube]:
    """Give the door to the cluster of these settings."""
    context = settings.context or None
    kube = await connect(
        settings.kubeconfig, settings.master, context, settings.concurrency, attempts
    )
    try:
        yield kube
    finally:
        await kube.close()


async def _observed(settings: Settings, asked: Asked) -> tuple[Store | None, Recording, str, str]:
    """Return what is known of the cluster, what a cycle would see, what is unknown, and where.

    Of a file only what a cycle would see is known.
    """
    if asked.cluster != LIVE:
        seen, _ = recorded(asked.cluster)
        return None, seen, "", asked.namespace or "default"
    async with connected(settings) as kube:
        chosen, settings, unknown = await published.read(kube, settings)
        rules, now = GangRules.of(settings, {}), await published.now(kube)
        store, seen = await observe(kube, rules, settings.member_hold, chosen, now)
        return store, seen, unknown, asked.namespace or kube.namespace


def recorded(file: str) -> tuple[Recording, str]:
    """Return the recording of a file, and its decisions. Raises OSError and UnreadableError."""
    try:
        return recording.load(Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnreadableError(f"{file}: {error}") from error


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
    return "".join(f"{plain(line)}\n" for line in (*lines, *queues.of_gang(recording, key)))


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
        if _held(gang):
            yield f"{gang.key}: placed, {_size(gang)}"
            if decision.placements:
                yield f"  {len(decision.placements)} more pod(s) fit now"
        else:
            yield f"{gang.key}: fits now, {verdict.placed} of {verdict.total} pods"
        given = [(_name(gang, p.role, p.index), p.node) for p in decision.placements]
        yield from _places(recording, gang, [*_held(gang), *given])
        if verdict.reason:
            yield f"  the rest waits: {verdict.message}"
        return
    possible = "not now" if verdict.ever_possible else "impossible as things are"
    yield f"{gang.key}: {str(verdict.state).lower()}, {possible}: {verdict.reason}"
    yield f"  {verdict.message}"
    yield from _obstacles(recording, gang, verdict)
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
        yield from (f"  {line}" for line in by_node(places))
    for eviction in decision.evictions:
        pod = f"{eviction.gang} {eviction.role}-{eviction.index}"
        yield f"  would evict {pod} from {eviction.node} ({eviction.action})"


def _obstacles(recording: Recording, gang: GangInput, verdict: Verdict) -> Iterator[str]:
    if verdict.shortage:
        yield f"  {verdict.summary}"
    for resource, lack in verdict.shortage.items():
        yield f"  lacks {quantity.format(resource, lack)} {resource} for the whole gang"
    for text, count in verdict.ruled_out.items():
        yield f"  {count} of {len(recording.nodes)} nodes: {text}"
    # No pod blocks a gang that never fits.
    named = view.short(verdict.shortage, verdict.ruled_out) if verdict.ever_possible else ()
    nodes = usable_nodes(recording, gang.key) if named else frozenset()
    for resource in named:
        for who, amount in holders(recording, resource, nodes)[:HOLDERS]:
            yield f"  {quantity.format(resource, amount)} {resource} held by {who}"


def usable_nodes(recording: Recording, key: str) -> frozenset[str]:
    """Return the nodes that a member of the gang could use if no pod ran there."""
    snapshot = recording.snapshot()
    names, allocatable = snapshot.nodes.names, snapshot.nodes.allocatable
    found: set[str] = set()
    for pod_set in next(gang for gang in snapshot.gangs if gang.key == key).pod_sets:
        if pod_set.waiting or pod_set.returning:
            shape = snapshot.shapes[pod_set.shape]
            usable = (shape.barred == 0) & (allocatable >= shape.request).all(axis=1)
            found.update(name for name, each in zip(names, usable.tolist(), strict=True) if each)
    return frozenset(found)


def holders(recording: Recording, resource: str, nodes: Collection[str]) -> list[tuple[str, int]]:
    """Return the gangs that use a resource of these nodes with their amounts, the largest first.

    Pods outside of gangs are one entry.
    """
    held: Counter[str] = Counter()
    for gang in recording.gangs:
        for role in gang.roles:
            count = sum(node in nodes for _, node in role.held)
            held[gang.key] += count * dict(role.shape.requests).get(resource, 0)
    pods = (pod for pod in recording.pods if pod.node in nodes)
    used = sum(dict(pod.requests).get(resource, 0) for pod in pods)
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
    yield from by_node(placed)
    asked = (gang.topology, *(role.topology for role in gang.roles))
    labels = {node.name: node.labels for node in recording.nodes}
    for level, found in view.domains(asked, labels, (node for _, node in placed)).items():
        parts = (f"{name} ({count} pods)" for name, count in sorted(found.items()))
        yield f"  {level}: {', '.join(parts)}"


def by_node(placed: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each node, with the names of its pods."""
    by_node: dict[str, list[str]] = {}
    for pod, node in placed:
        by_node.setdefault(node, []).append(pod)
    for node, pods in sorted(by_node.items()):
        yield f"  {node}: {', '.join(pods)}"


def _name(gang: GangInput, role: str, index: int) -> str:
    """Return the name of a job's pod; foreign pods are told apart by number."""
    return names.child(gang.key.rsplit("/", 1)[1], role, index) if role else f"pod {index}"
