# SPDX-License-Identifier: Apache-2.0
"""A job's life, pass by pass."""

from __future__ import annotations

from muster import gang
from world import World, tfjob


def test_a_job_runs_and_succeeds():
    """Two workers are created with their services, run, end well, and the job with them."""
    world = World(tfjob(Worker=2))
    world.settle()
    assert world.names() == ["mnist-worker-0", "mnist-worker-1"]
    assert world.names("Service") == world.names()
    assert world.conditions == ["Created T"]
    assert world.status["state"] == "Created"
    world.start()
    world.settle()
    assert world.conditions == ["Created T", "Running T"]
    assert world.counts() == (2, 0, 0)
    world.end("mnist-worker-1")
    world.settle()
    assert world.counts() == (1, 1, 0)
    world.end("mnist-worker-0")
    world.settle()
    assert world.conditions == ["Created T", "Running F", "Succeeded T"]
    assert world.counts() == (0, 2, 0)
    assert world.status["state"] == "Succeeded"


def test_a_gang_goes_through_the_embedded_allocator():
    """The group comes first, pods when they are placed, on their nodes."""
    world = World(tfjob(Worker=2), backend=gang.EMBEDDED)
    world.settle()
    assert world.names("PodGroup") == ["mnist"]
    assert world.names() == []
    world.extra = {"placements": {"mnist-worker-0": "n0", "mnist-worker-1": "n1"}}
    world.settle()
    assert [pod["spec"]["nodeName"] for pod in world.of("Pod")] == ["n0", "n1"]
    world.start()
    world.settle()
    assert world.status["gang"]["state"] == "Running"
    for name in world.names():
        world.end(name)
    world.settle()
    assert world.names("PodGroup") == []
    assert world.status["state"] == "Succeeded"
