# SPDX-License-Identifier: Apache-2.0
"""Watches jobs and pods from outside, and says what of it must never happen."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import urllib3

from muster.api.quantity import parse
from muster.local.handle import Cluster
from support.e2e.harness import JOBS, PATHS, Json, connections, node_of, phase_of

LABEL = "training.kubeflow.org/"
SLICE = 2
"""Seconds after which a watch is opened anew where it was."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One version of an object; `gone`: it was its last."""

    at: float
    """`time.monotonic()` when it was told."""
    kind: str
    object: Json
    gone: bool = False

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.object["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.object["metadata"]["name"])


class Onlooker:
    """Follows pods and jobs of all namespaces while the `with` block lasts, as administrator."""

    def __init__(self, cluster: Cluster) -> None:
        self._pool = connections(cluster.kubeconfig.read_text())
        self._server = cluster.server
        self._news = threading.Condition()
        self._over = False
        self.seen: list[Seen] = []
        self.state: dict[tuple[str, str, str], Json] = {}
        """By kind, namespace and name: what there is at present."""
        self._threads = [
            threading.Thread(target=self._follow, args=(kind,), daemon=True)
            for kind in ("Pod", *JOBS)
        ]

    def __enter__(self) -> Self:
        """Begin to look."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Look away."""
        self._over = True
        for thread in self._threads:
            thread.join()

    def find(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object as it was last seen."""
        return self.state.get((kind, namespace, name))

    def wait(self, until: Callable[[], Any], seconds: float) -> Any:
        """Return what `until` says as soon as it is true, or at last."""
        with self._news:
            self._news.wait_for(until, seconds)
        return until()

    def _follow(self, kind: str) -> None:
        path = self._server + PATHS[kind].replace("/namespaces/{ns}", "")
        while not self._over:
            try:
                version = self._list(kind, path)
                while version and not self._over:
                    version = self._watch(kind, path, version)
            except (urllib3.exceptions.HTTPError, KeyError):  # the server is away
                time.sleep(0.2)

    def _list(self, kind: str, path: str) -> str:
        listing = json.loads(self._pool.request("GET", path, timeout=30.0).data)
        known = {key: found for key, found in self.state.items() if key[0] == kind}
        for event, found in caught_up(known.values(), listing["items"]):
            self._take(kind, event, found)
        return str(listing["metadata"]["resourceVersion"])

    def _watch(self, kind: str, path: str, version: str) -> str:
        """Return the version up to which all was told, nothing if some of it was missed."""
        query = f"?watch=true&resourceVersion={version}&timeoutSeconds={SLICE}"
        timeout = urllib3.Timeout(connect=5, read=SLICE + 30)
        answer = self._pool.request("GET", path + query, preload_content=False, timeout=timeout)
        if answer.status >= 400:
            answer.close()
            return ""
        rest = b""
        for chunk in answer.stream(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for event in map(json.loads, filter(None, lines)):
                if event["type"] == "ERROR":
                    return ""
                self._take(kind, event["type"], event["object"])
                version = event["object"]["metadata"]["resourceVersion"]
        answer.release_conn()
        return version

    def _take(self, kind: str, event: str, found: Json) -> None:
        seen = Seen(time.monotonic(), kind, found, gone=event == "DELETED")
        with self._news:
            self.seen.append(seen)
            key = kind, seen.namespace, seen.name
            if seen.gone:
                self.state.pop(key, None)
            else:
                self.state[key] = found
            self._news.notify_all()


def caught_up(known: Iterable[Json], listed: Sequence[Json]) -> Iterator[tuple[str, Json]]:
    """Yield what has happened until a list was made: first all that came free, then the rest.

    Of what happened in between nobody knows the order, and nothing is to be said to have been at
    once that may have come one after the other.
    """
    there = {found["metadata"]["uid"] for found in listed}
    yield from (("DELETED", old) for old in known if old["metadata"]["uid"] not in there)
    yield from (("ADDED", found) for found in listed if _is_over(found))
    yield from (("ADDED", found) for found in listed if not _is_over(found))


def _is_over(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


Rank = tuple[str, str, str, str]
"""Namespace and name of a job, role, index."""


def rank(pod: Json) -> Rank | None:
    """Return what a pod is in its job, None if it is nobody's."""
    labels = pod["metadata"].get("labels") or {}
    if f"{LABEL}job-name" not in labels:
        return None
    named = (labels.get(f"{LABEL}{key}", "") for key in ("job-name", "replica-type"))
    job, role = named
    # A launcher that is made by a batch Job is one, whatever its pod is called.
    index = labels.get(f"{LABEL}replica-index", "0")
    return pod["metadata"]["namespace"], job, role, index


@dataclass(slots=True)
class Pod:
    """One pod of a rank, from beginning to end."""

    uid: str
    ran: bool = False
    succeeded: bool = False
    gone: bool = False


def of_ranks(seen: Iterable[Seen]) -> dict[Rank, list[Pod]]:
    """Return the pods that each rank has had, in their order."""
    ranks: dict[Rank, list[Pod]] = defaultdict(list)
    for one in seen:
        place = rank(one.object) if one.kind == "Pod" else None
        if place is None:
            continue
        uid = one.object["metadata"]["uid"]
        if all(pod.uid != uid for pod in ranks[place]):
            ranks[place].append(Pod(uid))
        pod = next(pod for pod in ranks[place] if pod.uid == uid)
        phase = one.object.get("status", {}).get("phase")
        pod.ran |= phase in ("Running", "Succeeded", "Failed")
        pod.succeeded |= phase == "Succeeded"
        pod.gone |= one.gone
    return ranks


def runs(seen: Iterable[Seen]) -> Counter[Rank]:
    """Return how many pods of each rank have run."""
    return Counter({place: sum(p.ran for p in pods) for place, pods in of_ranks(seen).items()})


def twins(seen: Iterable[Seen]) -> Iterator[str]:
    """Yield the ranks of which two pods were there at once."""
    there: dict[Rank, dict[str, str]] = defaultdict(dict)
    for one in seen:
        place = rank(one.object) if one.kind == "Pod" else None
        if place is None:
            continue
        uid = one.object["metadata"]["uid"]
        over = one.gone or _is_over(one.object)
        if over:
            there[place].pop(uid, None)
        elif uid not in there[place]:
            there[place][uid] = one.name
            if len(there[place]) > 1:
                yield f"{place}: two at once: {sorted(there[place])}"


def risen(seen: Iterable[Seen]) -> Iterator[tuple[Rank, str]]:
    """Yield the ranks that had succeeded and were made again."""
    for place, pods in of_ranks(seen).items():
        for before, after in itertools.pairwise(pods):
            if before.succeeded:
                yield place, f"{place}: {after.uid} after {before.uid} had succeeded"


@dataclass(slots=True)
class _Gang:
    pods: dict[str, Json] = field(default_factory=dict)
    over: bool = False
    since: float | None = None


def halves(seen: Sequence[Seen], wanted: Mapping[tuple[str, str], int], limit: float) -> list[str]:
    """Return the gangs, by namespace and name, that stood by half for longer than `limit`.

    `wanted`: how many pods each has that is looked at.
    """
    gangs: dict[tuple[str, str], _Gang] = defaultdict(_Gang)
    found = []
    for one in seen:
        place = rank(one.object) if one.kind == "Pod" else (one.namespace, one.name)
        if place is None or place[:2] not in wanted:
            continue
        gang = gangs[place[0], place[1]]
        if one.kind != "Pod":
            gang.over = one.gone or _ended(one.object)
        elif one.gone:
            gang.pods.pop(one.name, None)
        else:
            gang.pods[one.name] = one.object
        half = not gang.over and _half(gang.pods.values(), wanted[place[0], place[1]])
        stood = one.at - (gang.since or one.at)
        if gang.since is not None and stood > limit:
            found.append(f"{place[:2]}: half a gang for {stood:.1f} s")
        if not half:
            gang.since = None
        elif gang.since is None:
            gang.since = one.at
    return sorted(set(found))


def _half(pods: Iterable[Json], size: int) -> bool:
    """Say whether some pods hold nodes while others are neither there nor done."""
    phases = [(phase_of(pod), bool(node_of(pod))) for pod in pods]
    done = sum(phase in ("Succeeded", "Failed") for phase, _ in phases)
    placed = sum(bound and phase in ("Pending", "Running") for phase, bound in phases)
    return placed > 0 and placed + done < size


def _ended(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    over = any(c["type"] in ("Succeeded", "Failed") and c["status"] == "True" for c in conditions)
    suspended = job["spec"].get("runPolicy", {}).get("suspend", False)
    return over or bool(suspended)


def overfull(seen: Iterable[Seen], cpus: Mapping[str, float]) -> Iterator[str]:
    """Yield the nodes that held pods of more CPUs than they have."""
    held: dict[str, dict[str, float]] = defaultdict(dict)
    for one in seen:
        node = node_of(one.object) if one.kind == "Pod" else ""
        if not node:
            continue
        uid = one.object["metadata"]["uid"]
        over = one.gone or _is_over(one.object)
        if over:
            held[node].pop(uid, None)
        else:
            held[node][uid] = _cpu(one.object)
            total = sum(held[node].values())
            if total > cpus.get(node, 0) + 1e-9:
                yield f"{node}: {total} CPUs on {cpus.get(node, 0)} with {one.name}"


def _cpu(pod: Json) -> float:
    requests = (c.get("resources", {}).get("requests", {}) for c in pod["spec"]["containers"])
    return sum(float(parse(r["cpu"])) for r in requests if "cpu" in r)
