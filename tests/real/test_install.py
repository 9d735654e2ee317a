# SPDX-License-Identifier: Apache-2.0
"""The overlay, on a cluster that has nothing yet: Muster runs in pods, and what it makes runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from harness import Api, own_namespace

from muster.local import cluster, images, options, real
from muster.local.handle import Cluster

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
    made = cluster.up(options.Options(name=name, nodes=0, real_nodes=1, crds=nothing, tied=True))
    try:
        real.load(made.files, made.options, [images.make("base"), images.make(images.OURS)])
        yield made
    finally:
        cluster.down(name)


@pytest.fixture(scope="module")
def installed(empty: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Apply an overlay of one's own: that of MPIJobs and the webhook."""
    place = tmp_path_factory.mktemp("own") / "manifests"
    shutil.copytree(ROOT / "manifests", place)
    own = {
        "resources": ["../overlays/mpi"],
        "components": ["../components/webhook"],
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
    argv = [*real.inside(installed.files), sys.executable, "-c", script]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert said.startswith("401\n")
    assert "muster_" in said


def test_nothing_restarted_and_one_leads(installed: Cluster) -> None:
    """Probes are answered under a read-only root; the other replica waits."""
    words = ("--namespace=muster-system", "--output=json")
    found = json.loads(installed.kubectl("get", "pods", *words))["items"]
    statuses = [pod["status"]["containerStatuses"][0] for pod in found]
    assert [(one["ready"], one["restartCount"]) for one in statuses] == [(True, 0), (True, 0)]
    lease = json.loads(installed.kubectl("get", "lease/muster", *words))
    holder = lease["spec"]["holderIdentity"]
    assert sum(holder.startswith(pod["metadata"]["name"]) for pod in found) == 1
