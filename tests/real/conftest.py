# SPDX-License-Identifier: Apache-2.0
"""A cluster that runs containers: one of this machine's own, or that of MUSTER_REAL_KUBECONFIG."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.local import cluster, layout, options, runner
from muster.local.handle import Cluster
from realnode import images, real
from support.e2e.harness import Api, own_namespace

ROOT = Path(__file__).parents[2]
NODES = 2


@pytest.fixture(scope="session")
def machine() -> None:
    """Skip, with the reason, what needs real nodes where this machine cannot have them."""
    try:
        real.require(layout.state_root())
    except real.RealNodeError as error:
        pytest.skip(" ".join(str(error).split()))
    if lacks := images.lacking():
        pytest.skip(f"no images can be made here, for want of {', '.join(lacks)}")


@pytest.fixture(scope="session")
def there(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Give the cluster."""
    given = os.environ.get("MUSTER_REAL_KUBECONFIG")
    name = f"real-{os.getpid()}"
    if given:
        made = cluster.up(options.Options(name=name, kubeconfig=Path(given), tied=True))
    else:
        request.getfixturevalue("machine")
        made = real.up(options.Options(name=name, tied=True), NODES)
    yield made
    cluster.down(name)


@pytest.fixture(scope="session")
def image(there: Cluster) -> str:
    """Give the name of an image that has Python."""
    if there.extra.nodes:
        real.load(there, [images.make("base")])
    return os.environ.get("MUSTER_REAL_IMAGE", "localhost/muster/base:1")


@pytest.fixture(scope="session")
def operator(there: Cluster) -> runner.Runner:
    """Run the operator with the embedded allocator beside the cluster, and what MPIJobs need."""
    flags = [
        f"--mpi-kubectl-delivery-image={images.PREFIX}kubectl:{images.TAG}",
        "--node-lost-after=2s",
        "--shared-environment-above=3",
    ]
    made = runner.start(there, ROOT / "manifests" / "overlays" / "mpi", flags)
    made.wait_ready()
    return made


@pytest.fixture
def api(there: Cluster, operator: runner.Runner) -> Iterator[Api]:
    """Give a namespace of its own."""
    with own_namespace(there, "real") as made:
        yield made
    operator.check()
