# SPDX-License-Identifier: Apache-2.0
"""When MPIJobs of either sort are running, succeeded, failed, suspended."""

from pathlib import Path

import pytest
import yaml

from muster import gang
from muster.api import edge
from muster.frameworks import FRAMEWORKS, load, of
from support.apiserver.memory import World, copied
from support.builders.mpijobs import LAUNCHER, mpijob, role, world
from support.builders.mpijobs import led as led_by

PHASES = ("Pending", "Running", "Succeeded", "Failed")
TABLE = yaml.safe_load(Path(__file__).with_name("outcomes.yaml").read_text())["MPIJob v1"]
ROWS = [
    pytest.param(row, policy, id=f"{name}, {policy}")
    for name, row in TABLE.items()
    for policy in row["policies"]
]


def become(made, pod, state, code=137):
    """Bring a pod into a phase, or to an end without an exit code."""
    if state not in PHASES:
        made.end(pod, None, reason=state)
    elif state == "Failed":
        made.end(pod, code)
        made.pod(pod)["status"]["containerStatuses"][0]["name"] = "main"
    else:
        made.pod(pod)["status"] = {"phase": state}


@pytest.mark.parametrize(("row", "policy"), ROWS)
def test_the_table_of_v1(row, policy):
    """The launcher decides; an end has its time."""
    made = world("v1", launcher=role(policy=policy), worker=role(policy=policy))
    become(made, LAUNCHER, row["launcher"])
    for index, state in enumerate(row["workers"]):
        become(made, f"mnist-worker-{index}", state)
    made.step()
    assert made.conditions == ["Created T", *row["conditions"]]
    ended = row["conditions"][-1].startswith(("Succeeded", "Failed"))
    assert ("completionTime" in made.status) == ended


@pytest.mark.parametrize("clean", ["All", "Running"])
@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_l7_v7_the_message_of_an_eviction(version, clean):
    """How many of how many, under a reason of its own; and what still runs is cleaned up."""
    made = world(version, policy={"cleanPodPolicy": clean})
    if version == "v2beta1":
        made.launch()
    made.start().settle()
    become(made, "mnist-worker-1", "Evicted")
    made.settle().reap().settle()
    assert made.last == ("MPIJobEvicted", "1/2 workers are evicted")
    assert made.names() == (["mnist-worker-1"] if clean == "Running" else [])
    # The launcher's batch Job stays with the pods that have ended, and starts no other.
    assert [batch["spec"]["suspend"] for batch in made.of("Job")] == [True] * len(made.of("Job"))
    assert made.names("Job") == ([LAUNCHER] if version == "v2beta1" else [])


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_worker_that_its_node_refused_was_not_thrown_out(version):
    """It never ran, and is replaced; kubelet gives the same reason for both."""
    made = world(version)
    if version == "v2beta1":
        made.launch()
    made.start().end("mnist-worker-1", None, reason="Evicted")
    refused = made.pod("mnist-worker-1")
    refused["status"]["message"] = "Pod was rejected: The node had condition: [MemoryPressure]. "
    made.run()
    assert made.pod("mnist-worker-1")["metadata"]["uid"] != refused["metadata"]["uid"]
    assert made.conditions == ["Created T", "Running T"]


TEXTS = {
    "v1": (
        "MPIJob mnist is created.",
        "MPIJob mnist is running.",
        "MPIJob mnist is successfully completed.",
    ),
    "v2beta1": (
        "MPIJob team/mnist is created.",
        "MPIJob team/mnist is running.",
        "MPIJob team/mnist successfully completed.",
    ),
}


@pytest.mark.parametrize("version", TEXTS)
def test_messages_of_a_job_that_does_well(version):
    """As clients match on them."""
    made = world(version)
    leads = made.launch() if version == "v2beta1" else LAUNCHER
    made.start().settle()
    told = {c["type"]: c["message"] for c in made.status["conditions"]}
    if version == "v2beta1":
        made.close()
    made.end(leads).settle()
    told |= {c["type"]: c["message"] for c in made.status["conditions"]}
    assert tuple(told[key] for key in ("Created", "Running", "Succeeded")) == TEXTS[version]
    reasons = [c["reason"] for c in made.status["conditions"]]
    assert reasons == ["MPIJobCreated", "MPIJobRunning", "MPIJobSucceeded"]
    assert made.counts("Launcher") == (0, 1, 0)


def led(*workers, **fields):
    """Return a job of v2beta1 whose launcher's pod runs, with workers in these phases."""
    made = world("v2beta1", workers=len(workers) or None, **fields)
    made.launch()
    for index, state in enumerate(workers):
        become(made, f"mnist-worker-{index}", state)
    return made.settle()


@pytest.mark.parametrize(
    ("workers", "wanted"),
    [
        (["Running", "Running"], ["Created T", "Running T"]),
        ([], ["Created T", "Running T"]),
        (["Running", "Pending"], ["Created T"]),
    ],
)
def test_v1_v2_a_job_runs_when_all_its_pods_do(workers, wanted):
    """The launcher's among them."""
    assert led(*workers).conditions == wanted


def test_v3_the_launchers_success_is_the_jobs():
    """Whatever its workers do; it is over since the batch Job is, however late that is seen."""
    made = led("Running", "Running")
    become(made, "mnist-worker-0", "Failed")
    made.close()
    over = edge.format_time(made.now)
    made.wait(100).settle()
    assert made.conditions == ["Created T", "Running F", "Succeeded T"]
    assert made.status["completionTime"] == over


def test_v4_a_try_that_failed_is_counted():
    """And no more than that: the batch Job tries again."""
    made = led("Running", "Running")
    made.objects["Job", LAUNCHER]["status"] = {"failed": 1}
    made.pod(f"{LAUNCHER}-abcde")["status"] = {"phase": "Failed"}
    made.settle()
    assert made.conditions == ["Created T", "Running T"]
    assert made.counts("Launcher") == (0, 0, 1)
    made.launch(suffix="fghij")
    made.settle()
    assert made.counts("Launcher") == (1, 0, 1)


# What the batch Job says; reason and message of its last pod; what the job says.
LOST = "MPIJob team/mnist has failed"
FAILURES = [
    (("BackoffLimitExceeded", "too often"), ("", ""), ("BackoffLimitExceeded", "too often")),
    (
        ("BackoffLimitExceeded", "too often"),
        ("Evicted", "no memory"),
        ("BackoffLimitExceeded/Evicted", "too often: no memory"),
    ),
    (("DeadlineExceeded", "late"), ("Evicted", "x"), ("DeadlineExceeded", "late")),
    (("", ""), ("", ""), ("MPIJobFailed", LOST)),
    (("BackoffLimitExceeded", "m"), ("E", "x" * 2000), ("BackoffLimitExceeded/E", None)),
]


@pytest.mark.parametrize(("batch", "pod", "wanted"), FAILURES)
def test_v5_the_launchers_failure_is_the_jobs(batch, pod, wanted):
    """In the words of the batch Job, and of the last pod where it gave up."""
    made = led("Running", "Running")
    made.pod(f"{LAUNCHER}-abcde")["status"] = {
        "phase": "Failed",
        "reason": pod[0],
        "message": pod[1],
    }
    made.close(end="Failed", failed=7, reason=batch[0], message=batch[1]).settle()
    assert made.conditions == ["Created T", "Running F", "Failed T"]
    if wanted[1] is None:
        assert (made.last[0], len(made.last[1])) == (wanted[0], 1024)
        assert made.last[1].endswith("...")
    else:
        assert made.last == wanted
    assert made.counts("Launcher") == (0, 0, 7)


def test_v6_failed_worker_under_never_stays_and_is_counted():
    """The program decides whether to continue without the worker."""
    made = led("Running", "Running", worker=role(policy="Never"))
    failed = made.pod("mnist-worker-0")["metadata"]["uid"]
    become(made, "mnist-worker-0", "Failed")
    made.settle()
    assert made.conditions == ["Created T", "Running T"]
    assert made.counts("Worker") == (1, 0, 1)
    assert made.pod("mnist-worker-0")["metadata"]["uid"] == failed


@pytest.mark.parametrize(
    ("state", "condition", "restarts"),
    [("Failed", "Restarting T", {"restarts": 1}), ("Terminated", "Running T", {})],
)
def test_v6_failed_worker_under_on_failure_is_replaced(state, condition, restarts):
    """Only the failed pod: launcher and other workers keep theirs, and the job runs again.

    Only a failure of the program is a restart.
    """
    made = led("Running", "Running", worker=role(policy="OnFailure"))
    before = {name: o["metadata"]["uid"] for (_, name), o in made.objects.items()}
    become(made, "mnist-worker-0", state)
    made.settle()
    assert made.conditions == ["Created T", condition]
    after = {name: o["metadata"]["uid"] for (_, name), o in made.objects.items()}
    assert {name for name in before if after[name] != before[name]} == {"mnist-worker-0"}
    made.start("mnist-worker-0").settle()
    assert made.conditions == ["Created T", "Running T"]
    assert made.status["replicaStatuses"]["Worker"] == {
        "active": 2,
        **restarts,
        "selector": made.status["replicaStatuses"]["Worker"]["selector"],
    }


def test_v7_evicted_worker_under_on_failure_fails_the_job_without_a_restart():
    """An evicted worker ends the job under every restart policy."""
    made = led("Running", "Running", worker=role(policy="OnFailure"))
    become(made, "mnist-worker-0", "Evicted")
    made.settle()
    assert made.conditions == ["Created T", "Running F", "Failed T"]
    assert "restarts" not in made.status["replicaStatuses"]["Worker"]


def test_success_during_a_restart_keeps_the_job_from_being_reported_as_never_run():
    """Running was set before a worker was replaced, so no message says the contrary."""
    made = led("Running", "Running", worker=role(policy="OnFailure"))
    become(made, "mnist-worker-0", "Failed")
    made.settle().close().settle()
    assert made.conditions == ["Created T", "Restarting T", "Succeeded T"]


@pytest.mark.parametrize(
    ("policy", "code"), [("OnFailure", 137), ("Always", 137), ("ExitCode", 1)]
)
def test_l5_failed_launcher_of_v1_fails_the_job_without_a_restart(policy, code):
    """The counter follows what happens: no launcher is created again. The message names it."""
    made = world("v1", launcher=role(policy=policy))
    made.start().settle()
    become(made, LAUNCHER, "Failed", code)
    made.settle()
    message = 'job "mnist" is failing because "Launcher" replica(s) failed.'
    if code == 137:
        message = "MPIJob mnist is failed because 1 Launcher replica(s) failed."
    assert (made.status["state"], made.last) == ("Failed", ("MPIJobFailed", message))
    assert "restarts" not in made.status["replicaStatuses"]["Launcher"]
    # The metrics count transitions.
    assert [emit.transition for emit in made.said if emit.transition] == [
        "Created",
        "Running",
        "Failed",
    ]


def test_failed_launcher_of_v1_restarts_the_gang_if_the_job_asks_for_that():
    """Under OnFailure as well: all pods are created again."""
    made = World(led_by("v1", ("OnFailure", "OnFailure"), 2, None, True)).settle()
    made.start().settle()
    become(made, LAUNCHER, "Failed")
    assert made.settle().conditions == ["Created T", "Restarting T"]


def test_failed_worker_is_replaced_before_its_launcher_exists():
    """The launcher waits for the replacement."""
    made = world(
        "v2beta1",
        worker=role(policy="OnFailure"),
        launcherCreationPolicy="WaitForWorkersReady",
    )
    made.start("mnist-worker-0")
    become(made, "mnist-worker-1", "Failed")
    made.settle()
    assert "Failed T" not in made.conditions
    assert not made.of("Job")
    made.start().settle()
    assert made.of("Job")


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_worker_that_ends_before_its_launcher_is_there_ends_the_job(phase):
    """The launcher would wait for ever; a worker that its node turned away is made anew."""
    made = world("v2beta1", launcherCreationPolicy="WaitForWorkersReady")
    made.start("mnist-worker-0").end("mnist-worker-1", None, reason="OutOfcpu")
    assert made.settle().conditions == ["Created T"]
    become(made, "mnist-worker-1", phase)
    made.settle()
    assert made.conditions == ["Created T", "Running F", "Failed T"]
    assert made.status["conditions"][-1]["message"] == (
        "MPIJob team/mnist has failed because 1 Worker replica(s) ended before the launcher that "
        "waits for them."
    )
    assert not made.of("Job")


@pytest.mark.parametrize(("end", "last"), [("Complete", "Succeeded T"), ("Failed", "Failed T")])
def test_v8_an_end_without_having_run(end, last):
    """It is said that nobody saw it run."""
    made = world("v2beta1")
    made.close(end=end).wait(100).settle()
    assert made.conditions == ["Created T", "Running F", last]
    told = made.status["conditions"][1]
    over = made.status["completionTime"]
    assert told["lastUpdateTime"] == told["lastTransitionTime"] == over
    assert over == edge.format_time(made.now - (100 if end == "Complete" else 0))
    assert told["reason"] == "MPIJobRunning"
    assert told["message"] == (
        "MPIJob team/mnist is finished but Running condition was never set."
    )


def test_the_batch_job_keeps_to_the_limits_itself():
    """Restarts of workers do not count, and its deadline is its own."""
    made = led("Running", policy={"backoffLimit": 1, "activeDeadlineSeconds": 5})
    made.pod("mnist-worker-0")["status"]["containerStatuses"] = [
        {"name": "main", "restartCount": 9, "state": {"running": {}}}
    ]
    made.wait(60).settle()
    assert made.conditions == ["Created T", "Running T"]


CLEANED = {
    "None": [f"{LAUNCHER}-abcde", "mnist-worker-0", "mnist-worker-1"],
    "Running": [f"{LAUNCHER}-abcde"],
    "All": [f"{LAUNCHER}-abcde"],
}


@pytest.mark.parametrize("policy", CLEANED)
def test_clean_up_of_v2beta1(policy):
    """The launcher's batch Job and its logs stay, and so does what pods need."""
    made = led("Running", "Running", policy={"cleanPodPolicy": policy})
    made.pod(f"{LAUNCHER}-abcde")["status"] = {"phase": "Succeeded"}
    made.close().settle().reap().settle()
    assert made.names() == CLEANED[policy]
    assert made.names("Job") == [LAUNCHER]
    assert made.names("Secret") == ["mnist-ssh"]


def test_a_suspended_job_of_v2beta1_has_everything_but_pods():
    """Its launcher is held back; conditions in the order that its users know."""
    made = world("v2beta1", policy={"suspend": True})
    assert made.objects["Job", LAUNCHER]["spec"]["suspend"] is True
    assert made.names() == []
    assert made.names("Secret") == ["mnist-ssh"]
    assert made.conditions == ["Created T", "Suspended T", "Running F"]
    messages = [c["message"] for c in made.status["conditions"]]
    assert messages[1:] == ["MPIJob suspended", "MPIJob team/mnist is suspended."]
    assert made.status["state"] == "Suspended"


def test_suspend_and_resume_of_v2beta1():
    """All pods go; on resumption the launcher is as its template says by then."""
    made = led("Running", "Running")
    made.edit(runPolicy={"suspend": True}).settle().reap().settle()
    assert made.names() == []
    assert made.objects["Job", LAUNCHER]["spec"]["suspend"] is True
    assert made.conditions == ["Created T", "Suspended T", "Running F"]
    assert made.counts("Worker") == made.counts("Launcher") == (0, 0, 0)
    held = made.objects["Job", LAUNCHER]
    held["status"] = {"startTime": "2020-01-01T00:00:00Z"}
    leads = made.job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
    leads["spec"]["nodeSelector"] = {"zone": "a"}
    leads["spec"]["tolerations"] = [{"key": "spot"}]
    leads["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    leads["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": "w"}
    leads["metadata"]["labels"] = {"kueue.x-k8s.io/podset": "launcher"}
    made.edit(runPolicy={"suspend": False}).settle()
    batch = made.objects["Job", LAUNCHER]
    assert batch is held
    assert batch["spec"]["suspend"] is False
    template = batch["spec"]["template"]
    for field in ("nodeSelector", "tolerations", "schedulingGates"):
        assert template["spec"][field] == leads["spec"][field]
    assert template["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": "w"}
    assert template["metadata"]["labels"].items() >= leads["metadata"]["labels"].items()
    assert "startTime" not in batch["status"]
    assert made.conditions == ["Created T", "Running F", "Suspended F"]
    assert made.status["conditions"][-1]["message"] == "MPIJob resumed"
    made.launch(suffix="fghij")
    made.start().settle()
    assert made.conditions == ["Created T", "Suspended F", "Running T"]


@pytest.mark.parametrize("scheduler", ["embedded", "none"])
def test_resumed_job_of_v2beta1_waits_for_the_end_of_its_launcher(scheduler):
    """A pod of the last run that is still terminating is no launcher of the new one."""
    workers, pod = [f"mnist-worker-{i}" for i in range(2)], f"{LAUNCHER}-abcde"
    made = world("v2beta1", backend=gang.choose(scheduler))
    if scheduler == "embedded":
        made.give(placements=dict.fromkeys((LAUNCHER, *workers), "n1"))
    made.settle().launch()
    made.run()
    terminating = made.terminate(pod).pod(pod)
    made.edit(runPolicy={"suspend": True}).settle().reap()
    made.objects["Pod", pod] = terminating
    made.edit(runPolicy={"suspend": False}).settle()
    assert made.objects["Job", LAUNCHER]["spec"]["suspend"] is True
    if scheduler == "embedded":
        assert made.names() == [pod]
        assert made.status["gang"]["reason"] == "NamesInUse"
    made.start(*({*made.names()} - {pod})).settle()
    assert made.status["state"] != "Running"
    made.lose(pod).settle()
    assert made.objects["Job", LAUNCHER]["spec"]["suspend"] is False
    assert made.names() == workers


@pytest.mark.parametrize("after", [{"zone": "b"}, {"rack": "7", "zone": "b"}, {}])
def test_a_resumed_launcher_goes_where_its_template_says_by_then(after):
    """And nowhere that only an earlier one has said."""
    made = world("v2beta1", launcher=role(nodeSelector={"flavor": "spot", "zone": "a"}))
    made.edit(runPolicy={"suspend": True}).settle()
    leads = made.job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
    leads["spec"]["nodeSelector"] = after
    made.edit(runPolicy={"suspend": False}).settle()
    spec = made.objects["Job", LAUNCHER]["spec"]["template"]["spec"]
    assert spec.get("nodeSelector", {}) == after


def test_a_launcher_that_another_gang_scheduler_was_to_place_is_made_anew_on_resumption():
    """Its batch Job cannot be given another one, and its pod would wait for ever."""
    made = world("v2beta1")
    made.edit(runPolicy={"suspend": True}).settle()
    held = made.objects["Job", LAUNCHER]
    held["spec"]["template"]["spec"]["schedulerName"] = "volcano"
    made.settle()
    assert made.objects["Job", LAUNCHER] is held, "as long as it is suspended it does no harm"
    made.edit(runPolicy={"suspend": False}).settle()
    batch = made.objects["Job", LAUNCHER]
    assert batch["metadata"]["uid"] != held["metadata"]["uid"]
    assert not batch["spec"].get("suspend")
    assert "schedulerName" not in batch["spec"]["template"]["spec"]


def test_a_resumed_launcher_still_waits_for_its_workers():
    """For those that are wanted, not for those that happen to be there.

    One that waits makes no launcher while it is suspended.
    """
    policy = {"launcherCreationPolicy": "WaitForWorkersReady"}
    made = world("v2beta1", **policy)
    made.start().settle()
    made.launch()
    made.edit(runPolicy={"suspend": True}).settle().reap().settle()
    made.edit(runPolicy={"suspend": False}).settle()
    assert made.objects["Job", LAUNCHER]["spec"]["suspend"] is True
    made.start().settle()
    assert made.objects["Job", LAUNCHER]["spec"]["suspend"] is False
    assert world("v2beta1", policy={"suspend": True}, **policy).names("Job") == []


@pytest.mark.parametrize(
    ("version", "kept", "wanted"),
    [
        ("v1", None, "kubeflow.org/v1"), ("v2beta1", None, "kubeflow.org/v2beta1"),
        ("v2beta1", "v1", "kubeflow.org/v1"), ("v1", "v2beta1", "kubeflow.org/v2beta1"),
        ("v1", ["?"], "kubeflow.org/v1"), ("v2beta1", ["?"], "kubeflow.org/v2beta1"),
    ],
)  # fmt: skip
def test_which_of_the_two_a_job_is(version, kept, wanted):
    """As it came, and as its status keeps it whatever a client adds later."""
    document = mpijob(version)
    if kept:
        document["status"] = {"mpiVersion": kept}
    job = load(FRAMEWORKS["MPIJob"], document)
    assert job.api_version == of(job).api_version == wanted


OWNED = {"f:spec": {"f:mpiReplicaSpecs": {".": {}, "f:Worker": {}}}}
CHOSEN = {"f:spec": {**OWNED["f:spec"], "f:mpiVersion": {}}}
APPLIED = {"f:spec": {"f:mpiReplicaSpecs": {"f:Worker": {"f:template": {"f:spec": {
    "f:containers": {'k:{"name":"mpi"}': {".": {}, "f:image": {}}}}}}}}}  # fmt: skip
PATCHED = {"f:spec": {"f:mpiReplicaSpecs": {"f:Worker": {"f:replicas": {}}}}}
NEW, OLD = "kubeflow.org/v2beta1", "kubeflow.org/v1"


def entry(version, fields, operation="Update", **more):
    """Return an entry of managedFields."""
    return {"apiVersion": version, "fieldsV1": fields, "operation": operation, **more}


@pytest.mark.parametrize(
    ("field", "implementation", "managed", "operators", "wanted"),
    [
        ("v1", None, (), (), OLD),
        ("v2beta1", None, (), (), NEW),
        ("v2beta1", "OpenMPI", (entry(OLD, OWNED),), (), NEW),
        # A job of v1 that a webhook of v2beta1 has seen.
        ("v1", "OpenMPI", (entry(OLD, OWNED),), (), OLD),
        # One of v2beta1 that was stored before the field existed.
        ("v1", "OpenMPI", (entry(NEW, OWNED),), (), NEW),
        ("v1", "OpenMPI", (entry(NEW, APPLIED, "Apply"),), (), NEW),
        # One of v2beta1 whose author chose v1.
        ("v1", "OpenMPI", (entry(NEW, CHOSEN),), (), OLD),
        ("v1", "OpenMPI", (entry(NEW, OWNED), entry(OLD, PATCHED)), (), NEW),
        ("v1", "OpenMPI", (), ("mpi-operator",), NEW),
        ("v1", None, (entry(NEW, OWNED),), ("mpi-operator",), OLD),
        ("v1", "OpenMPI", (), ("mpijob-controller",), OLD),
        ("v1", "OpenMPI", (), (), OLD),
        # Another client may change a job through any version.
        ("v1", "OpenMPI", (entry(OLD, OWNED), entry(NEW, PATCHED)), (), OLD),
        ("v1", "OpenMPI", (entry(OLD, APPLIED, "Apply"), entry(NEW, PATCHED)), (), OLD),
        ("v1", "OpenMPI", (entry(OLD, OWNED), entry(NEW, PATCHED, "Apply")), (), OLD),
        ("v1", "OpenMPI", (entry(OLD, APPLIED, "Apply"), entry(NEW, PATCHED, "Apply")), (), OLD),
        ("v1", "OpenMPI", (entry(NEW, APPLIED, "Apply"), entry(OLD, PATCHED, "Apply")), (), NEW),
        ("v1", "OpenMPI", (entry(NEW, PATCHED),), (), NEW),
        ("v1", "OpenMPI", (entry(NEW, {"f:spec": {"f:runPolicy": {}}}),), (), OLD),
        ("v1", "OpenMPI", (entry(NEW, OWNED, subresource="status"),), (), OLD),
        # CRDs of others have no such field; only v2beta1 of theirs has an implementation.
        (None, "OpenMPI", (), (), NEW),
        (None, None, (), (), OLD),
        ("v1", "OpenMPI", ("?", {"fieldsV1": 5, "apiVersion": NEW}), (), OLD),
    ],
)
def test_version_of_mpijob_without_status(field, implementation, managed, operators, wanted):
    """The field decides, except where the API server may have filled it in for a stored job."""
    document = mpijob("v1")
    given = {"mpiVersion": field, "mpiImplementation": implementation}
    document["spec"] |= given
    document["metadata"]["managedFields"] = list(managed)
    job = load(FRAMEWORKS["MPIJob"], document, operators=operators)
    assert job.api_version == of(job).api_version == wanted


def edited(made, role="Launcher", **container):
    """Change fields of the role's container."""
    specs = made.job["spec"]["mpiReplicaSpecs"]
    template = copied(specs[role]["template"])
    template["spec"]["containers"][0] |= container
    made.edit(mpiReplicaSpecs={**specs, role: {**specs[role], "template": template}})


@pytest.mark.parametrize("ran", [False, True])
def test_suspended_launcher_with_changed_template_is_recreated(ran):
    """A batch Job keeps its template, except for what resuming copies."""
    made = world("v2beta1", policy={} if ran else {"suspend": True})
    if ran:
        made.launch()
        made.settle().edit(runPolicy={"suspend": True}).settle().reap()
    edited(made, image="new")
    before = made.objects["Job", LAUNCHER]
    made.edit(runPolicy={"suspend": False}).settle()
    batch = made.objects["Job", LAUNCHER]
    assert batch["metadata"]["uid"] != before["metadata"]["uid"]
    assert batch["spec"]["template"]["spec"]["containers"][0]["image"] == "new"
    assert not batch["spec"].get("suspend")


def test_suspended_launcher_with_pods_is_resumed_as_it_is():
    """Its failed pods, and their logs, belong to it."""
    made = world("v2beta1")
    pod = made.launch(phase="Failed")
    made.settle()
    failed = made.pod(pod)
    made.edit(runPolicy={"suspend": True}).settle()
    made.objects["Pod", pod] = failed  # a batch Job keeps the pods that have ended
    edited(made, image="new")
    before = made.objects["Job", LAUNCHER]["metadata"]["uid"]
    made.edit(runPolicy={"suspend": False}).settle()
    assert made.objects["Job", LAUNCHER]["metadata"]["uid"] == before
