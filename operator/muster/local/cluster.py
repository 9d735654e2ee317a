# SPDX-License-Identifier: Apache-2.0
"""Bring clusters up and down. `up` is whole or not at all; `down` leaves nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import sys
import time
from typing import TYPE_CHECKING

from muster.local import (
    binaries,
    components,
    contents,
    kubeconfig,
    layout,
    locks,
    options,
    processes,
    stages,
)
from muster.local.client import ApiError
from muster.local.handle import (
    LOOPBACK,
    Cluster,
    ClusterError,
    PortTakenError,
    load,
    remove,
    sweep,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from muster.local import pki
    from muster.local.layout import Layout
    from muster.local.options import Options

    Say = Callable[[str], None]

__all__ = ["Cluster", "ClusterError", "down", "find", "free_port", "names", "up"]

# Below the range from which outgoing connections take theirs.
_PORTS = range(20000, 32000)
_PORT_TRIES = 5
_GUARD = "guard"


def up(wanted: Options, say: Say = lambda _: None) -> Cluster:
    """Bring up a cluster and wait until API server, CRDs and nodes are ready.

    One that is up already is answered as it is. The remains of one that was not brought up
    whole, or has lost a component, are removed first. `say` is told of each part that is
    done. ClusterError or binaries.BinariesError if there can be none; nothing is left then.
    """
    files = layout.Layout.of(options.parse_name(wanted.name))
    commands = binaries.find(wanted.kubernetes_version)
    with locks.held(
        files.lock, lambda: say(f"waiting: another start or stop of {files.name}")
    ) as lock:
        running = load(files)
        if running and all(running.pids().values()):
            say(f"{files.name} is up already; `muster local down` first to change it")
            return running
        sweep(files)
        _refuse_to_overwrite(wanted.kubeconfig)
        try:
            return _bring_up(files, wanted, commands, lock, say)
        except BaseException:
            sweep(files)
            files.lock.unlink()
            raise


def down(name: str) -> bool:
    """End a cluster, whole or not, and remove its files; False if there was none."""
    files = layout.Layout.of(options.parse_name(name))
    return remove(files)


def find(name: str) -> Cluster | None:
    """Find the cluster of this name; None if none was brought up whole."""
    return load(layout.Layout.of(options.parse_name(name)))


def names() -> list[str]:
    """Names of all clusters that left files, whole or not."""
    root = layout.state_root()
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.exists() else []


def free_port() -> int:
    """Find a port of the loopback address that nobody holds now; ClusterError if none."""
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                    raise
            else:
                return port
    raise ClusterError("every port of this machine is taken")


def _refuse_to_overwrite(copy: Path | None) -> None:
    if copy and copy.exists() and copy.stat().st_size:
        raise ClusterError(f"{copy} is there already: remove it, or name another file")


class _Stopwatch:
    """Says how long each part took."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._last = time.monotonic()

    def lap(self, part: str) -> None:
        now = time.monotonic()
        self._say(f"{now - self._last:6.1f} s  {part}")
        self._last = now


def _bring_up(
    files: Layout,
    wanted: Options,
    commands: dict[str, list[str]],
    lock: int,
    say: Say,
) -> Cluster:
    watch = _Stopwatch(say)
    files.make()
    if wanted.tied:
        _start_guard(files, lock)
    authority = _authority(files)
    _prepare(files, wanted, commands)
    made = _start_api(Cluster(files, wanted, free_port(), commands), authority, lock)
    watch.lap("API server")
    for component in made.components[2:]:
        made.launch(component, lock)
    try:
        with contextlib.closing(made.client()) as api:
            contents.install(api, wanted, watch.lap, made.check)
    except (ApiError, TimeoutError) as error:
        raise ClusterError(str(error)) from error
    made.save()
    if wanted.kubeconfig:
        kubeconfig.write(wanted.kubeconfig, files.kubeconfig.read_text())
    return made


def _authority(files: Layout) -> pki.Authority:
    from muster.local import pki  # noqa: PLC0415 -- takes long, and nothing else here needs it

    authority = pki.Authority(files.name)
    (files.pki / "ca.crt").write_bytes(authority.certificate)
    authority.server().write(files.pki, "apiserver")
    authority.client(*components.ADMIN).write(files.pki, "admin")
    pki.write_signing_key(files.pki / "service-accounts.key")
    return authority


def _prepare(files: Layout, wanted: Options, commands: dict[str, list[str]]) -> None:
    files.stages.write_text(stages.render(wanted.run_seconds))
    for name, command in commands.items():
        (files.bin / name).symlink_to(command[0])


def _start_api(made: Cluster, authority: pki.Authority, lock: int) -> Cluster:
    made.launch(components.ETCD, lock)
    for _ in range(_PORT_TRIES):
        _write_kubeconfigs(made, authority)
        made.launch(components.API_SERVER, lock)
        try:
            made.wait_ready()
        except PortTakenError:
            made.files.log(components.API_SERVER).unlink()
            made = Cluster(made.files, made.options, free_port(), made.commands)
        else:
            return made
    raise ClusterError(f"each of {_PORT_TRIES} ports was taken before the API server had it")


def _write_kubeconfigs(made: Cluster, authority: pki.Authority) -> None:
    users: dict[Path, tuple[str, ...]] = {made.files.kubeconfig: components.ADMIN}
    users |= {made.files.kubeconfig_of(name): user for name, user in components.USERS.items()}
    for path, user in users.items():
        identity = authority.client(*user)
        text = kubeconfig.document(
            made.files.name, made.server, authority.certificate, user[0], identity
        )
        kubeconfig.write(path, text)


def _start_guard(files: Layout, lock: int) -> None:
    me = processes.of(os.getpid())
    assert me is not None
    processes.start(
        [sys.executable, "-m", "muster.local.guard", files.name, str(me.pid), str(me.birth)],
        cwd=files.home,
        log=files.log(_GUARD),
        record=files.pid(_GUARD),
        lock=lock,
    )
