# SPDX-License-Identifier: Apache-2.0
"""Operators forked from a process that has read their code already, which takes a second each."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from muster import cli

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([cli.__name__, "frozen"])


def start(words: Sequence[str], log: Path) -> ForkServerProcess:
    """Start `muster WORDS`; what it prints goes to the end of the log."""
    process = _SERVER.Process(target=_run, args=(tuple(words), log))
    process.start()
    return process


def _run(words: Sequence[str], log: Path) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    sys.argv = ["muster", *words]
    sys.exit(cli.main())
