# SPDX-License-Identifier: Apache-2.0
"""What these stories take for a kubelet and a DNS does as the real ones do."""

from __future__ import annotations

import pytest

from support.apiserver.memory import of_kind
from support.builders.mpijobs import world
from support.e2e import kubelet


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(A)", "1"),
        ("x$(A)$(A)y", "x11y"),
        ("$(B)", "$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A $ $(", "$A $ $("),
        ('{"cluster":$(A),"x":"$"}', '{"cluster":1,"x":"$"}'),
    ],
)
def test_references_to_variables(text, value) -> None:
    """Known names are replaced, unknown ones stay, two dollars are one."""
    assert kubelet.expanded(text, {"A": "1"}) == value


def test_only_earlier_variables_are_known() -> None:
    """In the order of the list; the last of a name wins; a missing value is empty."""
    entries = [
        {"name": "A", "value": "$(B)"},
        {"name": "B", "value": "1"},
        {"name": "A", "value": "$(B)2"},
        {"name": "C"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    pod = {"metadata": {"name": "p", "namespace": "team"}}
    found = kubelet.environment([], pod, {"env": entries}, "127.0.0.9")
    assert found == {"A": "12", "B": "1", "C": "", "IP": "127.0.0.9"}


def test_a_name_for_each_service_of_a_pod(tmp_path) -> None:
    """Short, with the namespace, and whole; all lead to the one pod that is selected."""
    pods = kubelet.start(kubelet.documents(of_kind("JAXJob", Worker=2)), tmp_path)
    first, second = pods.values()
    assert first.names == second.names
    for name in (
        "mnist-worker-1",
        "mnist-worker-1.team.svc",
        "mnist-worker-1.team.svc.cluster.local",
    ):
        assert first.names[name] == second.ip != first.ip
    assert "mnist-worker-2" not in first.names


def test_a_name_for_each_host_of_a_subdomain(tmp_path) -> None:
    """Where one service has many pods, each is found by its host name below it."""
    made = world("v2beta1", workers=2)
    pods = kubelet.start(list(made.objects.values()), tmp_path)
    names = pods["mnist-launcher"].names
    assert names["mnist-worker-1.mnist.team.svc"] == pods["mnist-worker-1"].ip
    assert names["mnist-launcher.mnist"] == pods["mnist-launcher"].ip
    assert "mnist" not in names


def test_files_have_their_modes_and_know_where_they_lie(tmp_path) -> None:
    """What a volume lists is there, no more; paths of mounts are this machine's."""
    made = world("v1", workers=1)
    pods = kubelet.start(list(made.objects.values()), tmp_path)
    launcher, worker = pods["mnist-launcher"], pods["mnist-worker-0"]
    folder = launcher.root / "etc" / "mpi"
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert modes == {"hostfile": 0o444, "kubexec.sh": 0o555, "discover_hosts.sh": 0o555}
    assert launcher.env["OMPI_MCA_orte_default_hostfile"] == str(folder / "hostfile")
    assert f"\n{launcher.root}/opt/kube/kubectl exec" in (folder / "kubexec.sh").read_text()
    assert [file.name for file in (worker.root / "etc" / "mpi").iterdir()] == ["kubexec.sh"]
