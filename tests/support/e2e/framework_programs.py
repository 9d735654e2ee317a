# SPDX-License-Identifier: Apache-2.0
"""Runs a framework's own code in the environment of each pod, and returns what it understood."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.e2e import venvs
from support.e2e.kubelet import Started

PROBES = Path(__file__).parents[2] / "environment" / "probes"
LONGEST = 120.0
"""Seconds that the programs of a job may take together."""
PACKAGES = (
    "pip==25.3",
    "numpy==2.3.5",
    "protobuf==7.36.2",
    "six==1.17.0",
    "httpx==0.28.1",
    "httpcore==1.0.9",
    "h11==0.16.0",
    "anyio==4.16.0",
    "idna==3.20",
    "certifi==2026.10.18",
    "typing-extensions==4.16.0",
    "scipy==1.16.3",
    "xgboost-cpu==3.2.0",
)
"""XGBoost, and what the parts of the other frameworks import."""


def python() -> Path:
    """Return the interpreter that runs the programs in `probes`."""
    return venvs.python("frameworks", *PACKAGES)


def understood(
    probe: str, pods: Iterable[Started], parts: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Return what this program of `probes` says in each of the pods, by the pod's name.

    They run at the same time and may talk to each other. Each sees its pod's environment and
    nothing of this process's own.
    """
    with ExitStack() as stack:
        running = {pod.pod: _start(stack, probe, pod, parts) for pod in pods}
        outputs = {name: _end(name, process) for name, process in running.items()}
    return {name: json.loads(output.splitlines()[-1]) for name, output in outputs.items()}


def outside(pod: Started) -> Mapping[str, str]:
    """Return a container's variables with what the image itself would set."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", **pod.env}


def _start(
    stack: ExitStack, probe: str, pod: Started, parts: Path | None
) -> subprocess.Popen[str]:
    told = {"POD_NETWORK": pod.network(), **({"PARTS": str(parts)} if parts else {})}
    process = subprocess.Popen(
        [str(python()), str(PROBES / f"{probe}.py")],
        env={**outside(pod), **told},
        cwd=pod.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def _end(name: str, process: subprocess.Popen[str]) -> str:
    try:
        output, said = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        output, said = process.communicate()
        pytest.fail(f"{name} has not ended after {LONGEST:.0f} s: {said[-4000:]}")
    assert process.returncode == 0, f"{name}: {said[-4000:]}"
    return output
