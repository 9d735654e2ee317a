# SPDX-License-Identifier: Apache-2.0
"""Processes are known by pid and birth, and recorded before they are of any use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from muster.local import layout, processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEP = ["sleep", "600"]


class Started:
    """Processes started in a folder, and their records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = folder / "lock"

    def record(self, name: str) -> Path:
        """Where the process called `name` writes its identity."""
        return self.folder / f"{name}.pid"

    def log(self, name: str) -> Path:
        """Output of that process."""
        return self.folder / f"{name}.log"

    def start(self, name: str, argv: list[str]) -> processes.Identity | None:
        """Start it under the lock."""
        with layout.held(self.lock):
            processes.start(argv, cwd=self.folder, log=self.log(name), record=self.record(name))
        return processes.read(self.record(name))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Give a place to start processes in; all are gone afterwards."""
    place = Started(tmp_path)
    yield place
    found = [processes.read(path) for path in tmp_path.glob("*.pid")]
    processes.stop([one for one in found if one], grace=0)


def test_a_process_is_recorded(started: Started) -> None:
    """The record is there as soon as start is done, and is of the living process.

    The process does not hold its cluster's lock for life.
    """
    one = started.start("a", SLEEP)
    assert one is not None
    assert processes.of(one.pid) == one
    with layout.held(started.lock):
        assert processes.alive(one)


def test_a_process_runs_in_its_folder_and_writes_to_its_log(started: Started) -> None:
    """Both standard output and errors."""
    one = started.start("a", ["sh", "-c", "pwd; echo oops >&2"])
    assert one is not None
    assert processes.wait_gone([one], seconds=10) == []
    assert started.log("a").read_text() == f"{started.folder}\noops\n"


def test_a_process_that_cannot_be_recorded_does_not_run(started: Started) -> None:
    """On a full disk, say; nobody would ever end it."""
    before = psutil.Process().children()
    record = started.folder / "no such folder" / "a.pid"
    with pytest.raises(FileNotFoundError):
        processes.start(
            ["sh", "-c", "echo ran"], cwd=started.folder, log=started.log("a"), record=record
        )
    (child,) = set(psutil.Process().children()) - set(before)
    child.wait(10)
    assert started.log("a").read_text() == ""


def test_a_program_that_is_not_there_leaves_its_reason_in_the_log(started: Started) -> None:
    """It is recorded, and dead."""
    one = started.start("a", ["/no/such/program"])
    assert one is not None
    processes.wait_gone([one], seconds=10)
    assert "/no/such/program" in started.log("a").read_text()


def test_stopping_ends_politely_first(started: Started) -> None:
    """A process that listens to SIGTERM does its last work."""
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    one = started.start("a", ["sh", "-c", script])
    assert one is not None
    while "up" not in started.log("a").read_text():
        pass
    processes.stop([one], grace=10)
    assert "bye" in started.log("a").read_text()


def test_stopping_ends_the_deaf_by_force(started: Started) -> None:
    """SIGTERM ignored means SIGKILL after the grace."""
    one = started.start("a", ["sh", "-c", "trap '' TERM; echo up; sleep 600 & wait; sleep 600"])
    assert one is not None
    while "up" not in started.log("a").read_text():
        pass
    processes.stop([one], grace=0.1)
    assert not processes.alive(one)
    os.killpg(one.pid, signal.SIGKILL)  # its sleep is no component: the test's own to end


def test_a_stranger_with_a_recycled_pid_is_not_touched(started: Started) -> None:
    """Same pid, other birth: somebody else."""
    with subprocess.Popen(SLEEP) as stranger:
        real = processes.of(stranger.pid)
        assert real is not None
        stale = processes.Identity(real.pid, real.birth - 1)
        processes.stop([stale], grace=0)
        assert not processes.send(stale, signal.SIGKILL)
        assert processes.alive(real)
        stranger.kill()


def test_a_dead_child_that_nobody_waited_for_is_not_alive() -> None:
    """A zombie has a pid and a birth still."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    one = processes.Identity(pid, 0)
    assert processes.wait_gone([one], seconds=0) == []
    while processes.of(pid):
        pass


@pytest.mark.parametrize("content", ["", "12", "12 ", "12 (sleep) S 1", "x (y) S"])
def test_half_a_record_is_none(content: str, tmp_path: Path) -> None:
    """A disk that was full, say."""
    path = tmp_path / "a.pid"
    path.write_text(content)
    assert processes.read(path) is None


def test_who_starts_after_a_killed_starter_sees_all_it_started(tmp_path: Path) -> None:
    """What a killed starter had not recorded does not become what it was to be."""
    mark = f"600.{os.getpid()}"
    code = (
        "import sys; from pathlib import Path; from muster.local import layout, processes\n"
        "here = Path(sys.argv[1])\n"
        "with layout.held(here / 'lock'):\n"
        "    for i in range(50):\n"
        "        processes.start(['sleep', sys.argv[2]], cwd=here, log=here / 'log',\n"
        "            record=here / f'{i}.pid')\n"
        "        print(i, flush=True)\n"
    )
    argv = [sys.executable, "-c", code, str(tmp_path), mark]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        for _ in range(5):
            starter.stdout.readline()
        starter.kill()
    with layout.held(tmp_path / "lock"):
        found = [processes.read(path) for path in tmp_path.glob("*.pid")]
        processes.stop([one for one in found if one], grace=0)
    assert len(found) >= 5
    deadline = time.monotonic() + 10  # the last one has yet to see that its starter is gone
    while any(mark in (one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # the end of another's child gives no event
