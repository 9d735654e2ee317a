# SPDX-License-Identifier: Apache-2.0
"""Container images from Dockerfiles, with neither an engine nor a registry.

A stage starts FROM `scratch`, from `debian:SUITE-slim`, which mmdebstrap makes of what the suite
has today whatever digest is named, or from another image of ours, and its layer is what an overlay
over its parent took in. An image is one file (docker-archive) in the user's cache, under a hash of
all that it is made from; making one leaves nothing else behind. It is for this machine, or for
another where its Dockerfile asks for which: nothing that is run while it is made is of that.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from muster.local import layout, nodes
from realnode.dockerfile import MACHINE, Config, Copy, DockerfileError, Stage, Step, parse

PREFIX = "localhost/muster/"
TAG = "1"
OURS = "muster"
"""The operator's own image; the others are those of the training examples."""

_FOR = "+"
"""Behind it stands another machine than this one."""
_BELOW = "~"
"""Behind it stands the number of a stage: no name in a Dockerfile has it."""
_FORMAT = "1"
_EPOCH = 315532800
"""When all of an image from scratch was changed: the same content is the same image."""
_KEPT = 3
_TOOLS = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux", "tar": "tar", "chroot": "coreutils"}
_SCRATCH = "scratch"
_DEBIAN = re.compile(r"(?:docker\.io/library/)?(debian:(\w+)-slim)(?:@sha256:[0-9a-f]{64})?")
# As in Debian's own slim images: nobody reads manuals there, and no service starts by itself.
_SLIM = (
    "--variant=minbase",
    "--skip=output/dev",
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale", "info")),
    "--customize-hook=printf '#!/bin/sh\\nexit 101\\n' >\"$1/usr/sbin/policy-rc.d\"",
    '--customize-hook=chmod +x "$1/usr/sbin/policy-rc.d"',
)
# What a build is told of this machine: how to reach the packages, and nothing more.
_REACH = re.compile(r"(?i)(https?|no)_proxy|pip_(index_url|extra_index_url|default_timeout)")
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_BUNDLE = "/mnt/ca-certificates.crt"
# Mounts and processes of a build end with its namespaces, however it ends.
_UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-ec")
_OVERLAY = 'mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK" "$ROOT"\n'
_ENTER = f"""mount -t proc proc "$ROOT/proc"
mkdir -p "$ROOT/dev" "$ROOT/mnt"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs tmpfs "$ROOT/mnt"
if [ -n "$BUNDLE" ]; then cp "$BUNDLE" "$ROOT{_BUNDLE}"; fi
touch "$ROOT/etc/resolv.conf"
mount --bind /etc/resolv.conf "$ROOT/etc/resolv.conf"
exec """


class ImageError(Exception):
    """An image cannot be made; the message says why, and what to do."""


def sources() -> dict[str, Path]:
    """Name -> Dockerfile of each image that there is."""
    folder = _context() / "examples" / "training" / "images"
    found = {path.stem: path for path in sorted(folder.glob("*.Dockerfile"))}
    return {**found, OURS: _context() / "manifests" / "image" / "Dockerfile"}


def tags(name: str) -> list[str]:
    """Names by which pods may ask for an image; the operator's is its Deployment's as well."""
    tag = f"{PREFIX}{name}:{TAG}"
    if name != OURS:
        return [tag]
    text = (_context() / "manifests" / "base" / "deployment.yaml").read_text()
    return [tag, *re.findall(r"^ *image: (\S+)$", text, re.MULTILINE)]


def root() -> Path:
    """Folder of the images, beside that of the control plane's programs."""
    return layout.cache_root().with_name("images")


def lacking() -> list[str]:
    """Return what making an image needs and this machine has not."""
    if not sys.platform.startswith("linux"):
        return ["Linux"]
    packages = [package for tool, package in _TOOLS.items() if not shutil.which(tool)]
    return [*(["root"] if os.geteuid() else []), *packages]


def archive(name: str) -> Path:
    """Where an image is, or will be."""
    return _archive(f"{PREFIX}{name}:{TAG}")


def make(name: str, machine: str = "") -> Path:
    """Make an image, and what it is made from, unless somebody did.

    `machine`: for which, in Kubernetes' words (`arm64`); empty: for this one.
    """
    other = f"{_FOR}{machine}" if machine not in ("", nodes.architecture()) else ""
    return _make(f"{PREFIX}{name}{other}:{TAG}")


def _archive(reference: str) -> Path:
    return root() / f"{_name(reference)}-{_key(reference)[:16]}.tar"


def _name(reference: str) -> str:
    """Give the name of an image of ours, or of Debian's."""
    if _DEBIAN.fullmatch(reference):
        return reference.replace(":", "-")
    name = reference.removeprefix(PREFIX).removesuffix(f":{TAG}")
    known = _base(name) in sources()
    if f"{PREFIX}{name}:{TAG}" != reference or not known:
        there = ", ".join(f"{PREFIX}{name}:{TAG}" for name in sources())
        raise ImageError(f"no image {reference}; there are debian:SUITE-slim, {there}")
    return name


def _base(name: str) -> str:
    """Return the name without the stage and the machine that it is of."""
    return name.partition(_BELOW)[0].partition(_FOR)[0]


def _machine(reference: str) -> str:
    return _name(reference).partition(_BELOW)[0].partition(_FOR)[2] or nodes.architecture()


def _stages(reference: str) -> tuple[Stage, ...]:
    """Read the stages of an image; the lasting steps of each are an image below it."""
    name, _, number = _name(reference).partition(_BELOW)
    if _base(name) not in sources():
        return ()
    try:
        found = parse(sources()[_base(name)].read_text())
    except (OSError, DockerfileError) as error:
        raise ImageError(f"{name}: {error}") from error
    if _FOR in name and not any(MACHINE in stage.steps for stage in found):
        raise ImageError(f"{_base(name)} is for this machine alone, {nodes.architecture()}")
    given = Step("ENV", f"{MACHINE.text}={_machine(reference)}")
    stages = [
        Stage(
            _undigested(stage.parent),
            stage.name,
            tuple(given if step == MACHINE else step for step in stage.steps),
        )
        for stage in found
    ]
    if number:
        stage = stages[int(number)]
        return (Stage(stage.parent, steps=stage.steps[: _lasting(stage)]),)
    own = {stage.name for stage in stages}
    return tuple(
        replace(stage, parent=f"{PREFIX}{name}{_BELOW}{i}:{TAG}", steps=stage.steps[lasting:])
        if (lasting := _lasting(stage)) and stage.parent not in own
        else stage
        for i, stage in enumerate(stages)
    )


def _undigested(parent: str) -> str:
    match = _DEBIAN.fullmatch(parent)
    return match[1] if match else parent


def _lasting(stage: Stage) -> int:
    """How many steps, up to a RUN, come before the first that copies what often changes."""
    copies = ((i, Copy.read(s.text)) for i, s in enumerate(stage.steps) if s.name == "COPY")
    changing = next((i for i, copy in copies if copy.stage or _folders(copy)), 0)
    runs = [i for i, step in enumerate(stage.steps[:changing]) if step.name == "RUN"]
    return runs[-1] + 1 if runs else 0


def _folders(copy: Copy) -> bool:
    return any((_context() / name).is_dir() for name in copy.sources)


def _parents(stages: Sequence[Stage]) -> list[str]:
    """Images that stages are made from."""
    own = {stage.name for stage in stages if stage.name}
    return sorted({stage.parent for stage in stages} - own - {_SCRATCH})


def _key(reference: str) -> str:
    stages = _stages(reference)
    parts = [_FORMAT, platform.machine(), repr(stages)]
    parts += [repr((reference, _SLIM, _mirrors(reference)))] if not stages else []
    parts += [_key(parent) for parent in _parents(stages)]
    parts += tags(_base(_name(reference))) if stages else []
    for path in _files(stages):
        parts.append(str(path.relative_to(_context())))
        parts.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _context() -> Path:
    """Folder that COPY takes from: the repository."""
    return Path(__file__).resolve().parents[2]


def _files(stages: Sequence[Stage]) -> Iterator[Path]:
    copies = (Copy.read(s.text) for stage in stages for s in stage.steps if s.name == "COPY")
    for name in sorted({name for copy in copies if not copy.stage for name in copy.sources}):
        place = _context() / name
        if not place.exists():
            raise ImageError(f"{place} is missing")
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (p for p in found if p.is_file() and "__pycache__" not in p.parts)


def _make(reference: str) -> Path:
    target = _archive(reference)
    if target.exists():
        target.touch()
        return target
    if lacks := lacking():
        raise ImageError(f"to make images this machine lacks {', '.join(lacks)}")
    stages = _stages(reference)
    parents = {parent: _make(parent) for parent in _parents(stages)}
    root().mkdir(parents=True, exist_ok=True)
    with layout.held(root() / f"{_name(reference)}.lock"):
        if not target.exists():
            with _work(target) as work:
                _Build(target, work, parents).image(reference, stages)
                _forget(target)
    return target


def _forget(target: Path) -> None:
    """Remove all but the last used archives of an image: each commit has its own operator."""
    name = target.name.rpartition("-")[0]
    found = target.parent.glob(f"{name}-{'[0-9a-f]' * 16}.tar")
    for old in sorted(found, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        old.unlink()


def _work(target: Path) -> tempfile.TemporaryDirectory[str]:
    """Make a folder for one build; those of builds that were killed go."""
    name = target.name.rpartition("-")[0]
    for stale in target.parent.glob(f".{name}-*"):
        shutil.rmtree(stale)
    return tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target.parent)


@dataclass(frozen=True, slots=True)
class _Made:
    """A stage or an image, unpacked: `folders` are its layers, the lowest first."""

    layers: tuple[Path, ...]
    folders: tuple[Path, ...]
    config: Config


class _Build:
    """The making of one image."""

    def __init__(self, target: Path, work: str, parents: dict[str, Path]) -> None:
        self.target = target
        self.work = Path(work)
        self.log = target.with_suffix(".log")
        self.parents = parents
        self.made: dict[str, _Made] = {}

    def image(self, reference: str, stages: Sequence[Stage]) -> None:
        """Make it; the file is there when it is whole."""
        self.log.write_text("")
        layers, config = self._debian(reference) if not stages else self._staged(stages)
        fresh = self.work / "image.tar"
        names = tags(_base(_name(reference))) if stages else [reference]
        pack(fresh, layers, config, names, _machine(reference))
        fresh.rename(self.target)
        self.log.unlink()

    def _debian(self, reference: str) -> tuple[Sequence[Path], Config]:
        match = _DEBIAN.fullmatch(reference)
        assert match
        layer = self.work / "layer.tar"
        argv = ["mmdebstrap", *_SLIM, match[2], str(layer), *_mirrors(reference)]
        self._do(argv, f"mmdebstrap {match[2]}", {})
        return [layer], Config(command=("/bin/sh",))

    def _staged(self, stages: Sequence[Stage]) -> tuple[Sequence[Path], Config]:
        for number, stage in enumerate(stages):
            last = number == len(stages) - 1
            made = self._stage(stage, self.work / f"stage-{number}", packed=last)
            self.made[stage.name or str(number)] = made
        return made.layers, made.config

    def _stage(self, stage: Stage, place: Path, *, packed: bool) -> _Made:
        parent = self._parent(stage.parent)
        for name in ("upper", "work", "root"):
            (place / name).mkdir(parents=True)
        config = parent.config
        for step in stage.steps:
            config = config.after(step)
            self._step(step, config, parent.folders, place)
        layers = parent.layers
        if packed:
            layer = place / "layer.tar"
            write_layer(place / "upper", layer, timeless=stage.parent == _SCRATCH)
            layers = (*layers, layer)
        return _Made(layers, (*parent.folders, place / "upper"), config)

    def _parent(self, reference: str) -> _Made:
        if reference == _SCRATCH:
            nothing = self.work / _SCRATCH  # an overlay is over something
            nothing.mkdir(exist_ok=True)
            return _Made((), (nothing,), Config())
        if reference not in self.made:
            self.made[reference] = _unpack(self.parents[reference], self.work / _name(reference))
        return self.made[reference]

    def _step(self, step: Step, config: Config, lower: Sequence[Path], place: Path) -> None:
        if step.name == "RUN":
            script = _OVERLAY + _ENTER + _inside(step.text, config)
        elif step.name == "COPY":
            script = _OVERLAY + self._copied(Copy.read(step.text), config)
        else:
            return
        env = {
            "LOWER": ":".join(map(str, reversed(lower))),
            "UPPER": str(place / "upper"),
            "WORK": str(place / "work"),
            "ROOT": str(place / "root"),
            "BUNDLE": _bundle(),
        }
        self._do([*_UNSHARE, script], f"{step.name} {step.text}", env)

    def _copied(self, copy: Copy, config: Config) -> str:
        target = os.path.normpath(f"{config.folder}/{copy.target}")
        how = "--archive" if copy.stage else "--recursive --preserve=mode,timestamps,links"
        shown = self.work / "from"
        lines = [self._show(copy.stage, shown)] if copy.stage else []
        for name in copy.sources:
            into, source = target, (shown if copy.stage else _context()) / name.lstrip("/")
            folder = self._has_folder(copy.stage, name) if copy.stage else source.is_dir()
            if not folder and (copy.target.endswith(("/", ".")) or copy.sources[1:]):
                into = f"{target}/{source.name}"
            at, from_ = shlex.quote(into), shlex.quote(str(source))
            lines.append(f'mkdir -p "$ROOT"{shlex.quote(os.path.dirname(into))}')  # noqa: PTH120
            lines.append(f'cp {how} --no-target-directory {from_} "$ROOT"{at}')
            if not copy.stage:
                lines.append(f'find "$ROOT"{at} -name __pycache__ -prune -exec rm -r {{}} +')
        return "\n".join(lines)

    def _show(self, stage: str, place: Path) -> str:
        """Give the commands that mount what a stage has."""
        lower = ":".join(map(str, reversed(self.made[stage].folders)))
        at = shlex.quote(str(place))
        return f"mkdir -p {at}\nmount -t overlay overlay -o lowerdir={shlex.quote(lower)} {at}"

    def _has_folder(self, stage: str, path: str) -> bool:
        places = (folder / path.lstrip("/") for folder in reversed(self.made[stage].folders))
        return next((place.is_dir() for place in places if place.exists()), False)

    def _do(self, argv: Sequence[str], what: str, env: dict[str, str]) -> None:
        with self.log.open("a") as log:
            log.write(f"--- {what}\n")
            log.flush()
            ended = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **env},
                check=False,
            )
        if ended.returncode:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])
            raise ImageError(f"{what[:70]} failed; the whole output is in {self.log}\n{tail}")


def _inside(command: str, config: Config) -> str:
    """Give the command line that does a RUN."""
    env = {name: value for name, value in os.environ.items() if _REACH.fullmatch(name)}
    bundle = {"PIP_CERT": _BUNDLE, "SSL_CERT_FILE": _BUNDLE} if _bundle() else {}
    pairs = {"HOME": "/root", **bundle, **env, **config.env}.items()
    words = ["env", "--ignore-environment", *(f"{name}={value}" for name, value in pairs)]
    folder = shlex.quote(config.folder)
    words += ["/bin/sh", "-c", f"mkdir -p {folder} && cd {folder} && {command}"]
    user = f"--userspec={shlex.quote(config.user)} " if config.user else ""
    return f'chroot {user}"$ROOT" {shlex.join(words)}'


def _bundle() -> str:
    return next((path for path in _BUNDLES if Path(path).is_file()), "")


def _mirrors(reference: str) -> list[str]:
    """Files in which this machine has the suite from Debian; none: mmdebstrap knows its own."""
    match = _DEBIAN.fullmatch(reference)
    places = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    wanted = re.compile(rf"^(Suites:.*|deb .*)\s{match[2] if match else '-'}(\s|$)", re.MULTILINE)
    found = (path for path in sorted(places) if path.suffix in {".list", ".sources"})
    return [str(p) for p in found if p.is_file() and wanted.search(p.read_text())]


def pack(
    target: Path, layers: Sequence[Path], config: Config, names: list[str], machine: str = ""
) -> None:
    """Write a docker-archive of layers, the lowest first, for that machine or this one."""
    digests = [_digest(layer) for layer in layers]
    text = json.dumps(
        {
            "architecture": machine or nodes.architecture(),
            "os": "linux",
            "config": config.document(),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
            # Without it podman builds nothing over an image.
            "history": [{"created_by": "muster"} for _ in digests],
        }
    ).encode()
    key = hashlib.sha256(text).hexdigest()
    entries = [f"{digest}/layer.tar" for digest in digests]
    manifest = [{"Config": f"{key}.json", "RepoTags": names, "Layers": entries}]
    with tarfile.open(target, "w") as out:
        for entry, layer in zip(entries, layers, strict=True):
            out.add(layer, entry, filter=_timeless)
        documents = {f"{key}.json": text, "manifest.json": json.dumps(manifest).encode()}
        for name, data in documents.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(path: Path, place: Path) -> _Made:
    layers, folders = [], []
    with tarfile.open(path) as packed:
        document = _json(packed, "manifest.json")[0]
        config = _json(packed, document["Config"])
        for number, entry in enumerate(document["Layers"]):
            layer, folder = place / f"{number}.tar", place / str(number)
            folder.mkdir(parents=True)
            with _member(packed, entry) as file, layer.open("wb") as out:
                shutil.copyfileobj(file, out, 1 << 20)
            read_layer(layer, folder)
            layers.append(layer)
            folders.append(folder)
    return _Made(tuple(layers), tuple(folders), Config.read(config["config"]))


def _json(packed: tarfile.TarFile, name: str) -> Any:
    with _member(packed, name) as file:
        return json.load(file)


def _member(packed: tarfile.TarFile, name: str) -> IO[bytes]:
    file = packed.extractfile(name)
    assert file is not None
    return file


_GONE = ".wh."
_OPAQUE = ".wh..wh..opq"
_OPAQUE_ATTRIBUTE = "trusted.overlay.opaque"


def write_layer(folder: Path, target: Path, *, timeless: bool = False) -> None:
    """Pack the upper folder of an overlay as a layer: what it hides is named as layers name it.

    Python takes what it compiled for stale where the times of a module changed, so that only what
    was compiled without them may be packed `timeless`.
    """
    as_it_is = _timeless if timeless else None
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as out:
        for top, folders, files in os.walk(folder):
            folders.sort()
            place = Path(top)
            arcname = place.relative_to(folder)
            if place != folder:
                out.add(place, str(arcname), recursive=False, filter=as_it_is)
            if _OPAQUE_ATTRIBUTE in os.listxattr(place, follow_symlinks=False):
                out.addfile(tarfile.TarInfo(str(arcname / _OPAQUE)))
            links = [name for name in folders if (place / name).is_symlink()]
            for name in sorted([*files, *links]):
                _add(out, place / name, arcname / name, as_it_is)


_Filter = Callable[[tarfile.TarInfo], tarfile.TarInfo]


def _add(out: tarfile.TarFile, path: Path, arcname: Path, as_it_is: _Filter | None = None) -> None:
    found = path.lstat()
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
        out.addfile(tarfile.TarInfo(str(arcname.with_name(_GONE + arcname.name))))
    elif not stat.S_ISSOCK(found.st_mode):
        out.add(path, str(arcname), recursive=False, filter=as_it_is)


def _timeless(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.mtime, info.uname, info.gname = _EPOCH, "", ""
    return info


def read_layer(layer: Path, folder: Path) -> None:
    """Unpack a layer as the lower folder of an overlay."""
    argv = ["tar", "--extract", "--numeric-owner", "--same-permissions", "--same-owner"]
    subprocess.run([*argv, f"--file={layer}", f"--directory={folder}"], check=True)
    for path in sorted(folder.rglob(f"{_GONE}*")):
        path.unlink()
        if path.name == _OPAQUE:
            os.setxattr(path.parent, _OPAQUE_ATTRIBUTE, b"y")
        else:
            os.mknod(path.with_name(path.name.removeprefix(_GONE)), stat.S_IFCHR, 0)
