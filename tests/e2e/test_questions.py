# SPDX-License-Identifier: Apache-2.0
"""`muster explain`, `simulate`, `snapshot`, and /debug/decisions, live and on a file."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from support.e2e import forkserver
from support.e2e.gangs import wait_reason
from support.e2e.harness import Api, Operator, add_nodes, tfjob

pytestmark = pytest.mark.e2e


Run = Callable[..., subprocess.CompletedProcess[str]]
Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def run(api: Api, tmp_path: Path) -> Run:
    """Give what runs muster commands on the cluster."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = forkserver.run(words, tmp_path, api.cluster.env())
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def ask(run: Run) -> Ask:
    """Give what returns a muster command's exit code, and what it printed."""

    def ask(*words: str) -> tuple[int, str]:
        done = run(*words)
        return done.returncode, done.stdout or done.stderr

    return ask


@pytest.mark.full
def test_what_the_allocator_saw_decides_the_same_again(
    api: Api, operator: Operator, ask: Ask, tmp_path: Path
) -> None:
    """Its snapshot is replayed byte for byte; its decisions can be read."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("first", workers=3, run="forever"))
    api.wait_pods(3, "Running", "first")
    api.create(tfjob("second", workers=4, run="forever"))
    wait_reason(api, "second", "NotEnoughResources")
    address = f"http://127.0.0.1:{operator.debug}"
    code, text = ask("snapshot", "--from", address)
    assert code == 0
    saved = tmp_path / "saw.json"
    saved.write_text(text)
    code, text = ask("simulate", "--replay", str(saved))
    assert code == 0
    told = json.loads(text)
    assert told == json.loads(saved.read_text())["decided"]
    assert [d["gang"] for d in told] == [f"TFJob/{api.namespace}/second"]
    changed = saved.read_text().replace('"NotEnoughResources"', '"Fragmented"')
    saved.write_text(changed)
    assert ask("simulate", "--replay", str(saved))[0] == 1

    query = f"?gang=TFJob/{api.namespace}/first"
    with urllib.request.urlopen(f"{address}/debug/decisions{query}") as answer:
        (decision, *_) = json.loads(answer.read())
    assert [(p["pod"], p["node"]) for p in decision["placements"]] == [
        (f"first-worker-{index}", "node-1") for index in range(3)
    ]
