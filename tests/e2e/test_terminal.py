# SPDX-License-Identifier: Apache-2.0
"""Commands of the terminal, by somebody who may `edit` one namespace and nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support.e2e import forkserver
from support.e2e.gangs import wait_reason
from support.e2e.harness import Api, Operator, add_nodes, tfjob

pytestmark = [pytest.mark.e2e, pytest.mark.full]

Run = Callable[..., subprocess.CompletedProcess[str]]
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def tenant(api: Api, operator: Operator, tmp_path: Path) -> Run:
    """Give what runs commands as an account with the roles of people in this namespace alone."""
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}})
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": api.namespace}
    for role in ("view", "muster-view", "muster-edit"):
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
        binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": role}}
        api.create({**binding, "roleRef": reference, "subjects": [subject]})
    asked = api.send("POST", api.path("ServiceAccount", "tenant", "token"), {})
    file, config = tmp_path / "tenant", yaml.safe_load(api.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": asked["status"]["token"]}
    file.write_text(yaml.safe_dump(config))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = forkserver.run(words, tmp_path, {"KUBECONFIG": str(file)})
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def test_a_tenant_sees_and_restarts_what_is_his(api: Api, tenant: Run) -> None:
    """What he may not do is told with what would let him."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("first", workers=3, run="forever"))
    before = api.wait_pods(3, "Running", "first")
    api.create(tfjob("second", workers=4, run="forever"))
    wait_reason(api, "second", "NotEnoughResources")
    where = ("-n", api.namespace)
    rows = tenant("list", "jobs", *where).stdout.splitlines()
    assert [row.split()[:3] for row in rows[1:]] == [
        ["tfjob/first", "Running", "3/3"],
        ["tfjob/second", "Queued", "0/4"],
    ]
    (waits, _runs) = tenant("list", "gangs", *where).stdout.splitlines()[1:]
    assert waits.split()[:4] == ["tfjob/second", "Waiting", "default", "1"]
    for words, cure in (
        (("list", "jobs", "-A"), "-n NAMESPACE asks for one namespace alone"),
        (("list", "nodes"), "an administrator's ClusterRoleBinding to list them"),
    ):
        done = tenant(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert cure in done.stderr
    done = tenant("suspend", "second", "--wait", *where)
    assert (done.returncode, done.stderr) == (0, "")
    done = tenant("restart", "tfjob/first", *where)
    assert done.stdout.splitlines()[-1] == "tfjob/first starts again", done.stderr
    after = api.wait_pods(3, "Running", "first")
    assert not {pod["metadata"]["uid"] for pod in after} & {p["metadata"]["uid"] for p in before}
