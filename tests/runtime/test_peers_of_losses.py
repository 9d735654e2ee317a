# SPDX-License-Identifier: Apache-2.0
"""Gangs that restart as a whole and whose peers exit after a loss, in virtual time."""

import asyncio

import pytest

from runtime.test_restart_elsewhere import RESTART, create, lose_node, role, running, start, uids
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import end, until

NAMES = tuple(f"mnist-worker-{i}" for i in range(4))
SHUT_DOWN = {
    "phase": "Failed",
    "reason": "Terminated",
    "conditions": [{"type": "DisruptionTarget", "status": "True"}],
}


def fail(server, name, code):
    """Let the program of a pod exit, unless the pod is being deleted."""
    key = "pods", "team", name
    pod = server.objects.get(key)
    if name in running(server) and "deletionTimestamp" not in pod["metadata"]:
        ended = {"terminated": {"exitCode": code, "finishedAt": server.now}}
        of = [{"name": "tensorflow", "state": ended}]
        server.change(key, {"status": {"phase": "Failed", "containerStatuses": of}})


async def drain(server, name):
    """Delete a pod, which terminates for half a minute."""
    key = "pods", "team", name
    server.change(key, {"metadata": {"deletionTimestamp": server.now}})
    uid = uids(server)[name]
    await asyncio.sleep(30)
    if uids(server).get(name) == uid:
        server.drop(key)


async def lose(server, name, how):
    """Let a member be lost."""
    node = running(server).get(name)
    if node is None:
        return
    if how == "drained":
        await drain(server, name)
    elif how == "deleted":
        server.lose("pods", "team", name)
    elif how == "removed":
        server.drop(("pods", "team", name))
    elif how == "node":
        lose_node(server, node)
    else:
        server.change(("pods", "team", name), {"status": SHUT_DOWN})


def ends_of(server):
    """Return the conditions of the job that are True, and the restarts that it counts."""
    status = server.objects["tfjobs", "team", "mnist"]["status"]
    true = [c["type"] for c in status["conditions"] if c["status"] == "True"]
    return true, status["replicaStatuses"]["Worker"].get("restarts", 0)


async def exits(server, name, code):
    """Let the program of a pod exit with that code."""
    fail(server, name, code)


def plan(dice, policy):
    """Return when which members are lost, and when which of their peers exit with which codes."""
    ways = ["drained", "deleted", "removed", "node"]
    # Under Never the job fails with a pod that its kubelet ended.
    ways += ["shut down"] if policy != "Never" else []
    yield 0.0, lose, NAMES[3], dice.choice(ways)
    if dice.random() < 0.4:
        yield 8.0, lose, NAMES[2], dice.choice(ways)
    for name in NAMES[:3]:
        if dice.random() < 0.8:
            yield dice.uniform(0.3, 20.0), exits, name, dice.choice((1, 1, 2, 134, 137, 143))


async def happen(server, hits, before):
    """Let all of that happen to the pods that there are."""

    async def at(seconds, what, name, how):
        await asyncio.sleep(seconds)
        if uids(server).get(name) == before[name]:
            await what(server, name, how)

    await asyncio.gather(*(at(*hit) for hit in hits))


async def begin(server, policy):
    """Start an operator and a gang on four nodes; return the process and the uids of the pods."""
    process = start(server)
    for number in range(4):
        server.add_node(f"n{number}", 1)
    create(server, "mnist", annotations=RESTART, Worker=role(4, 1, restart=policy))
    await until(lambda: len(running(server)) == 4)
    return process, uids(server)


def replaced(server, before):
    """Say whether all pods run that there were, as other pods."""
    now = uids(server)
    new = all(now.get(name) not in (None, before[name]) for name in NAMES)
    return new and len(running(server)) == 4


@pytest.mark.parametrize("seed", range(16))
def test_gang_restarts_uncounted_whenever_its_peers_exit(seed):
    """Whatever the loss, the exit codes, the order of exits, and the process that goes on."""

    async def story(server, dice):
        policy = dice.choice(("ExitCode", "OnFailure", "Never"))
        process, before = await begin(server, policy)
        await asyncio.sleep(dice.choice((1, 5)))
        happens = asyncio.create_task(happen(server, list(plan(dice, policy)), before))
        if dice.random() < 0.6:
            await asyncio.sleep(dice.choice((0.05, 0.2, 1, 3, 9)))
            await end(process)
            await asyncio.sleep(dice.choice((0.1, 2, 15)))
            process = start(server)
        await asyncio.sleep(dice.choice((20, 60, 200)))
        for number in range(4, 6):
            server.add_node(f"n{number}", 1)
        await until(lambda: replaced(server, before))
        await happens
        await asyncio.sleep(20)
        assert replaced(server, before)
        assert ends_of(server) == (["Created", "Running"], 0)
        # The program of the next run fails by itself.
        fail(server, NAMES[1], 137 if policy == "OnFailure" else 1)
        await asyncio.sleep(20)
        conditions, restarts = ends_of(server)
        assert restarts == 1 if policy == "OnFailure" else "Failed" in conditions
        await end(process)
        return server.wrong

    assert not virtual_cluster.play(story, seed, {})
