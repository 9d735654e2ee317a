# SPDX-License-Identifier: Apache-2.0
"""An API server takes all that is installed: the chart, every overlay, two of them side by side.

What the README and docs/migration.md say about it is told in test_readme and test_migration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import gotools
import pytest
import yaml

from muster.kube.flowcontrol import PriorityLevel
from muster.local import cluster, options

ROOT = Path(__file__).parent.parent.parent
OVERLAYS = sorted(path.name for path in (ROOT / "manifests" / "overlays").iterdir())
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

pytestmark = [pytest.mark.e2e, pytest.mark.full]


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
def spaces(empty: cluster.Cluster) -> cluster.Cluster:
    """Create the namespaces in which the overlays put something."""
    for name in ("muster-system", "team-a"):
        kubectl(empty, "create", "namespace", name)
    return empty


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


@pytest.mark.skipif(not gotools.find("helm"), reason="no helm (make helm builds it)")
def test_helm_installs_upgrades_and_leaves_the_jobs(empty: cluster.Cluster) -> None:
    """Where nothing is there yet, not even the kind of the queue that comes with the release.

    An upgrade changes the CRDs; who uninstalls the operator keeps them, the queue and all jobs.
    """
    words = ("muster", "charts/muster", "--namespace=muster-helm")
    words += ("--set=image.repository=registry.example/muster,defaultQueue.create=true",)
    helm(empty, "install", *words, "--create-namespace")
    # Not by `condition=`: kubectl fails where the status has none yet.
    accepted = "--for=jsonpath={.status.acceptedNames.kind}=TFJob"
    kubectl(empty, "wait", accepted, "crd/tfjobs.kubeflow.org")
    kubectl(empty, "wait", "--for=condition=Established", "crd/tfjobs.kubeflow.org")
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


def test_every_overlay_is_accepted(spaces: cluster.Cluster, tmp_path: Path) -> None:
    """The API server takes every document, and the flag of the overlay is the last argument."""
    folder = tmp_path / "rendered"
    folder.mkdir()
    for overlay in OVERLAYS:
        manifests = ROOT / "manifests" / "overlays" / overlay
        rendered = kubectl(spaces, "kustomize", str(manifests))
        (folder / f"{overlay}.yaml").write_text(rendered)
        documents = yaml.load_all(rendered, yaml.CSafeLoader)
        (found,) = (document for document in documents if document["kind"] == "Deployment")
        arguments = found["spec"]["template"]["spec"]["containers"][0]["args"]
        wanted = ARGUMENTS.get(overlay) or [*RUN, f"--gang-scheduler-name={overlay}"]
        assert arguments == wanted, overlay
    kubectl(
        spaces,
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
        str(folder),
    )


def test_with_cert_manager_the_operator_gets_files_and_no_right_to_publish(
    spaces: cluster.Cluster, tmp_path: Path
) -> None:
    """The flags name the files of the Secret that the certificate is put into."""
    parts = ("overlays/embedded", "components/webhook", "components/webhook-cert-manager")
    manifests = ROOT / "manifests"
    first, *others = (os.path.relpath(manifests / part, tmp_path) for part in parts)
    own = {"resources": [first], "components": others}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    rendered = kubectl(spaces, "kustomize", str(tmp_path))
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
def team(spaces: cluster.Cluster, tmp_path_factory: pytest.TempPathFactory) -> cluster.Cluster:
    """Install the namespaced overlay so that it may stand beside another, as the overlay says."""
    folder = tmp_path_factory.mktemp("team")
    copy = Path(shutil.copytree(ROOT / "manifests", folder / "manifests"))
    overlay = copy / "overlays" / "namespaced"
    for path in (overlay / "operator" / "kustomization.yaml", overlay / "jobs" / "bindings.yaml"):
        path.write_text(path.read_text().replace("muster-system", "muster-b"))
    top = overlay / "kustomization.yaml"
    top.write_text(top.read_text() + "nameSuffix: -b\n")
    beside = kubectl(spaces, "kustomize", str(ROOT / "manifests" / "overlays" / "embedded"))
    assert not identities(kubectl(spaces, "kustomize", str(overlay))) & identities(beside)
    kubectl(spaces, "apply", "--server-side", "-k", str(overlay))
    return spaces


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
        ("create", "events", "muster-b", True),
        ("create", "events", "muster-system", False),
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
    answer = team.ask(lambda api: api.create(path, review, PriorityLevel.PLACEMENT))
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
