# SPDX-License-Identifier: Apache-2.0
"""Operators forked from a process that has read their code already, which takes a second each."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from collections.abc import Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest import mock

from muster import cli

STOCK = "frozen"


def start(words: Sequence[str], log: Path) -> ForkServerProcess:
    """Start `muster WORDS`; what it prints goes to the end of the log."""
    _read()
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_run, args=(tuple(words), log))
    process.start()
    return process


@functools.cache
def _read() -> None:
    """Start the process that is forked; before Python 3.13 it does not get our `sys.path`."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.getenv("PYTHONPATH"))))
    multiprocessing.set_forkserver_preload([STOCK])
    with mock.patch.dict(os.environ, PYTHONPATH=path):
        forkserver.ensure_running()


def _run(words: Sequence[str], log: Path) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    assert STOCK in sys.modules, "the server of forks could not read it, and says nothing of it"
    sys.argv = ["muster", *words]
    sys.exit(cli.main())
