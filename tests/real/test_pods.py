# SPDX-License-Identifier: Apache-2.0
"""A gang of plain Python meets by the names of its services; what became of it can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from muster.api import names
from muster.local.handle import Cluster
from support.e2e import forkserver, venvs
from support.e2e.harness import Api, Json
from support.e2e.venvs import TRAINING_SDK

pytestmark = pytest.mark.real

MEET = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
began, tries = time.monotonic(), 1
if rank == 0:
    with socket.create_server(("", port)) as server:
        peers = [server.accept()[0] for _ in range(world - 1)]
        total = sum(int(peer.recv(99)) for peer in peers)
        for peer in peers:
            peer.sendall(b"%d" % total)
else:
    while True:
        try:
            peer = socket.create_connection((host, port))
            break
        except OSError as error:
            print("no such name:" if isinstance(error, socket.gaierror) else "again:", error)
            tries += 1
            time.sleep(0.2)
    peer.sendall(b"%d" % rank)
    total = int(peer.recv(99))
print(f"rank {rank} of {world}: sum {total}, tries {tries}", flush=True)
"""


FIND = """
import os, socket, time
host = socket.gethostname()
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"]
job = address.partition(".")[2]
pods = [f"{job}-master-0", *(f"{job}-worker-{i}" for i in range(world - 1))]
assert (host, address) == (pods[rank], f"{pods[0]}.{job}"), (host, address)
for pod in pods:
    while True:
        try:
            socket.getaddrinfo(f"{pod}.{job}", None)
            break
        except OSError as error:
            print("again:", error)
            time.sleep(0.2)
try:
    raise SystemExit(f"found as {socket.getaddrinfo(pods[rank - 1], None)}")
except OSError:
    print(f"rank {rank} found", *pods, flush=True)
"""
"""Ends well where each pod has the name of its job's one service, and no other."""

SDK = """
import json, sys
from kubeflow.training import TrainingClient
config, namespace, kind, name = sys.argv[1:]
client = TrainingClient(config_file=config, namespace=namespace, job_kind=kind)
print(json.dumps(client.get_job_logs(name, is_master=False)[0]))
"""


def container(script: str, image: str) -> dict[str, Any]:
    """Return a container that runs Python."""
    return {"name": "pytorch", "image": image, "command": ["python3", "-uc", script]}


def filler(name: str, image: str, node: str, cpu: str) -> Json:
    """Return a pod that takes room on a node for as long as it is there."""
    idle = container("import time; time.sleep(3600)", image)
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "containers": [{**idle, "resources": {"requests": {"cpu": cpu}}}],
    }
    meta = {"name": name, "labels": {"part": "filler"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def pytorchjob(
    name: str,
    image: str,
    script: str,
    *,
    workers: int = 2,
    policy: str = "Never",
    run: Json | None = None,
    **more: Any,
) -> Json:
    """Return a job of one master and some workers; `more` is for their containers."""

    def role(count: int) -> Json:
        spec = {
            "shareProcessNamespace": True,  # so that a program may kill itself
            "terminationGracePeriodSeconds": 2,
            "containers": [{**container(script, image), **more}],
        }
        return {"replicas": count, "restartPolicy": policy, "template": {"spec": spec}}

    roles = {"Master": role(1), **({"Worker": role(workers)} if workers else {})}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": roles, "runPolicy": run or {}},
    }


def await_event(api: Api, job: str, words: str) -> None:
    """Wait until an event of the job says so: events are written last."""

    def told(events: dict[str, Json]) -> bool:
        of_job = (e for e in events.values() if e["involvedObject"]["name"] == job)
        return any(words in event["message"] for event in of_job)

    api.wait("Event", told, what=f"an event of {job}: {words}")


def ask(api: Api, *words: str) -> tuple[int, str]:
    """Return the exit code of a muster command, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        done = forkserver.run(words, Path(folder), api.cluster.env())
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout or done.stderr


def logs_by_sdk(api: Api, kind: str, job: str) -> dict[str, str]:
    """Return what the released SDK reads of a job's logs, by pod."""
    sdk = venvs.python("kubeflow-training", *TRAINING_SDK)
    argv = [str(sdk), "-c", SDK, str(api.cluster.kubeconfig), api.namespace, kind, job]
    said = subprocess.check_output(argv, text=True)
    read: dict[str, str] = json.loads(said.splitlines()[-1])
    return read


def test_a_gang_meets_by_name_and_succeeds(api: Api, image: str) -> None:
    """Every rank saw all others; the sum is right; logs are read by kubectl and SDK.

    The master's name is known before a worker begins.
    """
    api.create(pytorchjob("meet", image, MEET))
    api.wait_condition("meet", "Succeeded", of="PyTorchJob")
    for rank, pod in enumerate(("meet-master-0", "meet-worker-0", "meet-worker-1")):
        said = api.kubectl("logs", "-n", api.namespace, pod)
        assert f"rank {rank} of 3: sum 3, tries" in said
        assert said.count("no such name") <= 1
    read = logs_by_sdk(api, "PyTorchJob", "meet")
    assert sorted(read) == ["meet-master-0", "meet-worker-0", "meet-worker-1"]
    assert "rank 2 of 3: sum 3, tries" in read["meet-worker-1"]
    codes = [
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        for pod in api.pods("meet")
    ]
    assert codes == [0, 0, 0]


def test_a_gang_meets_by_the_names_of_one_service(api: Api, image: str) -> None:
    """Each rank finds all others as POD.JOB, where its container knows itself by that name."""
    job = pytorchjob("one", image, f"{FIND}{MEET}")
    job["metadata"]["annotations"] = {names.SERVICE: names.SERVICE_OF_JOB}
    api.create(job)
    api.wait_condition("one", "Succeeded", of="PyTorchJob")
    pods = ("one-master-0", "one-worker-0", "one-worker-1")
    for rank, pod in enumerate(pods):
        said = api.kubectl("logs", "-n", api.namespace, pod)
        assert f"rank {rank} found {' '.join(pods)}" in said
        assert f"rank {rank} of 3: sum 3, tries" in said
    assert [service["metadata"]["name"] for service in api.list("Service")] == ["one"]


def test_logs_of_all_ranks_are_followed_and_read(api: Api, image: str) -> None:
    """Also of a container that is started anew in its pod, and what it printed before that."""
    script = """
import os, time
rank, run = os.environ["RANK"], len(os.listdir("/run/shared"))
open(f"/run/shared/{run}", "w").close()
print(f"run {run} of rank {rank}", flush=True)
while not os.path.exists("/tmp/go"):
    time.sleep(0.1)
raise SystemExit(rank == "1" and run == 0)
"""
    mounts = [{"name": "shared", "mountPath": "/run/shared"}]
    job = pytorchjob("told", image, script, workers=1, policy="OnFailure", volumeMounts=mounts)
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["volumes"] = [{"name": "shared", "emptyDir": {}}]
    api.create(job)
    words = ("logs", "pytorchjob/told", "-n", api.namespace)
    with subprocess.Popen(
        [sys.executable, "-m", "muster", *words, "--follow"],
        env={**os.environ, **api.cluster.env(), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        try:
            assert following.stdout
            begun = {following.stdout.readline() for _ in range(2)}
            assert begun == {"master-0 | run 0 of rank 0\n", "worker-0 | run 0 of rank 1\n"}
            go(api, "told-worker-0")
            assert following.stdout.readline() == "worker-0 | run 1 of rank 1\n"
            # A kubelet forgets it when the pod has ended.
            before = ask(api, *words, "--rank", "worker-0", "--previous")
            assert before == (0, "worker-0 | run 0 of rank 1\n")
            go(api, "told-worker-0")
            api.wait_pods(1, "Succeeded", "told")
            go(api, "told-master-0")
            assert following.stdout.read() == ""
        finally:
            following.kill()
    api.wait_condition("told", "Succeeded", of="PyTorchJob")
    both = "master-0 | run 0 of rank 0\nworker-0 | run 1 of rank 1\n"
    assert ask(api, *words) == (0, both)
    assert ask(api, *words, "--rank", "1") == (0, "worker-0 | run 1 of rank 1\n")


def go(api: Api, pod: str) -> None:
    """Let a program go on that waits for a file."""
    api.kubectl("exec", "-n", api.namespace, pod, "--", "touch", "/tmp/go")


def test_exit_codes_come_back(api: Api, image: str) -> None:
    """A program that ends badly fails its job, and the code is told."""
    script = "raise SystemExit(print('no data') or 1)"
    api.create(pytorchjob("bad", image, script, workers=0, policy="ExitCode"))
    job = api.wait_condition("bad", "Failed", of="PyTorchJob")
    await_event(api, "bad", "exited with code 1")
    assert reason(job).startswith("The first to fail was pod bad-master-0 on node ")
    assert reason(job).endswith(": container pytorch ended with exit code 1.")
    told = ask(api, "explain", "pytorchjob/bad", "-n", api.namespace)[1]
    assert told.endswith("  the end of its log:\n    no data\n")


@pytest.mark.parametrize(("signal", "code"), [("SIGKILL", 137), ("SIGTERM", 143)])
def test_a_real_signal_is_retried_under_exit_code(
    api: Api, image: str, signal: str, code: int
) -> None:
    """A pod of its own each time, until backoffLimit says that it is enough."""
    script = f"import os, signal; os.kill(os.getpid(), signal.{signal})"
    since = api.revision("Pod")
    run = {"backoffLimit": 2, "cleanPodPolicy": "None"}
    job = pytorchjob("shot", image, script, workers=0, policy="ExitCode", run=run)
    api.create(job)
    api.wait_condition("shot", "Failed", of="PyTorchJob")
    await_event(api, "shot", f"exited with code {code}")
    assert len({pod["metadata"]["uid"] for pod in api.history("Pod", since)}) > 1


def test_what_ran_out_of_memory_is_told(api: Api, image: str) -> None:
    """The kernel's kill is 137 as well, and kubelet says why."""
    limits = {"limits": {"memory": "48Mi"}}
    job = pytorchjob("hungry", image, "bytearray(1 << 28)", workers=0, resources=limits)
    api.create(job)
    job = api.wait_condition("hungry", "Failed", of="PyTorchJob")
    assert reason(job).endswith("ended with exit code 137 (SIGKILL, OOMKilled).")
    (pod,) = api.pods("hungry")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    await_event(api, "hungry", "exited with code 137")


def reason(job: Json) -> str:
    """Return what the job's status says of it."""
    return str(job.get("status", {}).get("reason", ""))


def test_an_image_that_is_not_there_is_said_in_the_status(api: Api) -> None:
    """With what to do."""
    api.create(pytorchjob("lost", "localhost/no/such:1", "", workers=0))
    job = api.wait_job("lost", reason, of="PyTorchJob")
    assert reason(job).startswith("Container pytorch of pod lost-master-0 on node ")
    assert "has no image: correct its name" in reason(job)


def test_a_container_that_cannot_be_made_is_said_until_it_can(api: Api, image: str) -> None:
    """Its Secret comes later: the job goes on by itself."""
    missing = [{"secretRef": {"name": "keys"}}]
    api.create(pytorchjob("keyless", image, "", workers=0, envFrom=missing))
    job = api.wait_job("keyless", reason, of="PyTorchJob")
    assert "cannot be created: correct the ConfigMap, Secret" in reason(job)
    api.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}})
    job = api.wait_condition("keyless", "Succeeded", of="PyTorchJob")
    assert reason(job) == ""


def test_a_program_that_ignores_sigterm_is_gone_after_its_grace(api: Api, image: str) -> None:
    """While its job is suspended nothing of it runs; resumed, it begins anew."""
    script = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(3600)
"""
    api.create(pytorchjob("stubborn", image, script))
    first = {pod["metadata"]["uid"] for pod in api.wait_pods(3, "Running", "stubborn")}
    api.patch("PyTorchJob", "stubborn", {"spec": {"runPolicy": {"suspend": True}}})
    api.wait("Pod", lambda pods: not pods, what="no pods")
    api.wait_condition("stubborn", "Suspended", of="PyTorchJob")
    api.patch("PyTorchJob", "stubborn", {"spec": {"runPolicy": {"suspend": False}}})
    second = {pod["metadata"]["uid"] for pod in api.wait_pods(3, "Running", "stubborn")}
    assert not first & second


@pytest.fixture
def nodes(there: Cluster) -> list[str]:
    """Name the real nodes of a cluster whose kubelets may be tricked."""
    if not there.extra.nodes:
        pytest.skip("needs nodes of this machine")
    return [f"real-{number + 1}" for number in range(there.extra.nodes)]
