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
    monkeypatch.setattr(cluster, "up", lambda wanted, _, **__: there.add(wanted.name))
    monkeypatch.setattr(cluster, "down", there.remove)
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


@pytest.mark.parametrize(
    ("error", "keep", "code", "said"),
    [
        (ClusterError("the operator ended."), False, 1, "muster demo: the operator ended.\n"),
        (ClusterError("the operator ended."), True, 1, "muster demo: the operator ended.\n"),
        # The log is removed with the cluster.
        (demo.ShowError("simple is Failed"), False, 1, "working: gang scheduler embedded"),
        (KeyboardInterrupt(), False, 130, "muster demo: interrupted\n"),
    ],
    ids=["operator", "operator-kept", "job", "interrupted"],
)
def test_demo_that_ends_early_leaves_nothing(
    error: BaseException,
    keep: bool,
    code: int,
    said: str,
    clusters: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code and stderr name the reason, and the cluster is deleted."""
    plays(monkeypatch, error)
    assert demo.main(keep=keep) == code
    assert said in capsys.readouterr().err
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
