# SPDX-License-Identifier: Apache-2.0
"""Build the control plane with Go, once for each state of its module."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from muster.local import components, layout, locks, options, progress

_PROGRAM = "controlplane"
_FILES = ("main.go", "oracle.go", "go.mod", "go.sum")
_MAJOR, _MINOR, _ = options.KUBERNETES_VERSION.split(".")
_VARIABLES = {
    "k8s.io/component-base/version.gitVersion": f"v{options.KUBERNETES_VERSION}",
    "k8s.io/component-base/version.gitMajor": _MAJOR,
    "k8s.io/component-base/version.gitMinor": _MINOR,
    "k8s.io/component-base/version.gitTreeState": "clean",
    "sigs.k8s.io/kwok/pkg/consts.Version": f"v{options.KWOK_VERSION}",
}
_LDFLAGS = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in _VARIABLES.items())])
_GO_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly", f"-ldflags={_LDFLAGS}")

# What the words of a failed build mean; the first that is found is told.
_CURES = (
    (r"requires go >=", "this Go is too old: install {go} or newer from https://go.dev/dl/"),
    (r"no space left on device", "the disk is full: a first build needs about 6 GiB"),
    (r"signal: killed|cannot allocate memory", "memory ran out: the build needs about 3 GiB"),
    (
        r"dial tcp|no such host|i/o timeout|connection refused|proxyconnect|module lookup",
        "no module proxy could be reached: check the network, or set GOPROXY to one that can",
    ),
    (r"checksum mismatch|SECURITY ERROR", "the module proxy serves other files than go.sum lists"),
)


class BuildError(Exception):
    """The build is not possible; the message says what is missing and what to install."""


def folder() -> Path:
    """Where the built programs are, or will be: keyed by version, module files and flags."""
    digest = hashlib.sha256(_LDFLAGS.encode())
    for name in _FILES:
        digest.update((_module() / name).read_bytes())
    return (
        layout.cache_root() / f"v{options.KUBERNETES_VERSION}" / f"built-{digest.hexdigest()[:16]}"
    )


def build() -> Path:
    """Build unless somebody did; the answer is `folder()`, with a program for each component."""
    target = folder()
    go = shutil.which("go")
    if not go:
        raise BuildError(f"Go is missing: install {_go_wanted()} or newer from https://go.dev/dl/")
    with locks.held(target.with_suffix(".lock"), _waiting):
        if not target.exists():
            _build(go, target)
    return target


def _waiting() -> None:
    print("waiting: another process builds the control plane", file=sys.stderr, flush=True)


def _build(go: str, target: Path) -> None:
    for stale in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(stale)
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True
    ) as work:
        fresh = Path(work) / "programs"
        fresh.mkdir()
        _run_go([go, "build", "-v", *_GO_FLAGS, "-o", str(fresh / _PROGRAM), "."])
        for name in components.PROGRAMS:
            (fresh / name).symlink_to(_PROGRAM)
        fresh.rename(target)


def _run_go(argv: list[str]) -> None:
    lines: list[str] = []
    text = f"building the control plane of Kubernetes {options.KUBERNETES_VERSION} (once, minutes)"
    env = {**os.environ, "GOWORK": "off"}
    with (
        progress.shown(text, lambda: f"{len(lines)} packages" if lines else ""),
        subprocess.Popen(
            argv,
            cwd=_module(),
            env=env,
            text=True,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        ) as process,
    ):
        assert process.stderr is not None
        lines.extend(process.stderr)
    if process.returncode:
        raise BuildError(explain("".join(lines)))


def explain(output: str) -> str:
    """Tell what a failed build's output means, what to do about it, and its last lines."""
    cure = next((cure for words, cure in _CURES if re.search(words, output)), "the build failed")
    tail = "\n".join(output.splitlines()[-5:])
    return f"{cure.format(go=_go_wanted())}\n{tail}"


def _go_wanted() -> str:
    match = re.search(r"^go (\d+\.\d+)", (_module() / "go.mod").read_text(), re.MULTILINE)
    assert match
    return f"Go {match[1]}"


def _module() -> Path:
    here = Path(__file__).resolve()
    places = (here.parent / _PROGRAM, here.parents[3] / "tools" / _PROGRAM)
    for place in places:
        if (place / "go.mod").exists():
            return place
    raise BuildError(f"the sources of the control plane are missing: no {places[0]}")
