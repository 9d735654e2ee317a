# SPDX-License-Identifier: Apache-2.0
"""docs/migration.md as somebody types it whose job runs meanwhile, command by command."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.frameworks import FRAMEWORKS
from muster.local import cluster, options
from muster.local.handle import Cluster
from support.e2e.harness import (
    OPERATOR_NAMESPACE,
    ROLES,
    ROOT,
    Api,
    Json,
    Operator,
    account_config,
    clear,
    tfjob,
)
from support.e2e.jobs_in_flight import Flight

GUIDE = (ROOT / "docs" / "migration.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", GUIDE, re.MULTILINE | re.DOTALL))
STORIES = {
    "From training-operator": (
        "training-operator-1.9-tfjob",
        [("kubeflow", "training-operator")],
        "embedded",
    ),
    "From tf-operator with kube-batch": (
        "tf-operator-1.0-tfjob",
        [("kubeflow", "tf-job-operator"), ("kube-system", "kube-batch")],
        "embedded",
    ),
    "From mpi-operator": ("mpi-operator-0.8-mpijob", [("mpi-operator", "mpi-operator")], "mpi"),
}
"""Section -> the recorded job that runs, the Deployments that are there, the overlay.

They are played one after the other on one cluster; the roles of the last include those before.
"""
WEBHOOK = "validator.training-operator.kubeflow.org"
IMAGE = "IMAGE=registry.example.com/team/muster:0.1.0"
INSTALL = {"embedded": f"make deploy {IMAGE}", "mpi": f"make deploy GANG=mpi {IMAGE}"}
TEAM = "team"
BACK = "Back again"

pytestmark = [pytest.mark.e2e, pytest.mark.full]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Bring up a cluster of one node that has seen other operators, and never Muster."""
    name, nothing = f"migration-{os.getpid()}", tmp_path_factory.mktemp("crds")
    shape = options.parse_shape("cpu=64,memory=64Gi")
    made = cluster.up(
        options.Options(
            name=name, nodes=1, shapes=(shape,), crds=nothing, scheduler=False, tied=True
        )
    )
    api = Api(made, TEAM)
    for namespace in (TEAM, "kubeflow", "mpi-operator"):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    api.wait("ServiceAccount", lambda found: "default" in found)
    yield made
    cluster.down(name)


@pytest.fixture
def api(own: Cluster) -> Iterator[Api]:
    """Give the team's namespace; the next section begins without its job."""
    made = Api(own, TEAM)
    yield made
    clear(made)


def typed(where: Cluster, command: str) -> str:
    """Return what a command of the page prints; it is typed in a clone, and must go well."""
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        env={**os.environ, **where.env()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"$ {command}\n{done.stdout}")
    assert done.returncode == 0, done.stdout
    return done.stdout


def served_before(
    api: Api, kind: str, versions: tuple[str, ...], group: str = "kubeflow.org"
) -> None:
    """Put the CRD there that another operator had, as loose as those were."""
    plural = f"{kind.lower()}s"
    name = f"{plural}.{group}"
    loose: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = [
        {
            "name": version,
            "served": True,
            "storage": version == versions[0],
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": loose},
        }
        for version in versions
    ]
    spec = {
        "group": group,
        "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
        "scope": "Namespaced",
        "versions": served,
    }
    what = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    notes = {"api-approved.kubernetes.io": "unapproved"}
    made = {**what, "metadata": {"name": name, "annotations": notes}, "spec": spec}
    path = f"{api.path(what['kind'], name)}?fieldManager=another&force=true"
    api.send("PATCH", path, made, "application/apply-patch+yaml")

    def established(found: dict[str, Json]) -> bool:
        conditions = found[name].get("status", {}).get("conditions") or ()
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    api.wait("CustomResourceDefinition", established)


def other_operator(api: Api, namespace: str, name: str) -> None:
    """Create the Deployment of another operator; nothing runs in its pods."""
    labels = {"app": name}
    container = {"name": name, "image": f"{name}:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    what = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
    api.send("POST", path, {**what, "spec": spec})
    if name == "training-operator":
        kind = "ValidatingWebhookConfiguration"
        group = "admissionregistration.k8s.io/v1"
        made = {"apiVersion": group, "kind": kind, "metadata": {"name": WEBHOOK}}
        api.send("POST", f"/apis/{group}/{kind.lower()}s", made)


def installed(api: Api) -> dict[str, Json]:
    """Return the Deployment and the cluster's roles of Muster, as far as an installation goes."""
    deployments = f"/apis/apps/v1/namespaces/{OPERATOR_NAMESPACE}/deployments"
    found = {one["metadata"]["name"]: one for one in api.list(deployments)}
    for one in found.values():  # beside it a controller writes what becomes of its pods
        del one["status"], one["metadata"]["resourceVersion"], one["metadata"]["managedFields"]
    roles = api.list("/apis/rbac.authorization.k8s.io/v1/clusterroles")
    ours = {f"role {one['metadata']['name']}": one for one in roles}
    return found | {name: one for name, one in ours.items() if name.startswith("role muster-")}


def blocks(section: str) -> list[str]:
    """Return what is typed in a section, block by block."""
    return re.findall(r"```sh\n(.*?)```", SECTIONS[section], re.DOTALL)


def test_every_section_is_played() -> None:
    """None is added without a story."""
    speaking = {title for title in SECTIONS if "kubectl" in "".join(blocks(title))}
    assert speaking == {*STORIES, BACK}
    assert {title for title in SECTIONS if "make deploy" in SECTIONS[title]} == set(STORIES)


@pytest.mark.parametrize("section", STORIES)
def test_a_person_follows_the_page(own: Cluster, api: Api, tmp_path: Path, section: str) -> None:
    """The old operator goes, Muster comes, and the job that runs has lost nothing by it.

    To install the same a second time changes nothing.
    """
    recorded, deployments, overlay = STORIES[section]
    kind = "MPIJob" if "mpi" in recorded else "TFJob"
    served_before(api, kind, tuple(reversed(FRAMEWORKS[kind].api.versions[:2])))
    if "kube-batch" in section:
        served_before(api, "PodGroup", ("v1alpha1",), "scheduling.incubator.k8s.io")
    for namespace, name in deployments:
        other_operator(api, namespace, name)
    flight = Flight(recorded, api)
    names = {p["metadata"]["name"] for p in api.list("Pod")}
    first, second = blocks(section)
    before = installed(api) if ROLES.get(own.server) == overlay else None
    for command in first.splitlines():
        typed(own, command)
    assert first.splitlines()[-1] == INSTALL[overlay]
    after = installed(api)
    assert "muster" in after
    assert before in (None, after)
    for namespace, name in deployments:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        assert api.send("GET", path)["spec"]["replicas"] == 0
    # The Deployment's image is on no node: a process with its account and roles plays its part.
    ROLES[own.server] = overlay
    operator = Operator(account_config(own, tmp_path, overlay), tmp_path / "operator.log", ())
    operator.start()
    try:
        state, job, pods = (typed(own, command) for command in second.splitlines())
        assert "condition met" in state
        assert re.search(rf"^mnist +Running +{len(names)}/{len(names)} running", job, re.MULTILINE)
        rows = [line.split() for line in pods.splitlines()[1:]]
        assert {row[0]: row[2:4] for row in rows} == {name: ["Running", "0"] for name in names}
        flight.has_lost_nothing()
        flight.ends_well()
        assert {p["status"]["phase"] for p in api.list("Pod")} <= {"Succeeded", "Running"}
    finally:
        operator.stop()
        operator.check_log()


def test_the_other_operator_comes_back(own: Cluster, api: Api) -> None:
    """Muster goes, the jobs stay. Nobody has Muster after this story."""
    api.create(tfjob("stays", suspend=True))
    (back,) = blocks(BACK)
    typed(own, back)
    assert "muster" not in installed(api)
    assert api.find("TFJob", "stays")
