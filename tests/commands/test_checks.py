# SPDX-License-Identifier: Apache-2.0
"""What may be wrong with an installation: each check finds its fault, and nothing else."""

from dataclasses import replace

import pytest

from muster.api import names
from muster.cluster.nodes import NodeView
from muster.commands import checks
from muster.commands.checks import Deployment, Facts, Lease, Severity, Webhook
from muster.frameworks import FRAMEWORKS, load
from muster.kube.access import Access
from muster.settings import Settings
from support.builders.mpijobs import mpijob
from support.builders.objects import make_job

NOW = 1_000_000.0
EMBEDDED = "scheduling.incubator.k8s.io/v1alpha1"
SETTINGS = Settings(leader_elect=True, lock_namespace="muster-system", admission_bind=":9443")
OPERATOR = Deployment(
    namespace="muster-system",
    name="muster",
    labels=checks.DEPLOYMENT,
    images=("registry/muster:0.1.0",),
    arguments=("run",),
    replicas=2,
    ready=2,
    account="muster",
)
LEASE = Lease("muster-system", "muster", "pod-1", NOW - 2, 12.0)
NODE = NodeView("n1", {}, (), False, True, (False,) * 3, (("cpu", 4000), ("pods", 110)))
JOB = make_job(name="mnist")
HEALTHY = Facts(
    now=NOW,
    settings=SETTINGS,
    operator=OPERATOR,
    deployments=(OPERATOR,),
    lease=LEASE,
    crds={"tfjobs.kubeflow.org": ""},
    served=frozenset((EMBEDDED, kind) for kind in ("PodGroup", "Queue")),
    webhook=Webhook(("muster-system/muster-webhook",), 2, NOW - 1e5, NOW + 5e5),
    nodes=(NODE,),
    jobs=(JOB,),
    queues={"default": "Open"},
)
STOPPED = replace(OPERATOR, replicas=0, ready=0)
UNREADY = replace(OPERATOR, ready=0)
OTHER = replace(OPERATOR, namespace="kubeflow", name="other", labels={}, images=("a/other:1",))
TRAINING = replace(OTHER, images=("registry:5000/kubeflow/training-operator@sha256:0",))
BATCH = replace(OTHER, images=("kube-batch",))
SECOND = replace(OPERATOR, namespace="elsewhere")
VOLCANO = {"settings": replace(SETTINGS, gang="volcano"), "queues": {}}
KUBE_BATCH = {"settings": replace(SETTINGS, gang="kube-batch"), "jobs": ()}
ALONE = replace(SECOND, arguments=("scheduler", "--leader-elect"))
QUEUED = make_job(name="mnist", scheduling={"queue": "gold"})
MPIJOB = mpijob("v2beta1")
MPIJOB["metadata"]["annotations"] = {names.VOLCANO_QUEUE: "research"}
MPI = {"mpi": (Access("secrets", "", "create"),)}


def hook(**changed):
    """Return the webhook's facts with something changed."""
    return {"webhook": replace(HEALTHY.webhook, **changed)}


def lease(**changed):
    """Return the facts of another lease."""
    return {"lease": replace(LEASE, **changed)}


def alone(operator):
    """Return the facts where that is the operator."""
    return {"operator": operator, "deployments": (operator,)}


CASES = [
    ("operator", {"operator": None, "deployments": (), "lease": None}, "no operator is installed"),
    ("operator", alone(STOPPED), "scaled to 0"),
    ("operator", {**alone(UNREADY), "stuck": ("ErrImagePull: no such",)}, "ready: ErrImagePull"),
    ("operator", alone(replace(OPERATOR, ready=1)), "1 of 2 pods"),
    ("arguments", {"refuses": "unknown flag --gang"}, "does not start: unknown flag --gang"),
    ("leader", {"lease": None}, "nobody leads: lease muster in muster-system"),
    ("leader", lease(holder=""), "nobody leads"),
    ("leader", lease(renewed=NOW - 60), "nobody leads"),
    ("leader", lease(holder="evil_" * 100, runs=False), "muster in muster-system is held by"),
    (
        "operator",
        {"operator": None, "deployments": (), **lease(runs=False)},
        'is installed; "pod-1", who holds the lease muster in muster-system, is no pod there',
    ),
    ("leader", {"settings": replace(SETTINGS, leader_elect=False)}, "2 pods of muster-system"),
    ("other operators", {"deployments": (OPERATOR, TRAINING)}, "kubeflow/other handles the same"),
    ("other operators", {"deployments": (OPERATOR, SECOND)}, "a second operator, elsewhere/"),
    ("other operators", {"deployments": (OPERATOR, BATCH)}, "places the same pods"),
    ("other operators", {"deployments": (OPERATOR, ALONE)}, "places the same pods"),
    ("CRDs", {"crds": {"tfjobs.kubeflow.org": checks.ABSENT}}, "no CRD tfjobs.kubeflow.org"),
    ("CRDs", {"crds": {"tfjobs.kubeflow.org": "v1 is not served"}}, "v1 is not served"),
    ("permissions", {"missing": (Access("pods", "", "create"),)}, "are missing: create pods"),
    ("permissions", {"components": MPI}, "/mpi, and the operator may not create secrets"),
    ("gang scheduler's API", {"served": frozenset()}, "scheduler embedded is not served"),
    ("gang scheduler", VOLCANO, "no Deployment of volcano is ready: gangs"),
    ("gang scheduler", {**KUBE_BATCH, "deployments": (OPERATOR,)}, "no Deployment of kube-batch"),
    ("webhook", {"webhook": None}, "no configuration muster"),
    ("webhook", {"settings": replace(SETTINGS, admission_bind="0")}, "does not serve it"),
    ("webhook", hook(ready=0), "nobody is behind the service muster-system/muster-webhook"),
    ("certificate", hook(begins=0.0, ends=0.0), "no certificate"),
    ("certificate", hook(ends=NOW - 1), "has run out"),
    ("certificate", hook(ends=NOW + 3600), "ends in 1 h"),
    ("nodes", {"nodes": ()}, "there are no nodes"),
    ("nodes", {"nodes": (replace(NODE, ready=False),)}, "no node is ready"),
    ("nodes", {"nodes": (replace(NODE, unschedulable=True),)}, "are closed"),
    ("queues", {"jobs": (QUEUED,)}, "no queue gold"),
    ("queues", {**VOLCANO, "jobs": (load(FRAMEWORKS["MPIJob"], MPIJOB),)}, "no queue research"),
    ("queues", {"queues": {"default": "Closed"}}, "queue default, in which TFJob/team/mnist"),
]


def test_a_healthy_installation_has_no_findings():
    """Nor has one without an object of the default queue, which is implied, or a running guest.

    One outside of the cluster has no Deployment, and holds the lease. Where the scheduler runs
    alone in kube-batch's place, nobody else places those pods.
    """
    assert checks.findings(HEALTHY) == []
    assert checks.exit_code([]) == 0
    assert checks.findings(replace(HEALTHY, queues={}, deployments=(OPERATOR, OTHER))) == []
    for gang in ("none", "scheduler-plugins", "kube-batch", "kubernetes"):
        other = replace(HEALTHY, settings=replace(SETTINGS, gang=gang), jobs=(QUEUED,))
        assert "queues" not in {found.check for found in checks.findings(other)}
    assert checks.findings(replace(HEALTHY, operator=None, deployments=())) == []
    served = frozenset({(EMBEDDED, "PodGroup")})
    facts = replace(HEALTHY, **KUBE_BATCH, deployments=(OPERATOR, ALONE), served=served)
    assert checks.findings(facts) == []


@pytest.mark.parametrize(("check", "broken", "words"), CASES)
def test_each_fault_is_told_with_its_cure(check, broken, words):
    """By its own check, in one line."""
    found = {one.check: one for one in checks.findings(replace(HEALTHY, **broken))}
    assert words in found[check].what
    assert found[check].cure
    assert "\n" not in found[check].what + found[check].cure
    assert checks.exit_code(found.values()) in (1, 2)


def test_each_check_has_a_fault():
    """So that no row is there for nothing."""
    assert {check.name for check in checks.CHECKS} == {name for name, *_ in CASES}


@pytest.mark.parametrize(("check", "broken"), [case[:2] for case in CASES])
def test_what_was_not_read_is_told_and_nothing_concluded(check, broken):
    """With the cure that the reader names."""
    needs = next(each.needs for each in checks.CHECKS if each.name == check)
    facts = replace(HEALTHY, **broken, unread={needs[0]: "have a role grant you: list x"})
    found = checks.findings(facts)
    assert check not in {one.check for one in found}
    essential = any(each.essential for each in checks.CHECKS if needs[0] in each.needs)
    severity = Severity.ERROR if essential else Severity.UNKNOWN
    unknown = next(one for one in found if one.check == checks.UNREAD)
    assert unknown.severity is severity
    assert check in unknown.what
    assert unknown.cure == "have a role grant you: list x"


def test_the_worst_comes_first():
    """Then what nobody knows; errors decide the code."""
    broken = {"crds": {"x": checks.ABSENT}, "webhook": None, "unread": {"queues": "no"}}
    found = checks.findings(replace(HEALTHY, **broken))
    assert [one.severity for one in found] == ["error", "warning", "unknown"]
    assert checks.exit_code(found) == 2
    assert checks.exit_code(found[1:]) == 1
    assert checks.exit_code(found[2:]) == 0
