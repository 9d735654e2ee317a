# SPDX-License-Identifier: Apache-2.0
"""What a large job with one service costs the API server."""

import asyncio
from collections import Counter

from muster.api import names
from muster.kube.flowcontrol import PriorityLevel
from support.apiserver.memory import of_kind
from support.builders.objects import make_template
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import Process, end, until

PODS = 300
"""Of more the statuses are not more: 1005 writes for 1000."""


class Counted(Process):
    """An operator whose writes are counted, but for events, of which any may be left out."""

    def __init__(self, server):
        """Count from the start."""
        super().__init__(server)
        self.writes, self.levels = Counter(), {}
        serve = server.serve

        def counting(method, path, params, body):
            if method != "GET" and not path.endswith("/events"):
                self.writes[method, path.rpartition("/")[2]] += 1
            return serve(method, path, params, body)

        server.serve = counting
        create = self.kube.create

        async def levelled(path, body, urgency, *rest):
            self.levels[body["kind"]] = urgency
            return await create(path, body, urgency, *rest)

        self.kube.create = levelled


def test_little_more_than_one_write_a_pod():
    """Until all run and the status says so: the pods, one service, the group, some statuses."""
    told = {"annotations": {"run": "forever", "exits": "0"}}
    template = make_template(requests={"cpu": "1"}, metadata=told)
    template["spec"]["containers"][0]["name"] = "pytorch"
    job = of_kind(
        "PyTorchJob",
        annotations={names.SERVICE: names.SERVICE_OF_JOB},
        Master={"replicas": 1, "template": template},
        Worker={"replicas": PODS - 1, "template": template},
    )

    async def story(server, _dice):
        server.slow = (0.0,)  # a watch that tells of one pod at a time makes many statuses
        process = Counted(server)
        task = asyncio.create_task(process.run())
        server.create("pytorchjobs", "team", job)
        at = ("pytorchjobs", "team", "mnist")

        def runs():
            status = server.objects[at].get("status") or {}
            counts = status.get("replicaStatuses", {}).get("Worker", {})
            return counts.get("active") == PODS - 1

        await until(runs)
        await asyncio.sleep(5)
        await end(task)
        return process

    process = virtual_cluster.play(story, 1, {f"n{n}": 110 for n in range(10)})
    writes = process.writes
    assert writes["POST", "pods"] == PODS
    assert writes["POST", "services"] == 1
    assert writes.total() <= PODS + 10, writes
    # Pods that come after it must not wait behind the services of others.
    assert process.levels["Service"] is PriorityLevel.GROUP
