# SPDX-License-Identifier: Apache-2.0
"""Outages of many nodes, reported by events on the leader's Lease."""

import asyncio

import pytest

from muster.cluster.nodes import parse_node
from muster.kube.events import EventRecorder
from muster.runtime.app import report_outages
from muster.store.away import AwayNodes
from support.builders.scheduler import make_node

LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"namespace": "system", "name": "muster", "uid": "lease-uid"},
}


class Server:
    """An API server that stores events."""

    def __init__(self):
        self.events, self.written = [], asyncio.Semaphore(0)

    async def create(self, _path, document, _urgency):
        """Store an event."""
        self.events.append(document)
        self.written.release()
        return {**document, "metadata": {**document["metadata"], "uid": "e", "count": 1}}


def change(away, status, *names):
    """Let the condition Ready of the nodes have that status."""
    for name in names:
        document = make_node(name=name)
        document["status"]["conditions"] = [{"type": "Ready", "status": status}]
        away.node_changed(None, parse_node(document))


@pytest.mark.parametrize("before", [True, False])
async def test_events_on_the_lease_report_an_outage_once(before):
    """An outage that has begun before this process led is reported as well."""
    server, away = Server(), AwayNodes(clock=lambda: 0.0)
    recorder = EventRecorder(server)
    change(away, "True", "n0", "n1", "n2", "n3")
    if not before:
        report_outages(away, recorder, lambda: LEASE)
    change(away, "Unknown", "n0", "n1", "n2")
    if before:
        report_outages(away, recorder, lambda: LEASE)
        report_outages(away, recorder, lambda: LEASE)
    change(away, "Unknown", "n3")
    change(away, "True", "n1", "n2", "n3")
    writing = asyncio.create_task(recorder.run())
    for _ in range(2):
        await server.written.acquire()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    begun, ended = sorted(server.events, key=lambda event: event["type"], reverse=True)
    assert (begun["type"], begun["reason"], begun["count"]) == ("Warning", "NodeOutageStarted", 1)
    assert begun["message"].startswith("3 of 4 nodes of the cluster are unreachable.")
    assert begun["involvedObject"]["uid"] == "lease-uid"
    assert begun["metadata"]["namespace"] == "system"
    assert (ended["type"], ended["reason"]) == ("Normal", "NodeOutageEnded")


def test_outage_without_leader_election_is_logged(caplog):
    """There is no Lease for an event."""
    away = AwayNodes(clock=lambda: 0.0)
    report_outages(away, EventRecorder(Server()), lambda: None)
    change(away, "Unknown", "n0")
    assert "1 of 1 nodes of the cluster are unreachable." in caplog.text
