# SPDX-License-Identifier: Apache-2.0
"""What real nodes need is named before anything is touched; what they run is put together here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from muster.local import binaries, cluster, handle, layout, nodes, options, processes
from realnode import cgroups, real


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> layout.Layout:
    """Give the files of a cluster, with processes that hold its namespaces."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = layout.Layout("x")
    made.make()
    (made.home / "nodes").mkdir()
    me = processes.of(os.getpid())
    assert me
    for holder in ("network", "mounts-1", "mounts-2"):
        made.pid(holder).write_text(f"{me.pid} {me.birth}")
        (made.home / "nodes" / f"{holder}-ready-{me.pid}").touch()
    return made


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the programs as if they were built, each from sources that exist."""
    monkeypatch.setattr(binaries, "build", lambda what: binaries.build_folder(what=what))


@pytest.fixture
def two(files: layout.Layout, built: None) -> handle.Extra:
    """Give what is added to a cluster with two real nodes."""
    return real.extra(files, 2)


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give a machine that has all that is needed; nothing is tried out."""
    for name in real._NEEDED_PLUGINS:
        (tmp_path / name).touch()
    top = tmp_path / "cpu,cpuset,memory,pids"
    top.mkdir()
    monkeypatch.setattr(real, "_PLUGINS", (str(tmp_path),))
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [top])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    return top


def refusal(home: Path = Path("/home")) -> str:
    """Return why there can be no real node."""
    with pytest.raises(real.RealNodeError) as refused:
        real.require(home)
    return str(refused.value)


@pytest.mark.usefixtures("complete")
def test_a_machine_that_has_all_is_taken() -> None:
    """Nothing is raised."""
    real.require(Path("/home"))


@pytest.mark.usefixtures("complete")
def test_without_root_it_is_said_and_something_else_is_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else is looked for: it would seem to be missing."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    said = refusal()
    assert "they need root: run this command by sudo" in said
    assert "kind create cluster --kubeconfig FILE" in said
    assert "apt-get" not in said


@pytest.mark.usefixtures("complete")
def test_all_missing_packages_are_named_in_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """To be copied into a shell; two programs of one package name it once."""
    monkeypatch.setattr(shutil, "which", lambda name: None if name in {"nft", "ctr"} else "/x")
    monkeypatch.setattr(real, "_PLUGINS", ("/no/such",))
    wanted = "apt-get install --no-install-recommends containerd containernetworking-plugins nftab"
    assert wanted in refusal()


def test_an_up_that_is_refused_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is the very first thing that is asked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(real.RealNodeError, match="need root"):
        real.up(options.Options(name="x"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.fixture
def asked(
    monkeypatch: pytest.MonkeyPatch, complete: Path, files: layout.Layout, built: None
) -> list[tuple[options.Options, handle.Extra]]:
    """Collect what `cluster.up` is called with, on a machine that can have real nodes."""
    calls: list[tuple[options.Options, handle.Extra]] = []
    monkeypatch.setattr(real, "_HIDDEN", ())
    monkeypatch.setattr(cluster, "up", lambda wanted, _say, extra: calls.append((wanted, extra)))
    return calls


def test_a_cluster_with_real_nodes_has_simulated_ones_only_when_asked(
    asked: list[tuple[options.Options, handle.Extra]],
) -> None:
    """Simulated nodes have a taint, so that pods run on the real ones."""
    real.up(options.Options(name="x"))
    real.up(
        options.Options(name="x", nodes=1, taints=({"key": "a", "value": "b", "effect": "c"},)), 2
    )
    (alone, one), (mixed, two) = asked
    assert (alone.count, alone.kwok, one.nodes) == (0, False, 1)
    assert (mixed.count, mixed.kwok, two.nodes) == (1, True, 2)
    node = nodes.document(0, mixed, "v1", "")
    assert node["spec"]["taints"] == [nodes.KEEP_OFF, {"key": "a", "value": "b", "effect": "c"}]


def test_kubelets_ask_who_comes_and_whether_they_may(
    files: layout.Layout, two: handle.Extra
) -> None:
    """Nobody without a name is let in; each node is known as itself."""
    config = json.loads(json.dumps(real._kubelet(files, 1)))
    assert config["authentication"]["anonymous"]["enabled"] is False
    assert config["authorization"]["mode"] == "Webhook"
    assert config["cgroupRoot"] == f"/{real.group(files)}/real-2"
    assert two.users["kubelet-2"] == ("system:node:real-2", "system:nodes")


def test_what_is_left_in_groups_is_ended_and_the_groups_removed(
    files: layout.Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers outlive whoever started them."""
    tree = tmp_path / real.group(files) / "real-1" / "pod"
    tree.mkdir(parents=True)
    with subprocess.Popen(["/bin/sleep", "100"]) as left:
        (tree / "cgroup.procs").write_text(f"{left.pid}\n")
        assert cgroups.killed(tree.parent) == [left.pid]
        assert left.wait() == -9
    (tree / "cgroup.procs").unlink()
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [tmp_path])
    real.sweep(files)
    assert not tree.parent.parent.exists()
    real.sweep(files)  # nothing is there
