# SPDX-License-Identifier: Apache-2.0
"""The SDK that users have, as it was released, drives jobs of every kind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import venvs
from harness import Api, Json
from kinds import KINDS, job, roles_of

pytestmark = pytest.mark.e2e

RELEASE = ("kubeflow-training==1.9.3", "kubernetes==31.0.0")
DRIVER = Path(__file__).parent / "sdk" / "drive.py"


@pytest.fixture(scope="module")
def sdk() -> Path:
    """Return the interpreter that has the SDK."""
    return venvs.python("kubeflow-training", *RELEASE)


def drive(sdk: Path, api: Api, kind: str) -> Json:
    """Return what the SDK answered."""
    good = job(kind, "driven", run="4", cleanPodPolicy="None")
    bad = job(kind, "broken", exits="3", cleanPodPolicy="All")
    done = subprocess.run(
        [str(sdk), str(DRIVER), str(api.cluster.kubeconfig), api.namespace, kind],
        input=json.dumps([good, bad]),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: Json = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("kind", KINDS)
def test_the_released_sdk_drives_a_job(shared_api: Api, sdk: Path, kind: str) -> None:
    """It finds its conditions, pods and masters, changes it, sees it succeed and fail."""
    seen = drive(sdk, shared_api, kind)
    names = [
        f"driven-{role.lower()}-{index}" if role != "Launcher" else "driven-launcher"
        for role, count in roles_of(kind).items()
        for index in range(count)
    ]
    assert seen["pods"] == sorted(names)
    workers = [name for name in names if "worker" in name]
    assert seen["workers"] == workers
    assert seen["first"] == workers[:1]
    led = "Master" in roles_of(kind) or "Launcher" in roles_of(kind)
    assert seen["masters"] == (names[:1] if led else workers[:1] if kind != "PaddleJob" else [])
    assert seen["model"] == f"KubeflowOrgV1{kind}"
    assert (seen["created"], seen["running"]) == (True, True)
    assert (seen["succeeded"], seen["failed"]) == (True, False)
    assert seen["listed"] == ["driven"]
    assert seen["labels"]["seen-by"] == "sdk"
    assert seen["conditions"] == ["Created", "Running", "Succeeded"]
    assert f"{kind} {shared_api.namespace}/broken is Failed" in seen["said"]
    if kind in ("TFJob", "PyTorchJob"):
        assert len(seen["by name"]) == 2
    shared_api.wait(kind, lambda jobs: set(jobs) == {"broken"})
