# SPDX-License-Identifier: Apache-2.0
"""How fast jobs start: two bare loops and Muster, in one run on one control plane.

The floor is what any client would need for the same pods: one loop that creates and binds them
(a usual scheduler's two writes), one that creates them with their node. Nodes are only objects
and nothing runs the pods, so what is timed is the way from the first apply to the last bound pod.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

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
TICKS = os.sysconf("SC_CLK_TCK")
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
JOBS = "/apis/kubeflow.org/v1/namespaces/{}/tfjobs"
PODS = "/api/v1/namespaces/{}/pods"


@dataclass(slots=True)
class Result:
    """One run: seconds to the last bound pod, the server's count of writes, the operator's use."""

    seconds: float
    writes: dict[str, float] = field(default_factory=dict)
    cpu: float = 0.0
    peak_mib: float = 0.0


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


async def create_on_node(client: Kube, namespace: str, count: int) -> None:
    """Do the least that any client can: one write per pod."""

    async def one(index: int) -> None:
        document = pod(namespace, f"pod-{index}", f"node-{1 + index % NODES}")
        await client.create(PODS.format(namespace), document, PriorityLevel.PLACEMENT)

    await asyncio.gather(*(one(index) for index in range(count)))


async def create_and_bind(client: Kube, namespace: str, count: int) -> None:
    """Do what a controller and a scheduler do together: two writes per pod."""

    async def one(index: int) -> None:
        path = PODS.format(namespace)
        await client.create(path, pod(namespace, f"pod-{index}", ""), PriorityLevel.PLACEMENT)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": f"pod-{index}"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": f"node-{1 + index % NODES}"},
        }
        await client.create(f"{path}/pod-{index}/binding", binding, PriorityLevel.PLACEMENT)

    await asyncio.gather(*(one(index) for index in range(count)))


async def apply_jobs(client: Kube, namespace: str, jobs: int, pods: int) -> None:
    """Apply the jobs as fast as one client can."""
    path = JOBS.format(namespace)
    await asyncio.gather(
        *(
            client.create(path, job(f"job-{index}", namespace, pods), PriorityLevel.PLACEMENT)
            for index in range(jobs)
        )
    )


async def bound(client: Kube, namespace: str, count: int, version: str) -> None:
    """Return when so many pods of the namespace have a node."""
    params = {"fieldSelector": "spec.nodeName!=", "resourceVersion": version}
    seen = 0
    async for event in client.watch(PODS.format(namespace), params):
        seen += event["type"] == "ADDED"
        if seen >= count:
            return


async def timed(
    client: Kube, namespace: str, count: int, work: Callable[[], Awaitable[None]]
) -> float:
    """Return the seconds from the start of the work to the last bound pod."""
    listing = await client.get(PODS.format(namespace), limit="1")
    waiting = asyncio.create_task(
        bound(client, namespace, count, listing["metadata"]["resourceVersion"])
    )
    await asyncio.sleep(0.05)
    started = time.perf_counter()
    working = asyncio.ensure_future(work())
    async with asyncio.timeout(TIMEOUT):
        await waiting
    took = time.perf_counter() - started
    await working
    return took


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


async def muster(client: Kube, namespace: str, jobs: int, pods: int, pid: int) -> Result:
    """Apply the jobs and let the operator start them."""
    before, cpu = await writes(client), usage(pid)[0]
    seconds = await timed(
        client, namespace, jobs * pods, lambda: apply_jobs(client, namespace, jobs, pods)
    )
    await settled(client, namespace, jobs * pods)
    after = await writes(client)
    spent, peak = usage(pid)
    changed = {name: after[name] - before.get(name, 0) for name in after}
    return Result(seconds, {k: v for k, v in changed.items() if v > 0}, spent - cpu, peak)


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
        async with client.session.delete(
            client.host + path.format(namespace), json=body
        ) as response:
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


async def measure(
    client: Kube, shape: tuple[int, int], pid: int, rounds: int
) -> list[list[Result]]:
    """Return the results of the three ways, round by round."""
    jobs, pods = shape
    table: list[list[Result]] = []
    for round_ in range(rounds):
        row: list[Result] = []
        for way in ("bind", "node", "muster"):
            namespace = await namespace_for(client, f"b-{jobs}x{pods}-{way}-{round_}")
            count = jobs * pods
            if way == "muster":
                row.append(await muster(client, namespace, jobs, pods, pid))
            else:
                loop = create_and_bind if way == "bind" else create_on_node
                seconds = await timed(
                    client, namespace, count, lambda f=loop, n=namespace, c=count: f(client, n, c)
                )
                row.append(Result(seconds))
            await sweep(client, namespace)
        table.append(row)
    return table


def show(shape: tuple[int, int], table: Sequence[Sequence[Result]]) -> None:
    """Print one shape: medians over the rounds, ratios round by round."""
    jobs, pods = shape
    median = [statistics.median(row[way].seconds for row in table) for way in range(3)]
    to_bind = statistics.median(row[2].seconds / row[0].seconds for row in table)
    to_node = statistics.median(row[2].seconds / row[1].seconds for row in table)
    last = table[-1][2]
    count = jobs * pods
    objects = sum(v for k, v in last.writes.items() if k in OBJECTS)
    every = sum(v for k, v in last.writes.items() if k not in NOT_OURS)
    print(
        f"{jobs:>4}x{pods:<5} {median[0]:>9.2f} {median[1]:>9.2f} {median[2]:>9.2f}"
        f" {to_bind:>7.2f} {to_node:>7.2f} {objects / count:>9.2f} {every / count:>9.2f}"
        f" {last.cpu:>7.2f} {last.peak_mib:>7.0f}"
    )
    detail = ", ".join(f"{k} {v:.0f}" for k, v in sorted(last.writes.items()) if k not in NOT_OURS)
    print(f"           writes: {detail}")


HEADER = (
    "jobs x pods  bind s    node s  Muster s   /bind   /node   obj/pod writes/pod   CPU s    MiB"
)
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
        async with operator(made.kubeconfig, arguments.log) as pid:
            machine = f"{platform.machine()}, {os.cpu_count()} cores"
            python = f"Python {platform.python_version()}"
            print(f"{machine}, {python}, {NODES} nodes, medians of {arguments.rounds} rounds")
            print(HEADER)
            for shape in shapes:
                show(shape, await measure(client, shape, pid, arguments.rounds))
        await client.close()
    finally:
        await asyncio.to_thread(cluster.down, "bench")


if __name__ == "__main__":
    asyncio.run(main())
