# SPDX-License-Identifier: Apache-2.0
"""The SDK that users have, as it was released, drives jobs of every kind that it knows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from muster.frameworks import FRAMEWORKS
from support.e2e import venvs
from support.e2e.harness import Api, Json
from support.e2e.kinds import LEADS, called, job, roles_of

pytestmark = [pytest.mark.e2e, pytest.mark.full]

OVERLAY = "mpi"
DRIVER = Path(__file__).parent / "sdk" / "drive.py"
BY_NAME = ("TFJob", "PyTorchJob")


def drive(api: Api) -> Json:
    """Return what the SDK answered, by kind."""
    documents = {
        kind: [
            job(kind, called(kind, "driven"), run="forever", cleanPodPolicy="None"),
            job(kind, called(kind, "broken"), exits="3", cleanPodPolicy="All"),
        ]
        for kind in FRAMEWORKS
    }
    sdk = venvs.python("kubeflow-training", *venvs.TRAINING_SDK)
    done = subprocess.run(
        [str(sdk), str(DRIVER), str(api.cluster.kubeconfig), api.namespace],
        input=json.dumps(documents),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: Json = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_the_released_sdk_drives_jobs_of_every_kind(shared_api: Api) -> None:
    """It finds conditions, pods, masters and events, changes jobs, sees them succeed and fail."""
    for kind, seen in drive(shared_api).items():
        _found_its_pods(kind, seen)
        name = called(kind, "driven")
        assert seen["models"] == [f"KubeflowOrgV1{kind}"] * 2
        states = [seen[state] for state in ("created", "running", "restarting")]
        assert states == [True, True, False], kind
        assert (seen["succeeded"], seen["failed"]) == (True, False), kind
        assert seen["listed"] == [name]
        assert seen["labels"]["seen-by"] == "sdk", kind
        assert seen["conditions"] == ["Created", "Running", "Succeeded"], kind
        assert f"{kind.lower()}/{name}" in seen["told"]
        failed = f"{kind} {shared_api.namespace}/{called(kind, 'broken')} is Failed"
        assert failed in seen["said"]
        assert seen["said"].endswith("True"), kind
        assert set(seen["by name"].values()) == ({2} if kind in BY_NAME else set())
        shared_api.wait(kind, lambda jobs, k=kind: set(jobs) == {called(k, "broken")})


def _found_its_pods(kind: str, seen: Json) -> None:
    """Check whom the SDK took for the job's pods, its workers and its master."""
    name, leader = called(kind, "driven"), LEADS.get(kind, "")
    workers = [f"{name}-worker-{index}" for index in range(roles_of(kind)["Worker"])]
    first = {"": "", "Launcher": f"{name}-launcher"}.get(leader, f"{name}-{leader.lower()}-0")
    assert seen["pods"] == sorted([*workers, *filter(None, [first])])
    assert seen["workers"] == workers
    assert seen["first"] == workers[:1]
    assert seen["masters"] == ([first] if first else workers[:1])
