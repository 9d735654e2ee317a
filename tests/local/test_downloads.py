# SPDX-License-Identifier: Apache-2.0
"""Official programs are downloaded and checked."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import json
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from muster.local import downloads, handle, layout, nodes, options

PLATFORM = f"linux-{nodes.architecture()}"
FOLDER = PLATFORM.replace("-", "/")
ARCHIVE = f"/archives/envtest-v1.36.2-{PLATFORM}.tar.gz"
ARCHIVED = ("etcd", "kube-apiserver", "kubectl")
LOOSE = ("kube-controller-manager", "kube-scheduler")


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the servers of these stories go without certificates, and their checksums count."""
    monkeypatch.setattr(downloads, "_SECURE", ("http",))
    monkeypatch.setenv(downloads.ACCEPT, "published")


class Site:
    """A web server whose pages are a dictionary, laid out like the official ones."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pages: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.moved: dict[str, str] = {}
        """Path -> where it is by now."""
        self.put_archive({f"controller-tools/envtest/{name}": name for name in ARCHIVED})
        for name in LOOSE:
            path = f"/release/v1.36.2/bin/{FOLDER}/{name}"
            self.pages[path] = name.encode()
            self.pages[f"{path}.sha256"] = hashlib.sha256(name.encode()).hexdigest().encode()
        self.pages["/dl/kwok"] = b"kwok"
        self.put_kwok("sha256:" + hashlib.sha256(b"kwok").hexdigest())

    def put_archive(self, files: dict[str, str], digest: str = "") -> None:
        """Publish an archive of 1.36.2, under this checksum or its own."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
        self.pages[ARCHIVE] = buffer.getvalue()
        entry = {
            "hash": digest or hashlib.sha512(buffer.getvalue()).hexdigest(),
            "selfLink": self.url + ARCHIVE,
        }
        releases = {
            version: {f"envtest-{version}-{PLATFORM}.tar.gz": entry}
            for version in ("v1.35.9", "v1.36.0", "v1.36.2")
        }
        self.pages["/index.yaml"] = yaml.safe_dump({"releases": releases}).encode()

    def put_kwok(self, digest: str | None) -> None:
        """Publish the list of kwok's files, with this checksum."""
        asset = {
            "name": f"kwok-{PLATFORM}",
            "browser_download_url": f"{self.url}/dl/kwok",
            "digest": digest,
        }
        self.pages["/kwok"] = json.dumps({"assets": [asset]}).encode()

    def spoil(self, name: str) -> None:
        """Serve other bytes of a program than those of its checksum."""
        self.pages[f"/release/v1.36.2/bin/{FOLDER}/{name}"] += b"!"

    def fetch(self, version: str = "1.36.2", *, exact: bool = True) -> Path:
        """Download all programs from here."""
        return downloads.fetch(handle.PROGRAMS, version, exact=exact)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Serve a site, and give downloads a cache of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pages: list[Site] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages[0].asked.append(self.path)
            body = pages[0].pages.get(self.path)
            moved = pages[0].moved.get(self.path)
            self.send_response(302 if moved else 404 if body is None else 200)
            if moved:
                self.send_header("Location", moved)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        for name, path in (("ARCHIVES", "index.yaml"), ("RELEASES", "release"), ("KWOK", "kwok")):
            monkeypatch.setattr(downloads, name, f"{url}/{path}")
        pages.append(Site(url))
        try:
            yield pages[0]
        finally:
            server.shutdown()
            thread.join()


def test_all_programs_are_downloaded_and_can_be_run(site: Site) -> None:
    """From three kinds of places into one folder, with nothing else beside them."""
    # As a download that was killed leaves it.
    (downloads.folder("1.36.2") / ".new-x").mkdir(parents=True)
    folder = site.fetch()
    assert folder == downloads.folder("1.36.2")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        name: name for name in handle.PROGRAMS
    }
    assert all(path.stat().st_mode & 0o111 == 0o111 for path in folder.iterdir())


def test_what_is_there_is_not_downloaded_again(site: Site) -> None:
    """A second time only the index is read, and not even that by who looks into the cache."""
    site.fetch()
    site.asked.clear()
    site.fetch()
    assert site.asked == ["/index.yaml"]


EVIL = {f"x/{name}": "evil" for name in ARCHIVED}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda site: site.put_archive(EVIL, "0" * 128), r"instead of 0{128}; not used"),
        (lambda site: site.put_archive({"etcd": "etcd"}, "abc"), "is no checksum"),
        (lambda site: site.put_archive({"x/etcd": "etcd"}), "does not hold kube-apiserver"),
        (lambda site: site.pages.pop(ARCHIVE), f"{ARCHIVE}: Not Found"),
        (lambda site: site.spoil(LOOSE[0]), f"{LOOSE[0]} has the checksum"),
        (lambda site: site.spoil(LOOSE[1]), f"{LOOSE[1]} has the checksum"),
        (lambda site: site.pages.update({"/dl/kwok": b"!"}), "/dl/kwok has the checksum"),
        (lambda site: site.put_kwok(None), "is no checksum"),
        (lambda site: site.put_kwok("md5:abc"), "is no checksum"),
    ],
)
def test_file_that_fails_its_check_is_not_used(
    site: Site, change: Callable[[Site], object], error: str
) -> None:
    """The message names the file or both checksums, and the cache keeps no such file."""
    change(site)
    with pytest.raises(downloads.DownloadError, match=error):
        site.fetch()
    assert all(path.read_text() == path.name for path in downloads.folder("1.36.2").iterdir())


def test_only_what_was_looked_at_is_downloaded(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the digests that are kept here, whatever is published beside the files."""
    monkeypatch.delenv(downloads.ACCEPT)
    with pytest.raises(downloads.DownloadError) as refused:
        site.fetch()
    name = ARCHIVE.rpartition("/")[2]
    assert f"no digest of {name} is kept in digests.txt" in str(refused.value)
    assert f"{downloads.ACCEPT}=published" in str(refused.value)
    assert site.asked == ["/index.yaml"]
    content = {
        name: site.pages[ARCHIVE],
        f"kwok-v{options.KWOK_VERSION}-{PLATFORM}": b"kwok",
        **{f"{loose}-v1.36.2-{PLATFORM}": loose.encode() for loose in LOOSE},
    }
    kept = tmp_path / "digests.txt"
    lines = (f"{hashlib.sha256(body).hexdigest()}  {file}" for file, body in content.items())
    kept.write_text("\n".join(["# of files", *lines]))
    monkeypatch.setattr(downloads, "DIGESTS", kept)
    for loose in LOOSE:
        del site.pages[f"/release/v1.36.2/bin/{FOLDER}/{loose}.sha256"]
    site.put_kwok(None)
    folder = site.fetch()
    assert {path.name for path in folder.iterdir()} == set(handle.PROGRAMS)


def test_what_is_published_does_not_count_where_a_digest_is_kept(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also for somebody who would go by it: whoever changes the file can change both."""
    kept = tmp_path / "digests.txt"
    kept.write_text(f"{'0' * 64}  kwok-v{options.KWOK_VERSION}-{PLATFORM}\n")
    monkeypatch.setattr(downloads, "DIGESTS", kept)
    with pytest.raises(downloads.DownloadError, match=r"instead of 0{64}; not used"):
        site.fetch()


def test_the_digests_that_are_kept_can_be_read() -> None:
    """Each is of a kind that is known, and of one file."""
    lines = [line.split() for line in downloads.DIGESTS.read_text().splitlines()]
    kept = [line for line in lines if line and line[0] != "#"]
    assert len(downloads.digests()) == len(kept)
    assert all(len(line) == 2 and len(line[0]) in (64, 128) for line in kept)


def test_nothing_comes_by_ways_on_which_others_listen(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at first nor where a server sends on to."""
    site.moved["/dl/kwok"] = "ftp://example.org/kwok"
    with pytest.raises(downloads.DownloadError, match=r"ftp://example.org/kwok is not used"):
        site.fetch()
    monkeypatch.setattr(downloads, "_SECURE", ("https",))
    site.asked.clear()
    with pytest.raises(downloads.DownloadError, match="only https is"):
        site.fetch()
    assert site.asked == []


def test_files_beside_the_programs_stay_in_the_archive(site: Site) -> None:
    """Nor can a path in it lead out of the folder."""
    site.put_archive({f"../../{name}": name for name in ARCHIVED} | {"../../evil": "evil"})
    folder = site.fetch()
    assert {path.name for path in folder.iterdir()} == set(handle.PROGRAMS)
    assert not list(layout.cache_root().rglob("evil"))


def test_another_patch_release_will_do_unless_one_was_asked_for(site: Site) -> None:
    """Not for every patch release is there an archive."""
    assert site.fetch("1.36.7", exact=False) == downloads.folder("1.36.2")
    assert downloads.newest("1.36") == downloads.folder("1.36.2")


def test_a_version_asked_for_that_is_not_there_is_refused_with_what_is(site: Site) -> None:
    """The message lists the releases of the same minor."""
    with pytest.raises(downloads.DownloadError, match=r"there are: v1\.36\.0, v1\.36\.2"):
        site.fetch("1.36.7")


@pytest.mark.parametrize("page", ["/index.yaml", "/kwok"])
@pytest.mark.parametrize("text", ["<html>sign in</html>", "{", "assets: 1"])
def test_page_of_a_proxy_is_refused(site: Site, page: str, text: str) -> None:
    """What cannot be downloaded can be built."""
    site.pages[page] = text.encode()
    with pytest.raises(downloads.DownloadError, match="cannot be read"):
        site.fetch()


def test_that_nothing_can_be_reached_is_known_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused connection, as on a machine without network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setattr(downloads, "ARCHIVES", f"http://127.0.0.1:{port}/index.yaml")
    with pytest.raises(downloads.DownloadError, match="refused"):
        downloads.fetch(["etcd"], "1.36.2", exact=True)


def test_a_server_that_never_answers_is_given_up_in_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A firewall that drops packets must not hold up the build that can be done instead."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(downloads, "_REACH_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/index.yaml"
        monkeypatch.setattr(downloads, "ARCHIVES", url)
        start = time.monotonic()
        with pytest.raises(downloads.DownloadError, match=r"timed out|no answer"):
            downloads.fetch(["etcd"], "1.36.2", exact=True)
        assert time.monotonic() - start < 20
