# SPDX-License-Identifier: Apache-2.0
"""Bring clusters up and down. `up` is whole or not at all; `down` leaves nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import ipaddress
import itertools
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from muster.kube.certificates import PairFiles, self_signed
from muster.local import binaries, handle, kubeconfig, layout, nodes, options, processes
from muster.local.handle import (
    DOMAIN,
    LOOPBACK,
    NO_EXTRA,
    Cluster,
    ClusterError,
    Extra,
    PortTakenError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from muster.local.layout import Layout
    from muster.local.options import Options

    Say = Callable[[str], None]

__all__ = ["Cluster", "ClusterError", "Extra", "down", "find", "free_port", "names", "up"]

# Below the range from which outgoing connections take theirs.
_PORTS = range(20000, 32000)
_PORT_TRIES = 5
_YEAR = 365 * 24 * 3600.0
_GUARD = "guard"


def up(
    wanted: Options,
    say: Say = lambda _: None,
    extra: Extra = NO_EXTRA,
    *,
    fresh: bool = False,
) -> Cluster:
    """Start a cluster, with what is added to it, and wait until it and its nodes are ready.

    An existing `wanted.kubeconfig` is used without a control plane. A running cluster is returned,
    or refused for `fresh`. Remains of a partial or damaged one are removed first. `say` gets a
    line per finished part. Raises ClusterError, and leaves nothing.
    """
    files = layout.Layout(options.parse_name(wanted.name))
    with layout.held(files.lock, lambda: say(f"waiting: another start or stop of {files.name}")):
        running = find(wanted.name)
        if running and all(running.pids().values()):
            if fresh:
                raise ClusterError(f"there is a kept one: muster local down --name {files.name}")
            known, asked = {running.options.kubeconfig, running.kubeconfig}, wanted.kubeconfig
            if asked and asked.resolve() not in {path.resolve() for path in known if path}:
                raise ClusterError(
                    f"{files.name} is up already, as the cluster {running.server}, without "
                    f"{asked}: `muster local down` first, or give this one a --name"
                )
            say(f"{files.name} is up already; `muster local down` first to change it")
            return running
        _sweep(files, say)
        try:
            return _bring_up(files, wanted, extra, say)
        except BaseException as error:  # an interrupted start leaves nothing either
            try:
                _sweep(files, say)
            except ClusterError as left:
                raise ClusterError(f"{error}\n{left}") from error
            files.lock.unlink()
            raise


def down(name: str, say: Say = lambda _: None) -> bool:
    """End a cluster, even a partial one, and remove its files; False if there was none.

    From an existing cluster only what `up` created is removed. `say` gets what stays and why.
    """
    files = layout.Layout(options.parse_name(name))
    if not files.home.exists() and not files.lock.exists():
        return False
    with layout.held(files.lock):
        there = files.home.exists()
        _sweep(files, say)
        files.lock.unlink()
    return there


def find(name: str) -> Cluster | None:
    """Find the cluster of this name; None if none was brought up whole."""
    found = handle.recorded(layout.Layout(options.parse_name(name)))
    return found if found and found.whole else None


def names() -> list[str]:
    """Names of all clusters that left files, whole or not."""
    root = layout.state_root()
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.exists() else []


def free_port() -> int:
    """Find a port of the loopback address that nobody holds now; ClusterError if none."""
    first = secrets.randbelow(len(_PORTS))
    for port in itertools.chain(_PORTS[first:], _PORTS[:first]):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                    raise
            else:
                return port
    raise ClusterError("every port of this machine is taken")


def _decide(files: Layout, asked: Options, extra: Extra) -> Cluster:
    """Return the cluster to start."""
    from muster.local import contents  # noqa: PLC0415 -- takes a second, and few commands ask

    file = asked.kubeconfig
    if file and file.exists() and file.stat().st_size > 0:
        if extra != NO_EXTRA:
            raise ClusterError(
                f"{file} exists: components can be added only to a new cluster; "
                "name a file that does not exist"
            )
        mark = f"{asked.name}-{secrets.token_hex(3)}"
        wanted = dataclasses.replace(asked, mark=mark, kubeconfig=None)
        made = Cluster(files.home, wanted, 0, {}, contents.look(file))
        return dataclasses.replace(made, commands=binaries.find(None, made.components))
    commands = binaries.find(asked.kubernetes_version)
    wanted = dataclasses.replace(asked, kubeconfig=file and file.absolute())
    if wanted.native_gangs:  # each version has flags of its own for them
        version = binaries.version_of(Path(commands[handle.API_SERVER][0]).parent)
        wanted = dataclasses.replace(wanted, kubernetes_version=version)
    return Cluster(files.home, wanted, free_port(), commands, extra=extra)


def _bring_up(files: Layout, asked: Options, extra: Extra, say: Say) -> Cluster:
    from muster.local import contents  # noqa: PLC0415 -- takes a second, and few commands ask

    made = _decide(files, asked, extra)
    wanted = made.options
    files.make()
    handle.record(made)
    if wanted.tied:
        me = processes.of(os.getpid())
        assert me is not None
        words = (sys.executable, "-m", __name__, files.name, str(me.pid), str(me.birth))
        made.launch(_GUARD, words)
    files.stages.write_text(nodes.render_stages(wanted.run_seconds, wanted.mark))
    for name, command in made.commands.items():
        (files.bin / name).symlink_to(command[0])
    if wanted.data:
        shutil.copytree(wanted.data, files.data)
    if made.existing:
        say(f"{asked.kubeconfig} is there: its cluster {made.server} is used")
    else:
        made = _start_api(made)
        say("API server ready")
    # Its garbage collector looks for new kinds every half minute: it is to begin with the CRDs.
    made.ask(functools.partial(contents.install_crds, made, say))
    for component in made.components[len(made.first) :]:
        made.launch(component)
    made.ask(functools.partial(contents.install, made, say))
    handle.record(made := dataclasses.replace(made, whole=True))
    if wanted.kubeconfig:
        kubeconfig.write(wanted.kubeconfig, files.kubeconfig.read_text())
    return made


def _start_api(made: Cluster) -> Cluster:
    """Start etcd and the API server at a free port; wait until the API server is ready."""
    from muster.local import contents  # noqa: PLC0415 -- takes a second, and few commands ask

    files, known = made.files, {**handle.USERS, **made.extra.users}
    tokens = {name: secrets.token_hex(16) for name in known}
    users = ((tokens[name], *user) for name, user in known.items())
    rows = (f'{token},{user},{user},"{",".join(groups)}"' for token, user, *groups in users)
    kubeconfig.write(files.tokens, "\n".join(rows))
    # Its own default is an RSA key, which takes far longer to sign each connection.
    service = ipaddress.ip_network(handle.SERVICES)[1]
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    hosts = (made.extra.address, str(service), "localhost", *names, f"{names[-1]}.{DOMAIN}")
    pair = self_signed(f"{files.name}@muster", time.time(), _YEAR, hosts=hosts)
    PairFiles(files.certificate, files.key).write(pair)
    for component in made.first[:-1]:
        made.launch(component)
    clients = {files.kubeconfig_of(name): token for name, token in tokens.items()}
    for _ in range(_PORT_TRIES):
        made.launch(handle.API_SERVER)
        for path, token in {files.kubeconfig: tokens[handle.MANAGER], **clients}.items():
            server, inside = (files.name, made.server, files.certificate), path != made.access
            kubeconfig.write(path, kubeconfig.document(*server, token, inside=inside))
        try:
            made.ask(functools.partial(contents.wait_ready, made))
        except PortTakenError:
            files.log(handle.API_SERVER).unlink()
            made = dataclasses.replace(made, port=free_port())
        else:
            return made
    raise ClusterError(f"each of {_PORT_TRIES} ports was taken before the API server had it")


def _guard(name: str, pid: str, birth: str) -> None:
    """Take a cluster down when the process that it is tied to has ended, however it ended."""
    parent = processes.Identity(int(pid), int(birth))
    while processes.wait_gone([parent], seconds=3600):
        pass
    down(name)


def _sweep(files: Layout, say: Say) -> None:
    """End what runs and remove what is there, for the holder of the cluster's lock."""
    made = handle.recorded(files)
    records = (path.stem for path in (files.home / "run").glob("*.pid"))
    found = {name: one for name in records if (one := processes.read(files.pid(name)))}
    guard = found.pop(_GUARD, None)
    # Without grace: etcd's data goes, too.
    processes.stop(found.values(), grace=0)
    if made and made.extra.sweep:
        # What added components leave outside of the folder.
        done = subprocess.run(made.extra.sweep, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ClusterError(f"{shlex.join(made.extra.sweep)}:\n{done.stderr.strip()}")
    if made and made.existing:
        from muster.local import contents  # noqa: PLC0415 -- takes a second, and few commands ask

        contents.clear(made.existing, made.options.mark, say)
    copy = made.options.kubeconfig if made else None
    with contextlib.suppress(FileNotFoundError):
        if copy and copy.read_bytes() == files.kubeconfig.read_bytes():
            copy.unlink()
    if files.home.exists():
        # The guard goes on where this process is killed: it ends last, and its record after it.
        for part in files.home.iterdir():
            if part.is_dir() and part != files.pid(_GUARD).parent:
                shutil.rmtree(part)
        if guard and guard.pid != os.getpid():
            processes.stop([guard], grace=0)
        shutil.rmtree(files.home)


if __name__ == "__main__":  # in a session of its own, before the first component starts
    _guard(*sys.argv[1:])
