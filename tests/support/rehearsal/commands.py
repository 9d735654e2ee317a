# SPDX-License-Identifier: Apache-2.0
"""Commands of the terminal on an API server in memory."""

from muster.api.edge import format_time
from muster.commands import live
from muster.kube.client import Kube
from support.rehearsal import virtual_cluster
from support.rehearsal.virtual_cluster import PLURALS, START, Session


def client(server, namespace="team"):
    """Return a connection as a command has it."""
    return Kube("http://x", lambda _limit: Session(server), namespace, 16, 2)


def connected(monkeypatch, server):
    """Let commands read this server; return it."""

    async def connect(*_args):
        return server

    monkeypatch.setattr(live, "connect", connect)
    return server


def stored(server, *documents):
    """Put objects there, of the team's namespace unless they say another."""
    for document in documents:
        kind, meta = document["kind"], {"namespace": "team", **document["metadata"]}
        if kind in ("Node", "Queue"):
            del meta["namespace"]
        given = {"uid": f"{kind}/{meta['name']}", "generation": 1}
        given["creationTimestamp"] = format_time(START - 90)
        plural = next(plural for plural, known in PLURALS.items() if known == kind)
        server.put(plural, {**document, "metadata": {**given, **meta}})


async def collect(said):
    """Return all that a command says."""
    return "".join([text async for text in said])


def said(command, *documents, namespace="team"):
    """Return what `command(kube, namespace)` says of a cluster of these objects."""

    async def story(server, _dice):
        stored(server, *documents)
        return await collect(command(client(server), namespace))

    cpus = {d["metadata"]["name"]: 99 for d in documents if d["kind"] == "Node"}
    return virtual_cluster.play(story, 1, cpus)
