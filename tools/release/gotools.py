# SPDX-License-Identifier: Apache-2.0
"""Other people's programs that releases and tests use: of PATH, or built into the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from muster.local import layout

PROGRAMS: Final = {
    "helm": ("helm.sh/helm/v4/cmd/helm", "4.3.1", ""),
    # Without what finds targets at thirty providers of clouds.
    "promtool": ("github.com/prometheus/prometheus/cmd/promtool", "0.316.0", "remove_all_sd"),
    "cosign": ("github.com/sigstore/cosign/v3/cmd/cosign", "3.1.3", ""),
}
"""Name -> package, version and build tags."""


def find(name: str) -> str:
    """Return a program, of PATH or as `build` built it; empty if there is none."""
    built = _folder(name) / name
    return shutil.which(name) or (str(built) if built.exists() else "")


def build(name: str) -> None:
    """Build it, with Go."""
    package, version, tags = PROGRAMS[name]
    env = {**os.environ, "GOBIN": str(_folder(name)), "CGO_ENABLED": "0", "GOFLAGS": "-trimpath"}
    argv = ["go", "install", "-ldflags=-s -w", f"-tags={tags}", f"{package}@v{version}"]
    subprocess.run(argv, env=env, check=True)


def _folder(name: str) -> Path:
    """Give a folder of its own to each version."""
    _, version, _ = PROGRAMS[name]
    return layout.cache_root().with_name("tools") / f"{name}-v{version}"
