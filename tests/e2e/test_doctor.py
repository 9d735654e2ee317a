# SPDX-License-Identifier: Apache-2.0
"""`muster doctor` on a real API server: nothing is wrong, then one thing after the other is."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.e2e import forkserver, harness
from support.e2e.harness import ROOT, Api, StartOperator, add_nodes

pytestmark = [pytest.mark.e2e, pytest.mark.full]

APPS = "/apis/apps/v1/namespaces/muster-system/deployments"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@pytest.fixture
def home(api: Api) -> Iterator[Api]:
    """Install what of the overlay stories do without; its pods are simulated."""
    add_nodes(api, {"cpu": "16"})
    made = Api(api.cluster, harness.OPERATOR_NAMESPACE)
    yield made
    for name in [each["metadata"]["name"] for each in made.list(APPS)]:
        made.delete(APPS, name)
    made.send("DELETE", made.path("Pod"), {"gracePeriodSeconds": 0})
    harness.ROLES.pop(made.cluster.server)


def test_what_is_wrong_is_told(home: Api, start_operator: StartOperator, tmp_path: Path) -> None:
    """Nothing at first; then that nobody leads, may do what is needed, or is alone."""

    def ask(*words: str) -> tuple[int, str]:
        done = forkserver.run(("doctor", *words), tmp_path, home.cluster.env())
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout

    operator = start_operator("--leader-elect", fresh=True)
    overlay = home.kubectl("kustomize", str(ROOT / "manifests/overlays/embedded"))
    (mine,) = (d for d in yaml.safe_load_all(overlay) if d["kind"] == "Deployment")
    # The operator is no pod here: who holds the Lease is looked up among these.
    mine["spec"]["template"]["spec"]["hostname"] = socket.gethostname().partition(".")[0].lower()
    home.send("POST", APPS, mine)
    home.wait(APPS, lambda found: (found["muster"].get("status") or {}).get("readyReplicas") == 2)
    assert ask() == (0, "ok       nothing is wrong\n")

    code, text = ask(f"--kubeconfig={operator.config}")
    assert code == 2, text
    assert "have a role grant you: list deployments.apps in namespace muster-system" in text

    operator.stop()
    home.delete(BINDINGS, "muster-gang-cluster")
    mine["metadata"] = {"name": "training-operator", "labels": {}}
    (container,) = mine["spec"]["template"]["spec"]["containers"]
    container["image"] = "kubeflow/training-operator:v1-5525468"
    for labels in (mine["spec"]["selector"]["matchLabels"],
                   mine["spec"]["template"]["metadata"]["labels"]):  # fmt: skip
        labels["app.kubernetes.io/name"] = "training-operator"
    home.send("POST", APPS, mine)
    code, text = ask()
    assert (code, text.count("\n")) == (2, 3), text
    assert "nobody leads: lease muster in muster-system is not held" in text
    assert "permissions of the operator are missing: " in text
    assert "list, watch nodes;" in text
    assert "muster-system/training-operator handles the same jobs" in text
