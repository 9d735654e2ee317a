# SPDX-License-Identifier: Apache-2.0
"""How many requests, one behind the other, a new job waits for, and that a crash costs none."""

import asyncio
from collections import Counter

import pytest

from support.apiserver.memory import of_kind
from support.builders.mpijobs import mpijob
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import Process, end, until

CPUS = {"n1": 4, "n2": 4}
TOLD = {"run": "forever", "exits": "0"}
STEPS = {
    "v2beta1": [{"configmaps", "secrets", "services"}, {"mpijobs"}, {"pods"}, {"jobs"}],
    "v1": [{"configmaps", "roles", "serviceaccounts"}, {"rolebindings"}, {"mpijobs"}, {"pods"}],
    "waits": [{"configmaps", "secrets", "services"}, {"mpijobs"}, {"pods"}],
    "PyTorchJob": [{"services"}, {"pods"}],
}
"""What goes out together, step by step, until the last object without which the gang cannot run.

Of an MPIJob it is written first by which rules it goes. In `waits` the launcher comes later, when
its workers are ready.
"""


def role(name, replicas=1):
    """Return a replica spec whose pods run for ever."""
    container = {"name": name, "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"annotations": TOLD}, "spec": {"containers": [container]}}
    return {"replicas": replicas, "template": template}


def job(sort):
    """Return a gang of three; one service finds all."""
    if sort == "PyTorchJob":
        notes = {"muster.kubeflow.org/service": "job"}
        roles = {"Master": role("pytorch"), "Worker": role("pytorch", 2)}
        return of_kind(sort, annotations=notes, **roles)
    more = {"launcherCreationPolicy": "WaitForWorkersReady"} if sort == "waits" else {}
    version = "v1" if sort == "v1" else "v2beta1"
    return mpijob(version, launcher=role("mpi"), worker=role("mpi"), **more)


class Followed(Process):
    """An operator whose requests for jobs are listed, with how many each came after."""

    def __init__(self, server):
        """Begin with none."""
        super().__init__(server)
        self.requests = []
        """Verb, plural, and how many requests one behind the other it is the last of."""
        for verb in ("create", "get", "patch"):
            setattr(self.kube, verb, self._followed(verb, getattr(self.kube, verb)))

    def _followed(self, verb, send):
        async def follow(path, *args, **params):
            if "/namespaces/team/" not in path or path.endswith(("/events", "/binding")):
                return await send(path, *args, **params)
            behind = max((step for *_, step, over in self.requests if over), default=0)
            entry = [verb, path.split("/namespaces/team/")[1].split("/")[0], behind + 1, False]
            self.requests.append(entry)
            try:
                return await send(path, *args, **params)
            finally:
                entry[-1] = True

        return follow

    def steps(self, until):
        """Return what was asked for together, step by step."""
        found = {}
        for verb, plural, step, _ in self.requests[:until]:
            assert verb == ("patch" if plural == "mpijobs" else "create"), self.requests
            found.setdefault(step, set()).add(plural)
        return list(found.values())


async def runs(server):
    """Return when all three pods run."""

    def phases():
        pods = (o for (plural, *_), o in server.objects.items() if plural == "pods")
        return [pod["status"]["phase"] for pod in pods]

    await until(lambda: phases() == ["Running"] * 3)


@pytest.mark.parametrize("sort", STEPS)
@pytest.mark.parametrize("seed", range(2))
def test_what_needs_not_wait_goes_out_at_once(sort, seed):
    """Nothing is asked for that cannot be there; what pods need comes before them, all at once."""

    async def story(server, _dice):
        server.slow = (0.05,)
        process = Followed(server)
        task = asyncio.create_task(process.run())
        server.create(f"{job(sort)['kind'].lower()}s", "team", job(sort))
        await runs(server)
        await end(task)
        return process

    process = virtual_cluster.play(story, seed, CPUS)
    last = "jobs" if sort == "v2beta1" else "pods"
    whole = max(i for i, (_, what, *_) in enumerate(process.requests) if what == last) + 1
    assert process.steps(whole) == STEPS[sort]


@pytest.mark.parametrize("sort", ["v1", "v2beta1"])
@pytest.mark.parametrize("moment", range(1, 9))
def test_whenever_an_operator_ends_the_next_one_makes_what_is_missing(sort, moment):
    """And nothing twice, though answers were lost."""

    async def story(server, _dice):
        server.slow = (0.02,)
        task = asyncio.create_task(Process(server).run())
        await asyncio.sleep(1)
        server.create("mpijobs", "team", job(sort))
        await asyncio.sleep(0.03 * moment)
        await end(task)
        await asyncio.sleep(1)
        task = asyncio.create_task(Process(server).run())
        await runs(server)
        await asyncio.sleep(5)
        await end(task)
        return server

    server = virtual_cluster.play(story, moment, CPUS)
    made = Counter(plural for plural, *_ in server.made.elements())
    once = {"mpijobs", "podgroups"}.union(*STEPS[sort])
    assert made == {**dict.fromkeys(once, 1), "pods": 3}
    assert server.wrong == []


@pytest.mark.parametrize("sort", ["v1", "v2beta1"])
def test_what_somebody_else_has_under_a_name_is_found_by_making_it(sort):
    """The job says so, and goes on by itself once that is gone."""
    plural, name = {"v1": ("roles", "mnist-launcher"), "v2beta1": ("secrets", "mnist-ssh")}[sort]

    async def story(server, _dice):
        server.create(plural, "team", {"apiVersion": "v1", "metadata": {"name": name}})
        task = asyncio.create_task(Process(server).run())
        server.create("mpijobs", "team", job(sort))
        at = ("mpijobs", "team", "mnist")
        await until(lambda: server.objects[at].get("status", {}).get("state") == "Blocked")
        said = server.objects[at]["status"]["reason"]
        server.lose(plural, "team", name)
        await runs(server)
        await end(task)
        return said

    assert name in virtual_cluster.play(story, 1, CPUS)
