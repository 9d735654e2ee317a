# SPDX-License-Identifier: Apache-2.0
"""The flags that components are started with, and whose kubectl speaks to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.local import handle, layout, options

GATED = (handle.API_SERVER, handle.CONTROLLER_MANAGER, handle.SCHEDULER)


def flags(
    component: str, extra: handle.Extra = handle.NO_EXTRA, **asked: object
) -> dict[str, str]:
    """Return flag -> value of a component."""
    wanted = options.Options(**asked)  # type: ignore[arg-type]
    given = made(wanted, extra).command(component)
    return dict(flag.partition("=")[::2] for flag in given)


def made(wanted: options.Options, extra: handle.Extra = handle.NO_EXTRA) -> handle.Cluster:
    """Return a cluster of these options."""
    programs = {name: [name] for name in handle.SERVERS}
    return handle.Cluster(layout.Layout("x").home, wanted, 6443, programs, extra=extra)


@pytest.mark.parametrize(
    ("version", "api", "gates"),
    [
        ("1.37.1", "v1beta1", "GenericWorkload=true"),
        ("1.40.0", "v1beta1", "GenericWorkload=true"),
        (
            "1.36.3",
            "v1alpha2",
            "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true",
        ),
    ],
)
def test_native_gangs_are_switched_on_as_the_version_has_them(
    version: str, api: str, gates: str
) -> None:
    """An API server refuses to start with a gate or an API that it does not know."""
    asked = {"native_gangs": True, "kubernetes_version": version}
    assert {flags(name, **asked)["--feature-gates"] for name in GATED} == {gates}
    config = flags(handle.API_SERVER, **asked)["--runtime-config"]
    assert config == f"scheduling.k8s.io/{api}=true"


def test_without_native_gangs_no_gate_is_touched() -> None:
    """What is tested is what clusters are by default."""
    for name in handle.SERVERS:
        assert not {"--feature-gates", "--runtime-config"} & flags(name).keys()


NODE = handle.Extra(
    components={"network": ("a",), "kubelet": ("b",)},
    users={"kubelet": ("system:node:one", "system:nodes")},
    address="198.18.64.1",
    flags=("--more=1",),
)


def test_added_components_start_before_the_control_plane_or_as_its_users_after_it() -> None:
    """A component that is a user of the API server needs one that is ready."""
    asked = options.Options()
    assert made(asked).components == handle.SERVERS
    assert made(asked, NODE).components == ("network", *handle.SERVERS, "kubelet")


def test_the_api_server_listens_at_the_added_address() -> None:
    """At the loopback address no pod reaches it, so no service has that as an endpoint."""
    alone = flags(handle.API_SERVER)
    assert alone["--bind-address"] == "127.0.0.1"
    assert alone["--endpoint-reconciler-type"] == "none"
    added = flags(handle.API_SERVER, NODE)
    assert (added["--bind-address"], added["--more"]) == ("198.18.64.1", "1")
    assert "--endpoint-reconciler-type" not in added


def test_nodes_are_watched_only_if_a_process_renews_their_leases() -> None:
    """Without kwok and kubelets all nodes stay ready."""
    controllers = [
        flags(handle.CONTROLLER_MANAGER, extra, kwok=False)["--controllers"]
        for extra in (handle.NO_EXTRA, NODE)
    ]
    assert controllers == ["*,-node-lifecycle-controller", "*"]
    assert (handle.NO_EXTRA.nodes, NODE.nodes) == (0, 1)


def test_the_controller_manager_makes_no_folder_of_the_machine() -> None:
    """Its default is below /usr, and stays there for good."""
    folder = flags(handle.CONTROLLER_MANAGER)["--flex-volume-plugin-dir"]
    assert folder.startswith(f"{layout.Layout('x').home}/")


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> handle.Cluster:
    """Give a cluster of which there are only folders."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    made = handle.Cluster(layout.Layout("x").home, options.Options(name="x"), 0, {})
    made.files.make()
    return made


def test_a_cluster_without_a_kubectl_is_asked_by_the_user_s(
    found: handle.Cluster, tmp_path: Path
) -> None:
    """One that was there before brings none; that of a cluster of ours comes first."""
    with pytest.raises(handle.ClusterError, match="kubectl is missing: install it"):
        found.kubectl("version")
    for folder in (tmp_path, found.files.bin):
        program = folder / "kubectl"
        program.write_text('#!/bin/sh\necho "$0 $*, $KUBECONFIG"\n')
        program.chmod(0o755)
        said = found.kubectl("get", "pods")
        assert said == f"{program} get pods, {found.kubeconfig}\n"
