# SPDX-License-Identifier: Apache-2.0
"""What the files of a cluster say of it, and its end."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from typing import TYPE_CHECKING

from muster.local import clearing, existing, locks, options, processes
from muster.local.handle import Cluster, ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from muster.local.layout import Layout

    Say = Callable[[str], None]


def load(files: Layout) -> Cluster | None:
    """Read the cluster recorded in `files`; None if none was brought up whole."""
    try:
        record = json.loads(files.record.read_text())
        asked = options.restore(record["options"])
        there = existing.load(files)
        return Cluster(files, asked, record["port"], record["commands"], there)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def remove(files: Layout, say: Say, *, forget: bool = False) -> bool:
    """End a cluster, whole or not, and remove its files; False if there was none.

    Of one that was there before, only what was put there is removed, or, to `forget` it,
    nothing. ClusterError if it cannot be reached; all stays as it is then.
    """
    if not files.home.exists() and not files.lock.exists():
        return False
    with locks.held(files.lock):
        there = files.home.exists()
        sweep(files, say, forget=forget)
        files.lock.unlink()
    return there


def sweep(files: Layout, say: Say, *, forget: bool = False) -> None:
    """End what runs and remove what is there, for the holder of the cluster's lock."""
    there = existing.load(files)
    reached = existing.reach(there, files, say) if there and not forget else None
    records = (files.home / "run").glob("*.pid")
    found = [one for path in records if (one := processes.read(path))]
    processes.stop([one for one in found if one.pid != os.getpid()], grace=0)
    if there and reached:
        ask(reached, functools.partial(clearing.clear, there, say))
    running = load(files)
    if running and running.options.kubeconfig:
        _remove_copy(running.options.kubeconfig, files.kubeconfig)
    if files.home.exists():
        shutil.rmtree(files.home)


def _remove_copy(copy: Path, original: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if copy.read_bytes() == original.read_bytes():
            copy.unlink()
