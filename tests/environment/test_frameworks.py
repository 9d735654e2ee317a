# SPDX-License-Identifier: Apache-2.0
"""Each framework's own code, as it was released, understands the pods of its jobs.

The pods come from what `muster render` does; what makes containers of them is in `kubelet`. The
programs in `probes` ask the framework and print its answers: they would do so in real pods, too.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from muster.frameworks import FRAMEWORKS
from support.apiserver.memory import of_kind
from support.e2e import framework_programs, kubelet, wheel_files
from support.e2e.kubelet import Started

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="pods have addresses of all of 127/8"),
]

TENSORFLOW = wheel_files.Parts(
    "tensorflow==2.21.0",
    "manylinux_2_27_x86_64",
    "3.12",
    r"tensorflow/(core/protobuf/cluster_pb2|python/(util/compat|training/server_lib|"
    r"distribute/cluster_resolver/(tfconfig_)?cluster_resolver))\.py",
    "83f8436e33bf4f5b18641559963142178c2540fcba17ab03175017cda1c7f4e5",
)
TORCH = wheel_files.Parts(
    "torch==2.15.0",
    "manylinux_2_28_x86_64",
    "3.12",
    r"torch/(_utils|numa/\w+|distributed/(run|argparse_util|rendezvous|constants|"
    r"(elastic|launcher)/.*))\.py",
    "0e4d52f4e03b206d20deaf8d71fec182035c166e117d96764a78da004c2ef091",
)
JAX = wheel_files.Parts(
    "jax==0.10.2",
    "any",
    "3.12",
    r"jax/_src/(distributed|clusters/\w+)\.py",
    "135d4f5089c95114af2af9ae4c3d935db469101e571ccb337458e027ba26e082",
)
PADDLE = wheel_files.Parts(
    "paddlepaddle==3.3.1",
    "manylinux1_x86_64",
    "3.12",
    r"paddle/distributed/launch/.*\.py",
    "47ffcab79740c4cd879021365007a52ac553b0c77f073b8366f304b84d245ebc",
)


def pods_of(folder: Path, kind: str, domain: str = "", **job: object) -> dict[str, Started]:
    """Return the started framework containers of a job of that kind; `job` is as of `of_kind`."""
    made = kubelet.documents(of_kind(kind, **job), cluster_domain=domain)
    return kubelet.start(made, folder, FRAMEWORKS[kind].pods.container)


def answers(probe, pods, released=None):
    """Return what the program understood in these pods."""
    folder = wheel_files.take(framework_programs.python(), released) if released else None
    return framework_programs.understood(probe, pods, folder)


def listening(container: str, name: str, port: int, count: int) -> dict[str, object]:
    """Return a role of so many pods whose container has a port of its own choice."""
    ports = [{"name": name, "containerPort": port}]
    containers = [{"name": container, "image": "train:1", "ports": ports}]
    return {"replicas": count, "template": {"spec": {"containers": containers}}}


CLUSTERS = {
    "a chief and short names": ("", {"Chief": 1, "PS": 2, "Worker": 2, "Evaluator": 1}),
    "a master and long names": (kubelet.ZONE, {"Master": 1, "Worker": 2}),
}


@pytest.mark.parametrize(("domain", "roles"), CLUSTERS.values(), ids=CLUSTERS)
def test_tensorflow_sees_the_cluster(tmp_path, domain, roles) -> None:
    """TFConfigClusterResolver and ClusterSpec of TensorFlow 2.21.0: roles, tasks, addresses."""
    pods = pods_of(tmp_path, "TFJob", domain, **roles)
    seen = answers("tensorflow_cluster", pods.values(), TENSORFLOW)
    for name, answer in seen.items():
        role, index = re.fullmatch(r"mnist-(\w+)-(\d+)", name).groups()
        assert answer["task"] == [role, int(index)]
        assert answer["sizes"] == {type_.lower(): count for type_, count in roles.items()}
        for other, tasks in answer["cluster"].items():
            for number, address in tasks.items():
                host, port = address.split(":")
                assert pods[name].names[host] == pods[f"mnist-{other}-{number}"].ip
                assert (host.endswith(domain), port) == (True, "2222")
        assert answer["own"] == answer["cluster"][role][index]


def test_torchrun_and_plain_programs_see_their_ranks(tmp_path) -> None:
    """PyTorch 2.15.0: torchrun and init_process_group agree on ranks, master and size."""
    pods = pods_of(tmp_path, "PyTorchJob", spec={"nprocPerNode": "4"}, Master=1, Worker=2)
    seen = answers("torch_run", pods.values(), TORCH)
    assert list(seen) == ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]
    for rank, (name, answer) in enumerate(seen.items()):
        agent, process = answer["agent"], answer["process"]
        assert agent["nodes"] == [3, 3]
        assert agent["processes"] == 4
        assert (agent["backend"], agent["settings"]["rank"]) == ("static", rank)
        assert agent["endpoint"] == process["address"] == ["mnist-master-0", 23456]
        assert (process["rank"], process["size"]) == (rank, 3 * 4)
        assert process["leads"] is (rank == 0)
        assert pods[name].names["mnist-master-0"] == pods["mnist-master-0"].ip


def test_torchrun_sees_an_elastic_job(tmp_path) -> None:
    """All meet at the first worker, which alone takes itself for the host of the store."""
    elastic = {
        "minReplicas": 2,
        "maxReplicas": 4,
        "maxRestarts": 5,
        "nProcPerNode": 2,
        "rdzvId": "night",
        "rdzvConf": [{"key": "join_timeout", "value": "120"}, {"key": "a", "value": "b"}],
    }
    pods = pods_of(tmp_path, "PyTorchJob", spec={"elasticPolicy": elastic}, Worker=3)
    seen = answers("torch_run", pods.values(), TORCH)
    for name, answer in seen.items():
        leads = answer["agent"].pop("hosts the store")
        assert answer == {
            "agent": {
                "nodes": [2, 4],
                "processes": 2,
                "id": "night",
                "backend": "c10d",
                "endpoint": ["mnist-worker-0", 23456],
                "settings": {"join_timeout": "120", "a": "b", "timeout": 900},
                "restarts": 5,
            },
            "process": None,
        }
        assert leads is (name == "mnist-worker-0")
        assert pods[name].names["mnist-worker-0"] == pods["mnist-worker-0"].ip


def test_jax_sees_its_coordinator_and_processes(tmp_path) -> None:
    """jax.distributed of JAX 0.10.2, with its client of Kubernetes, keeps to what it is given.

    JAX reads none of these variables itself: programs pass them to `initialize`. Its detection of
    clusters, which takes pods for those of a Job, must not change them.
    """
    pods = pods_of(tmp_path, "JAXJob", Worker=listening("jax", "jaxjob-port", 7000, 3))
    seen = answers("jax_distributed", pods.values(), JAX)
    for rank in range(3):
        answer = seen[f"mnist-worker-{rank}"]
        assert answer["detected"] == ["K8sCluster"]
        assert answer["process"] == [rank, 3]
        assert answer["coordinator"] == "mnist-worker-0:7000"
        assert answer["connects"] == ["mnist-worker-0:7000", rank]
        assert answer.get("serves") == (["[::]:7000", 3] if rank == 0 else None)
        assert pods[f"mnist-worker-{rank}"].names["mnist-worker-0"] == pods["mnist-worker-0"].ip


def test_xgboost_workers_meet_at_the_tracker(tmp_path) -> None:
    """The tracker and the collective of XGBoost 3.2.0, for real: ranks are the job's."""
    pods = pods_of(tmp_path, "XGBoostJob", Master=1, Worker=2)
    seen = answers("xgboost_tracker", pods.values())
    order = ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]
    assert {name: answer["place"] for name, answer in seen.items()} == {
        name: [rank, 3] for rank, name in enumerate(order)
    }
    assert all(answer["names"] == order for answer in seen.values())
    told = {"dmlc_tracker_uri": pods[order[0]].ip, "dmlc_tracker_port": 9999}
    assert [seen[name]["tracker"] for name in order] == [told, None, None]


def test_paddle_workers_meet_at_the_first(tmp_path, free_port) -> None:
    """The launcher of Paddle 3.3.1, for real: worker 0 serves, all get ranks and addresses."""
    role = listening("paddle", "master", free_port, 3)
    pods = pods_of(tmp_path, "PaddleJob", Worker=role)
    seen = answers("paddle_launch", pods.values(), PADDLE)
    assert {answer["rank"] for answer in seen.values()} == {0, 1, 2}
    for name, answer in seen.items():
        leads = name == "mnist-worker-0"
        assert (answer["leads"], answer["rank"] == 0) == (leads, leads)
        host = pods[name].ip if leads else "mnist-worker-0"
        assert answer["master"] == f"{host}:{free_port}"
        assert (answer["job"], answer["mode"]) == (["mnist", 3, 3], "collective")
        (program,) = answer["programs"]
        assert program["PADDLE_TRAINERS_NUM"] == "3"
        assert program["PADDLE_TRAINER_ID"] == str(answer["rank"])
        ends = program["PADDLE_TRAINER_ENDPOINTS"].split(",")
        assert {end.split(":")[0] for end in ends} == {pod.ip for pod in pods.values()}
        assert ends[answer["rank"]].split(":")[0] == pods[name].ip


def test_paddle_servers_and_trainers_meet_at_the_master(tmp_path, free_port) -> None:
    """The same launcher with parameter servers: the master serves, and has rank 0."""
    master = listening("paddle", "master", free_port, 1)
    pods = pods_of(tmp_path, "PaddleJob", Master=master, Worker=2)
    seen = answers("paddle_launch", pods.values(), PADDLE)
    addresses = {pod.ip for pod in pods.values()}
    for name, answer in seen.items():
        leads = name == "mnist-master-0"
        assert (answer["leads"], answer["rank"] == 0) == (leads, leads)
        assert (answer["job"], answer["mode"]) == (["mnist", 3, 3], "ps")
        for program in answer["programs"]:
            ends = program["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
            assert {end.split(":")[0] for end in ends} == addresses
            assert program["POD_IP"] == pods[name].ip
