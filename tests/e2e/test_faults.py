# SPDX-License-Identifier: Apache-2.0
"""Whatever happens between the operator and its server, or to itself: each job ends as it would.

Random schedules of jobs and faults. `make faults
FAULT_SEEDS=17` plays one of them again, with those that shared its operator's life.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.local import handle
from muster.local.handle import Cluster
from support.chaos import fault_schedules
from support.chaos.fault_player import CPUS, NODES, Outcome, Player, Replicas
from support.chaos.fault_report import Tally
from support.chaos.invariants import Rank
from support.e2e.harness import condition, tfjob

pytestmark = pytest.mark.e2e

NODE = {"cpu": str(CPUS)}
"""All that a node has."""
WHOLE = "MUSTER_TAKEOVERS" in os.environ
SEEDS = fault_schedules.seeds(os.environ.get("MUSTER_FAULT_SEEDS") or "0-31")


@pytest.fixture(scope="module")
def quiet(player: Player) -> Outcome:
    """Return what becomes of all jobs that are drawn when nothing goes wrong."""
    plan = fault_schedules.quiet(
        seed for n in fault_schedules.lives(SEEDS) for seed in fault_schedules.life(n).seeds
    )
    return player.play(fault_schedules.QUIET, [plan])


def test_nothing_goes_wrong_by_itself(quiet: Outcome) -> None:
    """What the others are compared with is as it should be."""
    assert quiet.wrong == []
    print(f"{len(quiet.ends)} stories in {quiet.seconds:.1f} s, {quiet.memory / 2**20:.0f} MiB")


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.full if n else ()) for n in fault_schedules.lives(SEEDS)],
)
def test_every_job_ends_as_it_would_have(
    player: Player, quiet: Outcome, tally: Tally, number: int
) -> None:
    """No rank runs twice, no half gang stands, nothing stays behind (S23)."""
    assert not quiet.wrong, "there is nothing to compare with"
    life = fault_schedules.life(number)
    plans = [fault_schedules.schedule(seed) for seed in life.seeds]
    print(f"seeds {life.seeds[0]}-{life.seeds[-1]}: {[(a.at, a.verb) for a in life.acts]}")
    ends = {story: end for (_, story), end in quiet.ends.items()}
    found = player.play(life, plans, ends)
    print(f"{found.seconds:.1f} s, the last was {found.slowest}; {dict(found.faults)}")
    wrong = [*found.wrong, *too_often(found, quiet)]
    print("\n".join(one[:4000] for one in wrong), flush=True)
    tally.quiet = quiet.memory
    tally.add(life, found, wrong)
    assert not wrong


@pytest.mark.skipif(not WHOLE, reason="the control plane restarts twice: `make faults`")
def test_the_server_is_restored_from_a_backup(player: Player, tmp_path: Path) -> None:
    """What came later is gone, what was there goes on, and no node is kept for ghosts."""
    api, cluster = player.namespace(-1), player.cluster
    data, copy = cluster.files.data, tmp_path / "backup"
    replicas = Replicas(cluster, player.folder, player.proxy, 1)
    replicas.start()
    try:
        api.create(tfjob("before", workers=1, run="forever", resources=NODE))
        api.wait_pods(1, "Running", "before")
        with _stopped(cluster):
            shutil.copytree(data, copy)
        api.finish("before-worker-0")
        api.wait_condition("before", "Succeeded")
        api.create(tfjob("after", workers=2, run="forever", resources=NODE))
        api.wait_pods(2, "Running", "after")
        with _stopped(cluster):
            shutil.rmtree(data)
            shutil.copytree(copy, data)
        api.create(tfjob("later", workers=len(NODES) - 1, run="0", resources=NODE))
        api.wait_condition("later", "Succeeded")
        assert api.find("TFJob", "after") is None
        assert condition(api.get("TFJob", "before"), "Running") == "True"
        api.finish("before-worker-0")
        api.wait_condition("before", "Succeeded")
        replicas.mind()
    finally:
        replicas.stop()
    assert replicas.wrong == []


@contextmanager
def _stopped(cluster: Cluster) -> Iterator[None]:
    """Stop all of the control plane for as long as the block lasts."""
    for component in reversed(cluster.components):
        cluster.stop(component)
    yield
    for component in cluster.components:
        cluster.start(component)
        if component == handle.API_SERVER:
            cluster.wait_ready()


def too_often(found: Outcome, quiet: Outcome) -> list[str]:
    """Return the ranks of which more pods have run than when nothing goes wrong."""
    usual = {(rank[1], rank[2:]): count for rank, count in quiet.runs.items()}

    def allowed(rank: Rank) -> int:
        # Whether it ran before its user took it down, or at all, hangs on when it got its nodes.
        most = max(fault_schedules.runs_at_most(*rank[1:]), usual.get((rank[1], rank[2:]), 0))
        # Of a gang of which a pod is refused the others are taken down, whole it is made again.
        return most + (rank[0] in found.refused)

    return [f"{r} ran {count} times" for r, count in found.runs.items() if count > allowed(r)]
