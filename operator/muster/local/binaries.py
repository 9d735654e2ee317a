# SPDX-License-Identifier: Apache-2.0
"""Find the programs of a control plane, or get them.

The order: the folder KUBEBUILDER_ASSETS, PATH, this user's cache, the official archives of which a
digest is kept here, and a build with Go, once for each state of its module. API server, controller
manager and scheduler always come from one place, so that they are of one version.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import yaml

from muster.local import handle, layout, nodes, options, real

ASSETS = "KUBEBUILDER_ASSETS"

_CORE = (handle.API_SERVER, handle.CONTROLLER_MANAGER, handle.SCHEDULER)

Found = dict[str, Path]


@dataclass(frozen=True, slots=True)
class Build:
    """What one run of Go builds: `sources` of a module, in its folder below tools/.

    `programs`: each component -> the program that it is, when called by its name.
    """

    module: str
    sources: tuple[str, ...]
    packages: tuple[str, ...]
    programs: Mapping[str, str]
    title: str


_PROGRAM = "controlplane"
CONTROL_PLANE = Build(
    _PROGRAM,
    ("main.go", "oracle.go"),
    (".",),
    dict.fromkeys(handle.PROGRAMS, _PROGRAM),
    "the control plane of Kubernetes",
)
_REAL_NODES = (
    Build(
        _PROGRAM,
        ("node/main.go", "pause/main.go"),
        ("./node", "./pause"),
        {real.KUBELET: "node", real.KUBE_PROXY: "node", real.PAUSE: "pause"},
        "kubelet and kube-proxy of Kubernetes",
    ),
    Build("dns", ("main.go",), (".",), {real.COREDNS: "dns"}, "CoreDNS for Kubernetes"),
)
_REQUIREMENTS = {options.KUBERNETES_VERSION: "go", options.OLDER_VERSION: "kubernetes-1.36"}
"""Versions that can be built -> the module's files that name what it is built from."""
_GO_FLAGS = ("-trimpath", "-buildvcs=false", "-mod=readonly")

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
    version: str | None = None, programs: Sequence[str] = handle.PROGRAMS
) -> dict[str, list[str]]:
    """Command line of each of `programs`, gotten first if need be; version None is any."""
    found: Found = (_assets(version) or _places(version)) if programs else {}
    for more in (_cached, _obtained):
        if missing(found, programs):
            found = more(found, version, programs)
    return {name: [str(found[name])] for name in programs}


def real_nodes() -> dict[str, list[str]]:
    """Command line of each program that real nodes need, built first if need be."""
    found: dict[str, list[str]] = {}
    try:
        for one in _REAL_NODES:
            folder = build(what=one)
            found |= {name: [str(folder / name)] for name in one.programs}
    except BuildError as error:
        raise BinariesError(f"no {', '.join(real.PROGRAMS)}.\nbuild: {error}") from error
    return found


def missing(found: Found, programs: Sequence[str] = handle.PROGRAMS) -> list[str]:
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
    if version not in {None, version_of(folder)}:
        return {}
    rest = [name for name in _CORE if not _is_program(folder / name)]
    there = {name: folder / name for name in handle.PROGRAMS if _is_program(folder / name)}
    if not rest:
        return there
    try:
        more = fetch(rest, version_of(folder), exact=True)
    except DownloadError as error:
        print(f"{ASSETS} is not used: no {', '.join(rest)} in it ({error})", file=sys.stderr)
        return {}
    return {**there, **{name: more / name for name in rest}}


def _places(version: str | None) -> Found:
    found: Found = {}
    for folder in map(Path, filter(None, os.environ.get("PATH", "").split(os.pathsep))):
        if version and _is_program(folder / _CORE[0]) and version_of(folder) != version:
            continue
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


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _cached(found: Found, version: str | None, _programs: Sequence[str]) -> Found:
    if version is None or version in _REQUIREMENTS:
        with contextlib.suppress(BuildError):  # no sources: then none were built
            found = merge(found, build_folder(version or options.KUBERNETES_VERSION))
    if version:
        return merge(found, folder(version))
    return merge(found, newest(options.KUBERNETES_VERSION.rpartition(".")[0]))


def _obtained(found: Found, version: str | None, programs: Sequence[str]) -> Found:
    there = version_of(found[_CORE[0]].parent) if _CORE[0] in found else ""
    wanted = version or there or options.KUBERNETES_VERSION
    try:
        exact = version is not None
        return merge(found, fetch(missing(found, programs), wanted, exact=exact))
    except DownloadError as error:
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


class BuildError(Exception):
    """The build is not possible; the message says what is missing and what to install."""


def build_folder(version: str = options.KUBERNETES_VERSION, what: Build = CONTROL_PLANE) -> Path:
    """Where the built programs are, or will be: keyed by version, module files and flags."""
    digest = hashlib.sha256(_ldflags(version).encode())
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
    go = shutil.which("go")
    if not go:
        wanted = _go_wanted(what)
        raise BuildError(f"Go is missing: install {wanted} or newer from https://go.dev/dl/")
    text = f"waiting: another process builds {what.title} {version}"
    with layout.held(
        target.with_suffix(".lock"), lambda: print(text, file=sys.stderr, flush=True)
    ):
        if not target.exists():
            _build(go, version, what, target)
    return target


def _build(go: str, version: str, what: Build, target: Path) -> None:
    for stale in target.parent.glob(f".{target.name}-*"):
        shutil.rmtree(stale)
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True
    ) as work:
        fresh = Path(work) / "programs"
        fresh.mkdir()
        flags = (*_GO_FLAGS, f"-modfile={_REQUIREMENTS[version]}.mod")
        link = f"-ldflags={_ldflags(version)}"
        argv = [go, "build", "-v", *flags, link, "-o", f"{fresh}/", *what.packages]
        _run_go(argv, version, what)
        for name, program in what.programs.items():
            if name != program:
                (fresh / name).symlink_to(program)
        fresh.rename(target)


def _run_go(argv: list[str], version: str, what: Build) -> None:
    lines: list[str] = []
    text = f"building {what.title} {version} (once, minutes)"
    env = {**os.environ, "GOWORK": "off"}
    with (
        progress(text, lambda: f"{len(lines)} packages" if lines else ""),
        subprocess.Popen(
            argv,
            cwd=_module(what),
            env=env,
            text=True,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        ) as process,
    ):
        assert process.stderr is not None
        lines.extend(process.stderr)
    if process.returncode:
        raise BuildError(explain("".join(lines), what))


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
    found = layout.shipped(f"tools/{what.module}")
    if found is None:
        raise BuildError(f"the sources of {what.title} are missing from this installation")
    return found


_ARCHIVED = (handle.ETCD, handle.API_SERVER, handle.KUBECTL)
_REACH_SECONDS = 4.0
_READ_SECONDS = 30.0
_CHUNK = 1 << 20
_ALGORITHMS = {64: "sha256", 128: "sha512"}  # by hexadecimal digits
_TERMINAL_SECONDS = 0.5  # a line that is written over
_PLAIN_SECONDS = 10.0  # a line each in a log


class DownloadError(Exception):
    """A program cannot be downloaded, or is not what its checksum says."""


DIGESTS = Path(__file__).with_name("digests.txt")
"""What was looked at of the files that there are to download: a digest and a name in each line."""
ACCEPT = "MUSTER_ACCEPT_DOWNLOADS"
_PUBLISHED = "published"
_SECURE = ("https",)


def digests() -> dict[str, str]:
    """Return the digests that are kept here, by the names of the files."""
    lines = (line.partition("#")[0].split() for line in DIGESTS.read_text().splitlines())
    return {line[1]: line[0] for line in lines if line}


def _digest(name: str, published: Callable[[], str]) -> str:
    """Return the digest that a file must have: the one kept here, else one that is published.

    What stands beside a file says nothing about it that whoever changes the file cannot change
    too, so that only somebody who says so goes by it.
    """
    kept = digests().get(name)
    if kept is None and os.environ.get(ACCEPT) != _PUBLISHED:
        raise DownloadError(
            f"no digest of {name} is kept in {DIGESTS.name}; {ACCEPT}={_PUBLISHED} goes by the "
            "one that is published beside it"
        )
    return kept or published()


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to download from; the URLs in the two indexes are followed as they stand."""

    archives: str = (
        "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/"
        "envtest-releases.yaml"
    )
    kubernetes: str = "https://dl.k8s.io/release"
    kwok: str = (
        f"https://api.github.com/repos/kubernetes-sigs/kwok/releases/tags/v{options.KWOK_VERSION}"
    )


@dataclass(frozen=True, slots=True)
class Item:
    """One file to download: `digest` is hexadecimal, SHA-256 or SHA-512 by its length.

    `members` are the programs in it if it is an archive; otherwise it is the program `name`.
    """

    name: str
    url: str
    digest: str
    members: tuple[str, ...] = ()


def folder(version: str) -> Path:
    """Where the downloaded programs of a version are, or will be."""
    return layout.cache_root() / f"v{version}" / f"official-{_platform()}"


def newest(minor: str) -> Path:
    """Folder of the latest downloaded version of `minor` (`1.36`), there or not."""
    found = layout.cache_root().glob(f"v{minor}.*/official-{_platform()}")
    return max(found, key=lambda path: _patch(path.parent.name), default=folder(f"{minor}.0"))


def fetch(
    names: Iterable[str],
    version: str,
    *,
    exact: bool,
    sources: Sources | None = None,
) -> Path:
    """Download these programs; the answer is the folder that they are in.

    `exact` refuses another patch release of the same minor where there is no archive of
    `version`. DownloadError if anything is not to be had; what was checked stays.
    """
    places = sources or Sources()
    archives = yaml.safe_load(_index(places.archives))["releases"]
    release = choose(archives, version, exact=exact)
    target = folder(release)
    with layout.held(target.with_suffix(".lock")):
        target.mkdir(parents=True, exist_ok=True)
        wanted = [name for name in names if not (target / name).exists()]
        for item in _items(wanted, release, archives, places):
            _get(item, target)
    return target


def choose(archives: dict[str, Any], version: str, *, exact: bool) -> str:
    """Choose the release to take: `version`, or else the latest patch of its minor."""
    if f"v{version}" in archives:
        return version
    minor = version.rpartition(".")[0]
    same = [name for name in archives if name.startswith(f"v{minor}.") and "-" not in name]
    if exact or not same:
        there = ", ".join(sorted(same, key=_patch)) or "none"
        raise DownloadError(f"no archive of Kubernetes {version}; of {minor} there are: {there}")
    return max(same, key=_patch)[1:]


def _items(
    names: list[str],
    release: str,
    archives: dict[str, Any],
    places: Sources,
) -> list[Item]:
    items = []
    members = tuple(name for name in names if name in _ARCHIVED)
    if members:
        file = f"envtest-v{release}-{_platform()}.tar.gz"
        entry = archives[f"v{release}"].get(file)
        if not entry:
            raise DownloadError(f"there is no {file}")
        digest = _digest(file, lambda: str(entry["hash"]))
        items.append(Item(file, entry["selfLink"], digest, members))
    for name in names:
        if name == handle.KWOK:
            items.append(_kwok(places.kwok))
        elif name not in _ARCHIVED:
            items.append(_program(name, release, places.kubernetes))
    return items


def _program(name: str, release: str, place: str) -> Item:
    url = f"{place}/v{release}/bin/{_platform().replace('-', '/')}/{name}"
    file = f"{name}-v{release}-{_platform()}"
    return Item(name, url, _digest(file, lambda: _read(f"{url}.sha256").decode().split()[0]))


def _kwok(release: str) -> Item:
    file = f"kwok-{_platform()}"
    found = next((a for a in json.loads(_read(release))["assets"] if a["name"] == file), None)
    if found is None:
        raise DownloadError(f"{release} lists no {file}")

    def published() -> str:
        algorithm, _, digest = (found.get("digest") or "").partition(":")
        if algorithm != "sha256":
            raise DownloadError(f"{release} lists no {file} with a checksum")
        return str(digest)

    kept = f"kwok-v{options.KWOK_VERSION}-{_platform()}"
    return Item(handle.KWOK, found["browser_download_url"], _digest(kept, published))


def _get(item: Item, target: Path) -> None:
    algorithm = _ALGORITHMS.get(len(item.digest))
    if not algorithm:
        raise DownloadError(f"{item.digest!r}, given for {item.url}, is no checksum")
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target) as work:
        file = Path(work) / "file"
        with _open(item.url) as answer, file.open("wb+") as out:
            with progress(f"downloading {item.name}", lambda: f"{out.tell() >> 20} MiB"):
                shutil.copyfileobj(answer, out, _CHUNK)
            out.seek(0)
            digest = hashlib.file_digest(out, algorithm).hexdigest()
        if digest != item.digest:
            raise DownloadError(
                f"{item.url} has the checksum {digest} instead of {item.digest}; not used"
            )
        programs = _unpack(file, item, Path(work)) if item.members else [(item.name, file)]
        for name, path in programs:
            path.chmod(0o755)
            path.replace(target / name)


def _unpack(archive: Path, item: Item, work: Path) -> list[tuple[str, Path]]:
    found = []
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            if not member.isfile() or name not in item.members:
                continue
            content = tar.extractfile(member)
            assert content is not None  # a regular file has content
            with (work / name).open("wb") as out:
                shutil.copyfileobj(content, out)
            found.append((name, work / name))
    lost = set(item.members) - {name for name, _ in found}
    if lost:
        raise DownloadError(f"{item.url} does not hold {', '.join(sorted(lost))}")
    return found


def _index(url: str) -> bytes:
    """Read the first thing of all: bounded as a whole, name look-up included."""
    answers: list[bytes | DownloadError] = []

    def read() -> None:
        try:
            answers.append(_read(url, _REACH_SECONDS))
        except DownloadError as error:
            answers.append(error)

    # A name look-up knows no time limit: only a thread can be left behind with it.
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(2 * _REACH_SECONDS)
    answer = answers[0] if answers else DownloadError(f"{url}: no answer")
    if isinstance(answer, DownloadError):
        raise answer
    return answer


def _read(url: str, seconds: float = _READ_SECONDS) -> bytes:
    with _open(url, seconds) as answer:
        return answer.read()


def _check(url: str) -> None:
    scheme = url.partition(":")[0].lower()
    if scheme not in _SECURE:
        raise DownloadError(f"{url} is not used: only https is")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows nobody to where others may listen and change what comes."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        _check(urllib.parse.urljoin(req.full_url, headers.get("location") or ""))
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


_OPENER = urllib.request.build_opener(_Redirects)


@contextlib.contextmanager
def _open(url: str, seconds: float = _READ_SECONDS) -> Iterator[BinaryIO]:
    try:
        _check(url)
        with _OPENER.open(url, timeout=seconds) as answer:
            yield answer
    except (OSError, urllib.error.URLError, EOFError) as error:
        raise DownloadError(f"{url}: {getattr(error, 'reason', error)}") from error


def _platform() -> str:
    return f"linux-{nodes.architecture()}"


def _patch(version: str) -> tuple[int, ...]:
    numbers = version.lstrip("v").partition("-")[0].split(".")
    return tuple(int(number) for number in numbers)


@contextlib.contextmanager
def progress(
    what: str,
    detail: Callable[[], str] = lambda: "",
    stream: TextIO | None = None,
    *,
    seconds: float | None = None,
) -> Iterator[None]:
    """Show `what`, the time since and `detail()` while the body runs, and once at its end.

    On a terminal the line is written over; elsewhere it is repeated every `seconds`.
    """
    out = stream or sys.stderr
    over = out.isatty()
    start = time.monotonic()
    ended = threading.Event()

    def line() -> str:
        past = int(time.monotonic() - start)
        return f"{what}: {past // 60}:{past % 60:02} {detail()}".rstrip()

    def show() -> None:
        while not ended.wait(seconds or (_TERMINAL_SECONDS if over else _PLAIN_SECONDS)):
            _write(out, line(), over=over)

    print(what, file=out, flush=True)
    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _write(out, line(), over=over)
        if over:
            print(file=out)


def _write(out: TextIO, line: str, *, over: bool) -> None:
    if over:
        out.write(f"\r\x1b[K{line}")
    else:
        out.write(f"{line}\n")
    out.flush()
