# SPDX-License-Identifier: Apache-2.0
"""Count the mutations of a module that its unit tests do not notice.

`python tests/mutants operator/muster/allocator/verdict.py` changes a copy of the package, one
sampled mutation at a time, and runs the tests that mirror the module, then those of its package.
Name other tests after the module to run these instead. A surviving mutation is either a missing
test or a change that no caller can observe.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from generate import Mutation, mutations

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "operator" / "muster"
PYTEST = (
    *("-m", "pytest", "-m", "not e2e", "-xq", "--tb=short", "-p", "no:cacheprovider"),
    *("--hypothesis-seed=0", "--timeout=120"),
)


def main() -> None:
    """Print the surviving mutations and their number."""
    parser = argparse.ArgumentParser(prog="tests/mutants", description=__doc__)
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="*", help="default: those of the module's package")
    parser.add_argument("--count", type=int, default=30, help="mutations to sample (default 30)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    module = options.module.resolve().relative_to(PACKAGE)
    every = mutations((PACKAGE / module).read_text())
    sample = random.Random(options.seed).sample(every, min(options.count, len(every)))
    tests = options.tests or mirrored(module)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "muster"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        if found := failure(package, tests):
            sys.exit(f"{found}\nA test fails without any mutation")
        survivors = [one for one in sample if survives(one, package, module, tests)]
    for one in sorted(survivors, key=lambda one: one.line):
        print(f"{options.module}:{one.line}: {' '.join(one.before.split())} -> {one.after}")
    print(f"{len(survivors)} of {len(sample)} sampled mutations survived ({len(every)} in all)")


def mirrored(module: Path) -> list[str]:
    """Return the test files of a module first, then the tests of its top-level package."""
    own = (ROOT / "tests" / module.parent).glob(f"test_{module.stem}*.py")
    return [*map(str, sorted(own)), str(Path(ROOT, "tests", *module.parent.parts[:1]))]


def survives(mutation: Mutation, package: Path, module: Path, tests: list[str]) -> bool:
    """Return whether all tests pass with the mutation in this copy of the package."""
    file = package / module
    original = file.read_text()
    file.write_text(mutation.source)
    # Bytecode of a source with the same size and second would be taken as current.
    bytecode = Path(importlib.util.cache_from_source(str(file)))
    bytecode.unlink(missing_ok=True)
    try:
        return not failure(package, tests)
    finally:
        file.write_text(original)
        bytecode.unlink(missing_ok=True)


def failure(package: Path, tests: list[str]) -> str:
    """Return the report of the first test that fails with this copy of the package, or ""."""
    # An example that failed with one mutation must not be replayed with the next.
    with tempfile.TemporaryDirectory() as examples:
        ran = subprocess.run(
            [sys.executable, *PYTEST, *tests],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(package.parent),
                "HYPOTHESIS_STORAGE_DIRECTORY": examples,
            },
            capture_output=True,
            text=True,
            check=False,
        )
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


if __name__ == "__main__":
    main()
