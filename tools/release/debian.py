# SPDX-License-Identifier: Apache-2.0
"""The packages of Debian in the image: `make debian-pins` writes the newest and their digests.

The file has a line for each package and machine: name, version, architecture, SHA-256, SHA-1. By
its SHA-1 a package is found at https://snapshot.debian.org/file/ after the archive has removed it.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bundle import run

PINS: Final = Path("manifests", "image", "debian.txt")
SUITE: Final = "trixie"
_MACHINES: Final = ("amd64", "arm64")
_KEYS: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_SOURCES: Final = f"""\
deb [signed-by={_KEYS}] https://deb.debian.org/debian {SUITE} main
deb [signed-by={_KEYS}] https://deb.debian.org/debian {SUITE}-updates main
deb [signed-by={_KEYS}] https://deb.debian.org/debian-security {SUITE}-security main
"""
_CONFIG: Final = """\
Dir "{work}"; Dir::Etc "etc"; Dir::State "state"; Dir::State::status "state/status";
Dir::Cache "cache"; APT::Architecture "{machine}"; APT::Architectures "{machine}";
APT::Sandbox::User "";
"""
_FOLDERS: Final = (
    "etc/apt.conf.d",
    "etc/preferences.d",
    "state/lists/partial",
    "cache/archives/partial",
    "debs",
)
_FIELDS: Final = "${Package} ${Version} ${Architecture}"


def update(pins: Path = PINS) -> None:
    """Write the newest version of each package of the file, with its digests, into the file.

    It needs apt and the keys of Debian's archive, by which apt checks what it downloads, and
    changes nothing else on this machine.
    """
    lines = pins.read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines if line.startswith("#")]
    names = sorted({line.split()[0] for line in lines if line and not line.startswith("#")})
    with tempfile.TemporaryDirectory() as work:
        newest = (_newest(names, machine, Path(work, machine)) for machine in _MACHINES)
        found = {pin for pins_of_one in newest for pin in pins_of_one}
    pins.write_text("\n".join([*comments, *sorted(found), ""]), encoding="utf-8")


def _newest(names: list[str], machine: str, work: Path) -> Iterator[str]:
    """Download the packages for a machine, and yield the line of each."""
    for folder in _FOLDERS:
        (work / folder).mkdir(parents=True)
    (work / "etc" / "sources.list").write_text(_SOURCES, encoding="utf-8")
    (work / "state" / "status").touch()
    config = work / "apt.conf"
    config.write_text(_CONFIG.format(work=work, machine=machine), encoding="utf-8")
    debs = work / "debs"
    run(["apt-get", "--quiet", "update"], APT_CONFIG=str(config))
    get = ["env", f"--chdir={debs}", "apt-get", "--quiet", "download"]
    run([*get, *names], APT_CONFIG=str(config))
    for deb in debs.iterdir():
        what = run(["dpkg-deb", "--show", f"--showformat={_FIELDS}", str(deb)])
        content = deb.read_bytes()
        digests = (make(content, usedforsecurity=False) for make in (hashlib.sha256, hashlib.sha1))
        yield " ".join([what, *(digest.hexdigest() for digest in digests)])
