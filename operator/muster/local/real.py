# SPDX-License-Identifier: Apache-2.0
"""Real nodes on this machine: kubelet, containerd and DNS in namespaces and folders of their own.

The cluster has one network namespace and each node one mount namespace, held by processes and by
nothing else: when these end, so do addresses, rules and mounts. What a node writes outside its
folder lands in memory, or in that folder, because it is mounted there. Sysctls that kubelet wants
are shown to it as files and never set. Only cgroups are the machine's; they bear its name.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING

from muster.kube.certificates import PairFiles, self_signed
from muster.local import cgroups, images, processes
from muster.local.dockerfile import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
NODE = "real"
_MOUNTS = "mounts"
_PAUSE_IMAGE = "localhost/muster/pause:1"
_PAUSE_ARCHIVE = "pause.tar"
DOMAIN = "cluster.local"
SERVICES = "10.96.0.0/12"
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
YEAR = 365 * 24 * 3600.0
_AT_ONCE = 2
"""Imports side by side: they unpack, which takes a core each."""


class RealNodeError(Exception):
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


def components(options: Options) -> tuple[str, ...]:
    """Name what runs for the real nodes, in the order of the start; the network comes first."""
    if not options.real_nodes:
        return ()
    each = ((f"{what}-{i + 1}") for i in range(options.real_nodes) for what in _EACH)
    return (COREDNS, KUBE_PROXY, *each)


_EACH = (_MOUNTS, CONTAINERD, KUBELET)


def _index_of(component: str) -> int:
    """Which node a component belongs to, from 0; -1 if to none."""
    what, _, number = component.rpartition("-")
    return int(number) - 1 if what in _EACH else -1


def folder(files: Layout, index: int) -> Path:
    """All that a node keeps."""
    return files.home / "nodes" / node_name(index)


def command(component: str, files: Layout, commands: Mapping[str, list[str]]) -> list[str]:
    """Command line of a component, inside the namespaces where it belongs."""
    index = _index_of(component)
    if component == NETWORK:
        return ["unshare", "--net", "sleep", "infinity"]
    if component == COREDNS:
        return [*inside(files), *commands[COREDNS], "-conf", str(_config(files, "Corefile"))]
    if component == KUBE_PROXY:
        config = _config(files, "kube-proxy.json")
        return [*inside(files), *commands[KUBE_PROXY], f"--config={config}", "--v=1"]
    if component.startswith(_MOUNTS):
        return ["unshare", "--mount", "sh", "-ec", _mounts(folder(files, index))]
    if component.startswith(CONTAINERD):
        own = [CONTAINERD, "--config", str(folder(files, index) / "containerd.toml")]
        return [*_grouped(files, index), *inside(files, index), *own]
    flags = [
        f"--config={folder(files, index) / 'kubelet.json'}",
        f"--kubeconfig={files.kubeconfig_of(component)}",
        f"--hostname-override={node_name(index)}",
        f"--node-ip={node_address(index)}",
        f"--node-labels={_NAMED}=true",
    ]
    return [*_grouped(files, index), *inside(files, index), *commands[KUBELET], *flags]


def inside(files: Layout, index: int = -1) -> list[str]:
    """Return what to put before a command line that is to run in the network, or on a node."""
    argv = ["nsenter", f"--net=/proc/{_holder(files, NETWORK)}/ns/net"]
    if index >= 0:
        argv.append(f"--mount=/proc/{_holder(files, f'{_MOUNTS}-{index + 1}')}/ns/mnt")
    return [*argv, "--"]


def _holder(files: Layout, component: str) -> int:
    one = processes.read(files.pid(component))
    if one is None or not processes.alive(one):
        raise RealNodeError(f"{component} of {files.name} has ended: `muster local down` and up")
    return one.pid


def _grouped(files: Layout, index: int) -> list[str]:
    """Enter the node's own cgroup, where all that containerd starts for itself stays too."""
    where = [
        str(top / group(files) / node_name(index) / "system") for top in cgroups.hierarchies()
    ]
    script = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'
    return ["sh", "-ec", script, "sh", *where, "--"]


def _mounts(own: Path) -> str:
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
    lines += [f"touch {shlex.quote(str(own / 'mounted'))}", "exec sleep infinity"]
    return "\n".join(lines)


def _config(files: Layout, name: str) -> Path:
    return files.home / "nodes" / name


def prepare(files: Layout, options: Options, commands: Mapping[str, list[str]]) -> None:
    """Write what the components read, and make folders, cgroups and the image of sandboxes."""
    pair = self_signed("kube-apiserver", time.time(), YEAR, group="system:masters")
    client(files).write(pair)
    (files.home / "nodes").mkdir()
    _config(files, "Corefile").write_text(_corefile(files))
    _config(files, "kube-proxy.json").write_text(json.dumps(_kube_proxy(files)))
    pause_image(files, commands[PAUSE][0])
    for index in range(options.real_nodes):
        own = folder(files, index)
        for place in ("lib", "log", "cni"):
            (own / place).mkdir(parents=True)
        (own / "cni" / "muster.conflist").write_text(json.dumps(_cni(index)))
        (own / "containerd.toml").write_text(_containerd(own))
        (own / "kubelet.json").write_text(json.dumps(_kubelet(files, index)))
        for top in cgroups.hierarchies():
            cgroups.make(top, top / group(files) / node_name(index) / "system")


def connect(files: Layout, options: Options) -> None:
    """Fill the namespace that the network's holder has made: it leads to this machine only."""
    name, pid = _link(files), str(_holder(files, NETWORK))
    _await(lambda: Path(f"/proc/{pid}/ns/net").stat() != Path("/proc/self/ns/net").stat())
    _do("ip", "link", "add", name, "type", "veth", "peer", "name", "machine", "netns", pid)
    _do("ip", "addr", "add", f"{address(files, 2)}/30", "dev", name)
    _do("ip", "link", "set", name, "up")
    own = (_DNS, *map(node_address, range(options.real_nodes)))
    script = [
        "ip link set lo up",
        f"ip addr add {address(files)}/30 dev machine",
        "ip link set machine up",
        *(f"ip addr add {one}/32 dev lo" for one in own),
        # kube-proxy changes where packets go that have a way already.
        f"ip route add {SERVICES} dev lo src {node_address(0)}",
        "echo 1 >/proc/sys/net/ipv4/ip_forward",
    ]
    _do(*inside(files), "sh", "-ec", "\n".join(script))


def await_needs(component: str, files: Layout) -> None:
    """Wait until what a component cannot do without is there."""
    index = _index_of(component)
    if component.startswith(CONTAINERD):
        _await((folder(files, index) / "mounted").exists)
    elif component.startswith(KUBELET):
        _load_into(files, index, [_config(files, _PAUSE_ARCHIVE)])


def _await(ready: Callable[[], bool], seconds: float = _SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise RealNodeError(f"not ready in {seconds:.0f} s")
        time.sleep(0.02)


def load(files: Layout, options: Options, images: Iterable[Path]) -> None:
    """Import docker-archives into every node, so that pods find them there."""
    archives = list(images)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda i: _load_into(files, i, archives), range(options.real_nodes)))


def _load_into(files: Layout, index: int, images: Iterable[Path]) -> None:
    """Import docker-archives into a node's containerd, which may have been started just now."""
    ctr = [*inside(files, index), "ctr", "--namespace=k8s.io"]
    _await(lambda: _run(*ctr, "version").returncode == 0)
    for image in images:
        _do(*ctr, "images", "import", "--snapshotter=overlayfs", str(image))


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
            "x509": {"clientCAFile": str(client(files).certificate)},
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


def client(files: Layout) -> PairFiles:
    """Certificate and key by which kubelets know the API server."""
    own = files.certificate.with_name
    return PairFiles(own("kubelet-client.crt"), own("kubelet-client.key"))


def users(options: Options) -> dict[str, tuple[str, ...]]:
    """Say whom else the API server knows: component -> its name there, and its groups."""
    if not options.real_nodes:
        return {}
    each = {
        f"{KUBELET}-{i + 1}": (f"system:node:{node_name(i)}", "system:nodes")
        for i in range(options.real_nodes)
    }
    return {COREDNS: (COREDNS, "system:masters"), KUBE_PROXY: (f"system:{KUBE_PROXY}",), **each}
