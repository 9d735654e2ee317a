# SPDX-License-Identifier: Apache-2.0
"""Whatever tenants and editors write elsewhere: a victim's jobs fare as they do without them.

A sample of the documents; `make hostile` takes all of them.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hostile
import onlooker
import psutil
import pytest
import urllib3
from harness import (
    Api,
    Json,
    Operator,
    Refused,
    StartOperator,
    add_nodes,
    condition,
    own_namespace,
    phase_of,
    tfjob,
    verdict,
)
from hostile import EDITOR, TENANT, Document
from kinds import finish, job, size
from onlooker import Onlooker

from muster.local.handle import Cluster
from sorts import SORTS

pytestmark = [pytest.mark.e2e, pytest.mark.long]

WHOLE = bool(os.environ.get("MUSTER_HOSTILE_WHOLE"))
ALONE, AT_ONCE, SEED = 12, 60, int(os.environ.get("MUSTER_HOSTILE_SEED") or "1")
POLICY = Path(__file__).parents[2] / "examples" / "policies" / "preempt.yaml"
FLAGS = (f"--scheduler-conf={POLICY}", "--schedule-period=200ms")
POOL = "example.com/pool"
SLACK = 4.0
"""Seconds that something may take longer on a machine that is busy with what is refused."""
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
                    "values": ["system-node-critical", "system-cluster-critical", "hostile-high"],
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


@dataclass
class Record:
    """How a victim's jobs fared."""

    conditions: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    runs: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """By job, role and index."""
    seconds: dict[str, float] = field(default_factory=dict)
    memory: int = 0

    def worse(self, quiet: Record) -> list[str]:
        """Return in what it is worse than in quiet."""
        found = []
        for name, said in quiet.conditions.items():
            if self.conditions[name] != said:
                found.append(f"{name}: {sorted(self.conditions[name])}, not {sorted(said)}")
        for rank, count in self.runs.items():
            if count != quiet.runs.get(rank):
                found.append(f"{rank} ran {count} times, not {quiet.runs.get(rank)}")
        for what, seconds in self.seconds.items():
            if seconds > 2 * quiet.seconds[what] + SLACK:
                found.append(f"{what}: {seconds:.1f} s, not {quiet.seconds[what]:.1f} s")
        if self.memory > 1.3 * quiet.memory:
            found.append(f"memory: {self.memory >> 20} MiB, not {quiet.memory >> 20} MiB")
        return found


@dataclass
class Victim:
    """Running and waiting gangs of every sort, and two of which one makes room for the other."""

    api: Api
    onlooker: Onlooker
    record: Record = field(default_factory=Record)

    def begin(self) -> None:
        """Return when the one half runs and the other waits."""
        self._first = len(self.onlooker.seen)
        for sort in SORTS:
            self._apply(_at_home(job(sort, f"run-{sort.lower()}", run="forever", cpu="1")))
        self._until("runs", lambda: self._count("run-", "Running") == sum(map(size, SORTS)))
        self._apply(_low_or_high("low"))
        self._until("low runs", lambda: self._count("low", "Running") == 2)
        for sort in SORTS:
            self._apply(_at_home(job(sort, f"wait-{sort.lower()}", run="1", cpu="1")))
        self._until("queued", lambda: all(verdict(j) for j in self._jobs("wait-")))

    def go_on(self) -> None:
        """Let room be made for one, the first half end, the other half run, the last come back."""
        self._apply(_low_or_high("high"))
        self._until("room is made", lambda: self._count("high", "Running") == 2)
        for sort in SORTS:
            finish(self.api, sort, f"run-{sort.lower()}")
        waits = len(SORTS)
        self._until("first half ends", lambda: self._ended("run-") == waits)
        self._until("second half ends", lambda: self._ended("wait-") == waits)
        self._until("low comes back", lambda: self._count("low", "Running") == 2)
        for name in ("high", "low"):
            finish(self.api, "TFJob", name)
        self._until("all ends", lambda: self._ended("low") + self._ended("high") == 2)
        self._note()

    def probe(self, name: str) -> None:
        """Let a small job run elsewhere, and fail if nobody looks after it."""
        probe = _at_home(tfjob(name, workers=1, run="0"), "probes")
        self._apply(probe)
        self._until("a small job", lambda: self._ended(name) == 1, 20)
        self.api.delete("TFJob", name)

    def uids(self) -> dict[str, str]:
        """Return name -> uid of its jobs."""
        return {j["metadata"]["name"]: j["metadata"]["uid"] for j in self._jobs("")}

    def _apply(self, body: Json) -> None:
        self.api.create(body)

    def _until(self, what: str, done: Callable[[], bool], seconds: float = 60) -> None:
        began = time.monotonic()
        ok = self.onlooker.wait(done, seconds)
        took = time.monotonic() - began
        self.record.seconds[what] = max(took, self.record.seconds.get(what, 0))
        assert ok, f"{what}: not within {seconds} s"

    def _objects(self, kinds: Sequence[str], prefix: str) -> Iterator[Json]:
        here = self.api.namespace
        state = self.onlooker.state.items()
        return (
            o
            for (k, ns, n), o in list(state)
            if k in kinds and ns == here and n.startswith(prefix)
        )

    def _jobs(self, prefix: str) -> list[Json]:
        return list(self._objects([row.kind for row in SORTS.values()], prefix))

    def _count(self, prefix: str, phase: str) -> int:
        return sum(phase_of(pod) == phase for pod in self._objects(["Pod"], prefix))

    def _ended(self, prefix: str) -> int:
        return sum(condition(j, "Succeeded") == "True" for j in self._jobs(prefix))

    def _note(self) -> None:
        for found in self._jobs(""):
            said = found["status"]["conditions"]
            kept = {(c["type"], c.get("reason", "")) for c in said if c["status"] == "True"}
            self.record.conditions[found["metadata"]["name"]] = frozenset(kept)
        seen = self.onlooker.seen[self._first :]
        for rank, count in onlooker.runs(seen).items():
            if rank[0] == self.api.namespace and not rank[1].startswith("probe"):
                self.record.runs[rank[1:]] = count


def _at_home(body: Json, pool: str = "victims") -> Json:
    """Return the job for nodes that others keep off."""
    tolerated = [{"key": POOL, "value": pool, "effect": "NoSchedule"}]
    for role in hostile.roles(body).values():
        role["template"]["spec"].update(nodeSelector={POOL: pool}, tolerations=tolerated)
    return body


def _low_or_high(name: str) -> Json:
    policy: Any = {"priorityClass": f"hostile-{name}"}
    made = tfjob(name, workers=2, run="forever", schedulingPolicy=policy, backoffLimit=3)
    made["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = (
        f"hostile-{name}"
    )
    return _at_home(made)


@pytest.fixture(scope="module")
def home(local_cluster: Cluster) -> Iterator[Api]:
    """Give nodes for the victim, one for its small jobs, and one for all others."""
    admin = Api(local_cluster, "default")
    cpus = sum(map(size, SORTS)) + 2
    made = [*add_nodes(admin, {"cpu": "12"}, {"cpu": str(cpus - 12)}, prefix="victims")]
    made += add_nodes(admin, {"cpu": "2"}, prefix="probes")
    for name in made:
        pool = name.rpartition("-")[0]
        taint = {"key": POOL, "value": pool, "effect": "NoSchedule"}
        body = {"metadata": {"labels": {POOL: pool}}, "spec": {"taints": [taint]}}
        admin.patch("Node", name, body)
    made += add_nodes(admin, {"cpu": "4"}, prefix="tenants")
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    for name, value in (("high", 1000), ("low", -10)):
        admin.create({**kind, "metadata": {"name": f"hostile-{name}"}, "value": value})
    yield admin
    for name in made:
        admin.delete("Node", name)
    for name in ("high", "low"):
        admin.delete("PriorityClass", f"hostile-{name}")


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("home")
def test_a_victim_does_not_notice(local_cluster: Cluster, start_operator: StartOperator) -> None:
    """Its statuses, pods and times are those of the quiet run; the operator stays, and small."""
    records = []
    for hostility in (False, True):
        operator = start_operator(*FLAGS, overlay="mpi", fresh=True)
        with (
            Onlooker(local_cluster) as watching,
            own_namespace(local_cluster, "victim") as api,
            own_namespace(local_cluster, "tenant") as tenant,
            own_namespace(local_cluster, "editor") as editor,
        ):
            victim = Victim(api, watching)
            victim.begin()
            victim.probe("probe-first")
            pid = _pid(operator)
            if hostility:
                writers = {
                    TENANT: Writer.make(tenant, TENANT),
                    EDITOR: Writer.make(editor, EDITOR),
                }
                attack(victim, writers, operator)
            victim.go_on()
            assert operator.readiness() == "ok"
            assert _pid(operator) == pid
            victim.record.memory = psutil.Process(pid).memory_info().rss
            records.append(victim.record)
            for api_ in (tenant, editor):
                _let_go(api_)
        operator.stop()
    quiet, found = records
    print({k: (round(v, 1), round(found.seconds[k], 1)) for k, v in quiet.seconds.items()})
    print(f"memory: {quiet.memory >> 20} MiB, {found.memory >> 20} MiB")
    assert found.worse(quiet) == []


def _let_go(api: Api) -> None:
    """Let pods go that nobody would ever let go."""
    for sort in SORTS.values():
        api.send("DELETE", api.path(sort.kind), {})
    for pod in api.list("Pod"):
        if pod["metadata"].get("finalizers"):
            with contextlib.suppress(Refused):  # it has gone by itself
                api.patch("Pod", pod["metadata"]["name"], {"metadata": {"finalizers": None}})


def attack(victim: Victim, writers: dict[str, Writer], operator: Operator) -> None:
    """Write some documents one after the other, then many at once, which stay."""
    every = [
        *hostile.of_tenant(),
        *hostile.of_editor(victim.api.namespace, victim.uids()),
    ]
    assert len(every) >= 300
    dice = random.Random(SEED)
    alone = every if WHOLE else dice.sample(every, ALONE)
    for index, document in enumerate(alone):
        writers[document.writer].write(document)
        victim.probe(f"probe-{index}")
        assert operator.running, document
        writers[document.writer].clear()
    many = every if WHOLE else dice.sample(every, AT_ONCE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda document: writers[document.writer].write(document), many))
    victim.probe("probe-last")
    print({w: (len(one.kept), one.refused) for w, one in writers.items()})


def _pid(operator: Operator) -> int:
    assert operator.process is not None
    assert operator.process.pid is not None
    return operator.process.pid
