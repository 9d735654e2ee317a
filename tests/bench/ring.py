# SPDX-License-Identifier: Apache-2.0
"""How fast jobs start: two bare loops and Muster, on one control plane.

The floor is what any client would need for the same pods: one loop that creates and binds them
(a usual scheduler's two writes), one that creates them with their node (`floor.py`, which applies
the jobs, too). Muster is stopped while they run. Nodes are only objects and nothing runs the pods:
what is timed is the way from the first request to the last bound pod.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import ClientTimeout
from floor import JOBS, PODS
from prometheus_client.parser import text_string_to_metric_families

from muster.api.model import Json
from muster.kube.auth import connect
from muster.kube.client import ApiError, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.local import cluster, options

NODES = 1000
SHAPES = ((1, 100), (100, 10), (1, 1000), (500, 2))
WIDTH = 64
TIMEOUT = 300.0
SLOW = ClientTimeout(total=TIMEOUT)
IDLE = 0.03
"""CPU seconds in half a second that are no work."""
TICKS = os.sysconf("SC_CLK_TCK")
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
FLOOR = Path(__file__).with_name("floor.py")
WAYS = ("bind", "node", "muster")


Chain = list[tuple[str, Json]]
"""Requests of which each is sent when the one before is answered: path and document."""


@dataclass(slots=True)
class Result:
    """One run: seconds to the last bound pod, CPU seconds, the server's count of writes."""

    seconds: float
    client: float
    """CPU seconds of the bare loop, or of the operator."""
    server: float
    """CPU seconds of the API server."""
    writes: dict[str, float] = field(default_factory=dict)
    peak_mib: float = 0.0
    starting: float = 0.0
    """Of the operator's CPU seconds, those until the last pod was bound."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured: a control plane and the operator there."""

    client: Kube
    config: Path
    server: int
    operator: int
    """Process ids."""


def job(name: str, namespace: str, pods: int) -> Json:
    """Return a TFJob of so many workers."""
    container = {
        "name": "tensorflow",
        "image": "training:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    replicas = {
        "replicas": pods,
        "restartPolicy": "Never",
        "template": {"spec": {"containers": [container]}},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"tfReplicaSpecs": {"Worker": replicas}},
    }


def pod(namespace: str, name: str, node: str) -> Json:
    """Return a pod like those that the job's workers become."""
    template = job("x", namespace, 1)["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec = {**template, "restartPolicy": "Never", "schedulerName": "bench"}
    if node:
        spec["nodeName"] = node
    labels = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/replica-type": "worker",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


def on_nodes(namespace: str, count: int) -> list[Chain]:
    """Return the least that any client can do: one write per pod."""
    path = PODS.format(namespace)
    return [[(path, pod(namespace, f"pod-{i}", f"node-{1 + i % NODES}"))] for i in range(count)]


def and_bind(namespace: str, count: int) -> list[Chain]:
    """Return what a controller and a scheduler do together: two writes per pod."""
    path = PODS.format(namespace)
    made = []
    for index in range(count):
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": f"pod-{index}"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": f"node-{1 + index % NODES}"},
        }
        created = (path, pod(namespace, f"pod-{index}", ""))
        made.append([created, (f"{path}/pod-{index}/binding", binding)])
    return made


@asynccontextmanager
async def loop(config: Path, chains: Sequence[Chain]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Have a bare loop ready to send the chains of requests at the next line."""
    command = (sys.executable, str(FLOOR), str(config), str(WIDTH))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(chains).encode() + b"\n")
    if await process.stdout.readline() != b"ready\n":
        raise SystemExit("the bare loop did not start")
    yield process
    await process.wait()


async def sent(process: asyncio.subprocess.Process) -> tuple[float, float]:
    """Have the requests sent; return the seconds from the first to the last answer, and of CPU."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    seconds, cpu = (await process.stdout.readline()).split()
    return float(seconds), float(cpu)


async def bound(client: Kube, namespace: str, count: int, version: str) -> None:
    """Return when so many pods of the namespace have a node."""
    params = {"fieldSelector": "spec.nodeName!=", "resourceVersion": version}
    seen = 0
    async for event in client.watch(PODS.format(namespace), params):
        seen += event["type"] == "ADDED"
        if seen >= count:
            return


async def applied(client: Kube, config: Path, namespace: str, jobs: int, pods: int) -> float:
    """Apply the jobs; return the seconds from the first to the last bound pod."""
    path = JOBS.format(namespace)
    chains = [[(path, job(f"job-{index}", namespace, pods))] for index in range(jobs)]
    listing = await client.get(PODS.format(namespace), limit="1")
    version = listing["metadata"]["resourceVersion"]
    waiting = asyncio.create_task(bound(client, namespace, jobs * pods, version))
    async with loop(config, chains) as process, asyncio.timeout(TIMEOUT):
        started = time.perf_counter()
        await asyncio.gather(sent(process), waiting)
        return time.perf_counter() - started


async def writes(client: Kube) -> dict[str, float]:
    """Return the server's own count of writes, by resource."""
    counts: dict[str, float] = {}
    async with client.session.get(client.host + "/metrics") as response:
        text = await response.text()
    for family in text_string_to_metric_families(text):
        if family.name != "apiserver_request":
            continue
        for sample in family.samples:
            label = sample.labels
            if sample.name.endswith("_total") and label["verb"] in WRITES:
                name = "/".join(filter(None, (label["resource"], label["subresource"])))
                counts[name] = counts.get(name, 0) + sample.value
    return counts


def usage(pid: int) -> tuple[float, float]:
    """Return CPU seconds and peak resident MiB of a process so far."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return (int(stat[11]) + int(stat[12])) / TICKS, int(peak.split()[1]) / 1024


async def bare(bench: Bench, chains: Sequence[Chain]) -> Result:
    """Have a bare loop send the requests while the operator stands still."""
    async with loop(bench.config, chains) as process:
        before = usage(bench.server)[0]
        os.kill(bench.operator, signal.SIGSTOP)
        try:
            seconds, cpu = await sent(process)
        finally:
            os.kill(bench.operator, signal.SIGCONT)
        return Result(seconds, cpu, usage(bench.server)[0] - before)


async def muster(bench: Bench, namespace: str, jobs: int, pods: int) -> Result:
    """Apply the jobs and let the operator start them."""
    client = bench.client
    await quiet(bench.operator)
    before, cpu, server = await writes(client), usage(bench.operator)[0], usage(bench.server)[0]
    seconds = await applied(client, bench.config, namespace, jobs, pods)
    starting = usage(bench.operator)[0] - cpu
    await settled(client, namespace, jobs * pods)
    spent, peak = usage(bench.operator)
    server = usage(bench.server)[0] - server
    after = await writes(client)
    changed = {name: after[name] - before.get(name, 0) for name in after}
    changed = {name: count for name, count in changed.items() if count > 0}
    return Result(seconds, spent - cpu, server, changed, peak, starting)


Row = dict[str, Result]
"""A round: way -> what came of it."""


async def quiet(pid: int) -> None:
    """Return when the process has nothing left to do."""
    async with asyncio.timeout(TIMEOUT):
        spent = -1.0
        while (now := usage(pid)[0]) - spent > IDLE:
            spent = now
            await asyncio.sleep(0.5)


async def settled(client: Kube, namespace: str, count: int) -> None:
    """Return when every pod has its service and the server's count of writes stands still."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            services = await client.get(f"/api/v1/namespaces/{namespace}/services", limit="1")
            remaining = services["metadata"].get("remainingItemCount", 0)
            if len(services["items"]) + remaining >= count:
                break
            await asyncio.sleep(0.2)
    previous = -1.0
    while (total := sum((await writes(client)).values())) != previous:
        previous = total
        await asyncio.sleep(1.0)


async def sweep(client: Kube, namespace: str) -> None:
    """Remove all that a run left, so that the next begins alike."""
    body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for path in (JOBS, PODS, "/api/v1/namespaces/{}/services", "/api/v1/namespaces/{}/events"):
        request = client.session.delete(
            client.host + path.format(namespace), json=body, timeout=SLOW
        )
        async with request as response:
            await response.read()
    async with asyncio.timeout(TIMEOUT):
        while (await client.get(PODS.format(namespace), limit="1"))["items"]:
            await asyncio.sleep(0.2)


@asynccontextmanager
async def operator(config: Path, log: Path) -> AsyncIterator[int]:
    """Run the operator as its own process, ready to work."""
    command = [sys.executable, "-m", "muster", "run", f"--kubeconfig={config}"]
    health = cluster.free_port()
    command += ["--metrics-bind-address=0", f"--health-probe-bind-address=127.0.0.1:{health}"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        await ready(process, health)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def ready(process: subprocess.Popen[bytes], port: int) -> None:
    """Return when /readyz of the operator says yes."""
    import aiohttp

    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            if process.poll() is not None:
                raise SystemExit("the operator did not start; see its log")
            try:
                async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def namespace_for(client: Kube, name: str) -> str:
    """Create the namespace and wait for its service account, without which no pod is taken."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await client.create("/api/v1/namespaces", body, PriorityLevel.PLACEMENT)
    async with asyncio.timeout(30):
        while True:
            try:
                await client.get(f"/api/v1/namespaces/{name}/serviceaccounts/default")
            except ApiError:
                await asyncio.sleep(0.05)
            else:
                return name


async def measure(bench: Bench, shape: tuple[int, int], rounds: int) -> list[Row]:
    """Return the results of the four ways, round by round."""
    jobs, pods = shape
    table: list[Row] = []
    for round_ in range(rounds):
        row: Row = {}
        for way in WAYS:
            namespace = await namespace_for(bench.client, f"b-{jobs}x{pods}-{way}-{round_}")
            if way == "muster":
                row[way] = await muster(bench, namespace, jobs, pods)
            else:
                chains = and_bind if way == "bind" else on_nodes
                row[way] = await bare(bench, chains(namespace, jobs * pods))
            await sweep(bench.client, namespace)
        table.append(row)
    return table


def show(shape: tuple[int, int], table: Sequence[Row]) -> None:
    """Print one shape: medians over the rounds, ratios round by round."""
    jobs, pods = shape
    count = jobs * pods

    def middle(of: Callable[[Row], float]) -> float:
        return statistics.median(map(of, table))

    def ratio(way: str, to: str) -> float:
        return middle(lambda row: row[way].seconds / row[to].seconds)

    def per_pod(row: Row) -> tuple[float, float]:
        ours = {k: v / count for k, v in row["muster"].writes.items() if k not in NOT_OURS}
        return sum(v for k, v in ours.items() if k in OBJECTS), sum(ours.values())

    seconds = "".join(f"{middle(lambda row, w=way: row[w].seconds):>8.2f}" for way in WAYS)
    print(
        f"{jobs:>4}x{pods:<5}{seconds}"
        f"{ratio('muster', 'bind'):>7.2f}{ratio('muster', 'node'):>7.2f}"
        f"{middle(lambda row: per_pod(row)[0]):>9.2f}{middle(lambda row: per_pod(row)[1]):>8.2f}"
        f"{middle(lambda row: row['muster'].starting):>7.2f}"
        f"{middle(lambda row: row['muster'].client):>7.2f}"
        f"{max(row['muster'].peak_mib for row in table):>6.0f}"
    )
    server = " ".join(f"{middle(lambda row, w=way: row[w].server):.2f}" for way in WAYS)
    loops = " ".join(f"{middle(lambda row, w=way: row[w].client):.2f}" for way in WAYS[:-1])
    print(f"          CPU s of the API server: {server}; of the others: {loops}")
    rounds = ", ".join(
        f"{row['muster'].seconds:.2f} s with {per_pod(row)[1]:.2f}" for row in table
    )
    print(f"          each round, writes a pod: {rounds}; load {os.getloadavg()[0]:.1f}")
    last = sorted(table[-1]["muster"].writes.items())
    print("          writes:", ", ".join(f"{k} {v:.0f}" for k, v in last if k not in NOT_OURS))


# The operator's CPU: until the last pod is bound, and until all is written.
HEADER = "jobs x pods bind s  node s Muster s  /bind /node obj/pod writes/pod CPU s    all  MiB"
OBJECTS = frozenset({"pods", "pods/binding", "services", "podgroups", "configmaps"})
NOT_OURS = frozenset({"leases", "tfjobs", "endpointslices", "endpoints", "subjectaccessreviews"})


async def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", action="append", help="JOBSxPODS, may be repeated")
    parser.add_argument("--log", type=Path, default=Path("/tmp/muster-bench.log"))
    arguments = parser.parse_args()
    shapes = [tuple(map(int, s.split("x"))) for s in arguments.shape or ()] or SHAPES
    wanted = options.Options(
        name="bench",
        nodes=NODES,
        shapes=({"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"},),
        kwok=False,
        scheduler=False,
        tied=True,
    )
    made = await asyncio.to_thread(cluster.up, wanted, lambda line: print(line, file=sys.stderr))
    try:
        client = await connect(str(made.kubeconfig), width=WIDTH)
        server = made.pids()["kube-apiserver"]
        assert server is not None
        async with operator(made.kubeconfig, arguments.log) as pid:
            bench = Bench(client, made.kubeconfig, server, pid)
            version = (await client.get("/version"))["gitVersion"]
            print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
            print(f"Python {platform.python_version()}, Kubernetes {version}, {NODES} nodes")
            print(f"bare loops: plain HTTP/1.1 over TLS, {WIDTH} in flight, the operator stopped")
            print(f"medians of {arguments.rounds} rounds")
            print(HEADER)
            for shape in shapes:
                show(shape, await measure(bench, shape, arguments.rounds))
        await client.close()
    finally:
        await asyncio.to_thread(cluster.down, "bench")


if __name__ == "__main__":
    asyncio.run(main())
