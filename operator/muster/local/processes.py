# SPDX-License-Identifier: Apache-2.0
"""Processes that outlive their starter, known by pid *and* time of birth.

A pid alone may belong to a stranger by the time it is used; the pair never does. Each
process writes its own record before it becomes the component, so that no starter, killed
at whatever moment, leaves one unrecorded.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Standard input is the starter's lock until the record is written: whoever gets the lock
# after a killed starter therefore sees the records of all that it started.
_BECOME = 'cd "$1" && echo "$$" "$(cat /proc/$$/stat)" > "$2" && shift 2 && exec "$@" </dev/null'
_STAT_STATE, _STAT_BIRTH = 0, 19  # places after the command name, which may hold blanks


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, for good: `birth` is in clock ticks since the machine started."""

    pid: int
    birth: int


def of(pid: int) -> Identity | None:
    """Identity of a living process; None if there is none, or only its remains."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        fields = _after_name(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STAT_STATE] in "ZX" else Identity(pid, int(fields[_STAT_BIRTH]))


def read(record: Path) -> Identity | None:
    """Identity in a record; None where there is none, or only the start of one."""
    try:
        pid, _, stat = record.read_text().partition(" ")
        return Identity(int(pid), int(_after_name(stat)[_STAT_BIRTH]))
    except (FileNotFoundError, ValueError, IndexError):
        return None


def alive(identity: Identity | None) -> bool:
    """Whether that very process still runs."""
    return identity is not None and of(identity.pid) == identity


def start(argv: Sequence[str], *, cwd: Path, log: Path, record: Path, lock: int) -> None:
    """Start `argv` in a session of its own and wait until it has written its `record`.

    `lock` (a file descriptor) stays held by it until then.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", _BECOME, "sh", str(cwd), str(record), *argv],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, lock, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), writing, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    while read(record) is None and of(pid):
        time.sleep(0.002)


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal that very process; False if it is gone."""
    try:
        handle = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:  # the handle is taken first: what it was checked to be, it stays
        if not alive(identity):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def stop(identities: Iterable[Identity], *, grace: float) -> None:
    """End these processes: politely, and after `grace` seconds by force. Waits for the end."""
    left = [one for one in identities if alive(one)]
    if grace:
        _signal_all(left, signal.SIGTERM)
        left = wait_gone(left, seconds=grace)
    _signal_all(left, signal.SIGKILL)
    stubborn = wait_gone(left, seconds=10)
    if stubborn:
        msg = f"processes {[one.pid for one in stubborn]} do not end, even by SIGKILL"
        raise RuntimeError(msg)


def wait_gone(identities: Iterable[Identity], *, seconds: float) -> list[Identity]:
    """Wait until none of them is left, at most so long; the answer is who still is."""
    deadline = time.monotonic() + seconds
    left = [one for one in identities if alive(one)]
    while left and time.monotonic() < deadline:
        _wait_for(left[0].pid, seconds=min(0.2, deadline - time.monotonic()))
        left = [one for one in left if alive(one)]
    return left


def run(argv: Sequence[str], *, seconds: float) -> str:
    """Give a short command's output; OSError or subprocess.SubprocessError if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=True)
    return done.stdout


def _signal_all(identities: Iterable[Identity], number: signal.Signals) -> None:
    for one in identities:
        send(one, number)


def _wait_for(pid: int, *, seconds: float) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([handle], [], [], max(seconds, 0))
    finally:
        os.close(handle)


def _after_name(stat: str) -> list[str]:
    return stat.rpartition(")")[2].split()
