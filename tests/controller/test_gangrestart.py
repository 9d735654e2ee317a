# SPDX-License-Identifier: Apache-2.0
"""Gangs that restart as a whole when they lose a member."""

from dataclasses import replace

import pytest

from muster import gang
from muster.api import edge, names
from muster.api.status import Verdict
from muster.controller.model import Delete, DryRun, Patch, Refusal, SetStatus
from support.apiserver.memory import START, World, copied, tfjob, wanted

NODES = {f"mnist-worker-{i}": f"n{i}" for i in range(3)}
PLACED = Verdict("muster", "Placed", "mnist", min_member=3, placed=3)
LOST = "mnist-worker-2"


def running(*, restart="gang", policy=None, backend=gang.EMBEDDED):
    """Return the world of a gang of three workers that run."""
    job = tfjob(Worker=3, policy=policy, annotations={"muster.kubeflow.org/restart": restart})
    role = job["spec"]["tfReplicaSpecs"]["Worker"]
    role["restartPolicy"] = "OnFailure"
    # The template was copied from a pod.
    role["template"]["metadata"] = {"annotations": {names.GANG_HAD: "9"}}
    if backend.embedded:
        world = World(job, backend=backend, placements=NODES, verdict=PLACED)
        return world.run().give(placements={})
    world = World(job, backend=backend).settle()
    if backend.apis:
        world.objects["PodGroup", "mnist"]["status"] = {"phase": "Running"}
    return world.run()


@pytest.mark.parametrize(
    ("goes", "node"), [(World.lose, None), (World.lose, ""), (World.terminate, "n3")]
)
def test_peers_of_lost_member_stay_until_replacement_fits(goes, node):
    """A pod without a node is created for autoscalers. A drained member stays until its end."""
    world = goes(running(), LOST).give(placements={} if node is None else {LOST: node})
    assert world.deletes() == []


def test_peers_of_lost_member_restart_with_it():
    """All members are replaced once the lost member has a node, and no restart is counted."""
    world = running().lose(LOST).give(placements={LOST: "n3"})
    assert world.deletes() == ["mnist-worker-0", "mnist-worker-1"]
    assert world.creates() == []
    world.step()
    world.reap().give(placements=NODES).settle()
    assert len(world.names()) == 3
    assert "restarts" not in world.counts()
    assert any("restart because it lost members" in said.message for said in world.said)


def test_member_on_a_node_that_shuts_down_is_a_loss():
    """The gang restarts as a whole, but neither counted nor before all members fit."""
    world = running().end(LOST, None, reason="Terminated")
    world.step()
    assert world.deletes() == []
    assert world.give(placements={LOST: "n3"}).deletes() == ["mnist-worker-0", "mnist-worker-1"]
    world.step()
    assert "restarts" not in world.status["replicaStatuses"]["Worker"]
    assert "restartsInARow" not in world.status


@pytest.mark.parametrize(
    "job", [{"restart": "pod"}, {"policy": {"schedulingPolicy": {"minAvailable": 2}}}]
)
def test_lost_member_is_replaced_alone(job):
    """Without the annotation, or if the gang still has the members that it needs."""
    world = running(**job).lose(LOST).give(placements={LOST: "n3"})
    assert world.deletes() == []
    assert world.creates() == [LOST]


@pytest.mark.parametrize("backend", [gang.NONE, gang.VOLCANO])
def test_losses_within_ten_seconds_are_one_restart_without_the_embedded_scheduler(backend):
    """The peers run on without a replacement beside them, and a second loss delays nothing."""
    world, second = running(backend=backend), "mnist-worker-1"
    world.lose(LOST).settle().wait(9).lose(second).settle()
    assert world.names() == ["mnist-worker-0"]
    # The verdict of a gang scheduler tells what the gang had.
    assert (names.GANG_HAD in str(world.of("Pod"))) is (backend is gang.NONE)
    assert (world.deletes(), world.requeue) == ([], START + 10)
    world.wait(1).step()
    assert world.reap().settle().start().settle().names() == sorted(NODES)
    assert len([it for it in world.said if "it lost members" in it.message]) == 1


@pytest.mark.parametrize("backend", [gang.NONE, gang.VOLCANO])
def test_member_that_terminated_for_long_is_a_loss_without_the_embedded_scheduler(backend):
    """The status counts a pod less by then, which the gang still needs."""
    world = running(backend=backend).terminate(LOST).settle().wait(30)
    assert world.deletes() == []
    assert world.reap().deletes() == ["mnist-worker-0", "mnist-worker-1"]


def test_growth_of_gang_without_a_scheduler_restarts_nothing():
    """New members that do not run yet are none that the gang had."""
    world = running(backend=gang.NONE).scale(4).settle()
    world.lose("mnist-worker-3")
    assert (world.deletes(), world.creates()) == ([], ["mnist-worker-3"])
    world.run().lose("mnist-worker-3").settle()
    assert len(world.wait(10).deletes()) == 3


def test_restart_is_off_once_no_member_is_missing():
    """The next loss has ten seconds of its own."""
    world = running(backend=gang.NONE)
    lost = world.pod(LOST)
    world.lose(LOST).settle().wait(9)
    world.objects["Pod", LOST] = lost
    world.settle().wait(5).lose(LOST).settle()
    assert (world.deletes(), world.requeue) == ([], START + 24)


@pytest.mark.parametrize("least", [None, 4])
def test_members_that_the_gang_never_had_are_not_lost_to_the_next_process(least):
    """After an edit the group of another scheduler asks for more than the gang had."""
    world = running(backend=gang.VOLCANO)
    world = world.edit(runPolicy={"schedulingPolicy": {"minAvailable": least}} if least else {})
    world = (world if least else world.scale(5)).settle()
    world.losses = None
    world.objects.pop(("Pod", "mnist-worker-4"), None)
    assert world.settle().wait(10).deletes() == []


@pytest.mark.parametrize(
    ("policy", "edits"),
    [
        ({}, [{"Worker": 1, "PS": 4}]),
        ({"minAvailable": 5}, [{"Worker": 1}, {"Worker": 3}]),
        ({"minAvailable": 4}, [{"PS": 5}, {"Worker": 1}]),
    ],
    ids=["other", "back", "never there"],
)
@pytest.mark.parametrize("backend", [gang.NONE, gang.VOLCANO, gang.EMBEDDED])
def test_members_that_were_not_wanted_in_between_are_no_losses(backend, policy, edits):
    """A role that becomes smaller makes no members of another one, or of its own later, lost."""
    job = tfjob(
        PS=2,
        Worker=3,
        policy={"schedulingPolicy": policy},
        annotations={"muster.kubeflow.org/restart": "gang"},
    )
    world = World(job, backend=backend, placements=None, verdict=PLACED)
    if backend.embedded:
        world.give(placements=dict.fromkeys(wanted(world), "n1"))
    world.settle()
    if backend.apis:
        world.objects["PodGroup", "mnist"]["status"] = {"phase": "Running"}
    world.run()
    kept = {"mnist-ps-0", "mnist-ps-1", "mnist-worker-0"}
    for replicas in edits:
        roles = world.job["spec"]["tfReplicaSpecs"]
        changed = {type_: {**roles[type_], "replicas": n} for type_, n in replicas.items()}
        world.edit(tfReplicaSpecs={**roles, **changed}).settle().reap()
        if backend.embedded and replicas is edits[-1]:
            world.give(placements=dict.fromkeys(wanted(world), "n1"))
        assert kept.isdisjoint(world.wait(10).deletes())


@pytest.mark.parametrize("backend", [gang.NONE, gang.VOLCANO])
def test_scale_down_that_is_undone_is_no_loss_to_the_next_process(backend):
    """The operator is killed between any two writes, and the job is edited before the next one."""
    world = running(backend=backend).scale(2)
    writes = [it for it in world.decide() if isinstance(it, SetStatus | Delete | Patch)]
    for done in range(len(writes) + 1):
        twin = world.clone()
        for action in writes[:done]:
            twin.apply(action)
        twin.losses = None
        assert "mnist-worker-0" not in twin.reap().scale(3).settle().wait(10).deletes()


@pytest.mark.parametrize("failed", ["", "Running", "Placed"])
@pytest.mark.parametrize("backend", [gang.NONE, gang.VOLCANO, gang.EMBEDDED])
def test_gang_does_not_restart_while_the_server_refuses_its_pods(backend, failed):
    """After a loss or a failure, which is counted, the others stay for as long."""
    world = running(backend=backend)
    if backend.apis and failed:
        world.job["status"]["gang"]["state"] = failed
    refusal = Refusal("Pod", LOST, "Forbidden", "no pods today", world.now + 30)
    world.give(refusal=refusal, **({"placements": {LOST: "n3"}} if backend.embedded else {}))
    (world.end(LOST, 137) if failed else world.lose(LOST)).settle().wait(10).step()
    assert (world.deletes(), world.creates(), world.tried) == ([], [], [])
    assert ("restarts" in world.status["replicaStatuses"]["Worker"]) == bool(failed)
    assert world.requeue == START + 30
    world.objects.pop(("Pod", LOST), None)
    assert world.wait(20).deletes() == ["mnist-worker-0", "mnist-worker-1"]
    assert world.creates() == []


def test_gang_that_lost_members_waits_for_the_api_of_its_scheduler():
    """The next reconcile is not due at a time that is over: a dry run precedes each restart."""
    world = running(backend=gang.VOLCANO).lose(LOST).settle().wait(10)
    world.context = replace(world.context, missing="the API is not served")
    world.step()
    assert (world.deletes(), world.requeue) == ([], None)


@pytest.mark.parametrize("exits", [False, True])
def test_admission_is_asked_about_each_role_before_peers_are_deleted(exits):
    """One role may have lost no member. A pod that has ended uses no quota."""
    job = tfjob(PS=1, Worker=2, annotations={"muster.kubeflow.org/restart": "gang"})
    job["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
    world, ended = World(job).run(), "mnist-worker-1"
    (world.end(ended, 137) if exits else world.lose(ended)).step()
    done = world.wait(10).step()
    first = next(i for i, it in enumerate(done) if isinstance(it, Delete))
    assert sum(isinstance(it, DryRun) for it in done[:first]) == 2
    assert world.tried == ["mnist-ps-0", ended]


@pytest.mark.parametrize("terminates", [True, False])
def test_next_process_knows_what_the_gang_had_without_a_scheduler(terminates):
    """The status counts the pods that are left."""
    world = running(backend=gang.NONE)
    (world.terminate if terminates else world.lose)(LOST)
    world.settle().wait(5)
    assert world.counts()[0] == 2
    world.losses = None
    world.reap().settle().wait(10)
    assert world.deletes() == ["mnist-worker-0", "mnist-worker-1"]
    world.step()
    assert sorted(NODES) == world.reap().settle().names()
    assert names.GANG_HAD not in str(world.of("Pod"))


def test_loss_before_the_next_process_began_restarts_the_gang():
    """The status still counts all pods; that it no longer does so ends no loss."""
    world = running(backend=gang.NONE).lose(LOST)
    world.losses = None
    world.observe()
    world.job["status"]["replicaStatuses"]["Worker"]["active"] = 2
    world.observe()
    assert world.losses.restart_at == START + 10
    assert len(world.settle().wait(10).deletes()) == 2


def test_loss_during_a_restart_has_ten_seconds_of_its_own():
    """The pods of the new run have started in part."""
    world = running(backend=gang.VOLCANO).lose(LOST).settle().wait(10)
    world.step()
    world.reap().settle().start("mnist-worker-0", "mnist-worker-1").settle()
    world.wait(3).lose("mnist-worker-1").settle()
    assert world.deletes() == []
    assert world.wait(10).deletes() == ["mnist-worker-0"]


def test_member_that_is_lost_before_the_gang_runs_again_is_replaced_alone():
    """A counted restart replaced all pods, which have not run together since."""
    world = running(backend=gang.NONE).end(LOST, 137).settle()
    world.reap().settle().start("mnist-worker-0", "mnist-worker-1").settle()
    world.lose("mnist-worker-1").wait(20)
    assert (world.deletes(), world.creates()) == ([], ["mnist-worker-1"])


class Away(World):
    """A world in which the node of one pod may be unreachable."""

    away, lost = "", False

    def observe(self):
        """Return what one pass sees."""
        seen = super().observe()
        pods = (replace(p, unreachable=True, lost=self.lost) if p.name == self.away else p
                for p in seen.pods)  # fmt: skip
        return replace(seen, pods=tuple(pods))


@pytest.mark.parametrize("member", ["unreachable", "outage", "terminating"])
def test_no_replacement_is_created_beside_a_needed_member_that_may_still_run(member):
    """That member returns to its run, or is a loss itself: then the whole gang restarts."""
    began, other = running(backend=gang.VOLCANO), "mnist-worker-1"
    world = Away(began.job, backend=gang.VOLCANO)
    world.objects = began.objects
    for pod in world.of("Pod"):
        pod["spec"]["nodeName"] = "n1"
    world.lose(LOST)
    if member == "terminating":
        world.terminate(other)
    else:
        world.away, world.lost = other, member == "unreachable"
    world.settle()
    assert world.names() == ["mnist-worker-0", other]
    world.away = ""
    world.reap()
    world.step()
    assert (world.wait(10).deletes(), world.creates()) == (world.names(), [])


def test_peers_stay_while_a_member_may_run_on_an_unreachable_node():
    """Though there is a node for the lost member, and the other one is not needed."""
    began = running(policy={"schedulingPolicy": {"minAvailable": 2}})
    world = Away(began.job, backend=gang.EMBEDDED, placements={LOST: "n3"}, verdict=PLACED)
    world.objects, world.away, world.lost = began.objects, "mnist-worker-1", True
    assert world.lose(LOST).deletes() == []


def test_losses_before_the_restart_are_one_restart():
    """Members of a drained node terminate one after the other; their peers restart once."""
    world, drained = running(), "mnist-worker-1"
    assert world.lose(LOST).terminate(drained).give(placements={LOST: "n3"}).deletes() == []
    assert world.lose(drained).deletes() == []
    world.give(placements={LOST: "n3", drained: "n4"}).step()
    world.reap().give(placements=NODES)
    for _ in NODES:
        world.settle().start()
    removed = [it.name for it in world.writes if isinstance(it, Delete) and it.kind == "Pod"]
    assert removed == ["mnist-worker-0"]
    assert len([it for it in world.said if "it lost members" in it.message]) == 1
    assert len(world.names()) == len(NODES)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_members_that_start_are_not_restarted(phase):
    """Only running peers are replaced; pods that did not start yet have nothing to lose."""
    world = running().lose(LOST)
    for name in ("mnist-worker-0", "mnist-worker-1"):
        world.pod(name)["status"]["phase"] = phase
    world.extra["placements"] = {LOST: "n3"}
    assert len(world.deletes()) == (2 if phase == "Running" else 0)


@pytest.mark.parametrize("counted", [True, False])
def test_member_that_starts_late_after_a_restart_restarts_no_peers(counted):
    """The gang has not run as a whole since, so that it lost no member."""
    world = running().give(verdict=replace(PLACED, state="Degraded", placed=0))
    world = world.end(LOST, 137) if counted else world.lose(LOST).give(placements={LOST: "n3"})
    # Another process takes it for admitted, and keeps its nodes.
    found = world.settle().status["gang"]
    assert (found["state"], found["reason"]) == ("Placed", "NamesInUse")
    world.reap().give(placements={n: node for n, node in NODES.items() if n != LOST}).run()
    world.give(placements=NODES)
    assert (world.deletes(), world.creates()) == ([], [LOST])
    assert len(world.run().lose(LOST).give(placements={LOST: "n3"}).deletes()) == 2


@pytest.mark.parametrize("stored", [True, False])
def test_members_of_the_next_run_are_no_peers_of_those_that_start_late(stored):
    """Also if the status that tells of the restart was refused, as somebody edited the job."""
    world = running().give(verdict=replace(PLACED, state="Degraded", placed=0))
    world.lose(LOST).give(placements={LOST: "n3"})
    before = copied(world.job["status"])
    world.step()
    if not stored:
        world.job["status"] = before
    world.step()
    world.reap().run().give(placements={"mnist-worker-0": "n0"}).run()
    assert world.names() == ["mnist-worker-0", LOST]
    world.give(placements=NODES)
    assert (world.deletes(), world.creates()) == ([], ["mnist-worker-1"])


def test_peers_run_on_if_the_annotation_is_removed_before_they_restart():
    """They count as other pods do, and putting it back restarts nothing."""
    world = running().end(LOST, 137)
    world.step()
    restart = world.job["metadata"].pop("annotations")
    world.step()
    assert world.counts() == (2, 0, 1)
    world.settle().job["metadata"]["annotations"] = restart
    assert not {"mnist-worker-0", "mnist-worker-1"} & {*world.deletes()}


def test_rejected_successor_restarts_no_peers():
    """A pod that its node rejected never ran, so that its peers lost nothing."""
    world = running().end(LOST, None, reason="OutOfcpu").give(placements={LOST: "n3"})
    assert world.deletes() == [LOST]
    assert world.creates() == [LOST]


@pytest.mark.parametrize("restart", ["gang", "pod"])
@pytest.mark.parametrize("state", ["state", "lastState"])
def test_member_that_ran_and_is_rejected_by_a_restarted_kubelet_is_a_loss(restart, state):
    """The peers restart with the member if the job says so; no restart is counted."""
    world = running(restart=restart).end(LOST, None, reason="OutOfcpu")
    ran = {state: {"terminated": {"exitCode": 143, "startedAt": edge.format_time(START)}}}
    world.pod(LOST)["status"]["containerStatuses"] = [{"name": "tensorflow", **ran}]
    world.step()
    assert world.names() == sorted(NODES.keys() - {LOST})
    world.give(placements={LOST: "n3"})
    peers = ["mnist-worker-0", "mnist-worker-1"]
    replaced = (peers, []) if restart == "gang" else ([], [LOST])
    assert (world.deletes(), world.creates()) == replaced
    world.step()
    assert "restarts" not in world.status["replicaStatuses"]["Worker"]


@pytest.mark.parametrize("done", range(1, 5))
@pytest.mark.parametrize("reaped", [True, False], ids=["removed", "terminating"])
def test_gang_restarts_whole_after_a_crash_between_two_deletions(done, reaped):
    """No peer of the run before stays beside members of the next run."""
    world = running()
    before = {pod["metadata"]["uid"] for pod in world.of("Pod")}
    world.lose(LOST).give(placements={LOST: "n3"}).step(upto=done)
    for round_ in range(4):
        if reaped or round_:
            world.reap()
        world.extra["placements"] = dict.fromkeys(NODES.keys() - set(world.names()), "n4")
        world.settle().start()
    assert len(world.names()) == len(NODES)
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in world.of("Pod"))
