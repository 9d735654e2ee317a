# SPDX-License-Identifier: Apache-2.0
"""Whatever tenants and editors write elsewhere: a victim's jobs fare as they do without them.

`make hostile` takes all of the documents; `make hostile HOSTILE=sample` and `make test-all` some.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import urllib3

from muster.local.handle import Cluster
from support.builders.job_kinds import SORTS
from support.chaos import hostile_documents
from support.chaos.hostile_documents import EDITOR, TENANT, Document
from support.chaos.invariants import Onlooker
from support.chaos.victim_tenant import CLASS, CLASSES, Record, Victim, leave_home, make_home
from support.e2e.harness import (
    Api,
    Json,
    Operator,
    Refused,
    StartOperator,
    own_namespace,
)

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
