# SPDX-License-Identifier: Apache-2.0
"""Every program of examples/training trains, from `kubectl apply` to Succeeded, and says so."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from muster.api import names
from muster.local.handle import Cluster
from real import times
from real.test_pods import logs_by_sdk
from realnode import images, real
from support.e2e.harness import Api, Json

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "training"
SECONDS = 300.0
HOSTNAME = "kubernetes.io/hostname"
FELL = r"loss \d+\.\d+ -> 0\.0"

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class Told:
    """What must be in the logs of an example: a pod's end of the name -> a pattern."""

    logs: dict[str, str]
    image: str = "base"


def ranks(pods: str, pattern: str, image: str) -> Told:
    """Expect it of each of these pods; RANK is its place in the list."""
    found = {pod: pattern.replace("RANK", str(i)) for i, pod in enumerate(pods.split())}
    return Told(found, image)


MASTERED = "master-0 worker-0 worker-1"
MPI = Told({"launcher": r"(?s)(?=.*rank 0: loss.*-> 0\.0)(?=.*rank 1: loss.*-> 0\.0)"})
TRAINING = {
    "meet": ranks(MASTERED, "rank RANK met all 3, their sum is 3", "base"),
    "mpi": MPI,
    "mpi-waits": MPI,
    "mpi-non-root": MPI,
    "mpi-launcher-as-worker": Told({"launcher": "rank 2: the sum of all ranks is 3"}),
    "mpi-v1": MPI,
    "mpi-mpich": Told(MPI.logs, "mpich"),
    "pytorch-ddp": ranks(MASTERED, "rank RANK: all 3 ranks have the same", "pytorch"),
    "pytorch-torchrun": Told(
        {
            "master-0": "rank 0: the sum of all ranks is 15",
            "worker-1": "rank [45]: all 6 ranks have the same right weights",
        },
        "pytorch",
    ),
    "pytorch-elastic": ranks("worker-0 worker-1 worker-2", "of 3: trained to step 60", "pytorch"),
    "jax": ranks(
        "worker-0 worker-1 worker-2",
        rf"(?s)process RANK: the sum of all processes is 3.*{FELL}",
        "jax",
    ),
    "xgboost": ranks(MASTERED, "rank RANK: rmse .*, all have the same model", "xgboost"),
    "tf-multiworker": ranks(
        "chief-0 worker-0 worker-1", rf"(?s)the sum of all ranks is 3.*{FELL}", "tensorflow"
    ),
    "tf-shared": ranks("chief-0 worker-0 worker-1", FELL, "tensorflow"),
    "tf-parameter-server": Told({"chief-0": FELL, "evaluator-0": "evaluated"}, "tensorflow"),
    "tf-keras": ranks("worker-0 worker-1", FELL, "tensorflow"),
    "paddle-servers": ranks(MASTERED, "server [012] of 3: 300 gradients", "paddle"),
    "paddle": ranks("worker-0 worker-1", rf"(?s)the sum of all ranks is 1\n.*{FELL}", "paddle"),
}
SHARED = {"tf-shared": "its annotation", "tf-parameter-server": "more pods than the flag says"}
"""Which TFJobs read the addresses out of a ConfigMap, and by whose word."""
APART = {"pytorch-resume"}
"""Something happens to it half-way."""


def test_every_example_is_tried() -> None:
    """Here is what each must say."""
    assert {path.parent.name for path in FOLDER.glob("*/kustomization.yaml")} == (
        set(TRAINING) | APART
    )


@pytest.fixture(scope="module")
def load(there: Cluster) -> Callable[[str], None]:
    """Give the nodes an image once; what cannot be had is said, and its examples are skipped."""
    loaded: set[str] = set()

    def once(name: str) -> None:
        if name in loaded or not there.extra.nodes:
            return
        try:
            archive = images.make(name)
        except images.ImageError as error:
            pytest.skip(f"no image {name}: {error}")
        real.load(there, [archive])
        loaded.add(name)

    return once


def apply(api: Api, name: str) -> Json:
    """Apply an example as its users do; return its job."""
    api.kubectl("apply", "-n", api.namespace, "-k", str(FOLDER / name))
    return job_of(documents(api, name))


def documents(api: Api, name: str) -> list[Json]:
    """Return what an example is made of."""
    return list(yaml.safe_load_all(api.kubectl("kustomize", str(FOLDER / name))))


def job_of(made: list[Json]) -> Json:
    """Return the job among these."""
    return next(one for one in made if one["kind"].endswith("Job"))


def named(there: Iterable[str], pod: str) -> str:
    """Return the name of a pod; that of an MPI launcher has one of its job's own."""
    (found,) = [one for one in there if one == pod or re.fullmatch(rf"{pod}-\w{{5}}", one)]
    return found


def logs(api: Api, pod: str, *words: str) -> str:
    """Return what a pod's program printed."""
    found = named((one["metadata"]["name"] for one in api.list("Pod")), pod)
    return api.kubectl("logs", "-n", api.namespace, found, *words)


def wait_succeeded(api: Api, job: Json) -> None:
    """Wait for its end; one that fails says what its programs printed."""
    name, kind = job["metadata"]["name"], job["kind"]

    def ended(found: Json) -> str:
        conditions = found.get("status", {}).get("conditions", ())
        return next(
            (
                one["type"]
                for one in conditions
                if one["type"] in {"Succeeded", "Failed"} and one["status"] == "True"
            ),
            "",
        )

    found = api.wait_job(name, ended, of=kind, seconds=SECONDS)
    if ended(found) == "Failed":
        pods = [pod["metadata"]["name"] for pod in api.list("Pod")]
        said = [api.kubectl("logs", "-n", api.namespace, pod, check=False) for pod in pods]
        raise AssertionError("\n---\n".join([str(found["status"]), *said]))


@pytest.mark.parametrize("name", TRAINING)
def test_it_trains(
    api: Api, load: Callable[[str], None], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its job succeeds, and each rank printed what only a rank can print that met the others."""
    told = TRAINING[name]
    for image in {"base", told.image} | ({"kubectl"} if name == "mpi-v1" else set()):
        load(image)
    job = job_of(documents(api, name))
    seen = times.follow(api, job, lambda: apply(api, name))
    wait_succeeded(api, job)
    assert starts_again(api) == {}
    configs = {config["metadata"]["name"] for config in api.list("ConfigMap")}
    assert (f"{name}-tf-config" in configs) == (name in SHARED)
    read = logs_by_sdk(api, job["kind"], name)
    for pod, pattern in told.logs.items():
        for said in logs(api, f"{name}-{pod}"), read[named(read, f"{name}-{pod}")]:
            assert re.search(pattern, said), said
    lines = (logs(api, f"{name}-{pod}", "--timestamps") for pod in told.logs)
    line = min(map(times.spoken, lines)) - seen.began
    with capsys.disabled():
        print(f"\n{name}: {seen}, first line after {line:.1f} s")  # noqa: T201
    if os.environ.get("MUSTER_REPORT"):
        times.write(name, seen, line)


@pytest.mark.parametrize("name", ["mpi", "mpi-mpich"])
def test_a_launcher_waits_for_a_worker(api: Api, load: Callable[[str], None], name: str) -> None:
    """Its `mpirun` is called at once, and a worker's name is known only seconds later."""
    load(TRAINING[name].image)
    made = documents(api, name)
    job = job_of(made)
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    late = {"name": "late", "image": worker["containers"][0]["image"], "command": ["sleep", "8"]}
    worker["initContainers"] = [late]
    for document in made:
        api.apply(document)
    wait_succeeded(api, job)
    assert starts_again(api) == {}
    for pod, pattern in TRAINING[name].logs.items():
        assert re.search(pattern, logs(api, f"{name}-{pod}"))


def starts_again(api: Api) -> dict[str, str]:
    """Return what failed and was started again: no launcher ends because nobody answers yet."""
    pods = {pod["metadata"]["name"]: pod["status"] for pod in api.list("Pod")}
    assert not [name for name, status in pods.items() if status["phase"] == "Failed"]
    return {
        name: f"{ended}\n{logs(api, name, '--previous')}"
        for name, status in pods.items()
        if (ended := [one["lastState"] for one in status["containerStatuses"] if one["lastState"]])
    }


def test_an_elastic_job_goes_on_without_a_worker(api: Api, load: Callable[[str], None]) -> None:
    """The others go on from where they were, and are more again when it is back."""
    load("pytorch")
    job = apply(api, "pytorch-elastic")
    lost = "pytorch-elastic-worker-2"
    api.wait_pods(3, "Running", "pytorch-elastic", seconds=SECONDS)
    deadline = time.monotonic() + SECONDS
    while "of 3: step 10" not in api.kubectl("logs", "-n", api.namespace, lost, check=False):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    api.delete("Pod", lost, grace=0)
    wait_succeeded(api, job)
    said = logs(api, "pytorch-elastic-worker-0")
    resumed = [int(step) for step in re.findall(r"goes on at step (\d+)", said)]
    assert resumed[0] == 0
    assert resumed[-1] >= 10
    assert "trained to step 60" in said


def test_a_gang_resumes_from_its_checkpoint(api: Api, load: Callable[[str], None]) -> None:
    """One rank is killed half-way; all start again, and the loss goes on where it was."""
    load("base")
    load("pytorch")
    since = api.revision("Pod")
    made = documents(api, "pytorch-resume")
    job = job_of(made)
    assert names.RESTART in job["metadata"]["annotations"]
    # Jobs that fail in other stories make a node suspect; the checkpoint is a file of one node.
    free = (node for node in api.list("Node") if not node["spec"].get("taints"))
    host = {HOSTNAME: next(free)["metadata"]["labels"][HOSTNAME]}
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["nodeSelector"] = host
    for document in made:
        api.apply(document)
    wait_succeeded(api, job)
    said = logs(api, "pytorch-resume-master-0")
    start = re.search(r"(?s)starts at step 50, loss was (\S+)\n.* goes on with loss (\S+)\n", said)
    assert start, said
    assert 0.5 < float(start[2]) / float(start[1]) < 1
    assert "trained to step 100" in said
    uids = {pod["metadata"]["uid"] for pod in api.history("Pod", since)}
    assert len(uids) == 6
