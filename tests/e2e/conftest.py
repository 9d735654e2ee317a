# SPDX-License-Identifier: Apache-2.0
"""One cluster for all stories; a namespace, nodes and an operator for each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness import Api, Operator, account_config, add_nodes, own_namespace

from muster.local import cluster, options
from muster.local.handle import Cluster

StartOperator = Callable[..., Operator]


@pytest.fixture(scope="session")
def local_cluster() -> Iterator[Cluster]:
    """Start a control plane without nodes: each test brings those it needs."""
    name = f"e2e-{os.getpid()}"
    made = cluster.up(options.Options(name=name, nodes=0, tied=True, run_seconds="1"))
    yield made
    cluster.down(name)


@pytest.fixture
def api(local_cluster: Cluster) -> Iterator[Api]:
    """Give a namespace of its own; afterwards nothing in the cluster has or wants a node."""
    with own_namespace(local_cluster, "test") as made:
        yield made
    made.wait("Pod", lambda pods: not pods or None, what="no pods left") if made.list("Pod") else 0
    made.send("DELETE", made.path("Node"))


@pytest.fixture
def start_operator(local_cluster: Cluster, tmp_path: Path) -> Iterator[StartOperator]:
    """Give a function that starts an operator under the shipped roles of an overlay."""
    numbers = itertools.count()
    with ExitStack() as running:

        def start(*flags: str, overlay: str = "embedded", ready: bool = True) -> Operator:
            config = account_config(local_cluster, tmp_path, overlay)
            made = Operator(config, tmp_path / f"operator-{next(numbers)}.log", flags)
            made.command = "scheduler" if overlay == "scheduler" else "run"
            return running.enter_context(made.working(ready=ready))

        yield start


@pytest.fixture
def operator(start_operator: StartOperator) -> Operator:
    """Start an operator with the embedded allocator."""
    return start_operator()


@pytest.fixture(scope="module")
def module_operator(
    local_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """Give all stories of a module one operator; each brings its own nodes."""
    folder = tmp_path_factory.mktemp("operator")
    config = account_config(local_cluster, folder, "embedded")
    with Operator(config, folder / "operator.log", ()).working() as made:
        yield made


@pytest.fixture(scope="module")
def shared_operator(
    local_cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Operator]:
    """Give all stories of a module that do not mind each other one operator, and ample nodes.

    It has the roles of the overlay that the module names as OVERLAY, else of `embedded`.
    """
    folder = tmp_path_factory.mktemp("operator")
    config = account_config(local_cluster, folder, getattr(request.module, "OVERLAY", "embedded"))
    admin = Api(local_cluster, "default")
    with Operator(config, folder / "operator.log", ()).working() as made:
        nodes = add_nodes(admin, *[{"cpu": "64"}] * 3, prefix="ample")
        yield made
    for name in nodes:
        admin.delete("Node", name)


@pytest.fixture
def shared_api(local_cluster: Cluster, shared_operator: Operator) -> Iterator[Api]:
    """Give a namespace of its own on the shared operator; its jobs are gone afterwards."""
    with own_namespace(local_cluster, "shared") as made:
        yield made
