# SPDX-License-Identifier: Apache-2.0
"""Make what others install: `make chart`, `make deploy`, `make release` and `make publish`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import bundle
import chart
import debian
import gotools
import image
import sbom

import muster
from realnode import images


def main(argv: Sequence[str] | None = None) -> int:
    """Do one of them; the exit code."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
    except (bundle.ReleaseError, sbom.PartsError, images.ImageError) as error:
        print(error, file=sys.stderr)
        return 1
    return code


def _whole(text: str) -> Path:
    # What is run is run at the repository's root, from wherever this is asked.
    return Path(text).absolute()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tools/release", description=__doc__)
    parts = parser.add_subparsers(required=True)
    program = parts.add_parser("program", help="build a program into the user's cache")
    program.add_argument("name", choices=gotools.PROGRAMS)
    program.set_defaults(run=_program)
    pins = parts.add_parser("debian-pins", help="pin the newest packages of Debian for the image")
    pins.set_defaults(run=_pins)
    install = parts.add_parser("install", help="print all that an installation is")
    release = parts.add_parser("release", help="write the files of a release")
    for part in (install, release):
        part.add_argument("--image", default="", help="REGISTRY/NAME:TAG, or @sha256:DIGEST")
        part.add_argument("--gang", default="embedded", help="a folder of manifests/overlays")
    install.set_defaults(run=_install)
    built = parts.add_parser("image", help="build the image with an engine")
    built.add_argument("--image", default=bundle.PLACEHOLDER, help="its name (muster)")
    parts_of = Path("dist", "image.cdx.json")
    built.add_argument("--parts", type=Path, default=parts_of, help=f"its parts ({parts_of})")
    built.add_argument("--machine", default="", help="amd64 or arm64 (this one)")
    built.set_defaults(run=_image)
    pushed = parts.add_parser("publish", help="push the image for all machines, then release it")
    pushed.add_argument("--registry", default="", help="such as registry.example.com/team")
    pushed.add_argument("--name", default="", help="name of the image there (muster)")
    pushed.add_argument("--gang", default="embedded", help="a folder of manifests/overlays")
    pushed.set_defaults(run=_publish)
    for part in (built, pushed):
        part.add_argument(
            "--engine", default="", help="docker, podman, buildah (one of PATH), none"
        )
        part.add_argument("--base", default="", help="image of Debian that it is made in")
    for part in (release, pushed):
        part.add_argument("--out", type=_whole, default="dist", help="where (dist)")
        part.add_argument("--sign", default="", help="flags of cosign, such as --key=FILE")
    release.set_defaults(run=_release)
    return parser


def _program(args: argparse.Namespace) -> int:
    if not gotools.find(args.name):
        gotools.build(args.name)
    print(gotools.find(args.name))
    return 0


def _pins(_: argparse.Namespace) -> int:
    debian.update(chart.ROOT / debian.PINS)
    return 0


def _install(args: argparse.Namespace) -> int:
    print(bundle.installation(bundle.Image.read(args.image), args.gang), end="")
    return 0


def _release(args: argparse.Namespace) -> int:
    signer = bundle.Signer.read(args.sign)
    bundle.release(bundle.Image.read(args.image), args.gang, args.out, signer=signer)
    return 0


def _image(args: argparse.Namespace) -> int:
    named = bundle.Image.read(args.image or bundle.PLACEHOLDER)
    image.build(named, image.How(args.engine, args.base, args.machine), args.parts)
    return 0


def _publish(args: argparse.Namespace) -> int:
    if not args.registry:
        raise bundle.ReleaseError("REGISTRY is not set: such as registry.example.com/team")
    name = f"{args.registry}/{args.name or bundle.PLACEHOLDER}:{muster.version()}"
    asked = bundle.Image.read(name)
    signer = bundle.Signer.read(args.sign)
    parts = args.out / f"muster-{muster.version()}-image.cdx.json"
    how = image.How(image.engine(args.engine), args.base)
    image.build(bundle.Image(bundle.PLACEHOLDER, asked.tag, ""), how, parts)
    bundle.publish(image.push(asked, how), args.gang, parts, signer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
