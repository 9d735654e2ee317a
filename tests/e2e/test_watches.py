# SPDX-License-Identifier: Apache-2.0
"""Watches of a real API server: very many, and of kinds that come and go."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.e2e import kinds
from support.e2e.gang_schedulers import install
from support.e2e.harness import ROOT, Api, Operator, StartOperator, add_nodes, tfjob

pytestmark = pytest.mark.e2e

MINUTE = {"cpu": "100m"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MANY = int(os.environ.get("MUSTER_NAMESPACES", "30"))
"""As many as have more watches than a client has connections; two hundred in `make nightly`."""


@pytest.mark.full
def test_many_namespaces_are_followed(api: Api, start_operator: StartOperator) -> None:
    """Each by watches of its own; a job in the last one starts at once."""
    add_nodes(api, {"cpu": "4"})
    names = [*(f"nobody-{index}" for index in range(MANY - 1)), api.namespace]
    began = time.monotonic()
    operator = start_operator(f"--namespace={','.join(names)}", ready=False)
    operator.wait_ready(120)
    took = time.monotonic() - began
    api.create(tfjob("far", run="1", resources=MINUTE))
    api.wait_condition("far", "Succeeded")
    assert operator.process is not None
    memory = psutil.Process(operator.process.pid).memory_info().rss >> 20
    print(f"{MANY} namespaces: ready after {took:.1f} s, {memory} MiB")
    assert operator.readiness() == "ok"


KIND = "xgboostjobs"


@pytest.fixture
def kind(api: Api) -> Iterator[str]:
    """Name a kind of job that is served again in the end."""
    yield KIND
    install(api, crd(KIND))


def crd(plural: str) -> Path:
    """Return where the definition of a kind is."""
    return ROOT / "crds" / f"kubeflow.org_{plural}.yaml"


def test_a_kind_that_is_deleted_stops_that_kind_only(
    api: Api, operator: Operator, kind: str
) -> None:
    """And it goes on once it is served again."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("runs", run="forever", resources=MINUTE))
    api.wait_condition("runs", "Running")
    api.delete(CRDS, f"{kind}.kubeflow.org")
    api.wait(CRDS, lambda found: f"{kind}.kubeflow.org" not in found)
    api.create(tfjob("goes-on", run="1", resources=MINUTE))
    api.wait_condition("goes-on", "Succeeded")
    assert operator.running
    assert operator.readiness() == "ok"
    install(api, crd(KIND))
    api.create(kinds.job("XGBoostJob", "again", cpu="100m"))
    api.wait_condition("again", "Succeeded", of="XGBoostJob")
