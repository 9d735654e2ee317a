# SPDX-License-Identifier: Apache-2.0
"""The one table of kinds: what it takes to have one more."""

from __future__ import annotations

import ast
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml
from pydantic import Field

import crdgen
import crdmodels
import crdrules
import muster
from muster import flags, frameworks, gang
from muster.api.jobs import Kind
from muster.commands import render
from muster.frameworks import FRAMEWORKS, Framework, load, master_worker, of
from muster.frameworks.base import NO_ENVIRONMENT, Life, Operator, Pods, Roles, Spec
from muster.settings import Settings
from muster.store import permissions

EACH = pytest.mark.parametrize("row", FRAMEWORKS.values(), ids=FRAMEWORKS)


@EACH
def test_a_kind_is_consistent(row):
    """Its names agree with each other and with its model."""
    kind = row.api
    assert FRAMEWORKS[kind.name] is row
    assert kind.plural == f"{kind.name.lower()}s"
    assert set(kind.single) <= set(kind.types)
    assert kind.spec_field in {
        field.alias for field in crdmodels.SPECS[kind.name].model_fields.values()
    }


@EACH
def test_old_fields_and_defaults_are_of_fields_that_exist(row):
    """Old fields are declared at the top of the spec and in the run policy."""
    policy = {field.alias for field in crdmodels.RunPolicy.model_fields.values()}
    top = {field.alias for field in crdmodels.SPECS[row.kind].model_fields.values()}
    assert set(row.api.old_policy) <= top & policy
    assert set(row.api.defaults) <= set(row.api.versions)
    assert all(set(fields) <= top for fields in row.api.defaults.values())


@EACH
def test_rules_and_roles_are_of_fields_and_roles_that_exist(row):
    """So that the API server takes the CRD, and scaling finds its role."""
    kind = row.api
    fields = {field.alias for field in crdmodels.SPECS[kind.name].model_fields.values()}
    assert {rule.at for rule in crdrules.RULES[kind.name]} <= {"", *fields}
    assert kind.name not in crdrules.SCALED or master_worker.WORKER in kind.types
    assert all(set(own.managers) <= set(kind.managers) for own in (row, *row.variants))


def test_nobody_else_lists_kinds():
    """Only the table's own package spells a kind, and what turns others' documents into these."""
    root, kinds = Path(muster.__file__).parent, set(FRAMEWORKS)
    spelt = {
        f"{path.relative_to(root)}: {node.value}"
        for path in root.rglob("*.py")
        if path.parent.name not in ("frameworks", "convert")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in kinds
    }
    assert spelt == set()


class ToyJobSpec(crdmodels.JobSpec):
    """A job of toys."""

    toy_replica_specs: dict[str, crdmodels.ReplicaSpec] = Field(max_length=16)
    colour: str | None = None


TOY = Framework(
    api=Kind(
        name="ToyJob",
        plural="toyjobs",
        spec_field="toyReplicaSpecs",
        types=("Player",),
        versions=("v1", "v1beta1"),
        defaults={"v1beta1": {"colour": "red"}},
    ),
    operator=Operator("toyjob-controller", metric="toy"),
    roles=Roles(restart_policy="Never", is_master=master_worker.master_or_first),
    pods=Pods(
        container="toy",
        port_name="toyjob-port",
        port=7777,
        environment=lambda _job, _replica, _domain: NO_ENVIRONMENT,
    ),
    life=Life(master_worker.outcome),
    spec=Spec(options={"colour": "blue"}),
)


class TestASeventhKind:
    """One module and one row make a kind: everything else follows from the table."""

    @pytest.fixture(autouse=True)
    def _row(self, monkeypatch, tmp_path):
        table = MappingProxyType({**FRAMEWORKS, TOY.kind: TOY})
        monkeypatch.setattr(frameworks, "FRAMEWORKS", table)
        specs = {**crdmodels.SPECS, TOY.kind: ToyJobSpec}
        monkeypatch.setattr(crdgen, "SPECS", specs)
        monkeypatch.setattr(muster, "shipped", lambda _folder: tmp_path)
        for name, text in crdgen.render([TOY.api]).items():
            (tmp_path / name).write_text(text)

    @pytest.fixture
    def document(self):
        """Return a job of that kind."""
        template = {"spec": {"containers": [{"name": "toy", "image": "toy:1"}]}}
        return {
            "apiVersion": "kubeflow.org/v1beta1",
            "kind": "ToyJob",
            "metadata": {"name": "train", "namespace": "team"},
            "spec": {"toyReplicaSpecs": {"player": {"replicas": 2, "template": template}}},
        }

    def test_it_has_a_crd(self, tmp_path):
        """Its own spec and defaults, the status of all kinds."""
        text = (tmp_path / "kubeflow.org_toyjobs.yaml").read_text()
        v1, v1beta1 = yaml.load(text, yaml.CSafeLoader)["spec"]["versions"]
        assert (v1["name"], v1["storage"], v1beta1["name"]) == ("v1", True, "v1beta1")
        fields = v1beta1["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        assert fields["colour"] == {"type": "string", "default": "red"}
        assert "toyReplicaSpecs" in fields
        assert "gang" in v1["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]

    def test_its_jobs_are_read_by_its_rules(self, document):
        """And found again by the job alone."""
        job = load(TOY, document)
        assert not job.problems
        assert (job.kind, job.options) == ("ToyJob", {"colour": "blue"})
        assert of(job) is TOY

    def test_its_jobs_are_rendered(self, document, tmp_path, capsys):
        """Pods, services and group, under the names and labels of all kinds."""
        file = tmp_path / "job.yaml"
        file.write_text(yaml.safe_dump(document))
        assert render.run([str(file)], Settings()) == 0
        printed = capsys.readouterr()
        made = [d for d in yaml.safe_load_all(printed.out) if d["kind"] == "Pod"]
        assert printed.err == ""
        assert [pod["metadata"]["name"] for pod in made] == ["train-player-0", "train-player-1"]
        (owner,) = made[0]["metadata"]["ownerReferences"]
        assert owner["kind"] == "ToyJob"
        labels = made[0]["metadata"]["labels"]
        assert labels["training.kubeflow.org/operator-name"] == "toyjob-controller"

    def test_its_mistakes_are_named(self, document):
        """By its schema and by the rules of all kinds."""
        document["spec"]["toyReplicaSpecs"]["Keeper"] = {"template": {}}
        document["spec"]["color"] = "green"
        said = [str(p) for p in render.problems(TOY, render.as_served(TOY, document, ""))]
        assert 'supported values: "Player"' in " ".join(said)
        assert "spec.color: Unknown field: the API server drops it; did you mean colour?" in said

    def test_the_operator_serves_it(self):
        """It is watched, may be chosen by a flag, and its permissions are asked for."""
        assert flags.parse(["--enable-scheme=toyjob"], {}).kinds == ("ToyJob",)
        chosen = Settings(kinds=("ToyJob",)).frameworks
        assert chosen == (TOY,)
        asked = permissions.needed(gang.EMBEDDED, chosen, (), None)
        verbs = {a.verb for a in asked if a.resource == "toyjobs.kubeflow.org"}
        assert verbs == {"get", "list", "watch", "delete"}
