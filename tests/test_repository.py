# SPDX-License-Identifier: Apache-2.0
"""What holds for the repository as a whole: its layout, its notices, the commands it promises."""

from __future__ import annotations

import contextlib
import functools
import io
import operator
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from muster import cli

ROOT = Path(__file__).parent.parent
TOP_LEVEL = {
    ".ci",
    ".dockerignore",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "charts",
    "constraints.txt",
    "crds",
    "docs",
    "examples",
    "manifests",
    "operator",
    "pyproject.toml",
    "tests",
    "tools",
}
UNNAMED = {"clean", "docs", "e2e", "help", "mutants", "test-full"}
"""Targets of `make` that neither README nor docs name."""
WITHOUT_NOTICE = re.compile(r"(^|/)LICENSE$|\.(sum|mod|jsonl?|txt\.gz|png)$|/py\.typed$")


def tracked() -> list[str]:
    """Paths under version control, relative to the root; the test is skipped outside a clone."""
    answer = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        pytest.skip("not a git clone")
    return [path for path in answer.stdout.split("\0") if path and (ROOT / path).exists()]


def documented_targets() -> set[str]:
    """Targets that `make` prints."""
    return set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(text: str, program: str) -> list[list[str]]:
    """Words after `program` for each command line of the text that calls it."""
    blocks = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    shown = [block for language, block in blocks.findall(text) if language in {"sh", "console"}]
    lines = [line.removeprefix("$ ") for block in shown for line in block.splitlines()]
    lines += re.findall(r"\$\(\.venv/bin/([^)]+)\)", "\n".join(lines))
    spans = re.findall(r"`([^`\n]+)`", blocks.sub("", text))
    return [
        shlex.split(line, comments=True)[1:]
        for line in [*lines, *spans]
        if line.split(maxsplit=1)[:1] == [program]
    ]


def test_the_source_root_is_no_package() -> None:
    """`operator/` must not shadow the standard library's module of that name."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert operator.itemgetter(1)("ab") == "b"


def test_top_level_is_the_documented_one() -> None:
    """A new file at the top is a decision, not an accident."""
    assert {path.split("/")[0] for path in tracked()} - TOP_LEVEL == set()


def test_every_file_starts_with_its_licence() -> None:
    """The SPDX line is the first, or the second after a `#!`."""
    missing = []
    for path in tracked():
        if WITHOUT_NOTICE.search(path) or (ROOT / path).is_symlink():
            continue
        lines = (ROOT / path).read_text().splitlines() or [""]
        first = lines[1] if lines[0].startswith("#!") else lines[0]
        if "SPDX-License-Identifier: Apache-2.0" not in first:
            missing.append(path)
    assert missing == []


def test_make_prints_the_promised_targets() -> None:
    """`make` alone lists them."""
    assert documented_targets() >= UNNAMED
    printed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(f"make {target} " in printed for target in documented_targets())


def test_folders_of_stories_hold_no_other_tests() -> None:
    """`make unit` leaves them out, and nobody else runs what bears neither mark."""
    for mark in ("e2e", "real"):
        for path in (ROOT / "tests" / mark).rglob("test_*.py"):
            assert f"mark.{mark}" in path.read_text(), path


def test_constraints_name_no_index() -> None:
    """Pins and hashes say what is installed; where it comes from is the user's choice."""
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"://|--index|--extra-index|--find-links|file:", text)
    assert text.count("==") <= text.count("--hash=sha256:")


def test_every_program_that_trains_is_in_both_tables() -> None:
    """What it is, and how long it takes; one loses a rank half-way, and has no times."""
    there = {path.parent.name for path in ROOT.glob("examples/training/*/kustomization.yaml")}
    told, timed = (
        set(re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / page).read_text(), re.MULTILINE))
        for page in ("training.md", "real.md")
    )
    assert (told, timed) == (there, there - {"pytorch-resume"})


def test_readme_names_only_make_targets_that_exist() -> None:
    """Every `make x` in README and docs, the main commands among them."""
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    named = {words[0] for page in pages for words in commands(page.read_text(), "make") if words}
    assert {"demo", "test", "deploy"} <= named
    assert named <= documented_targets()


def test_readme_names_only_commands_that_exist() -> None:
    """Every `muster x --flag` in README and docs is known to the program's own help."""
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    wanted = [words for page in pages for words in commands(page.read_text(), "muster")]
    assert wanted
    for words in wanted:
        plain = [word for word in words if not word.startswith("-")]
        flags = {word.split("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)}
        known = set(re.findall(r"--?[A-Za-z][A-Za-z-]*", usage(*plain[:2])))
        assert flags <= known, f"muster {' '.join(words)}"


@functools.cache
def usage(*words: str) -> str:
    """Return what `muster WORDS --help` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    # What is wrong with the words would be said on the other stream.
    assert shown.getvalue(), f"muster {' '.join(words)}"
    return shown.getvalue()


def test_the_operator_needs_only_its_dependencies() -> None:
    """The image holds no package of the extras, and `muster run` must start there."""
    extras = ["hypothesis", "pytest", "mypy"]
    program = f"""
import sys
sys.modules.update(dict.fromkeys({extras}))
import muster.cli
import muster.runtime.app
muster.cli.main(["run", "--help"])
"""
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT / "operator",
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "--gang-scheduler-name" in answer.stdout


def test_every_story_file_is_listed_with_its_package() -> None:
    """CONTRIBUTING.md names the stories to run for a change to a package."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = set(re.findall(r"\w+", text[text.index("| package |") : text.index("## Style")]))
    stories = {path.stem.removeprefix("test_") for path in ROOT.glob("tests/e2e/test_*.py")}
    assert stories - table == set()
