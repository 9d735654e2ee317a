# SPDX-License-Identifier: Apache-2.0
"""`runPolicy` and restarts, to the tables: suspend, backoff, deadline, clean-up, TTL, codes."""

import pytest

from muster import gang
from muster.api import edge
from muster.controller.model import Create, Delete, SetStatus
from support.apiserver.memory import START, World, of_kind, tfjob
from support.builders.mpijobs import world as mpi_world

SUSPEND = {"policy": {"suspend": True}}
RANKED = ("PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob")


def suspended(world, *, suspend):
    """Change only `suspend`."""
    return world.edit(runPolicy={**world.job["spec"].get("runPolicy", {}), "suspend": suspend})


def ran(**policy):
    """Return a world whose two restartable workers run."""
    role = {"replicas": 2, "restartPolicy": "OnFailure"}
    return World(tfjob(policy=policy, Worker=role)).run()


class TestSuspend:
    """Suspend and resume: the exact sequences."""

    def test_created_suspended(self):
        """Nothing is created and the start is left open until the job is resumed."""
        world = World(tfjob(**SUSPEND), backend=gang.SCHEDULER_PLUGINS).settle()
        assert world.conditions == ["Created T", "Suspended T"]
        assert "startTime" not in world.status
        assert not world.objects
        assert world.status["state"] == "Suspended"
        suspended(world, suspend=False).settle()
        assert world.conditions == ["Created T", "Suspended F"]
        assert world.status["startTime"] == edge.format_time(START)
        assert len(world.names()) == 2

    def test_active_is_zero_when_the_pods_are_gone_and_not_before(self):
        """The pods hold their quota until the last one is gone; all deletions are reported."""
        world = suspended(ran(), suspend=True).settle()
        told = [e.message for e in world.said if e.reason.startswith("SuccessfulDelete")]
        assert told == [
            f"Deleted {kind}: mnist-worker-{i}" for kind in ("pod", "service") for i in (0, 1)
        ]
        assert world.counts() == (2, 0, 0)
        world.reap().settle()
        assert world.counts() == (0, 0, 0)
        assert not world.objects

    def test_pods_that_are_not_wanted_any_more_hold_their_quota_too(self):
        """Whoever suspends a job may make it smaller with that, or take a role away."""
        world = World(tfjob(PS=1, Worker=2)).run().scale(1)
        del world.job["spec"]["tfReplicaSpecs"]["PS"]
        suspended(world, suspend=True).settle()
        assert (world.counts("Worker"), world.counts("PS")) == ((2, 0, 0), (1, 0, 0))
        world.lose("mnist-worker-0").settle()
        assert (world.counts("Worker"), world.counts("PS")) == ((1, 0, 0), (1, 0, 0))
        world.reap().settle()
        assert (world.counts("Worker"), world.counts("PS")) == ((0, 0, 0), (0, 0, 0))

    def test_pods_of_which_no_status_tells_hold_their_quota_too(self):
        """The operator may have ended between the creation of pods and its word about it."""
        world = World(tfjob(**SUSPEND)).settle()
        suspended(world, suspend=False).step(upto=1)
        (name,) = world.names()
        world.start()
        suspended(world, suspend=True).settle()
        assert (name, world.counts()) == ("mnist-worker-0", (1, 0, 0))
        assert world.reap().settle().counts() == (0, 0, 0)

    @pytest.mark.parametrize(("end", "state"), [("Complete", "Succeeded"), ("Failed", "Failed")])
    @pytest.mark.parametrize("before", [True, False])
    def test_a_job_whose_launcher_has_ended_does_not_wait_to_say_so(self, end, state, before):
        """As mpi-operator's: it need not be resumed, which a queue may let it wait for."""
        world = mpi_world("v2beta1")
        world.start()
        world.launch()
        world.settle()
        began = world.status["startTime"]
        world.now += 60
        if before:
            world.close(end=end)
            suspended(world, suspend=True).settle()
            assert "Suspended T" not in world.conditions
        else:
            suspended(world, suspend=True).settle()
            world.reap().settle().close(end=end).settle()
            assert "Suspended T" in world.conditions
        assert (world.status["state"], world.status["startTime"]) == (state, began)
        assert world.status["completionTime"] == edge.format_time(world.now)
        assert "MPIJobResumed" not in world.reasons()

    @pytest.mark.parametrize("kind", ["TFJob", *RANKED, "MPIJob"])
    def test_running_then_suspended_and_resumed(self, kind):
        """Running turns False with the suspension; each kind has reasons of its own.

        The start time is new.
        """
        if kind == "MPIJob":
            world = mpi_world("v1")
        else:
            leads = {"Master": 1} if kind == "XGBoostJob" else {}
            world = World(of_kind(kind, **leads, Worker=1)).settle()
        world.start().settle()
        suspended(world, suspend=True).settle()
        assert world.conditions == ["Created T", "Running F", "Suspended T"]
        told = [(c["reason"], c["message"]) for c in world.status["conditions"][1:]]
        assert told == [(f"{kind}Suspended", f"{kind} mnist is suspended.")] * 2
        world.reap().wait(100)
        suspended(world.settle(), suspend=False).settle()
        assert world.conditions == ["Created T", "Running F", "Suspended F"]
        assert world.status["startTime"] == edge.format_time(START + 100)
        assert world.last == (f"{kind}Resumed", f"{kind} mnist is resumed.")
        world.start().settle()
        assert world.conditions == ["Created T", "Suspended F", "Running T"]
        assert world.reasons().count(f"{kind}Suspended") == 1
        assert world.reasons().count(f"{kind}Resumed") == 1

    def test_services_go_though_their_pods_have_gone_before(self):
        """What is there counts, not what a pod leads to."""
        world = ran()
        world.lose(*world.names())
        suspended(world, suspend=True).settle()
        assert not world.names("Service")

    def test_restarts_start_anew_on_resume(self):
        """A resumed job has its whole backoffLimit again."""
        world = ran(backoffLimit=2).end("mnist-worker-0", 1).settle()
        assert world.status["replicaStatuses"]["Worker"]["restarts"] == 1
        suspended(world, suspend=True).settle()
        world.reap()
        suspended(world.settle(), suspend=False).settle()
        assert "restarts" not in world.status["replicaStatuses"]["Worker"]

    def test_a_finished_job_ignores_suspend(self):
        """Its conditions stay, and it is cleaned up as its policy says."""
        world = ran().end("mnist-worker-0").settle()
        before = world.conditions
        suspended(world, suspend=True).settle()
        assert world.conditions == before
        assert len(world.names()) == 2

    def test_one_that_succeeds_as_it_is_suspended_has_succeeded(self):
        """Its pods would else go with what they came to, and all be done again on resume."""
        world = ran().end("mnist-worker-0")
        suspended(world, suspend=True).settle()
        assert world.conditions == ["Created T", "Running F", "Succeeded T"]
        assert world.counts() == (0, 2, 0)

    @pytest.mark.parametrize("code", [0, 1])
    def test_one_of_which_pods_have_ended_but_not_all_that_decide_starts_anew(self, code):
        """A pod apart is no end, and one that failed at that moment is tried again on resume."""
        world = ran().end("mnist-worker-1", code)
        suspended(world, suspend=True).settle()
        assert world.conditions == ["Created T", "Running F", "Suspended T"]
        assert not world.reap().settle().objects

    def test_what_ends_well_because_it_is_suspended_is_no_success(self):
        """A program that saves its state and ends with 0 when it is told to stop."""
        world = suspended(ran(), suspend=True).settle()
        for name in world.names():
            assert world.pod(name)["metadata"]["deletionTimestamp"]
            world.end(name)
        assert world.settle().conditions == ["Created T", "Running F", "Suspended T"]

    def test_job_without_pods_is_invalid(self):
        """0 replicas of the role that decides are no success, also while the job is suspended."""
        world = World(tfjob(policy={"suspend": True}, Worker={"replicas": 0})).settle()
        assert (world.conditions, world.status["state"]) == ([], "Invalid")


class TestBackoff:
    """backoffLimit against restarts in the status and inside living pods."""

    @pytest.mark.parametrize(
        ("limit", "total", "fails"), [(0, 0, False), (0, 1, True), (3, 2, False), (3, 3, True)]
    )
    def test_restarts_of_containers_and_replaced_pods_count(self, limit, total, fails):
        """Upstream counts restarts by the kubelet alone, not pods replaced under ExitCode."""
        world = ran(backoffLimit=limit)
        status = world.pod("mnist-worker-0")["status"]
        status["containerStatuses"] = [{"name": "tensorflow", "restartCount": total}]
        world.settle()
        assert ("Failed T" in world.conditions) is fails
        role = {"replicas": 1, "restartPolicy": "ExitCode"}
        world = World(tfjob(policy={"backoffLimit": limit}, Worker=role)).settle()
        for _ in range(total):
            world.start().settle().end("mnist-worker-0", 137).settle()
            world.now += 300  # the longest back-off
            world.settle()
        assert ("Failed T" in world.conditions) is fails
        if fails:
            assert world.status["conditions"][-1]["message"] == (
                "Job mnist has failed because it has reached the specified backoff limit"
            )
            assert world.status["completionTime"]

    def test_never_does_not_count(self):
        """In-place restarts of init containers under Never are not the job's restarts."""
        world = World(tfjob(policy={"backoffLimit": 1}, Worker=1)).settle().start()
        status = world.pod("mnist-worker-0")["status"]
        status["initContainerStatuses"] = [{"name": "init", "restartCount": 5}]
        world.settle()
        assert "Failed T" not in world.conditions


class TestDeadline:
    """activeDeadlineSeconds, by a timer of its own."""

    def test_to_the_second(self):
        """The job goes on until the deadline, is due at it, and fails at it."""
        world = ran(activeDeadlineSeconds=60)
        assert world.requeue == START + 60
        world.now = START + 59
        assert "Failed T" not in world.settle().conditions
        world.now = START + 60
        world.settle()
        assert world.conditions == ["Created T", "Running F", "Failed T"]
        assert world.status["conditions"][-1]["message"] == (
            "Job mnist has failed because it was active longer than specified deadline"
        )

    def test_zero_fails_at_once(self):
        """No pod is ever created."""
        world = World(tfjob(policy={"activeDeadlineSeconds": 0})).settle()
        assert world.conditions == ["Created T", "Failed T"]
        assert not [w for w in world.writes if not isinstance(w, SetStatus)]

    def test_suspended_time_does_not_count(self):
        """The clock starts anew on resume."""
        world = suspended(ran(activeDeadlineSeconds=60), suspend=True).settle().wait(1000)
        world.reap()
        suspended(world.settle(), suspend=False).settle()
        assert "Failed T" not in world.conditions
        assert world.requeue == world.now + 60


CLEANED = {
    "None": ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"],
    "Running": ["mnist-worker-0"],
    "All": [],
}


class TestCleanUp:
    """cleanPodPolicy at the end, with a Succeeded, a Running and a Pending pod."""

    @pytest.mark.parametrize("policy", CLEANED)
    def test_the_table(self, policy):
        """Pods go or stay with their services, the group goes, a running server has succeeded."""
        document = tfjob(policy={"cleanPodPolicy": policy}, PS=1, Worker=2)
        world = World(document, backend=gang.SCHEDULER_PLUGINS).settle()
        world.start("mnist-ps-0").end("mnist-worker-0").settle()
        world.reap().settle()
        assert world.conditions[-1] == "Succeeded T"
        assert world.names() == CLEANED[policy]
        assert world.names("Service") == CLEANED[policy]
        assert not world.names("PodGroup")
        assert world.counts("PS") == (0, 1, 0)

    def test_services_of_pods_that_are_gone_are_cleaned_up_too(self):
        """All leaves no service without its pod."""
        world = ran(cleanPodPolicy="All").end("mnist-worker-0")
        world.step()
        world.lose(*world.names())
        assert world.status["state"] == "Succeeded"
        assert not world.settle().names("Service")

    def test_a_job_that_is_over_stays_over(self):
        """Though its spec is edited into nonsense: it is cleaned up and goes on time."""
        world = ran(cleanPodPolicy="All", ttlSecondsAfterFinished=30).end("mnist-worker-0")
        world.step()
        world.edit(tfReplicaSpecs={**world.job["spec"]["tfReplicaSpecs"], "Boss": {}}).settle()
        assert not world.reap().settle().names()
        assert world.status["state"] == "Succeeded"
        assert world.requeue == START + 30
        assert "TFJobFailedValidation" not in world.reasons()

    def test_the_group_is_told_of_once(self):
        """One pair of events reports the end of a group, and none where there is no group."""
        world = World(tfjob(Worker=1), backend=gang.SCHEDULER_PLUGINS).settle()
        world.end("mnist-worker-0").settle().settle()
        told = [(e.type, e.reason, e.message) for e in world.said if "PodGroup" in e.message]
        assert told == [
            ("Normal", "JobTerminated", "Job has been terminated. Deleting PodGroup"),
            ("Normal", "SuccessfulDeletePodGroup", "Deleted PodGroup: mnist"),
        ]
        world = World(tfjob(Worker=1)).settle().end("mnist-worker-0").settle()
        assert "JobTerminated" not in world.reasons()

    def test_failing_is_written_before_anything_is_cleaned(self):
        """A crash after the first write of the end must leave the pods as they are."""
        world = ran(cleanPodPolicy="All")
        world.edit(runPolicy={"activeDeadlineSeconds": 0, "cleanPodPolicy": "All"})
        first = [a for a in world.step() if isinstance(a, Delete | SetStatus)]
        assert [type(action) for action in first] == [SetStatus]
        assert not world.settle().reap().settle().names()


class TestTimeToLive:
    """ttlSecondsAfterFinished."""

    @pytest.mark.parametrize("ttl", [0, 30])
    def test_the_job_is_deleted_on_time(self, ttl):
        """The job's own deletion comes at completion + ttl, not earlier, however long it ran."""
        world = World(tfjob(policy={"ttlSecondsAfterFinished": ttl}, Worker=1)).settle()
        world.now = done = START + 100
        world.end("mnist-worker-0").step()
        if ttl:
            world.settle()
            assert world.requeue == done + ttl
            world.now = done + ttl - 1
            assert not [a for a in world.decide() if isinstance(a, Delete)]
            world.now = done + ttl
        (delete,) = [a for a in world.decide() if isinstance(a, Delete)]
        assert (delete.kind, delete.name, delete.uid) == ("TFJob", "mnist", "job-uid")
        world.step()
        assert world.said[-1].message == "Deleted job: mnist"

    def test_finished_mpijob_of_v1_is_deleted(self):
        """The TTL of v1 is that of the MPIJob, as with training-operator."""
        world = mpi_world("v1", policy={"ttlSecondsAfterFinished": 30})
        world.end("mnist-launcher").settle()
        assert world.requeue == START + 30
        world.now = START + 30
        (delete,) = [a for a in world.decide() if isinstance(a, Delete)]
        owner = "kubeflow.org/v1"
        assert (delete.api_version, delete.kind, delete.uid) == (owner, "MPIJob", "job-uid")

    def test_finished_mpijob_of_v2beta1_is_kept(self):
        """The TTL of v2beta1 is that of the launcher's batch Job, as with mpi-operator."""
        policy = {"ttlSecondsAfterFinished": 30}
        world = mpi_world("v2beta1", policy=policy)
        world.close().settle()
        assert world.objects["Job", "mnist-launcher"]["spec"].items() >= policy.items()
        assert world.requeue is None
        del world.objects["Job", "mnist-launcher"]
        world.now = START + 30
        assert not [a for a in world.decide() if isinstance(a, Delete | Create)]

    def test_not_while_suspended(self):
        """A finished job that is suspended stays."""
        policy = {"ttlSecondsAfterFinished": 0}
        world = World(tfjob(policy=policy, Worker=1)).settle().end("mnist-worker-0")
        world.step()
        suspended(world, suspend=True)
        assert not [a for a in world.decide() if isinstance(a, Delete) and a.kind == "TFJob"]

    def test_a_completion_time_that_is_missing_is_mended(self):
        """A job that ended under another operator without the time gets it, and its TTL."""
        world = World(tfjob(policy={"ttlSecondsAfterFinished": 10}, Worker=1)).settle()
        world.end("mnist-worker-0").step()
        del world.status["completionTime"]
        world.wait(5).settle()
        assert world.status["completionTime"] == edge.format_time(START)
        assert world.requeue == START + 10


class TestExitCodes:
    """restartPolicy against how a pod ended."""

    @pytest.mark.parametrize("code", [1, 2, 3, 127])
    def test_permanent(self, code):
        """Small codes end the job."""
        world = World(tfjob(Worker={"replicas": 2, "restartPolicy": "ExitCode"})).settle().start()
        world.end("mnist-worker-1", code).settle()
        assert world.conditions[-1] == "Failed T"

    @pytest.mark.parametrize("code", [128, 130, 137, 138, 139, 143, 255, None])
    def test_retryable(self, code):
        """Large codes, and ends without a code, replace the pod and count a restart."""
        world = World(tfjob(Worker={"replicas": 2, "restartPolicy": "ExitCode"})).run()
        world.end("mnist-worker-1", code)
        old = world.pod("mnist-worker-1")["metadata"]["uid"]
        world.step()
        assert world.conditions == ["Created T", "Restarting T"]
        world.settle()
        assert world.pod("mnist-worker-1")["metadata"]["uid"] != old
        assert world.conditions == ["Created T", "Running T"]
        assert world.status["replicaStatuses"]["Worker"] == {"active": 1, "restarts": 1}
        assert world.reasons().count("TFJobRestarting") == 1
        assert ("ExitCodeUnknown" in world.reasons()) is (code is None)

    @pytest.mark.parametrize(
        ("policy", "pod_policy"),
        [
            ("Always", "Always"),
            ("OnFailure", "OnFailure"),
            ("Never", "Never"),
            ("ExitCode", "Never"),
        ],
    )
    def test_the_pods_own_policy(self, policy, pod_policy):
        """The kubelet restarts no pod under ExitCode and no member of a gang that restarts."""
        world = World(tfjob(Worker={"replicas": 1, "restartPolicy": policy})).settle()
        assert world.pod("mnist-worker-0")["spec"]["restartPolicy"] == pod_policy
        world.job["metadata"]["annotations"] = {"muster.kubeflow.org/restart": "gang"}
        world.lose("mnist-worker-0").settle()
        assert world.pod("mnist-worker-0")["spec"]["restartPolicy"] == "Never"

    def test_a_refusal_of_the_kubelet_is_no_restart(self):
        """A pod that its node turned away is replaced, whatever the policy, and not counted."""
        world = World(tfjob(policy={"backoffLimit": 0}, Worker=2)).run()
        told = "OutOfcpu OutOfmemory OutOfpods OutOfnvidia.com/gpu NodeAffinity NodePorts NodeName"
        told += " TaintToleration NodeShutdown TopologyAffinityError InvalidNodeInfo"
        told += " VolumeAttachmentLimitExceeded UnexpectedAdmissionError"
        for reason in told.split():
            world.end("mnist-worker-1", None, reason=reason)
            old = world.pod("mnist-worker-1")["metadata"]["uid"]
            world.settle()
            world.now += 10  # it may be the same node
            world.settle()
            assert world.pod("mnist-worker-1")["metadata"]["uid"] != old
        assert world.conditions == ["Created T", "Running T"]
        assert world.status["replicaStatuses"]["Worker"] == {"active": 1}

    @pytest.mark.parametrize("begins", ["Pod was rejected: ", "Pod "])
    def test_a_pod_that_a_node_under_pressure_refused_never_ran(self, begins):
        """It says Evicted, as of one that ran; kubelets of all times say the condition beside."""
        world = World(tfjob(Worker=2)).settle().start("mnist-worker-0")
        world.end("mnist-worker-1", None, reason="Evicted")
        refused = world.pod("mnist-worker-1")
        refused["status"]["message"] = f"{begins}The node had condition: [DiskPressure]. "
        world.settle()
        assert world.pod("mnist-worker-1")["metadata"]["uid"] != refused["metadata"]["uid"]
        assert world.conditions == ["Created T", "Running T"]

    @pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
    def test_a_deleted_worker_is_replaced_and_nothing_fails(self, policy):
        """Deleting a running worker neither fails the job nor counts as a restart (M6)."""
        world = World(tfjob(Worker={"replicas": 2, "restartPolicy": policy})).run()
        doomed = world.pod("mnist-worker-0")["metadata"]
        doomed["deletionTimestamp"] = edge.format_time(START)
        world.settle()
        assert world.counts() == (1, 0, 0)
        world.end("mnist-worker-0", 143).settle().reap().settle()
        assert world.pod("mnist-worker-0")["metadata"]["uid"] != doomed["uid"]
        assert world.conditions == ["Created T", "Running T"]
        assert "restarts" not in world.status["replicaStatuses"]["Worker"]

    def test_a_gang_that_restarts_as_a_whole_rests_before_it_does_so_again(self):
        """At once after the first failure, then 10 s, 20 s, 40 s, up to 5 minutes.

        After ten minutes that went well it is as if it had never failed.
        """
        role = {"replicas": 2, "restartPolicy": "OnFailure"}
        world = World(tfjob(annotations={"muster.kubeflow.org/restart": "gang"}, Worker=role))
        world.settle()
        pauses = []
        for ran in (599.0,) * 8 + (600.0, 5.0):
            world.start().settle().wait(ran)
            failed = world.now
            world.end("mnist-worker-0", 1).settle().reap().settle()
            if not world.names():
                world.now = world.requeue - 1.0
                assert not world.settle().names()
                world.now = world.requeue
                world.settle()
            pauses.append(world.now - failed)
            assert len(world.names()) == 2
        assert pauses == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 0.0, 10.0]
        assert world.status["replicaStatuses"]["Worker"]["restarts"] == 10
        assert world.status["restartsInARow"] == 2
        world.edit(runPolicy={"suspend": True}).settle().edit(runPolicy={"suspend": False})
        assert "restartsInARow" not in world.settle().status

    def test_the_whole_gang_restarts_where_that_is_asked_for(self):
        """One member dies, all are replaced together, one restart counts."""
        world = World(
            tfjob(
                annotations={"muster.kubeflow.org/restart": "gang"},
                PS={"replicas": 1},
                Worker={"replicas": 3, "restartPolicy": "OnFailure"},
            )
        ).run()
        old = {pod["metadata"]["uid"] for pod in world.of("Pod")}
        world.end("mnist-worker-2", 1).settle().reap().settle()
        assert len(world.names()) == 4
        assert not old & {pod["metadata"]["uid"] for pod in world.of("Pod")}
        restarts = {t: r.get("restarts", 0) for t, r in world.status["replicaStatuses"].items()}
        assert restarts == {"PS": 0, "Worker": 1}
        assert world.conditions == ["Created T", "Restarting T"]
        world.start().settle()
        assert world.conditions == ["Created T", "Running T"]
