# SPDX-License-Identifier: Apache-2.0
"""Where a gang stands, for people: placed or waiting, what is in the way, and who holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from muster.api import edge, names, quantity
from muster.api.reasons import GangPhase
from muster.cluster.gangs import GangInput
from muster.cluster.recording import Recording
from muster.scheduler.decision import Decision, Verdict

HOLDERS: Final = 5
"""How many of those that hold a short resource are named."""
INSUFFICIENT: Final = "insufficient "
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
        return "\n".join([f"{key}: placed, {_size(gang)}", *_nodes(_held(gang))]) + "\n"
    start = _start(decision.verdict, (foretold or {}).get(key))
    return "\n".join(_lines(recording, gang, decision, start)) + "\n"


def fits(decision: Decision | None) -> bool:
    """Say whether the gang starts now, or runs already."""
    return decision is None or decision.verdict.state in (GangPhase.PLACED, GangPhase.RUNNING)


def open_questions(decisions: Iterable[Decision]) -> list[str]:
    """Return the keys of the gangs that may start later, nobody has said when."""
    waiting = (d for d in decisions if not fits(d) and d.verdict.ever_possible)
    return [d.gang for d in waiting if d.verdict.eta is None]


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
        yield from _nodes([*_held(gang), *given])
        if verdict.reason:
            yield f"  the rest waits: {verdict.message}"
        return
    possible = "not now" if verdict.ever_possible else "impossible as things are"
    yield f"{gang.key}: {str(verdict.state).lower()}, {possible}: {verdict.reason}"
    yield f"  {verdict.message}"
    yield from _obstacles(recording, verdict)
    if verdict.blocked_by:
        yield f"  behind {', '.join(verdict.blocked_by)}"
    if verdict.position:
        yield f"  position {verdict.position} in queue {gang.queue}"
    if verdict.ever_possible:
        yield f"  starts: {start}"
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
    for resource in _short(verdict.shortage, verdict.ruled_out):
        for who, amount in holders(recording, resource)[:HOLDERS]:
            yield f"  {quantity.format(resource, amount)} {resource} held by {who}"


def holders(recording: Recording, resource: str) -> list[tuple[str, int]]:
    """Return who holds how much of a resource, the largest first; those not of a gang together."""
    held: Counter[str] = Counter()
    for gang in recording.gangs:
        for role in gang.roles:
            held[gang.key] += len(role.held) * dict(role.shape.requests).get(resource, 0)
    used = sum(dict(pod.requests).get(resource, 0) for pod in recording.pods)
    held[OTHERS] = used - sum(held.values())
    found = [(who, amount) for who, amount in held.items() if amount > 0]
    return sorted(found, key=lambda item: (-item[1], item[0]))


def _short(shortage: Mapping[str, int], ruled_out: Mapping[str, int]) -> list[str]:
    named = [t.removeprefix(INSUFFICIENT) for t in ruled_out if t.startswith(INSUFFICIENT)]
    return list(dict.fromkeys((*shortage, *named)))


def _size(gang: GangInput) -> str:
    held = len(_held(gang))
    done = sum(role.succeeded for role in gang.roles)
    return f"{held} pods on nodes" + (f", {done} done" if done else "")


def _held(gang: GangInput) -> list[tuple[str, str]]:
    return [(_name(gang, r.role, index), node) for r in gang.roles for index, node in r.held]


def _nodes(placed: Sequence[tuple[str, str]]) -> Iterator[str]:
    by_node: dict[str, list[str]] = {}
    for pod, node in placed:
        by_node.setdefault(node, []).append(pod)
    for node, pods in sorted(by_node.items()):
        yield f"  {node}: {', '.join(pods)}"


def _name(gang: GangInput, role: str, index: int) -> str:
    """Return the name of a job's pod; foreign pods are told apart by number."""
    return names.child(gang.key.rsplit("/", 1)[1], role, index) if role else f"pod {index}"
