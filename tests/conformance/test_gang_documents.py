# SPDX-License-Identifier: Apache-2.0
"""The group documents, links and start-up rules of every backend, to the letter."""

import dataclasses

import pytest

from muster import gang
from support.builders.objects import make_group, make_job, make_replica, make_template

FACTS = gang.GangFacts(operator_name="tfjob-controller", priorities={"high": 1000})

METADATA = {
    "name": "mnist",
    "namespace": "team",
    "labels": {
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": "mnist",
    },
    "annotations": {"volcano.sh/queue-name": "q"},
    "ownerReferences": [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "name": "mnist",
            "uid": "job-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ],
}
BARE = {key: value for key, value in METADATA.items() if key != "annotations"}

SPECS = {
    "embedded": {
        "minMember": 3,
        "minResources": {"cpu": "5", "nvidia.com/gpu": "2"},
        "queue": "research",
        "priorityClassName": "high",
        "scheduleTimeoutSeconds": 90,
    },
    "volcano": {
        "minMember": 3,
        "minResources": {"cpu": "5", "nvidia.com/gpu": "2"},
        "queue": "research",
        "priorityClassName": "high",
    },
    "scheduler-plugins": {
        "minMember": 3,
        "minResources": {"cpu": "5", "nvidia.com/gpu": "2"},
        "scheduleTimeoutSeconds": 90,
    },
    "kube-batch": {"minMember": 3, "queue": "research", "priorityClassName": "high"},
    "kubernetes": {
        "workloadRef": {"workloadName": "mnist", "templateName": "gang"},
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "disruptionMode": {"all": {}},
        "priorityClassName": "high",
    },
}
API_VERSIONS = {
    "embedded": "scheduling.incubator.k8s.io/v1alpha1",
    "volcano": "scheduling.volcano.sh/v1beta1",
    "scheduler-plugins": "scheduling.x-k8s.io/v1alpha1",
    "kube-batch": "scheduling.incubator.k8s.io/v1alpha1",
    "kubernetes": "scheduling.k8s.io/v1beta1",
}


def full_job():
    """Return a job that sets everything a group can carry."""
    return make_job(
        replicas=[
            make_replica(type="PS", template=make_template(requests={"cpu": "1"})),
            make_replica(
                replicas=2,
                template=make_template(requests={"cpu": "2", "nvidia.com/gpu": 1}),
            ),
        ],
        scheduling={"queue": "research", "priority_class": "high", "schedule_timeout_seconds": 90},
        annotations={
            "volcano.sh/queue-name": "q",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    )


@pytest.mark.parametrize("name", SPECS)
def test_document(name):
    """The whole document: named, labelled and owned as the job, spec by the backend's table."""
    assert gang.BACKENDS[name].group(full_job(), FACTS) == {
        "apiVersion": API_VERSIONS[name],
        "kind": "PodGroup",
        "metadata": BARE if name == "kubernetes" else METADATA,
        "spec": SPECS[name],
    }


def test_document_of_a_plain_job():
    """A job that sets nothing still has its queue and its minimum, and no empty fields.

    Its queue is that of --default-queue. Backend none makes no group.
    """
    document = gang.EMBEDDED.group(make_job(), FACTS)
    assert document["spec"] == {"minMember": 2, "queue": "default"}
    assert document["metadata"] == BARE
    facts = gang.GangFacts(operator_name="tfjob-controller", default_queue="shared")
    assert gang.VOLCANO.group(make_job(), facts)["spec"]["queue"] == "shared"
    assert gang.NONE.group(full_job(), FACTS) is None


def test_kube_batch_speaks_what_the_cluster_serves():
    """The second PodGroup API has the same spec under another apiVersion."""
    facts = gang.GangFacts(
        operator_name="tfjob-controller",
        priorities={"high": 1},
        api_version="scheduling.sigs.dev/v1alpha2",
    )
    document = gang.KUBE_BATCH.group(full_job(), facts)
    assert document["apiVersion"] == "scheduling.sigs.dev/v1alpha2"
    assert document["spec"] == SPECS["kube-batch"]


def test_disruption_budget_in_place_of_a_group():
    """With --kube-batch-object=pdb the group is a PodDisruptionBudget over the job's pods."""
    backend = gang.choose("kube-batch", kube_batch_object="pdb")
    assert backend.group(full_job(), FACTS) == {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": METADATA,
        "spec": {"minAvailable": 3, "selector": {"matchLabels": METADATA["labels"]}},
    }


ALPHA = "scheduling.k8s.io/v1alpha2"


def test_native_group_of_kubernetes_1_36():
    """It names its template in another way, and what is preempted whole by a word."""
    document = gang.KUBERNETES.group(full_job(), dataclasses.replace(FACTS, api_version=ALPHA))
    assert document == {
        "apiVersion": ALPHA,
        "kind": "PodGroup",
        "metadata": BARE,
        "spec": {
            "podGroupTemplateRef": {
                "workload": {"workloadName": "mnist", "podGroupTemplateName": "gang"}
            },
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "disruptionMode": "PodGroup",
            "priorityClassName": "high",
        },
    }


@pytest.mark.parametrize(
    ("api_version", "whole"),
    [("", {"all": {}}), ("scheduling.k8s.io/v1beta1", {"all": {}}), (ALPHA, "PodGroup")],
)
def test_workload_stands_before_the_native_group(api_version, whole):
    """Kubernetes' PodGroup refers to a Workload that must exist first, of the same version."""
    facts = dataclasses.replace(FACTS, api_version=api_version)
    (workload,) = gang.KUBERNETES.before(full_job(), facts)
    assert workload == {
        "apiVersion": api_version or "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": BARE,
        "spec": {
            "controllerRef": {"apiGroup": "kubeflow.org", "kind": "TFJob", "name": "mnist"},
            "podGroupTemplates": [
                {
                    "name": "gang",
                    "schedulingPolicy": {"gang": {"minCount": 3}},
                    "disruptionMode": whole,
                    "priorityClassName": "high",
                }
            ],
        },
    }


GROUP_NAME = {"scheduling.k8s.io/group-name": "mnist"}
LINKS = {
    "none": gang.Link(),
    "embedded": gang.Link(annotations=GROUP_NAME, spec={"schedulerName": "muster"}),
    "volcano": gang.Link(
        annotations=GROUP_NAME | {"volcano.sh/task-spec": "worker"},
        spec={"schedulerName": "volcano"},
    ),
    "scheduler-plugins": gang.Link(labels={"scheduling.x-k8s.io/pod-group": "mnist"}),
    "kube-batch": gang.Link(annotations=GROUP_NAME, spec={"schedulerName": "kube-batch"}),
    "kubernetes": gang.Link(spec={"schedulingGroup": {"podGroupName": "mnist"}}),
}


@pytest.mark.parametrize("name", LINKS)
def test_link(name):
    """Each backend's mark on a pod, and its scheduler only for templates that name none."""
    job = make_job()
    assert gang.BACKENDS[name].link(job, job.replicas[0]) == LINKS[name]
    job = make_job(replicas=[make_replica(template=make_template(scheduler="mine"))])
    link = gang.BACKENDS[name].link(job, job.replicas[0])
    assert "schedulerName" not in link.spec
    assert (link.annotations, link.labels) == (LINKS[name].annotations, LINKS[name].labels)


def test_each_template_is_filled_by_itself():
    """One template with a scheduler does not keep the other from getting the backend's.

    A native gang needs one scheduler: with mixed names it would be refused whole.
    """
    job = make_job(
        replicas=[
            make_replica(type="PS", template=make_template(scheduler="mine")),
            make_replica(),
        ]
    )
    parameter_server, worker = (gang.VOLCANO.link(job, role) for role in job.replicas)
    assert "schedulerName" not in parameter_server.spec
    assert worker.spec == {"schedulerName": "volcano"}

    assert gang.KUBERNETES.link(job, job.replicas[1]) == gang.Link()


WAITS_WITHOUT_GROUP = {"volcano", "kubernetes"}


@pytest.mark.parametrize("name", LINKS)
def test_pods_before_the_group(name):
    """Only volcano and kubernetes hold pods back until the group is there."""
    assert gang.BACKENDS[name].may_create_pods(None) == (name not in WAITS_WITHOUT_GROUP)


@pytest.mark.parametrize(
    ("phase", "admitted"),
    [
        ("", False),
        ("Pending", False),
        ("Inqueue", True),
        ("Running", True),
        ("Unknown", True),
        ("Completed", True),
    ],
)
def test_volcano_admits_by_phase(phase, admitted):
    """Volcano wants to see no pods while the group is not in its queue."""
    group = make_group(api_version="scheduling.volcano.sh/v1beta1", phase=phase)
    assert gang.VOLCANO.may_create_pods(group) is admitted


@pytest.mark.parametrize("name", SPECS)
def test_no_pods_for_a_group_that_is_going(name):
    """Pods wait for the successor of a group that is deleted, except in the allocator inside."""
    backend, group = gang.BACKENDS[name], make_group(deleting=True, phase="Running")
    assert backend.may_create_pods(group) is backend.embedded
