# SPDX-License-Identifier: Apache-2.0
"""The machine's cgroups, of version 1, or 2, or of both side by side: made, emptied, removed."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

NEEDED: Final = ("cpu", "cpuset", "memory", "pids")
"""Controllers that kubelet cannot do without."""
ROOT: Final = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """Find the roots of the hierarchies."""
    rows = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(folder) for folder, kind in rows if kind in {"cgroup", "cgroup2"}]


def _controllers(folder: Path) -> list[str]:
    offered = folder / "cgroup.controllers"
    return offered.read_text().split() if offered.exists() else folder.name.split(",")


def lacking() -> list[str]:
    """Say what this process cannot have of them, if anything."""
    found = {name for folder in hierarchies() for name in _controllers(folder)}
    lost = [name for name in NEEDED if name not in found]
    if lost:
        return [f"the kernel offers no cgroup controllers {', '.join(lost)} below {ROOT}"]
    closed = [str(folder) for folder in hierarchies() if not os.access(folder, os.W_OK)]
    return [f"cgroups cannot be made in {', '.join(closed)}"] if closed else []


def make(top: Path, made: Path) -> None:
    """Make a group and those above it, below the root of a hierarchy, fit for containers."""
    made.mkdir(parents=True)
    for parent in (top, *made.relative_to(top).parents[-2::-1]):
        offered = top / parent / "cgroup.controllers"
        if offered.exists():  # version 2: a parent says what its children can use
            given = " ".join(f"+{name}" for name in offered.read_text().split())
            (top / parent / "cgroup.subtree_control").write_text(given)
        elif "cpuset" in top.name.split(","):  # version 1: a new group has none, and takes nobody
            inherit(top / parent)
    if "cpuset" in top.name.split(","):
        inherit(made)


def inherit(made: Path) -> None:
    """Give a group of version 1 the CPUs and the memory of the one above, if it has none."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not (made / name).read_text().strip():
            (made / name).write_text((made.parent / name).read_text())


def killed(tree: Path) -> list[int]:
    """Kill all that is in a group or below it; return who was there."""
    found = [pid for folder in _below(tree) for pid in _members(folder)]
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _members(folder: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    return []


def _below(tree: Path) -> Iterator[Path]:
    """Walk the groups of a tree, the inner ones first."""
    for place, _, _ in os.walk(tree, topdown=False):
        yield Path(place)


def removed(tree: Path) -> bool:
    """Remove a group and all below it; say whether nothing is left."""
    for place in _below(tree):
        with contextlib.suppress(OSError):  # busy while the kernel buries the last process
            place.rmdir()
    return not tree.exists()
