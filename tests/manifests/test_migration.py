# SPDX-License-Identifier: Apache-2.0
"""What docs/migration.md says works, command by command, where another operator was before."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.local import cluster, options

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs" / "migration.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", GUIDE, re.MULTILINE | re.DOTALL))
BLOCKS = {
    title: re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for title, text in SECTIONS.items()
}
BEFORE = {
    "From training-operator": [("kubeflow", "training-operator")],
    "From mpi-operator": [("mpi-operator", "mpi-operator")],
    "From tf-operator with kube-batch": [
        ("kubeflow", "tf-job-operator"),
        ("kube-system", "kube-batch"),
    ],
}
"""Section -> the Deployments (namespace, name) that were there."""

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """Bring up an API server that has no CRD."""
    name = f"migrate-{os.getpid()}"
    nothing = tmp_path_factory.mktemp("crds")
    wanted = options.Options(
        name=name, nodes=0, kwok=False, scheduler=False, crds=nothing, tied=True
    )
    yield cluster.up(wanted)
    cluster.down(name)


def shell(where: cluster.Cluster, text: str) -> str:
    """Run a block of commands in the repository's root, as a user does; fail if one fails."""
    answer = subprocess.run(
        ["sh", "-ec", text],
        cwd=ROOT,
        env={**os.environ, **where.env()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, f"{text}\n{answer.stdout}{answer.stderr}"
    return answer.stdout


def deployment(namespace: str, name: str) -> dict[str, Any]:
    """Return the Deployment of another operator."""
    labels = {"app": name}
    container = {"name": name, "image": f"{name}:1", "command": ["/manager"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def install(where: cluster.Cluster, namespace: str, name: str) -> None:
    """Put another operator there, with the webhook of training-operator."""
    shell(where, f"kubectl get namespace {namespace} || kubectl create namespace {namespace}")
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    where.ask(lambda api: api.create(path, deployment(namespace, name)))
    if name == "training-operator":
        config = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "validator.training-operator.kubeflow.org"},
        }
        plural = "validatingwebhookconfigurations"
        admission = f"/apis/admissionregistration.k8s.io/v1/{plural}"
        where.ask(lambda api: api.create(admission, config))


def test_every_block_of_the_guide_is_run_here() -> None:
    """None is added without a test."""
    assert {title for title, blocks in BLOCKS.items() if blocks} == {*BEFORE, "Back again"}
    assert all(len(blocks) <= 1 for blocks in BLOCKS.values())


@pytest.mark.parametrize("section", BEFORE)
def test_an_operator_is_replaced_and_comes_back(server: cluster.Cluster, section: str) -> None:
    """The old one is stopped, Muster is installed, jobs can be applied; and all of it twice."""
    for namespace, name in BEFORE[section]:
        install(server, namespace, name)
    (block,) = BLOCKS[section]
    shell(server, block)
    for namespace, name in BEFORE[section]:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        found = server.ask(lambda api, path=path: api.get(path))
        assert found["spec"]["replicas"] == 0
    shell(server, "kubectl apply -f examples/tfjob-simple.yaml")
    assert "muster" in shell(server, "kubectl get deployments -n muster-system -o name")
    (back,) = BLOCKS["Back again"]
    shell(server, back)
    assert "simple" in shell(server, "kubectl get tfjobs -o name")
    shell(server, "kubectl delete -f examples/tfjob-simple.yaml")
