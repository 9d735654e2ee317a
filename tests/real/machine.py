# SPDX-License-Identifier: Apache-2.0
"""What a cluster with real nodes might leave on a machine."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from muster.local import layout
from realnode import cgroups, real

SYSCTLS = (*real._SYSCTLS, "net/ipv4/ip_forward", "net/netfilter/nf_conntrack_max")
FOLDERS = (
    "/var/lib/kubelet",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/log/pods",
    "/var/log/containers",
    "/run/containerd",
    "/run/netns",
    "/run/flannel",
    "/etc/cni",
    "/etc/kubernetes",
    "/opt/cni",
    "/opt/containerd",
    "/usr/libexec/kubernetes",
)
"""Where kubelet, containerd and CNI plugins write unless they are told otherwise."""
PROGRAMS = ("containerd", "kubelet", "kube-proxy", "coredns", "sleep", "pause")


def marks() -> dict[str, set[str]]:
    """Return what there is of each kind, to be compared with later."""
    return {
        "mounts": set(Path("/proc/self/mounts").read_text().splitlines()),
        "links": {name for _, name in socket.if_nameindex()},
        "cgroups": {str(path) for top in cgroups.hierarchies() for path in top.glob("muster-*")},
        "sysctls": {f"{name}={_read(Path('/proc/sys', name))}" for name in SYSCTLS},
        "files": {str(path) for folder in FOLDERS for path in _files(Path(folder))},
        "processes": {one.name for one in Path("/proc").glob("[0-9]*") if _counts(one.name)},
    }


def left(before: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return what there is now and was not `before`, or is not as it was."""
    now = marks()
    found = {kind: sorted(now[kind] - old) for kind, old in before.items() if now[kind] - old}
    if "processes" in found:
        commands = ((pid, _read(Path("/proc", pid, "cmdline"))) for pid in found["processes"])
        found["processes"] = [f"{pid} {command}" for pid, command in commands]
    return found


def _files(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")] if folder.exists() else []


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""


def _counts(pid: str) -> bool:
    """Say whether a process may be one of a cluster's.

    What pods run is in a cgroup, which is there as long as they are; browsers, too, have networks
    of their own. Programs of clusters with their state elsewhere come and go meanwhile.
    """
    name, command = _read(Path("/proc", pid, "comm")), _read(Path("/proc", pid, "cmdline"))
    if "/muster/local/" in command and str(layout.state_root()) not in command:
        return False
    with contextlib.suppress(OSError):
        apart = Path("/proc", pid, "ns/net").readlink() != Path("/proc/self/ns/net").readlink()
        return name.startswith(PROGRAMS if apart else PROGRAMS[:4])
    return False
