# SPDX-License-Identifier: Apache-2.0
"""The HorizontalPodAutoscaler of an elastic job: from its creation to its end."""

import pytest

from muster import gang
from muster.controller.model import Create, Delete, Patch, Refusal
from support.apiserver.memory import START, World, of_kind

CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
AMOUNT = {
    "type": "Pods",
    "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1000m"}},
}
KEY = "HorizontalPodAutoscaler", "mnist"
KINDS = pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])


def scaled(kind="PyTorchJob", metrics=(CPU,), **policy):
    """Return a job of two workers with these metrics."""
    elastic = {"minReplicas": 1, "maxReplicas": 4, "metrics": list(metrics), **policy}
    return of_kind(kind, Worker=2, spec={"elasticPolicy": elastic})


def autoscaler_writes(actions):
    """Return what was done to autoscalers."""
    return [
        action
        for action in actions
        if (isinstance(action, Create) and action.doc["kind"] == KEY[0])
        or (isinstance(action, Delete | Patch) and action.kind == KEY[0])
    ]


@KINDS
def test_to_the_letter(kind):
    """Named, labelled and owned as everything of the job; an orphan is adopted."""
    world = World(scaled(kind)).settle()
    made = world.objects[KEY]
    assert made["apiVersion"] == "autoscaling/v2"
    assert made["metadata"]["namespace"] == "team"
    assert made["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": f"{kind.lower()}-controller",
        "training.kubeflow.org/job-name": "mnist",
    }
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == (kind, True)
    assert made["spec"] == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": "mnist"},
        "minReplicas": 1,
        "maxReplicas": 4,
        "metrics": [CPU],
    }
    del made["metadata"]["ownerReferences"]
    assert world.settle().objects[KEY]["metadata"]["ownerReferences"] == [owner]


@KINDS
def test_no_metrics_no_autoscaler(kind):
    """An elastic policy alone asks for none, nor does a job without one."""
    for spec in ({}, {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}):
        assert not World(of_kind(kind, Worker=2, spec=spec)).settle().of(KEY[0])


def test_what_is_not_given_is_that_of_the_policy_or_of_the_server():
    """Bounds are the number of nodes, and the server's metric is not taken away in every pass."""
    world = World(scaled(metrics=(), minReplicas=None, maxReplicas=None)).settle()
    spec = world.objects[KEY]["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 2)
    spec["metrics"] = [CPU]
    assert autoscaler_writes(world.step()) == []


def test_a_change_of_the_policy_is_carried_over():
    """In place; what the server adds and how it spells amounts is no difference."""
    world = World(scaled(metrics=(AMOUNT,))).settle()
    stored = world.objects[KEY]["spec"]
    stored["metrics"][0]["pods"]["target"]["averageValue"] = "1"
    stored["behavior"] = {"scaleUp": {"selectPolicy": "Max"}}
    assert autoscaler_writes(world.step()) == []
    world.edit(elasticPolicy={"minReplicas": 1, "maxReplicas": 5, "metrics": [AMOUNT]})
    (patch,) = autoscaler_writes(world.step())
    assert isinstance(patch, Patch)
    world.settle()
    assert world.objects[KEY]["spec"]["maxReplicas"] == 5
    assert world.objects[KEY]["spec"]["behavior"]


@pytest.mark.parametrize(
    "change",
    [{"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}, {"runPolicy": {"suspend": True}}],
    ids=["metrics taken out", "suspended"],
)
def test_it_goes_with_its_reason(change):
    """Once the metrics are taken out, and while the job is suspended."""
    world = World(scaled()).settle().edit(**change)
    assert not world.settle().of(KEY[0])


@pytest.mark.parametrize("code", [0, 1])
def test_a_finished_job_is_not_scaled_any_more(code):
    """Whether it ended well or badly, also when its pods are kept."""
    document = scaled()
    document["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    world = World(document).settle()
    for name in world.names():
        world.end(name, code)
    world.settle()
    assert world.status["completionTime"]
    assert len(world.names()) == 2
    assert not world.of(KEY[0])


HPA_REFUSED = Refusal("HorizontalPodAutoscaler", "mnist", "Invalid", "no metrics", START + 300)


def test_refused_autoscaler_keeps_nothing_else_from_being_created():
    """The gang runs with its services, and only the autoscaler waits for the next attempt."""
    world = World(scaled()).give(autoscaler_refusal=HPA_REFUSED).settle()
    assert len(world.names()) == len(world.names("Service")) == 2
    assert "FailedCreateHorizontalPodAutoscaler" in world.reasons()
    world.start().settle()
    assert (world.status["state"], world.status.get("reason", "")) == ("Running", "")
    assert not world.of(KEY[0])
    assert world.requeue == START + 300
    world.now = START + 300
    assert world.settle().of(KEY[0])


def test_refused_autoscaler_leaves_the_refusal_of_another_object():
    """State and reason are those of the other object, whichever was refused last."""
    world = World(scaled(), backend=gang.VOLCANO)
    text = 'PodGroup "mnist" is invalid: spec.queue'
    refused = Refusal("PodGroup", "mnist", "Invalid", text, START + 10)
    world.give(autoscaler_refusal=HPA_REFUSED, refusal=refused).settle()
    assert (world.status["state"], world.status["reason"]) == ("Blocked", text)
    assert not world.names()
    assert world.requeue == START + 10


def test_somebody_elses_autoscaler_blocks():
    """Two that scale one job would quarrel; the job says which object is in its way."""
    world = World(scaled())
    world.objects[KEY] = {
        "apiVersion": "autoscaling/v2",
        "kind": KEY[0],
        "metadata": {"name": "mnist", "namespace": "team", "uid": "theirs", "labels": {}},
        "spec": {},
    }
    world.settle()
    assert world.status["state"] == "Blocked"
    assert '"mnist" of Kind "HorizontalPodAutoscaler"' in world.status["reason"]
    assert not world.names()
    assert len(world.edit(elasticPolicy=None).settle().names()) == 2
    assert world.objects[KEY]["metadata"]["uid"] == "theirs"
