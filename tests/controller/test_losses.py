# SPDX-License-Identifier: Apache-2.0
"""Failures that are part of a loss, of gangs that restart as a whole."""

from dataclasses import replace

import pytest

from muster import gang
from muster.api.status import Verdict
from support.apiserver.memory import World, of_kind

NAMES = tuple(f"mnist-worker-{i}" for i in range(4))
LOST = NAMES[3]
RUNS = Verdict("muster", "Running", "mnist", min_member=4, placed=4, ready=4)
GANG = {"muster.kubeflow.org/restart": "gang"}
NODES = {name: f"n{name[-1]}" for name in (*NAMES, "mnist-launcher")}


def running(
    *, kind="TFJob", restart="gang", of="ExitCode", backend=gang.EMBEDDED, policy=None, **roles
):
    """Return the world of a gang whose four pods run together."""
    annotations = {"muster.kubeflow.org/restart": restart}
    roles = roles or {"Worker": {"replicas": 4, "restartPolicy": of}}
    world = World(
        of_kind(kind, policy=policy, annotations=annotations, **roles),
        backend=backend,
        placements=NODES,
        verdict=RUNS,
    ).settle()
    if backend.apis and not backend.embedded:
        world.objects["PodGroup", "mnist"]["status"] = {"phase": "Running"}
    world.run()
    for pod in world.of("Pod"):
        pod["spec"]["nodeName"] = f"n{pod['metadata']['name'][-1]}"
    world.observe()
    return world.give(placements={})


def ends(world, name, code=1):
    """Let a pod's program fail."""
    world.end(name, code)
    return world


def drain(world, name=LOST):
    """Let another controller delete a pod, which terminates."""
    world.terminate(name)
    return world


def restarted(world):
    """Return how the job ended and how many restarts it counts."""
    world.step()
    world.step()
    conditions = [c.partition(" ")[0] for c in world.conditions if c.endswith(" T")]
    counts = world.status["replicaStatuses"]
    return "Failed" in conditions, sum(each.get("restarts", 0) for each in counts.values())


def by_kubelet(world, reason):
    """Let the kubelet end a pod: it evicts the pod, or its node shuts down."""
    world.end(LOST, None, reason=reason)
    world.pod(LOST)["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True"}]
    return world


LOSSES = {
    "drained": drain,
    "removed": lambda world: world.lose(LOST),
    "evicted": lambda world: by_kubelet(world, "Evicted"),
    "shut down": lambda world: by_kubelet(world, "Terminated"),
}
CASES = [
    (loss, policy)
    for loss in LOSSES
    for policy in ("ExitCode", "OnFailure", "Always", "Never")
    # A pod that a kubelet ends under Never is not replaced: the job fails with it.
    if policy != "Never" or loss in ("drained", "removed")
]


@pytest.mark.parametrize("code", [1, 134, 143])
@pytest.mark.parametrize(("loss", "policy"), CASES)
def test_peers_that_fail_after_a_loss_are_part_of_it(loss, policy, code):
    """They are neither counted nor permanent, and start no back-off."""
    world = LOSSES[loss](running(of=policy))
    world.step()
    world.wait(2)
    for name in NAMES[:3]:
        ends(world, name, code)
    assert restarted(world) == (False, 0)
    assert "restartsInARow" not in world.status
    assert "firstFailure" not in world.status
    assert set(world.names()) <= {LOST}


@pytest.mark.parametrize(
    ("policy", "restart"), [("ExitCode", "gang"), ("Never", "gang"), ("ExitCode", "pod")]
)
def test_the_same_failure_without_a_loss_of_the_gang_fails_the_job(policy, restart):
    """Without the annotation pods are replaced one by one."""
    world = running(of=policy, restart=restart)
    if restart == "pod":
        drain(world).step()
    assert restarted(ends(world.wait(2), NAMES[0])) == (True, 0)


def test_failure_that_is_observed_before_the_loss_counts():
    """It is a restart of its own."""
    world = ends(running(of="OnFailure"), NAMES[0])
    world.observe()
    assert restarted(drain(world)) == (False, 1)


def test_failure_of_a_pod_that_was_created_after_the_loss_counts():
    """A crash loop needs another loss each time, though a member is still missing."""
    world = drain(running())
    world.step()
    for name in NAMES[:3]:
        ends(world, name)
    world.step()
    world.reap().give(placements={name: NODES[name] for name in NAMES[:3]}).step()
    assert world.names() == list(NAMES[:3])
    world.start().step()
    assert restarted(ends(world, NAMES[0])) == (True, 0)


def test_second_loss_excuses_pods_that_were_created_after_the_first():
    """Eight seconds later a replacement is drained, and its new peers fail."""
    world = drain(running())
    world.step()
    world.step()
    world.lose(*NAMES).give(placements=NODES).step()
    world.start().step()
    drain(world.wait(8), NAMES[1]).step()
    assert restarted(ends(world.wait(1), NAMES[0])) == (False, 0)


@pytest.mark.parametrize(
    ("lost", "counts"), [((3,), 1), ((2, 3), 0)], ids=["surplus", "below the minimum"]
)
def test_loss_excuses_if_the_gang_needs_the_member(lost, counts):
    """Three of four pods go on without the fourth."""
    world = running(of="OnFailure", policy={"schedulingPolicy": {"minAvailable": 3}})
    for index in lost:
        drain(world, NAMES[index])
    world.step()
    assert restarted(ends(world.wait(2), NAMES[0])) == (False, counts)


@pytest.mark.parametrize("backend", [gang.NONE, gang.VOLCANO, gang.EMBEDDED])
@pytest.mark.parametrize(
    "happens",
    [
        lambda world: world.scale(3).settle().reap(),
        lambda world: world.scale(5).settle(),
        lambda world: world.end(LOST, 0).settle().lose(LOST).settle(),
    ],
    ids=["surplus", "growth", "succeeded"],
)
def test_failure_counts_if_the_gang_lost_no_member(happens, backend):
    """Users delete surplus, new members wait for a node, and completed indexes stay completed."""
    world = happens(running(of="OnFailure", backend=backend))
    assert restarted(ends(world.wait(1), NAMES[0])) == (False, 1)


def test_peer_that_succeeds_after_a_loss_has_succeeded():
    """Only failures are part of it."""
    world = drain(running())
    world.step()
    world.end(NAMES[1], 0).step()
    assert world.counts() == (2, 1, 0)


def test_edits_before_the_initial_start_limit_no_gang():
    """The gang starts with all members that the job wants by then."""
    world = World(of_kind("TFJob", annotations=GANG, Worker={"replicas": 4}), placements=NODES)
    world.settle().scale(2).settle().scale(4)
    assert not world.observe().losses.kept


@pytest.mark.parametrize("ran", [False, True])
def test_initial_start_excuses_nothing(ran):
    """The members have to have run together, which the status shows late."""
    world = running()
    world.job["status"]["gang"] |= {"state": "Placed", "ready": 3}
    world.give(verdict=replace(RUNS, state="Placed"))
    if not ran:
        world.losses = None
        world.pod(LOST)["status"] = {"phase": "Pending"}
    world.observe()
    drain(world).observe()
    assert restarted(ends(world.wait(1), NAMES[0])) == (not ran, 0)


def test_deadline_ends_the_job_all_the_same():
    """A loss excuses no time."""
    world = drain(running(policy={"activeDeadlineSeconds": 60}))
    world.step()
    assert restarted(ends(world.wait(61), NAMES[0]))[0]


@pytest.mark.parametrize("returns", [True, False])
def test_member_of_an_unreachable_node_excuses_its_peers(returns):
    """They are part of the loss also if the node returns, and the gang waits for it."""
    world = running()
    world.silent["n3"] = world.now
    world.step()
    assert restarted(ends(world.wait(2), NAMES[0])) == (False, 0)
    assert world.names() == list(NAMES[1:])
    ends(world, NAMES[1])
    world.observe()
    if returns:
        del world.silent["n3"]
    assert restarted(world) == (False, 0)
    assert world.names() == list(NAMES[2:])
    assert world.status["gang"]["state"] == "Degraded"


def test_mpi_launcher_that_fails_since_a_worker_was_lost_is_part_of_it():
    """It belongs to the gang: mpirun ends with the node of a rank."""
    template = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}
    role = {"replicas": 1, "restartPolicy": "ExitCode", "template": template}
    world = running(kind="MPIJob", Launcher=role, Worker={**role, "replicas": 3})
    drain(world, NAMES[2]).step()
    assert restarted(ends(world.wait(2), "mnist-launcher")) == (False, 0)
    assert restarted(ends(running(kind="MPIJob", Launcher=role, Worker=role), "mnist-launcher"))[0]


# An operator that was restarted, or became the leader.


def takes_over(world):
    """Let another process go on, which has observed nothing."""
    world.losses = None
    return world


@pytest.mark.parametrize("loss", LOSSES)
def test_next_leader_excuses_failures_that_it_finds_with_a_loss(loss):
    """It does not know the order in which they happened."""
    world = ends(LOSSES[loss](running()), NAMES[0])
    assert restarted(takes_over(world)) == (False, 0)


@pytest.mark.parametrize("upto", range(6))
def test_restart_goes_on_under_the_next_leader(upto):
    """Wherever the last process stopped, peers stay excused."""
    world = drain(running())
    world.step()
    for name in NAMES[:2]:
        ends(world.wait(1), name)
    world.step(upto=upto)
    takes_over(world).step()
    ends(world.wait(1), NAMES[2])
    assert restarted(takes_over(world)) == (False, 0)


def test_failure_that_the_status_counts_came_before_the_next_leader():
    """A failed dynamic worker stays, and is no part of a loss that follows."""
    role = {"replicas": 4, "restartPolicy": "Never"}
    world = running(Worker=role)
    world.job["spec"]["enableDynamicWorker"] = True
    ends(world, NAMES[0]).step()
    world.lose(NAMES[1], LOST)
    takes_over(world).step()
    assert NAMES[0] in world.names()


# Gangs that are evicted as a whole.


@pytest.mark.parametrize("process", ["same", "next"])
def test_pod_that_fails_while_its_gang_is_evicted_counts_nowhere(process):
    """The eviction of a thousand pods takes longer than the exit of their peers."""
    world = running().give(verdict=replace(RUNS, state="Released", reason="Preempted"))
    world.step()
    if process == "next":
        takes_over(world)
    drain(world).observe()
    assert restarted(ends(world.wait(1), NAMES[0])) == (False, 0)


def test_counted_restart_is_no_loss():
    """The first failure restarts the gang, and the failures of its next run count."""
    world = ends(running(of="OnFailure"), NAMES[0])
    assert restarted(world) == (False, 1)
    world.reap().wait(60).give(placements=NODES, verdict=None).run()
    assert restarted(ends(world, NAMES[0])) == (False, 2)


@pytest.mark.parametrize("backend", [gang.NONE, gang.BACKENDS["volcano"]], ids=["none", "volcano"])
def test_peers_are_excused_under_other_gang_schedulers(backend):
    """The rule needs no allocator; the pods of the next run count."""
    world = drain(running(backend=backend))
    world.step()
    assert restarted(ends(world.wait(2), NAMES[0])) == (False, 0)
    world.reap().settle()
    world.reap().settle()
    assert world.names() == list(NAMES)
    world.start().settle()
    assert restarted(ends(world, NAMES[0])) == (True, 0)


def test_gang_that_is_evicted_after_counted_restarts_has_no_backoff():
    """A loss is no failure: its restart does not wait for the pause of the failures before."""
    world = running(of="OnFailure")
    for _ in range(3):
        ends(world, NAMES[0], 137).step()
        world.settle().reap().wait(300)
        world.give(placements=NODES, verdict=None).settle().start().give(verdict=RUNS).settle()
    assert world.status["restartsInARow"] == 3
    world.give(placements={}, verdict=replace(RUNS, state="Released", ready=0)).settle()
    world.lose(*NAMES).settle()
    assert world.conditions[-1] == "Restarting T"
    assert world.give(placements=NODES, verdict=None).creates() == list(NAMES)
