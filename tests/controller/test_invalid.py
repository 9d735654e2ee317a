# SPDX-License-Identifier: Apache-2.0
"""What cannot go on as its author wrote it goes on as it was: nothing runs, or ends, for that."""

import copy

import pytest

from muster import gang
from muster.api import names
from muster.api.edge import MAX_MESSAGE_CHARS
from muster.api.status import Verdict
from muster.controller.model import Context, Create, Delete, RequeueAfter
from support.apiserver.memory import START, World, copied, merge, tfjob, wanted
from support.builders.job_kinds import SORTS, job_of
from support.builders.mpijobs import SECRETS, mpijob

ROLES = "tfReplicaSpecs"
HUGE = 2**31 - 1
MISTAKES = {
    "no replicas": {"Worker": {"replicas": -1}},
    "too many": {"Worker": {"replicas": HUGE}},
    "too many in all": {"Worker": {"replicas": 6_000}, "PS": {"replicas": 6_000}},
    "no container": {"Worker": {"template": {"spec": {"containers": []}}}},
    "another container": {
        "Worker": {"template": {"spec": {"containers": [{"name": "x", "image": "y"}]}}}
    },
    "unknown policy": {"Worker": {"restartPolicy": "Sometimes"}},
    "two chiefs": {"Master": {"replicas": 1, "template": {"spec": {"containers": []}}}},
    "an unknown role": {"Boss": {"replicas": 1}},
    "no roles": None,
}
NO_RIGHTS = Context(lacking={"tfjob-controller": "may not create pods"})


def running(*, policy=None, restarts="Never", backend=gang.NONE):
    """Return a job with a server and two workers, all of which run."""
    worker = {"replicas": 2, "restartPolicy": restarts}
    return World(tfjob(PS=1, Worker=worker, policy=policy), backend=backend).run()


def broken(mistake, **more):
    """Return such a job after an edit that makes no sense."""
    world = running(**more)
    edit(world, mistake)
    world.writes.clear()
    return world


def edit(world, mistake):
    """Make a mistake in the roles of the job."""
    change = MISTAKES[mistake]
    if change is None:
        del world.job["spec"][ROLES]
    else:
        merge(world.job["spec"][ROLES], copy.deepcopy(change))
    world.edit()


def made_or_ended(world):
    """Return what was created and deleted."""
    return [w for w in world.writes if isinstance(w, Create | Delete)]


@pytest.mark.parametrize("mistake", MISTAKES)
class TestInvalidWhileItRuns:
    """Its spec is wrong, its pods are right."""

    def test_nothing_is_made_and_nothing_ends(self, mistake):
        """It says so once, counts on, and goes on once it is mended."""
        world = broken(mistake).settle()
        assert made_or_ended(world) == []
        assert world.status["state"] == "Invalid"
        assert world.status["reason"]
        assert world.conditions == ["Created T", "Running T"]
        assert world.counts() == (2, 0, 0)
        assert world.counts("PS") == (1, 0, 0)
        assert world.reasons().count("TFJobFailedValidation") == 1
        world.edit(**copy.deepcopy(running().job["spec"])).settle()
        assert made_or_ended(world) == []
        assert (world.status["state"], world.status.get("reason")) == ("Running", None)

    def test_it_ends_with_its_programs(self, mistake):
        """Well, when the last worker has, and is cleaned up."""
        world = broken(mistake, policy={"cleanPodPolicy": "Running"})
        world.end("mnist-worker-1").settle()
        assert world.status["state"] == "Invalid"
        world.end("mnist-worker-0").settle()
        assert world.status["state"] == "Succeeded"
        assert world.reap().names() == ["mnist-worker-0", "mnist-worker-1"]

    def test_it_can_be_suspended(self, mistake):
        """All goes, and it still says what is wrong with it."""
        world = broken(mistake)
        world.edit(runPolicy={"suspend": True}).settle().reap().settle()
        assert world.names() == []
        assert "Suspended T" in world.conditions
        assert world.status["state"] == "Invalid"

    def test_its_deadline_holds(self, mistake):
        """To the second."""
        world = broken(mistake, policy={"activeDeadlineSeconds": 60})
        assert [a.at for a in world.decide() if isinstance(a, RequeueAfter)] == [START + 60]
        assert world.wait(60).settle().status["state"] == "Failed"

    def test_a_failed_pod_waits_for_the_cure(self, mistake):
        """Its end is known; the successor comes once the spec can be read."""
        world = broken(mistake, restarts="OnFailure")
        spec = copy.deepcopy(running(restarts="OnFailure").job["spec"])
        world.end("mnist-worker-1", 1).settle()
        assert made_or_ended(world) == []
        assert world.conditions == ["Created T", "Restarting T"]
        world.edit(**spec).settle().start()
        assert world.settle().status["state"] == "Running"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_member_that_is_lost_while_the_job_is_invalid_is_missing(mistake):
    """The others are not all of the job: without that member it neither succeeds nor is whole."""
    job = tfjob(PS=1, Worker=2, spec={"successPolicy": "AllWorkers"})
    world = World(job, backend=gang.EMBEDDED, verdict=Verdict("muster", "Placed", "mnist"))
    world.give(placements=dict.fromkeys(wanted(world), "n1")).run()
    spec = copy.deepcopy(world.job["spec"])
    edit(world, mistake)
    world.give(placements={}).lose("mnist-worker-1").settle().end("mnist-worker-0").settle()
    assert "Succeeded T" not in world.conditions
    found = world.edit(**spec).settle().status["gang"]
    assert (found["state"], found["minMember"]) == ("Degraded", 3)


def _wrong(world):
    world.job["spec"]["mpiReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"


def _not_allowed(world):
    world.context = Context(lacking={"mpi-operator": "may not create secrets"})


def _taken(world):
    world.objects["Secret", "mnist-ssh"]["metadata"]["ownerReferences"][0]["uid"] = "another"
    world.now += 3600


@pytest.mark.parametrize("trouble", [_wrong, _not_allowed, _taken])
def test_a_launcher_is_held_back_whatever_is_wrong(trouble):
    """It would hold its room, and lead workers that are gone."""
    world = World(mpijob("v2beta1"), secrets=SECRETS).settle().start()
    world.launch()
    world.settle()
    trouble(world)
    world.edit(runPolicy={"suspend": True}).settle().reap().settle()
    assert (world.names(), world.counts("Launcher")) == ([], (0, 0, 0))
    assert world.objects["Job", "mnist-launcher"]["spec"]["suspend"] is True


@pytest.mark.parametrize("policy", ["activeDeadlineSeconds", "backoffLimit"])
def test_a_limit_that_makes_no_sense_is_none(policy):
    """A deadline of less than nothing is not over."""
    world = running()
    assert world.edit(runPolicy={policy: -5}).settle().status["state"] == "Invalid"
    assert "Failed T" not in world.conditions


def running_of(sort):
    """Return a job of that kind with two workers, all of whose pods run."""
    world = World(job_of(sort), secrets=SECRETS).settle()
    if world.names("Job"):
        world.launch()
    world.start().settle()
    world.writes.clear()
    return world


@pytest.mark.parametrize("sort", SORTS)
def test_every_sort_lives_on_without_its_roles(sort):
    """Whatever its own rules count on."""
    world = running_of(sort)
    before = world.counts()
    del world.job["spec"][world.framework.spec_field]
    world.edit().settle()
    assert made_or_ended(world) == []
    assert (world.status["state"], world.counts()) == ("Invalid", before)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("sort", SORTS)
class TestAboveTheLimitOfReplicas:
    """A running job is scaled to more pods than a job may have: no list has that length."""

    def above(self, sort):
        """Return such a job after the edit; one of its pods claims the index of the last pod."""
        world = running_of(sort)
        world.scale(HUGE)
        claims = copied(world.pod("mnist-worker-1"))
        claims["metadata"] |= {"name": f"mnist-worker-{HUGE - 1}", "uid": "claims"}
        claims["metadata"]["labels"] |= {names.REPLICA_INDEX: str(HUGE - 1)}
        claims["status"] = {"phase": "Running"}
        world.objects["Pod", claims["metadata"]["name"]] = claims
        return world

    def test_running_pods_stay_and_are_counted(self, sort):
        """The status contains the reason, and nothing is created or deleted."""
        world = self.above(sort)
        before = world.counts()
        world.settle()
        assert made_or_ended(world) == []
        assert world.status["state"] == "Invalid"
        assert "must be less than or equal to 10000 pods in all" in world.status["reason"]
        assert world.counts() == (before[0] + 1, 0, 0)

    def test_terminating_pods_are_evaluated_by_their_names(self, sort):
        """Whatever indexes pods claim, their number is the cost, and the status can be stored."""
        world = self.above(sort)
        claims = copied(world.pod(f"mnist-worker-{HUGE - 1}"))
        claims["metadata"] |= {"name": f"mnist-worker-{10**30}", "uid": "more"}
        world.objects["Pod", claims["metadata"]["name"]] = claims
        world.backend = gang.EMBEDDED
        world.terminate(*world.names()).settle()
        assert world.status.get("gang", {}).get("minMember", 0) < 2**32

    def test_deadline_and_ttl_end_the_job(self, sort):
        """It fails at its deadline and is deleted after its TTL; an MPIJob of v2beta1 stays."""
        world = self.above(sort)
        limits = {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 10}
        world.edit(runPolicy=limits).wait(3600)
        if world.names("Job"):
            # The deadline of a launcher that a batch Job makes is the batch Job's.
            world.close(end="Failed", reason="DeadlineExceeded")
        assert world.settle().status["state"] == "Failed"
        world.wait(3600).step()
        assert (world.job is None) is (sort != "MPIJob-v2beta1")


def test_an_invalid_job_that_never_ran_only_says_so():
    """Neither a timer nor a second write follows."""
    document = tfjob(Worker={"replicas": -1})
    world = World(document).settle()
    assert world.conditions == []
    assert (world.status["state"], world.status["observedGeneration"]) == ("Invalid", 1)
    assert world.decide() == []


def test_message_about_thousands_of_mistakes_is_cut():
    """The API server limits the size of a job with its status."""
    world = World(tfjob(Worker=1))
    world.job["spec"][ROLES] |= {f"k{number}": {} for number in range(5000)}
    assert len(world.settle().status["reason"]) == MAX_MESSAGE_CHARS


class TestBlocked:
    """Something that is not the job's own fault keeps it from being looked after."""

    def test_wanted_pods_of_a_blocked_job_are_not_replaced(self):
        """A failed pod stays, as it could not be created again; surplus is deleted."""
        world = running(restarts="OnFailure")
        world.context = NO_RIGHTS
        world.end("mnist-worker-0", 1).scale(1)
        world.writes.clear()
        world.settle()
        assert [action.name for action in made_or_ended(world)] == ["mnist-worker-1"] * 2
        assert world.pod("mnist-worker-0")["status"]["phase"] == "Failed"
        assert world.status["state"] == "Blocked"

    def test_nothing_goes_while_the_gang_scheduler_is_missing(self):
        """One has failed, and all are to begin anew: the others run until they can."""
        document = tfjob(Worker={"replicas": 2, "restartPolicy": "OnFailure"})
        document["metadata"]["annotations"] = {"muster.kubeflow.org/restart": "gang"}
        world = World(document, backend=gang.SCHEDULER_PLUGINS).run()
        world.context = Context(missing="its API is not served")
        world.end("mnist-worker-0", 1)
        world.writes.clear()
        world.settle()
        assert made_or_ended(world) == []
        world.context = Context()
        world.settle().reap().settle()
        assert world.names() == ["mnist-worker-0", "mnist-worker-1"]
        assert {world.pod(name).get("status") for name in world.names()} == {None}

    def test_it_ends_with_its_programs_or_by_suspension(self):
        """What was asked for is done as far as it may be."""
        world = running()
        world.context = NO_RIGHTS
        suspended = world.clone().edit(runPolicy={"suspend": True}).settle().reap()
        assert suspended.settle().names() == []
        world.end("mnist-worker-0").end("mnist-worker-1")
        assert world.settle().status["state"] == "Succeeded"


@pytest.mark.parametrize("minimum", [1, 2])
def test_gang_without_replicas_and_pods_has_one_status(minimum):
    """Its minimum is not alternately 0 and what the spec sets: each write is a reconcile."""
    policy = {"schedulingPolicy": {"minAvailable": minimum}}
    world = World(tfjob(Worker=1, policy=policy), backend=gang.EMBEDDED)
    world.give(placements={"mnist-worker-0": "n1"}).run().scale(0).lose("mnist-worker-0").settle()
    assert (world.status["state"], world.status["gang"]["minMember"]) == ("Invalid", 1)
