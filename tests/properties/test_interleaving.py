# SPDX-License-Identifier: Apache-2.0
"""In whatever order requests, answers and events come: no node is given twice, every job ends."""

import asyncio

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from muster.frameworks import FRAMEWORKS
from support.apiserver.memory import of_kind
from support.builders.mpijobs import mpijob
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import Process, waited

NODES = {"n1": 2, "n2": 2, "n3": 2}
FATES = {
    "done": ({}, {}, "Succeeded"),
    "wide": ({"workers": 5}, {}, "Succeeded"),
    "broken": ({"exits": "3"}, {"backoffLimit": 0}, "Failed"),
    "again": ({"exits": "137,0", "restart": "ExitCode"}, {}, "Succeeded"),
    "late": ({"run": "forever"}, {"activeDeadlineSeconds": 2, "cleanPodPolicy": "All"}, "Failed"),
    "brief": ({}, {"ttlSecondsAfterFinished": 0}, ""),
    "doomed": ({"run": "forever"}, {}, ""),
    "paused": ({"run": "2"}, {}, "Succeeded"),
    "lost": ({"run": "3", "restart": "OnFailure"}, {}, "Succeeded"),
}
"""How a job is made, its run policy, and the condition that it must come to; empty: it is gone."""
HASTY = ("paused", "paused", "doomed", "done", "wide")
"""What lets go of room while pods are on their way, and those who would have it."""
LAUNCHED = frozenset({"done", "paused", "doomed"})
PACES = ((0.0, 0.01), (0.0, 0.05, 0.3), (0.0, 0.05, 0.3), (0.0, 0.02, 1.2))
DOWN = 2.0
"""Seconds without an operator: what one has sent before its end is done by then."""


def document(kind, fate, name, *, cpu="1", workers=None):
    """Return a job."""
    fields, run_policy, _ = FATES[fate]
    told = {"run": fields.get("run", "1"), "exits": fields.get("exits", "0")}

    def role(replicas, told):
        container = {"name": FRAMEWORKS[kind].pods.container or "mpi", "image": "i"}
        container["resources"] = {"requests": {"cpu": cpu}}
        return {
            "replicas": replicas,
            "restartPolicy": fields.get("restart", "Never"),
            "template": {"metadata": {"annotations": told}, "spec": {"containers": [container]}},
        }

    count = workers or fields.get("workers", 2)
    made = of_kind(kind, policy=run_policy, Worker=role(count, told))
    if kind == "MPIJob":
        policy = {**run_policy, "cleanPodPolicy": "All"}
        made = mpijob("v2beta1", policy=policy, launcher=role(1, told), workers=count)
        made["spec"]["mpiReplicaSpecs"]["Worker"] = role(count, {"run": "forever"})
    made["metadata"]["name"] = name
    return made


class Users:
    """Apply jobs, and change their minds."""

    def __init__(self, server, dice):
        """Begin with none."""
        self.server, self.dice, self.jobs = server, dice, {}

    def apply(self, body, end):
        """Apply a job that must come to that end; return where it is."""
        at = f"{body['kind'].lower()}s", "team", body["metadata"]["name"]
        self.server.create(*at[:2], body)
        self.jobs[at] = end
        return at

    async def act(self, kind, fate, name):
        """Apply a job, and do to it what its fate says."""
        await asyncio.sleep(self.dice.uniform(0, 3))
        at = self.apply(document(kind, fate, name), FATES[fate][2])
        if fate in ("doomed", "paused"):
            # Most interesting while some pods are there, and others on their way.
            await waited(lambda: self.server.has_begun(name), 2)
            await asyncio.sleep(self.dice.choice((0.0, 0.05, 0.1, 1.0)))
        if fate == "doomed":
            self.server.drop(at)
        elif fate == "paused":
            for suspend in (True, False):
                self.server.change(at, {"spec": {"runPolicy": {"suspend": suspend}}})
                await asyncio.sleep(self.dice.uniform(0, 1))
        elif fate == "lost":
            await asyncio.sleep(1)
            self.server.lose("pods", "team", f"{name}-worker-1")

    def open(self):
        """Return the jobs that have not come to their end."""
        found = []
        for at, end in self.jobs.items():
            job = self.server.objects.get(at)
            conditions = ((job or {}).get("status") or {}).get("conditions") or ()
            over = any(c["type"] == end and c["status"] == "True" for c in conditions)
            if not (over if end else job is None):
                found.append((at[2], (job or {}).get("status")))
        return found


async def ended(users, process):
    """Return the jobs that have not ended after some minutes."""
    await waited(lambda: process.done() or not users.open(), 200)
    assert not process.done(), process.result()
    return users.open()


async def story(server, dice):
    """Let jobs be applied, trouble be had and operators die; then, in peace, all must end."""
    server.trouble, server.slow = dice.choice((0.0, 0.0, 0.1, 0.3)), dice.choice(PACES)
    users, process = Users(server, dice), asyncio.create_task(Process(server).run())
    async with asyncio.TaskGroup() as acts:
        drawn = dice.choice((tuple(FATES), HASTY, HASTY))
        for index in range(8):
            fate = dice.choice(drawn)
            # A batch Job's own limits are not played.
            kinds = virtual_cluster.KINDS[: 3 if fate in LAUNCHED else 2]
            acts.create_task(users.act(dice.choice(kinds), fate, f"{fate}-{index}"))
        for _ in range(dice.choice((0, 0, 0, 1, 2))):
            await asyncio.sleep(dice.uniform(0.2, 2))
            await virtual_cluster.end(process)
            await asyncio.sleep(DOWN)
            process = asyncio.create_task(Process(server).run())
    await asyncio.sleep(2)
    server.trouble, server.slow = 0.0, (0.0, 0.01)
    left = await ended(users, process)
    for at in users.jobs:
        server.drop(at)
    users.jobs.clear()
    # A place that is still kept for somebody would be missing here.
    users.apply(document("TFJob", "done", "fills", cpu="2", workers=len(NODES)), "Succeeded")
    left += await ended(users, process)
    await virtual_cluster.end(process)
    risen = [name for name in server.risen if not name.startswith("paused-")]
    return [*server.wrong, *risen, *left]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=max(1, settings().max_examples // 8), phases=[Phase.generate])
def test_whatever_the_order(seed):
    """No node is given twice, every job ends, and every place comes free."""
    assert virtual_cluster.play(story, seed, NODES) == []
