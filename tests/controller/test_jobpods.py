# SPDX-License-Identifier: Apache-2.0
"""Which failed pods are replaced: one rule, by which the controller and the allocator go."""

from dataclasses import replace

import pytest

from muster.api.model import ContainerEnd
from muster.controller import jobpods
from muster.controller.jobpods import PodFate
from muster.frameworks import FRAMEWORKS, load, of
from muster.store import parse
from support.apiserver.memory import World, tfjob
from support.builders.mpijobs import LAUNCHER, SECRETS, mpijob, role
from support.builders.objects import make_pod

POLICIES = ("Always", "ExitCode", "Never", "OnFailure")
RESTARTS = ("Always", "OnFailure")
DYNAMIC = {"enableDynamicWorker": True}
PRESSURE = "Pod was rejected: The node had condition: [MemoryPressure]. "
ENDS = {
    "exit 1": {"code": 1},
    "exit 137": {"code": 137},
    "node shutdown": {"code": 1, "reason": "Terminated"},
    "evicted": {"reason": "Evicted"},
    "refused": {"reason": "OutOfcpu"},
    "refused for a feature": {"reason": "SysctlForbidden"},
    "refused under pressure": {"reason": "Evicted", "message": PRESSURE},
}
REFUSED = ("refused", "refused for a feature", "refused under pressure")


def is_wanted(name, kind, policy, end):
    """Return whether the contract wants a replacement."""
    if end in REFUSED:
        return True
    if name == LAUNCHER:
        return policy == "ExitCode" and end != "exit 1"
    if kind.startswith("MPIJob") and end == "evicted":
        return False
    return policy in RESTARTS or (policy == "ExitCode" and end != "exit 1")


def document(kind, policy):
    """Return a job of that kind whose roles have that restart policy."""
    if kind.startswith("MPIJob"):
        roles = {"launcher": role(policy=policy), "worker": role(policy=policy)}
        return mpijob(kind.removeprefix("MPIJob "), **roles)
    spec = DYNAMIC if kind == "TFJob dynamic" else {}
    return tfjob(Worker={"replicas": 2, "restartPolicy": policy}, spec=spec)


CASES = [
    pytest.param(name, kind, policy, end, id=f"{kind} {name}, {policy}, {end}")
    for kind, names in {
        "TFJob": ("mnist-worker-0",),
        "TFJob dynamic": ("mnist-worker-0",),
        "MPIJob v1": (LAUNCHER, "mnist-worker-0"),
        "MPIJob v2beta1": ("mnist-worker-0",),
    }.items()
    for name in names
    for policy in POLICIES
    for end in ENDS
    if kind != "MPIJob v2beta1" or policy in ("Never", "OnFailure")
]


def failed(made, name, *, code=None, reason="", message=""):
    """Let the pod of that name fail; return the job, its replica and the pod."""
    made.end(name, code, reason=reason)
    made.pod(name)["status"]["message"] = message
    job = load(made.framework, made.job)
    pods = {view.name: view for view in map(parse.pod, made.of("Pod"))}
    return job, next(r for r in job.replicas if r.role in name), pods


@pytest.mark.parametrize(("name", "kind", "policy", "end"), CASES)
def test_failed_pod_is_replaced_by_policy(name, kind, policy, end):
    """A refused pod always; else by the restart policy, unless the job fails with the pod."""
    made = World(document(kind, policy), secrets=SECRETS).settle()
    job, replica, pods = failed(made, name, **ENDS[end])
    replaced = jobpods.is_replaced(job, of(job), replica, pods[name])
    assert replaced is is_wanted(name, kind, policy, end)
    left = {} if replaced else {replica.role: {name}}
    assert jobpods.unreplaced(job, of(job), pods) == left
    (member,) = (
        m for m in jobpods.job_pods(made.observe(), of(job)).members if m.pod.name == name
    )
    replacing = (PodFate.LOST, PodFate.RESTARTS)
    assert (member.fate in replacing) is replaced


DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}


@pytest.mark.parametrize("policy", RESTARTS)
@pytest.mark.parametrize(
    ("reason", "conditions", "counts"),
    [
        ("Terminated", (), False),
        ("NodeShutdown", (), False),
        ("Preempting", (), False),
        ("Evicted", (), True),
        ("Evicted", (DISRUPTED,), False),
        ("Evicted", ({**DISRUPTED, "status": "False"},), True),
        ("", (DISRUPTED,), False),
        ("DeadlineExceeded", (), True),
        ("", (), True),
    ],
)
def test_only_failures_of_the_program_count_as_restarts(policy, reason, conditions, counts):
    """A node that shuts down or lacks resources costs a job nothing of its backoffLimit."""
    document = tfjob(Worker={"replicas": 2, "restartPolicy": policy}, policy={"backoffLimit": 2})
    made = World(document).settle()
    for _ in range(2):
        made.start().settle().end("mnist-worker-1", None, reason=reason)
        made.pod("mnist-worker-1")["status"]["conditions"] = list(conditions)
        failed_uid = made.pod("mnist-worker-1")["metadata"]["uid"]
        made.settle()
        made.now += 300  # the longest back-off
        made.settle()
        assert made.pod("mnist-worker-1")["metadata"]["uid"] != failed_uid or counts
    assert ("Failed T" in made.conditions) is counts
    assert made.status["replicaStatuses"]["Worker"].get("restarts", 0) == (2 if counts else 0)


def test_disruption_under_never_fails_the_job():
    """The author's policy forbids a replacement, whatever ended the pod."""
    made = World(tfjob(Worker=2)).run().end("mnist-worker-1", None, reason="Terminated").settle()
    assert "Failed T" in made.conditions


@pytest.mark.parametrize("change", [{"deleting": True}, {"lost": True}, {"fenced": True}])
def test_failed_pod_that_goes_is_not_counted(change):
    """The replica of a deleted or lost pod is filled again, whatever the restart policy."""
    made = World(tfjob(Worker=2)).settle()
    job, _, pods = failed(made, "mnist-worker-0", code=1)
    gone = {**pods, "mnist-worker-0": replace(pods["mnist-worker-0"], **change)}
    assert not jobpods.unreplaced(job, of(job), gone)


def test_failed_pod_of_a_batch_job_is_replaced():
    """The batch Job creates the next launcher pod, up to its own limit."""
    job = load(FRAMEWORKS["MPIJob"], mpijob("v2beta1", launcher=role(policy="Never")))
    launcher = job.replica("Launcher")
    assert launcher.batch
    pod = make_pod(name="x", phase="Failed", ends=(ContainerEnd("main", 1, "", ""),))
    assert jobpods.is_replaced(job, of(job), launcher, pod)
