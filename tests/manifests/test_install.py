# SPDX-License-Identifier: Apache-2.0
"""What docs/migration.md says about installing works, command by command, on an API server that
had another operator before; what the README says of an empty one is told in test_readme.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gotools
import pytest
import yaml

from muster.local import cluster, options

ROOT = Path(__file__).parent.parent.parent
OVERLAYS = sorted(path.name for path in (ROOT / "manifests" / "overlays").iterdir())
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
RUN = ["run", "--leader-elect", "--metrics-secure"]
ARGUMENTS = {
    "mpi": [*RUN, "--gang-scheduler-name=embedded"],
    "namespaced": [
        *RUN,
        "--gang-scheduler-name=embedded",
        "--namespace=team-a",
        "--hide-other-namespaces",
    ],
    "scheduler": [
        "scheduler",
        "--leader-elect",
        "--metrics-secure",
        "--health-probe-bind-address=:8081",
    ],
}

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """Bring up an API server that has no CRD, no node and no controller but its own."""
    name = f"install-{os.getpid()}"
    nothing = tmp_path_factory.mktemp("crds")
    wanted = options.Options(
        name=name, nodes=0, kwok=False, scheduler=False, crds=nothing, tied=True
    )
    yield cluster.up(wanted)
    cluster.down(name)


@pytest.fixture(scope="module")
def installed(empty: cluster.Cluster) -> cluster.Cluster:
    """Follow the guide where all those operators are, and install the overlay that most need.

    What happens meanwhile to the jobs of each is told in test_migration.
    """
    for section, deployments in BEFORE.items():
        for namespace, name in deployments:
            put(empty, namespace, name)
        shell(empty, "\n".join(commands(section)[:-1]))
    shell(empty, "kubectl create namespace team-a")
    last = {commands(section)[-1] for section in BEFORE}
    assert len(last) == 2  # MPIJobs need an overlay of their own
    shell(empty, commands("From training-operator")[-1])
    return empty


def commands(section: str) -> list[str]:
    """Return the commands of a section."""
    return str(BLOCKS[section][0]).splitlines()


def shell(where: cluster.Cluster, text: str) -> str:
    """Run commands in the repository's root, as a user does; fail if one of them fails."""
    return run(where, ["sh", "-ec", text]).stdout


def kubectl(where: cluster.Cluster, *words: str) -> str:
    """Run kubectl in the repository's root; its output. Fails if it does, or warns."""
    answer = run(where, ["kubectl", *words])
    assert "Warning" not in answer.stderr, answer.stderr
    return answer.stdout


def run(where: cluster.Cluster, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command for which `where` is the cluster that kubectl speaks to."""
    answer = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **where.env()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, f"{command}\n{answer.stdout}{answer.stderr}"
    return answer


def helm(where: cluster.Cluster, *words: str) -> str:
    """Run helm in the repository's root; its output."""
    return run(where, [gotools.find("helm"), *words]).stdout


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


def put(where: cluster.Cluster, namespace: str, name: str) -> None:
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
    """None that speaks to a cluster is added without a test."""
    speaking = {title for title, blocks in BLOCKS.items() if "kubectl" in "".join(blocks)}
    assert speaking == {*BEFORE, "Back again"}
    assert all(len(BLOCKS[title]) == 2 for title in BEFORE)  # the second one in test_migration


@pytest.mark.skipif(not gotools.find("helm"), reason="no helm (make helm builds it)")
def test_helm_installs_upgrades_and_leaves_the_jobs(empty: cluster.Cluster) -> None:
    """Where nothing is there yet, not even the kind of the queue that comes with the release.

    An upgrade changes the CRDs; who uninstalls the operator keeps them, the queue and all jobs.
    """
    words = ("muster", "charts/muster", "--namespace=muster-helm")
    words += ("--set=image.repository=registry.example/muster,defaultQueue.create=true",)
    helm(empty, "install", *words, "--create-namespace")
    kubectl(empty, "apply", "-f", "examples/tfjob-simple.yaml")
    served = (
        "get",
        "crd/tfjobs.kubeflow.org",
        "-o=jsonpath={.spec.versions[?(@.served==true)].name}",
    )
    before = kubectl(empty, "get", "queue/default", "-o=jsonpath={.metadata.uid}")
    assert "v1beta2" in kubectl(empty, *served)
    helm(empty, "upgrade", *words, "--set=crds.oldVersions=false,defaultQueue.spec.weight=3")
    assert kubectl(empty, *served) == "v1"
    form = "-o=jsonpath={.metadata.uid} {.spec.weight}"
    assert kubectl(empty, "get", "queue/default", form) == f"{before} 3"
    helm(empty, "uninstall", "muster", "--namespace=muster-helm")
    assert kubectl(empty, "get", "queue/default", form) == f"{before} 3"
    assert "simple" in kubectl(empty, "get", "tfjobs", "-o", "name")
    assert not kubectl(empty, "get", "deployments", "-n", "muster-helm", "-o", "name")


def test_other_operators_are_replaced(installed: cluster.Cluster) -> None:
    """They are stopped; the Deployment is there, and jobs can be applied.

    A second time changes nothing.
    """
    for namespace, name in (each for section in BEFORE.values() for each in section):
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        found = installed.ask(lambda api, path=path: api.get(path))
        assert found["spec"]["replicas"] == 0
    assert kubectl(installed, "get", "deployment", "muster", "-n", "muster-system", "-o", "name")
    state = (
        "get",
        "deployment,clusterrole",
        "-A",
        "-o",
        "jsonpath={.items[*].metadata.resourceVersion}",
    )
    before = kubectl(installed, *state)
    shell(installed, commands("From training-operator")[-1])
    assert kubectl(installed, *state) == before
    kubectl(installed, "apply", "-f", "examples/tfjob-simple.yaml")


def test_every_overlay_is_accepted(installed: cluster.Cluster, tmp_path: Path) -> None:
    """The API server takes every document, and the flag of the overlay is the last argument."""
    folder = tmp_path / "rendered"
    folder.mkdir()
    for overlay in OVERLAYS:
        manifests = ROOT / "manifests" / "overlays" / overlay
        rendered = kubectl(installed, "kustomize", str(manifests))
        (folder / f"{overlay}.yaml").write_text(rendered)
        documents = yaml.load_all(rendered, yaml.CSafeLoader)
        (found,) = (document for document in documents if document["kind"] == "Deployment")
        arguments = found["spec"]["template"]["spec"]["containers"][0]["args"]
        wanted = ARGUMENTS.get(overlay) or [*RUN, f"--gang-scheduler-name={overlay}"]
        assert arguments == wanted, overlay
    kubectl(
        installed,
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
        str(folder),
    )


def test_with_cert_manager_the_operator_gets_files_and_no_right_to_publish(
    installed: cluster.Cluster, tmp_path: Path
) -> None:
    """The flags name the files of the Secret that the certificate is put into."""
    parts = ("overlays/embedded", "components/webhook", "components/webhook-cert-manager")
    manifests = ROOT / "manifests"
    first, *others = (os.path.relpath(manifests / part, tmp_path) for part in parts)
    own = {"resources": [first], "components": others}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    rendered = kubectl(installed, "kustomize", str(tmp_path))
    whole = {
        (document["kind"], document["metadata"]["name"]): document
        for document in yaml.load_all(rendered, yaml.CSafeLoader)
    }
    assert ("ClusterRole", "muster-webhook") not in whole
    assert ("ClusterRoleBinding", "muster-webhook") not in whole
    certificate = whole["Certificate", "muster-webhook"]
    pod = whole["Deployment", "muster"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = (one for one in pod["volumes"] if one["name"] == "webhook")
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "webhook")
    for flag, key in (("cert", "tls.crt"), ("key", "tls.key")):
        assert f"--admission-{flag}-file={mount['mountPath']}/{key}" in container["args"]
    configuration = whole["ValidatingWebhookConfiguration", "muster"]
    injected = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert injected == "muster-system/muster-webhook"


@pytest.fixture(scope="module")
def team(installed: cluster.Cluster, tmp_path_factory: pytest.TempPathFactory) -> cluster.Cluster:
    """Install the namespaced overlay too, beside the other operator, as the overlay says."""
    folder = tmp_path_factory.mktemp("team")
    copy = Path(shutil.copytree(ROOT / "manifests", folder / "manifests"))
    overlay = copy / "overlays" / "namespaced"
    for path in (overlay / "operator" / "kustomization.yaml", overlay / "jobs" / "bindings.yaml"):
        path.write_text(path.read_text().replace("muster-system", "muster-b"))
    top = overlay / "kustomization.yaml"
    top.write_text(top.read_text() + "nameSuffix: -b\n")
    beside = kubectl(installed, "kustomize", str(ROOT / "manifests" / "overlays" / "embedded"))
    assert not identities(kubectl(installed, "kustomize", str(overlay))) & identities(beside)
    kubectl(installed, "apply", "--server-side", "-k", str(overlay))
    return installed


def identities(rendered: str) -> set[tuple[str, str, str]]:
    """Return kind, namespace and name of each document."""
    found = ((d["kind"], d["metadata"]) for d in yaml.load_all(rendered, yaml.CSafeLoader))
    return {(kind, meta.get("namespace", ""), meta["name"]) for kind, meta in found}


@pytest.mark.parametrize(
    ("verb", "resource", "namespace", "allowed"),
    [
        ("list", "pods", "team-b", True),
        ("watch", "nodes", "", True),
        ("create", "pods", "team-a", True),
        ("create", "pods", "team-b", False),
        ("create", "pods/binding", "team-a", True),
        ("create", "pods/binding", "team-b", False),
        ("patch", "tfjobs.kubeflow.org/status", "team-a", True),
        ("list", "tfjobs.kubeflow.org", "team-b", False),
        ("create", "secrets", "team-a", True),
        ("create", "secrets", "team-b", False),
        ("create", "pods/exec", "team-a", True),
        ("create", "pods/exec", "team-b", False),
        ("create", "pods", "muster-b", False),
        ("update", "leases.coordination.k8s.io=muster", "muster-b", True),
        ("update", "leases.coordination.k8s.io=other", "muster-b", False),
        ("update", "leases.coordination.k8s.io=muster", "muster-system", False),
        ("list", "secrets", "team-a", False),
    ],
)
def test_namespaced_overlay_writes_only_where_its_jobs_are(
    team: cluster.Cluster, verb: str, resource: str, namespace: str, allowed: bool
) -> None:
    """It reads what takes room on the nodes everywhere, and jobs in the namespaces it names."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "system:serviceaccount:muster-b:muster-b",
            "resourceAttributes": attributes(verb, resource, namespace),
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = team.ask(lambda api: api.create(path, review))
    assert answer["status"]["allowed"] is allowed


def attributes(verb: str, resource: str, namespace: str) -> dict[str, str]:
    """`plural.group/subresource=name` as a review asks for it."""
    resource, _, name = resource.partition("=")
    whole, _, subresource = resource.partition("/")
    plural, _, group = whole.partition(".")
    return {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }


def test_the_other_operator_comes_back(installed: cluster.Cluster) -> None:
    """Its jobs are there; nobody has Muster after this story."""
    (back,) = BLOCKS["Back again"]
    shell(installed, back)
    assert "muster" not in kubectl(
        installed, "get", "deployments", "-n", "muster-system", "-o", "name"
    )
    assert "simple" in kubectl(installed, "get", "tfjobs", "-o", "name")
