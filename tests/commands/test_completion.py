# SPDX-License-Identifier: Apache-2.0
"""What may come next on a command line."""

import shutil
import subprocess

import pytest

from muster import cli
from muster.commands.arguments import SHELLS


def completed(capsys, *words):
    """Return the words that may stand in place of the last one, and the directive."""
    assert cli.main([cli.COMPLETE, *words]) == 0
    *lines, directive = capsys.readouterr().out.splitlines()
    return [line.partition("\t")[0] for line in lines], directive


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["sna"], ["snapshot"]),
        (["explain", "--output", "w"], ["wide"]),
        (["explain", "--all"], ["--all-namespaces"]),
        (["report", "--by", "queue", "-o", "j"], ["json"]),
        (["queue", "stop", "-n", "team", "--dr"], ["--drain"]),
        (["queue", ""], ["stop", "resume"]),
        (["queue", "stop", "--d"], ["--drain"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
)
def test_words_that_may_come(capsys, words, found):
    """Of the parser, whatever stands before; then no file is meant."""
    assert completed(capsys, *words) == (found, ":4")


@pytest.mark.parametrize("words", [["render", "-f", "jo"], ["list", ""], ["logs", ""]])
def test_where_nobody_knows(capsys, words):
    """The shell goes by its own means."""
    assert completed(capsys, *words) == ([], ":0")


def test_the_names_of_the_plugin():
    """Kubectl calls one for what is asked, and one for what may come."""
    assert cli._words("/bin/kubectl-muster", ["top", "--once"]) == ["top", "--once"]
    assert cli._words("/bin/kubectl_complete-muster", ["to"]) == [cli.COMPLETE, "to"]


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_of_shells(shell, capsys):
    """Each is one that its shell can read."""
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "muster __complete" in script
    if (found := shutil.which(shell)) is not None:
        subprocess.run([found, "-n"], input=script, text=True, check=True)
