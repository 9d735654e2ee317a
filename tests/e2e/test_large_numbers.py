# SPDX-License-Identifier: Apache-2.0
"""Small documents with large numbers harm no other tenant.

`make test-all` posts a sample beside few nodes and pods. `MUSTER_LARGE_DOCUMENTS=2000` posts as
many beside 1,000 nodes and 10,000 pods; `make nightly` does that.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.request import urlopen

import psutil
import pytest

from muster.local.handle import Cluster
from support.builders.job_kinds import SORTS
from support.builders.long_lists import LISTS
from support.e2e.harness import (
    Api,
    Json,
    Operator,
    Refused,
    StartOperator,
    add_nodes,
    node_of,
    of_job,
    own_namespace,
    phase_of,
    tfjob,
)
from support.e2e.kinds import job
from support.e2e.statuses import Lag

MAX_BYTES: Final = 250_000
SIZES: Final = (1, 63, 64, 65, 500, 1500)
REPLICAS: Final = (2, 3_000, 9_999, 10_000, 10_001, 2**31 - 1)
LONG: Final = (63, 64, 253, 254, 5_000)


def _numbers(job_: Json, template: Json, chance: random.Random) -> None:
    most = 2**31 - 1
    policy = job_["spec"].setdefault("runPolicy", {})
    policy["schedulingPolicy"] = {"minAvailable": chance.choice((1, 2, 5_000, most))}
    policy["backoffLimit"] = most
    policy["activeDeadlineSeconds"] = chance.choice((1, most, 2**63 - 1))
    template["spec"]["terminationGracePeriodSeconds"] = chance.choice((0, most, 2**63 - 1))
    for constraint in template["spec"].get("topologySpreadConstraints", ()):
        constraint |= {"maxSkew": chance.choice((1, most)), "minDomains": chance.choice((1, most))}


def _names(job_: Json, template: Json, chance: random.Random) -> None:
    long = "n" * chance.choice(LONG)
    field = chance.choice(("priorityClassName", "schedulerName", "runtimeClassName", "hostname"))
    template["spec"][field] = long
    policy = job_["spec"].setdefault("runPolicy", {})
    policy.setdefault("schedulingPolicy", {})["queue"] = long


NUMBERS: Final = {"numbers": _numbers, "names": _names}


def document(number: int, seed: int) -> tuple[str, Json]:
    """Return the dimensions and the body of one document; equal arguments give equal documents."""
    chance = random.Random(f"{seed}/{number}")
    sort = chance.choice(list(SORTS))
    found = chance.sample([*LISTS, *NUMBERS, *NUMBERS], chance.choice((0, 1, 1, 2, 3, 5)))
    body = job(sort, f"large-{number}", run="forever", cpu="2")
    worker = next(v for v in body["spec"].values() if isinstance(v, dict) and "Worker" in v)
    worker["Worker"]["replicas"] = replicas = chance.choice(REPLICAS)
    sizes = []
    for name in found:
        size = chance.choice(SIZES)
        before = json.dumps(body)
        if name in NUMBERS:
            NUMBERS[name](body, worker["Worker"]["template"], chance)
        else:
            LISTS[name](size)(worker["Worker"]["template"])
        if len(json.dumps(body)) > MAX_BYTES:
            body = json.loads(before)
            worker = next(
                v for v in body["spec"].values() if isinstance(v, dict) and "Worker" in v
            )
        else:
            sizes.append(f"{name}={size}")
    return f"{number}: {sort} replicas={replicas} {' '.join(sizes)}", body


pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.alone]

DOCUMENTS = int(os.environ.get("MUSTER_LARGE_DOCUMENTS") or "0")
SEED = int(os.environ.get("MUSTER_LARGE_SEED") or "1")
NODES, PODS = (1_000, 10_000) if DOCUMENTS else (60, 600)
COUNT, BATCH = DOCUMENTS or 40, 20
LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster"
RENEWAL_SECONDS = 2.0 + 2.0
"""The retry period of the lease, and the seconds that a renewal may be late."""
STALL_SECONDS, START_SECONDS, REMOVAL_SECONDS = 0.5, 5.0, 600.0
MEMORY_RATIO = 1.75
"""Of the quiet run's memory. The goal is 1.5; the largest documents took 1.7 times as much."""


@dataclass
class Record:
    """The largest values that were observed while documents were posted."""

    stall: float = 0.0
    """Seconds until the main loop answered, which renews the lease."""
    renewal: float = 0.0
    """Seconds between two renewals of the lease."""
    start: float = 0.0
    """Seconds until the pods of a new job of another tenant were on nodes."""
    memory: int = 0
    stopped: threading.Event = field(default_factory=threading.Event, repr=False)

    def exceeds(self, quiet: Record, lag: float) -> dict[str, float]:
        """Return the values above their limits; a busy machine is as slow in the quiet run."""
        found = {
            "stall": (self.stall, STALL_SECONDS + 2 * quiet.stall),
            "renewal": (self.renewal, RENEWAL_SECONDS + lag),
            "start": (self.start, START_SECONDS + lag),
            "memory": (self.memory, MEMORY_RATIO * quiet.memory),
        }
        return {name: value for name, (value, limit) in found.items() if value > limit}


@contextlib.contextmanager
def recorded(api: Api, operator: Operator, what: str) -> Iterator[Record]:
    """Give the record of what is observed until the end of the context; print it."""
    record = Record()
    assert operator.process is not None
    process = psutil.Process(operator.process.pid)

    def probe() -> None:
        while not record.stopped.wait(0.1):
            began = time.monotonic()
            try:
                urlopen(f"http://127.0.0.1:{operator.health}/healthz").close()
            except OSError as error:
                print(f"/healthz: {error}")
                record.stall = math.inf
                return
            record.stall = max(record.stall, time.monotonic() - began)
            record.memory = max(record.memory, process.memory_info().rss)

    def renewals() -> None:
        while not record.stopped.wait(0.5):
            spec = api.send("GET", LEASE)["spec"]
            since = datetime.fromisoformat(spec["renewTime"]).timestamp()
            record.renewal = max(record.renewal, time.time() - since)

    watching = [threading.Thread(target=each) for each in (probe, renewals)]
    for each in watching:
        each.start()
    try:
        yield record
    finally:
        record.stopped.set()
        for each in watching:
            each.join()
        print(f"{what}: {record}", flush=True)


def start_job(api: Api, record: Record, name: str) -> None:
    """Record the seconds until the pods of a job of two are on nodes; let it run, and delete it.

    When the pods run depends on the one process that simulates all kubelets, and runs thousands
    of other pods.
    """
    began = time.monotonic()
    api.create(tfjob(name, workers=2, run="forever", resources={"cpu": "1m"}))
    api.wait(
        "Pod",
        lambda pods: sum(bool(node_of(pod)) for pod in of_job(pods.values(), name)) == 2,
        what=f"{name} has nodes",
    )
    record.start = max(record.start, time.monotonic() - began)
    api.wait_pods(2, "Running", name)
    api.delete("TFJob", name)
    api.wait("Pod", lambda pods: not [n for n in pods if n.startswith(name)], what="pods removed")


def crowd(api: Api, nodes: list[str]) -> None:
    """Create running pods of another controller on the nodes."""

    def create(number: int) -> None:
        container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1m"}}}
        spec = {"nodeName": nodes[number % len(nodes)], "containers": [container]}
        labels = {"app": f"a{number % 50}"}
        metadata = {"name": f"other-{number}", "labels": labels}
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(PODS)))
    api.wait(
        "Pod",
        lambda pods: sum(phase_of(pod) == "Running" for pod in pods.values()) == PODS,
        seconds=600,
        what="pods of another controller run",
    )


def post(api: Api, numbers: range) -> list[str]:
    """Post the documents of these numbers; return those that the API server stored."""

    def one(number: int) -> str:
        name, body = document(number, SEED)
        path = api.path(body["kind"])
        if body["kind"] == "MPIJob":
            path = path.replace("kubeflow.org/v1/", f"{body['apiVersion']}/")
        try:
            api.send(
                "POST",
                path,
                {**body, "metadata": {**body["metadata"], "namespace": api.namespace}},
            )
        except Refused:
            return ""
        return name

    with ThreadPoolExecutor(8) as pool:
        return [name for name in pool.map(one, numbers) if name]


def clear(api: Api) -> None:
    """Delete all jobs of the namespace, and wait until their pods are removed."""
    for sort in SORTS.values():
        api.send("DELETE", api.path(sort.kind), {})
    # A list of all would keep a busy API server for longer than the client waits.
    first, deadline = f"{api.path('Pod')}?limit=1", time.monotonic() + REMOVAL_SECONDS
    while api.send("GET", first)["items"]:
        assert time.monotonic() < deadline, "pods removed"
        time.sleep(0.5)


@pytest.mark.timeout(4 * 3600)
def test_small_documents_with_large_numbers_harm_no_other_tenant(
    local_cluster: Cluster, api: Api, start_operator: StartOperator
) -> None:
    """The loop, the lease, the memory and the starts of a victim stay as they are without."""
    nodes = add_nodes(api, *({"cpu": "4"} for _ in range(NODES)))
    operator = start_operator("--leader-elect", fresh=True)
    harm, stored = {}, 0
    with own_namespace(local_cluster, "crowd") as others:
        crowd(others, nodes)
        lag = Lag(api)
        with recorded(api, operator, "quiet") as quiet:
            for number in range(5):
                start_job(api, quiet, f"quiet-{number}")
        for batch in itertools.count(0, BATCH):
            if batch >= COUNT or harm:
                break
            with own_namespace(local_cluster, "tenant") as tenant:
                with recorded(api, operator, f"from document {batch}") as record:
                    names = post(tenant, range(batch, min(batch + BATCH, COUNT)))
                    stored += len(names)
                    start_job(api, record, f"victim-{batch}")
                    clear(tenant)
                if found := record.exceeds(quiet, lag.allowed()):
                    harm = {"documents": names, **found}
        assert not harm, f"quiet: {quiet}; {harm}"
    print(f"{stored} of {COUNT} documents were stored")
    assert stored > COUNT / 4
    assert operator.running
