# SPDX-License-Identifier: Apache-2.0
"""The Helm chart installs what kustomize does, for the same choices.

Where there is no helm it is rendered by `gotemplate`; where there is one, both say the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from gotemplate import Chart, TemplateError

import muster
from muster.local import binaries, handle, layout

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "charts" / "muster"
CHART = Chart(FOLDER)
NAMED = {"image": {"repository": "muster", "tag": "not-set-see-docs-install.md"}}
QUEUE = "scheduling.incubator.k8s.io/v1alpha1/Queue"

Document = dict[str, Any]
Values = dict[str, Any]

ON = {"enabled": True}
CHOICES: dict[str, tuple[list[str], Values]] = {
    **{
        name: ([f"overlays/{name}"], {"gangScheduler": name})
        for name in ("embedded", "volcano", "scheduler-plugins", "kube-batch", "kubernetes", "none")
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
    "around": (
        ["overlays/embedded", "components/delayed-binding", "components/monitoring"],
        {"delayedBinding": True, "prometheus": {"serviceMonitor": ON, "rules": ON}},
    ),
}  # fmt: skip
"""Choice -> overlay and components, and the values that mean the same."""


def objects(values: Values, namespace: str = "muster-system") -> list[Document]:
    """Render all but the CRDs, of which two million characters would be read."""
    wanted = {"crds": {"enabled": False}, **NAMED, **values}
    texts = CHART.render(wanted, namespace)
    return [d for name, text in texts.items() if name.endswith(".yaml") for d in read(text)]


def read(text: str) -> list[Document]:
    """Read YAML that may hold comments alone."""
    return [d for d in yaml.load_all(text, yaml.CSafeLoader) if d]


def keyed(documents: Iterable[Document]) -> dict[tuple[str, ...], Document]:
    """Return each under what it is known by; two of one name are a fault."""
    found: dict[tuple[str, ...], Document] = {}
    for one in documents:
        meta = one["metadata"]
        key = (one["apiVersion"], one["kind"], meta.get("namespace", ""), meta["name"])
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


def helm() -> str:
    """Return a helm, if there is one; `make helm` builds it."""
    built = sorted(layout.cache_root().with_name("tools").glob("helm-*/helm"))
    return shutil.which("helm") or next(map(str, reversed(built)), "")


with_helm = [pytest.mark.e2e, pytest.mark.skipif(not helm(), reason="no helm (make helm builds it)")]


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
    wanted = keyed(d for d in read(said) if d["kind"] != "Namespace")
    found = keyed(objects(values))
    assert set(found) == set(wanted)
    for key, document in wanted.items():
        assert found[key] == document


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
