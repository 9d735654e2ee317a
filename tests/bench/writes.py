# SPDX-License-Identifier: Apache-2.0
"""What a job's create and a write of its status cost the API server, by how its kind is served.

Run as `python tests/bench/writes.py`; with `--against FILE`, beside somebody else's definition of
the kind. Nobody reconciles the jobs. Each definition is served under a group of its own by one
server, and they take turns: CPU is compared within a round, since it differs from one to the next.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import yaml
from ring import TIMEOUT, quiet

from muster.api import crds
from muster.api.model import Json
from muster.frameworks import FRAMEWORKS
from muster.frameworks.base import Framework
from muster.kube.auth import connect
from muster.kube.client import ApiError, Exactly, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.local import cluster, options

AT_ONCE = 20
CATCH_UP = 0.15
"""Seconds in which the server's caches have taken in what was written."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WHEN = "2026-01-01T00:00:00Z"
CONDITION = {"status": "True", "lastUpdateTime": WHEN, "lastTransitionTime": WHEN, "reason": "r"}
STATUS = {
    "startTime": WHEN,
    "conditions": [CONDITION | {"type": "Created"}, CONDITION | {"type": "Running"}],
    "replicaStatuses": {"Worker": {"active": 4}},
}


def job(row: Framework, name: str) -> Json:
    """Return a job with one pod of its first single role, and four workers."""
    container = {
        "name": row.pods.container or "main",
        "image": "registry.example.com/team/training:1.0",
        "command": ["python", "train.py"],
        "env": [{"name": "LOG", "value": "info"}],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
    }
    roles = {**dict.fromkeys(row.api.single[:1], 1), "Worker": 4}
    replicas = {
        role: {"replicas": count, "template": {"spec": {"containers": [container]}}}
        for role, count in roles.items()
    }
    return {"kind": row.kind, "metadata": {"name": name}, "spec": {row.api.spec_field: replicas}}


def definitions(row: Framework, against: Path | None) -> dict[str, Json]:
    """Return what is compared, by name; the ratios are to the first."""
    made = next(iter(crds.documents([row.api]).values()))
    alone = copy.deepcopy(made)
    alone["spec"]["versions"] = [one for one in alone["spec"]["versions"] if one["storage"]]
    found = {"stored": alone}
    if len(row.api.versions) > 1:
        found["all"] = made
    if against:
        other = yaml.load(against.read_text(encoding="utf-8"), yaml.CSafeLoader)
        found = {"other": other, **found}
    return found


async def serve(client: Kube, name: str, definition: Json) -> str:
    """Have a definition served under a group of its own; return where its jobs are."""
    group, plural = f"{name}.example.org", definition["spec"]["names"]["plural"]
    spec = {**definition["spec"], "group": group}
    document = {**definition, "metadata": {"name": f"{plural}.{group}"}, "spec": spec}
    document.pop("status", None)
    await client.create(DEFINITIONS, document, PriorityLevel.PLACEMENT)
    version = next(one["name"] for one in spec["versions"] if one["storage"])
    path = f"/apis/{group}/{version}/namespaces/default/{plural}"
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                await client.get(path, limit="1")
            except ApiError:
                await asyncio.sleep(0.1)
            else:
                return path


def spent(pid: int) -> float:
    """Return the CPU seconds of a process so far, to the microsecond; /proc counts in ticks."""
    return time.clock_gettime(~pid << 3 | 2)


async def turn(client: Kube, pid: int, path: str, made: Sequence[Json]) -> tuple[float, float]:
    """Create the jobs, then write their status; return ms of CPU of the server for one of each."""
    version = path.removeprefix("/apis/").partition("/namespaces/")[0]
    before, uids = spent(pid), []
    for document in made:
        body = {**document, "apiVersion": version}
        stored = await client.create(path, body, PriorityLevel.PLACEMENT)
        uids.append(Exactly(stored["metadata"]["uid"]))
    await asyncio.sleep(CATCH_UP)
    between = spent(pid)
    for document, uid in zip(made, uids, strict=True):
        where = f"{path}/{document['metadata']['name']}/status"
        await client.patch(where, uid, {"status": STATUS}, PriorityLevel.STATUS)
    await asyncio.sleep(CATCH_UP)
    count = len(made) / 1000
    return (between - before) / count, (spent(pid) - between) / count


async def compare(client: Kube, pid: int, row: Framework, arguments: Namespace) -> None:
    """Measure one kind and print it."""
    wanted = definitions(row, arguments.against)
    paths = {
        name: await serve(client, f"{name}.{row.api.plural}", document)
        for name, document in wanted.items()
    }
    await quiet(pid)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in paths}
    for round_ in range(arguments.rounds + 1):
        made = [job(row, f"job-{round_}-{index}") for index in range(AT_ONCE)]
        for name in sorted(paths, reverse=bool(round_ % 2)):
            found[name].append(await turn(client, pid, paths[name], made))
    (first, *_) = found.values()
    for name, turns in found.items():
        # The first round is for warming up.
        told = [f"{row.kind:<11} {name:<7}"]
        for write in range(2):
            middle = statistics.median(one[write] for one in turns[1:])
            pairs = zip(turns[1:], first[1:], strict=True)
            ratio = statistics.median(one[write] / other[write] for one, other in pairs)
            told.append(f"{middle:>9.2f}{ratio:>7.2f}")
        print("".join(told), flush=True)


async def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kind", choices=FRAMEWORKS, default="TFJob")
    parser.add_argument("--against", type=Path, help="a CustomResourceDefinition of that kind")
    arguments = parser.parse_args()
    wanted = options.Options(name="bench-writes", nodes=0, kwok=False, scheduler=False, tied=True)
    made = await asyncio.to_thread(cluster.up, wanted, lambda line: print(line, file=sys.stderr))
    try:
        client = await connect(str(made.kubeconfig), width=1)
        server = made.pids()["kube-apiserver"]
        assert server is not None
        rounds = f"medians of {arguments.rounds} rounds of {AT_ONCE}"
        print(f"CPU ms of the API server for each, {rounds}; ratios within a round")
        print("kind        served    create  ratio   status  ratio")
        await compare(client, server, FRAMEWORKS[arguments.kind], arguments)
        await client.close()
    finally:
        await asyncio.to_thread(cluster.down, "bench-writes")


if __name__ == "__main__":
    asyncio.run(main())
