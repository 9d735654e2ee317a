# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: what it takes over from CRDs and kustomize manifests, and its archive."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from muster.local import layout

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "muster"
HELM: Final = "4.3.1"
"""What `make helm` builds."""
OWN: Final = ("deployment", "disruption", "kustomization", "namespace", "network")
"""Manifests of which the chart has a template, as values change them."""


def taken() -> Iterator[tuple[Path, Path]]:
    """Yield each file that the chart takes over as it is, and where it has it."""
    manifests = ROOT / "manifests"
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        yield path, Path("crds", path.name)
    for path in sorted([*manifests.glob("base/*.yaml"), *manifests.glob("components/*/*.yaml")]):
        if path.stem not in OWN:
            yield path, path.relative_to(manifests)
    yield manifests / "dashboards" / "muster.json", Path("dashboards", "muster.json")


def stale() -> list[Path]:
    """Return what is not as `take` would write it, or is there and should not be."""
    wanted = {CHART / "files" / name: path for path, name in taken()}
    there = {path for path in (CHART / "files").rglob("*") if path.is_file()}
    differ = (p for p in wanted if p in there and p.read_bytes() != wanted[p].read_bytes())
    return sorted({*differ, *(there ^ set(wanted))})


def take() -> None:
    """Write the files anew."""
    shutil.rmtree(CHART / "files", ignore_errors=True)
    for path, name in taken():
        target = CHART / "files" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def helm() -> str:
    """Return a helm, of PATH or as `get_helm` built it; empty if there is none."""
    built = _helm_folder() / "helm"
    return shutil.which("helm") or (str(built) if built.exists() else "")


def get_helm() -> None:
    """Build it, with Go."""
    env = {**os.environ, "GOBIN": str(_helm_folder()), "CGO_ENABLED": "0", "GOFLAGS": "-trimpath"}
    package = f"helm.sh/helm/v{HELM.partition('.')[0]}/cmd/helm@v{HELM}"
    subprocess.run(["go", "install", "-ldflags=-s -w", package], env=env, check=True)


def _helm_folder() -> Path:
    return layout.cache_root().with_name("tools") / f"helm-v{HELM}"
