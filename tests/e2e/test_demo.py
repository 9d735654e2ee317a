# SPDX-License-Identifier: Apache-2.0
"""`muster demo` shows what it promises, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from muster.local import cluster, processes, runner
from muster.local.handle import ClusterError

ROOT = Path(__file__).parents[2]
SECONDS = 400
NAMES = ("first", "second", "ps-worker-gpu", "exit-code", "simple")

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def start(*words: str, state: Path, cwd: Path) -> subprocess.Popen[str]:
    """Start `muster demo` with a state folder of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "muster", "demo", *words],
        cwd=cwd,
        env={**os.environ, "XDG_STATE_HOME": str(state), "PYTHONPATH": str(ROOT / "operator")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background ignores SIGINT, which children inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def remains(state: Path) -> list[str]:
    """Find the processes that know this state folder, and the files in it."""
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    running = [line for line in listing.stdout.splitlines() if str(state) in line]
    return [*running, *map(str, state.rglob("*"))]


def nothing_remains(state: Path, seconds: float = 30.0) -> bool:
    """Wait until nothing is left but empty folders: the guard works on after the demo's end."""
    deadline = time.monotonic() + seconds
    while left := [one for one in remains(state) if not Path(one).is_dir()]:
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {left}")
        time.sleep(0.1)  # the end of another's processes gives no event
    return True


def in_order(text: str, marks: Sequence[str]) -> bool:
    """Say whether all marks are there, one after the other."""
    position = 0
    for mark in marks:
        position = text.find(mark, position) + 1
        assert position, f"{mark!r} is not where it belongs in:\n{text}"
    return True


@pytest.mark.timeout(SECONDS + 60)
def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0, the story of the gang that waits, the table, the chart.

    It is told to stay: cluster, operator and jobs can be looked at until they are told to go.
    """
    state = tmp_path / "state"
    process = start("--keep", state=state, cwd=tmp_path)
    text, _ = process.communicate(timeout=SECONDS)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    try:
        assert process.returncode == 0, text
        tells_its_story(text)
        can_be_looked_at(text, state, tmp_path)
        knows_when_its_operator_dies()
    finally:
        cluster.down("demo")
    assert nothing_remains(state)


def tells_its_story(text: str) -> None:
    """Check what is printed, in its order."""
    squeezed = "\n".join(" ".join(line.split()) for line in text.splitlines())
    assert in_order(
        squeezed,
        [
            "Muster is ready",
            "Watch on a page: http://127.0.0.1:",
            "$ kubectl apply -f examples/tfjob-gang-waits.yaml",
            "s second Queued 0/4 placed: ",
            "$ kubectl apply -f examples/tfjob-ps-worker-gpu.yaml",
            "exit-code-worker-0 runs again",
            "s first Succeeded",
            "s second Running",
            "s second Succeeded",
            "$ kubectl get tfjobs",
            "NAME STATE GANG RESTARTS AGE",
            "A first",
            "node-1 gpu 0 |",
            "[A",
        ],
    )
    assert "first all 3 pods placed: 1 on node-1, 1 on node-2, 1 on node-3" in squeezed
    assert "second all 4 pods placed: " in squeezed
    assert max(len(line) for line in text.splitlines() if "|" in line) <= 100


def can_be_looked_at(text: str, state: Path, cwd: Path) -> None:
    """Check that all is there still, and that another demo keeps away from it."""
    assert "muster local down --name demo" in text
    (page,) = re.findall(r"Watch on a page: (\S+)", text)
    with urllib.request.urlopen(page) as answer:
        assert "<title>" in answer.read().decode()
    kept = cluster.find("demo")
    assert kept is not None
    assert all(kept.pids().values())
    path = "/apis/kubeflow.org/v1/namespaces/default/tfjobs"
    jobs = kept.ask(lambda kube: kube.get(path))["items"]
    assert {job["metadata"]["name"] for job in jobs} == set(NAMES)
    again = start("--keep", state=state, cwd=cwd)
    words, _ = again.communicate(timeout=SECONDS)
    assert again.returncode == 1
    assert "muster local down --name demo" in words


def knows_when_its_operator_dies() -> None:
    """Check that it would have ended: what becomes of a demo then is told in tests/local."""
    kept = cluster.find("demo")
    assert kept is not None
    operator = runner.Runner(kept, health=0)
    operator.check()
    process = processes.read(kept.files.pid(runner.NAME))
    assert process is not None
    assert processes.send(process, signal.SIGKILL)
    assert processes.wait_gone([process], seconds=30) == []
    with pytest.raises(ClusterError, match=r"the operator ended\. Its last words"):
        operator.check()
