# SPDX-License-Identifier: Apache-2.0
"""Jobs that MultiKueue copied to this cluster: another cluster reads their status."""

from __future__ import annotations

import pytest

from mpijobs import world as mpi_world
from muster.controller.model import Delete, Patch
from world import World, of_kind, tfjob

ORIGIN = {"kueue.x-k8s.io/multikueue-origin": "multikueue"}


def copy_of(document):
    """Return the job as MultiKueue creates it on a worker cluster."""
    document["metadata"]["labels"] = {**document["metadata"].get("labels", {}), **ORIGIN}
    return document


@pytest.mark.parametrize("code", [0, 1])
def test_finished_copy_with_ttl_is_kept(code):
    """A copy that expired before the manager read its end would be created and run again."""
    world = World(copy_of(tfjob(policy={"ttlSecondsAfterFinished": 0}, Worker=1))).settle()
    world.end("mnist-worker-0", code)
    world.settle()
    assert world.status["completionTime"]
    assert world.requeue is None
    world.now += 1e6
    assert not [a for a in world.step() if isinstance(a, Delete)]


def test_launcher_of_finished_copy_gets_no_ttl():
    """The launcher's batch Job of a copy stays with the copy."""
    world = mpi_world("v2beta1", policy={"ttlSecondsAfterFinished": 0})
    copy_of(world.job)
    world.close()
    world.settle()
    assert world.status["completionTime"]
    assert "ttlSecondsAfterFinished" not in world.objects["Job", "mnist-launcher"]["spec"]
    assert not [a for a in world.step() if isinstance(a, Delete | Patch)]


@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
def test_elastic_copy_has_no_autoscaler(kind):
    """A change of its replicas would suspend the copy, so one Warning replaces the autoscaler."""
    elastic = {"minReplicas": 1, "maxReplicas": 4, "metrics": []}
    document = of_kind(kind, Worker=2, spec={"elasticPolicy": elastic})
    world = World(document).settle()
    assert world.of("HorizontalPodAutoscaler")
    copy_of(world.job)
    world.job["status"].pop("observedGeneration")
    world.settle().settle()
    assert not world.of("HorizontalPodAutoscaler")
    (said,) = [emit for emit in world.said if emit.reason == "AutoscalerIgnored"]
    assert said.type == "Warning"
    assert "MultiKueue" in said.message


def test_elastic_copy_without_metrics_has_no_warning():
    """A job without metrics never had an autoscaler."""
    elastic = {"minReplicas": 1, "maxReplicas": 4}
    document = of_kind("PyTorchJob", Worker=2, spec={"elasticPolicy": elastic})
    world = World(copy_of(document)).settle()
    assert "AutoscalerIgnored" not in world.reasons()
