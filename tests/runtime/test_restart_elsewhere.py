# SPDX-License-Identifier: Apache-2.0
"""Gangs that lose nodes or members, and operators that end meanwhile, in virtual time."""

import asyncio
from collections import Counter

import pytest

from muster.scheduler import policy
from support.apiserver.memory import tfjob
from support.builders.objects import make_template
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import Process, end, until

RESTART = {"muster.kubeflow.org/restart": "gang"}


def role(replicas, cpus, *, restart="OnFailure", **spec):
    """Return a role whose pods run until they are deleted."""
    run = {"annotations": {"run": "forever", "exits": "0"}}
    template = make_template(requests={"cpu": str(cpus)}, metadata=run, **spec)
    return {"replicas": replicas, "restartPolicy": restart, "template": template}


def create(server, name, *, annotations=RESTART, **roles):
    """Create a job."""
    server.create("tfjobs", "team", tfjob(name=name, annotations=annotations, **roles))


def lose_node(server, name):
    """Delete a node and its pods, as a cloud controller and the pod garbage collection do."""
    server.drop(("nodes", "", name))
    for key, found in list(server.objects.items()):
        if key[0] == "pods" and found["spec"].get("nodeName") == name:
            server.drop(key)


def running(server):
    """Return name -> node of the running pods."""
    return {
        key[2]: found["spec"]["nodeName"]
        for key, found in server.objects.items()
        if key[0] == "pods" and found["status"]["phase"] == "Running"
    }


def uids(server):
    """Return name -> uid of the pods."""
    return {k[2]: o["metadata"]["uid"] for k, o in server.objects.items() if k[0] == "pods"}


def start(server, **fields):
    """Start an operator."""
    return asyncio.create_task(Process(server, **fields).run())


def play(story, seed=1):
    """Let the story come to pass with an operator; return the server."""

    async def played(server, _dice):
        process = start(server)
        await story(server)
        assert not process.done(), process.result()
        await end(process)
        assert not server.wrong
        return server

    return virtual_cluster.play(played, seed, {})


@pytest.mark.parametrize("seed", range(3))
def test_gang_restarts_on_its_own_nodes_and_others(seed):
    """After ten seconds the chief goes where a worker ran, and no other job gets that node."""

    async def story(server):
        for name in ("large-1", "large-2"):
            server.add_node(name, 8)
        create(server, "mnist", Chief=role(1, 8), Worker=role(1, 4))
        await until(lambda: len(running(server)) == 2)
        await asyncio.sleep(5)
        server.add_node("small", 4)
        lost = running(server)["mnist-chief-0"]
        lose_node(server, lost)
        create(server, "rival", Worker=role(1, 8))
        await asyncio.sleep(9)
        assert ("pods", "team", "mnist-chief-0") in server.objects
        assert not server.taken
        await until(lambda: len(running(server)) == 2)
        left = {"large-1", "large-2"} - {lost}
        assert running(server) == {"mnist-chief-0": left.pop(), "mnist-worker-0": "small"}

    server = play(story, seed)
    assert [name for name, *_ in server.taken] == ["mnist-worker-0"]
    counts = server.objects["tfjobs", "team", "mnist"]["status"]["replicaStatuses"]
    assert not any("restarts" in of_role for of_role in counts.values())


@pytest.mark.parametrize("seed", range(6))
def test_next_leader_completes_a_restart(seed):
    """Another job waits for the nodes of the gang, and its pods may be gone by then."""

    async def story(server, dice):
        process = start(server)
        for number in range(3):
            server.add_node(f"n{number}", 1)
        create(server, "mnist", Worker=role(2, 1))
        await until(lambda: len(running(server)) == 2)
        await asyncio.sleep(5)
        before = running(server)
        lose_node(server, before["mnist-worker-0"])
        create(server, "rival", Worker=role(2, 1))

        def state():
            job = server.objects["tfjobs", "team", "mnist"]
            return job["status"].get("gang", {}).get("state")

        await until(lambda: state() == "Released")
        await asyncio.sleep(dice.choice((0.0, 0.05, 0.2, 0.7)))
        await end(process)
        process = start(server)
        await until(lambda: len(running(server)) == 2)
        await asyncio.sleep(30)
        await end(process)
        return running(server), server.wrong

    found, wrong = virtual_cluster.play(story, seed, {})
    assert found.keys() == {"mnist-worker-0", "mnist-worker-1"}
    assert not wrong


ENDED = {"name": "tensorflow", "state": {"terminated": {"exitCode": 137}}}
FAILED = {"phase": "Failed", "containerStatuses": [ENDED]}


@pytest.mark.parametrize("fails", [False, True], ids=["removed", "failed"])
@pytest.mark.parametrize("seed", range(2))
def test_next_leader_keeps_the_slot_of_a_member_that_was_lost_meanwhile(seed, fails):
    """A job of one pod and a higher priority does not get the slot of the lost member."""

    async def story(server, _dice):
        process = start(server)
        for name in ("n0", "n1"):
            server.add_node(name, 2)
        server.put("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
        create(server, "mnist", annotations={}, Worker=role(4, 1, restart="ExitCode"))
        await until(lambda: len(running(server)) == 4)
        create(server, "filler", annotations={}, Worker=role(1, 1, priority="high"))
        await asyncio.sleep(5)
        await end(process)
        before = uids(server)
        if fails:
            server.change(("pods", "team", "mnist-worker-2"), {"status": FAILED})
        else:
            server.lose("pods", "team", "mnist-worker-2")
        await asyncio.sleep(2)
        process = start(server)
        await until(lambda: len(running(server)) == 4 and uids(server) != before)
        await end(process)
        assert running(server).keys() == {f"mnist-worker-{number}" for number in range(4)}
        replaced = {name for name, _ in before.items() - uids(server).items()}
        assert replaced == {"mnist-worker-2"}
        return server.wrong

    assert not virtual_cluster.play(story, seed, {})


@pytest.mark.parametrize("seed", range(6))
def test_next_leader_completes_evictions(seed):
    """No evicted gang stays partial, and a job that would fit meanwhile gets no node."""

    async def story(server, dice):
        rules = policy.parse({"actions": "allocate, preempt"})
        process = start(server, rules=rules)
        for name in ("n0", "n1"):
            server.add_node(name, 4)
        for name, value in (("low", 10), ("high", 1000)):
            server.put("priorityclasses", {"metadata": {"name": name}, "value": value})

        def apply(name, workers, of):
            create(server, name, annotations={}, Worker=role(workers, 1, priority=of))

        def run(**pods):
            found = Counter(name.partition("-")[0] for name in running(server))
            assert "small" not in found
            return found == pods

        for name in ("first", "second"):
            apply(name, 4, "low")
        await until(lambda: run(first=4, second=4))
        apply("small", 2, "low")
        await asyncio.sleep(1)
        apply("large", 8, "high")
        await until(lambda: server.taken)
        await asyncio.sleep(dice.choice((0.0, 0.05, 0.2)))
        await end(process)
        process = start(server, rules=rules)
        await until(lambda: run(large=8))
        for name in ("small", "large"):
            server.drop(("tfjobs", "team", name))
        await until(lambda: run(first=4, second=4))
        await end(process)
        return server.wrong

    assert not virtual_cluster.play(story, seed, {})


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_hold_lasts_while_the_clock_is_set(step):
    """Set forward, the clock would delete running pods at once; set back, nothing for an hour."""

    async def story(server, _dice):
        process = start(server, hold=60.0, expired="restart")
        for number in range(2):
            server.add_node(f"n{number}", 1)
        create(server, "mnist", annotations={}, Worker=role(2, 1))
        await until(lambda: len(running(server)) == 2)
        lose_node(server, "n0")
        await asyncio.sleep(10)
        asyncio.get_running_loop().ahead += step
        create(server, "other", Worker=role(2, 1))
        await asyncio.sleep(25)
        assert not server.taken
        await until(lambda: server.taken)
        await end(process)

    virtual_cluster.play(story, 1, {})
