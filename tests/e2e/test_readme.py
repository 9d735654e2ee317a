# SPDX-License-Identifier: Apache-2.0
"""Every command of README and first pages works for who types them one after the other."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from muster.local import cluster, layout, options
from muster.local.handle import Cluster
from support.e2e import doc_commands
from support.e2e.harness import Operator, account_config
from support.e2e.image_engine import DIGEST, ENGINE, pinned, saved

ROOT = Path(__file__).parents[2]
READ = ("README.md", "docs/local.md", "docs/first-job.md")
TEXT = "".join((ROOT / page).read_text() for page in READ)
INSTALL_PAGE = (ROOT / "docs/install.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
LINES = [
    command
    for block in BLOCKS
    for line in block.splitlines()
    if (command := line.partition("  #")[0].strip())
]
NOT_RUN = {
    "make demo": "test_demo.py runs it, and it takes half a minute",
    "make test": "this is a part of it",
    "muster dashboard": "test_page.py opens it, and it serves until it is stopped",
}
"""Command -> why it is left out. That an image is built and pushed is no command there."""
INSTALL = "make deploy IMAGE=registry.example.com/team/muster:0.1.0"
"""The Deployment's image is on no node: a process with its account and roles plays its part."""
CODES = {
    "muster explain tfjob/second": 1,
    "muster explain --what-if second": 1,
    "muster doctor": 2,
}
"""Command -> its exit code where that is not 0: 1 says that the job waits, 2 that the operator has
no pod, as a process plays its part here.
"""
SAYS = {
    'eval "$(.venv/bin/muster local env)"': "",
    "kubectl get nodes": "node-4",
    "make local-down": "muster is down",
    "kubectl get tfjobs": "simple",
    "muster explain tfjob/second": "nvidia.com/gpu",
    "muster explain --what-if second": "second: waiting",
}
"""Command -> what is in its output; an empty string: there is none."""
MARK = "--- ended with"

pytestmark = [pytest.mark.e2e, pytest.mark.full]


class Shell:
    """Somebody's shell in a clone: each command sees what those before it have left."""

    def __init__(self, clone: Path, env: dict[str, str]) -> None:
        """Start it; commands come by a pipe of its own, so that none takes another's place."""
        script, self._script = os.pipe()
        self._process = subprocess.Popen(
            ["sh", f"/dev/fd/{script}"],
            cwd=clone,
            env=env,
            pass_fds=(script,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        os.close(script)

    def run(self, command: str) -> tuple[int, str]:
        """Run a command; its exit code and all that it printed."""
        os.write(self._script, f"{command}\nprintf '\\n{MARK} %s\\n' $?\n".encode())
        said = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                return int(line.removeprefix(MARK)), "".join(said).strip()
            said.append(line)
        pytest.fail(f"{command} ended the shell:\n{''.join(said)}")

    def close(self) -> None:
        """End it with whatever still runs in it."""
        os.close(self._script)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    """Bring up what stands for the reader's own cluster: it has no CRDs and no GPUs."""
    name = f"readme-{os.getpid()}"
    (tmp_path / "crds").mkdir()
    shape = options.parse_shape("cpu=8,memory=32Gi")
    yield cluster.up(
        options.Options(
            name=name, nodes=2, shapes=(shape,), crds=tmp_path / "crds", scheduler=False, tied=True
        )
    )
    cluster.down(name)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Give what looks like this clone, so that what a command writes there is left nowhere."""
    folder = tmp_path / "clone"
    folder.mkdir()
    subprocess.run(["make", "install"], cwd=ROOT, env=bare(), check=True, capture_output=True)
    for path in ROOT.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


def bare() -> dict[str, str]:
    """Return the environment without what a `make test` above this one says to another make."""
    of_make = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CLUSTER", "NODES"}
    return {key: value for key, value in os.environ.items() if key not in of_make}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put on PATH what says that it has built and pushed, and signs."""
    folder = tmp_path / "engines"
    folder.mkdir()
    for name in ("docker", "helm", "cosign"):
        (folder / name).write_text(ENGINE % (DIGEST, DIGEST))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("SAVED", str(saved(tmp_path, pinned())))


@pytest.fixture
def shell(own: Cluster, clone: Path, tmp_path: Path) -> Iterator[Shell]:
    """Open a shell of a reader with kubectl, set up for their cluster, and nothing else."""
    home, state = tmp_path / "home", tmp_path / "state"
    (home / ".kube").mkdir(parents=True)
    shutil.copy(own.kubeconfig, home / ".kube" / "config")
    path = (clone / ".venv" / "bin", own.files.bin, bare()["PATH"])
    env = {
        **{key: value for key, value in bare().items() if key != "KUBECONFIG"},
        "HOME": str(home),
        "PATH": os.pathsep.join(map(str, path)),
        "XDG_CACHE_HOME": str(layout.cache_root().parents[1]),
        "XDG_STATE_HOME": str(state),
    }
    opened = Shell(clone, env)
    yield opened
    opened.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        for name in cluster.names():
            cluster.down(name)


def test_the_tables_are_of_these_pages() -> None:
    """A command that is left out, or ends otherwise than others, is there."""
    assert set(LINES) >= {*NOT_RUN, *CODES, *SAYS, INSTALL}


def test_every_command_works_as_it_stands(own: Cluster, shell: Shell, tmp_path: Path) -> None:
    """In one shell, in order; what they install then runs the job that they apply."""
    with ExitStack() as running:
        for command in (line for line in LINES if line not in NOT_RUN):
            code, said = shell.run(command)
            print(f"$ {command}\n{said}")
            assert code == CODES.get(command, 0), f"{command}:\n{said}"
            if command in SAYS:
                assert SAYS[command] in said
                assert bool(SAYS[command]) == bool(said)
            if command == INSTALL:
                running.enter_context(played(own, tmp_path))
        done, said = shell.run(
            "kubectl wait tfjob/simple --for=condition=Succeeded --timeout=120s"
        )
        assert done == 0, said


@pytest.mark.usefixtures("engine")
def test_four_commands_lead_to_a_job_on_the_page(
    own: Cluster, clone: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """From an empty cluster, as docs/install.md has them; the last one serves until its end."""
    (block,) = (
        b for b in doc_commands.blocks("install", INSTALL_PAGE) if b.text.endswith("dashboard\n")
    )
    *commands, shows = block.commands
    assert (len(commands), shows) == (3, "muster dashboard")
    shell: Shell = request.getfixturevalue("shell")
    with ExitStack() as running:
        for command in commands:
            code, said = shell.run(command)
            assert code == 0, f"{command}:\n{said}"
            if "install.yaml" in command:
                assert f"registry.example.com/team/muster@{DIGEST}" in own.kubectl(
                    "get", "-n=muster-system", "deployment/muster", "-o=yaml"
                )
                running.enter_context(played(own, tmp_path))
        code, said = shell.run(f": >page; {shows} >page 2>&1 &")
        assert code == 0, said
        view = watched(clone / "page")
        deadline = time.monotonic() + 120
        while view().get("TFJob/default/simple", {}).get("state") != "Succeeded":
            assert time.monotonic() < deadline, view()
            time.sleep(0.2)


@contextmanager
def played(own: Cluster, folder: Path) -> Iterator[None]:
    """Run what stands for the pods of the Deployment, whose image is on no node."""
    operator = Operator(account_config(own, folder, "embedded"), folder / "operator.log", ())
    try:
        operator.start()
        yield
        operator.check_log()
    finally:
        operator.stop()


def watched(said: Path) -> Callable[[], dict[str, dict[str, str]]]:
    """Return what asks the page for the jobs that it shows, once it says where it is."""
    deadline = time.monotonic() + 60
    while not (found := re.search(r"http://\S+/", said.read_text())):
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.1)

    def jobs() -> dict[str, dict[str, str]]:
        try:
            with urllib.request.urlopen(f"{found[0]}api/view", timeout=30) as answer:
                shown = json.loads(gzip.decompress(answer.read()))
        except urllib.error.HTTPError as error:
            assert error.code == HTTPStatus.SERVICE_UNAVAILABLE  # it has just begun to look
            return {}
        named: dict[str, dict[str, str]] = shown["view"]["jobs"]
        return named

    return jobs
