# SPDX-License-Identifier: Apache-2.0
"""Plant one fault after the other into a copy of the tree, and see whether the unit tests find it.

A fault counts as caught if a test fails with it, fails again with it, and passes without it. The
tests nearest to it are asked first, and only if they pass with it all the others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from planted import ROOMS, Fault, Way

HERE: Final = Path(__file__).parent.parent.parent
PACKAGE: Final = Path("operator", "muster")
LEFT_OUT: Final = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "dist", "build")
PYTEST: Final = (
    *(
        "-m",
        "pytest",
        "-m",
        "not e2e and not real",
        "--exitfirst",
        "--quiet",
        "--no-header",
        "--tb=no",
    ),
    # What is asked here is whether the faults can be planted: never with one that is.
    *("--hypothesis-seed=0", "--timeout=300", "--ignore=tests/mutants"),
)
ALL: Final = ("tests", "-n", "2")
PASSED, FAILED, INTERRUPTED, NONE_CHOSEN = 0, 1, 2, 5

Texts = Mapping[Path, str]
"""Path in the tree -> the text of a module."""


class FaultError(Exception):
    """What forbids measuring a fault."""


def main() -> None:
    """Measure and print a table."""
    options = _options()
    tree = options.tree.resolve()
    modules = sorted((tree / PACKAGE).rglob("*.py"))
    texts = {path.relative_to(tree): path.read_text() for path in modules}
    faults = {fault.name: fault for room in ROOMS.values() for fault in room}
    try:
        planted = {name: plant(faults[name], texts) for name in options.only or faults}
        if options.check:
            print(f"all {len(planted)} can be planted")
        else:
            _measure(tree, texts, planted)
    except FaultError as error:
        sys.exit(str(error))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/mutants", description=__doc__)
    names = [fault.name for room in ROOMS.values() for fault in room]
    only = {"metavar": "NAME", "action": "append", "choices": names}
    parser.add_argument("--only", **only, help="measure this fault; repeatable")
    parser.add_argument("--tree", type=Path, default=HERE, help="another checkout to measure")
    parser.add_argument("--check", action="store_true", help="see only whether all can be planted")
    return parser.parse_args()


def plant(fault: Fault, texts: Texts) -> Texts:
    """Return the texts that are other with the fault. Raises FaultError if there is no way."""
    counts = []
    for way in fault.ways:
        found = {old: sum(text.count(old) for text in texts.values()) for old, _ in way}
        if set(found.values()) == {1}:
            return _edited(way, texts)
        counts += [f"{count} times {old!r}" for old, count in found.items() if count != 1]
    raise FaultError(f"{fault.name}: cannot be planted; found {', '.join(counts)}")


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


def _measure(tree: Path, texts: Texts, planted: Mapping[str, Texts]) -> None:
    began, caught = time.monotonic(), set()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(tree, Path(folder), texts)
        for name, edited in planted.items():
            start = time.monotonic()
            test = copy.caught(edited)
            caught |= {name} if test else set()
            word, seconds = "caught" if test else "MISSED", time.monotonic() - start
            print(f"{word}  {seconds:4.0f} s  {name:<67}  {test}", flush=True)
    print()
    for room, faults in ROOMS.items():
        of_room = {fault.name for fault in faults} & planted.keys()
        print(f"{room:<10}  {len(of_room & caught):2} of {len(of_room):2}")
    print(f"{len(caught)} of {len(planted)} caught, in {(time.monotonic() - began) / 60:.0f} min")


class Copy:
    """A copy of the tree, into which one fault at a time is planted."""

    def __init__(self, tree: Path, folder: Path, texts: Texts) -> None:
        """Copy the tree to the folder."""
        shutil.copytree(tree, folder / "tree", ignore=LEFT_OUT)
        self._tree, self._state, self._texts = folder / "tree", folder / "state", texts
        own = tree / ".venv/bin/python"
        self._python = str(own) if own.exists() else sys.executable
        self._stamp = int(time.time())

    def caught(self, planted: Texts) -> str:
        """Return the test that finds the fault, empty if none does."""
        without = {path: self._texts[path] for path in planted}
        innocent: list[str] = []
        try:
            for tests in (self._nearest(planted), ALL):
                self._write(planted)
                while failed := self._failed(tests, innocent):
                    again = self._failed([failed])
                    self._write(without)
                    if again and not self._failed([failed]):
                        return failed
                    self._write(planted)
                    innocent.append(failed)
        finally:
            self._write(without)
        return ""

    def _nearest(self, planted: Collection[Path]) -> Sequence[str]:
        """Return the files of tests of the modules, of who imports them, then of their room."""
        modules = {path.stem for path in planted}
        rooms = {path.parent.name for path in planted}
        imported = re.compile(rf"\b({'|'.join(modules)})\b")
        files = list(self._tests())
        named = [path for path in files if path.stem.removeprefix("test_") in modules]
        importing = [p for p in files if imported.search(p.read_text().partition("\n\n\n")[0])]
        beside = [path for path in files if path.parent.name in rooms]
        return [str(path) for path in dict.fromkeys((*named, *importing, *beside))]

    def _tests(self) -> Iterator[Path]:
        for path in sorted((self._tree / "tests").rglob("test_*.py")):
            if "e2e" not in path.parts and "bench" not in path.parts:
                yield path

    def _write(self, texts: Texts) -> None:
        # Bytecode is taken for fresh by size and second.
        self._stamp += 1
        for path, text in texts.items():
            (self._tree / path).write_text(text)
            os.utime(self._tree / path, (self._stamp, self._stamp))

    def _failed(self, tests: Sequence[str], innocent: Sequence[str] = ()) -> str:
        """Return the first of the tests that fails, empty if none does."""
        if not tests:
            return ""
        shutil.rmtree(self._state, ignore_errors=True)
        cache = ("-o", f"cache_dir={self._state / 'cache'}")
        left_out = (f"--deselect={test}" for test in innocent)
        # What was found with one fault must not lead the search for the next.
        examples = {"HYPOTHESIS_STORAGE_DIRECTORY": str(self._state / "hypothesis")}
        ran = subprocess.run(
            [self._python, *PYTEST, *cache, *left_out, *tests],
            cwd=self._tree,
            env={**os.environ, "PYTHONPATH": str(self._tree / PACKAGE.parent), **examples},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode in (PASSED, NONE_CHOSEN):
            return ""
        last = self._state / "cache/v/cache/lastfailed"
        if ran.returncode not in (FAILED, INTERRUPTED) or not last.exists():
            raise FaultError(f"pytest ended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}")
        return next(iter(json.loads(last.read_text())))


if __name__ == "__main__":
    main()
