# SPDX-License-Identifier: Apache-2.0
"""How a demo ends that does not go as it is meant to, on a cluster of paper.

One that goes well is in tests/e2e, on a real one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from muster.local import cluster, demo, processes, runner
from muster.local.handle import ClusterError


class Operator:
    """What the demo asks of its operator."""

    def __init__(self, log: Path) -> None:
        self.log = log
        log.write_text("working: gang scheduler embedded")

    def wait_ready(self) -> None:
        """Be ready."""


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """Collect the clusters that are up."""
    there: set[str] = set()
    monkeypatch.setattr(cluster, "up", lambda wanted, _say: there.add(wanted.name))
    monkeypatch.setattr(cluster, "down", there.remove)
    monkeypatch.setattr(cluster, "find", lambda _name: None)
    monkeypatch.setattr(runner, "start", lambda *_: Operator(tmp_path / "operator.log"))
    return there


def plays(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> None:
    """Let the show end with that."""
    # It would hush the other tests.
    monkeypatch.setattr(processes, "hush", lambda: None)

    async def play(*_: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(demo, "_play", play)


@pytest.mark.parametrize("keep", [False, True])
def test_an_operator_that_dies_ends_the_demo(
    keep: bool,
    clusters: set[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 1 and the reason; its log outlives the cluster."""
    plays(monkeypatch, ClusterError("the operator ended."))
    assert demo.main(keep=keep, out=tmp_path / "demo.svg") == 1
    assert "muster demo: the operator ended." in capsys.readouterr().err
    assert "working: gang scheduler embedded" in (tmp_path / "demo.log").read_text()
    assert clusters == set()


def test_an_interrupted_demo_leaves_nothing(
    clusters: set[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C in the middle of the show: a word, and exit code 130."""
    plays(monkeypatch, KeyboardInterrupt())
    assert demo.main(out=tmp_path / "demo.svg") == 130
    assert capsys.readouterr().err == "muster demo: interrupted\n"
    assert clusters == set()


def test_a_demo_that_is_to_be_kept_is(
    clusters: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Under a name that can be told to go; another one goes with its demo."""
    plays(monkeypatch, None)
    assert demo.main(keep=True, out=tmp_path / "demo.svg") == 0
    assert clusters == {"demo"}
    assert demo.main(out=tmp_path / "demo.svg") == 0
    assert clusters == {"demo"}


def test_a_picture_that_cannot_be_written_is_found_out_at_the_start(
    clusters: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says why; nothing is brought up."""
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "demo.svg"
    assert demo.main(out=out) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"muster demo: {out} cannot be written: ")
    assert len(said.splitlines()) == 1
    assert clusters == set()


CUT_SHORT = """
import sys
from muster.local import {module}

async def never():
    pass

def show(*_, **__):
    begun = never()
    raise KeyboardInterrupt

{call}
"""


@pytest.mark.parametrize(
    ("module", "call", "said"),
    [
        ("demo", "demo._show = show; sys.exit(demo.main())", "muster demo: interrupted\n"),
        ("commands", "sys.exit(commands._reported(show)(None))", ""),
    ],
)
def test_an_interrupt_is_told_in_a_word(module: str, call: str, said: str) -> None:
    """Whatever it cuts short: Python would go on about a loop or a coroutine."""
    program = [sys.executable, "-W", "default", "-c", CUT_SHORT.format(module=module, call=call)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, said)
