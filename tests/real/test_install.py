# SPDX-License-Identifier: Apache-2.0
"""The overlay, on a cluster that has nothing yet: Muster runs in pods, and what it makes runs."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from muster.api.names import LEADS
from muster.local import cluster, handle, options
from muster.local.handle import Cluster
from realnode import images, real
from support.e2e.harness import Api, own_namespace

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "training"
SECONDS = 180.0
BAD = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "bad"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Worker": {
                "replicas": 1,
                "template": {"spec": {"containers": [{"name": "other", "image": "x"}]}},
            }
        }
    },
}
"""Its schema lets it in: no container has the name that the kind asks for."""

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("machine")]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give a real node with the two images, and no CRD."""
    nothing = tmp_path_factory.mktemp("crds")
    name = f"install-{nothing.name}"
    made = real.up(options.Options(name=name, crds=nothing, tied=True))
    try:
        real.load(made, [images.make("base"), images.make(images.OURS)])
        yield made
    finally:
        cluster.down(name)


@pytest.fixture(scope="module")
def installed(empty: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Apply an overlay of one's own: that of MPIJobs, the webhook and the page."""
    place = tmp_path_factory.mktemp("own") / "manifests"
    shutil.copytree(ROOT / "manifests", place)
    own = {
        "resources": ["../overlays/mpi"],
        "components": ["../components/webhook", "../components/dashboard"],
    }
    (place / "own").mkdir()
    (place / "own" / "kustomization.yaml").write_text(yaml.safe_dump(own))
    empty.kubectl("apply", "--server-side", "-k", str(ROOT / "crds"))
    empty.kubectl("apply", "--server-side", "-k", str(place / "own"))
    words = ("--namespace=muster-system", "deployment/muster", f"--timeout={SECONDS:.0f}s")
    try:
        empty.kubectl("wait", "--for=condition=Available", *words)
        empty.kubectl("rollout", "status", *words)
    except cluster.ClusterError:
        print(empty.kubectl("get", "pods", "-A", "-o", "yaml"))  # noqa: T201
        raise
    return empty


@pytest.fixture
def api(installed: Cluster) -> Iterator[Api]:
    """Give a namespace of its own."""
    with own_namespace(installed, "installed") as made:
        yield made


@pytest.mark.parametrize(
    ("name", "kind"), [("meet", "pytorchjob"), ("mpi", "mpijob.v2beta1.kubeflow.org")]
)
def test_an_example_trains(api: Api, name: str, kind: str) -> None:
    """Under the operator's own account, from apply to Succeeded, by the commands of users."""
    where = ("-n", api.namespace)
    api.kubectl("apply", *where, "-k", str(EXAMPLES / name))
    words = ("--for=condition=Succeeded", f"{kind}/{name}", f"--timeout={SECONDS:.0f}s")
    api.kubectl("wait", *where, *words)
    leads = "pod/meet-master-0" if name == "meet" else "job/mpi-launcher"
    assert "sum" in api.kubectl("logs", *where, leads)


def test_the_webhook_answers_through_its_service(api: Api) -> None:
    """What a schema cannot say is said at apply."""
    deadline = time.monotonic() + SECONDS
    while True:  # its certificate is published when it listens
        said = api.kubectl("get", "validatingwebhookconfiguration", "-o", "yaml")
        if "caBundle" in said:
            break
        assert time.monotonic() < deadline, said
        time.sleep(0.5)
    file = api.cluster.files.home / "bad.yaml"
    file.write_text(yaml.safe_dump(BAD))
    said = api.kubectl("apply", "-n", api.namespace, "-f", str(file), check=False)
    file.unlink()
    assert "denied the request" in said


def test_metrics_are_served_by_the_service(installed: Cluster) -> None:
    """To whom may read them; kube-proxy leads to one of the replicas."""
    where = ("--namespace=muster-system",)
    installed.kubectl("create", "serviceaccount", "reader", *where)
    reads = ("--clusterrole=muster-metrics-reader", "--serviceaccount=muster-system:reader")
    installed.kubectl("create", "clusterrolebinding", "reader", *reads)
    token = installed.kubectl("create", "token", "reader", *where).strip()
    address = "--output=jsonpath={.spec.clusterIP}:{.spec.ports[0].port}"
    found = installed.kubectl("get", "service/muster-metrics", *where, address)
    script = f"""
import ssl, urllib.error, urllib.request as u
for headers in {{}}, {{"Authorization": "Bearer {token}"}}:
    asked = u.Request("https://{found}/metrics", headers=headers)
    try:
        print(u.urlopen(asked, context=ssl._create_unverified_context()).read().decode())
    except urllib.error.HTTPError as error:
        print(error.code)
"""
    argv = [*real.enter(installed.files), sys.executable, "-c", script]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert said.startswith("401\n")
    assert "muster_" in said


def test_the_page_comes_through_kubectl_port_forward(installed: Cluster) -> None:
    """Of two replicas from the one that leads, also once that has gone; to who shows a token."""
    where = ("--namespace=muster-system",)
    installed.kubectl("create", "serviceaccount", "viewer", *where)
    looks = ("--verb=get", "--non-resource-url=/dashboard")
    installed.kubectl("create", "clusterrole", "looks", *looks)
    whose = ("--clusterrole=looks", "--serviceaccount=muster-system:viewer")
    installed.kubectl("create", "clusterrolebinding", "looks", *whose)
    token = installed.kubectl("create", "token", "viewer", *where).strip()
    seen = []
    for _ in range(2):
        holder = _holder(installed, *seen)
        seen.append(holder)
        installed.kubectl(
            "wait", f"pod/{holder}", *where, f"--timeout={SECONDS:.0f}s",
            f"--for=jsonpath={{.metadata.labels.{LEADS.replace('.', chr(92) + '.')}}}=muster",
        )  # fmt: skip
        marked = installed.kubectl("get", "pods", *where, f"--selector={LEADS}=muster", "-o=name")
        assert marked.split() == [f"pod/{holder}"]
        with _forwarded(installed) as port:
            assert _status(port, "") == 401
            assert _status(port, token) == 200
        installed.kubectl("delete", "pod", holder, *where)
    words = (*where, "deployment/muster", f"--timeout={SECONDS:.0f}s")
    installed.kubectl("wait", "--for=condition=Available", *words)


def _holder(made: Cluster, *past: str) -> str:
    """Return the name of the pod that leads, once it is none of these."""
    deadline = time.monotonic() + SECONDS
    while True:  # a Lease has no condition to wait for
        where = ("--namespace=muster-system", "--output=jsonpath={.spec.holderIdentity}")
        pod = made.kubectl("get", "lease/muster", *where).partition("_")[0]
        if pod and pod not in past:
            return pod
        assert time.monotonic() < deadline, pod
        time.sleep(0.5)


@contextmanager
def _forwarded(made: Cluster) -> Iterator[int]:
    """Give the port here behind which the page's Service is."""
    argv = ("port-forward", "--namespace=muster-system", "service/muster-dashboard", ":443")
    with subprocess.Popen(
        [handle.KUBECTL, *argv],
        env={**os.environ, **made.env()},
        stdout=subprocess.PIPE,
        text=True,
    ) as forward:
        try:
            assert forward.stdout is not None
            said = forward.stdout.readline()
            assert said.startswith("Forwarding from 127.0.0.1:"), said
            yield int(said.split(":")[1].split()[0])
        finally:
            forward.terminate()


def _status(port: int, token: str) -> int:
    """Return how a view is answered, once its process is at work."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    asked = urllib.request.Request(f"https://127.0.0.1:{port}/api/view")
    if token:
        asked.add_header("Authorization", f"Bearer {token}")
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(asked, context=context, timeout=SECONDS) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            # Nobody has made a view before the first cycle.
            if error.code != 503 or time.monotonic() > deadline:
                return error.code
        time.sleep(0.5)


def test_nothing_restarted_and_one_leads(installed: Cluster) -> None:
    """Probes are answered under a read-only root; the other replica waits."""
    words = ("--namespace=muster-system", "--output=json")
    found = json.loads(installed.kubectl("get", "pods", *words))["items"]
    statuses = [pod["status"]["containerStatuses"][0] for pod in found]
    assert [(one["ready"], one["restartCount"]) for one in statuses] == [(True, 0), (True, 0)]
    lease = json.loads(installed.kubectl("get", "lease/muster", *words))
    holder = lease["spec"]["holderIdentity"]
    assert sum(holder.startswith(pod["metadata"]["name"]) for pod in found) == 1
