# SPDX-License-Identifier: Apache-2.0
"""What real nodes need is named before anything is touched; what they run is put together here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from muster.local import cgroups, cluster, handle, layout, nodes, options, processes, real

TWO = options.Options(name="x", real_nodes=2)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> layout.Layout:
    """Give the files of a cluster, with processes that hold its namespaces."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = layout.Layout("x")
    made.make()
    me = processes.of(os.getpid())
    assert me
    for holder in ("network", "mounts-1", "mounts-2"):
        made.pid(holder).write_text(f"{me.pid} {me.birth}")
    return made


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


def test_missing_cgroup_controllers_are_named(
    complete: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that was given none."""
    monkeypatch.setattr(cgroups, "hierarchies", lambda: [complete.with_name("cpu,cpuset")])
    assert "no cgroup controllers memory, pids" in refusal()


@pytest.mark.usefixtures("complete")
def test_what_the_kernel_lacks_is_named_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each feature is tried out in namespaces of its own."""

    def tried(argv: Any, **_: object) -> subprocess.CompletedProcess[str]:
        failed = "veth" in argv[-1]
        return subprocess.CompletedProcess(argv, failed, "", "Error: Unknown device type.\n")

    monkeypatch.setattr(subprocess, "run", tried)
    said = refusal()
    assert "the kernel lacks virtual network pairs (veth) (Error: Unknown device type.)" in said
    assert said.count("the kernel lacks") == 1


@pytest.mark.usefixtures("complete")
def test_a_state_folder_that_nodes_would_hide_is_refused() -> None:
    """They mount their own folders there."""
    said = refusal(Path("/var/lib/states/x"))
    assert "is below /var/lib: set XDG_STATE_HOME" in said


def test_an_up_that_is_refused_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is the very first thing that is asked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(real.RealNodeError, match="need root"):
        cluster.up(options.Options(name="x", real_nodes=1))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_network_is_started_first_and_each_kubelet_after_its_containerd() -> None:
    """The order of the components is that of their start; kwok is not there for nothing."""
    started = handle.wanted(TWO)
    assert started[:3] == ("network", "etcd", "kube-apiserver")
    assert "kwok" not in started
    for number in (1, 2):
        order = [started.index(f"{what}-{number}") for what in ("mounts", "containerd", "kubelet")]
        assert order == sorted(order)
    beside = options.Options(name="x", real_nodes=1, nodes=1)
    assert "kwok" in handle.wanted(beside)
    assert handle.wanted(options.Options(name="x")) == handle.SERVERS


def test_a_component_that_is_started_again_waits_for_what_it_needs(
    files: layout.Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first time: a kubelet ends where its containerd does not answer yet."""
    steps: list[str] = []
    monkeypatch.setattr(real, "await_needs", lambda name, _: steps.append(f"needs of {name}"))
    monkeypatch.setattr(processes, "start", lambda *_, **__: steps.append("start"))
    cluster.Cluster(files, TWO, 1, {"kubelet": ["kubelet"]}).start("kubelet-2")
    assert steps == ["needs of kubelet-2", "start"]


def test_clusters_have_addresses_and_groups_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By folder: two users, or two tests, may call theirs the same."""
    seen = set()
    for number in range(20):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / str(number)))
        files = layout.Layout("x")
        address = real.address(files)
        seen.add((address, real.group(files)))
        assert address.startswith("198.18.")
        assert len(real._link(files)) < 16
    assert len(seen) == 20


def test_the_api_server_listens_on_the_link_alone(files: layout.Layout) -> None:
    """And knows itself to kubelets by a certificate."""
    flags = handle.arguments(handle.API_SERVER, files, TWO, 6443)
    assert f"--bind-address={real.address(files)}" in flags
    assert f"--kubelet-client-certificate={real.client(files)[0]}" in flags
    assert "--endpoint-reconciler-type=none" not in flags
    alone = handle.arguments(handle.API_SERVER, files, options.Options(name="x"), 6443)
    assert "--bind-address=127.0.0.1" in alone
    assert "--endpoint-reconciler-type=none" in alone


def test_the_controller_manager_makes_no_folder_of_the_machine(files: layout.Layout) -> None:
    """Its default is below /usr, and stays there for good."""
    flags = handle.arguments(handle.CONTROLLER_MANAGER, files, options.Options(name="x"), 1)
    (folder,) = [flag for flag in flags if flag.startswith("--flex-volume-plugin-dir=")]
    assert folder.partition("=")[2].startswith(f"{files.home}/")


def test_components_run_where_they_belong(files: layout.Layout) -> None:
    """The network for all, a view of the files for what belongs to a node."""
    commands = {name: [f"/bin/{name}"] for name in real.PROGRAMS}
    dns = real.command(real.COREDNS, files, commands)
    assert dns[:3] == ["nsenter", f"--net=/proc/{os.getpid()}/ns/net", "--"]
    kubelet = real.command("kubelet-2", files, commands)
    assert f"--mount=/proc/{os.getpid()}/ns/mnt" in kubelet
    assert "--hostname-override=real-2" in kubelet
    assert any(word.endswith("/real-2/system") for word in kubelet)


def test_a_network_that_has_ended_is_said(files: layout.Layout) -> None:
    """Nothing could be started in it."""
    files.pid("network").unlink()
    with pytest.raises(real.RealNodeError, match="network of x has ended"):
        real.inside(files)


def test_kubelets_ask_who_comes_and_whether_they_may(files: layout.Layout) -> None:
    """Nobody without a name is let in; each node is known as itself."""
    config = json.loads(json.dumps(real._kubelet(files, 1)))
    assert config["authentication"]["anonymous"]["enabled"] is False
    assert config["authorization"]["mode"] == "Webhook"
    assert config["cgroupRoot"] == f"/{real.group(files)}/real-2"
    known = handle.users(TWO)
    assert known["kubelet-2"] == ("system:node:real-2", "system:nodes")
    assert handle.users(options.Options()) == handle.USERS


def test_the_image_of_a_sandbox_is_one_program(files: layout.Layout, tmp_path: Path) -> None:
    """As `docker load` and containerd read it."""
    (files.home / "nodes").mkdir()
    program = tmp_path / "program"
    program.write_text("pause")
    with tarfile.open(real.pause_image(files, str(program))) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        layer = archive.extractfile(manifest[0]["Layers"][0])
        assert layer
        with tarfile.open(fileobj=layer) as inner:
            assert inner.getnames() == ["pause"]


def test_a_new_cpuset_takes_its_parents_processors(tmp_path: Path) -> None:
    """Version 1 makes groups without any, which nobody may enter."""
    made = tmp_path / "inner"
    made.mkdir()
    for name, folder, text in (
        ("cpuset.cpus", tmp_path, "0-1\n"),
        ("cpuset.mems", tmp_path, "0\n"),
        ("cpuset.cpus", made, "\n"),
        ("cpuset.mems", made, "\n"),
    ):
        (folder / name).write_text(text)
    cgroups.inherit(made)
    assert (made / "cpuset.cpus").read_text() == "0-1\n"


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


def test_the_guard_outlives_what_it_guards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on where a process is killed that takes the cluster down."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    files = layout.Layout("x")
    files.make()
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


def test_simulated_nodes_keep_off_pods_that_want_to_run() -> None:
    """Beside real ones only."""
    one = nodes.document(0, options.Options(nodes=1, real_nodes=1), "v1", "")
    assert one["spec"]["taints"] == [nodes.KEEP_OFF]
    assert "taints" not in nodes.document(0, options.Options(nodes=1), "v1", "")["spec"]
