# SPDX-License-Identifier: Apache-2.0
"""Watches of a real API server: very many, told of trouble, and of kinds that come and go."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from muster.local.handle import Cluster
from support.chaos import api_faults
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


@pytest.fixture
def relay(local_cluster: Cluster) -> Iterator[api_faults.Proxy]:
    """Stand before the API server."""
    with api_faults.Proxy(local_cluster) as made:
        yield made


@pytest.mark.parametrize("fault", ["event 403", "503"])
def test_watches_in_trouble(
    api: Api, start_operator: StartOperator, relay: api_faults.Proxy, fault: str
) -> None:
    """All of them, each time they are opened: they are opened again, with pauses, from where they
    were; once the trouble is over jobs go on as if nothing had been.
    """
    add_nodes(api, {"cpu": "4"})
    operator = start_operator(through=relay)
    api.create(tfjob("before", run="forever", resources=MINUTE))
    api.wait_condition("before", "Running")
    relay.seen.clear()
    relay.choose = lambda request: fault if request.watch else ""
    for plural in ("tfjobs", "pods", "nodes"):
        relay.cut_watches(plural)
    time.sleep(3)
    relay.choose = api_faults.none
    asked = Counter(r.path for r in relay.seen if r.watch)
    assert asked
    assert max(asked.values()) < 15, asked
    # Kopf begins anew with lists, of the jobs and of what is served.
    listed = (r for r in relay.seen if r.method == "GET" and not r.watch)
    whole = [r for r in listed if r.path.startswith("/api/")]
    assert len(whole) <= sum(asked.values()) + 10
    api.create(tfjob("after", run="1", resources=MINUTE))
    api.wait_condition("after", "Succeeded")
    assert operator.running
    assert len(api.wait_pods(2, "Running", "before")) == 2


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
