# SPDX-License-Identifier: Apache-2.0
"""Pods that batch Jobs make, MPIJobs as the allocator sees them, and as a crash leaves them."""

from dataclasses import replace

import pytest

from muster.cluster import gangs
from muster.frameworks import FRAMEWORKS, load
from muster.store.children import Children
from muster.store.parse import batch, pod
from support.apiserver.memory import World
from support.builders.mpijobs import SECRETS, mpijob


def read(version, **fields):
    """Return such a job as it is read."""
    return load(FRAMEWORKS["MPIJob"], mpijob(version, **fields))


def test_room_for_what_brings_kubectl_is_asked_for():
    """The init container is the largest step of a launcher that asks for nothing."""
    job = read("v1")
    found = gangs.shapes_of(job, gangs.templates(job))
    assert dict(found["Launcher"].requests)["cpu"] == 100
    assert dict(found["Worker"].requests) == {}


def test_a_pod_of_a_batch_job_fills_the_place_of_its_name():
    """Whatever the batch Job calls it."""
    world = World(mpijob("v2beta1"), secrets=SECRETS).settle()
    name = world.launch()
    view = pod(world.pod(name))
    assert (view.name, view.place) == (name, "mnist-launcher")
    maker = batch(world.objects["Job", "mnist-launcher"])
    children = Children()
    children.changed(None, maker)
    assert children.job_of(view.owner) == maker.owner
    assert list(children.makers(maker.owner)) == [maker.as_owner]
    children.changed(maker, None)
    assert children.job_of(view.owner) == view.owner
    assert list(children.makers(maker.owner)) == []


def test_failed_pod_of_a_suspended_batch_job_fills_no_place():
    """Its successor is created once the batch Job is resumed, which waits for a node."""
    world, children = World(mpijob("v2beta1"), secrets=SECRETS).settle(), Children()
    children.pod_changed(None, pod(world.pod(world.launch(phase="Failed"))))
    job, maker = load(world.framework, world.job), batch(world.objects["Job", "mnist-launcher"])
    children.changed(None, maker)
    assert list(children.own_pods(job)) == ["mnist-launcher"]
    children.changed(maker, replace(maker, suspended=True))
    assert children.own_pods(job) == {}


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
@pytest.mark.parametrize("suspend", [False, True])
def test_a_crash_after_any_write_is_made_good(version, suspend):
    """The next passes bring all to what it would have been."""
    made = mpijob(version, policy={"suspend": suspend})
    whole = World(made, secrets=SECRETS).settle()
    for upto in range(len(World(made, secrets=SECRETS).decide())):
        world = World(made, secrets=SECRETS)
        world.step(upto=upto)
        world.settle()
        assert set(world.objects) == set(whole.objects)
        assert world.status == whole.status
