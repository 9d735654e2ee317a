# SPDX-License-Identifier: Apache-2.0
"""Whatever tenants and editors write elsewhere: a victim's jobs fare as they do without them.

`make hostile` takes all of the documents; `make hostile HOSTILE=sample` and `make test-all` some.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3

from muster.local.handle import Cluster
from support.builders.job_kinds import SORTS
from support.chaos import hostile_documents, invariants
from support.chaos.hostile_documents import EDITOR, TENANT, Document
from support.chaos.invariants import Onlooker
from support.e2e.harness import (
    PATIENCE,
    Api,
    Json,
    Operator,
    Refused,
    StartOperator,
    add_nodes,
    condition,
    node_of,
    of_job,
    own_namespace,
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
        *others, decides = sorted((p["metadata"]["name"] for p in pods), reverse=True)
        for pod in others:
            self.api.finish(pod)
        self._until("the others end", lambda: all(map(self._ended, others)))
        self.api.finish(decides)
        self._until("a job ends", lambda: self._is(name, "Succeeded"))

    def _ended(self, pod: str) -> bool:
        found = self.onlooker.state.get(("Pod", self.api.namespace, pod))
        return found is None or phase_of(found) == "Succeeded"

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


ASKED = os.environ.get("MUSTER_HOSTILE", "")
"""`whole` or `sample`; empty: neither."""
WHOLE = ASKED == "whole"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.full,
    pytest.mark.skipif(not ASKED, reason="`make hostile` runs it"),
]

ALONE, SEED = 8, int(os.environ.get("MUSTER_HOSTILE_SEED") or "1")
AT_ONCE, STORED = (400, 300) if WHOLE else (40, 20)
"""How many are written at once, and how many of them the server stores at the least."""
POLICY = Path(__file__).parents[2] / "examples" / "policies" / "preempt.yaml"
FLAGS = (f"--scheduler-conf={POLICY}", "--schedule-period=200ms")
RIGHTS: dict[str, list[Json]] = {
    TENANT: [{"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["create", "delete"]}],
    EDITOR: [
        {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["scheduling.incubator.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
    ],
}


QUOTA: Json = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-priority"},
    "spec": {
        "hard": {"pods": "0"},
        "scopeSelector": {
            "matchExpressions": [
                {
                    "scopeName": "PriorityClass",
                    "operator": "In",
                    "values": ["system-node-critical", "system-cluster-critical"]
                    + [f"{CLASS}-{name}" for name in CLASSES],
                }
            ]
        },
    },
}
"""What keeps a tenant from priorities that are not his: his pods may not have them."""


@dataclass
class Writer:
    """Writes in a namespace of its own what its account may write there."""

    api: Api
    token: str
    kept: list[str] = field(default_factory=list)
    """Paths of what the server has stored."""
    refused: int = 0

    @classmethod
    def make(cls, api: Api, name: str) -> Writer:
        """Make the account."""
        group = "rbac.authorization.k8s.io"
        account = {"kind": "ServiceAccount", "name": name, "namespace": api.namespace}
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
        roles = [("Role", name)] + ([("ClusterRole", "edit")] if name == EDITOR else [])
        api.create({"kind": "Role", "metadata": {"name": name}, "rules": RIGHTS[name]})
        for kind, role in roles:
            reference = {"apiGroup": group, "kind": kind, "name": role}
            bound = {"subjects": [account], "roleRef": reference}
            api.create({"kind": "RoleBinding", "metadata": {"name": role}, **bound})
        answer = api.send("POST", api.path("ServiceAccount", name, "token"), {"spec": {}})
        api.create(QUOTA)
        return cls(api, answer["status"]["token"])

    def write(self, document: Document) -> None:
        """Write it, whether or not the server takes it."""
        body = {**document.body}
        body["metadata"] = {**body["metadata"], "namespace": self.api.namespace}
        path = self.api.path(body["kind"])
        if body["kind"] == "MPIJob":
            path = path.replace("kubeflow.org/v1/", f"{body['apiVersion']}/")
        answer = self._send("POST", path, body)
        if answer.status < 300:
            self.kept.append(f"{path}/{body['metadata']['name']}")
        else:
            self.refused += 1

    def clear(self) -> None:
        """Delete all that was stored."""
        while self.kept:
            path = self.kept.pop()
            self._send("DELETE", path, {"gracePeriodSeconds": 0})

    def _send(self, method: str, path: str, body: Json) -> urllib3.BaseHTTPResponse:
        with urllib3.PoolManager(ca_certs=str(self.api.cluster.files.certificate)) as pool:
            headers = {"Authorization": f"Bearer {self.token}"}
            url = self.api.cluster.server + path
            return pool.request(method, url, json=body, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def home(local_cluster: Cluster) -> Iterator[Api]:
    """Give nodes for the victim, one for its small jobs, and one for all others."""
    admin = Api(local_cluster, "default")
    make_home(admin)
    yield admin
    leave_home(admin)


@dataclass
class Stage:
    """Where the story is told, each time by an operator that knows of no other time."""

    cluster: Cluster
    start_operator: StartOperator

    def tell(self, attack: Attack | None = None) -> Record:
        """Return how the victim's jobs fared, beside an attack or in quiet."""
        operator = self.start_operator(*FLAGS, overlay="mpi", fresh=True)
        pid = _pid(operator)
        with (
            Onlooker(self.cluster) as onlooker,
            own_namespace(self.cluster, "victim") as api,
            own_namespace(self.cluster, "tenant") as tenant,
            own_namespace(self.cluster, "editor") as editor,
        ):
            told = Victim(api, onlooker, psutil.Process(pid))
            told.begin()
            if attack is None:
                # As many as beside an attack: what they leave in the operator is not the tenant's.
                for index in range(len(_alone(told))):
                    told.probe(f"probe-{index}")
                told.probe("probe-last")
            else:
                attack(told, Writer.make(tenant, TENANT), Writer.make(editor, EDITOR))
            told.go_on()
            assert operator.readiness() == "ok"
            assert (operator.running, _pid(operator)) == (True, pid)
            told.record.memory = psutil.Process(pid).memory_info().rss
            for each in (tenant, editor):
                _let_go(each)
        operator.stop()
        print(told.record)
        return told.record


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("home")
def test_a_victim_does_not_notice(local_cluster: Cluster, start_operator: StartOperator) -> None:
    """Its statuses, pods and times are those of the quiet run; the operator stays, and small."""
    stage = Stage(local_cluster, start_operator)
    quiet = stage.tell()
    if WHOLE:
        chance = stage.tell().differs(quiet)
        assert not chance, "\n".join(chance)
    harm = stage.tell(attack).worse(quiet, timed=WHOLE)
    assert not harm, "\n".join(harm)


def _let_go(api: Api) -> None:
    """Let all go that was written there, pods as well that nobody would ever let go."""
    for sort in SORTS.values():
        api.send("DELETE", api.path(sort.kind), {})
    for pod in api.list("Pod"):
        if pod["metadata"].get("finalizers"):
            with contextlib.suppress(Refused):  # it has gone by itself
                api.patch("Pod", pod["metadata"]["name"], {"metadata": {"finalizers": None}})
    for kind in ("PersistentVolumeClaim", "PodDisruptionBudget", "ResourceQuota"):
        api.send("DELETE", api.path(kind), {})


Attack = Callable[[Victim, Writer, Writer], None]


def attack(told: Victim, tenant: Writer, editor: Writer) -> None:
    """Write some documents one after the other, then many at once, which stay."""
    writers = {TENANT: tenant, EDITOR: editor}
    for index, document in enumerate(_alone(told)):
        writers[document.writer].write(document)
        told.probe(f"probe-{index}")
        writers[document.writer].clear()
    many = _sample(told, AT_ONCE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda document: writers[document.writer].write(document), many))
    told.probe("probe-last")
    print({w: (len(one.kept), one.refused) for w, one in writers.items()})
    assert sum(len(one.kept) for one in writers.values()) >= STORED


def _alone(told: Victim) -> list[Document]:
    """Return what is written one after the other."""
    return _every(told) if WHOLE else _sample(told, ALONE)


def _sample(told: Victim, some: int) -> list[Document]:
    return random.Random(SEED + some).sample(_every(told), some)


def _every(told: Victim) -> list[Document]:
    every = [
        *hostile_documents.of_tenant(),
        *hostile_documents.of_editor(told.api.namespace, told.uids()),
    ]
    assert len(every) >= 600
    return every


def _pid(operator: Operator) -> int:
    assert operator.process is not None
    assert operator.process.pid is not None
    return operator.process.pid
