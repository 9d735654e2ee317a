# SPDX-License-Identifier: Apache-2.0
"""Find the programs of a control plane, or get them.

The order: the folder KUBEBUILDER_ASSETS, PATH, this user's cache, the official archives, and
a build with Go, once for each state of its module. API server, controller manager and scheduler
always come from one place, so that they are of one version.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from muster.local import components, download, layout, options, processes

if TYPE_CHECKING:
    from collections.abc import Sequence

ASSETS = "KUBEBUILDER_ASSETS"

_CORE = (components.API_SERVER, components.CONTROLLER_MANAGER, components.SCHEDULER)

Found = dict[str, Path]

_PROGRAM = "controlplane"
_FILES = ("main.go", "oracle.go", "go.mod", "go.sum")
_MAJOR, _MINOR, _ = options.KUBERNETES_VERSION.split(".")
_VARIABLES = {
    "k8s.io/component-base/version.gitVersion": f"v{options.KUBERNETES_VERSION}",
    "k8s.io/component-base/version.gitMajor": _MAJOR,
    "k8s.io/component-base/version.gitMinor": _MINOR,
    "k8s.io/component-base/version.gitTreeState": "clean",
    "sigs.k8s.io/kwok/pkg/consts.Version": f"v{options.KWOK_VERSION}",
}
_LDFLAGS = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in _VARIABLES.items())])
_GO_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly", f"-ldflags={_LDFLAGS}")

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


class BinariesError(Exception):
    """The programs cannot be had; the message says what to install."""


def find(
    version: str | None = None, programs: Sequence[str] = components.PROGRAMS
) -> dict[str, list[str]]:
    """Command line of each of `programs`, gotten first if need be; version None is any."""
    found: Found = (_assets(version) or _places(version)) if programs else {}
    for more in (_cached, _obtained):
        if missing(found, programs):
            found = more(found, version, programs)
    return {name: [str(found[name])] for name in programs}


def missing(found: Found, programs: Sequence[str] = components.PROGRAMS) -> list[str]:
    """Programs still to be had."""
    return [name for name in programs if name not in found]


def merge(found: Found, folder: Path) -> Found:
    """`found`, and of the rest what is in `folder`; the core only as a whole."""
    there = {name: folder / name for name in missing(found) if _is_program(folder / name)}
    if not all(name in there for name in _CORE):
        there = {name: path for name, path in there.items() if name not in _CORE}
    return {**there, **found}


def _assets(version: str | None) -> Found:
    """Take the folder of KUBEBUILDER_ASSETS; what an envtest archive lacks is downloaded."""
    if not os.environ.get(ASSETS):
        return {}
    folder = Path(os.environ[ASSETS])
    if not _is_program(folder / _CORE[0]):
        print(f"{ASSETS} is not used: no {_CORE[0]} in {folder}", file=sys.stderr)
        return {}
    if version not in {None, _version_of(folder)}:
        return {}
    rest = [name for name in _CORE if not _is_program(folder / name)]
    there = {name: folder / name for name in components.PROGRAMS if _is_program(folder / name)}
    if not rest:
        return there
    try:
        more = download.fetch(rest, _version_of(folder), exact=True)
    except download.DownloadError as error:
        print(f"{ASSETS} is not used: no {', '.join(rest)} in it ({error})", file=sys.stderr)
        return {}
    return {**there, **{name: more / name for name in rest}}


def _places(version: str | None) -> Found:
    found: Found = {}
    for folder in map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep))):
        if version and _is_program(folder / _CORE[0]) and _version_of(folder) != version:
            continue
        found = merge(found, folder)
    # A kubectl alone, as most machines have one, may be of whatever age.
    return found if _CORE[0] in found else {}


def _version_of(folder: Path) -> str:
    try:
        text = processes.run([str(folder / _CORE[0]), "--version"], seconds=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"v(\d+\.\d+\.\d+\S*)", text)
    return match[1] if match else ""


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _cached(found: Found, version: str | None, _programs: Sequence[str]) -> Found:
    if version in {None, options.KUBERNETES_VERSION}:
        with contextlib.suppress(BuildError):  # no sources: then none were built
            found = merge(found, build_folder())
    if version:
        return merge(found, download.folder(version))
    return merge(found, download.newest(options.KUBERNETES_VERSION.rpartition(".")[0]))


def _obtained(found: Found, version: str | None, programs: Sequence[str]) -> Found:
    wanted = version or _version_found(found) or options.KUBERNETES_VERSION
    try:
        exact = version is not None
        return merge(found, download.fetch(missing(found, programs), wanted, exact=exact))
    except download.DownloadError as error:
        no_download = str(error)
    if version not in {None, options.KUBERNETES_VERSION}:
        raise BinariesError(
            f"Kubernetes {version} cannot be downloaded ({no_download}), and only "
            f"{options.KUBERNETES_VERSION} can be built"
        )
    print(f"no download ({no_download}); building instead", file=sys.stderr)
    try:
        return merge(found, build())
    except BuildError as error:
        raise BinariesError(
            f"no {', '.join(missing(found, programs))}.\ndownload: {no_download}\nbuild: {error}\n"
            f"Or name a folder that has all of {', '.join(components.PROGRAMS)} by {ASSETS}."
        ) from error


def _version_found(found: Found) -> str:
    return _version_of(found[_CORE[0]].parent) if _CORE[0] in found else ""


class BuildError(Exception):
    """The build is not possible; the message says what is missing and what to install."""


def build_folder() -> Path:
    """Where the built programs are, or will be: keyed by version, module files and flags."""
    digest = hashlib.sha256(_LDFLAGS.encode())
    for name in _FILES:
        digest.update((_module() / name).read_bytes())
    return (
        layout.cache_root() / f"v{options.KUBERNETES_VERSION}" / f"built-{digest.hexdigest()[:16]}"
    )


def build() -> Path:
    """Build unless somebody did; `build_folder()` has a program for each component then."""
    target = build_folder()
    go = shutil.which("go")
    if not go:
        raise BuildError(f"Go is missing: install {_go_wanted()} or newer from https://go.dev/dl/")
    with layout.held(target.with_suffix(".lock"), _waiting):
        if not target.exists():
            _build(go, target)
    return target


def _waiting() -> None:
    print("waiting: another process builds the control plane", file=sys.stderr, flush=True)


def _build(go: str, target: Path) -> None:
    for stale in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(stale)
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True
    ) as work:
        fresh = Path(work) / "programs"
        fresh.mkdir()
        _run_go([go, "build", "-v", *_GO_FLAGS, "-o", str(fresh / _PROGRAM), "."])
        for name in components.PROGRAMS:
            (fresh / name).symlink_to(_PROGRAM)
        fresh.rename(target)


def _run_go(argv: list[str]) -> None:
    lines: list[str] = []
    text = f"building the control plane of Kubernetes {options.KUBERNETES_VERSION} (once, minutes)"
    env = {**os.environ, "GOWORK": "off"}
    with (
        download.progress(text, lambda: f"{len(lines)} packages" if lines else ""),
        subprocess.Popen(
            argv,
            cwd=_module(),
            env=env,
            text=True,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        ) as process,
    ):
        assert process.stderr is not None
        lines.extend(process.stderr)
    if process.returncode:
        raise BuildError(explain("".join(lines)))


def explain(output: str) -> str:
    """Explain what a failed build's output means, what to do about it, and its last lines."""
    cure = next((cure for sign, cure in _CURES if re.search(sign, output)), "the build failed")
    tail = "\n".join(output.splitlines()[-5:])
    return f"{cure.format(go=_go_wanted())}\n{tail}"


def _go_wanted() -> str:
    match = re.search(r"^go (\d+\.\d+)", (_module() / "go.mod").read_text(), re.MULTILINE)
    assert match
    return f"Go {match[1]}"


def _module() -> Path:
    here = Path(__file__).resolve()
    places = (here.parent / _PROGRAM, here.parents[3] / "tools" / _PROGRAM)
    for place in places:
        if (place / "go.mod").exists():
            return place
    raise BuildError(f"the sources of the control plane are missing: no {places[0]}")
