# SPDX-License-Identifier: Apache-2.0
"""What PyTorchJob, XGBoostJob, PaddleJob and JAXJob tell their pods, and how these look."""

import pytest

from muster.controller.model import Context, Create
from muster.frameworks import FRAMEWORKS
from muster.frameworks.base import Waiting
from support.apiserver.memory import World, of_kind

OWN_IP = {"fieldRef": {"fieldPath": "status.podIP"}}


def environment(world, pod):
    """Return the environment of a pod's first container: pairs, in order."""
    entries = world.pod(pod)["spec"]["containers"][0]["env"]
    return [(entry["name"], entry.get("value", entry.get("valueFrom"))) for entry in entries]


def listening(kind, port, replicas):
    """Return a role whose container has the kind's port under another number."""
    pods = FRAMEWORKS[kind].pods
    ports = [{"name": pods.port_name, "containerPort": port}]
    container = {"name": pods.container, "image": "i", "ports": ports}
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}


LED, FLAT = {"Master": 1, "Worker": 2}, {"Worker": 2}
# Kind, roles, container, port's name, port, the pod with the master's label.
IDENTITIES = [
    ("PyTorchJob", LED, "pytorch", ("pytorchjob-port", 23456), "mnist-master-0"),
    ("PyTorchJob", FLAT, "pytorch", ("pytorchjob-port", 23456), "mnist-worker-0"),
    ("XGBoostJob", LED, "xgboost", ("xgboostjob-port", 9999), "mnist-master-0"),
    ("PaddleJob", LED, "paddle", ("master", 36543), "mnist-master-0"),
    ("PaddleJob", FLAT, "paddle", ("master", 36543), None),
    ("JAXJob", FLAT, "jax", ("jaxjob-port", 6666), "mnist-worker-0"),
]


@pytest.mark.parametrize(("kind", "roles", "container", "port", "master"), IDENTITIES)
def test_names_labels_owners_and_ports(kind, roles, container, port, master):
    """A pod and a headless service of the same name per replica, as users select them."""
    world = World(of_kind(kind, **roles)).settle()
    wanted = {f"mnist-{t.lower()}-{i}" for t, n in roles.items() for i in range(n)}
    assert set(world.names()) == set(world.names("Service")) == wanted
    role_labels = {
        name: world.pod(name)["metadata"]["labels"].get("training.kubeflow.org/job-role")
        for name in wanted
    }
    assert role_labels == {name: "master" if name == master else None for name in wanted}
    for name in wanted:
        _, role, index = name.split("-")
        found = {
            "training.kubeflow.org/operator-name": f"{kind.lower()}-controller",
            "training.kubeflow.org/job-name": "mnist",
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": index,
        }
        pod, service = world.pod(name), world.objects["Service", name]
        assert found.items() <= pod["metadata"]["labels"].items()
        assert service["metadata"]["labels"] == service["spec"]["selector"] == found
        assert service["spec"]["ports"] == [{"name": port[0], "port": port[1]}]
        (only,) = pod["spec"]["containers"]
        assert only["name"] == container
        assert only["ports"] == [{"name": port[0], "containerPort": port[1]}]
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["apiVersion"], owner["kind"]) == ("kubeflow.org/v1", kind)


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("PyTorchJob", "OnFailure"),
        ("XGBoostJob", "Never"),
        ("PaddleJob", "OnFailure"),
        ("JAXJob", "Never"),
    ],
)
def test_defaults(kind, policy):
    """One replica each, the restart policy of the kind, and nothing is cleaned up."""
    roles = {"Master": {}, "Worker": {}} if kind != "JAXJob" else {"Worker": {}}
    world = World(of_kind(kind, **roles)).settle()
    assert world.names() == [f"mnist-{t.lower()}-0" for t in roles]
    assert {world.pod(name)["spec"]["restartPolicy"] for name in world.names()} == {policy}
    world.start().settle().end(f"mnist-{next(iter(roles)).lower()}-0").settle()
    assert world.status["state"] == "Succeeded"
    assert len(world.names()) == len(roles)


@pytest.mark.parametrize("kind", ["PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob"])
def test_every_container_is_told(kind):
    """Sidecars too; a variable of the user's gives way to ours of that name."""
    document = of_kind(kind, **({} if kind == "JAXJob" else {"Master": 1}), Worker=1)
    (field,) = [key for key in document["spec"] if key.endswith("ReplicaSpecs")]
    pod = document["spec"][field]["Worker"]["template"]["spec"]
    mine = [{"name": "PYTHONUNBUFFERED", "value": "0"}, {"name": "A", "value": "$(B)"}]
    pod["containers"] += [{"name": "sidecar", "image": "i", "env": mine}]
    pod["initContainers"] = [{"name": "first", "image": "i"}]
    world = World(document).settle()
    main, sidecar = world.pod("mnist-worker-0")["spec"]["containers"]
    assert sidecar["env"] == [*main["env"], {"name": "A", "value": "$(B)"}]
    assert "env" not in world.pod("mnist-worker-0")["spec"]["initContainers"][0]


MINE = [
    {"name": "URL", "value": "tcp://$(MASTER_ADDR):$(MASTER_PORT)"},
    {"name": "MASTER_PORT", "value": "29500"},
    {"name": "RANK", "value": "7"},
    {"name": "PYTHONUNBUFFERED", "value": "1"},
]


def test_overwritten_variables_are_named_once():
    """One Warning names each variable of the templates that the framework sets to another value.

    The framework's variables come first, so that references to them are expanded.
    """
    document = of_kind("PyTorchJob", Master=1, Worker=2)
    for replica in document["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"][0]["env"] = MINE
    world = World(document).settle().settle()
    listed = [name for name, _ in environment(world, "mnist-worker-1")]
    assert max(map(listed.index, ("MASTER_ADDR", "MASTER_PORT"))) < listed.index("URL")
    assert len(listed) == len(set(listed))
    assert dict(environment(world, "mnist-worker-1"))["MASTER_PORT"] == "23456"
    (said,) = [emit for emit in world.said if emit.reason == "EnvironmentOverwritten"]
    assert said.type == "Warning"
    assert said.message == (
        "Muster sets MASTER_PORT, RANK in each pod; their values in the pod templates are ignored"
    )


class TestPyTorch:
    """MASTER_*, RANK, WORLD_SIZE for programs; PET_* for torchrun; the wait for the master."""

    @pytest.mark.parametrize(("pod", "rank"), [("master-0", "0"), ("worker-1", "2")])
    def test_with_a_master(self, pod, rank):
        """All of it, in order."""
        roles = {"Master": listening("PyTorchJob", 7, 1), "Worker": 2}
        world = World(of_kind("PyTorchJob", **roles)).settle()
        assert environment(world, f"mnist-{pod}") == [
            ("PYTHONUNBUFFERED", "1"),
            ("MASTER_PORT", "7"),
            ("PET_MASTER_PORT", "7"),
            ("MASTER_ADDR", "mnist-master-0"),
            ("PET_MASTER_ADDR", "mnist-master-0"),
            ("WORLD_SIZE", "3"),
            ("RANK", rank),
            ("PET_NODE_RANK", rank),
            ("PET_NPROC_PER_NODE", "auto"),
            ("PET_NNODES", "3"),
        ]

    def test_without_a_master(self):
        """Workers alone know only how many they are, and wait for no master."""
        world = World(of_kind("PyTorchJob", Worker=2)).settle()
        assert environment(world, "mnist-worker-1") == [
            ("PYTHONUNBUFFERED", "1"),
            ("PET_NPROC_PER_NODE", "auto"),
            ("PET_NNODES", "2"),
        ]
        assert "initContainers" not in world.pod("mnist-worker-0")["spec"]

    @pytest.mark.parametrize(
        ("processes", "size"), [("auto", "3"), ("cpu", "3"), ("gpu", "3"), ("4", "12")]
    )
    def test_the_world_counts_processes_that_are_numbered(self, processes, size):
        """A word is torchrun's affair, a number multiplies."""
        spec = {"nprocPerNode": processes}
        world = World(of_kind("PyTorchJob", Master=1, Worker=2, spec=spec)).settle()
        told = dict(environment(world, "mnist-worker-0"))
        assert (told["PET_NPROC_PER_NODE"], told["WORLD_SIZE"]) == (processes, size)

    def test_number_of_processes_that_is_no_number_is_invalid(self):
        """Its product with the number of pods could not be computed."""
        world = World(of_kind("PyTorchJob", Worker=1, spec={"nprocPerNode": "9" * 5000})).settle()
        assert world.status["reason"].startswith("spec.nprocPerNode: Unsupported value")

    def test_an_elastic_job_with_all_it_may_say(self):
        """The rendezvous in place of a number of nodes."""
        policy = {
            "minReplicas": 1,
            "maxReplicas": 4,
            "rdzvBackend": "etcd",
            "rdzvHost": "etcd",
            "rdzvPort": 2379,
            "rdzvId": "id",
            "rdzvConf": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
            "standalone": True,
            "maxRestarts": 0,
            "nProcPerNode": 2,
        }
        world = World(of_kind("PyTorchJob", Worker=2, spec={"elasticPolicy": policy})).settle()
        assert environment(world, "mnist-worker-0") == [
            ("PYTHONUNBUFFERED", "1"),
            ("PET_RDZV_ENDPOINT", "etcd:2379"),
            ("PET_RDZV_BACKEND", "etcd"),
            ("PET_NNODES", "1:4"),
            ("PET_MAX_RESTARTS", "0"),
            ("PET_NPROC_PER_NODE", "2"),
            ("PET_RDZV_ID", "id"),
            ("PET_RDZV_CONF", "a=1,b=2"),
            ("PET_STANDALONE", ""),
        ]

    @pytest.mark.parametrize(
        ("policy", "nodes"),
        [
            ({}, "3:3"),
            ({"minReplicas": 2}, "2:2"),
            ({"maxReplicas": 5}, "5:5"),
            ({"minReplicas": 2, "maxReplicas": 5, "rdzvConf": [], "standalone": False}, "2:5"),
        ],
    )
    def test_an_elastic_job_with_defaults(self, policy, nodes):
        """What is not given is as what is; the first worker is the meeting point."""
        roles = {"Worker": listening("PyTorchJob", 7, 3)}
        spec = {"elasticPolicy": policy}
        world = World(of_kind("PyTorchJob", spec=spec, **roles)).settle()
        assert environment(world, "mnist-worker-2") == [
            ("PYTHONUNBUFFERED", "1"),
            ("PET_NPROC_PER_NODE", "auto"),
            ("PET_RDZV_ENDPOINT", "mnist-worker-0:7"),
            ("PET_RDZV_BACKEND", "c10d"),
            ("PET_NNODES", nodes),
        ]

    def test_workers_wait_for_their_master(self):
        """After the user's own init containers; the master waits for nobody."""
        document = of_kind("PyTorchJob", Master=1, Worker=1)
        template = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        template["spec"]["initContainers"] = [own := {"name": "own", "image": "i"}]
        world = World(document, context=Context(waiting=Waiting("busybox:1", 5))).settle()
        first, second = world.pod("mnist-worker-0")["spec"]["initContainers"]
        assert first == own
        assert (second["name"], second["image"]) == ("init-pytorch", "busybox:1")
        assert "$look mnist-master-0" in second["command"][-1]
        assert "initContainers" not in world.pod("mnist-master-0")["spec"]


INLINE = {"muster.kubeflow.org/shared-environment": "inline"}


class TestXGBoost:
    """The master's address for all, and where the workers are."""

    @pytest.mark.parametrize(("pod", "rank"), [("master-0", "0"), ("worker-1", "2")])
    def test_with_workers(self, pod, rank):
        """All of it, in order."""
        roles = {"Master": listening("XGBoostJob", 7, 1), "Worker": listening("XGBoostJob", 8, 2)}
        world = World(of_kind("XGBoostJob", **roles)).settle()
        assert environment(world, f"mnist-{pod}") == [
            ("MASTER_PORT", "7"),
            ("MASTER_ADDR", "mnist-master-0"),
            ("WORLD_SIZE", "3"),
            ("RANK", rank),
            ("PYTHONUNBUFFERED", "1"),
            ("WORKER_PORT", "8"),
            ("WORKER_ADDRS", "mnist-worker-0,mnist-worker-1"),
        ]

    def test_a_master_alone(self):
        """Nothing is said of workers."""
        world = World(of_kind("XGBoostJob", Master=1)).settle()
        assert [name for name, _ in environment(world, "mnist-master-0")] == [
            "MASTER_PORT",
            "MASTER_ADDR",
            "WORLD_SIZE",
            "RANK",
            "PYTHONUNBUFFERED",
        ]

    @pytest.mark.parametrize(("workers", "notes"), [(31, {}), (40, INLINE)])
    def test_up_to_32_replicas_each_pod_holds_the_addresses(self, workers, notes):
        """And there is no config map; more only if the author wants it."""
        document = of_kind("XGBoostJob", Master=1, Worker=workers, annotations=notes)
        world = World(document).settle()
        addresses = dict(environment(world, "mnist-worker-0"))["WORKER_ADDRS"]
        assert addresses.count(",") == workers - 1
        assert not world.names("ConfigMap")

    def test_larger_jobs_hold_the_addresses_once(self):
        """In a config map that is there before the pods."""
        world = World(of_kind("XGBoostJob", Master=1, Worker=32))
        kinds = [a.doc["kind"] for a in world.step() if isinstance(a, Create)]
        assert kinds == ["ConfigMap", *["Pod"] * 33, *["Service"] * 33]
        world.settle()
        source = dict(environment(world, "mnist-worker-31"))["WORKER_ADDRS"]
        assert source == {"configMapKeyRef": {"name": "mnist-xgboost-config", "key": "workers"}}
        held = world.objects["ConfigMap", "mnist-xgboost-config"]
        assert held["data"]["workers"] == ",".join(f"mnist-worker-{i}" for i in range(32))
        assert held["metadata"]["ownerReferences"][0]["kind"] == "XGBoostJob"

    def test_more_workers_than_a_variable_holds_are_refused(self):
        """With a sentence, before anything is created."""
        world = World(of_kind("XGBoostJob", Master=1, Worker=9000)).settle()
        assert world.status["state"] == "Invalid"
        assert "WORKER_ADDRS would take" in world.status["reason"]
        assert not world.objects


class TestPaddle:
    """Collective without a master, parameter servers with one."""

    @pytest.mark.parametrize(
        ("masters", "pod", "rest"),
        [
            (0, "worker-0", [("POD_IP_DUMMY", OWN_IP), ("PADDLE_MASTER", "$(POD_IP_DUMMY):7")]),
            (0, "worker-1", [("PADDLE_MASTER", "mnist-worker-0:7")]),
            (
                2,
                "master-0",
                [
                    ("POD_IP_DUMMY", OWN_IP),
                    ("PADDLE_MASTER", "$(POD_IP_DUMMY):7"),
                    ("PADDLE_SERVER_NUM", "1"),
                ],
            ),
            (2, "master-1", [("PADDLE_MASTER", "mnist-master-0:7"), ("PADDLE_SERVER_NUM", "1")]),
            (2, "worker-0", [("PADDLE_MASTER", "mnist-master-0:7"), ("PADDLE_TRAINER_NUM", "1")]),
        ],
    )
    def test_first_master_or_worker_is_the_meeting_point(self, masters, pod, rest):
        """It knows itself by its address; beside masters each pod is one server or trainer."""
        roles = {"Worker": listening("PaddleJob", 7, 2)}
        if masters:
            roles["Master"] = listening("PaddleJob", 7, masters)
        world = World(of_kind("PaddleJob", **roles)).settle()
        assert environment(world, f"mnist-{pod}") == [
            ("PYTHONUNBUFFERED", "1"),
            ("PADDLE_JOB_ID", "mnist"),
            ("PADDLE_NNODES", f"{2 + masters}"),
            *rest,
        ]

    def test_restarts_that_paddle_does_not_know_are_told(self):
        """Once, as a setting without effect."""
        spec = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "maxRestarts": 3}}
        world = World(of_kind("PaddleJob", Worker=1, spec=spec)).settle()
        told = [e.message for e in world.said if e.reason == "SchedulingPolicyIgnored"]
        assert told == ["spec.elasticPolicy.maxRestarts is ignored; Paddle takes no such setting"]


def test_jax_workers_know_their_coordinator():
    """All of it, in order."""
    world = World(of_kind("JAXJob", Worker=3)).settle()
    assert environment(world, "mnist-worker-2") == [
        ("PYTHONUNBUFFERED", "1"),
        ("COORDINATOR_PORT", "6666"),
        ("COORDINATOR_ADDRESS", "mnist-worker-0"),
        ("NUM_PROCESSES", "3"),
        ("PROCESS_ID", "2"),
    ]
