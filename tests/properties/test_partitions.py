# SPDX-License-Identifier: Apache-2.0
"""Nodes that are cut off, for however long: the operator deletes no running pods for that."""

import asyncio

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from muster.frameworks import FRAMEWORKS
from support.apiserver.memory import of_kind
from support.builders.mpijobs import mpijob
from support.builders.objects import make_template
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import TOLERATED, Process, end, waited

NODES = {f"n{number}": 2 for number in range(30)}
GANGS, SIZE = 9, 4
KINDS = (
    ("TFJob", {"PS": 1, "Worker": 3}),
    ("PyTorchJob", {"Master": 1, "Worker": 3}),
    ("JAXJob", {"Worker": 4}),
    ("v1", {"Launcher": 1, "Worker": 3}),
    ("v2beta1", {"Launcher": 1, "Worker": 3}),
)
"""Kinds, or versions of the MPIJob, and the replicas of their roles."""
ZONE = "topology.kubernetes.io/zone"
NOTES = {
    "plain": {},
    "whole": {"muster.kubeflow.org/restart": "gang"},
    "forced": {"muster.kubeflow.org/replace-unreachable": "force"},
}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
SETTLED = 400.0
"""Seconds after which all gangs are complete again."""


def document(kind, replicas, name, notes):
    """Return a job whose pods run until they are deleted."""
    told = {"annotations": {"run": "forever", "exits": "0"}}
    roles = {}
    for type_, count in replicas.items():
        template = make_template(requests={"cpu": "1"}, metadata=told)
        if kind in FRAMEWORKS:
            template["spec"]["containers"][0]["name"] = FRAMEWORKS[kind].pods.container
        roles[type_] = {"replicas": count, "restartPolicy": "OnFailure", "template": template}
    if kind in FRAMEWORKS:
        return of_kind(kind, name=name, annotations=notes, **roles)
    job = mpijob(kind)
    job["spec"]["mpiReplicaSpecs"] = roles
    job["metadata"] |= {"name": name, "annotations": notes}
    return job


def gang_of(pod):
    """Return the name of a pod's job."""
    return "-".join(pod.split("-")[:2])


class Partition:
    """Nodes that are cut off, and what happens to their pods besides the operator."""

    def __init__(self, server, share):
        """Begin: so many percent of the nodes are cut off."""
        self.server = server
        self.nodes = server.dice.sample(sorted(NODES), max(1, round(len(NODES) * share / 100)))
        self.fenced = set()

    def pods(self, nodes):
        """Return the pods on these nodes by key."""
        found = self.server.objects.items()
        return {k: o for k, o in found if k[0] == "pods" and o["spec"].get("nodeName") in nodes}

    def runs(self, job):
        """Return the number of running pods of a job."""
        found = self.server.objects.items()
        return sum(
            k[0] == "pods" and gang_of(k[2]) == job and o["status"]["phase"] == "Running"
            for k, o in found
        )

    async def evict(self):
        """Delete the pods of the nodes as Kubernetes does when their toleration ends."""
        await asyncio.sleep(TOLERATED["tolerationSeconds"])
        # It evicts nothing while no node answers.
        if len(self.nodes) < len(NODES):
            for key, pod in self.pods(self.nodes).items():
                self.server.delete(key, pod)

    async def fence(self, after, *, delete):
        """Put one of the nodes out of service, or delete it; its pods go with it."""
        await asyncio.sleep(after)
        name = self.server.dice.choice(self.nodes)
        self.fenced.add(name)
        self.server.lost += [key[2] for key in self.pods({name})]
        if delete:
            self.server.drop(("nodes", "", name))
        else:
            self.server.change(("nodes", "", name), {"spec": {"taints": [OUT_OF_SERVICE]}})
        await asyncio.sleep(40)
        for key in self.pods({name}):
            self.server.drop(key)


def story(share, seconds, fence, expired, zones=1):
    """Return a story in which nodes are cut off, which returns what must not have been."""

    async def cut_off(server, dice):
        process = asyncio.create_task(Process(server, expired=expired).run())
        for number, name in enumerate(NODES):
            # Those of the first zone have no label.
            if zone := number % zones:
                server.change(("nodes", "", name), {"metadata": {"labels": {ZONE: f"z{zone}"}}})
        names, first = [], dice.randrange(len(KINDS))
        for number in range(GANGS):
            what, (kind, replicas) = list(NOTES)[number % 3], KINDS[(first + number) % len(KINDS)]
            names.append(f"{what}-{number}")
            job = document(kind, replicas, names[-1], NOTES[what])
            server.create(f"{job['kind'].lower()}s", "team", job)
        partition = Partition(server, share)
        await waited(lambda: all(partition.runs(name) == SIZE for name in names), 120)
        assert all(partition.runs(name) == SIZE for name in names)
        assert not server.taken
        server.silence(partition.nodes)
        others = [asyncio.create_task(partition.evict())]
        if fence:
            after = dice.uniform(0, seconds)
            others.append(asyncio.create_task(partition.fence(after, delete=dice.random() < 0.5)))
        at = dice.uniform(0, seconds)
        await asyncio.sleep(at)
        if dice.random() < 0.5:
            await end(process)
            process = asyncio.create_task(Process(server, expired=expired).run())
        await asyncio.sleep(seconds - at)
        server.answer()
        others[0].cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await waited(lambda: all(partition.runs(name) == SIZE for name in names), SETTLED)
        assert not process.done(), process.result()
        await end(process)
        wrong = [
            taken for taken in server.taken if not may_be_taken(partition, share, expired, *taken)
        ]
        incomplete = [name for name in names if partition.runs(name) != SIZE]
        return [*server.wrong, *wrong, *incomplete]

    return cut_off


def may_be_taken(partition, share, expired, pod, node, evicted, lost, away):
    """Return whether the operator may delete or evict a pod that was running on a node."""
    kind, broken = pod.split("-")[0], gang_of(pod) in map(gang_of, lost)
    # What is cut off may run on, so that its gang could not start again.
    away = {name for name, on in away.items() if on not in partition.fenced}
    broken = broken and gang_of(pod) not in map(gang_of, away)
    if evicted:
        # One of two gangs that both lost members is released, if that completes the other.
        return broken
    forced = kind == "forced" and node in partition.nodes and share < 55
    restarts = kind == "whole" or expired == "restart"
    return node in partition.fenced or forced or (broken and restarts)


@given(
    share=st.sampled_from([1, 10, 34, 56, 100]),
    seconds=st.sampled_from([10, 90, 300, 3600]),
    fence=st.booleans(),
    expired=st.sampled_from(["keep", "restart"]),
    zones=st.sampled_from([1, 3]),
    seed=st.integers(0, 10**6),
)
@example(share=10, seconds=3600, fence=False, expired="restart", zones=1, seed=1)
@example(share=100, seconds=3600, fence=True, expired="restart", zones=1, seed=1)
@example(share=34, seconds=3600, fence=False, expired="restart", zones=3, seed=638539)
@settings(
    max_examples=max(1, settings().max_examples // 5), phases=[Phase.explicit, Phase.generate]
)
def test_partition_of_any_share_and_length_costs_no_running_pods(
    share, seconds, fence, expired, zones, seed
):
    """Only fenced nodes, force, and restarts of whole gangs that lost members take pods down."""
    assert virtual_cluster.play(story(share, seconds, fence, expired, zones), seed, NODES) == []
