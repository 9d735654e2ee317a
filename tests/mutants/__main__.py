# SPDX-License-Identifier: Apache-2.0
"""Plant one fault after the other into a copy of the tree, and see whether the unit tests find it.

A fault counts as caught if a test fails with it, fails again with it, and passes without it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from faults import ROOMS, Fault, Way

HERE: Final = Path(__file__).parent.parent.parent
PACKAGE: Final = Path("operator", "muster")
LEFT_OUT: Final = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "dist", "build")
MEMORY: Final = Path(sys.prefix, "mutants.json")
"""Fault -> the file of tests that caught it last time; it is asked first."""
HUNG: Final = 300
"""Seconds after which a test has failed."""
PYTEST: Final = (
    *("-m", "pytest", "-m", "not e2e", "--exitfirst", "--quiet", "--no-header", "--tb=no"),
    *("--hypothesis-seed=0", f"--timeout={HUNG}"),
)
ALL: Final = ("tests",)
PASSED, FAILED, NONE_CHOSEN = 0, 1, 5

Texts = Mapping[Path, str]
"""Path in the tree -> the text of a module."""


class FaultError(Exception):
    """What forbids measuring a fault."""


def main() -> int:
    """Measure, print a table, return the exit code."""
    options = _options()
    tree = options.tree.resolve()
    texts = {path.relative_to(tree): path.read_text() for path in _modules(tree)}
    chosen = [(room, fault) for room, faults in ROOMS.items() for fault in faults]
    if unknown := set(options.only) - {fault.name for _, fault in chosen}:
        sys.exit(f"there is no fault {', '.join(sorted(unknown))!r}")
    if options.only:
        chosen = [(room, fault) for room, fault in chosen if fault.name in options.only]
    planted: dict[str, Texts] = {}
    for _, fault in chosen:
        try:
            planted[fault.name] = plant(fault, texts)
        except FaultError as error:
            print(f"{fault.name}: {error}")
    if len(planted) < len(chosen):
        return 1
    if options.check:
        print(f"all {len(chosen)} can be planted")
        return 0
    try:
        return _measure(tree, texts, chosen, planted, options.jobs)
    except FaultError as error:
        sys.exit(str(error))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/mutants", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="measure this fault; repeatable",
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (default: 1)")
    parser.add_argument("--tree", type=Path, default=HERE, help="another checkout to measure")
    parser.add_argument("--check", action="store_true", help="see only whether all can be planted")
    return parser.parse_args()


def _modules(tree: Path) -> list[Path]:
    return sorted((tree / PACKAGE).rglob("*.py"))


# Planting.


def plant(fault: Fault, texts: Texts) -> Texts:
    """Return the texts that are other with the fault. Raises FaultError if there is no way."""
    counts = []
    for way in fault.ways:
        found = {old: sum(text.count(old) for text in texts.values()) for old, _ in way}
        if set(found.values()) == {1}:
            return _edited(way, texts)
        counts += [f"{count} times {old!r}" for old, count in found.items() if count != 1]
    raise FaultError(f"cannot be planted; found {', '.join(counts)}")


def _edited(way: Way, texts: Texts) -> Texts:
    edited: dict[Path, str] = {}
    for old, new in way:
        path = next(path for path, text in texts.items() if old in text)
        edited[path] = edited.get(path, texts[path]).replace(old, new)
    for path, text in edited.items():
        try:
            compile(text, path, "exec")
        except SyntaxError as error:
            raise FaultError(f"makes no Python of {path}: {error}") from None
    return edited


# Measuring.


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a fault."""

    room: str
    name: str
    test: str
    """The test that catches it; empty: none does."""
    seconds: float


def _measure(
    tree: Path,
    texts: Texts,
    chosen: Sequence[tuple[str, Fault]],
    planted: Mapping[str, Texts],
    jobs: int,
) -> int:
    began, known = time.monotonic(), _remembered()
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for i in range(jobs):
            copies.put(Copy(tree, Path(folder, str(i)), texts))

        def measured(room: str, name: str) -> Result:
            copy, start = copies.get(), time.monotonic()
            try:
                test = copy.caught(planted[name], known.get(name, ""))
            finally:
                copies.put(copy)
            return Result(room, name, test, time.monotonic() - start)

        results = []
        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(measured, room, fault.name) for room, fault in chosen]
            try:
                for future in as_completed(futures):
                    results.append(result := future.result())
                    print(_line(result), flush=True)
                    _remember(result)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    _sum_up(results, time.monotonic() - began)
    return 0


def _line(result: Result) -> str:
    word = "caught" if result.test else "MISSED"
    return f"{word}  {result.seconds:4.0f} s  {result.room:<10}  {result.name:<67}  {result.test}"


def _sum_up(results: Sequence[Result], seconds: float) -> None:
    print()
    for room in dict.fromkeys(result.room for result in results):
        found = [bool(result.test) for result in results if result.room == room]
        print(f"{room:<10}  {sum(found):2} of {len(found):2}")
    caught = sum(bool(result.test) for result in results)
    print(f"{caught} of {len(results)} caught, in {seconds / 60:.0f} min")


def _remembered() -> dict[str, str]:
    return json.loads(MEMORY.read_text()) if MEMORY.exists() else {}


def _remember(result: Result) -> None:
    if result.test:
        known = {**_remembered(), result.name: result.test.partition("::")[0]}
        MEMORY.write_text(json.dumps(known, indent=1))


class Copy:
    """A copy of the tree, into which one fault at a time is planted."""

    def __init__(self, tree: Path, folder: Path, texts: Texts) -> None:
        """Copy the tree to the folder."""
        shutil.copytree(tree, folder / "tree", ignore=LEFT_OUT)
        self._tree, self._state, self._texts = folder / "tree", folder / "state", texts
        own = tree / ".venv/bin/python"
        self._python = str(own) if own.exists() else sys.executable
        self._stamp = int(time.time())

    def caught(self, planted: Texts, likely: str) -> str:
        """Return the test that finds the fault, empty if none does.

        `likely`: a file of tests that is asked first, if it is there.
        """
        innocent: list[str] = []
        for tests in self._rounds(planted, likely):
            while True:
                self._write(planted)
                failed = self._failed(tests, innocent)
                if not failed:
                    break
                if self._failed([failed]) and self._passes_without(planted, failed):
                    self._write({path: self._texts[path] for path in planted})
                    return failed
                innocent.append(failed)
        self._write({path: self._texts[path] for path in planted})
        return ""

    def _rounds(self, planted: Texts, likely: str) -> Iterator[Sequence[str]]:
        """Yield tests to be run one after the other: the nearest ones, then all."""
        if likely and (self._tree / likely).exists():
            yield [likely]
        yield from filter(None, (self._named(planted), self._importing(planted)))
        yield ALL

    def _named(self, planted: Iterable[Path]) -> list[str]:
        """Return the files of tests that are named after the modules, or after their package."""
        stems = {stem for path in planted for stem in (path.stem, path.parent.name)}
        return [str(path) for path in self._tests() if path.stem.removeprefix("test_") in stems]

    def _importing(self, planted: Iterable[Path]) -> list[str]:
        """Return the files of tests that import one of the modules."""
        stems = "|".join(path.stem for path in planted)
        imports = re.compile(rf"^(from|import) .*\b({stems})\b", re.MULTILINE)
        return [str(path) for path in self._tests() if imports.search(path.read_text())]

    def _tests(self) -> list[Path]:
        files = sorted((self._tree / "tests").rglob("test_*.py"))
        return [path for path in files if "e2e" not in path.parts]

    def _passes_without(self, planted: Texts, test: str) -> bool:
        self._write({path: self._texts[path] for path in planted})
        return not self._failed([test])

    def _write(self, texts: Texts) -> None:
        # Bytecode is taken for fresh by size and second.
        self._stamp += 1
        for path, text in texts.items():
            (self._tree / path).write_text(text)
            os.utime(self._tree / path, (self._stamp, self._stamp))

    def _failed(self, tests: Sequence[str], innocent: Sequence[str] = ()) -> str:
        """Return the first of the tests that fails, empty if none does."""
        shutil.rmtree(self._state, ignore_errors=True)
        ran = subprocess.run(
            [
                self._python,
                *PYTEST,
                *("-o", f"cache_dir={self._state / 'cache'}"),
                *(f"--deselect={test}" for test in innocent),
                *tests,
            ],
            cwd=self._tree,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode == PASSED or (ran.returncode == NONE_CHOSEN and tests is not ALL):
            return ""
        if ran.returncode != FAILED:
            raise FaultError(f"pytest ended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}")
        last = json.loads((self._state / "cache/v/cache/lastfailed").read_text())
        return next(iter(last))

    def _environment(self) -> Mapping[str, str]:
        # What was found with one fault must not lead the search for the next.
        examples = str(self._state / "hypothesis")
        source = str(self._tree / PACKAGE.parent)
        return {**os.environ, "PYTHONPATH": source, "HYPOTHESIS_STORAGE_DIRECTORY": examples}


if __name__ == "__main__":
    sys.exit(main())
