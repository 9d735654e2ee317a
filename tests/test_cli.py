# SPDX-License-Identifier: Apache-2.0
"""The commands, and the names under which the ancestors' Deployments call them."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster import cli
from muster.commands import questions
from muster.frameworks import FRAMEWORKS

OPERATOR = Path(cli.__file__).parents[1]


@pytest.mark.parametrize(
    ("program", "arguments", "words"),
    [
        ("muster", ["run", "--leader-elect"], ["run", "--leader-elect"]),
        ("/usr/bin/muster", ["local", "up"], ["local", "up"]),
        ("/manager", [], ["run"]),
        ("/manager", ["--gang-scheduler-name=volcano"], ["run", "--gang-scheduler-name=volcano"]),
        (
            "/opt/kubeflow/tf-operator.v1beta2",
            ["--alsologtostderr", "-v=1"],
            ["run", "--alsologtostderr", "-v=1"],
        ),
        ("/opt/mpi-operator", ["-v=1"], ["run", "-v=1"]),
        ("./kube-batch", ["--logtostderr"], ["scheduler", "--logtostderr"]),
        (
            "muster",
            ["--gang-scheduling=volcano", "-alsologtostderr"],
            ["run", "--gang-scheduling=volcano", "-alsologtostderr"],
        ),
        ("muster", ["--help"], ["--help"]),
        ("muster", ["--version"], ["--version"]),
        ("muster", [], []),
    ],
)
def test_deployments_of_the_ancestors(program, arguments, words):
    """Called as an ancestor, or with flags alone as mpi-operator's image is: the operator."""
    assert cli._words(program, arguments) == words


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["local", "up", "--help"]])
def test_help(words):
    """Each level explains itself on standard output."""
    shown = subprocess.run(
        [sys.executable, "-m", "muster.cli", *words],
        cwd=OPERATOR,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.lower().startswith("usage: muster")


def test_argument_that_cannot_be_meant(capsys):
    """An unknown flag ends with code 2 and suggests the nearest."""
    assert cli.main(["run", "--gang-schedulr-name=volcano"]) == 2
    assert "did you mean --gang-scheduler-name?" in capsys.readouterr().err


def test_interrupted_command_ends_with_130(monkeypatch, capsys):
    """Ctrl-C ends a command with the exit code of shells and no traceback."""

    async def interrupted(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(questions, "snapshot", interrupted)
    assert cli.main(["snapshot"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["version"], ["run", "--version"], ["--version=true"]])
def test_version(words, capsys):
    """The version is printed wherever one asks for it, and nothing is started."""
    assert cli.main(words) == 0
    assert capsys.readouterr().out.startswith("muster")


def test_crds_are_written_and_checked(tmp_path, capsys):
    """`crds` writes the files, `--check` fails as long as one differs, and mends nothing."""
    folder = ["--folder", str(tmp_path)]
    assert cli.main(["crds", "--check", *folder]) == 1
    assert list(tmp_path.iterdir()) == []
    assert cli.main(["crds", *folder]) == 0
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {path.name for path in (OPERATOR.parent / "crds").glob("*.yaml")}
    assert cli.main(["crds", "--check", *folder]) == 0
    stale = tmp_path / min(written)
    stale.write_text("old")
    capsys.readouterr()
    assert cli.main(["crds", "--check", *folder]) == 1
    assert capsys.readouterr().out == f"{stale}: is not fresh; run muster crds\n"
    assert stale.read_text() == "old"


@pytest.mark.parametrize("command", cli.REMOVED)
def test_removed_command_prints_its_replacement(command, capsys):
    """A removed command ends with code 2 and names the command to use instead."""
    assert cli.main([command, "mnist", "-A"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"muster {command} was removed: use kubectl ")


def test_replacement_of_list_names_all_kinds():
    """The replacement of `muster list` covers the jobs of every kind."""
    kinds = cli.REMOVED["list"].split()[2].split(",")
    assert set(kinds) == {row.plural for row in FRAMEWORKS.values()}


def test_commands_are_these(capsys):
    """The help lists exactly the commands of the reference."""
    assert cli.main([cli.COMPLETE, ""]) == 0
    words = {line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()[:-1]}
    assert words == {
        "run", "scheduler", "explain", "simulate", "render", "snapshot", "convert", "top", "logs",
        "queue", "report", "bundle", "doctor", "restart", "dashboard", "local", "demo", "crds",
        "completion", "version",
    }  # fmt: skip


@pytest.mark.parametrize("words", [["version"], ["crds", "--folder", "crds"], ["convert", "-f"]])
def test_output_whose_reader_has_ended_is_no_error(words, tmp_path):
    """A closed pipe ends a command without a message, as it ends other programs."""
    example = OPERATOR.parent / "examples" / "tfjob-simple.yaml"
    words = [*words, str(example)] if words[-1] == "-f" else words
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "muster", *words],
        cwd=tmp_path,
        check=False,
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (cli.PIPE_CLOSED, b"")
