# SPDX-License-Identifier: Apache-2.0
"""Processes that outlive their starter, known by pid *and* time of birth.

A pid alone may be reused. A process becomes the component only once recorded, so that no starter,
killed at whatever moment, leaves one unrecorded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

# Standard input is a pipe from the starter: a line once the record is written, or its end.
_BECOME = 'read -r go && exec "$@" </dev/null'
_REMAINS = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, for good: `birth` is in hundredths of a second since the machine started."""

    pid: int
    birth: int


def of(pid: int) -> Identity | None:
    """Identity of a living process; None if there is none, or only its remains."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        process = psutil.Process(pid)
        if process.status() in _REMAINS:
            return None
        # Unlike the time of day, it stays the same when somebody sets the clock.
        since_boot = process.create_time() - psutil.boot_time()
    except psutil.NoSuchProcess:
        return None
    return Identity(pid, round(since_boot * 100))


def read(record: Path) -> Identity | None:
    """Identity in a record; None where there is none, or only the start of one."""
    try:
        pid, birth = record.read_text().split()
        return Identity(int(pid), int(birth))
    except (FileNotFoundError, ValueError):
        return None


def alive(identity: Identity | None) -> bool:
    """Whether that very process still runs."""
    return identity is not None and of(identity.pid) == identity


def start(argv: Sequence[str], *, cwd: Path, log: Path, record: Path) -> None:
    """Start `argv` in a session of its own, with its identity in `record`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    become, pipe = ("sh", "-c", _BECOME, "sh", *argv), subprocess.PIPE
    with log.open("ab") as out:
        process = subprocess.Popen(
            become, cwd=cwd, stdin=pipe, stdout=out, stderr=out, start_new_session=True
        )
    process.returncode = 0  # not to be warned of a process that outlives this one
    assert process.stdin is not None
    with process.stdin:
        if one := of(process.pid):
            record.write_text(f"{one.pid} {one.birth}")
            process.stdin.write(b"go\n")


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal that very process; False if it is gone."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(identity.pid)
        if alive(identity):
            process.send_signal(number)  # only if the pid is still that of the process made above
            return True
    return False


def stop(identities: Iterable[Identity], *, grace: float) -> None:
    """End these processes: politely, and after `grace` seconds by force. Waits for the end."""
    left = list(identities)
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        if seconds:
            for one in left:
                send(one, number)
            left = wait_gone(left, seconds=seconds)
    if left:
        msg = f"processes {[one.pid for one in left]} do not end, even by SIGKILL"
        raise RuntimeError(msg)


def wait_gone(identities: Iterable[Identity], *, seconds: float) -> list[Identity]:
    """Wait until none of them is left, at most so long; the answer is who still is."""
    deadline = time.monotonic() + seconds
    left = list(identities)
    while (left := [one for one in left if alive(one)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def hush() -> None:
    """Let Python say nothing of what an interrupt has cut short anywhere: it says it to people."""
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
