# SPDX-License-Identifier: Apache-2.0
"""Commands of the terminal, by somebody who may `edit` one namespace and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from muster.allocator import policyfile
from muster.kube.auth import connect
from muster.scheduler import policy
from muster.settings import Settings
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


async def publish(config: Path) -> None:
    """Publish the default policy with the account of the operator."""
    kube = await connect(str(config))
    data = policyfile.data(policy.DEFAULT, Settings().published)
    await policyfile.store(kube, "muster-system", data)
    await kube.close()


def test_viewer_of_a_namespace_explains_its_jobs(
    api: Api, operator: Operator, tenant: Run
) -> None:
    """The report takes no rights beyond the namespace; every account reads the policy."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("large", workers=9))
    wait_reason(api, "large", "ExceedsCluster")
    where = ("-n", api.namespace)
    done = tenant("explain", "large", *where)
    assert done.returncode == 1
    first = f"TFJob/{api.namespace}/large: waiting, impossible as things are: ExceedsCluster\n"
    assert done.stdout.startswith(first)
    assert 'whether the operator runs: leases.coordination.k8s.io "muster" is' in done.stderr
    assert "muster-policy" in tenant("report", *where).stderr
    # The first stores the ConfigMap, the second finds it.
    asyncio.run(publish(operator.config))
    asyncio.run(publish(operator.config))
    assert "muster-policy" not in tenant("report", *where).stderr


def test_editor_of_a_namespace_restarts_its_jobs(api: Api, tenant: Run) -> None:
    """An editor restarts a job; a refusal names the missing role."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("first", workers=3, run="forever"))
    before = api.wait_pods(3, "Running", "first")
    where = ("-n", api.namespace)
    done = tenant("top", "--once")
    assert (done.returncode, done.stdout) == (2, "")
    assert "an administrator's ClusterRoleBinding to list them" in done.stderr
    done = tenant("restart", "tfjob/first", *where)
    assert done.stdout.splitlines()[-1] == "tfjob/first starts again", done.stderr
    after = api.wait_pods(3, "Running", "first")
    assert not {pod["metadata"]["uid"] for pod in after} & {p["metadata"]["uid"] for p in before}
