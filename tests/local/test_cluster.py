# SPDX-License-Identifier: Apache-2.0
"""How a cluster is removed, with what was added to it; its real start is in test_cluster_e2e."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from muster.local import cluster, handle, layout, options, processes


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> layout.Layout:
    """Give the files of a cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = layout.Layout("x")
    made.make()
    return made


def recorded(files: layout.Layout, extra: handle.Extra, *, whole: bool = False) -> None:
    """Record a cluster with what was added to it."""
    asked = options.Options(name="x")
    handle.record(handle.Cluster(files.home, asked, 1, {}, extra=extra, whole=whole))


def test_the_guard_outlives_what_it_guards(
    files: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on where a process is killed that takes the cluster down."""
    for name in ("guard", "etcd"):
        record = files.pid(name)
        processes.start(["sleep", "600"], cwd=files.home, log=files.log(name), record=record)
    guard, other = (processes.read(files.pid(name)) for name in ("guard", "etcd"))
    removed = shutil.rmtree
    seen: dict[str, tuple[bool, ...]] = {}

    def remove(folder: Path) -> None:
        there = files.pid("guard").exists()
        seen[folder.name] = (processes.alive(guard), processes.alive(other), there)
        removed(folder)

    monkeypatch.setattr(shutil, "rmtree", remove)
    assert cluster.down("x")
    whole = seen.pop("x")
    assert whole == (False, False, True)
    assert set(seen.values()) == {(True, False, True)}


def test_down_runs_the_recorded_sweep(files: layout.Layout, tmp_path: Path) -> None:
    """A cluster that was only half started is swept as well."""
    outside = tmp_path / "outside"
    outside.touch()
    recorded(files, handle.Extra(sweep=("rm", str(outside))))
    assert cluster.find("x") is None
    assert cluster.down("x")
    assert not outside.exists()
    assert not files.home.exists()


def test_down_with_a_failed_sweep_keeps_the_files(files: layout.Layout, tmp_path: Path) -> None:
    """The error has the output of the command, and the next down runs it again."""
    outside = tmp_path / "outside"
    recorded(files, handle.Extra(sweep=("rm", str(outside))))
    with pytest.raises(cluster.ClusterError, match="No such file"):
        cluster.down("x")
    assert files.record.exists()
    outside.touch()
    assert cluster.down("x")
    assert not files.home.exists()


def test_a_found_cluster_has_what_was_added(files: layout.Layout) -> None:
    """Another process can start the components again."""
    extra = handle.Extra(
        components={"added": ("run", "it")},
        users={"added": ("system:node:a", "system:nodes")},
        address="198.18.64.1",
        inside=("enter",),
        flags=("--more",),
        sweep=("sweep",),
    )
    recorded(files, extra, whole=True)
    found = cluster.find("x")
    assert found
    assert found.extra == extra
    assert found.server == "https://198.18.64.1:1"
    assert found.components[-1] == "added"


def test_components_are_added_only_to_a_new_cluster(tmp_path: Path, files: layout.Layout) -> None:
    """The cluster of a kubeconfig that exists stays as it is."""
    there = tmp_path / "config"
    there.write_text("{}")
    asked = options.Options(name="x", kubeconfig=there)
    with pytest.raises(cluster.ClusterError, match="only to a new cluster"):
        cluster.up(asked, extra=handle.Extra(components={"added": ("run",)}))
    assert not files.home.exists()


@pytest.mark.parametrize(
    ("component", "words"), [("etcd", ["in", "/bin/etcd"]), ("more", ["run"])]
)
def test_a_component_is_started_by_its_own_command_line(
    component: str, words: list[str], files: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words of `inside` precede those of the control plane, but not of what was added."""
    extra = handle.Extra(components={"more": ("run",)}, inside=("in",))
    started: list[list[str]] = []
    monkeypatch.setattr(processes, "start", lambda argv, **_: started.append(argv))
    commands = {"etcd": ["/bin/etcd"]}
    made = handle.Cluster(files.home, options.Options(name="x"), 1, commands, extra=extra)
    made.start(component)
    assert started[0][: len(words)] == words


def test_down_of_an_own_cluster_does_not_load_the_client(files: layout.Layout) -> None:
    """The import of the API client takes most of a second, and the command sends no request."""
    code = "import sys; from muster.local import cluster; cluster.down('x'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not files.home.exists()
    assert "muster.kube.client" not in done.stdout.split()
