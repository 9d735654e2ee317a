# SPDX-License-Identifier: Apache-2.0
"""What the scheduler would decide: `muster simulate`, `snapshot` and `explain --what-if`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from muster.allocator import verdict as verdicts
from muster.allocator import view
from muster.api import edge, names, quantity
from muster.api.reasons import GangPhase, QueuePhase
from muster.api.status import Verdict as Reported
from muster.cluster import queuetree, recording
from muster.cluster.gangs import GangInput
from muster.cluster.queues import FLAT, shape_document
from muster.cluster.queuetree import Settled
from muster.cluster.recording import Recording, UnreadableError
from muster.commands import jobreport, live, published, render, top
from muster.commands.arguments import Reference
from muster.commands.jobreport import Standing
from muster.commands.live import RefusedError, connected
from muster.commands.output import JSON, NO, TEXT, WIDE, YAML, YES, Answer, data, json_text, plain
from muster.commands.snapshot import observe, with_offers
from muster.kube import client
from muster.kube.auth import ConfigurationError
from muster.kube.client import BROKEN, ApiError
from muster.scheduler.decision import Decision
from muster.scheduler.model import UNLIMITED, Queue, namespace_of
from muster.scheduler.plugins import proportion
from muster.scheduler.plugins.proportion import Share
from muster.scheduler.policy import PolicyError
from muster.settings import Settings
from muster.store.store import Store

LIVE: Final = "live"
FAILURES: Final = (
    ApiError,
    ConfigurationError,
    PolicyError,
    RefusedError,
    UnreadableError,
    render.UnreadableError,
    OSError,
    *BROKEN,
)
"""Errors that are printed as a sentence; the exit code is 2."""
FROM_OUTSIDE: Final = (
    "as an allocator that begins now would see it: what a running one has promised to pods that "
    "are not there yet, it alone knows (--from=URL asks it)"
)
HOLDERS: Final = 5
"""How many of those that hold a short resource are named."""
OTHERS: Final = "pods of others"


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of a question, and the form of its answer."""

    cluster: str = LIVE
    """Or a file."""
    namespace: str = ""
    everywhere: bool = False
    """Where all gangs stand, of all namespaces."""
    output: str = TEXT
    """One of `output.FORMATS`."""
    what_if: bool = False
    """Compute a decision instead of reporting the operator's."""


async def snapshot(settings: Settings, source: str) -> Answer:
    """Return a recording of an allocator by URL, or of the cluster as a new one would see it."""
    if source != LIVE:
        url = source if "/debug/" in source else f"{source.rstrip('/')}/debug/snapshot"
        return Answer(json_text(await client.fetch(url)))
    there = await _observed(settings, Asked())
    text = json_text(recording.dump(there.seen, there.seen.decide()))
    return Answer(text, complaint="; ".join(filter(None, (FROM_OUTSIDE, there.unknown))))


def replay(file: str) -> Answer:
    """Return the decisions of a recording, made again; NO if they are not those it holds."""
    seen, told = recorded(file)
    again = recording.decisions_text(seen.decide())
    if again != told:
        return Answer(json_text(again), NO, f"{file}: other decisions than those that it holds")
    return Answer(json_text(again))


async def simulate(settings: Settings, files: Sequence[str], asked: Asked) -> Answer:
    """Return whether and where jobs, or all gangs beside them, fit; NO if a job does not."""
    there = await _observed(settings, asked)
    documents = [document for file in files for document in render.documents(file)]
    seen, keys = with_offers(there.seen, documents, asked.namespace)
    computed = Computed(seen, seen.decide())
    answer = replace(computed.answer(keys, asked.output), complaint=there.unknown)
    return (
        replace(answer, text=computed.all("", asked.output).text) if asked.everywhere else answer
    )


async def what_if(settings: Settings, what: Reference | None, asked: Asked) -> Answer:
    """Return what the scheduler would decide now on one gang, or on all. Raises RefusedError."""
    if what is not None and what.selector:
        raise RefusedError(f"--selector={what.selector}: a computation is of one name, or of all")
    there = await _observed(settings, asked)
    computed = Computed(there.seen, there.seen.decide())
    if what is None:
        answer = computed.all("" if asked.everywhere else there.namespace, asked.output)
        return replace(answer, complaint=there.unknown)
    where = what.namespace or there.namespace
    key = key_of(computed.gangs, there.store, what, where)
    if key not in computed.gangs:
        text = f"the scheduler has no gang {what} in namespace {where}"
        raise RefusedError("; ".join(filter(None, (text, there.unknown))))
    return replace(computed.answer([key], asked.output), complaint=there.unknown)


def key_of(known: Iterable[str], store: Store | None, what: Reference, namespace: str) -> str:
    """Return the key, also of a stored pod or PodGroup, or "". Raises RefusedError for several."""
    there = [key for key in dict.fromkeys(known) if key.endswith(f"/{namespace}/{what.name}")]
    kinds = {key: key.partition("/")[0] for key in there}
    # Gangs of several APIs may share a kind.
    exact = [key for key in there if kinds[key].lower() == what.kind.lower()]
    keys = exact or [k for k in there if not what.kind or live.is_kind(what.kind, kinds[k])]
    if len(keys) > 1:
        raise RefusedError(f"{what} in namespace {namespace} matches {', '.join(keys)}")
    return keys[0] if keys else _key_of_pod(store, what, namespace) if store else ""


def _key_of_pod(store: Store, what: Reference, namespace: str) -> str:
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


@dataclass(frozen=True, slots=True)
class _Observed:
    """What a cycle would see of a cluster or file."""

    seen: Recording
    namespace: str
    """Of names without one."""
    store: Store | None = None
    """What is known of the cluster; None: of a file."""
    unknown: str = ""


async def _observed(settings: Settings, asked: Asked) -> _Observed:
    if asked.cluster != LIVE:
        return _Observed(recorded(asked.cluster)[0], asked.namespace or "default")
    async with connected(settings) as kube:
        chosen, settings, unknown = await published.read(kube, settings)
        store, seen = await observe(kube, settings, chosen, await published.now(kube))
        return _Observed(seen, asked.namespace or kube.namespace, store, unknown)


def recorded(file: str) -> tuple[Recording, str]:
    """Return the recording of a file, and its decisions. Raises OSError and UnreadableError."""
    try:
        return recording.load(Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnreadableError(f"{file}: {error}") from error


class Computed:
    """What a cycle sees and decides of gangs, for people and for programs."""

    def __init__(self, seen: Recording, decisions: Iterable[Decision]) -> None:
        self.seen, self.gangs = seen, {gang.key: gang for gang in seen.gangs}
        self.decisions = {decision.gang: decision for decision in decisions}

    def all(self, namespace: str, output: str) -> Answer:
        """Return the gangs of a namespace, or all, one a line: waiting first, in their order."""
        gangs = [g for g in self.gangs.values() if namespace in ("", namespace_of(g.key))]
        keys = [gang.key for gang in sorted(gangs, key=self._order)]
        return self.answer(keys, output, listed=True)

    def _order(self, gang: GangInput) -> tuple[Any, ...]:
        decision = self.decisions.get(gang.key)
        place = decision.verdict.position if decision else 0
        return fits(decision), gang.queue, place, gang.created, gang.key

    def answer(self, keys: Sequence[str], output: str, *, listed: bool = False) -> Answer:
        """Return these gangs; `listed`: as text one a line. NO if one of them does not fit."""
        shown = [self.decisions[key] for key in keys if key in self.decisions]
        code = YES if all(map(fits, shown)) else NO
        if output in (JSON, YAML):
            written = {d["gang"]: d for d in json.loads(recording.decisions_text(shown))}
            runs = {"verdict": {"state": str(GangPhase.RUNNING)}}
            told = [written.get(key, {"gang": key, **runs}) for key in keys]
            return Answer(data(told, output), code)
        if listed or output == WIDE:
            rows = [self._standing(key) for key in keys]
            return Answer(jobreport.table(rows, output), code)
        return Answer("".join(self.report(key) for key in keys), code)

    def _standing(self, key: str) -> Standing:
        gang, decision, starts = self.gangs[key], self.decisions.get(key), ""
        verdict = Reported("", GangPhase.RUNNING)
        if decision is not None:
            verdict = verdicts.of_gang("", "", decision.verdict)
        if not fits(decision):
            starts = jobreport.starts(verdict) or "unknown"
        messages = (verdict.message,) if verdict.message else ()
        verdict = replace(verdict, summary=verdict.summary or _size(gang))
        return Standing(
            key, verdict.state, gang.queue, verdict, messages, (), gang.created, starts
        )

    def report(self, key: str) -> str:
        """Return the report on a gang."""
        gang, decision = self.gangs[key], self.decisions.get(key)
        if decision is None or fits(decision):
            lines = self._fitting(gang, decision)
        else:
            standing = self._standing(key)
            note = "not now" if standing.verdict.ever_possible else ""
            more = self._obstacles(gang, decision)
            found = jobreport.lines(replace(standing, note=note), more)
            lines = iter((*found, *self._costs(decision)))
        return "".join(f"{plain(line)}\n" for line in (*lines, *_queue(self.seen, key)))

    def _fitting(self, gang: GangInput, decision: Decision | None) -> Iterator[str]:
        """Yield the lines on a gang that runs, or would start now."""
        placed = decision.placements if decision else ()
        if decision is None or _held(gang):
            yield f"{gang.key}: placed, {_size(gang)}"
            if placed:
                yield f"  {len(placed)} more pod(s) fit now"
        else:
            verdict = decision.verdict
            yield f"{gang.key}: fits now, {verdict.placed} of {verdict.total} pods"
        places = [*_held(gang), *((_name(gang, p.role, p.index), p.node) for p in placed)]
        yield from jobreport.by_node(places)
        asked = (gang.topology, *(role.topology for role in gang.roles))
        labels = {node.name: node.labels for node in self.seen.nodes}
        for level, found in view.domains(asked, labels, (node for _, node in places)).items():
            parts = (f"{name} ({count} pods)" for name, count in sorted(found.items()))
            yield f"  {level}: {', '.join(parts)}"
        if decision is not None and decision.verdict.reason:
            yield f"  the rest waits: {decision.verdict.message}"

    def _costs(self, decision: Decision) -> Iterator[str]:
        """Yield the gangs that would have to move, and the pods that would be evicted."""
        for move in decision.moves:
            yield f"  {move.gang} {'moves' if decision.evictions else 'could move'}:"
            moved = self.gangs[move.gang]
            places = [(_name(moved, p.role, p.index), p.node) for p in move.placements]
            yield from (f"  {line}" for line in jobreport.by_node(places))
        for eviction in decision.evictions:
            pod = f"{eviction.gang} {eviction.role}-{eviction.index}"
            yield f"  would evict {pod} from {eviction.node} ({eviction.action})"

    def _obstacles(self, gang: GangInput, decision: Decision) -> Iterator[str]:
        """Yield what rules out nodes, the holders of short resources, and the minimums."""
        verdict = decision.verdict
        for text, count in verdict.ruled_out.items():
            yield f"  {count} of {len(self.seen.nodes)} nodes: {text}"
        # No pod blocks a gang that never fits.
        named = view.short(verdict.shortage, verdict.ruled_out) if verdict.ever_possible else ()
        nodes = self._usable_nodes(gang.key) if named else frozenset()
        for resource in named:
            for who, amount in self._holders(resource, nodes)[:HOLDERS]:
                yield f"  {quantity.format(resource, amount)} {resource} held by {who}"
        if gang.leasts:
            listed = ", ".join(f"{least} {role}" for role, least in gang.leasts.items())
            yield f"  at the least together: {listed}"

    def _usable_nodes(self, key: str) -> frozenset[str]:
        """Return the nodes that a member of the gang could use if no pod ran there."""
        snapshot = self.seen.snapshot()
        names, allocatable = snapshot.nodes.names, snapshot.nodes.allocatable
        found: set[str] = set()
        for pod_set in next(gang for gang in snapshot.gangs if gang.key == key).pod_sets:
            if pod_set.waiting or pod_set.returning:
                shape = snapshot.shapes[pod_set.shape]
                usable = (shape.barred == 0) & (allocatable >= shape.request).all(axis=1)
                found.update(n for n, each in zip(names, usable.tolist(), strict=True) if each)
        return frozenset(found)

    def _holders(self, resource: str, nodes: Collection[str]) -> list[tuple[str, int]]:
        """Return the gangs, and OTHERS, that use a resource of these nodes, largest first."""
        held: Counter[str] = Counter()
        for gang in self.seen.gangs:
            for role in gang.roles:
                count = sum(node in nodes for _, node in role.held)
                held[gang.key] += count * dict(role.shape.requests).get(resource, 0)
        pods = (pod for pod in self.seen.pods if pod.node in nodes)
        used = sum(dict(pod.requests).get(resource, 0) for pod in pods)
        held[OTHERS] = used - held.total()
        found = [(who, amount) for who, amount in held.items() if amount > 0]
        return sorted(found, key=lambda item: (-item[1], item[0]))


def fits(decision: Decision | None) -> bool:
    """Say whether the gang starts now, or runs already."""
    return decision is None or decision.verdict.state in (GangPhase.PLACED, GangPhase.RUNNING)


def _size(gang: GangInput) -> str:
    held = len(_held(gang))
    done = sum(role.succeeded for role in gang.roles)
    return f"{held} pods on nodes" + (f", {done} done" if done else "")


def _held(gang: GangInput) -> list[tuple[str, str]]:
    return [(_name(gang, r.role, index), node) for r in gang.roles for index, node in r.held]


def _name(gang: GangInput, role: str, index: int) -> str:
    """Return the name of a job's pod; foreign pods are told apart by number."""
    return names.child(gang.key.rsplit("/", 1)[1], role, index) if role else f"pod {index}"


def _queue(recording: Recording, key: str) -> Iterator[str]:
    """Yield the terms of the queue of a gang and of all above it, as far as they set any."""
    snapshot = recording.snapshot()
    gang = next(gang for gang in snapshot.gangs if gang.key == key)
    settled = queuetree.settle(recording.queues)
    parents = {each.shape.parent for each in settled.values()}
    # Those that say anything of their place, and those that others name.
    tree = {n: each for n, each in settled.items() if each != Settled(FLAT) or n in parents}
    shares = proportion.shares(snapshot, ()) if tree else {}
    for queue in snapshot.lineage(gang.queue):
        place = _place(tree[queue.name], shares[queue.name]) if queue.name in tree else ()
        if queue.parent != queue.name and (terms := ", ".join((*place, *_terms(queue)))):
            yield f"  queue {queue.name}: {terms}"
    until = snapshot.spared_until(gang)
    if gang.ready and until > snapshot.now:
        ends = until < UNLIMITED
        why = f"before {edge.format_time(until)}" if ends else "as its queue drains"
        yield f"  not evicted {why}"


def _terms(queue: Queue) -> Iterator[str]:
    if queue.usage and queue.fairshare:
        yield f"has used {queue.usage / 3600:.1f} h of the cluster of late"
    if queue.state is not QueuePhase.OPEN:
        yield queue.state
    if queue.priority_classes:
        yield f"for priority class {' or '.join(sorted(queue.priority_classes))}"
    if queue.min_runtime:
        yield f"no eviction in the first {queue.min_runtime:g} s"
    if not queue.reclaimable:
        yield "not reclaimable"


def _place(settled: Settled, share: Share) -> Iterator[str]:
    """Yield where a queue stands in the tree, and what it has there."""
    document = shape_document(settled.shape)
    yield f"part of {document.pop('parent', '') or 'the cluster'}"
    yield f"holds {_amounts(share.allocated)}"
    yield f"is due {_amounts(share.deserved)}"
    for name, amounts in document.items():
        yield f"{name} {' '.join(f'{amount} {r}' for r, amount in amounts.items())}"
    if settled.problem:
        yield f"not as its spec says: {settled.problem}"


def _amounts(amounts: Mapping[str, int]) -> str:
    found = [f"{quantity.format(name, amount)} {name}" for name, amount in amounts.items()]
    return " ".join(found) or "nothing"
