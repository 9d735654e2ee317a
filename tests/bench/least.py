# SPDX-License-Identifier: Apache-2.0
"""The least operator: it watches the jobs, creates their pods on nodes, and watches those.

It decides nothing, checks nothing and writes no more: what it takes is what any operator takes
beside the API server, as long as it is a process in Python. Run as `python tests/bench/least.py
KUBECONFIG WIDTH NAMESPACE NODES` by `ring.py`, as a process of its own; it says when it is ready,
works until a line comes in, and answers with its CPU seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from floor import JOBS, PODS, Door, opened


class Least:
    """Jobs in, pods out; each pod is known once when it is created and once when it is seen."""

    def __init__(self, namespace: str, nodes: int) -> None:
        self._namespace, self._nodes = namespace, nodes
        self.wanted: asyncio.Queue[bytes] = asyncio.Queue()
        self.pods: dict[str, Any] = {}
        self._given = 0

    def job(self, job: dict[str, Any]) -> None:
        """Have the pods of a new job created, each on the next node."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        owner = {
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "name": name,
            "uid": uid,
            "controller": True,
        }
        for role, replica in job["spec"]["tfReplicaSpecs"].items():
            for index in range(replica["replicas"]):
                labels = {
                    "training.kubeflow.org/job-name": name,
                    "training.kubeflow.org/replica-type": role.lower(),
                    "training.kubeflow.org/replica-index": str(index),
                }
                metadata = {
                    "name": f"{name}-{role.lower()}-{index}",
                    "namespace": self._namespace,
                    "labels": labels,
                    "ownerReferences": [owner],
                }
                node = f"node-{1 + self._given % self._nodes}"
                self._given += 1
                spec = {
                    **replica["template"]["spec"],
                    "restartPolicy": replica["restartPolicy"],
                    "schedulerName": "bench",
                    "nodeName": node,
                }
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
                self.wanted.put_nowait(json.dumps(pod).encode())

    async def create(self, door: Door) -> None:
        """Create pods on one connection, for ever."""
        path = PODS.format(self._namespace)
        while True:
            self.pod(json.loads(await door.post(path, await self.wanted.get())))

    def pod(self, pod: dict[str, Any]) -> None:
        """Take in a pod, as it was answered or seen."""
        self.pods[pod["metadata"]["name"]] = pod


async def events(door: Door, path: str) -> AsyncIterator[dict[str, Any]]:
    """Yield what a watch shows from now on, for ever."""
    async for line in door.watch(path):
        yield json.loads(line)


async def main() -> None:
    """Work until a line comes in."""
    config, width, namespace, nodes = sys.argv[1:]
    least = Least(namespace, int(nodes))
    jobs, pods, *doors = await opened(Path(config), int(width) + 2)

    async def follow_jobs() -> None:
        async for event in events(jobs, JOBS.format(namespace)):
            if event["type"] == "ADDED":
                least.job(event["object"])

    async def follow_pods() -> None:
        async for event in events(pods, PODS.format(namespace)):
            least.pod(event["object"])

    cpu = time.process_time()
    parts = [follow_jobs(), follow_pods(), *map(least.create, doors)]
    tasks = [asyncio.create_task(part) for part in parts]
    print("ready", flush=True)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    print(time.process_time() - cpu, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
