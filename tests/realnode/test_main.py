# SPDX-License-Identifier: Apache-2.0
"""The command line `python tools/realnode`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from muster.local import cluster, handle, layout, options
from realnode import __main__ as tool
from realnode import images, real

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the clusters of these tests apart from others."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def brought_up(nodes: int) -> handle.Cluster:
    """Leave the files of a cluster with so many real nodes."""
    users = {f"kubelet-{i}": (f"system:node:real-{i}", "system:nodes") for i in range(nodes)}
    home, extra = layout.Layout("x").home, handle.Extra(users=users)
    made = handle.Cluster(home, options.Options(name="x"), 1, {}, extra=extra, whole=True)
    made.files.make()
    handle.record(made)
    return made


def test_the_folder_is_a_program() -> None:
    """Python finds its modules wherever it is called."""
    argv = [sys.executable, str(ROOT / "tools" / "realnode"), "--help"]
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "{" not in done.stdout
    for action in ("up", "down", "load", "images"):
        assert f"\n    {action} " in done.stdout


@pytest.mark.parametrize(
    "argv", [("up", "--real-node", "0"), ("up", "--node", "x"), ("load",), ()]
)
def test_a_wrong_command_line_is_a_usage_error(argv: tuple[str, ...]) -> None:
    """No cluster is started."""
    with pytest.raises(SystemExit) as ended:
        tool.main(argv)
    assert ended.value.code == 2


def test_up_passes_the_flags_and_the_number_of_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flags are those of `muster local up`; one real node is the default."""
    calls: list[tuple[options.Options, int]] = []

    def up(wanted: options.Options, count: int, _say: object) -> cluster.Cluster:
        calls.append((wanted, count))
        return cluster.Cluster(layout.Layout(wanted.name).home, wanted, 1, {})

    monkeypatch.setattr(real, "up", up)
    assert tool.main(["up"]) == 0
    assert tool.main(["up", "--name", "x", "--nodes", "7", "--real-node=3"]) == 0
    assert calls == [
        (options.Options(labels={}), 1),
        (options.Options(name="x", nodes=7, labels={}), 3),
    ]
    assert 'eval "$(muster local env --name x)"' in capsys.readouterr().out


def test_an_image_is_loaded_by_its_name_or_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image of that name is made first; any other argument is a file."""
    brought_up(1)
    loaded: list[Path] = []
    monkeypatch.setattr(real, "load", lambda _made, archives: loaded.extend(archives))
    monkeypatch.setattr(images, "make", lambda name: Path(f"/made/{name}"))
    assert tool.main(["load", "base", "x.tar"]) == 0
    assert loaded == [Path("/made/base"), Path("x.tar")]

    def refused(name: str) -> Path:
        raise images.ImageError(f"no {name}")

    monkeypatch.setattr(images, "make", refused)
    assert tool.main(["load", "base"]) == 1
    assert capsys.readouterr().err == "realnode: no base\n"


def test_load_without_real_nodes_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the cluster, or the command that starts one."""
    assert tool.main(["load", "x.tar"]) == 1
    assert "there is no cluster default" in capsys.readouterr().err
    brought_up(0)
    assert tool.main(["load", "x.tar"]) == 1
    assert "x has no real nodes" in capsys.readouterr().err


def test_down_removes_a_cluster(state: Path) -> None:
    """It does what `muster local down` does."""
    brought_up(1)
    assert tool.main(["down"]) == 0
    assert [path for path in state.rglob("*") if path.is_file()] == []
