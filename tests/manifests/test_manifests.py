# SPDX-License-Identifier: Apache-2.0
"""The files under manifests/ fit together and grant no more than they must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.frameworks import FRAMEWORKS

ROOT = Path(__file__).parent.parent.parent
MANIFESTS = ROOT / "manifests"
OVERLAYS = {
    "embedded": "embedded",
    "volcano": "volcano",
    "scheduler-plugins": "scheduler-plugins",
    "kube-batch": "kube-batch",
    "kubernetes": "kubernetes",
    "none": "none",
    "namespaced": "embedded",
    "scheduler": "embedded",
    "mpi": "embedded",
}
FOLDERS = sorted(path.parent for path in MANIFESTS.rglob("kustomization.yaml"))
GROUPS = {
    "embedded": {"scheduling.incubator.k8s.io", "scheduling.sigs.dev", "scheduling.volcano.sh"},
    "volcano": {"scheduling.volcano.sh"},
    "scheduler-plugins": {"scheduling.x-k8s.io"},
    "kube-batch": {"scheduling.incubator.k8s.io", "scheduling.sigs.dev"},
    "kubernetes": {"scheduling.k8s.io"},
    "none": set(),
}

Document = dict[str, Any]


def load(path: Path) -> list[Document]:
    """Documents of one YAML file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # seconds less for large schemas
    return [document for document in yaml.load_all(path.read_text(), loader) if document]


def kustomization(folder: Path) -> Document:
    """Read the one document that says what the folder is made of."""
    for name in ("kustomization.yaml", "Kustomization"):
        if (folder / name).exists():
            (document,) = load(folder / name)
            return document
    raise AssertionError(f"{folder} has no kustomization")


def documents(folder: Path) -> list[Document]:
    """Everything a kustomization pulls in, before its patches."""
    found = []
    whole = kustomization(folder)
    for entry in [*whole.get("resources", []), *whole.get("components", [])]:
        path = (folder / entry).resolve()
        found += documents(path) if path.is_dir() else load(path)
    return found


def is_role(document: Document) -> bool:
    """Say whether it is a role of the operator's, not one that its users' roles take up."""
    return document["kind"] in {"ClusterRole", "Role"} and "labels" not in document["metadata"]


def rules(overlay: str) -> list[Document]:
    """Rules of all roles that the operator has under an overlay."""
    found = documents(MANIFESTS / "overlays" / overlay)
    return [rule for document in found if is_role(document) for rule in document["rules"]]


def test_every_overlay_is_known() -> None:
    """The tests below miss none."""
    assert {path.name for path in (MANIFESTS / "overlays").iterdir()} == set(OVERLAYS)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_every_file_is_used_and_exists(folder: Path) -> None:
    """A kustomization names each YAML file beside it, and only what is there."""
    whole = kustomization(folder)
    named = [*whole.get("resources", []), *whole.get("components", [])]
    assert [entry for entry in named if not (folder / entry).exists()] == []
    parts = {path.parent.name for path in folder.glob("*/kustomization.yaml")}
    beside = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"} | parts
    assert beside == {entry for entry in named if not entry.startswith("..")}


def test_every_crd_is_installed() -> None:
    """`crds/Kustomization` names all; `kubectl apply -f crds/` passes over it for its name."""
    beside = {path.name for path in (ROOT / "crds").glob("*.yaml")}
    assert set(kustomization(ROOT / "crds")["resources"]) == beside


def test_old_versions_are_left_out_by_a_line() -> None:
    """All of them, and the version that is stored stays."""
    folder = MANIFESTS / "components" / "without-old-versions"
    (patch,) = kustomization(folder)["patches"]
    (crd,) = load(ROOT / "crds" / "kubeflow.org_tfjobs.yaml")
    assert patch["target"] == {"kind": crd["kind"], "name": crd["metadata"]["name"]}
    done = {step["path"]: (step["op"], step["value"]) for step in yaml.safe_load(patch["patch"])}
    wanted = {}
    for index, version in enumerate(crd["spec"]["versions"]):
        if not version["storage"]:
            wanted[f"/spec/versions/{index}/name"] = "test", version["name"]
            wanted[f"/spec/versions/{index}/served"] = "replace", False
    assert done == wanted


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_role_grants_everything_or_secrets(overlay: str) -> None:
    """Never a wildcard; nothing of Secrets, exec, or the power to widen roles.

    What MPIJobs need of it is in the overlays that say so, and there it is by name only.
    """
    for rule in rules(overlay):
        words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert not any("*" in word for word in words)
        assert not words & {"escalate", "bind", "impersonate"}
        if set(rule["verbs"]) <= {"list", "watch"}:
            words -= {"serviceaccounts"}  # their creation repeats dry runs
        kept = words & {"secrets", "pods/exec", "serviceaccounts", "roles", "rolebindings"}
        assert not kept or overlay in {"mpi", "namespaced"}
        assert not kept or set(rule["verbs"]) <= {"get", "create", "patch"}


def test_overlay_mpi_grants_secrets_in_no_namespace_by_itself() -> None:
    """A RoleBinding in each namespace of MPIJobs does."""
    documents = load(MANIFESTS / "components" / "mpi" / "roles.yaml")
    secret = {
        document["metadata"]["name"]
        for document in documents
        for rule in document.get("rules", ())
        if "secrets" in rule["resources"]
    }
    assert secret == {"muster-mpi-secrets"}
    bound = {document["roleRef"]["name"] for document in documents if "roleRef" in document}
    assert bound == {"muster-mpi"}


def test_roles_know_every_kind_of_job() -> None:
    """A kind whose CRD is shipped can be read, deleted, and given its status."""
    kinds = {path.stem.split("_")[1] for path in (ROOT / "crds").glob("kubeflow.org_*.yaml")}
    for suffix in ("", "/status", "/finalizers"):
        assert {kind + suffix for kind in kinds} <= {
            resource for rule in rules("none") for resource in rule["resources"]
        }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_overlay_grants_only_its_own_scheduler(overlay: str) -> None:
    """Other groups can only be read, except those whose status the embedded one writes."""
    granted = {
        group
        for rule in rules(overlay)
        for group in rule["apiGroups"]
        if "podgroups" in rule["resources"] and {"create", "patch"} & set(rule["verbs"])
    }
    assert granted == GROUPS[OVERLAYS[overlay]]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_binding_finds_its_role_and_account(overlay: str) -> None:
    """No role is left unbound, no binding points at nothing."""
    whole = documents(MANIFESTS / "overlays" / overlay)
    named = {(d["kind"], d["metadata"]["name"]) for d in whole if is_role(d)}
    bindings = [document for document in whole if document["kind"].endswith("RoleBinding")]
    roles = {(binding["roleRef"]["kind"], binding["roleRef"]["name"]) for binding in bindings}
    # The namespaces of MPIJobs, in which an administrator binds it, are not known.
    if overlay == "mpi":
        named -= {("ClusterRole", "muster-mpi-secrets")}
    assert roles == named
    assert {
        (subject["name"], subject.get("namespace"))
        for binding in bindings
        for subject in binding["subjects"]
    } == {("muster", "muster-system"), ("system:authenticated", None)}
    named_rules = {(d["kind"], d["metadata"]["name"]): d["rules"] for d in whole if is_role(d)}
    assert named_rules["Role", "muster-policy-view"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["muster-policy"],
            "verbs": ["get"],
        }
    ]


def test_the_container_has_no_power() -> None:
    """Non-root, nothing to write, no capability."""
    (deployment,) = load(MANIFESTS / "base" / "deployment.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_leader_stays_under_load_drains_and_slow_starts(overlay: str) -> None:
    """Whatever speaks of its pods means those of the Deployment; its lease is never queued."""
    found = {d["kind"]: d for d in documents(MANIFESTS / "overlays" / overlay)}
    named = {(d["kind"], d["metadata"]["name"]): d for d in documents(MANIFESTS / "base")}
    spec = found["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    (spread,) = pod["topologySpreadConstraints"]
    assert spec["replicas"] > found["PodDisruptionBudget"]["spec"]["minAvailable"] > 0
    for selector in (
        spec["selector"],
        spread["labelSelector"],
        found["PodDisruptionBudget"]["spec"]["selector"],
        found["NetworkPolicy"]["spec"]["podSelector"],
    ):
        assert selector["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert pod["priorityClassName"] == "system-cluster-critical"
    startup = pod["containers"][0]["startupProbe"]
    assert startup["httpGet"]["path"] == "/healthz"
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 600

    *lease, events = named["Role", "muster-leases"]["rules"]
    assert (events["resources"], events["verbs"]) == (["events"], ["create", "patch"])
    assert [rule.get("resourceNames") for rule in lease] == [None, ["muster"]]
    assert lease[0]["verbs"] == ["create"]
    flow = found["FlowSchema"]["spec"]
    assert flow["priorityLevelConfiguration"] == {"name": "leader-election"}
    (rule,) = flow["rules"]
    account = {"name": pod["serviceAccountName"], "namespace": "muster-system"}
    assert rule["subjects"] == [{"kind": "ServiceAccount", "serviceAccount": account}]
    (asked,) = rule["resourceRules"]
    assert set(asked["verbs"]) == {verb for rule in lease for verb in rule["verbs"]}


def test_users_may_handle_jobs_and_write_no_status() -> None:
    """Of every kind; `edit` adds to what `view` may, and neither gives anything on."""
    roles = {
        d["metadata"]["name"]: d["rules"] for d in load(MANIFESTS / "base" / "userroles.yaml")
    }
    kinds = {row.plural for row in FRAMEWORKS.values()} | {"podgroups"}
    for name, verbs in (
        ("muster-view", {"get", "list", "watch"}),
        ("muster-edit", {"create", "delete"}),
    ):
        granted = {
            r for rule in roles[name] if verbs <= set(rule["verbs"]) for r in rule["resources"]
        }
        assert kinds <= granted
        assert {rule["apiGroups"][0] for rule in roles[name]} == {
            "kubeflow.org",
            "scheduling.incubator.k8s.io",
        }
    writes = {r for rule in roles["muster-edit"] for r in rule["resources"]}
    assert not [resource for resource in writes if resource.endswith("/status")]
    assert not {"queues", "queues/status"} & writes


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_metrics_are_for_who_may_read_them(overlay: str) -> None:
    """The operator may ask who somebody is and what he may; a role of its own lets people in."""
    (deployment,) = load(MANIFESTS / "base" / "deployment.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    patches = kustomization(MANIFESTS / "components" / "scheduler")["patches"]
    (alone,) = (yaml.safe_load(p["patch"]) for p in patches if "args" in p["patch"])
    assert "--metrics-secure" in (
        alone[0]["value"] if overlay == "scheduler" else container["args"]
    )
    reviews = [("authentication.k8s.io", "tokenreviews"),
               ("authorization.k8s.io", "subjectaccessreviews")]  # fmt: skip
    asked = [rule for rule in rules(overlay) if "create" in rule["verbs"]]
    granted = {(g, r) for rule in asked for g in rule["apiGroups"] for r in rule["resources"]}
    assert granted >= set(reviews)
    found = documents(MANIFESTS / "overlays" / overlay)
    (reader,) = (d for d in found if d["metadata"]["name"] == "muster-metrics-reader")
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_prometheus_finds_the_metrics() -> None:
    """The monitor looks for the service's labels and port, over TLS and with a token."""
    (monitor,) = load(MANIFESTS / "components" / "monitoring" / "monitor.yaml")
    (service,) = load(MANIFESTS / "base" / "service.yaml")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted
    assert wanted.items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["scheme"] == "https"
    assert endpoint["bearerTokenFile"]


def test_the_webhook_asks_about_every_kind_and_stops_nobody() -> None:
    """All kinds of job in their storage version; a silent operator lets everything in (S17)."""
    (configuration,) = load(MANIFESTS / "components" / "webhook" / "configuration.yaml")
    (webhook,) = configuration["webhooks"]
    (rule,) = webhook["rules"]
    assert rule["resources"] == [row.plural for row in FRAMEWORKS.values()]
    assert {row.version for row in FRAMEWORKS.values()} == set(rule["apiVersions"])
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")
    # Service and port fit each other; the account may change that one object.
    found = documents(MANIFESTS / "components" / "webhook")
    (role,) = (d for d in found if d["metadata"]["name"] == "muster-webhook" and "rules" in d)
    (rule,) = role["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["muster"], ["get", "update"])
    (service,) = (d for d in found if d["kind"] == "Service")
    assert configuration in found
    asked = webhook["clientConfig"]["service"]
    assert asked["name"] == service["metadata"]["name"]
    assert asked["port"] == service["spec"]["ports"][0]["port"]


def test_cert_manager_signs_by_an_authority_that_outlives_the_certificate() -> None:
    """So the configuration trusts the old and the new one while they are exchanged."""
    found = load(MANIFESTS / "components" / "webhook-cert-manager" / "certificate.yaml")
    named = {(d["kind"], d["metadata"]["name"]): d["spec"] for d in found}
    assert all(d["metadata"]["namespace"] == "muster-system" for d in found)
    leaf = named["Certificate", "muster-webhook"]
    issuer = named["Issuer", leaf["issuerRef"]["name"]]
    (authority,) = (spec for spec in named.values() if spec.get("isCA"))
    assert issuer == {"ca": {"secretName": authority["secretName"]}}
    assert named["Issuer", authority["issuerRef"]["name"]] == {"selfSigned": {}}
    (configuration,) = load(MANIFESTS / "components" / "webhook" / "configuration.yaml")
    asked = configuration["webhooks"][0]["clientConfig"]["service"]
    assert leaf["dnsNames"] == [f"{asked['name']}.{asked['namespace']}.svc"]
