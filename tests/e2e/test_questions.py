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
from support.e2e.harness import Api, Operator, add_nodes, tfjob, verdict

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


def test_a_gang_that_waits_explains_itself(api: Api, operator: Operator, ask: Ask) -> None:
    """What is short, which nodes are out, who holds it; placed and impossible told apart (S21)."""
    add_nodes(api, {"cpu": "4"})
    api.create(tfjob("first", workers=3, run="forever"))
    api.wait_pods(3, "Running", "first")
    api.create(tfjob("second", workers=4, run="forever"))
    wait_reason(api, "second", "NotEnoughResources")
    where = ("-n", api.namespace)
    code, text = ask("explain", "tfjob/second", *where)
    assert code == 1
    lines = text.splitlines()
    assert lines[0].endswith("/second: waiting: NotEnoughResources")
    assert "  lacks 3 cpu for the whole gang" in lines
    assert "  position 1 in queue default" in lines
    assert f"  {verdict(api.get('TFJob', 'second'))['message']}" in lines
    code, text = ask("explain", "--what-if", "tfjob/second", *where)
    assert code == 1
    lines = text.splitlines()
    assert lines[0].endswith("/second: waiting, not now: NotEnoughResources")
    assert "  1 of 1 nodes: insufficient cpu" in lines
    assert f"  3 cpu held by TFJob/{api.namespace}/first" in lines
    code, text = ask("explain", "TFJob/first", *where)
    assert code == 0
    # Without leader election it is unknown whether the operator runs.
    first, placed, reported = text.splitlines()
    assert first.endswith("/first: running, 3 pods on nodes")
    assert placed == "  node-1: first-worker-0, first-worker-1, first-worker-2"
    assert reported.startswith("  reported: 20")
    code, text = ask("explain", "tfjob/nobody", *where)
    assert code == 2
    api.create(tfjob("huge", workers=1, resources={"cpu": "9"}))
    wait_reason(api, "huge", "NoNodeLargeEnough")
    code, text = ask("explain", "tfjob/huge", *where)
    assert code == 1
    assert "impossible as things are: NoNodeLargeEnough" in text


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
