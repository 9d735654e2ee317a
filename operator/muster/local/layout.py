# SPDX-License-Identifier: Apache-2.0
"""Where a local cluster keeps its files: one folder and one lock file for each name."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def state_root() -> Path:
    """Folder of all local clusters of this user: `$XDG_STATE_HOME/muster/local`."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "muster" / "local"


def cache_root() -> Path:
    """Folder of downloaded and built programs: `$XDG_CACHE_HOME/muster/controlplane`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "muster" / "controlplane"


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one cluster. `home` is all that there is of it, beside `lock`."""

    home: Path

    @classmethod
    def of(cls, name: str) -> Layout:
        """Files of the cluster called `name`; nothing is made yet."""
        return cls(state_root() / name)

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.home.name

    @property
    def lock(self) -> Path:
        """Held by whoever starts or stops this cluster."""
        return self.home.with_name(f"{self.name}.lock")

    @property
    def record(self) -> Path:
        """JSON of what was started; it exists from the moment the cluster was ready."""
        return self.home / "cluster.json"

    @property
    def existing(self) -> Path:
        """JSON of the cluster that was there before; none for a cluster of its own."""
        return self.home / "existing.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.home / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Folder of keys and certificates."""
        return self.home / "pki"

    @property
    def stages(self) -> Path:
        """What kwok does with nodes and pods."""
        return self.home / "stages.yaml"

    @property
    def bin(self) -> Path:
        """Folder of links to the programs, for PATH."""
        return self.home / "bin"

    @property
    def etcd_socket(self) -> Path:
        """Where etcd listens: a socket that only this user can reach, so no port to pick."""
        return self.home / "etcd.sock"

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
