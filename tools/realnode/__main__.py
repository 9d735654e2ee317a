# SPDX-License-Identifier: Apache-2.0
"""Nodes that run containers, and the images of their pods: docs/real.md, `make images`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from muster.local import cluster, commands, layout, options, processes
from realnode import images, real


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
    except (cluster.ClusterError, images.ImageError, OSError) as error:
        print(f"realnode: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        processes.hush()
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tools/realnode", description=__doc__)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(
        name: str, text: str, run: Callable[[argparse.Namespace], int]
    ) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    up = action("up", "bring up a cluster with real nodes", _up)
    commands.add_up(up)
    up.add_argument(
        "--real-node",
        dest="real_nodes",
        default=1,
        metavar="N",
        type=_count,
        help="the number of real nodes (default 1); simulated nodes only with --nodes",
    )
    commands.add_name(action("down", "end a cluster and remove its files", commands.down))
    load = action("load", "give the real nodes images, of which pods are made", _load)
    commands.add_name(load)
    load.add_argument(
        "images",
        nargs="+",
        metavar="IMAGE",
        help="an archive as `docker save` writes it, or the name of one that `images` makes",
    )
    made = action("images", "make container images, for the training examples", _images)
    which = f"which: {', '.join(images.sources())} (default all)"
    made.add_argument("image", nargs="*", metavar="IMAGE", help=which)
    made.add_argument("--machine", default="", help="for which, such as arm64 (default this one)")
    network = action(real.NETWORK, "hold a cluster's network; started by up", _network)
    network.add_argument("name")
    network.add_argument("count", type=int)
    sweep = action("sweep", "remove what nodes leave behind; run by down", _sweep)
    sweep.add_argument("name")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= real.MAX_NODES:
        raise options.OptionError(f"{text!r} is not a number from 1 to {real.MAX_NODES}")
    return int(text)


def _up(args: argparse.Namespace) -> int:
    made = real.up(commands.wanted(args), args.real_nodes, commands.say)
    commands.show_use(args, made)
    return 0


def _load(args: argparse.Namespace) -> int:
    found = commands.found(args)
    if not found.extra.nodes:
        raise cluster.ClusterError(f"{found.files.name} has no real nodes")
    made = [images.make(name) if name in images.sources() else Path(name) for name in args.images]
    real.load(found, made)
    return 0


def _images(args: argparse.Namespace) -> int:
    """Make them one by one; one that cannot be had does not keep the others from being made."""
    failed = []
    for name in args.image or images.sources():
        try:
            path = images.make(name, args.machine)
        except images.ImageError as error:
            commands.say(f"{name} cannot be made: {error}")
            failed.append(name)
        else:
            size = path.stat().st_size >> 20
            print(f"{images.tags(name)[0]:30} {size:6} MiB  {path}", flush=True)
    if failed:
        commands.say(f"not made: {', '.join(failed)}")
    return 1 if failed else 0


def _network(args: argparse.Namespace) -> int:
    files = layout.Layout(args.name)
    real.prepare(files, args.count)
    real.hold_network(files, args.count)


def _sweep(args: argparse.Namespace) -> int:
    real.sweep(layout.Layout(args.name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
