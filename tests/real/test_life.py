# SPDX-License-Identifier: Apache-2.0
"""Real nodes come up, go down and leave nothing, however often and however they ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.local import cluster, options
from muster.local.cluster import Cluster
from real import machine
from realnode import real

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("machine")]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep these clusters apart from any other; nothing of them is left."""
    before = machine.marks()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path
    for name in cluster.names():
        cluster.down(name)
    assert machine.left(before) == {}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def kubectl(made: Cluster, *words: str) -> str:
    """Run kubectl as a user does; its output."""
    return made.kubectl(*words)


def ready(made: Cluster) -> dict[str, str]:
    """Return Ready of each node."""
    found = json.loads(kubectl(made, "get", "nodes", "-o", "json"))["items"]
    return {
        node["metadata"]["name"]: next(
            one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready"
        )
        for node in found
    }


def test_up_down_and_up_again() -> None:
    """Two real nodes and one simulated; the second start finds the machine as the first did."""
    wanted = options.Options(name="life", nodes=1)
    for _ in range(2):
        before = machine.marks()
        made = real.up(wanted, 2)
        assert ready(made) == {"real-1": "True", "real-2": "True", "node-1": "True"}
        assert machine.marks()["sysctls"] == before["sysctls"]
        assert cluster.down("life")
        assert machine.left(before) == {}


def test_a_cluster_ends_with_the_process_that_it_is_tied_to() -> None:
    """By its guard, which sees that process killed."""
    code = """
from muster.local import options
from realnode import real
real.up(options.Options(name="life", tied=True))
print("up", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as tied:
        assert tied.stdout
        assert tied.stdout.readline() == "up\n"
        home = Path(os.environ["XDG_STATE_HOME"], "muster", "local", "life")
        assert home.exists()
        tied.kill()
    cluster.down("life")  # waits for the guard, or does its work
    assert not home.exists()
