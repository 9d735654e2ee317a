# SPDX-License-Identifier: Apache-2.0
"""Where a local cluster keeps its files: one folder and one lock file for each name."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def state_root() -> Path:
    """Folder of all local clusters of this user: `$XDG_STATE_HOME/muster/local`."""
    return _base("XDG_STATE_HOME", ".local/state") / "local"


def cache_root() -> Path:
    """Folder of downloaded and built programs: `$XDG_CACHE_HOME/muster/controlplane`."""
    return _base("XDG_CACHE_HOME", ".cache") / "controlplane"


def _base(variable: str, default: str) -> Path:
    """Read a variable of the XDG specification, by which relative paths are ignored."""
    named = Path(os.environ.get(variable, ""))
    try:
        return (named if named.is_absolute() else Path.home() / default) / "muster"
    except RuntimeError as error:
        raise OSError(f"this user has no home directory: set HOME or {variable}") from error


class Layout:
    """The files of one cluster, by its name or its folder; nothing is made yet."""

    def __init__(self, name: str | Path) -> None:
        self.home = state_root() / name
        """All that there is of it, beside `lock`."""
        self.name = self.home.name
        self.lock = self.home.with_name(f"{self.name}.lock")
        """Held by whoever starts or stops this cluster."""
        self.record = self.home / "cluster.json"
        """The cluster, from its start on."""
        self.kubeconfig = self.home / "kubeconfig"
        """The administrator's."""
        self.certificate = self.home / "pki" / "apiserver.crt"
        self.key = self.certificate.with_suffix(".key")
        """The API server's."""
        self.tokens = self.home / "tokens.csv"
        """By which the API server knows its users."""
        self.data = self.home / "etcd"
        """Etcd's."""
        self.stages = self.home / "stages.yaml"
        """What kwok does with nodes and pods."""
        self.bin = self.home / "bin"
        """Folder of links to the programs, for PATH."""

    def log(self, component: str) -> Path:
        """Output of a component."""
        return self.home / "logs" / f"{component}.log"

    def pid(self, component: str) -> Path:
        """Identity of a component's process, written by that process itself."""
        return self.home / "run" / f"{component}.pid"

    def kubeconfig_of(self, component: str) -> Path:
        """How a component reaches the API server, as itself."""
        return self.home / "kubeconfigs" / component

    def make(self) -> None:
        """Create the folders; only the user may look inside."""
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in ("logs", "run", "pki", "kubeconfigs", "bin"):
            (self.home / folder).mkdir(exist_ok=True)


@contextlib.contextmanager
def held(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock at `path` while the body runs. Calls `waiting` if it is not free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A file that its holder has removed is not the lock any more: FileLock takes the new one.
    lock = filelock.FileLock(path, mode=0o600)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
