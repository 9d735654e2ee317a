# SPDX-License-Identifier: Apache-2.0
"""What has to be written before room is made waits for nobody's prose, however much there is."""

import asyncio
import itertools
import math

import pytest

from muster.kube.flowcontrol import PriorityLevel
from muster.scheduler import policy
from support.apiserver.memory import tfjob
from support.builders.objects import make_template
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import Process, end, until

CLASSES = {"high": 1000, "low": -10}
TENANTS, EACH, SECONDS = 20, 2, 0.4
"""Others that write all the time, how much each has to write, and how long each write takes."""
SOON, SEEDS = 7.0, range(4)
"""Seconds after which the job or pod runs, and orders of events in which that is so."""
PREEMPT = policy.parse({"actions": "allocate, preempt"})


def job(name, run="forever"):
    """Return a job that takes the whole node."""
    metadata = {"annotations": {"run": run, "exits": "0"}}
    template = make_template(requests={"cpu": "1"}, priority=name, metadata=metadata)
    return tfjob(name=name, Worker={"replicas": 2, "template": template})


def pod(name):
    """Return a pod that takes it, made by somebody himself."""
    metadata = {"name": name, "annotations": {"run": "forever", "exits": "0"}}
    spec = {"scheduler": "muster", "priority": name}
    made = make_template(requests={"cpu": "2"}, metadata=metadata, **spec)
    made["spec"]["priority"] = CLASSES[name]
    return made


async def clog(gate):
    """Write prose in the names of many, and pods in that of one, for ever."""

    async def write(urgency, tenant):
        while True:
            async with gate.enter(urgency, tenant):
                await asyncio.sleep(SECONDS)

    prose = (PriorityLevel.SUPPORT, PriorityLevel.STATUS, PriorityLevel.EVENT)
    async with asyncio.TaskGroup() as tasks:
        for number, urgency, _ in itertools.product(range(TENANTS), prose, range(EACH)):
            tasks.create_task(write(urgency, f"tenant-{number}"))
        for _ in range(2 * gate.width):
            tasks.create_task(write(PriorityLevel.PLACEMENT, "tenant-0"))


async def seconds(make, server, *, after):
    """Return how long one waits whose room another one has to leave.

    Others write `after` so many seconds in which the other one has been told that he runs.
    """

    def runs(name):
        return any(
            plural == "pods" and at.startswith(name) and o["status"]["phase"] == "Running"
            for (plural, _, at), o in server.objects.items()
        )

    for name, value in CLASSES.items():
        server.put("priorityclasses", {"metadata": {"name": name}, "value": value})
    process = Process(server, rules=PREEMPT)
    tasks = [asyncio.create_task(process.run())]

    async def others():
        await asyncio.sleep(after)
        await clog(process.kube.flow_control)

    tasks.append(asyncio.create_task(others()))
    make("low")
    await until(lambda: runs("low"))
    if 0 < after < math.inf:
        await asyncio.sleep(after)
    began = asyncio.get_running_loop().time()
    make("high")
    await until(lambda: runs("high"))
    took = asyncio.get_running_loop().time() - began
    await end(*tasks)
    return took


@pytest.mark.parametrize("after", [math.inf, 5.0, 0.0], ids=["quiet", "later", "from the start"])
@pytest.mark.parametrize("whose", ["a job", "pods of others"])
def test_room_is_made_beside_whatever_others_write(whose, after):
    """Status writes before an eviction, and pods, wait behind no other writes.

    Nor behind what the reconcile before was still to write for the same job.
    """

    async def story(server, _dice):
        def make(name):
            if whose == "a job":
                server.create("tfjobs", "team", job(name))
            else:
                server.create("pods", "team", pod(name))

        return await seconds(make, server, after=after)

    assert max(virtual_cluster.play(story, seed, {"n1": 2}) for seed in SEEDS) < SOON


@pytest.mark.parametrize("run", ["1", "30"], ids=["before it is seen to run", "later"])
def test_end_of_a_job_is_reported_beside_whatever_others_write(run):
    """Also if an earlier status of the job still waits."""

    async def story(server, _dice):
        server.put("priorityclasses", {"metadata": {"name": "low"}, "value": 0})
        process = Process(server, rules=PREEMPT)
        tasks = [asyncio.create_task(process.run())]
        tasks.append(asyncio.create_task(clog(process.kube.flow_control)))
        server.create("tfjobs", "team", job("low", run))

        def found(plural):
            return [
                o.get("status", {}) for (kind, *_), o in server.objects.items() if kind == plural
            ]

        def phases():
            return [status.get("phase") for status in found("pods")]

        await until(lambda: phases() == ["Succeeded"] * 2)
        began = asyncio.get_running_loop().time()
        await until(lambda: "completionTime" in found("tfjobs")[0])
        took = asyncio.get_running_loop().time() - began
        await end(*tasks)
        return took

    assert max(virtual_cluster.play(story, seed, {"n1": 2}) for seed in SEEDS) < SOON
