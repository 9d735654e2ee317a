# SPDX-License-Identifier: Apache-2.0
"""How a demo ends that does not go as it is meant to, on a cluster of paper.

One that goes well is in tests/e2e, on a real one.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from muster.local import cluster, demo, processes, runner
from muster.local.handle import ClusterError


class Operator:
    """What the demo asks of its operator."""

    def wait_ready(self) -> None:
        """Be ready."""

    def log_tail(self) -> str:
        """Return the end of its log."""
        return "working: gang scheduler embedded"


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Collect the clusters that are up."""
    there: set[str] = set()
    monkeypatch.setattr(cluster, "up", lambda wanted, _say: there.add(wanted.name))
    monkeypatch.setattr(cluster, "down", there.remove)
    monkeypatch.setattr(cluster, "find", lambda _name: None)
    monkeypatch.setattr(runner, "start", lambda *_: Operator())
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
def test_demo_whose_operator_ends_fails(
    keep: bool,
    clusters: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code is 1, stderr has the reason, and the cluster is deleted."""
    plays(monkeypatch, ClusterError("the operator ended."))
    assert demo.main(keep=keep) == 1
    assert capsys.readouterr().err == "muster demo: the operator ended.\n"
    assert clusters == set()


def test_demo_whose_job_ends_in_another_state_prints_the_end_of_the_log(
    clusters: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The log is removed with the cluster."""
    plays(monkeypatch, demo.ShowError("simple is Failed, not Succeeded"))
    assert demo.main() == 1
    assert "working: gang scheduler embedded" in capsys.readouterr().err
    assert clusters == set()


def test_an_interrupted_demo_leaves_nothing(
    clusters: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C in the middle of the show: a word, and exit code 130."""
    plays(monkeypatch, KeyboardInterrupt())
    assert demo.main() == 130
    assert capsys.readouterr().err == "muster demo: interrupted\n"
    assert clusters == set()


def test_a_demo_that_is_to_be_kept_is(clusters: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a name that can be told to go; another one goes with its demo."""
    plays(monkeypatch, None)
    assert demo.main(keep=True) == 0
    assert clusters == {"demo"}
    assert demo.main() == 0
    assert clusters == {"demo"}


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
