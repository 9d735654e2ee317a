# SPDX-License-Identifier: Apache-2.0
"""Download the programs of a control plane from where Kubernetes and kwok publish them.

Nothing is used that has not the digest that is kept here; what was checked stays in this user's
cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import tarfile
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from muster.api import manifest
from muster.local import handle, layout, nodes, options
from muster.local.progress import progress

_ARCHIVED = (handle.ETCD, handle.API_SERVER, handle.KUBECTL)
_REACH_SECONDS = 4.0
_READ_SECONDS = 30.0
_CHUNK = 1 << 20
_NEW = ".new-"
_PLATFORM = f"linux-{nodes.architecture()}"
_ALGORITHMS = {64: "sha256", 128: "sha512"}  # by hexadecimal digits


class DownloadError(handle.ClusterError):
    """A program cannot be downloaded, or is not what its checksum says."""


DIGESTS = Path(__file__).with_name("digests.txt")
"""What was looked at of the files that there are to download: a digest and a name in each line."""
ACCEPT = "MUSTER_ACCEPT_DOWNLOADS"
_SECURE = ("https",)
# Where to download from; the URLs in the first and the last, which are indexes, are followed.
ARCHIVES = (
    "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"
)
RELEASES = "https://dl.k8s.io/release"
KWOK = f"https://api.github.com/repos/kubernetes-sigs/kwok/releases/tags/v{options.KWOK_VERSION}"


def digests() -> dict[str, str]:
    """Return the digests that are kept here, by the names of the files."""
    lines = (line.partition("#")[0].split() for line in DIGESTS.read_text().splitlines())
    return {line[1]: line[0] for line in lines if line}


def _digest(name: str, published: Callable[[], bytes]) -> str:
    """Return the digest that a file must have: the stored one, else, if accepted, a published one.

    An attacker that changes a file can change its published digest, too.
    """
    kept = digests().get(name)
    if kept is None and os.environ.get(ACCEPT) != "published":
        raise DownloadError(
            f"no digest of {name} is kept in {DIGESTS.name}; {ACCEPT}=published goes by the "
            "one that is published beside it"
        )
    return kept or str(published(), "utf-8").split()[0]


@dataclass(frozen=True, slots=True)
class Item:
    """A program `name`, or an archive of `members`; `digest`: hexadecimal SHA-256 or SHA-512."""

    name: str
    url: str
    digest: str
    members: tuple[str, ...] = ()


def folder(version: str) -> Path:
    """Where the downloaded programs of a version are, or will be."""
    return layout.cache_root() / f"v{version}" / f"official-{_PLATFORM}"


def newest(minor: str) -> Path:
    """Folder of the latest downloaded version of `minor` (`1.36`), there or not."""
    found = layout.cache_root().glob(f"v{minor}.*/official-{_PLATFORM}")
    return max(found, key=lambda path: _patch(path.parent.name), default=folder(f"{minor}.0"))


def fetch(names: Iterable[str], version: str, *, exact: bool) -> Path:
    """Download these programs and return their folder. DownloadError if any is missing.

    `exact` refuses another patch release if `version` has no archive. What was checked stays.
    """
    try:
        archives = manifest.document(_read(ARCHIVES, _REACH_SECONDS))["releases"]
        release = choose(archives, version, exact=exact)
        target = folder(release)
        with layout.held(target.with_suffix(".lock")):
            target.mkdir(parents=True, exist_ok=True)
            for stale in target.glob(f"{_NEW}*"):
                shutil.rmtree(stale)
            wanted = [name for name in names if not (target / name).exists()]
            for item in list(_items(wanted, release, archives)):
                _get(item, target)
    except (LookupError, TypeError, ValueError, tarfile.TarError) as error:
        # Where a page of a proxy is answered, say.
        raise DownloadError(f"what {ARCHIVES} leads to cannot be read: {error!r}") from error
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


def _items(names: list[str], release: str, archives: dict[str, Any]) -> Iterator[Item]:
    members = tuple(name for name in names if name in _ARCHIVED)
    if members:
        file = f"envtest-v{release}-{_PLATFORM}.tar.gz"
        entry = archives[f"v{release}"].get(file)
        if not entry:
            raise DownloadError(f"there is no {file}")
        yield Item(file, entry["selfLink"], _digest(file, entry["hash"].encode), members)
    for name in names:
        if name == handle.KWOK:
            yield _kwok()
        elif name not in _ARCHIVED:
            url = f"{RELEASES}/v{release}/bin/{_PLATFORM.replace('-', '/')}/{name}"
            published = partial(_read, f"{url}.sha256")
            yield Item(name, url, _digest(f"{name}-v{release}-{_PLATFORM}", published))


def _kwok() -> Item:
    file = f"kwok-{_PLATFORM}"
    found = {each["name"]: each for each in json.loads(_read(KWOK))["assets"]}[file]
    # None where there is no checksum.
    published = str(found.get("digest")).removeprefix("sha256:")
    digest = _digest(f"kwok-v{options.KWOK_VERSION}-{_PLATFORM}", published.encode)
    return Item(handle.KWOK, found["browser_download_url"], digest)


def _get(item: Item, target: Path) -> None:
    algorithm = _ALGORITHMS.get(len(item.digest))
    if not algorithm:
        raise DownloadError(f"{item.digest!r}, given for {item.url}, is no checksum")
    with tempfile.TemporaryDirectory(prefix=_NEW, dir=target) as work:
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
        found = _unpack(file, item.members) if item.members else {item.name: file}
        if lost := set(item.members) - found.keys():
            raise DownloadError(f"{item.url} does not hold {', '.join(sorted(lost))}")
        for name, path in found.items():
            path.chmod(0o755)
            path.replace(target / name)


def _unpack(archive: Path, members: Sequence[str]) -> dict[str, Path]:
    """Write the programs of an archive beside it."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            content = tar.extractfile(member) if name in members and member.isfile() else None
            if content is not None:
                found[name] = archive.with_name(name)
                with found[name].open("wb") as out:
                    shutil.copyfileobj(content, out)
    return found


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
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(f"{url}: {getattr(error, 'reason', error)}") from error


def _patch(version: str) -> tuple[int, ...]:
    numbers = version.lstrip("v").partition("-")[0].split(".")
    return tuple(int(number) for number in numbers)
