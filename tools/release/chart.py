# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: its files, and a helm to try it with."""

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
LEFT_OUT: Final = frozenset((CHART / ".helmignore").read_text().splitlines()) | {".helmignore"}
"""Names of files."""


def files() -> Iterator[tuple[Path, Path]]:
    """Yield each file that the chart consists of, and its name there.

    CRDs and the manifests that need no template lie outside: links lead to them, as Helm goes.
    """
    for folder, _, names in os.walk(CHART, followlinks=True):
        for name in names:
            if name not in LEFT_OUT:
                path = Path(folder, name)
                yield path, path.relative_to(CHART)


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
