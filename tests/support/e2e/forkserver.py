# SPDX-License-Identifier: Apache-2.0
"""Muster's commands forked from a process that has read their code, which takes a second each."""

from __future__ import annotations

import functools
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from unittest import mock

from muster import cli

STOCK = "support.e2e.forkserver_preload"
IMAGE = Path(__file__).parents[3] / "manifests" / "image" / "Dockerfile"


def start(words: Sequence[str], log: Path) -> ForkServerProcess:
    """Start `muster WORDS`; what it prints goes to the end of the log."""
    return _start(words, log, log, {})


def run(
    words: Sequence[str], folder: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Return `muster WORDS` once it is done; its output is kept in files of that folder."""
    out, err = folder / "stdout", folder / "stderr"
    for file in (out, err):
        file.unlink(missing_ok=True)
    process = _start(words, out, err, env)
    process.join()
    assert process.exitcode is not None
    return subprocess.CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())


def _start(
    words: Sequence[str], out: Path, err: Path, env: Mapping[str, str]
) -> ForkServerProcess:
    _read()
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_run, args=(tuple(words), out, err, dict(env)))
    process.start()
    return process


@functools.cache
def _read() -> None:
    """Start the process that is forked; before Python 3.13 it does not get our `sys.path`."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.getenv("PYTHONPATH"))))
    # glibc reads this when a process starts. Operators take as much memory as in the image.
    arenas = dict(re.findall(r"\b(MALLOC_ARENA_MAX)=(\d+)", IMAGE.read_text()))
    multiprocessing.set_forkserver_preload([STOCK])
    with mock.patch.dict(os.environ, arenas, PYTHONPATH=path):
        forkserver.ensure_running()


def _run(words: Sequence[str], out: Path, err: Path, env: Mapping[str, str]) -> None:
    for path, stream in ((out, sys.stdout), (err, sys.stderr)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.environ.update(env)
    assert STOCK in sys.modules, "the server of forks could not read it, and says nothing of it"
    sys.argv = ["muster", *words]
    sys.exit(cli.main())
