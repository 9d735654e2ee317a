# SPDX-License-Identifier: Apache-2.0
"""One cluster for all stories; a namespace and nodes for each, an operator for those alike."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.local import binaries, cluster, handle, options
from muster.local.handle import Cluster
from support.chaos import api_faults
from support.chaos.fault_player import CPUS, NODES, Player
from support.chaos.fault_report import Tally
from support.chaos.invariants import Onlooker
from support.e2e import venvs
from support.e2e.harness import (
    ROOT,
    Api,
    Operator,
    Operators,
    StartOperator,
    add_nodes,
    own_namespace,
)

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember whether a story has failed, for those who clear up after it."""
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


@pytest.fixture(scope="session")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    """Give what starts operators, one beside the other only where a story wants it."""
    made = Operators(tmp_path_factory.mktemp("operators"))
    yield made
    made.stop()


def begin(folder: Path) -> None:
    """Leave there what etcd has of a cluster in which Muster's kinds are served, and no more.

    And of each group a definition, to wait for: it takes a second to read them all.
    """
    name = f"begin-{os.getpid()}"
    made = cluster.up(options.Options(name=name, nodes=0, kwok=False, scheduler=False, tied=True))
    for component in reversed(made.components):
        made.stop(component)
    shutil.copytree(made.files.data, folder / "etcd")
    cluster.down(name)
    (folder / "crds").mkdir()
    for file in ("kubeflow.org_jaxjobs.yaml", "scheduling.incubator.k8s.io_podgroups.yaml"):
        shutil.copy(ROOT / "crds" / file, folder / "crds")


@pytest.fixture(scope="session")
def beginning() -> Path:
    """Give what clusters begin with: two thirds of a start are to take in the CRDs.

    A folder `etcd` of data, and one of `crds`.
    """
    made_of = [*sorted((ROOT / "crds").glob("*.yaml")), Path(handle.__file__)]
    programs = str(binaries.find()).encode()
    key = hashlib.sha256(b"".join((programs, *(path.read_bytes() for path in made_of))))
    return venvs.kept("beginning", key.hexdigest()[: venvs.DIGITS], begin)


@pytest.fixture(scope="session")
def local_cluster(operators: Operators, beginning: Path) -> Iterator[Cluster]:
    """Start a control plane without nodes: each test brings those it needs."""
    name = f"e2e-{os.getpid()}"
    made = cluster.up(
        options.Options(
            name=name,
            nodes=0,
            tied=True,
            run_seconds="1",
            endpoints=False,
            data=beginning / "etcd",
            crds=beginning / "crds",
        )
    )
    yield made
    operators.stop()
    cluster.down(name)


@pytest.fixture
def api(local_cluster: Cluster) -> Iterator[Api]:
    """Give a namespace of its own; afterwards nothing in the cluster has or wants a node."""
    with own_namespace(local_cluster, "test") as made:
        yield made
    made.wait("Pod", lambda pods: not pods or None, what="no pods left") if made.list("Pod") else 0
    made.send("DELETE", made.path("Node"))


@pytest.fixture
def start_operator(
    local_cluster: Cluster, operators: Operators, request: pytest.FixtureRequest
) -> Iterator[StartOperator]:
    """Give a function that gives operators under the shipped roles of an overlay."""
    story = request.node
    with operators.lending(local_cluster, lambda: not story.stash.get(FAILED, True)) as start:
        yield start


@pytest.fixture
def operator(start_operator: StartOperator) -> Operator:
    """Give an operator with the embedded allocator; each story brings its own nodes."""
    return start_operator()


@pytest.fixture(scope="module")
def shared_operator(
    local_cluster: Cluster, operators: Operators, request: pytest.FixtureRequest
) -> Iterator[Operator]:
    """Give all stories of a module that do not mind each other one operator, and ample nodes.

    It has the roles of the overlay that the module names as OVERLAY, else of `embedded`.
    """
    overlay = getattr(request.module, "OVERLAY", "embedded")
    admin = Api(local_cluster, "default")
    with operators.lending(local_cluster, lambda: True) as start:
        made = start(overlay=overlay)
        nodes = add_nodes(admin, *[{"cpu": "64"}] * 3, prefix="ample")
        yield made
    for name in nodes:
        admin.delete("Node", name)


@pytest.fixture
def shared_api(local_cluster: Cluster, shared_operator: Operator) -> Iterator[Api]:
    """Give a namespace of its own on the shared operator; its jobs are gone afterwards."""
    with own_namespace(local_cluster, "shared") as made:
        yield made


@pytest.fixture(scope="module")
def player(local_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Player]:
    """Give what plays lives, on a cluster with some nodes."""
    admin = Api(local_cluster, "default")
    add_nodes(admin, *[{"cpu": str(CPUS)}] * len(NODES), prefix="ample")
    folder = tmp_path_factory.mktemp("lives")
    with api_faults.Proxy(local_cluster) as proxy, Onlooker(local_cluster) as onlooker:
        yield Player(local_cluster, folder, proxy, onlooker)
    for name in NODES:
        admin.delete("Node", name)


@pytest.fixture(scope="session")
def tally() -> Iterator[Tally]:
    """Give what counts; it is written into the docs where that is asked for."""
    made = Tally()
    yield made
    print(f"\n{made.table()}")
    if os.environ.get("MUSTER_REPORT"):
        made.write(Path(__file__).parents[2] / "docs" / "reliability.md")
