# SPDX-License-Identifier: Apache-2.0
"""Clusters really come up, run pods, stand beside each other, and leave nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from muster.local import cluster, handle, layout, nodes, options, processes
from support.e2e import forkserver
from support.e2e.harness import PATIENCE, Api, condition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.local.cluster import Cluster

pytestmark = pytest.mark.e2e

LOCAL = [sys.executable, "-m", "muster", "local"]
ROOT = Path(__file__).parents[2]
RUN, CODES = (nodes.PREFIX + name for name in ("run-seconds", "exit-codes"))


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep these clusters apart from any other; none may be left at the end."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(root))
        yield root
        for name in cluster.names():
            cluster.down(name)


@pytest.fixture(scope="module")
def no_crds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder without CRDs, for tests that do not need them."""
    return tmp_path_factory.mktemp("crds")


@pytest.fixture(scope="module")
def few_crds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with some of the CRDs, since each takes the API server a while."""
    folder = tmp_path_factory.mktemp("few")
    for name in ("scheduling.incubator.k8s.io_queues", "scheduling.incubator.k8s.io_podgroups"):
        (folder / f"{name}.yaml").symlink_to(ROOT / "crds" / f"{name}.yaml")
    for name in ("jaxjobs", "xgboostjobs"):
        (folder / f"{name}.yaml").symlink_to(ROOT / "crds" / f"kubeflow.org_{name}.yaml")
    return folder


@pytest.fixture(scope="module")
def running(state: Path, few_crds: Path) -> Iterator[Cluster]:
    """Bring up a cluster for the tests that only look; pods run for a second by default."""
    made = cluster.up(
        options.Options(name="shared", nodes=3, run_seconds="1", crds=few_crds, tied=True)
    )
    assert made.files.home.is_relative_to(state)
    yield made
    made_home = made.files.home
    assert cluster.down("shared")
    assert not made_home.exists()


def ask(made: Cluster) -> Api:
    """Return the administrator's view of a cluster."""
    return Api(made, "default")


def pod(name: str, policy: str, annotations: dict[str, str] | None = None, **spec: Any) -> str:
    """JSON of a pod with one container."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {
                "restartPolicy": policy,
                "containers": [{"name": "main", "image": "simulated"}],
                **spec,
            },
        }
    )


def create(made: Cluster, document: str) -> None:
    """Create an object."""
    ask(made).create(json.loads(document))


def end_of(made: Cluster, name: str, phase: str) -> dict[str, Any]:
    """Wait for the pod to end in this phase; its status."""

    def ended(pods: dict[str, Any]) -> dict[str, Any]:
        status: dict[str, Any] = pods.get(name, {}).get("status", {})
        return status if status.get("phase") == phase else {}

    found: dict[str, Any] = ask(made).wait("Pod", ended)
    return found


def wait_ready(made: Cluster, kind: str, name: str, *, so: bool = True) -> None:
    """Wait until a pod or node says of itself that it is ready, or that it is not."""
    ask(made).wait(
        kind, lambda found: condition(found.get(name), "Ready") == str(so), what=f"{name} ready"
    )


def delete(made: Cluster, kind: str, name: str, wait_for: str = "") -> None:
    """Delete an object and wait until it is gone, and the pod that goes with it."""
    api = ask(made)
    api.delete(kind, name)
    api.wait("Pod", lambda pods: not {name, wait_for} & set(pods))


def exit_codes(status: dict[str, Any]) -> list[int]:
    """Exit codes of all containers of an ended pod."""
    return [one["state"]["terminated"]["exitCode"] for one in status["containerStatuses"]]


def left_processes(root: Path) -> list[str]:
    """List processes that work in a folder, even one that was removed."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append(str((process / "cwd").readlink()))
    return [folder for folder in found if folder.startswith(str(root))]


def test_nodes_are_ready_and_carry_what_real_ones_do(running: Cluster) -> None:
    """Capacity, labels, an address, and a lease that kwok renews."""
    # A list has no order that anybody promises.
    nodes = {node["metadata"]["name"]: node for node in ask(running).list("Node")}
    assert nodes.keys() == {"node-1", "node-2", "node-3"}
    first = nodes["node-1"]
    assert first["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert first["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.")
    assert first["metadata"]["labels"]["topology.kubernetes.io/zone"] == "local-a"
    assert Api(running, "kube-node-lease").get("Lease", "node-1")


@pytest.mark.full
def test_who_is_not_authenticated_may_read_nothing(running: Cluster) -> None:
    """RBAC is on, an unknown user has no role, and the strictest client accepts the server."""
    trust = ssl.create_default_context(cafile=str(running.files.certificate))
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{running.server}/api/v1/nodes", context=trust)
    with refused.value:
        assert refused.value.code in {401, 403}


@pytest.mark.full
def test_nothing_listens_beyond_this_machine(running: Cluster) -> None:
    """All of the components' sockets are bound to the loopback address."""
    pids = {f"pid={pid}," for pid in running.pids().values()}
    lines = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    ours = [line.split()[3] for line in lines.splitlines() if any(pid in line for pid in pids)]
    assert ours == [f"127.0.0.1:{running.port}"]


def test_a_pod_runs_and_succeeds(running: Cluster) -> None:
    """All containers have a status, the pod an address, init containers are completed."""
    spec = {
        "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "z"}],
        "initContainers": [{"name": "i", "image": "x"}],
    }
    create(running, pod("plain", "Never", **spec))
    status = end_of(running, "plain", "Succeeded")
    assert exit_codes(status) == [0, 0]
    assert status["podIP"].startswith("10.128.")
    assert status["hostIP"].startswith("10.64.")
    assert status["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    ready = next(one for one in status["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "PodCompleted")


@pytest.mark.full
def test_a_pod_made_anew_is_not_deleted_in_the_place_of_the_one_before(running: Cluster) -> None:
    """However late kwok, on a busy machine, hears that the latter is deleted."""
    api, names = ask(running), [f"late-{i}" for i in range(4)]
    for name in names:
        create(running, pod(name, "Never", {RUN: "0"}))
    for name in names:
        end_of(running, name, "Succeeded")
    with kwok_frozen(running):
        for name in names:
            delete(running, "Pod", name)
        made = [api.create(json.loads(pod(name, "Never", {RUN: "forever"}))) for name in names]
    wait_for_kwok(running)
    assert uids(running, names) == [one["metadata"]["uid"] for one in made]
    for name in names:
        wait_ready(running, "Pod", name)
        delete(running, "Pod", name)


@contextlib.contextmanager
def kwok_frozen(made: Cluster) -> Iterator[None]:
    """Let kwok hear of nothing until the block ends, then of all at once."""
    pid = made.pids()[handle.KWOK]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_for_kwok(made: Cluster) -> None:
    """Return once kwok has done all that it had to: it takes one thing after the other."""
    create(made, pod("latest", "Never"))
    end_of(made, "latest", "Succeeded")
    delete(made, "Pod", "latest")


def uids(made: Cluster, names: list[str]) -> list[str]:
    """Return the uids of the pods that there are of these names."""
    found = {one["metadata"]["name"]: one["metadata"]["uid"] for one in ask(made).list("Pod")}
    return [found[name] for name in names if name in found]


def taints_of(node: dict[str, Any]) -> list[str]:
    """Return the keys of a node's taints."""
    return [taint["key"] for taint in node["spec"].get("taints", ())]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Name where somebody wants the kubeconfig of their cluster."""
    made: Path = tmp_path_factory.mktemp("copy") / "deep" / "kubeconfig"
    return made


@pytest.fixture(scope="module")
def there(state: Path, no_crds: Path, copy: Path) -> Iterator[Cluster]:
    """Bring up what stands for somebody's cluster: it has nothing of Muster's, and no kwok.

    The port that it was to have was snatched away: nobody can hold one between looking at it
    and listening on it.
    """
    asked = options.Options(
        name="there",
        nodes=2,
        shapes=(options.parse_shape("cpu=1,memory=1Gi"), options.parse_shape("cpu=2,memory=2Gi")),
        labels={"rack": "7"},
        taints=({"key": "dedicated", "value": "ml", "effect": "NoSchedule"},),
        kubeconfig=copy,
        kwok=False,
        scheduler=False,
        crds=no_crds,
        tied=True,
    )
    with socket.create_server(("127.0.0.1", 0)) as snatched, pytest.MonkeyPatch.context() as patch:
        taken, free = snatched.getsockname()[1], cluster.free_port()
        ports = iter([taken, free])
        patch.setattr(cluster, "free_port", lambda: next(ports))
        made = cluster.up(asked)
    assert made.port == free
    assert made.files.home.is_relative_to(state)
    yield made
    cluster.down("there")


@pytest.mark.full
def test_another_cluster_stands_beside_the_first(running: Cluster, there: Cluster) -> None:
    """Of another shape, and on a port of its own."""
    assert cluster.names() == ["shared", "there"]
    assert there.port != running.port
    assert set(there.pids()) == {"etcd", "kube-apiserver", "kube-controller-manager"}
    nodes = ask(there).list("Node", "rack=7")
    assert [node["status"]["allocatable"]["cpu"] for node in nodes] == ["1", "2"]
    assert all("dedicated" in taints_of(node) for node in nodes)
    assert len(ask(running).list("Node")) == 3


@pytest.mark.full
def test_the_commands_tell_what_there_is(there: Cluster, copy: Path) -> None:
    """`env` for the shell, `logs`, and a kubeconfig where it was wanted."""
    script = f'eval "$({" ".join(LOCAL)} env --name there)"; kubectl version; kubectl get ns'
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert "Server Version: v1." in shell.stdout
    assert "muster-local" in shell.stdout
    logs = local("logs", "kube-apiserver", "--name", "there")
    assert f"127.0.0.1:{there.port}" in logs.stdout
    assert copy.read_text() == there.kubeconfig.read_text()


@pytest.mark.full
def test_a_killed_start_is_recovered_by_the_next(state: Path, no_crds: Path) -> None:
    """Whatever it had started is ended, and a whole cluster comes up.

    That one is tied to a process, and ends with it, however it ends; its files are gone too.
    """
    root = state / "muster" / "local" / "killed"
    with _starting(no_crds) as starter:
        assert starter.stdout is not None
        assert any("API server" in line for line in starter.stdout)
    left = left_processes(root)
    assert left
    code = (
        "import sys; from pathlib import Path; from muster.local import cluster, options\n"
        "asked = options.Options(name='killed', nodes=1, crds=Path(sys.argv[1]), tied=True)\n"
        "cluster.up(asked); print('up', flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, str(no_crds)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == "up\n"
        status = local("status", "--name", "killed")
        assert status.stdout.count("running, pid") == len(handle.SERVERS)
        found = [processes.read(path) for path in (root / "run").glob("*.pid")]
        started = [one for one in found if one]
        assert len(started) == len(handle.SERVERS) + 1  # and the guard
        assert len(left_processes(root)) == len(started)
        it.kill()
    assert processes.wait_gone(started, seconds=PATIENCE) == []
    assert left_processes(root) == []
    assert not root.exists()


@contextlib.contextmanager
def _starting(no_crds: Path) -> Iterator[subprocess.Popen[str]]:
    """Let a process start a cluster, and kill it in the end."""
    code = (
        "import sys; from pathlib import Path; from muster.local import cluster, options\n"
        "cluster.up(options.Options(name='killed', nodes=1, crds=Path(sys.argv[1])),\n"
        "           lambda line: print(line, flush=True))\n"
    )
    argv = [sys.executable, "-c", code, str(no_crds)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as starter:
        try:
            yield starter
        finally:
            starter.kill()


@pytest.mark.full
def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path, state: Path) -> None:
    """A CRD that the API server refuses, say."""
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "bad"},
    }
    (tmp_path / "bad.yaml").write_text(json.dumps(crd))
    with pytest.raises(handle.ClusterError, match="spec"):
        cluster.up(options.Options(name="bad", nodes=0, crds=tmp_path, tied=True))
    root = state / "muster" / "local" / "bad"
    assert not root.exists()
    assert left_processes(root) == []


@pytest.fixture
def theirs(there: Cluster, tmp_path: Path) -> Path:
    """Give the kubeconfig of somebody's cluster."""
    file = tmp_path / "config"
    file.write_text(there.kubeconfig.read_text())
    return file


def local(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run `muster local`."""
    state = os.environ["XDG_STATE_HOME"]
    return forkserver.run(("local", *argv), Path(state), {"XDG_STATE_HOME": state})


def names_of(made: Cluster, kind: str) -> set[str]:
    """Names of all objects of a kind that are not being deleted."""
    items = ask(made).list(kind)
    return {one["metadata"]["name"] for one in items if "deletionTimestamp" not in one["metadata"]}


@pytest.mark.full
def test_a_cluster_that_was_there_is_given_what_it_lacks_and_left_as_it_was(
    running: Cluster, there: Cluster, theirs: Path, few_crds: Path
) -> None:
    """Nodes of its own, CRDs; only kwok is started. `env` fails for another cluster's context."""
    kinds = ("Node", "Namespace", "CustomResourceDefinition")
    before = {kind: names_of(there, kind) for kind in kinds}
    text = theirs.read_text()
    said: list[str] = []
    asked = options.Options(name="guest", kubeconfig=theirs, nodes=2, crds=few_crds)
    assert set(cluster.up(asked, said.append).pids()) == {"kwok"}
    assert said[0] == f"{theirs} is there: its cluster {there.server} is used"
    nodes = sorted(names_of(there, "Node") - before["Node"])
    assert len(nodes) == 2
    assert "kwok.x-k8s.io/node" in taints_of(ask(there).get("Node", nodes[0]))
    create(there, pod("guest", "Never", {RUN: "0.2", CODES: "7,0"}, nodeName=nodes[1]))
    assert exit_codes(end_of(there, "guest", "Failed")) == [7]
    status = local("status", "--name", "guest")
    assert "2 of 2 ready" in status.stdout
    assert str(theirs) in status.stdout
    assert status.stdout.count("pid") == 1
    env = f'eval "$({" ".join(LOCAL)} env --name guest)"; kubectl config view --minify -o name'
    assert subprocess.run(["sh", "-c", env], check=True, timeout=PATIENCE).returncode == 0
    theirs.write_text(running.kubeconfig.read_text())
    moved = local("env", "--name", "guest")
    assert (moved.returncode, moved.stdout) == (1, "false\n")
    assert f"{theirs} leads to another cluster now" in moved.stderr
    theirs.write_text(text)

    down = local("down", "--name", "guest")
    assert (down.returncode, down.stderr) == (0, "guest is down\n")
    assert {kind: names_of(there, kind) for kind in before} == before
    assert theirs.read_text() == text
    assert all(there.pids().values())
    assert "guest" not in cluster.names()


@pytest.mark.full
def test_what_is_in_use_stays_and_is_said(there: Cluster, theirs: Path, few_crds: Path) -> None:
    """A CRD with an object, and one that somebody changed."""
    asked = options.Options(name="guest", kubeconfig=theirs, crds=few_crds, tied=True)
    made = cluster.up(asked)
    assert made.pids() == {}
    group = {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "kept"},
        "spec": {"minMember": 1},
    }
    create(there, json.dumps(group))
    named = {"name": "jaxjobs.kubeflow.org"}
    api, crds = ask(there), "CustomResourceDefinition"
    path = f"{api.path(crds, named['name'])}?fieldManager=somebody"
    labelled = {"metadata": {"labels": {"ours": "true"}}}
    api.send("PATCH", path, labelled, "application/merge-patch+json")
    said: list[str] = []
    assert cluster.down("guest", said.append)
    stay = {
        "jaxjobs.kubeflow.org": "somebody changed it since",
        "podgroups.scheduling.incubator.k8s.io": "there is PodGroup default/kept",
    }
    assert said == [f"CRD {name} stays: {reason}" for name, reason in stay.items()]

    # As an earlier operator's, which serves other versions: it is used as it is.
    spec = api.get(crds, named["name"])["spec"]
    spec["versions"][0]["name"] = "v1beta1"
    api.delete(crds, named["name"])
    api.wait(crds, lambda found: named["name"] not in found)
    other = {"apiVersion": "apiextensions.k8s.io/v1", "kind": crds}
    create(there, json.dumps({**other, "metadata": named, "spec": spec}))
    cluster.up(asked, said.append)
    assert "2 CRDs, 2 more were there" in "".join(said)
    cluster.down("guest")
    assert names_of(there, crds) == set(stay)
    for name in stay:
        api.delete(crds, name)
    api.wait(crds, lambda found: not found.keys() & set(stay))


@pytest.mark.full
def test_a_user_without_permissions_gets_an_error_before_anything_is_written(
    there: Cluster, theirs: Path, tmp_path: Path
) -> None:
    """By a token, as the users of most clusters have."""
    api = ask(there)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
    api.create(account)
    asked = api.send("POST", api.path("ServiceAccount", "nobody", "token"), {"spec": {}})
    document = yaml.safe_load(theirs.read_text())
    for token, words in ((asked["status"]["token"], "forbidden"), ("stale", "Unauthorized")):
        document["users"][0]["user"] = {"token": token}
        file = tmp_path / "refused"
        file.write_text(yaml.safe_dump(document))
        done = local("up", "--name", "guest", "--kubeconfig", str(file))
        assert done.returncode == 1
        assert f"muster local: {file}: " in done.stderr
        assert words in done.stderr
        assert "guest" not in cluster.names()


@contextlib.contextmanager
def tied_to_itself(
    file: Path, no_crds: Path
) -> Iterator[tuple[subprocess.Popen[str], list[processes.Identity]]]:
    """Let a process use a cluster for itself alone; give it, and what it has started."""
    code = (
        "import sys; from pathlib import Path; from muster.local import cluster, options\n"
        "cluster.up(options.Options(name='tied', nodes=1, crds=Path(sys.argv[1]), tied=True,\n"
        "                           kubeconfig=Path(sys.argv[2])))\n"
        "print('up', flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, str(no_crds), str(file)]
    home = layout.Layout("tied").home
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == "up\n"
        found = [processes.read(path) for path in (home / "run").glob("*.pid")]
        started = [one for one in found if one]
        assert len(started) == 2  # kwok and the guard
        yield it, started


@pytest.mark.full
def test_a_cluster_that_is_up_is_not_taken_for_another(running: Cluster, theirs: Path) -> None:
    """Nor another kubeconfig's cluster for it."""
    with pytest.raises(handle.ClusterError, match=r"shared is up already.* a --name"):
        cluster.up(options.Options(name="shared", kubeconfig=theirs))
    with pytest.raises(handle.ClusterError, match="local down --name shared"):
        cluster.up(options.Options(name="shared"), fresh=True)
    assert all(running.pids().values())


@pytest.mark.full
def test_down_of_a_cluster_that_is_gone_reports_what_may_stay_there(
    running: Cluster, there: Cluster, copy: Path, no_crds: Path
) -> None:
    """Whatever became of the cluster, its files and processes here are removed.

    The cluster `there` is not available after this story.
    """
    cluster.up(options.Options(name="guest", crds=no_crds, kubeconfig=copy))
    with tied_to_itself(copy, no_crds) as (starter, started):
        cluster.down("there")
        starter.kill()
    assert not copy.exists()
    assert not any(there.pids().values())
    assert processes.wait_gone(started, seconds=PATIENCE) == []
    assert "tied" not in cluster.names()
    down = local("down", "--name", "guest")
    assert down.returncode == 0
    assert f"what was put into the cluster {there.server} stays" in down.stderr
    assert f"{nodes.MARK}=guest-" in down.stderr
    assert cluster.names() == ["shared"]
    assert all(running.pids().values())
    running.check()
