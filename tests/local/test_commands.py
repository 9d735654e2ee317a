# SPDX-License-Identifier: Apache-2.0
"""The flags of `muster local`, and what it says where there is no cluster."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from muster import cli
from muster.local import cluster, commands, handle, layout, options

UNREACHABLE = """
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: x, user: {}}]
"""


def run(*argv: str) -> int:
    """Run a command line as the program does."""
    parser = argparse.ArgumentParser()
    commands.add_to(parser.add_subparsers())
    args = parser.parse_args(["local", *argv])
    return args.run(args)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the clusters of these tests apart from any other."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[options.Options]:
    """Collect what `up` would bring up, and end there."""
    collected: list[options.Options] = []

    def up(wanted: options.Options, _say: object) -> cluster.Cluster:
        collected.append(wanted)
        raise cluster.ClusterError("enough")

    monkeypatch.setattr(cluster, "up", up)
    return collected


def test_up_without_flags_asks_for_the_default_cluster(asked: list[options.Options]) -> None:
    """Four nodes, with kwok and scheduler."""
    assert run("up") == 1
    assert asked == [options.Options(labels={})]


def test_every_flag_of_up_is_heard(asked: list[options.Options]) -> None:
    """In the order of the help text."""
    run(
        *("up", "--name", "x", "--nodes", "7"),
        *("--node", "cpu=1,memory=1Gi", "--node", "cpu=2,memory=2Gi,nvidia.com/gpu=1"),
        *("--node-label", "a=b", "--node-label", "t=u:NoSchedule"),
        *("--kubeconfig", "/tmp/k", "--no-kwok", "--no-scheduler", "--native-gangs"),
        *("--default-run-seconds", "-1", "--kubernetes-version", "v1.35.0"),
    )
    assert asked[0] == options.Options(
        name="x",
        nodes=7,
        shapes=(
            options.parse_shape("cpu=1,memory=1Gi"),
            options.parse_shape("cpu=2,memory=2Gi,nvidia.com/gpu=1"),
        ),
        labels={"a": "b"},
        taints=({"key": "t", "value": "u", "effect": "NoSchedule"},),
        kubeconfig=Path("/tmp/k"),
        kwok=False,
        scheduler=False,
        native_gangs=True,
        run_seconds="forever",
        kubernetes_version="1.35.0",
    )


@pytest.mark.parametrize(
    "argv",
    [
        ("up", "--nodes", "many"),
        ("up", "--node", "cpu"),
        ("up", "--node-label", "x"),
        ("up", "--name", "../x"),
        (),
    ],
)
def test_a_flag_that_cannot_be_meant_ends_with_a_usage_error(argv: tuple[str, ...]) -> None:
    """Before anything is started."""
    with pytest.raises(SystemExit) as ended:
        run(*argv)
    assert ended.value.code == 2


def test_a_cluster_that_was_not_brought_up_whole_is_told_apart(
    capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    """And how to be rid of it."""
    (state / "muster" / "local" / "half").mkdir(parents=True)
    assert run("status", "--name", "half") == 1
    assert "half was not brought up whole" in capsys.readouterr().out
    assert run("down", "--name", "half") == 0
    assert cluster.names() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clusters: []", "Expected key current-context"),
        (UNREACHABLE, "Cannot connect to host 127.0.0.1:1"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_said_and_left_as_it_is(
    text: str, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It may be the kubeconfig of every cluster that somebody has."""
    precious = tmp_path / "config"
    precious.write_text(text)
    assert run("up", "--kubeconfig", str(precious)) == 1
    said = capsys.readouterr().err
    assert f"muster local: {precious}" in said
    assert words in said
    assert "or a file that is not there" in said
    assert precious.read_text() == text
    assert cluster.names() == []


def test_a_kubeconfig_that_cannot_be_read_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A folder, say."""
    assert run("up", "--kubeconfig", str(tmp_path)) == 1
    assert f"Is a directory: '{tmp_path}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("down",), 0, "there is no cluster default"),
        (("status", "--name", "x"), 1, "there is no cluster x (`muster local up`); others: none"),
        (("env",), 1, "there is no cluster default (`muster local up`)"),
        (("logs", "kubelet"), 1, "default has no kubelet; there are: none"),
    ],
)
def test_without_a_cluster_it_is_said_that_there_is_none(
    argv: tuple[str, ...], code: int, words: str, capsys: pytest.CaptureFixture[str], state: Path
) -> None:
    """And no file is made."""
    assert run(*argv) == code
    out = capsys.readouterr()
    assert words in out.out + out.err
    assert (out.out == "false\n") is (argv == ("env",))
    assert list(state.rglob("*")) == []


@pytest.mark.parametrize(
    ("action", "path", "words"),
    [
        ("up", "/proc/x", "No such file or directory: '/proc/x'"),
        # The specification has relative paths ignored.
        ("env", "relative", "this user has no home directory: set HOME or XDG_STATE_HOME"),
    ],
)
def test_a_folder_that_cannot_be_used_is_said(
    action: str,
    path: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one line, and `env` prints what makes the shell's `eval` fail."""
    monkeypatch.setenv("XDG_STATE_HOME", path)
    monkeypatch.setattr(os.path, "expanduser", lambda text: text)
    assert cli.main(["local", action]) == 1
    out, err = capsys.readouterr()
    assert (out == "false\n") is (action == "env")
    assert err.startswith("muster local: ")
    assert words in err


def brought_up(name: str) -> layout.Layout:
    """Leave the files of a cluster that was brought up whole."""
    files = layout.Layout(name)
    files.make()
    handle.record(handle.Cluster(files.home, options.Options(name=name), 1, {}, whole=True))
    return files


def test_the_only_cluster_is_meant_without_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever it is called: `make local-up` calls it otherwise than `muster local up`."""
    files = brought_up("muster")
    files.log("etcd").write_text("its words")
    assert run("env") == 0
    assert f"export KUBECONFIG={files.kubeconfig}\n" in capsys.readouterr().out
    assert run("logs", "etcd") == 0
    assert capsys.readouterr().out == "its words"
    assert run("logs", "kubelet-1") == 1
    assert "muster has no kubelet-1; there are: etcd" in capsys.readouterr().err
    assert run("status") == 1  # nothing of it runs
    assert str(files.kubeconfig) in capsys.readouterr().out
    assert run("down") == 0
    assert capsys.readouterr().err == "muster is down\n"
    assert cluster.names() == []


def test_logs_are_printed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that is not UTF-8 cannot show every character."""
    brought_up("x").log("etcd").write_bytes(b"\xe2\x80\xa6\xff")
    monkeypatch.setattr(sys, "stdout", out := io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert run("logs", "etcd") == 0
    assert out.buffer.getvalue() == b"\xe2\x80\xa6\xff"


@pytest.mark.parametrize(
    ("clusters", "words"),
    [
        (("a", "b"), ("env",)),
        ((), ("env",)),
        (("a",), ("env", "--name", "x")),
        (("No Name",), ("env",)),
        (("a",), ("env", "--nam", "a")),
        (("a",), ("env", "a")),
    ],
)
def test_eval_of_env_fails_with_the_command(
    clusters: tuple[str, ...], words: tuple[str, ...], state: Path
) -> None:
    """Otherwise the commands after `eval` would use the cluster of the user's kubeconfig."""
    for name in clusters:
        brought_up(name)
    script = f'eval "$({shlex.join((sys.executable, "-m", "muster.cli", "local", *words))})"'
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    done = subprocess.run(
        ["sh", "-c", f"{script} && echo done"],
        cwd=Path(commands.__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr


@pytest.mark.parametrize("argv", [("env",), ("status",), ("down",), ("logs", "etcd")])
def test_which_of_several_is_meant_has_to_be_said(
    argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Even if one has the name that `up` gives by itself: `down` has no way back."""
    for name in ("muster", "default"):
        brought_up(name)
    assert run(*argv) == 1
    words = "muster local: there are several clusters, name one by --name: default muster\n"
    assert capsys.readouterr() == ("false\n" if argv == ("env",) else "", words)
    assert cluster.names() == ["default", "muster"]
    assert run("env", "--name", "default") == 0
