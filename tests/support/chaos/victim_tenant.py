# SPDX-License-Identifier: Apache-2.0
"""The story of a victim: jobs of every sort that run and wait, and what is recorded of them.

Nothing of it is left to chance: gangs that wait for the same room are of one size and none of one
priority, what ends ends when it is told to, and nobody is told before all is there that the last
one was to bring about. So two records of it are equal, but for times and memory.
"""

from __future__ import annotations

import itertools
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

from support.builders.job_kinds import SORTS
from support.chaos import hostile_documents, invariants
from support.chaos.invariants import Onlooker
from support.e2e.harness import (
    PATIENCE,
    Api,
    Json,
    add_nodes,
    condition,
    node_of,
    of_job,
    phase_of,
    tfjob,
    verdict,
)
from support.e2e.kinds import LAUNCHED, LEADS, job, role_of

POOL, CLASS = "example.com/pool", "hostile"
SIZE = 3
"""Pods of each gang: room for less than that lets nobody start."""
SMALL = "300m"
"""What each pod takes. What a gang leaves is too little for any pod of one CPU, so that nobody
gets it who may tolerate the taints of others' nodes."""
SLACK, WORK_SLACK = 4.0, 2.0
"""Seconds of the clock, and of the operator's CPU, that a step may take longer: what is refused
keeps the machine busy."""
CLASSES = {
    "high": 1000,
    "run": 900,
    **{f"wait-{place}": 800 - place for place in range(len(SORTS))},
    "low": -10,
}
NODES = {
    "victims-1": "3600m",
    "victims-2": f"{300 * (SIZE * len(SORTS) - 12)}m",
    "pair-1": "700m",
    "probes-1": "500m",
    "tenants-1": "4",
}
VOLATILE = frozenset({"resourceVersion", "since", "eta", "nodeName", "nodeAffinity"})
"""Fields of pods and statuses that differ from time to time, besides uids and times."""
LAST = ("JobTerminated", "SuccessfulDeletePodGroup")
"""What is told of a job behind all else."""
GENERATED = re.compile(r"(launcher|api-access)-[a-z0-9]{5}$")
"""Ends of names that others than the operator draw."""


def make_home(admin: Api) -> None:
    """Make nodes for the victim, one for its small jobs, and one for all others."""
    for name, cpu in NODES.items():
        prefix, _, number = name.rpartition("-")
        if number == "1":
            shapes = [{"cpu": c} for n, c in NODES.items() if n.startswith(f"{prefix}-")]
            add_nodes(admin, *shapes, prefix=prefix)
        if prefix != "tenants":
            taint = {"key": POOL, "value": prefix, "effect": "NoSchedule"}
            body = {"metadata": {"labels": {POOL: prefix}}, "spec": {"taints": [taint]}}
            admin.patch("Node", name, body)
        assert cpu
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    for name, value in CLASSES.items():
        admin.create({**kind, "metadata": {"name": f"{CLASS}-{name}"}, "value": value})


def leave_home(admin: Api) -> None:
    """Take that away again."""
    for name in NODES:
        admin.delete("Node", name)
    for name in CLASSES:
        admin.delete("PriorityClass", f"{CLASS}-{name}")


@dataclass
class Record:
    """How a victim's jobs fared."""

    started: list[str] = field(default_factory=list)
    """Jobs in the order in which their pods began to run, from when the first one ends."""
    statuses: dict[str, Json] = field(default_factory=dict)
    """By job, in the end."""
    pods: dict[str, list[Json]] = field(default_factory=dict)
    """By job, role and index: those that it had, one after the other."""
    told: dict[str, Json] = field(default_factory=dict)
    """By kind and name of an object: the reasons of all events about it."""
    kept: dict[str, Json] = field(default_factory=dict)
    """By kind: the names of what there is in the end."""
    seconds: dict[str, float] = field(default_factory=dict)
    """The longest that each kind of step took."""
    work: dict[str, float] = field(default_factory=dict)
    """The most CPU seconds that the operator took for each kind of step."""
    probes: list[float] = field(default_factory=list)
    memory: int = 0

    def differs(self, quiet: Record) -> list[str]:
        """Return in what it is not the same as in quiet, times and memory aside."""
        return [
            line
            for what in ("started", "statuses", "pods", "told", "kept")
            for line in _apart(getattr(self, what), getattr(quiet, what), what)
        ]

    def worse(self, quiet: Record, *, timed: bool) -> list[str]:
        """Return in what it is not the same as in quiet, took more work or memory, or, if it is
        `timed`, was later: which says something where no other story takes the machine's time.
        """
        found = self.differs(quiet)
        times = [("CPU", self.work, quiet.work, WORK_SLACK)]
        if timed:
            times.append(("", self.seconds, quiet.seconds, SLACK))
        for name, mine, other, slack in times:
            found += [
                f"{what}: {took:.1f} s {name}, not {other[what]:.1f} s"
                for what, took in mine.items()
                if took > 2 * other[what] + slack
            ]
        if self.memory > 1.3 * quiet.memory:
            found.append(f"memory: {self.memory >> 20} MiB, not {quiet.memory >> 20} MiB")
        return found

    def __str__(self) -> str:
        """Return times and memory."""
        steps = ", ".join(f"{what} {took:.1f}" for what, took in self.seconds.items())
        median = statistics.median(self.probes)
        work = ", ".join(f"{what} {took:.1f}" for what, took in self.work.items())
        return f"{steps}; median of small jobs {median:.2f}; {self.memory >> 20} MiB; CPU: {work}"


@dataclass
class Victim:
    """Running and waiting gangs of every sort, and two of which one makes room for the other."""

    api: Api
    onlooker: Onlooker
    operator: psutil.Process
    record: Record = field(default_factory=Record)

    def begin(self) -> None:
        """Return when the one half runs and the other waits."""
        self._first = len(self.onlooker.seen)
        for sort in SORTS:
            self.api.create(_gang(sort, "run", "run"))
        self._until("all run", lambda: all(self._runs(f"run-{s.lower()}", SIZE) for s in SORTS))
        self.api.create(_one_of_two("low"))
        self._until("low runs", lambda: self._runs("low", 2))
        for place, sort in enumerate(SORTS):
            self.api.create(_gang(sort, "wait", f"wait-{place}"))
        self._until("all others wait", lambda: all(map(verdict, self._jobs("wait-"))))

    def go_on(self) -> None:
        """Let room be made for one, and each of the first half leave its place to the next."""
        self._then = len(self.onlooker.seen)
        self.api.create(_one_of_two("high"))
        self._until("room is made", lambda: self._runs("high", 2))
        for sort in SORTS:
            self._end(sort, f"run-{sort.lower()}")
            waiting = f"wait-{sort.lower()}"
            self._until("the next one runs", lambda name=waiting: self._runs(name, SIZE))
        for sort in SORTS:
            self._end(sort, f"wait-{sort.lower()}")
        self._end("TFJob", "high")
        self._until("low comes back", lambda: self._runs("low", 2))
        self._end("TFJob", "low")
        self.api.wait("Event", self._all_told, what="all is told of every job's end")
        self._note()

    def probe(self, name: str) -> None:
        """Let a small job run elsewhere, and fail if nobody looks after it."""
        began = time.monotonic()
        small = tfjob(name, workers=1, run="0", resources={"cpu": SMALL})
        self.api.create(_at_home(small, "probes"))
        self._until("a small job ends", lambda: self._is(name, "Succeeded"))
        self.record.probes.append(time.monotonic() - began)
        self.api.delete("TFJob", name)

    def uids(self) -> dict[str, str]:
        """Return name -> uid of its jobs."""
        return {j["metadata"]["name"]: j["metadata"]["uid"] for j in self._jobs("")}

    def _end(self, sort: str, name: str) -> None:
        # Who decides comes last: no other pod is taken away before it has ended.
        pods = [p for p in self.api.pods(name) if sort not in LAUNCHED or role_of(p) == "launcher"]
        for pod in sorted((p["metadata"]["name"] for p in pods), reverse=True):
            self.api.finish(pod)
        self._until("a job ends", lambda: self._is(name, "Succeeded"))

    def _until(self, what: str, done: Callable[[], bool]) -> None:
        began, busy = time.monotonic(), self._work()
        ok = self.onlooker.wait(done, PATIENCE)
        record, took, work = self.record, time.monotonic() - began, self._work() - busy
        record.seconds[what] = max(took, record.seconds.get(what, 0))
        record.work[what] = max(work, record.work.get(what, 0))
        assert ok, f"{what}: not within {PATIENCE} s"

    def _work(self) -> float:
        """Return the CPU seconds that the operator has taken so far."""
        times = self.operator.cpu_times()
        return times.user + times.system

    def _jobs(self, prefix: str) -> list[Json]:
        kinds = {row.kind for row in SORTS.values()}
        return [
            found
            for (kind, namespace, name), found in list(self.onlooker.state.items())
            if kind in kinds and namespace == self.api.namespace and name.startswith(prefix)
        ]

    def _runs(self, name: str, size: int) -> bool:
        """Say whether the pods run, and the job says so: else it may have ended before it does."""
        pods = [
            found
            for (kind, namespace, _), found in list(self.onlooker.state.items())
            if kind == "Pod" and namespace == self.api.namespace
        ]
        run = sum(phase_of(pod) == "Running" for pod in of_job(pods, name)) == size
        return run and self._is(name, "Running")

    def _is(self, name: str, state: str) -> bool:
        found = next((j for j in self._jobs(name) if j["metadata"]["name"] == name), None)
        return condition(found, state) == "True"

    def _all_told(self, events: dict[str, Json]) -> bool:
        told = {(e["involvedObject"]["name"], e["reason"]) for e in events.values()}
        names = (found["metadata"]["name"] for found in self._jobs(""))
        ends = itertools.product((n for n in names if not n.startswith("probe")), LAST)
        return all(end in told for end in ends)

    def _note(self) -> None:
        for found in self._jobs(""):
            self.record.statuses[found["metadata"]["name"]] = self._plain(found["status"])
        last: dict[str, Json] = {}
        for place, one in enumerate(self.onlooker.seen[self._first :], self._first):
            rank = invariants.rank(one.object) if one.kind == "Pod" else None
            if rank and rank[0] == self.api.namespace and not rank[1].startswith("probe"):
                uid = one.object["metadata"]["uid"]
                if place >= self._then:
                    self._note_start(last.get(uid), one.object)
                last[uid] = one.object
        for pod in last.values():
            rank = invariants.rank(pod)
            assert rank
            kept = {k: pod["metadata"].get(k) for k in ("labels", "annotations")}
            plain = self._plain({**kept, "spec": pod["spec"], "pool": node_of(pod)[:4]})
            self.record.pods.setdefault("/".join(rank[1:]), []).append(plain)
        for kind in ("Pod", "Service", "ConfigMap", "PodGroup", "Role", "RoleBinding", "Job"):
            names = {self._plain(o["metadata"]["name"]) for o in self.api.list(kind)}
            self.record.kept[kind] = sorted(n for n in names if not n.startswith("probe"))
        for event in self.api.list("Event"):
            about = event["involvedObject"]
            if not about["name"].startswith("probe"):
                name = self._plain(f"{about['kind']}/{about['name']}")
                told = self.record.told.setdefault(name, {})
                told[event["reason"]] = True

    def _note_start(self, before: Json | None, pod: Json) -> None:
        runs = pod["status"].get("phase") == "Running"
        if runs and (before is None or before["status"].get("phase") != "Running"):
            job_ = pod["metadata"]["labels"]["training.kubeflow.org/job-name"]
            if not self.record.started or self.record.started[-1] != job_:
                self.record.started.append(job_)

    def _plain(self, value: Any) -> Any:
        """Return it without what is another in each run."""
        if isinstance(value, dict):
            return {k: self._plain(v) for k, v in value.items() if not _volatile(k)}
        if isinstance(value, list):
            return [self._plain(v) for v in value]
        if isinstance(value, str):
            return GENERATED.sub(r"\1", value.replace(self.api.namespace, "victim"))
        return value


def _apart(mine: Any, other: Any, place: str) -> Iterator[str]:
    """Yield where one record is not as the other, each place by itself."""
    if isinstance(mine, dict) and isinstance(other, dict):
        for key in sorted({*mine, *other}):
            yield from _apart(mine.get(key), other.get(key), f"{place} {key}")
    elif isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        for index, pair in enumerate(zip(mine, other, strict=True)):
            yield from _apart(*pair, f"{place} {index}")
    elif mine != other:
        yield f"{place}: {mine}, not {other}"


def _volatile(key: str) -> bool:
    return key in VOLATILE or key.endswith(("uid", "Time", "Timestamp"))


def _gang(sort: str, prefix: str, class_: str) -> Json:
    workers = SIZE - (sort in LEADS)
    made = job(
        sort,
        f"{prefix}-{sort.lower()}",
        run="forever",
        cpu=SMALL,
        workers=workers,
        cleanPodPolicy="All",
    )
    return _at_home(_ranked(made, class_))


def _one_of_two(name: str) -> Json:
    made = tfjob(name, workers=2, run="forever", resources={"cpu": SMALL}, backoffLimit=3)
    return _at_home(_ranked(made, name), "pair")


def _ranked(body: Json, class_: str) -> Json:
    for role in hostile_documents.roles(body).values():
        role["template"]["spec"]["priorityClassName"] = f"{CLASS}-{class_}"
    return body


def _at_home(body: Json, pool: str = "victims") -> Json:
    """Return the job for nodes that others keep off."""
    tolerated = [{"key": POOL, "value": pool, "effect": "NoSchedule"}]
    for role in hostile_documents.roles(body).values():
        role["template"]["spec"].update(nodeSelector={POOL: pool}, tolerations=tolerated)
    return body
