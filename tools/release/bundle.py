# SPDX-License-Identifier: Apache-2.0
"""What a release is made of: a file to apply, the chart's archive, wheel, SBOM, checksums."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import chart
import gotools
import sbom
import yaml
from chart import ROOT

import muster
from muster.local import binaries, handle

PLACEHOLDER: Final = "muster"
"""Name of the image in the manifests until somebody names his own."""
CHECKSUMS: Final = "SHA256SUMS"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class ReleaseError(Exception):
    """Something is missing or wrong; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    """The name of an image, taken apart; `tag` or `digest` is empty."""

    repository: str
    tag: str
    digest: str

    @classmethod
    def read(cls, text: str) -> Image:
        """Read `registry/name:tag`, `...@sha256:...` or both."""
        if not text:
            raise ReleaseError(
                "IMAGE is not set. Nobody publishes an image of Muster: `make image "
                "IMAGE=REGISTRY/NAME:TAG` builds one; push it, and name it here by the same word."
            )
        match = re.fullmatch(
            r"((?:[a-z0-9.-]+(?::\d+)?/)?[a-z0-9._/-]+?)(?::([\w][\w.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?",
            text,
        )
        if not match:
            raise ReleaseError(f"{text!r} is no name of an image: REGISTRY/NAME:TAG")
        return cls(match[1], match[2] or "", match[3] or "")

    @property
    def name(self) -> str:
        """Return it as it is written."""
        tag, digest = (
            (f":{self.tag}" if self.tag else ""),
            (f"@{self.digest}" if self.digest else ""),
        )
        return self.repository + tag + digest


def gang_schedulers() -> list[str]:
    """Return the overlays that there are."""
    return sorted(path.name for path in (ROOT / "manifests" / "overlays").iterdir())


def installation(image: Image, gang: str) -> str:
    """Render the CRDs and an overlay, with the image; one apply of it is an installation."""
    if gang not in gang_schedulers():
        raise ReleaseError(f"GANG={gang}: there are {', '.join(gang_schedulers())}")
    chosen = {"newName": image.repository}
    chosen |= {"digest": image.digest} if image.digest else {"newTag": image.tag or "latest"}
    with tempfile.TemporaryDirectory() as work:
        overlay = ROOT / "manifests" / "overlays" / gang
        own = {
            # kustomize takes relative paths alone, and goes by where a folder really is.
            "resources": [os.path.relpath(overlay, Path(work).resolve())],
            "images": [{"name": PLACEHOLDER, **chosen}],
        }
        (Path(work) / "kustomization.yaml").write_text(yaml.safe_dump(own))
        kubectl = shutil.which(handle.KUBECTL)
        argv = [kubectl] if kubectl else binaries.find(programs=[handle.KUBECTL])[handle.KUBECTL]
        documents = run([*argv, "kustomize", work]).split("\n---\n")
    # As they are: reading and writing them again takes kustomize seconds.
    crds = [path.read_text().strip() for path in sorted((ROOT / "crds").glob("*.yaml"))]
    spaces = [each for each in documents if re.search("^kind: Namespace$", each, re.MULTILINE)]
    rest = [each for each in documents if each not in spaces]
    return "# SPDX-License-Identifier: Apache-2.0\n" + "\n---\n".join([*spaces, *crds, *rest])


def run(argv: Sequence[str], *, shown: bool = False, **more: str) -> str:
    """Run a program in the repository; its output, unless that is `shown` as it comes."""
    env, out = {**os.environ, **more}, None if shown else subprocess.PIPE
    ended = subprocess.run(argv, cwd=ROOT, env=env, stdout=out, text=True, check=False)
    if ended.returncode:
        raise ReleaseError(f"{' '.join(argv)} ended with {ended.returncode}")
    return ended.stdout or ""


def archive(image: Image) -> bytes:
    """Pack the chart, with the image as its default; the same bytes for the same files."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as out,
    ):
        for path, name in sorted(chart.files()):
            data = path.read_bytes()
            if name == Path("values.yaml"):
                data = _with_image(data.decode(), image).encode()
            info = tarfile.TarInfo(f"{chart.CHART.name}/{name}")
            info.size, info.mode = len(data), 0o644
            out.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def _with_image(values: str, image: Image) -> str:
    """Write the image's name into the values, which keep their comments."""
    for key in ("repository", "tag", "digest"):
        shape = re.compile(rf'^  {key}: ""$', re.MULTILINE)
        values, found = shape.subn(f'  {key}: "{getattr(image, key)}"', values)
        assert found == 1, key
    return values


def notes() -> str:
    """Return what users notice of this version: its part of the changelog, else the coming one."""
    text = (ROOT / "CHANGELOG.md").read_text()
    each = re.compile(r"^## ([\w.]+)[^\n]*\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    parts: dict[str, str] = dict(each.findall(text))
    version = muster.version()
    return f"# Muster {version}\n\n{parts.get(version, parts['Unreleased']).strip()}\n"


@dataclass(frozen=True, slots=True)
class Signer:
    """cosign and what it is told beside: a key, services; without a program nothing is signed."""

    program: str = ""
    words: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Signer:
        """Read cosign's flags; nothing: by whom one logs in as, if there is cosign."""
        program = gotools.find("cosign")
        if text and not program:
            raise ReleaseError(f"SIGN={text}, and there is no cosign: `make cosign` builds it")
        return cls(program, tuple(shlex.split(text)))

    def run(self, verb: str, *words: str) -> None:
        """Have it done, if there is who does it."""
        if self.program:
            run([self.program, verb, "--yes", *self.words, *words])


def release(image: Image, gang: str, out: Path, *more: Path, signer: Signer) -> None:
    """Write all files of a release, of which those of the folder that are named are, too."""
    out.mkdir(parents=True, exist_ok=True)
    stem = f"muster-{muster.version()}"
    texts = {
        "install.yaml": installation(image, gang).encode(),
        f"{stem}.tgz": archive(image),
        f"{stem}.cdx.json": sbom.document().encode(),
        f"{stem}.md": notes().encode(),
    }
    for name, data in texts.items():
        (out / name).write_bytes(data)
    words = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
    # The same bytes for the same files: a wheel is an archive, and has times in it.
    run(
        [sys.executable, "-m", "pip", "wheel", *words, "--wheel-dir", str(out), "."],
        SOURCE_DATE_EPOCH="315532800",
    )
    files = sorted([*more, *(out / name for name in (*texts, f"{stem}-py3-none-any.whl"))])
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / CHECKSUMS).write_text("".join(lines))
    for path in (*files, out / CHECKSUMS):
        print(f"{path.stat().st_size:>10}  {path}")
    sums = out / CHECKSUMS
    signer.run("sign-blob", f"--bundle={sums.with_suffix('.sigstore.json')}", str(sums))
    if not signer.program:
        print(f"Not signed: no cosign (`make cosign` builds it); {CHECKSUMS} has the checksums.")


def publish(image: Image, gang: str, parts: Path, signer: Signer) -> None:
    """Sign what was pushed and its list of parts, release it beside that, and push the chart."""
    signer.run("sign", image.name)
    signer.run("attest", "--type=cyclonedx", f"--predicate={parts}", image.name)
    out = parts.parent
    release(image, gang, out, parts, signer=signer)
    registry, _, _ = image.repository.rpartition("/")
    chart = out / f"muster-{muster.version()}.tgz"
    helm = gotools.find("helm")
    if not helm:
        print(f"The chart is not pushed: there is no helm (`make helm` builds it); it is {chart}.")
        return
    # As docker and cosign take a registry on this machine: there is no certificate for it.
    plain = ["--plain-http"] if registry.startswith(_LOOPBACK) else []
    run([helm, "push", *plain, str(chart), f"oci://{registry}/charts"])
