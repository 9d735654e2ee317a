# SPDX-License-Identifier: Apache-2.0
"""Every command of the pages under docs/ works for somebody who types one after the other.

Those of the README and of a few pages have tests of their own, see `pages`.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from muster.local.handle import Cluster
from support.e2e import doc_commands, forkserver, harness
from support.e2e.harness import PATIENCE, ROOT, Api, Operator, tfjob

pytestmark = [pytest.mark.e2e, pytest.mark.full]

TYPED = doc_commands.typed()
INSTALL = "make deploy IMAGE=registry.example.com/team/muster:0.1.0"
"""Typed by test_readme.py: what it installs is here already."""
DOCTOR, BUNDLE = "muster doctor", "muster bundle --from http://127.0.0.1:8082"
CODES = {
    DOCTOR: 2,
    "kubectl auth can-i create pods -n muster-system --as=anna --as-group=team-a": 1,
}
"""Command -> its exit code where that is not 0: 1 says no, 2 that the operator is no pod, as a
process plays its part here.
"""
SAYS = {
    DOCTOR: "Cure: ",
    "kubectl get queues": "team-docs",
    "kubectl get tfjobs,pytorchjobs,mpijobs,xgboostjobs,paddlejobs,jaxjobs -A": "wav2vec",
    "kubectl get podgroups -A -o wide": "wav2vec",
    "muster restart wav2vec -n speech": "tfjob/wav2vec starts again",
}
"""Command -> what is in its output."""
ASKS = "kubectl auth can-i "
"""An API server goes by a new role a moment later, and tells nobody when: it is asked again."""
APPS = "/apis/apps/v1/namespaces/muster-system/deployments"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
LEFT = (
    "namespace/team-docs namespace/monitoring namespace/speech queue/team-docs "
    "priorityclass/production clusterrole/muster-dashboard clusterrolebinding/muster-dashboard "
    "clusterrolebinding/muster-metrics-reader"
)
"""What the pages and their reader leave."""


@pytest.fixture(scope="module")
def reader(local_cluster: Cluster, shared_operator: Operator) -> Iterator[Api]:
    """Give the reader's cluster: the operator is installed, a team has a job, and Prometheus is
    somewhere.
    """
    made, speech = (Api(local_cluster, name) for name in (harness.OPERATOR_NAMESPACE, "speech"))
    for name in ("monitoring", speech.namespace):
        made.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    overlay = made.kubectl("kustomize", str(ROOT / "manifests" / "overlays" / "embedded"))
    documents = yaml.safe_load_all(overlay)
    made.send("POST", APPS, next(d for d in documents if d["kind"] == "Deployment"))
    speech.wait("ServiceAccount", lambda found: "default" in found)
    speech.create(tfjob("wav2vec", workers=2, run="forever"))
    speech.wait_pods(2, "Running", "wav2vec")
    # A controller puts the rules of muster-edit into `edit` some time after these are there.
    made.wait(ROLES, lambda found: "kubeflow.org" in str(found["edit"].get("rules")))
    yield made
    harness.clear(speech)
    made.delete(APPS, "muster")
    made.send("DELETE", made.path("Pod"), {"gracePeriodSeconds": 0})
    made.kubectl("delete", "--ignore-not-found", "--wait=false", *LEFT.split())


def typed(where: Cluster, folder: Path, command: str) -> tuple[int, str]:
    """Return the exit code and the output of a command that is typed in a folder."""
    if command.startswith("muster "):
        done = forkserver.run(shlex.split(command)[1:], folder, where.env())
    else:
        done = subprocess.run(
            ["sh", "-ec", command],
            cwd=folder,
            env=where.env(),
            capture_output=True,
            text=True,
            check=False,
        )
    print(f"$ {command}\n{done.stdout}{done.stderr}")
    return done.returncode, done.stdout + done.stderr


def test_the_tables_are_of_these_pages() -> None:
    """A command that ends otherwise than others, or is left out, is there."""
    there = {command for blocks in TYPED.values() for b in blocks for command in b.commands}
    assert there >= {*CODES, *SAYS, INSTALL, BUNDLE}


@pytest.mark.parametrize("page", TYPED)
def test_every_command_of_a_page_works(
    reader: Api, shared_operator: Operator, tmp_path: Path, page: str
) -> None:
    """As it stands there, but for the port of an operator, where a file is written, and a
    namespace that other stories have on this cluster.
    """
    here = {BUNDLE: f"{BUNDLE[:-4]}{shared_operator.debug} -o {tmp_path}/muster-bundle.tar.gz"}
    for block in TYPED[page]:
        for command in (each for each in block.commands if each != INSTALL):
            wanted, deadline = CODES.get(command, 0), time.monotonic() + PATIENCE
            what = here.get(command, command).replace("team-a", "team-docs")
            code, said = typed(reader.cluster, tmp_path, what)
            while command.startswith(ASKS) and code != wanted and time.monotonic() < deadline:
                time.sleep(0.1)
                code, said = typed(reader.cluster, tmp_path, what)
            assert code == wanted, f"docs/{page}.md, line {block.line}: {command}\n{said}"
            assert SAYS.get(command, "") in said
            assert "Traceback" not in said
