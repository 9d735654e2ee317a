# SPDX-License-Identifier: Apache-2.0
"""Jobs that other operators have started go on: nothing of them is ended or made again."""

import pytest

from muster import gang
from muster.api import edge, names
from muster.controller.model import Create, Delete, Patch, Refusal
from support.apiserver.memory import START, World, merge, tfjob
from support.builders import recorded_jobs

WORK = ("Pod", "Job")
"""Kinds of which one too many, or too few, is a program that runs twice, or ends."""
BACKENDS = (gang.NONE, gang.EMBEDDED, gang.SCHEDULER_PLUGINS)


def in_flight(name, backend=gang.NONE, **more):
    """Return the world of a recorded job."""
    job, others = recorded_jobs.read(name)
    world = World(job, backend=backend, **more)
    world.objects = {(o["kind"], o["metadata"]["name"]): o for o in others}
    return world


def done(world, sort):
    """Return what was done of one sort to pods and batch Jobs."""
    deletes = [(w.kind, w.name) for w in world.writes if isinstance(w, Delete) and w.kind in WORK]
    creates = [w.doc["kind"] for w in world.writes if isinstance(w, Create)]
    return deletes if sort is Delete else [kind for kind in creates if kind in WORK]


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
@pytest.mark.parametrize("name", recorded_jobs.NAMES)
class TestInFlight:
    """Every kind of job, as each of the operators leaves it."""

    def test_it_goes_on_to_its_end(self, name, backend):
        """Nothing goes and no rank comes a second time; with its programs the job succeeds."""
        world = in_flight(name, backend)
        before = world.names(), world.names("Job")
        world.settle()
        assert (world.names(), world.names("Job")) == before
        assert done(world, Delete) == done(world, Create) == []
        assert world.conditions == ["Created T", "Running T"]
        assert world.status["state"] == "Running"
        active = {type_: c.get("active") for type_, c in world.status["replicaStatuses"].items()}
        wanted = world.job["spec"][world.framework.spec_field]
        assert active == {type_: role["replicas"] for type_, role in wanted.items()}
        for pod in world.names():
            world.end(pod)
        for batch in world.names("Job"):
            world.close(batch)
        world.settle()
        assert world.status["state"] == "Succeeded"
        assert done(world, Delete) == done(world, Create) == []

    def test_a_refusal_takes_nothing_down(self, name, backend):
        """One pod is missing just then, and the server does not take its successor."""
        world = in_flight(name, backend).lose("mnist-worker-1")
        world.extra["refusal"] = Refusal("Pod", "", "Forbidden", "exceeded quota", START + 5)
        world.settle()
        assert done(world, Delete) == []


def test_pods_and_services_get_our_labels():
    """Successors have no others, so services look for ours from then on; pods come first."""
    world = in_flight("tf-operator-1.0-tfjob").settle()
    for name in world.names():
        selector = world.objects["Service", name]["spec"]["selector"]
        labels = world.pod(name)["metadata"]["labels"]
        assert selector.items() <= labels.items()
        assert selector[names.OPERATOR_NAME] == "tfjob-controller"
        assert "tf-replica-type" not in selector
        assert labels["tf-replica-type"] == selector[names.REPLICA_TYPE]
    patched = [w.kind for w in world.writes if isinstance(w, Patch)]
    assert patched == ["Pod"] * 3 + ["Service"] * 3


def test_a_successor_is_found_by_the_service_of_old():
    """It carries our labels alone."""
    policy = {"restartPolicy": "OnFailure"}
    world = in_flight("tf-operator-1.0-tfjob")
    merge(world.job["spec"]["tfReplicaSpecs"]["Worker"], policy)
    world.settle().end("mnist-worker-1", 1).settle().settle()
    labels = world.pod("mnist-worker-1")["metadata"]["labels"]
    assert "tf-replica-type" not in labels
    selector = world.objects["Service", "mnist-worker-1"]["spec"]["selector"]
    assert selector.items() <= labels.items()


def test_a_launcher_that_finished_meanwhile_is_not_run_again():
    """Its end is the job's."""
    world = in_flight("mpi-operator-0.8-mpijob")
    world.close("mnist-launcher").end("mnist-launcher-x7k2p").settle()
    assert world.status["state"] == "Succeeded"
    assert not [w for w in world.writes if isinstance(w, Create)]


def test_batch_job_of_another_operator_loses_its_ttl():
    """It could be deleted before its end is written, and its launcher would run once more."""
    world = in_flight("mpi-operator-0.8-mpijob")
    world.objects["Job", "mnist-launcher"]["spec"]["ttlSecondsAfterFinished"] = 0
    world.settle()
    assert "ttlSecondsAfterFinished" not in world.objects["Job", "mnist-launcher"]["spec"]


def test_a_launcher_that_is_gone_by_its_ttl_is_not_run_again():
    """It has ended, and nobody knows how; without a TTL somebody has taken it away."""
    for ttl, state in ((600, "Failed"), (None, "Running")):
        world = in_flight("mpi-operator-0.8-mpijob")
        world.job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] = ttl
        del world.objects["Job", "mnist-launcher"]
        world.lose("mnist-launcher-x7k2p").settle()
        assert world.status["state"] == state
        assert done(world, Create) == (["Job"] if ttl is None else [])


@pytest.mark.parametrize(
    ("name", "labels"),
    [("other-name", {}), ("mnist-chief-one", {}), ("x", {names.REPLICA_TYPE: "worker"})],
)
def test_a_pod_that_is_not_understood_stays(name, labels):
    """As long as the job runs: nobody knows whose work it would end."""
    world = World(tfjob(Worker=2)).settle().start()
    stray = {**world.pod("mnist-worker-0"), "status": {"phase": "Running"}}
    metadata = {**stray["metadata"], "name": name, "uid": "uid-stray", "labels": labels}
    world.objects["Pod", name] = {**stray, "metadata": metadata}
    world.settle()
    assert done(world, Delete) == []
    world.edit(runPolicy={"suspend": True}).settle().reap()
    assert world.settle().names() == []


def test_a_pod_under_a_wanted_name_has_that_place():
    """Whatever somebody has made of its labels."""
    world = World(tfjob(Worker=2)).settle().start()
    world.pod("mnist-worker-1")["metadata"]["labels"][names.REPLICA_INDEX] = "7"
    world.pod("mnist-worker-0")["metadata"]["labels"][names.REPLICA_TYPE] = "ps"
    world.settle()
    assert world.names() == ["mnist-worker-0", "mnist-worker-1"]
    assert world.counts() == (2, 0, 0)


class TestTTL:
    """Jobs that ended long ago under an operator that let them lie."""

    def finished(self, **status):
        """Return a job that ended an hour ago, to be deleted after a minute."""
        ended = edge.format_time(START - 3600)
        world = World(tfjob(Worker=1, policy={"ttlSecondsAfterFinished": 60}))
        condition = {"reason": "TFJobSucceeded", "message": "", "lastUpdateTime": ended}
        condition |= {"type": "Succeeded", "status": "True", "lastTransitionTime": ended}
        world.job["status"] = {"conditions": [condition], "completionTime": ended, **status}
        return world

    def test_it_is_not_deleted_at_once(self):
        """Its time begins when it is found; a Muster that saw it end owes nobody more time."""
        world = self.finished().settle()
        assert world.job is not None
        assert world.requeue == START + 60
        assert world.wait(30).settle().job is not None
        assert world.wait(30).settle().job is None
        assert self.finished(state="Succeeded").settle().job is None
