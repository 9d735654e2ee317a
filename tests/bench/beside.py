# SPDX-License-Identifier: Apache-2.0
"""The core's rows beside those of another checkout: CPU time of one cycle, both in turns.

Run as `python tests/bench/beside.py DIRECTORY [--only TEXT] [--rounds N]`. Each row of each
checkout runs in a process of its own; of all rounds the least counts, as whatever else the
machine does can only add to it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parents[2]


def serve(name: str) -> None:
    """Run the row once per line that comes in, and answer with the ms that it took."""
    import core

    (case,) = [case for case in core.CASES if case.name == name]
    work = case.prepare()
    work()
    print(flush=True)
    for _ in sys.stdin:
        started = time.process_time()
        work()
        print((time.process_time() - started) * 1000, flush=True)


class Row:
    """A row of one checkout, ready to be run."""

    def __init__(self, tree: Path, name: str) -> None:
        # The checkout's own bench and operator, by this file's protocol.
        paths = (tree / "operator", tree / "tests" / "bench", tree / "tests")
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--serve", name],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def run(self) -> float:
        """Run it once; return the ms."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the row ended with {self._process.wait()}")
        return line

    def close(self) -> None:
        """Let the process end."""
        self._process.communicate()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=7, help="how often each row runs")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    import core

    # What the other one does not measure yet cannot be compared.
    known = (options.directory / "tests" / "bench" / "core.py").read_text()
    print(f"{'CPU time of one cycle, least':48}", *(f"{h:>8}" for h in ("ms", "beside", "ratio")))
    for name in (case.name for case in core.CASES):
        if options.only in name and f'"{name}"' in known:
            rows = [Row(tree, name) for tree in (HERE, options.directory.resolve())]
            own, other = map(
                min,
                zip(*([row.run() for row in rows] for _ in range(options.rounds)), strict=True),
            )
            for row in rows:
                row.close()
            print(f"{name:48} {own:8.1f} {other:8.1f} {own / other:8.2f}", flush=True)


if __name__ == "__main__":
    main()
