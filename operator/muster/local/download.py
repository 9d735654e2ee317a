# SPDX-License-Identifier: Apache-2.0
"""Download the official programs, each checked against the checksum published for it.

etcd, kube-apiserver and kubectl come from the envtest archives of controller-tools, the rest
of Kubernetes from its release server, kwok from its releases on GitHub.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import yaml

from muster.local import components, layout, nodes, options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ARCHIVED = (components.ETCD, components.API_SERVER, components.KUBECTL)
_REACH_SECONDS = 4.0
_READ_SECONDS = 30.0
_CHUNK = 1 << 20
_ALGORITHMS = {64: "sha256", 128: "sha512"}  # by hexadecimal digits
_TERMINAL_SECONDS = 0.5  # a line that is written over
_PLAIN_SECONDS = 10.0  # a line each in a log


class DownloadError(Exception):
    """A program cannot be downloaded, or is not what its checksum says."""


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
        items.append(Item(file, entry["selfLink"], entry["hash"], members))
    for name in names:
        if name == components.KWOK:
            items.append(_kwok(places.kwok))
        elif name not in _ARCHIVED:
            url = f"{places.kubernetes}/v{release}/bin/{_platform().replace('-', '/')}/{name}"
            items.append(Item(name, url, _read(f"{url}.sha256").decode().split()[0]))
    return items


def _kwok(release: str) -> Item:
    file = f"kwok-{_platform()}"
    for asset in json.loads(_read(release))["assets"]:
        algorithm, _, digest = (asset.get("digest") or "").partition(":")
        if asset["name"] == file and algorithm == "sha256":
            return Item(components.KWOK, asset["browser_download_url"], digest)
    raise DownloadError(f"{release} lists no {file} with a checksum")


def _get(item: Item, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target) as work:
        file = Path(work) / "file"
        with _open(item.url) as answer, file.open("wb") as out:
            digest = _copy(item, answer, out)
        if digest != item.digest:
            raise DownloadError(
                f"{item.url} has the checksum {digest} instead of {item.digest}; not used"
            )
        programs = _unpack(file, item, Path(work)) if item.members else [(item.name, file)]
        for name, path in programs:
            path.chmod(0o755)
            path.replace(target / name)


def _copy(item: Item, answer: BinaryIO, out: BinaryIO) -> str:
    algorithm = _ALGORITHMS.get(len(item.digest))
    if not algorithm:
        raise DownloadError(f"{item.digest!r}, given for {item.url}, is no checksum")
    digest = hashlib.new(algorithm)
    with progress(f"downloading {item.name}", lambda: f"{out.tell() >> 20} MiB"):
        while chunk := answer.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


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


@contextlib.contextmanager
def _open(url: str, seconds: float = _READ_SECONDS) -> Iterator[BinaryIO]:
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:  # noqa: S310
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
