# SPDX-License-Identifier: Apache-2.0
"""What the README says about installing works, command by command, on an empty API server."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from harness import manifests_alone

from muster.local import cluster, options

ROOT = Path(__file__).parent.parent.parent
OVERLAYS = sorted(path.name for path in (ROOT / "manifests" / "overlays").iterdir())
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))

RUN = ["run", "--leader-elect"]
ARGUMENTS = {
    "mpi": [*RUN, "--gang-scheduler-name=embedded"],
    "namespaced": [*RUN, "--gang-scheduler-name=embedded", "--namespace=$(POD_NAMESPACE)"],
    "scheduler": ["scheduler", "--leader-elect", "--health-probe-bind-address=:8081"],
}

pytestmark = pytest.mark.e2e


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
    """Run the README's commands on it."""
    text = (ROOT / "README.md").read_text().split("## Install on a cluster")[1]
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    run(empty, ["sh", "-ec", block[1]])
    return empty


def kubectl(where: cluster.Cluster, *words: str) -> str:
    """Run kubectl in the repository's root; its output. Fails if it does, or warns."""
    return run(where, ["kubectl", *words])


def run(where: cluster.Cluster, command: list[str]) -> str:
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
    assert "Warning" not in answer.stderr, answer.stderr
    return answer.stdout


def test_readme_installs_from_nothing(installed: cluster.Cluster) -> None:
    """The Deployment and the default queue are there; a second time changes nothing."""
    assert kubectl(installed, "get", "queue", "default", "-o", "name")
    assert kubectl(installed, "get", "deployment", "muster", "-n", "muster-system", "-o", "name")
    again = kubectl(installed, "apply", "-k", "manifests/overlays/embedded")
    assert {line.rsplit(" ", 1)[1] for line in again.splitlines()} == {"unchanged"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_is_accepted(installed: cluster.Cluster, overlay: str, tmp_path: Path) -> None:
    """The API server takes every document, and the flag of the overlay is the last argument."""
    rendered = kubectl(
        installed, "kustomize", str(manifests_alone(tmp_path) / "overlays" / overlay)
    )
    (tmp_path / "all.yaml").write_text(rendered)
    kubectl(installed, "apply", "--dry-run=server", "-f", str(tmp_path / "all.yaml"))
    documents = yaml.safe_load_all(rendered)
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    wanted = ARGUMENTS.get(overlay) or [*RUN, f"--gang-scheduler-name={overlay}"]
    assert arguments == wanted


def test_with_cert_manager_the_operator_gets_files_and_no_right_to_publish(
    installed: cluster.Cluster, tmp_path: Path
) -> None:
    """The flags name the files of the Secret that the certificate is put into."""
    parts = ("overlays/embedded", "components/webhook", "components/webhook-cert-manager")
    manifests = manifests_alone(tmp_path)
    first, *others = (os.path.relpath(manifests / part, tmp_path) for part in parts)
    own = {"resources": [first], "components": others}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    rendered = kubectl(installed, "kustomize", str(tmp_path))
    whole = {
        (document["kind"], document["metadata"]["name"]): document
        for document in yaml.safe_load_all(rendered)
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
    """Install the namespaced overlay too, moved to the namespace team-a by one line."""
    folder = tmp_path_factory.mktemp("team")
    overlay = os.path.relpath(manifests_alone(folder) / "overlays" / "namespaced", folder)
    (folder / "kustomization.yaml").write_text(f"namespace: team-a\nresources: [{overlay}]\n")
    kubectl(installed, "apply", "-k", str(folder))
    return installed


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
        ("update", "leases.coordination.k8s.io", "team-a", True),
        ("update", "leases.coordination.k8s.io", "team-b", False),
        ("list", "secrets", "team-a", False),
    ],
)
def test_namespaced_overlay_writes_only_where_it_lives(
    team: cluster.Cluster, verb: str, resource: str, namespace: str, allowed: bool
) -> None:
    """It reads what takes room on the nodes everywhere, and jobs in its own namespace."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "system:serviceaccount:team-a:muster",
            "resourceAttributes": attributes(verb, resource, namespace),
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = team.ask(lambda api: api.create(path, review))
    assert answer["status"]["allowed"] is allowed


def attributes(verb: str, resource: str, namespace: str) -> dict[str, str]:
    """`plural.group/subresource` as a review asks for it."""
    whole, _, subresource = resource.partition("/")
    plural, _, group = whole.partition(".")
    return {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "namespace": namespace,
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_accepted(installed: cluster.Cluster, example: Path) -> None:
    """Every field is known to the schemas: `kubectl apply` is strict about them."""
    kubectl(installed, "apply", "-f", str(example.relative_to(ROOT)))
