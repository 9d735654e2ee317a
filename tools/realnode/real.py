# SPDX-License-Identifier: Apache-2.0
"""Real nodes on this machine: kubelet, containerd and DNS in namespaces and folders of their own.

The cluster has one network namespace and each node one mount namespace, held by processes and by
nothing else: when these end, so do addresses, rules and mounts. What a node writes outside its
folder lands in memory, or in that folder, because it is mounted there. Sysctls that kubelet wants
are shown to it as files and never set. Only cgroups are the machine's; they bear its name.

`extra` gives `muster.local` all of it as command lines: each waits until what it needs is there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from muster.kube.certificates import PairFiles, self_signed
from muster.local import binaries, cluster, layout, nodes
from muster.local.handle import DOMAIN, SERVICES, ClusterError, Extra
from realnode import cgroups, images
from realnode.dockerfile import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from muster.local.handle import Cluster
    from muster.local.layout import Layout
    from muster.local.options import Options

KUBELET = "kubelet"
KUBE_PROXY = "kube-proxy"
COREDNS = "coredns"
PAUSE = "pause"
CONTAINERD = "containerd"
NETWORK = "network"
"""The process that holds the network namespace."""
PROGRAMS = (KUBELET, KUBE_PROXY, COREDNS, PAUSE)
"""What is built for real nodes beside the control plane."""
BUILDS = (
    binaries.Build(
        "controlplane",
        ("node/main.go", "pause/main.go"),
        ("./node", "./pause"),
        {KUBELET: "node", KUBE_PROXY: "node", PAUSE: "pause"},
        "kubelet and kube-proxy of Kubernetes",
    ),
    binaries.Build("dns", ("main.go",), (".",), {COREDNS: "dns"}, "CoreDNS for Kubernetes"),
)
MAX_NODES = 16
NODE = "real"
_MOUNTS = "mounts"
_PAUSE_IMAGE = "localhost/muster/pause:1"
_PAUSE_ARCHIVE = "pause.tar"
# Apart from the ranges of services and of simulated pods (10.128.0.0/9).
_DNS = "10.112.0.253"
_NAMED = "local.muster.kubeflow.org/real"
"""Label of a real node."""
_PLUGINS = ("/usr/lib/cni", "/opt/cni/bin")
_NEEDED_PLUGINS = ("ptp", "host-local", "loopback")
_HIDDEN = ("/run", "/var/run", "/var/lib", "/var/log")
_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What kubelet finds set, so that it does not set it."""
_SECONDS = 60.0
_YEAR = 365 * 24 * 3600.0
_AT_ONCE = 2
"""Imports side by side: they unpack, which takes a core each."""


class RealNodeError(ClusterError):
    """There can be no real node here; the message says what is missing, and what to do."""


# What is looked for before anything is touched: the package of each program, and what the kernel
# must do, tried out in namespaces that end with the trial.
_PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}
_FEATURES = {
    "network and mount namespaces": "true",
    "virtual network pairs (veth)": "ip link add name one type veth peer name two",
    "nftables with NAT": "nft 'add table ip t; add chain ip t c "
    "{ type nat hook postrouting priority 0; }; add rule ip t c masquerade'",
    "the overlay file system below {home}": "mkdir $T/l $T/u $T/w $T/m && "
    "mount -t overlay overlay -o lowerdir=$T/l,upperdir=$T/u,workdir=$T/w $T/m",
}
_ELSEWHERE = (
    "Without them, a cluster of kind (https://kind.sigs.k8s.io) or minikube does as well: "
    "`kind create cluster --kubeconfig FILE`, then `muster local up --kubeconfig FILE`."
)


def up(asked: Options, count: int = 1, say: Callable[[str], None] = lambda _: None) -> Cluster:
    """Bring up a cluster with so many real nodes, as `cluster.up` does.

    It has simulated nodes only if they are asked for; these have the taint `nodes.KEEP_OFF`.
    RealNodeError if this machine cannot have real nodes; BinariesError as in `cluster.up`.
    """
    files = layout.Layout(asked.name)
    require(files.home)
    wanted = dataclasses.replace(
        asked,
        nodes=asked.nodes or 0,
        kwok=asked.kwok and bool(asked.nodes),
        taints=(nodes.KEEP_OFF, *asked.taints),
    )
    return cluster.up(wanted, say, extra(files, count))


def extra(files: Layout, count: int) -> Extra:
    """Return what makes the cluster of these files one with so many real nodes.

    BinariesError if a program that they need cannot be built.
    """
    commands = programs()
    own = (sys.executable, str(Path(__file__).parent))
    client = _client(files)
    return Extra(
        components={
            NETWORK: (*own, NETWORK, files.name, str(count)),
            **{name: _command(name, files, commands) for name in _components(count)},
        },
        users=_users(count),
        address=address(files),
        inside=enter(files),
        flags=(
            f"--kubelet-client-certificate={client.certificate}",
            f"--kubelet-client-key={client.key}",
            "--kubelet-preferred-address-types=InternalIP",
        ),
        sweep=(*own, "sweep", files.name),
    )


def programs() -> dict[str, str]:
    """Return the path of each program that real nodes need; build those that are missing."""
    found: dict[str, str] = {}
    try:
        for one in BUILDS:
            folder = binaries.build(what=one)
            found |= {name: str(folder / name) for name in one.programs}
    except binaries.BuildError as error:
        raise binaries.BinariesError(f"no {', '.join(PROGRAMS)}.\nbuild: {error}") from error
    return found


def require(home: Path) -> None:
    """Make sure that this machine can have real nodes with files below `home`.

    RealNodeError names all that is missing; nothing was touched then.
    """
    lacking = (
        _lacking_user() or [*_lacking_packages(), *cgroups.lacking()] or _lacking_kernel(home)
    )
    hidden = [place for place in _HIDDEN if home.resolve().is_relative_to(place)]
    if hidden:
        lacking.append(f"{home} is below {hidden[0]}: set XDG_STATE_HOME to another folder")
    if lacking:
        text = "\n".join(f"  - {one}" for one in lacking)
        raise RealNodeError(f"real nodes cannot be had here:\n{text}\n{_ELSEWHERE}")


def _lacking_user() -> list[str]:
    if sys.platform != "linux":
        return ["they need Linux"]
    if os.geteuid():
        return ["they need root: run this command by sudo, or in a virtual machine of yours"]
    return []


def _lacking_packages() -> list[str]:
    packages = {package for name, package in _PACKAGES.items() if not shutil.which(name)}
    if not _plugin_folder():
        packages.add("containernetworking-plugins")
    if not packages:
        return []
    listed = " ".join(sorted(packages))
    return [f"programs are missing: apt-get install --no-install-recommends {listed}"]


def _plugin_folder() -> str:
    whole = (one for one in _PLUGINS if all(Path(one, p).exists() for p in _NEEDED_PLUGINS))
    return next(whole, "")


def _lacking_kernel(home: Path) -> list[str]:
    near = next(folder for folder in (home, *home.parents) if folder.is_dir())
    lacking = []
    for feature, trial in _FEATURES.items():
        # Below a tmpfs nothing is left of the trial, but it would say nothing of `home`.
        script = (
            f"T=$(mktemp -d -p {shlex.quote(str(near))} .muster-XXXXXX) || exit 1\n({trial})\n"
        )
        script += "s=$?; umount $T/m 2>/dev/null; rm -rf $T; exit $s"
        done = _run("unshare", "--net", "--mount", "sh", "-c", script)
        if done.returncode:
            words = done.stderr.strip().splitlines()[:1] or ["no reason given"]
            lacking.append(f"the kernel lacks {feature.format(home=near)} ({words[0]})")
    return lacking


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _do(*argv: str) -> None:
    done = _run(*argv)
    if done.returncode:
        raise RealNodeError(f"{shlex.join(argv)}: {(done.stderr or done.stdout).strip()}")


def _key(files: Layout) -> str:
    return hashlib.sha256(str(files.home.resolve()).encode()).hexdigest()[:8]


def group(files: Layout) -> str:
    """Name of the cluster's cgroup in each hierarchy; no other cluster of this machine has it."""
    return f"muster-{files.name}-{_key(files)}"


def _link(files: Layout) -> str:
    return f"mu{_key(files)}"


def address(files: Layout, end: int = 1) -> str:
    """Address of one end of the link into the cluster's network: 1 inside, 2 on the machine.

    They are of the range set apart for benchmarks, which no real network has.
    """
    # 198.18.0.0/16 in quarters; simulated guests have the first of them.
    number = int(_key(files), 16) % 0x3000 + 0x1000
    return f"198.18.{number >> 6}.{(number & 63) * 4 + end}"


def node_address(index: int) -> str:
    """Address of node `index` (from 0) inside the cluster's network."""
    return f"10.112.0.{index + 1}"


def node_name(index: int) -> str:
    """Name of node `index`, counted from 0."""
    return f"{NODE}-{index + 1}"


def _components(count: int) -> tuple[str, ...]:
    """Name what runs in the network, in the order of the start."""
    each = ((f"{what}-{i + 1}") for i in range(count) for what in _EACH)
    return (COREDNS, KUBE_PROXY, *each)


_EACH = (_MOUNTS, CONTAINERD, KUBELET)


def _index_of(component: str) -> int:
    """Which node a component belongs to, from 0; -1 if to none."""
    what, _, number = component.rpartition("-")
    return int(number) - 1 if what in _EACH else -1


def folder(files: Layout, index: int) -> Path:
    """All that a node keeps."""
    return files.home / "nodes" / node_name(index)


def _command(component: str, files: Layout, commands: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command line of a component, inside the namespaces where it belongs."""
    index = _index_of(component)
    if component == COREDNS:
        return (*enter(files), commands[COREDNS], "-conf", str(_config(files, "Corefile")))
    if component == KUBE_PROXY:
        config = _config(files, "kube-proxy.json")
        return (*enter(files), commands[KUBE_PROXY], f"--config={config}", "--v=1")
    if component.startswith(_MOUNTS):
        script = _mounts(folder(files, index), _mark(files, component))
        waits = _await_script(files, NETWORK)
        return ("sh", "-ec", f'{waits}exec unshare --mount sh -ec "$1"', "sh", script)
    if component.startswith(CONTAINERD):
        own = (CONTAINERD, "--config", str(folder(files, index) / "containerd.toml"))
        return (*enter(files, index), *_grouped(files, index), *own)
    pause = _import(_config(files, _PAUSE_ARCHIVE))
    script = f'{shlex.join(pause)} && exec "$@"'
    flags = (
        f"--config={folder(files, index) / 'kubelet.json'}",
        f"--kubeconfig={files.kubeconfig_of(component)}",
        f"--hostname-override={node_name(index)}",
        f"--node-ip={node_address(index)}",
        f"--node-labels={_NAMED}=true",
    )
    before = (*_grouped(files, index), *_answering(files, index), "sh", "-ec", script, "sh")
    return (*enter(files, index), *before, commands[KUBELET], *flags)


def enter(files: Layout, index: int = -1) -> tuple[str, ...]:
    """Return what precedes a command line that is to run in the network, or on a node.

    It waits until the namespaces are ready, and ends where their holder has ended.
    """
    script = _await_script(files, NETWORK)
    enters = "exec nsenter --net=/proc/$pid/ns/net"
    if index >= 0:
        script += "net=$pid\n" + _await_script(files, f"{_MOUNTS}-{index + 1}")
        enters = "exec nsenter --net=/proc/$net/ns/net --mount=/proc/$pid/ns/mnt"
    return ("sh", "-ec", f'{script}{enters} -- "$@"', "sh")


def _answering(files: Layout, index: int) -> tuple[str, ...]:
    """Return what precedes a command line that needs the node's containerd, on that node."""
    script = _await_script(files, f"{CONTAINERD}-{index + 1}", "ctr version")
    return ("sh", "-ec", f'{script}exec "$@"', "sh")


def _await_script(files: Layout, component: str, ready: str = '[ -e "$mark-$pid" ]') -> str:
    """Return the lines of a shell script that wait until a component is ready, by that command."""
    ended = f"{component} of {files.name} has ended: take the cluster down and up again"
    return f"""\
mark={shlex.quote(str(_mark(files, component)))}
pid=
read -r pid birth <{shlex.quote(str(files.pid(component)))} || true
until
    kill -0 "$pid" 2>/dev/null || {{ echo {shlex.quote(ended)} >&2; exit 1; }}
    {ready} >/dev/null 2>&1
do sleep 0.02; done
"""


def _mark(files: Layout, component: str) -> Path:
    """Return the file that a component makes, its PID appended, once it is ready."""
    return files.home / "nodes" / f"{component}-ready"


def _grouped(files: Layout, index: int) -> tuple[str, ...]:
    """Enter the node's own cgroup, where all that containerd starts for itself stays too."""
    where = [
        str(top / group(files) / node_name(index) / "system") for top in cgroups.hierarchies()
    ]
    script = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'
    return ("sh", "-ec", script, "sh", *where, "--")


def _mounts(own: Path, mark: Path) -> str:
    """Shell script that makes a node's view of the files, says so, and holds it."""
    lines = [
        "mount --make-rshared /",
        f"mount --bind {shlex.quote(str(own / 'lib'))} /var/lib",
        f"mount --bind {shlex.quote(str(own / 'log'))} /var/log",
        "mount -t tmpfs -o mode=755 run /run",
    ]
    for name, value in _SYSCTLS.items():
        shown = f"/run/muster-{name.replace('/', '-')}"
        lines.append(f"echo {value} >{shown}; mount --bind {shown} /proc/sys/{name}")
    lines += [f"touch {shlex.quote(str(mark))}-$$", "exec sleep infinity"]
    return "\n".join(lines)


def _config(files: Layout, name: str) -> Path:
    return files.home / "nodes" / name


def prepare(files: Layout, count: int) -> None:
    """Write what the components read, and make folders, cgroups and the image of sandboxes."""
    pair = self_signed("kube-apiserver", time.time(), _YEAR, group="system:masters")
    _client(files).write(pair)
    (files.home / "nodes").mkdir()
    _config(files, "Corefile").write_text(_corefile(files))
    _config(files, "kube-proxy.json").write_text(json.dumps(_kube_proxy(files)))
    pause_image(files, programs()[PAUSE])
    for index in range(count):
        own = folder(files, index)
        for place in ("lib", "log", "cni"):
            (own / place).mkdir(parents=True)
        (own / "cni" / "muster.conflist").write_text(json.dumps(_cni(index)))
        (own / "containerd.toml").write_text(_containerd(own))
        (own / "kubelet.json").write_text(json.dumps(_kubelet(files, index)))
        for top in cgroups.hierarchies():
            cgroups.make(top, top / group(files) / node_name(index) / "system")


def hold_network(files: Layout, count: int) -> NoReturn:
    """Become the process that holds the cluster's network, which leads to this machine only."""
    name = _link(files)
    own = (_DNS, *map(node_address, range(count)))
    machine = [
        f"ip link add {name} type veth peer name machine netns $1",
        f"ip addr add {address(files, 2)}/30 dev {name}",
        f"ip link set {name} up",
    ]
    script = [
        # Descriptor 3 is the machine's network.
        f"nsenter --net=/proc/self/fd/3 sh -ec {shlex.quote('; '.join(machine))} sh $$",
        "ip link set lo up",
        f"ip addr add {address(files)}/30 dev machine",
        "ip link set machine up",
        *(f"ip addr add {one}/32 dev lo" for one in own),
        # kube-proxy changes where packets go that have a way already.
        f"ip route add {SERVICES} dev lo src {node_address(0)}",
        "echo 1 >/proc/sys/net/ipv4/ip_forward",
        f"touch {shlex.quote(str(_mark(files, NETWORK)))}-$$",
        "exec sleep infinity 3<&-",
    ]
    outside = 'exec 3</proc/self/ns/net; exec unshare --net sh -ec "$1"'
    os.execvp("sh", ["sh", "-ec", outside, "sh", "\n".join(script)])  # noqa: S606


def _await(ready: Callable[[], bool], seconds: float = _SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise RealNodeError(f"not ready in {seconds:.0f} s")
        time.sleep(0.02)


def load(made: Cluster, images: Iterable[Path]) -> None:
    """Import docker-archives into every node, so that pods find them there."""
    archives = list(images)

    def load_into(index: int) -> None:
        for archive in archives:
            _do(*enter(made.files, index), *_answering(made.files, index), *_import(archive))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(load_into, range(made.extra.nodes)))


def _import(archive: Path) -> tuple[str, ...]:
    ctr = ("ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs")
    return (*ctr, str(archive.resolve()))


def pause_image(files: Layout, program: str) -> Path:
    """Make the image of a pod's sandbox: one static program."""
    layer, made = _config(files, "pause-layer.tar"), _config(files, _PAUSE_ARCHIVE)
    with tarfile.open(layer, mode="w") as tar:
        tar.add(Path(program).resolve(), "pause")
    images.pack(made, [layer], Config(entrypoint=("/pause",)), [_PAUSE_IMAGE])
    layer.unlink()
    return made


def sweep(files: Layout) -> None:
    """End what is left in the cluster's cgroups and remove them and the link, if there are any."""
    tops = [top / group(files) for top in cgroups.hierarchies()] if sys.platform == "linux" else []
    trees = [top for top in tops if top.is_dir()]
    _await(lambda: not any(cgroups.killed(tree) for tree in trees))
    _await(lambda: all(cgroups.removed(tree) for tree in trees))
    if Path("/sys/class/net", _link(files)).exists():
        _run("ip", "link", "del", _link(files))  # it may go by itself just now


def _corefile(files: Layout) -> str:
    return f"""\
.:53 {{
    bind {_DNS}
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {files.kubeconfig_of(COREDNS)}
        pods insecure
        ttl 5
    }}
    cache {{
        success 1000 5
        denial 1000 1
    }}
}}
"""


def _kube_proxy(files: Layout) -> object:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(files.kubeconfig_of(KUBE_PROXY))},
        "hostnameOverride": node_name(0),
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # These sysctls are the machine's.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def _cni(index: int) -> object:
    subnet = f"10.113.{index}.0/24"
    ipam = {"type": "host-local", "subnet": subnet, "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "0.4.0",
        "name": "muster",
        # Each pod has a link of its own, so that all its traffic passes kube-proxy's rules.
        "plugins": [{"type": "ptp", "ipam": ipam}],
    }


def _containerd(own: Path) -> str:
    return f"""\
version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{_PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{_plugin_folder()}"
  conf_dir = "{own / "cni"}"
"""


def _kubelet(files: Layout, index: int) -> object:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node_address(index),
        "healthzPort": 0,
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group(files)}/{node_name(index)}",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(_client(files).certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [_DNS],
        "clusterDomain": DOMAIN,
        "resolvConf": "",  # nothing of the machine's in pods
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "oomScoreAdj": 0,
        "failSwapOn": False,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def _client(files: Layout) -> PairFiles:
    """Certificate and key by which kubelets know the API server."""
    own = files.certificate.with_name
    return PairFiles(own("kubelet-client.crt"), own("kubelet-client.key"))


def _users(count: int) -> dict[str, tuple[str, ...]]:
    """Return the users of the API server: component -> its name there, and its groups."""
    each = {
        f"{KUBELET}-{i + 1}": (f"system:node:{node_name(i)}", "system:nodes") for i in range(count)
    }
    return {COREDNS: (COREDNS, "system:masters"), KUBE_PROXY: (f"system:{KUBE_PROXY}",), **each}
