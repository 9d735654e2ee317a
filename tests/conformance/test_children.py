# SPDX-License-Identifier: Apache-2.0
"""What a job creates: names, labels, owners, ports, environment, config."""

import pytest

from muster import gang
from muster.api import names
from muster.controller.model import Create, Patch
from support.apiserver.memory import World, of_kind, tfjob

OWNER = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "name": "mnist",
    "uid": "job-uid",
    "controller": True,
    "blockOwnerDeletion": True,
}
IDENTITY = {
    "training.kubeflow.org/operator-name": "tfjob-controller",
    "training.kubeflow.org/job-name": "mnist",
}


def role_of(container=None, replicas=1, metadata=None, **spec):
    """Return a role whose framework container has these fields beside name and image."""
    first = {"name": "tensorflow", "image": "train:1", **(container or {})}
    template = {"spec": {"containers": [first], **spec}}
    if metadata:
        template["metadata"] = metadata
    return {"replicas": replicas, "template": template}


def test_a_pod_and_its_service_to_the_letter():
    """The service is headless, named and labelled as its pod but for the master's role."""
    world = World(tfjob(Worker=1)).settle()
    pod = world.pod("mnist-worker-0")
    del pod["metadata"]["uid"], pod["metadata"]["creationTimestamp"]
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "mnist-worker-0",
            "namespace": "team",
            "labels": {
                **IDENTITY,
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": "0",
                "training.kubeflow.org/job-role": "master",
            },
            "ownerReferences": [OWNER],
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "tensorflow",
                    "image": "train:1",
                    "ports": [{"name": "tfjob-port", "containerPort": 2222}],
                }
            ],
        },
    }
    service = world.objects["Service", "mnist-worker-0"]
    del service["metadata"]["uid"], service["metadata"]["creationTimestamp"]
    found = {
        **IDENTITY,
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    }
    assert service == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "mnist-worker-0",
            "namespace": "team",
            "labels": found,
            "ownerReferences": [OWNER],
        },
        "spec": {
            "clusterIP": "None",
            "selector": found,
            "ports": [{"name": "tfjob-port", "port": 2222}],
        },
    }


def test_the_template_is_copied_and_never_changed():
    """Labels give way to ours, the rest is verbatim; the job's document stays as it was.

    Finalizers are left out: nobody is there to take them away from a pod.
    """
    metadata = {
        "name": "ignored",
        "labels": {"team": "a", names.JOB_NAME: "stolen"},
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"},
        "finalizers": ["example.org/f"],
    }
    role = role_of(
        metadata=metadata,
        schedulingGates=[{"name": "kueue.x-k8s.io/topology"}],
        tolerations=[{"key": "gpu"}],
        restartPolicy="OnFailure",
    )
    world = World(tfjob(Worker=role), backend=gang.VOLCANO)
    before = repr(world.job["spec"])
    world.settle()
    world.objects["PodGroup", "mnist"]["status"] = {"phase": "Inqueue"}
    pod = world.settle().pod("mnist-worker-0")
    assert repr(world.job["spec"]) == before
    assert pod["metadata"]["name"] == "mnist-worker-0"
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"][names.JOB_NAME] == "mnist"
    assert "finalizers" not in pod["metadata"]
    (said,) = (e.message for e in world.said if e.reason == "FinalizersIgnored")
    assert said.startswith("spec.tfReplicaSpecs[Worker].template.metadata.finalizers is ignored")
    assert pod["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-required-topology": "rack",
        "scheduling.k8s.io/group-name": "mnist",
        "volcano.sh/task-spec": "worker",
    }
    assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert pod["spec"]["tolerations"] == [{"key": "gpu"}]
    assert pod["spec"]["restartPolicy"] == "Never"
    told = [(e.type, e.message) for e in world.said if e.reason == "SetPodTemplateRestartPolicy"]
    text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
    assert told == [("Warning", text)]


def test_framework_environment_comes_first_and_wins():
    """A variable of the framework replaces the template's, only in the framework's container."""
    mine = [{"name": "TF_CONFIG", "value": "mine"}, {"name": "A", "value": "$(B)"}]
    role = role_of({"env": mine}, replicas=2)
    role["template"]["spec"]["containers"] += [
        {"name": "sidecar", "image": "i", "env": mine},
        {"name": "tensorflow", "image": "twin"},
    ]
    world = World(tfjob(Worker=role)).settle()
    first, second, third = world.pod("mnist-worker-1")["spec"]["containers"]
    assert [entry["name"] for entry in first["env"]] == ["TF_CONFIG", "A"]
    assert first["env"][0]["value"] != "mine"
    assert first["env"][1]["value"] == "$(B)"
    assert second["env"] == mine
    assert "env" not in third
    (said,) = [emit for emit in world.said if emit.reason == "EnvironmentOverwritten"]
    assert said.message.startswith("Muster sets TF_CONFIG in each pod")


PORTS = [
    ([], [("tfjob-port", 2222)]),
    ([{"name": "tfjob-port", "containerPort": 7}], [("tfjob-port", 7)]),
    (
        [{"name": "web", "containerPort": 80}, {"containerPort": 81}, {"containerPort": 82}],
        [("web", 80), ("port-81", 81), ("port-82", 82), ("tfjob-port", 2222)],
    ),
    # The API server takes no service that offers a number twice.
    ([{"containerPort": 2222}], [("tfjob-port", 2222)]),
    (
        [{"name": "grpc", "containerPort": 2222}, {"name": "web", "containerPort": 80}],
        [("tfjob-port", 2222), ("web", 80)],
    ),
    (
        [{"name": "tfjob-port", "containerPort": 7}, {"name": "also", "containerPort": 7}],
        [("tfjob-port", 7)],
    ),
    (
        [
            {"containerPort": 53, "protocol": "UDP"},
            {"name": "dns", "containerPort": 53, "protocol": "TCP"},
        ],
        [("dns", 53), ("tfjob-port", 2222)],
    ),
]


@pytest.mark.parametrize(("ports", "wanted"), PORTS)
def test_a_service_offers_every_port(ports, wanted):
    """In the container's order, unnamed ones named for their number, our own among them."""
    world = World(tfjob(Worker=role_of({"ports": ports}))).settle()
    offered = world.objects["Service", "mnist-worker-0"]["spec"]["ports"]
    assert [(port["name"], port["port"]) for port in offered] == wanted


def test_pods_are_created_in_canonical_order():
    """Chief first, evaluator last, indices ascending."""
    world = World(tfjob(Evaluator=1, Worker=2, PS=1, Chief=1))
    made = [a.doc["metadata"]["name"] for a in world.step() if isinstance(a, Create)]
    pods = ["mnist-chief-0", "mnist-ps-0", "mnist-worker-0", "mnist-worker-1", "mnist-evaluator-0"]
    assert made == [*pods, *pods]


def test_few_objects_get_an_event_each_many_get_one():
    """Up to 32 an event per object, beyond it one that names the first and the last."""
    world = World(tfjob(Worker=32)).settle()
    assert world.reasons().count("SuccessfulCreatePod") == 32
    world = World(tfjob(Worker=33)).settle()
    told = [e.message for e in world.said if e.reason.startswith("SuccessfulCreate")]
    assert told == [
        "Created 33 pods: mnist-worker-0 … mnist-worker-32",
        "Created 33 services: mnist-worker-0 … mnist-worker-32",
    ]


class TestScale:
    """A running job grows and shrinks."""

    def test_down(self):
        """The highest indices go, with their services."""
        world = World(tfjob(Worker=3)).run().scale(1).settle()
        assert world.counts() == (1, 0, 0)
        assert world.reap().settle().names() == ["mnist-worker-0"]
        assert world.names("Service") == ["mnist-worker-0"]

    def test_a_role_that_is_taken_out(self):
        """All its pods go."""
        world = World(tfjob(PS=2, Worker=1)).settle()
        world.edit(tfReplicaSpecs=tfjob(Worker=1)["spec"]["tfReplicaSpecs"])
        assert world.settle().names() == ["mnist-worker-0"]
        assert list(world.status["replicaStatuses"]) == ["Worker"]

    def test_the_config_of_a_large_job_follows(self):
        """Its cluster is replaced on scale, and stays as long as pods may refer to it."""
        world = World(tfjob(Worker=40)).settle()
        before = world.objects["ConfigMap", "mnist-tf-config"]["data"]["cluster"]
        world.scale(41).settle()
        after = world.objects["ConfigMap", "mnist-tf-config"]["data"]["cluster"]
        assert "mnist-worker-40" in after
        assert "mnist-worker-40" not in before
        assert world.scale(2).settle().names("ConfigMap") == ["mnist-tf-config"]
        assert not world.edit(runPolicy={"suspend": True}).settle().objects


def stray(name="mnist-worker-0", *, owner=None, labels=None, **metadata):
    """Return a pod that the job did not make."""
    meta = {"name": name, "namespace": "team", "uid": "stray", "labels": labels or {}, **metadata}
    if owner:
        meta["ownerReferences"] = [{**OWNER, "uid": owner}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}}


FULL = {
    **IDENTITY,
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}


class TestOthers:
    """Objects under the job's names that the job did not make."""

    def test_a_matching_orphan_is_adopted(self):
        """A pod without owner and with our labels becomes the job's."""
        world = World(tfjob(Worker=1))
        world.objects["Pod", "mnist-worker-0"] = stray(labels=FULL)
        (patch,) = [a for a in world.step() if isinstance(a, Patch)]
        assert (patch.uid, patch.body) == ("stray", {"metadata": {"ownerReferences": [OWNER]}})
        assert patch.adopts
        world.start().settle()
        assert world.conditions == ["Created T", "Running T"]
        assert world.pod("mnist-worker-0")["metadata"]["uid"] == "stray"

    @pytest.mark.parametrize(
        ("kind", "name"),
        [("Service", "mnist-worker-0"), ("ConfigMap", "mnist-tf-config"), ("PodGroup", "mnist")],
    )
    def test_so_is_what_is_no_pod(self, kind, name):
        """As a job leaves it that was deleted without its children, and is made anew."""
        world = World(tfjob(Worker=33), backend=gang.SCHEDULER_PLUGINS).settle()
        found = world.objects[kind, name]
        del found["metadata"]["ownerReferences"]
        world.settle()
        assert found["metadata"]["ownerReferences"] == [OWNER]
        assert world.objects[kind, name] is found
        assert world.status["state"] != "Blocked"

    @pytest.mark.parametrize(
        "foreign", [stray(owner="other"), stray(labels={"app": "x"}), stray(owner="x", labels={})]
    )
    def test_a_foreign_pod_blocks(self, foreign):
        """Nothing is created, the job says why, once, and goes on when the pod is gone."""
        world = World(tfjob(Worker=2))
        world.objects["Pod", "mnist-worker-0"] = foreign
        world.settle()
        assert world.names() == ["mnist-worker-0"]
        assert world.status["state"] == "Blocked"
        text = 'Resource "mnist-worker-0" of Kind "Pod" already exists and is not managed by TFJob'
        assert world.status["reason"] == text
        assert [e.message for e in world.said if e.reason == "ErrResourceExists"] == [text]
        world.lose("mnist-worker-0").settle()
        assert len(world.names()) == 2
        assert "reason" not in world.status

    @pytest.mark.parametrize("owner", [{"kind": "JAXJob"}, {"name": "other"}])
    @pytest.mark.parametrize("backend", [gang.NONE, gang.EMBEDDED])
    def test_running_pod_of_another_job_blocks_at_once(self, backend, owner):
        """Neither the grace for children of a deleted job nor the first verdict is waited for."""
        world = World(tfjob(Worker=2), backend=backend)
        pod = stray(owner="x", labels=FULL)
        pod["metadata"]["ownerReferences"][0] |= owner
        world.objects["Pod", "mnist-worker-0"] = pod
        assert world.settle().status["state"] == "Blocked"
        assert "mnist-worker-0" in world.status["reason"]
        assert world.names() == ["mnist-worker-0"]

    @pytest.mark.parametrize("kind", ["Service", "PodGroup"])
    def test_other_kinds_block_too(self, kind):
        """So do a foreign service and a foreign group."""
        world = World(tfjob(Worker=1), backend=gang.SCHEDULER_PLUGINS)
        name = "mnist" if kind == "PodGroup" else "mnist-worker-0"
        world.objects[kind, name] = {**stray(name, owner="other"), "kind": kind}
        assert not world.settle().names()
        assert world.status["state"] == "Blocked"

    @pytest.mark.parametrize("kind", ["PodGroup", "Workload"])
    @pytest.mark.parametrize("owner", [None, "other"])
    def test_a_group_that_cannot_be_changed_is_not_adopted(self, owner, kind):
        """Under such a backend one that is not the job's blocks, whoever it belongs to.

        So does what the group would be made of.
        """
        world = World(tfjob(Worker=1), backend=gang.KUBERNETES)
        stranger = {
            **stray("mnist", owner=owner, labels=IDENTITY),
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": kind,
        }
        world.objects[kind, "mnist"] = stranger
        assert not world.wait(61).settle().names()
        assert world.status["state"] == "Blocked"
        assert set(world.objects) == {(kind, "mnist")}
        del world.objects[kind, "mnist"]
        assert world.settle().names()

    def test_a_group_is_not_made_of_what_an_earlier_job_left(self):
        """It waits until that has gone, and then has its own."""
        world = World(tfjob(Worker=1), backend=gang.KUBERNETES)
        world.objects["Workload", "mnist"] = {
            **stray("mnist", owner="uid of the old job", labels=IDENTITY),
            "kind": "Workload",
        }
        world.settle()
        assert set(world.objects) == {("Workload", "mnist")}
        assert world.status["state"] == "Created"
        assert world.requeue is not None
        del world.objects["Workload", "mnist"]
        assert {kind for kind, _ in world.settle().objects} >= {"Workload", "PodGroup", "Pod"}

    def test_what_a_deleted_job_left_is_waited_for(self):
        """A new job of an old name waits for the garbage collector, but not for ever."""
        world = World(tfjob(Worker=1))
        world.objects["Pod", "mnist-worker-0"] = stray(owner="uid of the old job", labels=FULL)
        world.settle()
        assert world.status["state"] == "Created"
        assert world.requeue is not None
        assert world.clone().wait(61).settle().status["state"] == "Blocked"
        world.lose("mnist-worker-0")
        assert world.settle().pod("mnist-worker-0")["metadata"]["uid"] != "stray"
        assert "ErrResourceExists" not in world.reasons()

    def test_of_two_pods_on_a_place_the_oldest_stays(self):
        """The younger is deleted, and counts nowhere; a failed one is never preferred."""
        world = World(tfjob(Worker=1)).settle().start()
        twin = stray(
            "twin", owner="job-uid", labels=FULL, creationTimestamp="2020-01-01T00:00:00Z"
        )
        world.objects["Pod", "twin"] = {**twin, "status": {"phase": "Failed"}}
        world.settle()
        assert world.names() == ["mnist-worker-0"]
        assert world.counts() == (1, 0, 0)

    def test_a_pod_that_is_going_keeps_its_place(self):
        """Its name is free only when it is gone."""
        world = World(tfjob(Worker=1)).settle().terminate("mnist-worker-0")
        assert not [a for a in world.step() if isinstance(a, Create)]
        world.reap()
        assert [a for a in world.step() if isinstance(a, Create)]


@pytest.mark.parametrize("kind", ["TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob"])
def test_jobs_of_others_are_left_alone(kind):
    """ManagedBy somebody else, and jobs on their way out: no action at all."""
    roles = {"Master": 1} if kind == "XGBoostJob" else {"Worker": 1}
    for value in ("kueue.x-k8s.io/multikueue", "kubeflow.org/mpi-operator", "", "me"):
        assert World(of_kind(kind, policy={"managedBy": value}, **roles)).decide() == []
    ours = {"managedBy": "kubeflow.org/training-operator"}
    assert World(of_kind(kind, policy=ours, **roles)).decide()
    document = of_kind(kind, **roles)
    document["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    assert World(document).decide() == []


def test_a_new_template_reaches_new_pods_only():
    """What runs goes on as it is."""
    world = World(tfjob(Worker=2)).run()
    old = world.pod("mnist-worker-0")["metadata"]["uid"]
    changed = tfjob(Worker=3)["spec"]["tfReplicaSpecs"]
    changed["Worker"]["template"]["spec"]["containers"][0]["image"] = "train:2"
    world.edit(tfReplicaSpecs=changed).settle()
    images = {n: world.pod(n)["spec"]["containers"][0]["image"] for n in world.names()}
    assert images == {
        "mnist-worker-0": "train:1",
        "mnist-worker-1": "train:1",
        "mnist-worker-2": "train:2",
    }
    assert world.pod("mnist-worker-0")["metadata"]["uid"] == old
