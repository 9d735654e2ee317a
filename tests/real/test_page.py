# SPDX-License-Identifier: Apache-2.0
"""The page "Train something real in five minutes": every command of it, in its order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.local import cluster
from real import machine

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "real.md"
SECONDS = 900.0
"""With nothing built; minutes less where programs and images are there."""
WHY = """
trap '{
    kubectl get nodes,pods -A -o wide; kubectl get events -A
    kubectl logs -n muster-system -l app.kubernetes.io/name=muster --tail=20
} >&2' ERR
"""

pytestmark = [
    pytest.mark.real,
    pytest.mark.usefixtures("machine"),
    pytest.mark.timeout(SECONDS + 60),
]


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Give a shell that knows of no cluster; nothing is left of what it makes."""
    before = machine.marks()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    for name in cluster.names():
        cluster.down(name)
    assert machine.left(before) == {}


@pytest.fixture
def _images(machine: None) -> Iterator[None]:
    """Make the images beside all that comes before them: most of either is waiting."""
    argv = [sys.executable, str(ROOT / "tools" / "realnode"), "images", "base", "muster"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        yield


@pytest.mark.usefixtures("_images")
def test_the_page_does_what_it_says(env: dict[str, str]) -> None:
    """A gang meets, mpirun reaches its workers; logs and exit codes are read, and all is gone."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        ["bash", "-Eeuo", "pipefail", "-c", WHY + "".join(blocks)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^rank 2 met all 3, their sum is 3$", done.stdout, re.MULTILINE)) == 1
    followed = re.findall(r"^(\S+) \| rank \d met all 3", done.stdout, re.MULTILINE)
    assert sorted(followed) == ["master-0", "worker-0", "worker-1"], done.stdout
    assert re.search(
        r"rank 0: the sum of all ranks is 1, .*'mpi-worker-0', 'mpi-worker-1'", done.stdout
    )
    codes = dict(re.findall(r"^(meet-\S+|mpi-launcher\S*) +(\d+)$", done.stdout, re.MULTILINE))
    assert list(codes.values()) == ["0"] * 4, done.stdout
    assert cluster.names() == []
