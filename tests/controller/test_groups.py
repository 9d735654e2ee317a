# SPDX-License-Identifier: Apache-2.0
"""The gang: its group object, the allocator's word, refusals of the server."""

from dataclasses import replace

import pytest

from muster import gang
from muster.api.edge import format_time
from muster.api.status import Verdict
from muster.controller.model import Context, Create, Delete, Patch, Refusal, SetStatus
from support.apiserver.memory import START, World, tfjob, unbound
from support.builders.mpijobs import SECRETS, mpijob, role
from support.builders.objects import make_template

FOUR = [f"mnist-worker-{i}" for i in range(4)]
NODES = {"mnist-worker-0": "n0", "mnist-worker-1": "n1"}
WAITS = Verdict(
    scheduler="muster",
    state="Waiting",
    pod_group="mnist",
    min_member=2,
    reason="NotEnoughResources",
    message="2/2 tasks in gang unschedulable: 0/1 nodes are available, 1 insufficient cpu",
    summary="0/2 placed: 1 node lacks cpu",
    position=3,
    eta=START + 100.5,
    shortage={"cpu": "2"},
    blocked_by=("job team/big",),
)
PLACED = Verdict("muster", "Placed", "mnist", min_member=2, placed=2)
RUNS = {
    "scheduler": "muster",
    "podGroup": "mnist",
    "state": "Running",
    "minMember": 2,
    "placed": 2,
    "ready": 2,
}
LACKS = {
    "reason": "NotEnoughResources",
    "position": 3,
    "eta": "2023-11-14T22:15:00Z",
    "shortage": {"cpu": "2"},
    "blockedBy": ["job team/big"],
}


def embedded(*, document=None, **observed):
    """Return a world with the allocator inside."""
    return World(document or tfjob(Worker=2), backend=gang.EMBEDDED, **observed)


def running():
    """Return a world whose gang of two runs."""
    return embedded(placements=NODES, verdict=PLACED).run()


def grown():
    """Return a world whose gang of two runs, and of which four are wanted that do not fit."""
    world = running().scale(4).give(placements={}, verdict=WAITS)
    return world.settle()


def test_a_job_of_one_pod_has_a_group_too():
    """Without one it would wait for ever where a scheduler goes by groups (U12)."""
    for backend in (gang.EMBEDDED, gang.SCHEDULER_PLUGINS, gang.VOLCANO):
        world = World(tfjob(Worker=1), backend=backend, verdict=WAITS).settle()
        (group,) = world.of("PodGroup")
        assert group["spec"]["minMember"] == 1


class TestFirstWord:
    """The first status of a job waits a moment for the allocator."""

    def test_it_is_held_back_for_ten_seconds(self):
        """Neither group nor status is written at once; a timer ends the wait."""
        world = embedded()
        world.step()
        assert not world.names("PodGroup")
        assert not world.status
        assert world.requeue == START + 10
        world.now = START + 10
        world.settle()
        assert world.names("PodGroup") == ["mnist"]
        assert world.conditions == ["Created T"]

    def test_the_group_comes_after_the_pods(self):
        """The allocator inside needs none to place them; every other scheduler does."""
        kinds = {}
        for backend in (gang.EMBEDDED, gang.SCHEDULER_PLUGINS):
            world = World(tfjob(Worker=2), backend=backend)
            world.give(verdict=WAITS, placements=unbound(world)).step()
            made = [w.doc["kind"] for w in world.writes if isinstance(w, Create)]
            kinds[backend.name] = list(dict.fromkeys(made))
        assert kinds[gang.EMBEDDED.name] == ["Pod", "PodGroup"]
        assert kinds[gang.SCHEDULER_PLUGINS.name] == ["PodGroup", "Pod", "Service"]

    def test_it_is_written_once_with_the_verdict(self):
        """Created and the verdict in one write."""
        world = embedded().settle().give(verdict=WAITS, placements={}).settle()
        assert len([w for w in world.writes if isinstance(w, SetStatus)]) == 1
        assert world.status["state"] == "Queued"


class TestVerdict:
    """What `status.gang` says along the way."""

    def test_waiting(self):
        """The allocator's word, field by field, and one event for the reason."""
        world = embedded(verdict=WAITS, placements={}).settle()
        assert world.status["gang"] == {
            **RUNS,
            **LACKS,
            "state": "Waiting",
            "placed": 0,
            "ready": 0,
            "message": WAITS.message,
            "summary": WAITS.summary,
            "since": "2023-11-14T22:13:20Z",
        }
        assert world.reasons().count("Unschedulable") == 1
        assert not world.names()

    def test_placed_then_running(self):
        """Placed while the pods start, running when enough of them run."""
        world = embedded(verdict=PLACED, placements=NODES).settle()
        assert world.status["gang"]["state"] == "Placed"
        assert world.status["state"] == "Created"
        world.start("mnist-worker-0").settle()
        assert world.status["gang"]["state"] == "Placed"
        world.start().settle()
        admitted = {"admissionTime": format_time(START)}
        assert world.status["gang"] == {**RUNS, **admitted, "summary": "2/2 running"}

    def test_a_running_gang_that_is_to_grow(self):
        """It runs, says that more wait, and why; the group asks for all of them."""
        world = grown()
        assert world.status["gang"] | {"since": ""} == {
            **RUNS,
            **LACKS,
            "message": f"2 more pod(s) wait: {WAITS.message}",
            "summary": "2/4 running, 2 more wait",
            "since": "",
            "admissionTime": format_time(START),
        }
        assert world.reasons().count("Unschedulable") == 1
        assert world.objects["PodGroup", "mnist"]["spec"]["minMember"] == 4
        told = world.status["gang"]
        world.give(placements=None, verdict=None).settle()
        assert world.status["gang"] == told
        world.give(placements={}, verdict=WAITS).lose("mnist-worker-1").settle()
        assert world.status["gang"]["state"] == "Degraded"
        assert world.status["gang"]["minMember"] == 2

    @pytest.mark.parametrize("backend", [gang.SCHEDULER_PLUGINS, gang.VOLCANO, gang.KUBE_BATCH])
    def test_growth_under_another_scheduler_breaks_no_running_gang(self, backend):
        """The gang is degraded only without members that it had, whatever its group shows."""
        world = World(tfjob(Worker=2), backend=backend).settle()
        group = world.objects["PodGroup", "mnist"]
        group["status"] = {"phase": "Running"}
        world.settle().start().settle().scale(4).settle()
        said = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}
        for phase in ("Running", "Unknown", "Pending"):
            group["status"] = {"phase": phase, "conditions": [said]}
            told = world.settle().status["gang"]
            assert (told["state"], told["minMember"]) == ("Running", 2)
        told = world.lose("mnist-worker-1").settle().status["gang"]
        assert (told["state"], told["minMember"]) == ("Degraded", 2)

    def test_minimum_above_the_size_of_a_running_gang_lets_no_pod_wait(self):
        """All of its pods run, and the message is that of the verdict."""
        world = embedded(verdict=PLACED, placements=NODES).settle().start().settle()
        text = "there are 2 pods, minMember is 3"
        for state, message in ("Running", text), ("Degraded", "unschedulable"):
            found = replace(WAITS, state=state, reason="NotEnoughTasks", message=message)
            world.job["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 3}}
            told = world.give(placements={}, verdict=found).settle().status["gang"]
            assert (told["state"], told["message"]) == ("Running", text)
            world.job["status"]["gang"]["minMember"] = 3
        assert told["summary"] == "2/2 running"
        assert "Unschedulable" not in world.reasons()

    def test_a_gang_that_has_grown(self):
        """Once all run it is the larger gang."""
        world = grown()
        world.give(placements=dict.fromkeys(FOUR, "n1"), verdict=PLACED).settle()
        assert world.status["gang"]["summary"] == "2/4 running, 2 more wait"
        assert world.status["gang"]["placed"] == 4
        world.start().settle()
        assert world.status["gang"] == {
            **RUNS,
            "minMember": 4,
            "placed": 4,
            "ready": 4,
            "summary": "4/4 running",
            "admissionTime": format_time(START),
        }

    @pytest.mark.parametrize(("on_nodes", "running"), [(2, 2), (3, 2), (3, 3)])
    def test_placed_members_of_a_running_gang_are_those_on_nodes(self, on_nodes, running):
        """Members above the minimum that wait for a node are not counted."""
        policy = {"schedulingPolicy": {"minAvailable": 2}}
        given = dict.fromkeys(FOUR[:on_nodes], "n1")
        document = tfjob(Worker=4, policy=policy)
        world = embedded(document=document, placements=given, verdict=PLACED)
        world.step()
        for name in FOUR[:running]:
            world.start(name)
        gang = world.settle().status["gang"]
        assert (gang["state"], gang["placed"], gang["minMember"]) == ("Running", on_nodes, 2)
        assert gang["summary"] == f"{running}/4 running"

    @pytest.mark.parametrize("runs", [True, False], ids=["running", "placed"])
    def test_growth_that_is_refused(self, runs):
        """What there is stays, whether it runs by now or has only its nodes."""
        world = running() if runs else embedded(verdict=PLACED, placements=NODES).settle()
        world.scale(4)
        quota = "pods forbidden: exceeded quota"
        refusal = Refusal("Pod", "mnist-worker-2", "Forbidden", quota, world.now + 60)
        world.give(placements={}, verdict=WAITS, refusal=refusal).settle()
        assert world.names() == list(NODES)
        gang = world.status["gang"]
        assert gang["state"] == ("Running" if runs else "Placed")
        assert (gang["reason"], gang["minMember"]) == ("ExceedsResourceQuota", 2)

    def test_a_member_that_takes_its_time_to_end(self):
        """The gang runs until it has ended, and says so."""
        world = running()
        metadata = world.pod("mnist-worker-1")["metadata"]
        metadata["deletionTimestamp"] = "2023-11-14T22:13:20Z"
        world.settle()
        assert world.status["gang"]["state"] == "Running"
        assert world.status["gang"]["summary"] == "1/2 running, 1 ending"
        world.lose("mnist-worker-1").give(placements={}).settle()
        assert world.status["gang"]["state"] == "Degraded"

    def test_gang_whose_running_members_all_terminate_has_run(self):
        """Its state is Degraded, and a refused replacement costs no other replacement."""
        world = running().lose("mnist-worker-1").settle().terminate("mnist-worker-0").settle()
        assert world.status["gang"]["state"] == "Degraded"
        world.start("mnist-worker-1").settle().lose("mnist-worker-0")
        world.give(refusal=refusal(until=START + 5)).settle()
        assert world.names() == ["mnist-worker-1"]
        assert "deletionTimestamp" not in world.pod("mnist-worker-1")["metadata"]

    def test_the_end_is_the_end_of_the_gang(self):
        """A finished job has no gang any more, and nobody brings its verdict back."""
        world = running().end("mnist-worker-0").settle()
        assert "gang" not in world.status
        world.give(verdict=WAITS).settle()
        assert "gang" not in world.status

    def test_the_missing_scheduler(self):
        """No pod, no group; the verdict names the cure; all goes on when the API is there."""
        world = World(tfjob(Worker=2), backend=gang.VOLCANO, context=Context(missing="Get it."))
        world.settle()
        assert not world.objects
        assert world.status["gang"]["reason"] == "GangSchedulerMissing"
        assert world.status["gang"]["message"] == "Get it."
        assert world.status["state"] == "Queued"
        world.context = Context()
        assert world.settle().names("PodGroup") == ["mnist"]


class TestGroup:
    """The group object."""

    def test_it_is_patched_on_a_difference_only(self):
        """Lowering minAvailable patches minMember and nothing else; then silence (M3)."""
        policy = {"schedulingPolicy": {"minAvailable": 10}}
        world = World(tfjob(policy=policy, Worker=2), backend=gang.SCHEDULER_PLUGINS).settle()
        world.edit(runPolicy={"schedulingPolicy": {"minAvailable": 1}})
        (patch,) = [a for a in world.step() if isinstance(a, Patch)]
        assert patch.body == {"spec": {"minMember": 1}}
        assert (patch.kind, patch.name) == ("PodGroup", "mnist")
        assert not [a for a in world.step() if isinstance(a, Patch)]

    def test_it_is_created_again_when_it_is_missing(self):
        """Somebody deleted it: the next pass has it back. Without gangs it is deleted."""
        world = World(tfjob(Worker=2), backend=gang.SCHEDULER_PLUGINS).settle()
        del world.objects["PodGroup", "mnist"]
        assert world.settle().names("PodGroup") == ["mnist"]
        world.backend = gang.NONE
        assert not world.settle().names("PodGroup")

    @pytest.mark.parametrize("state", ["Waiting", "Reserved", "Released"])
    def test_verdict_of_the_backend_before_is_kept_for_admitted_gangs_only(self, state):
        """A position in another queue, or a release, means nothing to the next scheduler."""
        waits, runs = embedded(verdict=replace(WAITS, state=state), placements={}), running()
        for world, found in (waits.settle(), None), (runs, "Running"):
            world.backend = gang.SCHEDULER_PLUGINS
            world.give(verdict=None, placements=None).settle()
            assert world.status.get("gang", {}).get("state") == found


class TestForeignScheduler:
    """Templates that name a scheduler."""

    def role(self, scheduler):
        """Return a worker role that names this scheduler."""
        return {"replicas": 2, "template": make_template(scheduler=scheduler)}

    def test_the_pods_of_others_do_not_wait_for_the_allocator(self):
        """They are created at once, unbound, with the name as it is, and a warning."""
        world = embedded(document=tfjob(Worker=self.role("theirs")), placements={}).settle()
        assert len(world.names()) == 2
        assert {pod["spec"]["schedulerName"] for pod in world.of("Pod")} == {"theirs"}
        assert "SetPodTemplateSchedulerName" in world.reasons()

    def test_kube_batch_means_the_allocator(self):
        """A job from the days of kube-batch is placed by the allocator."""
        world = embedded(document=tfjob(Worker=self.role("kube-batch")), placements={}).settle()
        assert not world.names()
        world.give(placements=NODES).settle()
        assert {pod["spec"]["schedulerName"] for pod in world.of("Pod")} == {"kube-batch"}
        assert {pod["spec"]["nodeName"] for pod in world.of("Pod")} == {"n0", "n1"}


def test_gated_pods_are_bound():
    """The API server rejects a pod with scheduling gates and a node."""
    gated = make_template(schedulingGates=[{"name": "g"}])
    document = tfjob(Worker={"replicas": 2, "template": gated})
    world = embedded(document=document, placements=NODES).settle()
    assert not any("nodeName" in pod["spec"] for pod in world.of("Pod"))


QUOTA = 'pods "mnist-worker-1" is forbidden: exceeded quota: small, requested: pods=1'


def refusal(message=QUOTA, *, kind="Pod", reason="Forbidden", until=START + 5):
    """Return a refusal of the server."""
    return Refusal(kind, "mnist-worker-1", reason, message, until)


NO_RIGHTS = Context(lacking={"tfjob-controller": "may not create pods"})


class TestBlocked:
    """Nothing of the job may be made, so the allocator keeps no room for what is missing."""

    def promised(self):
        """Return a gang that is told to be placed, of which no pod has been made."""
        placed = replace(PLACED, summary="2/2 placed")
        world = embedded(placements=NODES, verdict=placed)
        world.step()
        world.lose(*world.names())
        assert world.status["gang"]["summary"] == "2/2 placed"
        return world

    def test_it_is_not_told_to_be_placed(self):
        """Who reads it, a process that comes after this one too, would take its room for kept."""
        world = self.promised()
        world.context = NO_RIGHTS
        gang_ = world.give(verdict=None, placements={}).settle().status["gang"]
        found = world.status["state"], gang_["state"], gang_["reason"]
        assert found == ("Blocked", "Waiting", "Blocked")
        assert (gang_.get("placed", 0), gang_["message"]) == (0, "may not create pods")
        assert gang_["summary"] == "0/2 placed: may not create pods"
        (told,) = world.objects["PodGroup", "mnist"]["status"]["conditions"]
        assert (told["status"], told["message"]) == ("True", "may not create pods")
        assert "Unschedulable" not in {e.reason for e in world.said}
        assert world.wait(60).settle().status["gang"]["since"] == format_time(START)
        world.context = Context()
        gang_ = world.settle().status["gang"]
        assert (gang_["state"], gang_.get("reason", "")) == ("Waiting", "")

    @pytest.mark.parametrize("there", [1, 2])
    def test_what_is_there_of_it_stays_placed(self, there):
        """Its pods hold their nodes, and what is missing comes first once it may come."""
        world = embedded(placements=NODES, verdict=PLACED)
        world.step()
        if there == 1:
            world.lose("mnist-worker-1")
        world.context = NO_RIGHTS
        gang_ = world.give(verdict=None, placements={}).settle().status["gang"]
        assert (gang_["state"], gang_["placed"]) == ("Placed", there)
        assert gang_.get("reason", "") == ("Blocked" if there == 1 else "")

    def test_one_that_waits_is_not_told_to_wait_for_room(self):
        """More of it would not help."""
        world = embedded(placements={}, verdict=WAITS).settle()
        world.context = NO_RIGHTS
        gang_ = world.give(verdict=None, placements={}).settle().status["gang"]
        assert (gang_["reason"], "shortage" in gang_, "eta" in gang_) == ("Blocked", False, False)

    def test_one_that_runs_runs(self):
        """And lacks what it lacks; so it does where the API of its scheduler vanished."""
        world = running()
        world.context = Context(missing="Get it.")
        assert world.settle().status["gang"]["state"] == "Running"
        world.context = NO_RIGHTS
        world.extra = {"verdict": None, "placements": {}}
        assert world.settle().status["gang"]["state"] == "Running"
        assert world.lose("mnist-worker-1").settle().status["gang"]["state"] == "Degraded"

    def test_one_that_became_invalid_before_it_began_has_no_gang(self):
        """It wants nothing that anybody could read."""
        world = self.promised()
        assert world.status["startTime"]
        del world.status["gang"]["admissionTime"]
        world.scale(-1).give(verdict=None, placements={})
        assert (world.settle().status["state"], world.status.get("gang")) == ("Invalid", None)


class TestRefusal:
    """The server does not take an object: all or nothing on the way out as well."""

    def half(self, *, document=None, **fields):
        """Return a gang of which one of two pods exists when the other is refused."""
        world = embedded(document=document, placements=NODES, verdict=PLACED)
        world.step()
        world.lose("mnist-worker-1")
        return world.give(refusal=refusal(**fields))

    @pytest.mark.parametrize(
        ("message", "refused", "reason"),
        [
            (QUOTA, "Forbidden", "ExceedsResourceQuota"),
            ("denied by policy", "Forbidden", "CreationRefused"),
            ("spec.containers[0].ports: Invalid value: 99999", "Invalid", "CreationRefused"),
        ],
    )
    def test_a_half_gang_is_undone(self, message, refused, reason):
        """What was created goes, the reason is told, and the job tries again in time (S2, S23)."""
        world = self.half(message=message, reason=refused).settle()
        assert not world.names()
        assert not world.names("Service")
        assert world.names("PodGroup") == ["mnist"]
        assert world.status["gang"]["reason"] == reason
        assert world.status["gang"]["message"] == message
        blocked = reason == "CreationRefused"
        assert world.status["state"] == ("Blocked" if blocked else "Queued")
        assert world.status.get("reason") == (message if blocked else None)
        assert not {"TFJobFailedValidation", "ErrResourceExists"} & set(world.reasons())
        assert world.requeue == START + 5
        assert not [a for a in world.decide() if isinstance(a, Create | SetStatus)]
        told = [e for e in world.said if e.reason == "FailedCreatePod"]
        assert (told[0].type, told[0].message) == ("Warning", f"Error creating: {message}")
        world.now = START + 5
        assert len(world.settle().names()) == 2
        assert world.status["gang"]["state"] == "Placed"
        assert world.status["state"] == "Created"

    def test_a_half_gang_that_was_seen_too_late_is_undone_all_the_same(self):
        """Between two refusals it is a gang that lacks a pod, but none that ever ran."""
        world = self.half(until=START)
        lacks = replace(PLACED, state="Degraded", reason="NotEnoughTasks", placed=1)
        world.extra |= {"verdict": lacks, "placements": {}}
        assert world.start().settle().names() == ["mnist-worker-0"]
        assert world.status["gang"]["state"] == "Placed"
        world.give(refusal=refusal(until=START + 10)).settle().reap()
        assert not world.settle().names()

    def test_a_half_gang_that_ran_is_undone_again(self):
        """Its pod may have run before it was taken away; then nobody says anything of the gang."""
        world = self.half(until=START + 10)
        world.start("mnist-worker-0").settle().reap()
        assert {"Running T", "Restarting T"} & set(world.conditions)
        assert not world.settle().names()
        world.extra |= {"verdict": None, "placements": {}}
        world.now = START + 10
        world.settle().give(verdict=PLACED, placements=NODES)
        creates = (a for a in world.decide() if isinstance(a, Create))
        world.apply(next(a for a in creates if a.doc["kind"] == "Pod"))
        assert not world.give(refusal=refusal(until=START + 30)).settle().names()

    def test_a_failure_is_counted_before_its_gang_is_undone(self):
        """An operator that crashes in between forgets no restart."""
        again = {"replicas": 2, "restartPolicy": "ExitCode"}
        world = self.half(document=tfjob(Worker=again))
        world.end("mnist-worker-0", 137).step()
        assert world.names() == ["mnist-worker-0"]
        assert world.status["replicaStatuses"]["Worker"]["restarts"] == 1
        assert not world.settle().names()
        assert world.status["replicaStatuses"]["Worker"]["restarts"] == 1

    def test_without_gangs_what_exists_stays(self):
        """Nothing is promised, nothing is undone; no new pod until the time is up."""
        world = World(tfjob(Worker=2))
        world.step()
        world.lose("mnist-worker-1")
        assert world.give(refusal=refusal()).settle().names() == ["mnist-worker-0"]
        world.now = START + 5
        assert len(world.settle().names()) == 2

    def test_a_refused_group_is_tried_again_when_the_time_is_up(self):
        """Not at once, over and over, as when its API has just vanished."""
        world = World(tfjob(Worker=2), backend=gang.VOLCANO)
        world.extra["refusal"] = refusal("404 page not found", kind="PodGroup", reason="NotFound")
        assert world.settle().names("PodGroup") == []
        assert world.requeue == START + 5
        world.now = START + 5
        assert world.settle().names("PodGroup") == ["mnist"]

    @pytest.mark.parametrize("kind", ["Service", "ConfigMap", "Secret"])
    def test_object_refused_before_the_start_blocks_the_gang(self, kind):
        """No pod is created before the next attempt; the state and the reason name the refusal."""
        world = embedded(placements=NODES, verdict=PLACED).give(refusal=refusal(kind=kind))
        world.settle()
        assert not world.names()
        assert not world.names("Service")
        assert (world.status["state"], world.status["reason"]) == ("Blocked", QUOTA)
        assert world.status["gang"]["reason"] == "ExceedsResourceQuota"
        assert f"FailedCreate{kind}" in world.reasons()
        assert world.requeue == START + 5
        world.now = START + 5
        world.settle()
        assert (len(world.names()), len(world.names("Service"))) == (2, 2)
        assert world.status["state"] == "Created"

    @pytest.mark.parametrize("reason", ["Forbidden", "Invalid"])
    def test_service_refused_while_the_gang_runs_is_reported_and_retried(self, reason):
        """The gang keeps its pods and its state, and a lost member is replaced."""
        world = running()
        del world.objects["Service", "mnist-worker-1"]
        world.give(refusal=refusal(kind="Service", reason=reason)).lose("mnist-worker-1").settle()
        assert len(world.names()) == 2
        assert (world.status["state"], world.status["reason"]) == ("Running", QUOTA)
        assert "FailedCreateService" in world.reasons()
        assert world.names("Service") == ["mnist-worker-0"]
        world.now = START + 5
        assert len(world.settle().names("Service")) == 2


def test_an_obstacle_that_is_gone_is_not_told_of_any_longer():
    """When the time is up and nobody has a newer word, the old reason goes."""
    world = World(tfjob(Worker=2), backend=gang.SCHEDULER_PLUGINS)
    world.step()
    world.give(refusal=refusal()).lose("mnist-worker-1")
    assert world.settle().status["gang"]["reason"] == "ExceedsResourceQuota"
    world.now = START + 5
    world.settle()
    assert world.status["gang"]["state"] == "Waiting"
    assert not {"reason", "message", "summary"} & set(world.status["gang"])
    assert world.status["state"] == "Queued"


def test_creation_refusal_is_reported_until_the_next_attempt_ends():
    """An attempt takes seconds if a webhook is slow."""
    world = embedded().give(refusal=refusal("failed calling webhook", reason="InternalError"))
    told = world.settle().status["gang"]
    assert told["reason"] == "CreationRefused"
    world.now = START + 5
    assert world.settle().status["gang"] == told
    world.give(placements=NODES, verdict=PLACED).settle()
    assert "reason" not in world.status["gang"]


def test_running_gang_with_a_refused_replacement_keeps_its_other_members():
    """The gang says what it lacks; its pods end, and the job with them."""
    world = running().lose("mnist-worker-1")
    world.give(refusal=refusal("bad", reason="Invalid")).settle()
    assert world.names() == ["mnist-worker-0"]
    assert (world.status["state"], world.counts()) == ("Running", (1, 0, 0))
    found = world.status["gang"]
    assert (found["state"], found["reason"]) == ("Degraded", "CreationRefused")
    assert world.status["reason"] == "bad"
    assert world.requeue == START + 5
    assert world.end("mnist-worker-0").settle().status["state"] == "Succeeded"


def test_gang_that_is_scaled_up_while_it_starts_keeps_what_runs():
    """It runs with the members that it was admitted with, and a refusal of others undoes none."""
    world = embedded(placements=NODES, verdict=PLACED).settle()
    world.scale(3).give(placements={}).settle().start().settle()
    assert (world.status["gang"]["state"], world.status["gang"]["minMember"]) == ("Running", 2)
    assert world.lose("mnist-worker-1").give(refusal=refusal()).deletes() == []


def test_each_change_of_reason_is_told_once_on_the_group_and_has_a_time():
    """A Warning on the PodGroup beside that of the job; the same reason keeps its time (U16)."""
    world = embedded(verdict=WAITS, placements={}).settle()

    def told():
        about = [emit for emit in world.said if emit.group is not None]
        assert {emit.group.uid for emit in about} == {"uid-1"}
        assert {(emit.type, emit.reason) for emit in about} == {("Warning", "Unschedulable")}
        return [emit.message for emit in about]

    assert told() == [WAITS.message]
    world.wait(60).give(verdict=replace(WAITS, message="a little more is free")).settle()
    assert (len(told()), world.status["gang"]["since"]) == (1, "2023-11-14T22:13:20Z")
    world.give(verdict=replace(WAITS, reason="QueueOverused", message="")).settle()
    assert told() == [WAITS.message, "QueueOverused"]
    assert world.status["gang"]["since"] == "2023-11-14T22:14:20Z"
    assert world.reasons().count("Unschedulable") == 2


def test_a_member_that_is_being_replaced_alarms_nobody_on_the_group_either():
    """The condition tells it; a Warning would be one for every restart."""
    world = running().end("mnist-worker-1", 137).settle()
    lacks = replace(PLACED, state="Degraded", reason="NotEnoughTasks", placed=1)
    world.give(verdict=lacks).settle()
    assert not [emit for emit in world.said if emit.group is not None]
    assert "Unschedulable" not in world.reasons()


class TestNative:
    """Kubernetes' own gangs."""

    def test_a_gang_that_is_not_enforced_is_a_warning_of_its_own(self):
        """Read back from the first pods; it is told once, and stays in the status."""
        world = World(tfjob(Worker=2), backend=gang.KUBERNETES).settle()
        for pod in world.of("Pod"):
            del pod["spec"]["schedulingGroup"]
        assert world.run().status["gang"]["reason"] == "GangNotEnforced"
        assert world.status["state"] == "Running"
        (told,) = [emit for emit in world.said if emit.reason == "GangNotEnforced"]
        assert told.type == "Warning"
        assert "Unschedulable" not in world.reasons()

    def test_a_group_that_cannot_change_says_so_once_and_is_made_anew_with_the_pods(self):
        """A new size while pods exist waits for the next suspend and resume, on 1.36."""
        context = Context(gangs=gang.GangFacts(api_version="scheduling.k8s.io/v1alpha2"))
        world = World(tfjob(Worker=2), backend=gang.KUBERNETES, context=context).settle()
        world.scale(3).settle().settle()
        assert world.reasons().count("PodGroupImmutable") == 1
        policy = world.objects["PodGroup", "mnist"]["spec"]["schedulingPolicy"]
        assert policy == {"gang": {"minCount": 2}}
        world.job["spec"]["runPolicy"] = {"suspend": True}
        assert not world.settle().names("PodGroup")
        world.job["spec"]["runPolicy"] = {"suspend": False}
        world.settle()
        policy = world.objects["PodGroup", "mnist"]["spec"]["schedulingPolicy"]
        assert policy == {"gang": {"minCount": 3}}

    def test_a_new_size_goes_into_the_group_where_it_is(self):
        """On 1.37, while its pods exist; earlier versions and a new priority need a new group."""
        context = Context(gangs=gang.GangFacts(priorities={"high": 1}))
        world = World(tfjob(Worker=2), backend=gang.KUBERNETES, context=context).settle()
        uid = world.objects["PodGroup", "mnist"]["metadata"]["uid"]
        world.scale(3).settle()
        group = world.objects["PodGroup", "mnist"]
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        assert group["metadata"]["uid"] == uid
        assert not world.reasons().count("PodGroupImmutable")
        made = [
            w.doc["spec"]
            for w in world.writes
            if isinstance(w, Create) and w.doc["kind"] == "Workload"
        ]
        counts = [
            template["schedulingPolicy"]["gang"]["minCount"]
            for spec in made
            for template in spec["podGroupTemplates"]
        ]
        assert counts == [2, 3]

        world.edit(runPolicy={"schedulingPolicy": {"priorityClass": "high"}}).scale(4).settle()
        group = world.objects["PodGroup", "mnist"]
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
        assert "priorityClassName" not in group["spec"]
        assert world.reasons().count("PodGroupImmutable") == 1

    def test_successors_of_a_gang_that_goes_whole_wait_until_it_has_gone(self):
        """Its scheduler would count who is about to go, and let one of them start alone."""
        world = World(tfjob(Worker=3), backend=gang.KUBERNETES).settle().start()
        for name in world.names():
            world.pod(name)["spec"]["nodeName"] = "n1"
        world.settle()
        first, second, third = world.names()
        world.terminate(first, second).lose(first)
        # One of two that go is replaced at once: the third stands.
        assert first in world.settle().names()
        assert world.terminate(first, third).lose(first).settle().names() == [second, third]
        assert world.lose(second).settle().names() == [third]
        assert world.lose(third).settle().names() == [first, second, third]

    def test_a_field_that_the_server_drops_does_not_make_the_group_anew(self):
        """It would go round for ever: the next one lacks the field as well."""
        dropped = {"PodGroup": frozenset({"disruptionMode"})}
        for context, settles in ((Context(dropped=dropped), True), (Context(), False)):
            world = World(tfjob(Worker=2), backend=gang.KUBERNETES, context=context)
            world.step()
            world.objects["PodGroup", "mnist"]["spec"].pop("disruptionMode")
            world.lose(*world.names())
            deletes = [action for action in world.decide() if isinstance(action, Delete)]
            assert bool(deletes) is not settles

    @pytest.mark.parametrize("backend", [gang.KUBERNETES, gang.SCHEDULER_PLUGINS])
    def test_that_a_gang_waits_for_nodes_is_said_once_for_all_its_pods(self, backend):
        """The scheduler says it of every pod, at different times and in different words."""
        world = World(tfjob(Worker=18), backend=backend).settle()
        for index, name in enumerate(world.names()):
            refused = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": f"0/16 nodes, attempt {index}",
                "lastTransitionTime": format_time(world.now),
            }
            world.pod(name)["status"] = {"phase": "Pending", "conditions": [refused]}
            world.settle()
        assert world.status["gang"]["reason"] == "Unschedulable"
        assert world.reasons().count("Unschedulable") == 1


class TestSilence:
    """A scheduler outside that has not said anything yet."""

    def test_volcano_has_a_moment_before_its_silence_is_a_warning(self):
        """The gang is shown as queued at once; a timer makes sure that more is said in time."""
        world = World(tfjob(Worker=2), backend=gang.VOLCANO).settle()
        assert world.status["state"] == "Queued"
        assert "reason" not in world.status["gang"]
        assert "Unschedulable" not in world.reasons()
        world.step()
        assert world.requeue == START + 10
        world.now = START + 10
        assert world.settle().status["gang"]["reason"] == "NotAdmitted"
        assert world.reasons().count("Unschedulable") == 1
        world.step()
        assert world.requeue is None

    def test_pods_stay_when_volcano_puts_the_group_back_and_new_ones_wait(self):
        """What runs is not taken down for it."""
        world = World(tfjob(Worker=2), backend=gang.VOLCANO).settle()
        world.objects["PodGroup", "mnist"]["status"] = {"phase": "Inqueue"}
        assert len(world.settle().names()) == 2
        world.objects["PodGroup", "mnist"]["status"] = {"phase": "Pending"}
        assert len(world.scale(3).settle().names()) == 2
        world.objects["PodGroup", "mnist"]["status"] = {"phase": "Inqueue"}
        assert len(world.settle().names()) == 3

    def test_a_group_that_stays_away_is_told_by_a_timer(self):
        """Pods wait for half a minute without their group, and nothing else happens."""
        world = World(tfjob(Worker=2), backend=gang.KUBE_BATCH).settle()
        del world.objects["PodGroup", "mnist"]
        world.give(refusal=refusal("no", kind="PodGroup", until=START + 500)).settle().step()
        assert world.requeue == START + 30
        world.now = START + 30
        assert world.settle().status["gang"]["reason"] == "GroupMissing"
        world.step()
        assert world.requeue == START + 500


QUEUED = {"kueue.x-k8s.io/queue-name": "q"}


class TestKueue:
    """Jobs of a Kueue queue say Running when all members are ready."""

    def test_running_means_ready(self):
        """Running pods are not enough; ready ones are (M4), also after a restart."""
        role = {"replicas": 2, "restartPolicy": "OnFailure"}
        world = World(tfjob(labels=QUEUED, Worker=role)).settle().start()
        world.pod("mnist-worker-1")["status"]["conditions"] = []
        assert world.settle().conditions == ["Created T"]
        assert world.start().settle().conditions == ["Created T", "Running T"]
        world.end("mnist-worker-1", 1).settle()
        assert world.conditions == ["Created T", "Restarting T"]
        assert world.start().settle().conditions == ["Created T", "Running T"]

    def test_what_has_succeeded_counts_as_ready(self):
        """A worker that is done does not take Running back."""
        spec = {"successPolicy": "AllWorkers"}
        world = World(tfjob(labels=QUEUED, Worker=2, spec=spec)).settle().end("mnist-worker-1")
        assert world.start("mnist-worker-0").settle().conditions == ["Created T", "Running T"]


THREE = {"mnist-launcher": "n0", "mnist-worker-0": "n0", "mnist-worker-1": "n1"}
DEGRADED = Verdict("muster", "Degraded", "mnist", min_member=3, placed=3)


def ring(backend, **observed):
    """Return the world of an MPIJob of v2beta1 that runs; its workers are never replaced."""
    document = mpijob("v2beta1", worker=role(policy="Never"))
    world = World(document, backend=backend, secrets=SECRETS, **observed).settle()
    world.launch()
    return world.start().settle()


class TestFailedMembersThatAreNotReplaced:
    """Each lowers the gang's minimum by one."""

    def test_gang_of_an_mpijob_goes_on_running(self):
        """What is left is all that can run. A deleted worker is replaced and missed."""
        placed = replace(DEGRADED, state="Placed")
        world = ring(gang.EMBEDDED, placements=THREE, verdict=placed)
        assert world.status["gang"]["minMember"] == 3
        world.end("mnist-worker-0", 1).give(verdict=DEGRADED).settle()
        told = world.status["gang"]
        assert (told["state"], told["minMember"], told["placed"]) == ("Running", 2, 2)
        assert told["summary"] == "2/3 running, 1 failed"
        assert "reason" not in told
        assert world.objects["PodGroup", "mnist"]["spec"]["minMember"] == 2
        assert world.status["state"] == "Running"
        told = world.give(placements={}).lose("mnist-worker-1").settle().status["gang"]
        assert (told["state"], told["minMember"]) == ("Degraded", 2)
        assert told["message"] == "1 of the 2 pods that must run together run"

    def test_gang_of_another_scheduler_goes_on_running(self):
        """Its group asks for as many as there can be."""
        world = ring(gang.SCHEDULER_PLUGINS)
        assert world.objects["PodGroup", "mnist"]["spec"]["minMember"] == 3
        world.end("mnist-worker-0", 1).settle()
        assert world.objects["PodGroup", "mnist"]["spec"]["minMember"] == 2
        assert world.status["gang"]["state"] == "Running"


@pytest.mark.parametrize(
    ("backend", "asked", "own", "written"),
    [
        (gang.EMBEDDED, "high", None, "high"),
        (gang.EMBEDDED, "high", "low", "low"),
        (gang.VOLCANO, "high", None, None),
        (gang.EMBEDDED, "gone", None, None),
    ],
)
def test_the_class_of_the_policy_is_written_on_the_pods(backend, asked, own, written):
    """So the API server decides who may use it; a class that does not exist is left out."""
    document = tfjob(Worker=2)
    document["spec"]["runPolicy"] = {"schedulingPolicy": {"priorityClass": asked}}
    if own:
        pod = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
        pod["priorityClassName"] = own
    context = Context(gangs=gang.GangFacts(priorities={"high": 1}))
    world = World(document, backend=backend, placements=NODES, context=context)
    if backend is gang.VOLCANO:
        world.settle()
        world.objects["PodGroup", "mnist"]["status"] = {"phase": "Inqueue"}
    world.settle()
    pods = [world.objects["Pod", name] for name in world.names()]
    assert [pod["spec"].get("priorityClassName") for pod in pods] == [written] * 2


class TestGroupsMadeByHand:
    """Somebody made the PodGroup of the job's name beforehand, as kube-batch's users had to."""

    def lent(self, backend):
        """Return a world with such a group, of one member, that belongs to nobody."""
        world = World(tfjob(Worker=2), backend=backend, verdict=WAITS)
        meta = {"name": "mnist", "namespace": "team", "uid": "uid-by-hand", "labels": {"a": "b"}}
        spec = {"minMember": 1, "priorityClassName": "high", "more": "of the user's"}
        api = backend.api().api_version
        document = {"apiVersion": api, "kind": "PodGroup", "metadata": meta, "spec": spec}
        world.objects["PodGroup", "mnist"] = {**document, "status": {"phase": "Inqueue"}}
        return world

    @pytest.mark.parametrize("backend", [gang.EMBEDDED, gang.VOLCANO, gang.SCHEDULER_PLUGINS])
    def test_it_is_used(self, backend):
        """The pods name it, the job's gang settings stand in it, and it outlives the job."""
        world = self.lent(backend)
        world.give(placements=NODES).settle()
        assert world.names() == ["mnist-worker-0", "mnist-worker-1"]
        assert world.status["state"] != "Blocked"
        group = world.objects["PodGroup", "mnist"]
        assert group["metadata"]["uid"] == "uid-by-hand"
        assert "ownerReferences" not in group["metadata"]
        assert (group["spec"]["minMember"], group["spec"]["more"]) == (2, "of the user's")
        for name in world.names():
            world.end(name)
        assert world.settle().status["state"] == "Succeeded"
        assert world.names("PodGroup") == ["mnist"]

    def test_one_that_cannot_change_is_used_as_it_is(self):
        """Deleting it to make another would take it from its owner."""
        world = self.lent(gang.KUBERNETES)
        world.settle()
        assert world.names() == ["mnist-worker-0", "mnist-worker-1"]
        assert world.objects["PodGroup", "mnist"]["spec"]["minMember"] == 1

    def test_a_budget_of_that_name_is_no_group(self):
        """Anybody may guard his pods with one."""
        backend = gang.KUBE_BATCH_OBJECTS["pdb"]
        world = self.lent(backend)
        found = world.objects.pop(("PodGroup", "mnist"))
        world.objects["PodGroup", "mnist"] = {**found, "kind": "PodDisruptionBudget"}
        assert world.settle().status["state"] == "Blocked"


class TestStart:
    """The start of a job, and the admission of its gang, from which the deadline counts."""

    def admission(self, world):
        """Return the time of admission in the status, None if the gang was not admitted."""
        return world.status["gang"].get("admissionTime")

    def waiting(self, backend, **policy):
        """Return a gang that has waited for an hour, a deadline of a minute ahead of it."""
        limited = tfjob(Worker=2, policy={"activeDeadlineSeconds": 60, **policy})
        world = World(limited, backend=backend, verdict=WAITS, placements={}).settle()
        return world.wait(3600).settle()

    @pytest.mark.parametrize(
        "backend", [gang.EMBEDDED, gang.VOLCANO, gang.KUBE_BATCH, gang.SCHEDULER_PLUGINS]
    )
    def test_waiting_does_not_count(self, backend):
        """The deadline begins when the first pod has its node."""
        world = self.waiting(backend)
        assert world.status["startTime"] == format_time(START)
        assert "admissionTime" not in world.status.get("gang", {})
        assert "Failed T" not in world.conditions
        world.extra["placements"] = NODES
        if ("PodGroup", "mnist") in world.objects:
            world.objects["PodGroup", "mnist"]["status"] = {"phase": "Running"}
        world.settle()
        for name in world.names():
            world.pod(name)["spec"]["nodeName"] = "n0"
        world.settle()
        assert world.status["startTime"] == format_time(START)
        assert self.admission(world) == format_time(START + 3600)
        assert world.requeue == START + 3660
        assert world.wait(60).settle().status["state"] == "Failed"

    def test_it_is_written_with_the_pods_and_not_once_more(self):
        """Each write of a status is a pass more, and an event for all who watch."""
        verdict = replace(PLACED, summary="2/2 placed")
        world = World(tfjob(Worker=2), backend=gang.EMBEDDED, verdict=verdict, placements=NODES)
        [status] = [a.status for a in world.step() if isinstance(a, SetStatus)]
        assert status["startTime"] == status["gang"]["admissionTime"] == format_time(START)
        assert not [a for a in world.step() if isinstance(a, SetStatus)]

    @pytest.mark.parametrize("state", ["Waiting", "Released"])
    def test_admission_time_is_kept_through_restarts(self, state):
        """The deadline covers all restarts of a run, waits between them, and obstacles."""
        world = self.waiting(gang.EMBEDDED)
        world.give(placements=NODES).run()
        admitted = self.admission(world)
        world.give(placements={}, verdict=replace(WAITS, state=state)).lose(*world.names())
        assert self.admission(world.wait(10).settle()) == admitted
        assert self.admission(world.give(placements=NODES).wait(10).settle()) == admitted
        world.context = NO_RIGHTS
        assert self.admission(world.wait(10).settle()) == admitted
        assert world.wait(30).settle().status["state"] == "Failed"

    def test_gang_placed_by_other_scheduler_before_this_operator_counts_from_the_start(self):
        """The status of an earlier operator has no time of admission."""
        world = World(tfjob(Worker=2, policy={"activeDeadlineSeconds": 60})).run()
        world.backend, world.now = gang.EMBEDDED, START + 30
        world.extra = {"verdict": PLACED, "placements": {}}
        assert self.admission(world.settle()) == format_time(START)
        assert world.requeue == START + 60

    def test_places_for_pods_whose_names_are_taken_are_no_start(self):
        """The pods of before its suspension still go when the gang is placed anew."""
        world = self.waiting(gang.EMBEDDED)
        world.extra["placements"] = NODES
        world.settle().start().edit(runPolicy={"suspend": True}).settle()
        world.edit(runPolicy={}).settle()
        assert len(world.names()) == 2
        assert self.admission(world) is None

    def test_no_time_at_all_is_over_at_once(self):
        """Nothing is placed, or made, for that."""
        limited = tfjob(Worker=2, policy={"activeDeadlineSeconds": 0})
        world = World(limited, backend=gang.EMBEDDED, verdict=WAITS, placements=NODES).settle()
        assert world.status["state"] == "Failed"
        assert world.names() == []

    def test_a_resumed_gang_starts_when_it_is_admitted_again(self):
        """Its old pods, which still go, are no start."""
        world = self.waiting(gang.EMBEDDED)
        world.extra["placements"] = NODES
        world.run().edit(runPolicy={"suspend": True, "activeDeadlineSeconds": 60}).settle()
        world.edit(runPolicy={"activeDeadlineSeconds": 60}).give(placements={}).settle()
        assert world.status["startTime"] == format_time(START + 3600)
        assert self.admission(world) is None
        world.reap().wait(600).give(placements=NODES).settle()
        assert world.status["startTime"] == format_time(START + 3600)
        assert self.admission(world) == format_time(START + 4200)

    def test_a_pod_that_ended_before_anybody_looked_is_a_start(self):
        """Some programs are that short."""
        world = self.waiting(gang.EMBEDDED)
        world.extra["placements"] = NODES
        for action in world.decide():
            if isinstance(action, Create):
                world.apply(action)
        world.extra["placements"] = {}
        for name in world.names():
            del world.pod(name)["spec"]["nodeName"]
        assert self.admission(world.end("mnist-worker-1").settle()) == format_time(START + 3600)
