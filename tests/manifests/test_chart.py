# SPDX-License-Identifier: Apache-2.0
"""The Helm chart installs what kustomize does, for the same choices."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import bundle
import gotools
import pytest
import yaml

import muster
from muster import flags
from muster.api import names
from muster.gang import BACKENDS
from muster.local import binaries, handle
from muster.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "charts" / "muster"
NAMED = {"image": {"repository": "muster", "tag": "not-set-see-docs-install.md"}}
QUEUE = "scheduling.incubator.k8s.io/v1alpha1/Queue"

Document = dict[str, Any]
Values = dict[str, Any]

HELM = gotools.find("helm")
pytestmark = pytest.mark.skipif(not HELM, reason="no helm: `make helm` builds it")

ON = {"enabled": True}
CHOICES: dict[str, tuple[list[str], Values]] = {
    **{
        name: ([f"overlays/{name}"], {"gangScheduler": name})
        for name in (*BACKENDS, "none")
    },
    "mpi": (["overlays/mpi"], {"mpi": {"v1": True, "v2beta1": True}}),
    "scheduler": (["overlays/scheduler"], {"schedulerOnly": True}),
    "namespaced": (
        ["overlays/namespaced"],
        {"namespaces": ["team-a"], "mpi": {"v1": True, "v2beta1": True}},
    ),
    "webhook": (["overlays/volcano", "components/webhook"],
                {"gangScheduler": "volcano", "webhook": ON}),
    "cert-manager": (
        ["overlays/embedded", "components/webhook", "components/webhook-cert-manager"],
        {"webhook": ON, "certManager": ON},
    ),
    "dashboard": (["overlays/embedded", "components/dashboard"], {"dashboard": ON}),
    "around": (
        ["overlays/embedded", "components/delayed-binding", "components/monitoring"],
        {"delayedBinding": True, "prometheus": {"serviceMonitor": ON, "rules": ON}},
    ),
}  # fmt: skip
"""Choice -> overlay and components, and the values that mean the same."""
WHOLE: Values = {
    **CHOICES["namespaced"][1],
    **CHOICES["cert-manager"][1],
    **CHOICES["around"][1],
    "schedulerConf": {"actions": "allocate"},
    "grafanaDashboard": ON,
    "dashboard": ON,
    "crds": {"oldVersions": False},
    "defaultQueue": {"create": True},
}
FREE = {
    ".affinity",
    ".dashboard.from",
    ".defaultQueue.spec",
    ".grafanaDashboard.labels",
    ".networkPolicy.metricsFrom",
    ".nodeSelector",
    ".podAnnotations",
    ".podLabels",
    ".prometheus.rules.labels",
    ".prometheus.serviceMonitor.labels",
    ".resources",
    ".schedulerConf",
}
"""Values that Kubernetes, or the policy file, gives the shape."""


def objects(values: Values, namespace: str = "muster-system") -> list[Document]:
    """Render all but the CRDs, of which two million characters would be read."""
    return read(rendered({"crds": {"enabled": False}, **values}, namespace))


def rendered(values: Values, namespace: str, *words: str) -> str:
    """Return what `helm template` prints; its image has a name."""
    done = template(json.dumps({**NAMED, **values}), namespace, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def template(values: str, namespace: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Return `helm template` of the chart with these values."""
    argv = [HELM, "template", "muster", str(FOLDER), f"--namespace={namespace}", "--values=-"]
    return subprocess.run(
        [*argv, *words], input=values, capture_output=True, text=True, check=False
    )


def read(text: str) -> list[Document]:
    """Read YAML that may hold comments alone."""
    return [d for d in yaml.load_all(text, yaml.CSafeLoader) if d]


def keyed(documents: Iterable[Document]) -> dict[tuple[str, ...], Document]:
    """Return each under what it is known by; two of one name are a fault."""
    found: dict[tuple[str, ...], Document] = {}
    for one in documents:
        meta = one["metadata"]
        # kustomize does not know of FlowSchemas that they are in no namespace.
        namespace = "" if one["kind"] == "FlowSchema" else meta.pop("namespace", "")
        meta.pop("namespace", "")
        key = (one["apiVersion"], one["kind"], namespace, meta["name"])
        assert key not in found
        found[key] = one
    return found


def deployment(values: Values) -> Document:
    """Return the operator's."""
    (found,) = (d for d in objects(values) if d["kind"] == "Deployment")
    return found


def arguments(values: Values) -> list[str]:
    """Return the operator's arguments."""
    found: list[str] = deployment(values)["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


@pytest.mark.e2e
@pytest.mark.parametrize("choice", CHOICES)
def test_chart_and_kustomize_install_the_same(choice: str, tmp_path: Path) -> None:
    """Object by object; the namespace itself is made by `helm install --create-namespace`."""
    parts, values = CHOICES[choice]
    first, *others = (os.path.relpath(ROOT / "manifests" / part, tmp_path) for part in parts)
    own = {"resources": [first], "components": others}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    kubectl = binaries.find(programs=[handle.KUBECTL])[handle.KUBECTL]
    argv = [*kubectl, "kustomize", str(tmp_path)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert_same(objects(values), (d for d in read(said) if d["kind"] != "Namespace"))


def assert_same(found: Iterable[Document], wanted: Iterable[Document]) -> None:
    """Compare object by object."""
    there, asked = keyed(found), keyed(wanted)
    assert set(there) == set(asked)
    for key, document in asked.items():
        assert there[key] == document


def test_every_overlay_and_component_is_a_choice() -> None:
    """One that is added needs values, and a line above."""
    manifests = ROOT / "manifests"
    named = {part for parts, _ in CHOICES.values() for part in parts}
    # Each gang scheduler's component is in its overlay, the others' here.
    overlays = {f"overlays/{path.name}" for path in (manifests / "overlays").iterdir()}
    assert overlays <= named
    whole = {path.name for path in (manifests / "components").iterdir()}
    within = {"mpi", "mpi-v1", "namespaced", *(name.split("/")[1] for name in named)}
    assert whole - within == {"without-old-versions"}


def test_versions_are_the_program_s() -> None:
    """One number for the package, the chart and the image."""
    about = yaml.safe_load((FOLDER / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == muster.version()


def known(schema: Document, whole: Document) -> Document:
    """Follow a reference."""
    return known(whole["definitions"][schema["$ref"].rpartition("/")[2]], whole) if (
        "$ref" in schema
    ) else schema  # fmt: skip


def test_the_schema_knows_every_value_and_no_other() -> None:
    """So that a word that is misspelt is refused, wherever it stands."""
    whole = json.loads((FOLDER / "values.schema.json").read_text())

    def check(values: Values, schema: Document, place: str) -> None:
        schema = known(schema, whole)
        if "properties" not in schema or schema.get("additionalProperties", True):
            assert place in FREE
            return
        assert set(values) == set(schema["properties"]) - {"global"}, place
        # Null takes a default away, and what is below it cannot be looked up any more.
        assert set(values) == set(schema["required"]), place
        for name, value in values.items():
            if isinstance(value, dict):
                check(value, schema["properties"][name], f"{place}.{name}")

    check(yaml.safe_load((FOLDER / "values.yaml").read_text()), whole, "")


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"image": {"repository": ""}}, "image.repository is not set: build the image"),
        ({"leaderElection": {"enabled": False}}, "replicas: more than one need leaderElection"),
        ({"certManager": ON}, "webhook.enabled has to be set too"),
        ({"dashboard": ON, "gangScheduler": "none"}, "gangScheduler has to be embedded"),
        ({"schedulerPluginsName": "mine"}, "schedulerPluginsName: it needs gangScheduler: s"),
        ({"schedulerPluginsName": "volcano"}, "at '/schedulerPluginsName'"),
        ({"gangScheduler": "Volcano"}, "at '/gangScheduler'"),
        ({"schedulerOnly": True, "namespaces": ["a"]}, "the scheduler alone knows no jobs"),
        ({"schedulerOnly": True, "mpi": {"kubectlDeliveryImage": "a"}}, "knows no jobs"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "podLabels: app.kubernetes.io/name is"),
        ({"podLabels": {"app.kubernetes.io/component": "operator"}}, "podLabels: app.kubernetes."),
        ({"extraArgs": ["--v=2", "-leader-elect=false"]}, "said by the value leaderElection.enab"),
        ({"extraArgs": ["--gang-scheduler-name", "none"]}, "said by the value gangScheduler,"),
        ({"extraArgs": ["--metrics-bind-address=:1"]}, "cannot be another here: services, probes"),
        ({"networkPolicy": None}, "missing property 'networkPolicy'"),
        ({"podLabels": {"a b": "c"}}, "at '/podLabels'"),
        ({"image": {"repository": "r:5/m:1"}}, "at '/image/repository'"),
        ({"podDisruptionBudget": {"minAvailable": ""}}, "/minAvailable'"),
    ],
)
def test_what_cannot_be_meant_is_refused(values: Values, error: str) -> None:
    """With what to do about it."""
    done = template(json.dumps({**NAMED, "crds": {"enabled": False}, **values}), "other")
    assert done.returncode
    assert error in done.stderr


def settings_of(values: Values) -> set[str]:
    """Return the settings that the arguments say something of."""
    command, *given = arguments(values)
    changed = flags.parse(given, {}, command)
    usual = flags.parse([], {}, command)
    return {each.name for each in fields(Settings)
            if getattr(changed, each.name) != getattr(usual, each.name)}  # fmt: skip


def test_no_other_argument_says_what_a_value_says() -> None:
    """By whatever name: what belongs to it, a role or a port, would be missing."""
    whole: Values = {
        "mpi": {"v1": True, "kubectlDeliveryImage": "k:1"}, "namespaces": ["a"], "dashboard": ON,
        **CHOICES["cert-manager"][1], "schedulerConf": {"actions": "allocate"},
        "defaultQueue": {"name": "main"},
        "leaderElection": {"leaseDuration": "30s", "renewDeadline": "20s", "retryPeriod": "5s"},
    }  # fmt: skip
    free = {"metrics_secure", "hide_other_namespaces"}
    """Which somebody may well want otherwise, with nothing that belongs to them."""
    said = settings_of(whole) - free
    names = [
        flag.name for table in flags.SECTIONS.values() for flag in table if flag.target in said
    ]
    names += [flag.name for flag in flags.GANG if flag.name != "kube-batch-object"]
    assert {"namespace", "gang-scheduling", "leader-elect"} <= set(names)
    text = (FOLDER / "templates" / "deployment.yaml").read_text()
    refused = text[text.index("$own :=") : text.index("range .Values.extraArgs")]
    assert set(names) <= set(re.findall(r'"([a-z-]+)"', refused))


def understood(values: Values) -> Settings:
    """Return the settings that the program reads from its arguments."""
    command, *given = arguments(values)
    return flags.parse(given, {}, command)


@pytest.mark.parametrize("values", [*(values for _, values in CHOICES.values())], ids=CHOICES)
def test_the_program_understands_its_arguments(values: Values) -> None:
    """Each flag is there, and means what the value says."""
    settings = understood(values)
    assert settings.leader_elect
    assert settings.metrics_secure
    assert settings.backend.name == values.get("gangScheduler", "embedded")
    assert list(settings.namespaces) == values.get("namespaces", [])
    assert (settings.admission_bind != "0") == bool(values.get("webhook"))


def test_a_release_may_have_any_namespace() -> None:
    """Nothing points into another one, and what is read there by name neither."""
    for _, values in CHOICES.values():
        found = objects({**values, "grafanaDashboard": ON}, "other")
        assert {one["metadata"].get("namespace") for one in found} <= {None, "other", "team-a"}
        assert "muster-system" not in str(found)


def test_schema_accepts_the_gang_schedulers_and_no_other() -> None:
    """A misspelt name would get the permissions of scheduler-plugins."""
    whole = json.loads((FOLDER / "values.schema.json").read_text())
    choices = whole["properties"]["gangScheduler"]
    assert choices == {"enum": list(BACKENDS)}
    others = whole["properties"]["schedulerPluginsName"]["not"]["enum"]
    assert others == [name for name in BACKENDS if name != "scheduler-plugins"]


def test_instance_of_scheduler_plugins_may_have_another_name() -> None:
    """The operator gets its name, and the permissions for scheduler-plugins."""
    values = {"gangScheduler": "scheduler-plugins", "schedulerPluginsName": "mine"}
    assert "--gang-scheduler-name=mine" in arguments(values)
    plugins = keyed(objects({"gangScheduler": "scheduler-plugins"}))
    role = ("rbac.authorization.k8s.io/v1", "ClusterRole", "", "muster-gang")
    assert keyed(objects(values))[role] == plugins[role]


ODD = ["123", "on", "null", "1e3"]
"""Names that Kubernetes takes, and YAML for something else."""


@pytest.mark.parametrize("odd", ODD)
def test_names_are_texts(odd: str) -> None:
    """Whatever they look like: else a binding would be refused, or be in another namespace."""
    values = {
        **CHOICES["cert-manager"][1], **CHOICES["around"][1], "namespaces": [odd, "team-a"],
        "priorityClassName": odd, "defaultQueue": {"create": True, "name": odd},
        "imagePullSecrets": [{"name": odd}], "gangScheduler": "scheduler-plugins",
        "schedulerPluginsName": odd,
        "mpi": {"kubectlDeliveryImage": "a: b"},
    }  # fmt: skip
    page = {"dashboard": ON, "gangScheduler": "embedded", "schedulerPluginsName": ""}
    found = objects(values, odd) + objects({**values, **page}, odd)
    named = [d for one in found for d in (one["metadata"], *one.get("subjects", ()))]
    assert {d["namespace"] for d in named if "namespace" in d} == {odd, "team-a"}
    bindings = [d["metadata"]["namespace"] for d in found if d["kind"] == "RoleBinding"]
    assert bindings.count("team-a") < bindings.count(odd)
    assert odd in {d["metadata"]["name"] for d in found if d["kind"] == "Queue"}
    flow = next(d for d in found if d["kind"] == "FlowSchema")
    rules = [rule for one in flow["spec"]["rules"] for rule in one["resourceRules"]]
    assert [odd] in [rule.get("namespaces") for rule in rules]
    pod = deployment(values)["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == odd
    assert {f"--gang-scheduler-name={odd}", "--mpi-kubectl-delivery-image=a: b"} <= set(
        arguments(values)
    )


def test_without_leader_election_no_two_work_at_once() -> None:
    """Not even while one follows another."""
    alone = {"replicas": 1, "leaderElection": {"enabled": False}}
    assert deployment(alone)["spec"]["strategy"] == {"type": "Recreate"}
    assert "strategy" not in deployment({})["spec"]


def test_pods_are_spread_as_it_is_written() -> None:
    """A selector of nothing means all pods; without one it is the operator's own."""
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    given = [spread, {**spread, "labelSelector": {}}]
    pod = deployment({"topologySpreadConstraints": given})["spec"]["template"]["spec"]
    own, every = pod["topologySpreadConstraints"]
    assert own["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "muster"
    assert every["labelSelector"] == {}


def crds(values: Values) -> dict[str, str]:
    """Return the CRDs as they are rendered."""
    texts = re.split(r"^---\n# Source: .*\n", rendered(values, "other"), flags=re.MULTILINE)
    named = {
        re.search(r"^  name: (.*)$", text, re.MULTILINE): text
        for text in texts
        if "kind: CustomResourceDefinition\n" in text
    }
    return {match[1]: text for match, text in named.items() if match}


KEEP = "    helm.sh/resource-policy: keep\n"


def test_crds_are_upgraded_and_kept() -> None:
    """Each is a template that Helm leaves where it is, and otherwise what `make crds` wrote."""
    found = crds({})
    sources = {path.read_text() for path in (ROOT / "crds").glob("*.yaml")}
    assert len(found) == len(sources)
    for text in found.values():
        assert KEEP in text[: text.index("\nspec:\n") + 1]
        bare = text.replace(KEEP, "").replace("  annotations:\nspec:\n", "spec:\n")
        assert bare.strip("-\n") in {source.strip("-\n") for source in sources}
    assert crds({"crds": {"enabled": False}}) == {}


def test_old_versions_can_be_left_out() -> None:
    """As the component does, and of TFJobs alone."""
    served = re.compile(r"^  - name: (\w+)\n    served: (\w+)$", re.MULTILINE)
    whole, found = crds({}), crds({"crds": {"oldVersions": False}})
    changed = {name for name in whole if whole[name] != found[name]}
    assert changed == {"tfjobs.kubeflow.org"}
    versions = dict(served.findall(found["tfjobs.kubeflow.org"]))
    assert {name for name, is_served in versions.items() if is_served == "true"} == {"v1"}
    assert len(versions) == 4


def test_a_policy_is_a_file_that_the_operator_follows() -> None:
    """Every one of the examples."""
    for path in (ROOT / "examples" / "policies").glob("*.yaml"):
        conf = yaml.safe_load(path.read_text())
        values = {"schedulerConf": conf}
        (found,) = (d for d in objects(values) if d["kind"] == "ConfigMap")
        assert yaml.safe_load(found["data"]["scheduler.yaml"]) == conf
        pod = deployment(values)["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        (mount,) = (one for one in container["volumeMounts"] if one["name"] == "scheduler")
        assert f"--scheduler-conf={mount['mountPath']}/scheduler.yaml" in container["args"]
        assert {"name": "scheduler", "configMap": {"name": "muster-scheduler"}} in pod["volumes"]


def test_a_default_queue_waits_for_its_kind() -> None:
    """Created behind all else where its CRD comes with the release; later a part of it."""
    wanted = {"create": True, "name": "main", "spec": {"weight": 3}}
    values = {"crds": {"enabled": False}, "defaultQueue": wanted}
    assert "--default-queue=main" in arguments(values)
    hooks = []
    for apis in ((), (QUEUE,)):
        words = [f"--api-versions={api}" for api in apis]
        (queue,) = (d for d in read(rendered(values, "other", *words)) if d["kind"] == "Queue")
        assert (queue["metadata"]["name"], queue["spec"]) == ("main", {"weight": 3})
        annotations = queue["metadata"]["annotations"]
        assert annotations["meta.helm.sh/release-namespace"] == "other"
        hooks.append(annotations.get("helm.sh/hook"))
    assert hooks == ["post-install,post-upgrade", None]


def test_values_reach_the_pod() -> None:
    """Those that shape where and how it runs, by the names that other charts give them."""
    values = {
        "image": {"repository": "r.example/m", "digest": "sha256:" + 64 * "0", "tag": "2"},
        "imagePullSecrets": [{"name": "key"}],
        "replicas": 1,
        "leaderElection": {"leaseDuration": "20s"},
        "extraArgs": ["--v=2"],
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [],
        "priorityClassName": "",
        "podAnnotations": {"c": "d"},
        "podLabels": {"e": "f"},
        "mpi": {"v1": True, "kubectlDeliveryImage": "k:1"},
    }
    template = deployment(values)["spec"]["template"]
    pod = template["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "r.example/m@sha256:" + 64 * "0"
    for name in ("imagePullSecrets", "nodeSelector", "affinity", "tolerations"):
        assert pod[name] == values[name]
    assert not {"topologySpreadConstraints", "priorityClassName"} & set(pod)
    assert template["metadata"]["annotations"] == {"c": "d"}
    assert template["metadata"]["labels"]["e"] == "f"
    assert {"--leader-elect-lease-duration=20s", "--mpi-kubectl-delivery-image=k:1"} <= set(
        container["args"]
    )
    assert container["args"][-1] == "--v=2"
    assert "PodDisruptionBudget" not in {d["kind"] for d in objects(values)}


def test_the_page_is_reached_where_the_operator_serves_it() -> None:
    """Flag, port, service and policy speak of one port; who may look the operator asks itself."""
    found = keyed(objects({"dashboard": ON}))
    template = found["apps/v1", "Deployment", "muster-system", "muster"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (port,) = (one for one in container["ports"] if one["name"] == "dashboard")
    settings = understood({"dashboard": ON})
    assert settings.dashboard_bind == f":{port['containerPort']}"
    assert settings.dashboard_auth == "token"
    service = found["v1", "Service", "muster-system", "muster-dashboard"]["spec"]
    # The label that the operator gives to its pod where it leads.
    shown = {**template["metadata"]["labels"], names.LEADS: settings.leader_election_id}
    assert service["selector"].items() <= shown.items()
    assert [one["targetPort"] for one in service["ports"]] == ["dashboard"]
    policy = found["networking.k8s.io/v1", "NetworkPolicy", "muster-system", "muster"]["spec"]
    (way,) = (one for one in policy["ingress"] if {"port": "dashboard"} in one["ports"])
    assert way["from"] == [{"namespaceSelector": {"matchLabels": {"dashboard": "enabled"}}}]


def test_webhook_port_is_admitted_only_with_the_webhook_and_from_its_peers() -> None:
    """The NetworkPolicy has no rule for a port that the operator does not serve."""
    peers = [{"ipBlock": {"cidr": "192.0.2.0/28"}}]
    for values, expected in (
        ({}, []),
        ({"webhook": ON}, [{"ports": [{"port": "admission"}]}]),
        (
            {"webhook": ON, "networkPolicy": {"webhookFrom": peers}},
            [{"ports": [{"port": "admission"}], "from": peers}],
        ),
    ):
        found = keyed(objects(values))
        policy = found["networking.k8s.io/v1", "NetworkPolicy", "muster-system", "muster"]
        rules = [r for r in policy["spec"]["ingress"] if {"port": "metrics"} not in r["ports"]]
        assert rules == expected


def test_the_dashboard_is_that_of_the_manifests() -> None:
    """Grafana's sidecar finds it by its label."""
    (found,) = (d for d in objects({"grafanaDashboard": ON}) if d["kind"] == "ConfigMap")
    source = ROOT / "manifests" / "dashboards" / "muster.json"
    assert found["data"] == {"muster.json": source.read_text()}
    assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}


@pytest.mark.parametrize("values", [CHOICES["scheduler"][1], WHOLE], ids=["scheduler", "whole"])
def test_the_packed_chart_renders_as_the_folder(values: Values, tmp_path: Path) -> None:
    """`helm lint --strict` accepts the folder; the archive names the image of the release."""
    given = json.dumps({**values, "image": NAMED["image"]})
    lint = [HELM, "lint", "--strict", str(FOLDER), "--values=-"]
    done = subprocess.run(lint, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    packed = tmp_path / "muster.tgz"
    packed.write_bytes(bundle.archive(bundle.Image("nobody.example/muster", "1", "")))
    argv = [HELM, "template", "muster", str(packed), "--namespace=other", "--values=-"]
    text = subprocess.run(argv, input=given, capture_output=True, text=True, check=True).stdout
    assert text == rendered(values, "other")
