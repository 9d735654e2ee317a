# SPDX-License-Identifier: Apache-2.0
"""The grammar of names and flags that all commands share."""

import pytest

from muster import cli, flags
from muster.commands import arguments, control, live
from muster.commands.arguments import ArgumentError, Reference, reference


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["mnist"], Reference(name="mnist")),
        (["tfjob/mnist"], Reference("tfjob", name="mnist")),
        (["tfj", "mnist"], Reference("tfj", name="mnist")),
        (["TFJobs.kubeflow.org/mnist"], Reference("TFJobs.kubeflow.org", name="mnist")),
        (["TFJob/team/mnist"], Reference("TFJob", "team", "mnist")),
    ],
)
def test_reference_is_read_in_each_form(words, found):
    """Every form that kubectl and muster print is accepted."""
    assert reference(words) == found


@pytest.mark.parametrize(
    ("words", "namespace", "message"),
    [
        ([], "", "no name: write NAME, "),
        (["a/b/c/d"], "", "a/b/c/d: write NAME, "),
        (["tfjob/"], "", "tfjob/: write NAME, "),
        (["tfjob//mnist"], "", "tfjob//mnist: write NAME, "),
        (["tfjob/a", "tfjob/b"], "", "tfjob/a tfjob/b: write NAME, "),
        (["tfjob", "a", "b"], "", "tfjob a b: write NAME, "),
        (["tfjob/team/a"], "other", "tfjob/team/a is in namespace team, and -n names other"),
    ],
)
def test_reference_that_is_ambiguous_is_refused(words, namespace, message):
    """The error quotes the words and lists the accepted forms."""
    with pytest.raises(ArgumentError) as raised:
        reference(words, namespace)
    assert str(raised.value).startswith(message)


def test_selector_replaces_the_name():
    """A name and a selector together are refused."""
    assert reference([], "team", "app=a") == Reference(namespace="team", selector="app=a")
    with pytest.raises(ArgumentError, match="mnist and --selector=app=a: give one of them"):
        reference(["mnist"], "team", "app=a")


@pytest.mark.parametrize(
    "words",
    [
        ["--context", "here", "-n", "team", "tfjob", "mnist"],
        ["tfjob", "mnist", "--context", "here", "-n", "team"],
        ["tfjob", "-nteam", "mnist", "--context=here"],
        ["-context", "here", "--namespace=team", "tfjob", "--", "mnist"],
    ],
)
@pytest.mark.parametrize("command", ["explain", "logs", "restart"])
def test_flags_before_and_after_the_name_are_equal(command, words):
    """The value of a flag is never read as a name."""
    args = parsed([command, *words])[0]
    assert (args.namespace, args.context) == ("team", "here")
    assert (args.what if command == "explain" else args.job) == ["tfjob", "mnist"]


@pytest.mark.parametrize("name", ["f", "c", "l"])
def test_name_of_one_letter_is_no_flag(name):
    """A job may be called like a short flag."""
    args = parsed(["logs", "tfjob", name])[0]
    assert (args.job, args.follow, args.container) == (["tfjob", name], False, "")


def parsed(words):
    """Return the parsed arguments and the flags of `muster run`."""
    args = arguments.parse(cli._parser(), words, flags.width)
    return args, args.rest


@pytest.mark.parametrize(
    ("given", "rest"),
    [
        (["--scheduler-conf", "policy.yaml"], ["--scheduler-conf", "policy.yaml"]),
        (["--scheduler-conf=policy.yaml"], ["--scheduler-conf=policy.yaml"]),
        (["-v", "4"], ["-v", "4"]),
        (["--alsologtostderr"], ["--alsologtostderr"]),
        (["--gang-schedulr-name=x"], ["--gang-schedulr-name=x"]),
    ],
)
def test_flags_of_run_keep_their_values(given, rest):
    """A flag of `muster run` before the name takes its own value only."""
    args, left = parsed(["explain", *given, "tfjob/mnist", "-Aojson"])
    assert (args.what, args.all_namespaces, args.output) == (["tfjob/mnist"], True, "json")
    assert left == rest


@pytest.mark.parametrize(
    "words", [["top", "--scheduler-conf", "x"], ["convert", "--filena", "job.yaml", "-f", "x"]]
)
def test_unknown_flag_ends_with_code_2(words, capsys):
    """Flags of `muster run` that a command does not accept, and abbreviations, are refused."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert words[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["logs"],
        ["logs", "a/b/c/d"],
        ["restart", "mnist", "-l", "app=a"],
        ["queue", "stop", "tfjob/mnist"],
        ["explain", "tfjob/"],
    ],
)
def test_name_that_cannot_be_parsed_ends_before_a_connection(words, capsys):
    """The error is printed with code 2 and no cluster is contacted."""
    assert cli.main([*words, "--kubeconfig=/nowhere"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("muster: ")
    assert "/nowhere" not in message


@pytest.mark.parametrize("words", [["research"], ["queue/research"], ["queues", "research"]])
def test_queue_is_named_in_each_form(words, monkeypatch):
    """`muster queue` accepts the grammar of the other commands."""
    named = []
    monkeypatch.setattr(control, "queue", lambda *given: named.append(given))
    monkeypatch.setattr(live, "printed", lambda command, *_: command(None, ""))
    assert cli.main(["queue", "stop", *words]) == 0
    assert named == [(None, "research", "Closed")]
