# SPDX-License-Identifier: Apache-2.0
"""Once faults are over, each job ends or runs complete, and the operator writes no more."""

from __future__ import annotations

import asyncio
from functools import partial

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from properties.test_partitions import KINDS, NOTES, OUT_OF_SERVICE, document
from support.apiserver.memory import copied
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import OVER, Process, end, fail, waited

NODES = {f"n{number}": 4 for number in range(4)}
RECOVERED = 1200.0
"""Seconds after which all jobs run again."""
STATUSES = ({"gang": None}, {"conditions": []}, {"state": "Weird"}, {"replicaStatuses": {}},
            {"gang": {"state": "Placed"}}, {"gang": {"state": "Degraded", "minMember": 7}},
            {"gang": {"state": "Released"}}, {"startTime": None})  # fmt: skip
GROUPS = ({"minMember": 9}, {"minMember": 1}, {"queue": "x"}, {"priorityClassName": "y"})


class World:
    """A few jobs, and the faults that meet them."""

    def __init__(self, server, dice):
        """Make the jobs: their pods run until deleted or end, some at their second attempt."""
        self.server, self.dice, self.refused, self.writes = server, dice, "", []
        self.stuck, self.bodies = set(), {}
        for number in range(dice.choice((1, 2, 3))):
            kind, roles = dice.choice(KINDS)
            body = copied(document(kind, roles, f"j{number}", dice.choice([*NOTES.values(), {}])))
            for type_, role in body["spec"][field(body)].items():
                if dice.random() < 0.35:
                    # Each pod of a batch Job has a name of its own, and so no second try.
                    exits = "0" if type_ == "Launcher" else dice.choice(("0", "137,0"))
                    told = {"run": dice.choice("159"), "exits": exits}
                    role["template"]["metadata"]["annotations"] |= told
            self.bodies[f"{body['kind'].lower()}s", "team", f"j{number}"] = body
        self._serve, self._end = server.serve, server.end
        server.serve, server.end = self._served, self._ended

    def _served(self, method, path, params, body):
        if method != "GET" and "/events" not in path:
            self.writes.append((method, path))
        if method == "POST" and self.refused and path.endswith(self.refused):
            return fail(403, "Forbidden")
        return self._serve(method, path, params, body)

    async def _ended(self, key, uid):
        if uid not in self.stuck:
            await self._end(key, uid)

    def pods(self, *phases):
        """Return the keys of the pods in these phases."""
        found = self.server.objects.items()
        return sorted(k for k, o in found if k[0] == "pods" and o["status"]["phase"] in phases)

    def befall(self):
        """Let one random fault happen."""
        server, dice = self.server, self.dice
        job, node = dice.choice(sorted(self.bodies)), ("nodes", "", dice.choice(sorted(NODES)))
        group = "podgroups", *job[1:]
        pod = dice.choice(self.pods("Pending", "Running", *OVER) or [("pods", "team", "none")])
        status = {"status": dice.choice(STATUSES)}
        scale = {"spec": {field(self.bodies[job]): {"Worker": {"replicas": dice.randrange(1, 7)}}}}
        pause = {"spec": {"runPolicy": {"suspend": dice.random() < 0.5}}}
        changes = [(job, status), (job, scale), (job, pause),
                   (pod, {"metadata": {"labels": None}}),
                   (pod, {"metadata": {"ownerReferences": None}}),
                   (group, {"spec": dice.choice(GROUPS)}),
                   (node, {"spec": {"unschedulable": True}}),
                   (node, {"spec": {"taints": [OUT_OF_SERVICE]}})]  # fmt: skip
        services = sorted(k for k in server.objects if k[0] == "services") or [group]
        losses = [pod, pod, node, group, dice.choice(services)]
        acts = [partial(self._change, key, copied(body)) for key, body in changes]
        acts += [partial(server.lose, *key) for key in losses]
        acts += [self._fail, self._reject, self._hold, self._occupy, self._silence, server.answer]
        acts += [partial(setattr, self, "refused", f"/{sub}") for sub in ("pods", "services", "")]
        dice.choice(acts)()

    def _change(self, key, body):
        if key in self.server.objects:
            self.server.change(key, body)

    def _fail(self):
        ended = {"name": "x", "state": {"terminated": {"exitCode": 137}}}
        self._let(("Running",), {"phase": "Failed", "containerStatuses": [ended]})

    def _reject(self):
        self._let(("Pending",), {"phase": "Failed", "reason": "OutOfcpu"})

    def _let(self, phases, status):
        if found := self.pods(*phases):
            pod = copied(self.server.objects[self.dice.choice(found)])
            self.server.put("pods", {**pod, "status": status})

    def _hold(self):
        if found := self.pods("Running"):
            key = self.dice.choice(found)
            self.stuck.add(self.server.objects[key]["metadata"]["uid"])
            self.server.lose(*key)

    def _occupy(self):
        name = f"{self.dice.choice(sorted(self.bodies))[2]}-worker-{self.dice.randrange(5)}"
        if ("pods", "team", name) not in self.server.objects:
            metadata = {"name": name, "namespace": "team"}
            self.server.put("pods", {"metadata": metadata, "spec": {"containers": []}})

    def _silence(self):
        there = [name for name in NODES if ("nodes", "", name) in self.server.objects]
        self.server.silence(self.dice.sample(there, min(len(there), self.dice.choice((1, 4)))))

    def mend(self):
        """End all faults, add nodes and resume the jobs."""
        server, self.refused, self.server.trouble = self.server, "", 0.0
        for key, found in list(server.objects.items()):
            alone = not found["metadata"].get("ownerReferences")
            if key[0] == "pods" and (alone or found["metadata"]["uid"] in self.stuck):
                server.drop(key)
        self.stuck.clear()
        server.answer()
        for number in range(4):
            self._change(("nodes", "", f"n{number}"), {"spec": None})
            server.add_node(f"fresh{number}", 8)
        for key in self.bodies:
            self._change(key, {"spec": {"runPolicy": {"suspend": False}}})

    def incomplete(self):
        """Return the jobs that have not ended and do not run with all pods."""
        return [key[2] for key in self.bodies if not self._is_well(self.server.objects[key])]

    def _is_well(self, job):
        conditions = job.get("status", {}).get("conditions") or ()
        told = {c["type"] for c in conditions if c["status"] == "True"}
        wanted = sum(role["replicas"] for role in job["spec"][field(job)].values())
        # Of those that have succeeded the pods may be gone. Workers of v2beta1 that failed stay.
        fine = ("Running", *(("Failed",) if "mpiReplicaSpecs" in job["spec"] else ()))
        there = [k for k in self.pods(*fine) if k[2].startswith(f"{job['metadata']['name']}-")]
        counts = (job.get("status", {}).get("replicaStatuses") or {}).values()
        ended = sum(role.get("succeeded", 0) for role in counts)
        return bool(told & set(OVER)) or len(there) + ended >= wanted


def field(job):
    """Return the name of the field with the roles of a job."""
    return next(key for key in job["spec"] if key.endswith("ReplicaSpecs"))


async def story(server, dice):
    """Play faults and their end; return what has not recovered, and writes without an end."""
    world, expired = World(server, dice), dice.choice(("keep", "restart"))
    process = asyncio.create_task(Process(server, expired=expired).run())
    for (plural, namespace, _), body in world.bodies.items():
        server.create(plural, namespace, copied(body))
    server.trouble = dice.choice((0.0, 0.0, 0.1))
    for _ in range(dice.randrange(1, 9)):
        world.befall()
        await asyncio.sleep(dice.choice((0, 0.02, 0.5, 3, 20, 90)))
        if dice.random() < 0.1:
            await end(process)
            process = asyncio.create_task(Process(server, expired=expired).run())
    world.mend()
    await waited(lambda: process.done() or not world.incomplete(), RECOVERED)
    left = world.incomplete()
    await asyncio.sleep(150)
    world.writes.clear()
    await asyncio.sleep(90)
    assert not process.done(), process.result()
    await end(process)
    return [*left, *(world.writes if len(world.writes) > 12 else ())]


@given(st.integers(0, 10**6))
@settings(
    max_examples=max(1, settings().max_examples // 5), phases=[Phase.explicit, Phase.generate]
)
def test_jobs_recover_from_any_faults_that_end(seed):
    """Nothing that happens to pods, nodes, groups and statuses keeps a job from going on."""
    assert virtual_cluster.play(story, seed, NODES) == []
