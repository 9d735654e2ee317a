# SPDX-License-Identifier: Apache-2.0
"""Find the programs of a control plane, or get them.

The order: the folder KUBEBUILDER_ASSETS, PATH, this user's cache, the official archives of which a
digest is kept here, and a build with Go, once for each state of its module. API server, controller
manager and scheduler always come from one place, so that they are of one version.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import muster
from muster.local import downloads, handle, layout, options
from muster.local.progress import progress

ASSETS = "KUBEBUILDER_ASSETS"

_CORE = (handle.API_SERVER, handle.CONTROLLER_MANAGER, handle.SCHEDULER)

Found = dict[str, Path]


@dataclass(frozen=True, slots=True)
class Build:
    """What one run of Go builds: a module's `sources` below tools/ and component -> program."""

    module: str
    sources: tuple[str, ...]
    packages: tuple[str, ...]
    programs: Mapping[str, str]
    title: str
    cgo: bool = True


_PROGRAM = "controlplane"
CONTROL_PLANE = Build(
    _PROGRAM,
    ("main.go", "oracle.go"),
    (".",),
    dict.fromkeys(handle.PROGRAMS, _PROGRAM),
    "the control plane of Kubernetes",
    cgo=False,
)
_REQUIREMENTS = {options.KUBERNETES_VERSION: "go", options.OLDER_VERSION: "kubernetes-1.36"}
"""Versions that can be built -> the module's files that name what it is built from."""
# Debug information takes a fifth of the time of a build, and the linker would drop it anyway.
_GO_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-dwarf=false")
_GOGC = "800"
"""The compiler collects garbage less often, which takes more memory and less time."""
_PACKAGES = 3000
"""Packages of the control plane, about; Go prints each package when its compilation starts."""
_SHARES = (0.0, 0.17, 0.33, 0.62, 0.83, 0.94, 1.0), (0.0, 0.10, 0.22, 0.48, 0.74, 0.86, 1.0)
"""Shares of the packages that were started, and of the time, measured on two cores."""

# What the output of a failed build means; the first that is found is shown.
_CURES = (
    (r"requires go >=", "this Go is too old: install {go} or newer from https://go.dev/dl/"),
    (r"no space left on device", "the disk is full: a first build needs about 6 GiB"),
    (r"signal: killed|cannot allocate memory", "memory ran out: the build needs about 3 GiB"),
    (
        r"dial tcp|no such host|i/o timeout|connection refused|proxyconnect|module lookup",
        "no module proxy could be reached: check the network, or set GOPROXY to one that can",
    ),
    (r"checksum mismatch|SECURITY ERROR", "the module proxy serves other files than go.sum lists"),
)


class BinariesError(handle.ClusterError):
    """The programs cannot be had; the message says what to install."""


class BuildError(BinariesError):
    """The build is not possible; the message says what is missing and what to install."""


def find(
    version: str | None = None, programs: Sequence[str] = handle.PROGRAMS
) -> dict[str, list[str]]:
    """Command line of each of `programs`, gotten first if need be; version None is any."""
    found: Found = (_assets(version) or _places(version)) if programs else {}
    for more in (_cached, _obtained):
        if missing(found, programs):
            found = more(found, version, programs)
    if lost := missing(found, programs):
        text = f"{', '.join(lost)} cannot be run in {layout.cache_root()}: delete that folder"
        raise BinariesError(f"{text}, or set XDG_CACHE_HOME if its file system runs no programs")
    return {name: [str(found[name])] for name in programs}


def missing(found: Found, programs: Sequence[str] = handle.PROGRAMS) -> list[str]:
    """Programs still to be had."""
    return [name for name in programs if name not in found]


def merge(found: Found, folder: Path) -> Found:
    """`found`, and of the rest what is in `folder`; the core only as a whole."""
    there = {name: path for name, path in _programs(folder).items() if name not in found}
    if missing(there, _CORE):
        there = {name: path for name, path in there.items() if name not in _CORE}
    return {**there, **found}


def _programs(folder: Path) -> Found:
    paths = {name: folder / name for name in handle.PROGRAMS}
    return {name: at for name, at in paths.items() if at.is_file() and os.access(at, os.X_OK)}


def _assets(version: str | None) -> Found:
    """Take the folder of KUBEBUILDER_ASSETS; what an envtest archive lacks is downloaded."""
    if not os.environ.get(ASSETS):
        return {}
    folder, reason = Path(os.environ[ASSETS]), ""
    there = _programs(folder)
    if _CORE[0] in there and version not in {None, version_of(folder)}:
        return {}
    if _CORE[0] in there and missing(there, _CORE):
        try:
            rest = _programs(
                downloads.fetch(missing(there, _CORE), version_of(folder), exact=True)
            )
            there |= {name: rest[name] for name in missing(there, _CORE)}
        except downloads.DownloadError as error:
            reason = f" ({error})"
    if lacking := missing(there, _CORE):
        lacks = ", ".join(lacking if reason else _CORE[:1])
        print(f"{ASSETS} is not used: no {lacks} in {folder}{reason}", file=sys.stderr)
    return {} if lacking else there


def _places(version: str | None) -> Found:
    found: Found = {}
    for folder in map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep))):
        if not (version and _CORE[0] in _programs(folder) and version_of(folder) != version):
            found = merge(found, folder)
    # A kubectl alone, as most machines have one, may be of whatever age.
    return found if _CORE[0] in found else {}


def version_of(folder: Path) -> str:
    """Version of the API server in that folder, as it says; empty if it does not."""
    try:
        asked = [str(folder / _CORE[0]), "--version"]
        text = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"v(\d+\.\d+\.\d+\S*)", text)
    return match[1] if match else ""


def _cached(found: Found, version: str | None, _programs: Sequence[str]) -> Found:
    if version is None or version in _REQUIREMENTS:
        with contextlib.suppress(BuildError):  # no sources: then none were built
            found = merge(found, build_folder(version or options.KUBERNETES_VERSION))
    if version:
        return merge(found, downloads.folder(version))
    return merge(found, downloads.newest(options.KUBERNETES_VERSION.rpartition(".")[0]))


def _obtained(found: Found, version: str | None, programs: Sequence[str]) -> Found:
    there = version_of(found[_CORE[0]].parent) if _CORE[0] in found else ""
    wanted = version or there or options.KUBERNETES_VERSION
    try:
        exact = version is not None
        return merge(found, downloads.fetch(missing(found, programs), wanted, exact=exact))
    except downloads.DownloadError as error:
        no_download = str(error)
    version = version or options.KUBERNETES_VERSION
    if version not in _REQUIREMENTS:
        raise BinariesError(
            f"Kubernetes {version} cannot be downloaded ({no_download}), and only "
            f"{' and '.join(_REQUIREMENTS)} can be built"
        )
    print(f"no download ({no_download}); building instead", file=sys.stderr)
    try:
        return merge(found, build(version))
    except BuildError as error:
        raise BinariesError(
            f"no {', '.join(missing(found, programs))}.\ndownload: {no_download}\nbuild: {error}\n"
            f"Or name a folder that has all of {', '.join(handle.PROGRAMS)} by {ASSETS}."
        ) from error


def build_folder(version: str = options.KUBERNETES_VERSION, what: Build = CONTROL_PLANE) -> Path:
    """Where the built programs are, or will be: keyed by version, module files and flags."""
    flags = (_ldflags(version), *_GO_FLAGS, f"cgo={what.cgo}")
    digest = hashlib.sha256("\n".join(flags).encode())
    stem = _REQUIREMENTS[version]
    for name in (*what.sources, f"{stem}.mod", f"{stem}.sum"):
        digest.update((_module(what) / name).read_bytes())
    return layout.cache_root() / f"v{version}" / f"built-{digest.hexdigest()[:16]}"


def _ldflags(version: str) -> str:
    major, minor, _ = version.split(".")
    variables = {
        "k8s.io/component-base/version.gitVersion": f"v{version}",
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/component-base/version.gitTreeState": "clean",
        "sigs.k8s.io/kwok/pkg/consts.Version": f"v{options.KWOK_VERSION}",
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in variables.items())])


def build(version: str = options.KUBERNETES_VERSION, what: Build = CONTROL_PLANE) -> Path:
    """Build unless somebody did; `build_folder()` has a program for each component then."""
    target = build_folder(version, what)
    if target.exists():
        return target
    if not shutil.which("go"):
        wanted = _go_wanted(what)
        raise BuildError(f"Go is missing: install {wanted} or newer from https://go.dev/dl/")
    text = f"waiting: another process builds {what.title} {version}"
    with layout.held(
        target.with_suffix(".lock"), lambda: print(text, file=sys.stderr, flush=True)
    ):
        if target.exists():
            return target
        for stale in target.parent.glob(f".{target.name}-*"):
            shutil.rmtree(stale)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True
        ) as work:
            fresh = Path(work) / "programs"
            fresh.mkdir()
            _run_go(version, what, fresh)
            for name, program in what.programs.items():
                if name != program:
                    (fresh / name).symlink_to(program)
            fresh.rename(target)
    return target


def _run_go(version: str, what: Build, into: Path) -> None:
    flags = (*_GO_FLAGS, f"-modfile={_REQUIREMENTS[version]}.mod", f"-ldflags={_ldflags(version)}")
    argv = ["go", "build", "-v", *flags, "-o", f"{into}/", *what.packages]
    env = {
        "GOGC": _GOGC,
        **os.environ,
        "GOWORK": "off",
        **({} if what.cgo else {"CGO_ENABLED": "0"}),
    }
    lines: list[str] = []
    start = time.monotonic()
    text = f"building {what.title} {version} (once, minutes)"
    pipe, none, where = subprocess.PIPE, subprocess.DEVNULL, _module(what)
    with (
        progress(text, lambda: _detail(len(lines), time.monotonic() - start, what)),
        subprocess.Popen(argv, cwd=where, env=env, text=True, stderr=pipe, stdout=none) as process,
    ):
        assert process.stderr is not None
        lines.extend(process.stderr)
    if process.returncode:
        raise BuildError(explain("".join(lines), what))


def _detail(packages: int, seconds: float, what: Build = CONTROL_PLANE) -> str:
    """Return the number of packages and, for the control plane, an estimate of the time left."""
    at, pairs = packages / _PACKAGES, itertools.pairwise(zip(*_SHARES, strict=True))
    ways = (y + (v - y) * (at - x) / (u - x) for (x, y), (u, v) in pairs if at <= u)
    share = next(ways, 1.0)
    text = f"{packages} packages" if packages else ""
    # Earlier, downloads of modules are most of the time.
    if what is not CONTROL_PLANE or not 0.04 < share < 1:
        return text
    minutes = math.ceil(seconds * (1 - share) / share / 60)
    return f"{text} of about {_PACKAGES}, about {minutes} min left"


def explain(output: str, what: Build = CONTROL_PLANE) -> str:
    """Explain what a failed build's output means, what to do about it, and its last lines."""
    cure = next((cure for sign, cure in _CURES if re.search(sign, output)), "the build failed")
    tail = "\n".join(output.splitlines()[-5:])
    return f"{cure.format(go=_go_wanted(what))}\n{tail}"


def _go_wanted(what: Build) -> str:
    match = re.search(r"^go (\d+\.\d+)", (_module(what) / "go.mod").read_text(), re.MULTILINE)
    assert match
    return f"Go {match[1]}"


def _module(what: Build) -> Path:
    found = muster.shipped(f"tools/{what.module}")
    if found is None:
        raise BuildError(f"the sources of {what.title} are missing from this installation")
    return found
