# SPDX-License-Identifier: Apache-2.0
"""`muster local`: flags to `options.Options`, and what each sub-command prints."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from muster.local import binaries, cluster, layout, nodes, options, processes

EVAL_FAILS = "false"
"""What `env` prints on errors: with nothing, commands after `eval` would use another cluster."""

if TYPE_CHECKING:
    from collections.abc import Callable

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001


def add_to(subparsers: Subparsers) -> None:
    """Add the command `local`; after parsing, `args.run(args)` is the exit code."""
    text = "a real API server on this machine, with simulated nodes"
    parser = subparsers.add_parser("local", help=text, description=text)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, text, run, add in (
        ("up", "bring up a cluster", _up, add_up),
        ("down", "end a cluster and remove its files", down, add_name),
        ("status", "what runs", _status, add_name),
        ("env", 'print exports for the shell: eval "$(muster local env)"', _env, add_name),
        ("logs", "print the output of a component", _logs, _add_logs),
        ("binaries", "get the programs; print component -> command line", _binaries, _add_version),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.set_defaults(run=_reported(run))
        add(action)


def add_up(parser: argparse.ArgumentParser) -> None:
    """Add the flags of up."""
    add = parser.add_argument
    add(
        "--name",
        default=options.DEFAULT_NAME,
        type=options.parse_name,
        help=f"what to call the cluster (default {options.DEFAULT_NAME})",
    )
    add(
        "--nodes",
        type=options.parse_count,
        help=f"how many simulated nodes (default {options.DEFAULT_NODES}, or none in a cluster "
        "that was there before)",
    )
    add(
        "--node",
        action="append",
        default=[],
        metavar="RESOURCE=QUANTITY,...",
        type=options.parse_shape,
        help="what a node has, such as cpu=8,memory=32Gi,nvidia.com/gpu=4,pods=110; "
        "given several times: the nodes take turns",
    )
    add(
        "--node-label",
        action="append",
        default=[],
        metavar="KEY=VALUE[:EFFECT]",
        type=lambda text: options.parse_labels([text]) and text,
        help="label of every node; with an effect such as NoSchedule, a taint",
    )
    add(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="where there is such a file, its cluster is used as it is and only given what it "
        "lacks of CRDs and the nodes asked for; else the new cluster's kubeconfig "
        "is written here too",
    )
    for part, text in (
        ("kwok", "nodes are only written down, pods do not run"),
        ("scheduler", "without kube-scheduler"),
    ):
        add(f"--no-{part}", dest=part, action="store_false", help=text)
    add(
        "--native-gangs",
        action="store_true",
        help="switch on Kubernetes' own gangs, for --gang-scheduler-name=kubernetes",
    )
    add(
        "--default-run-seconds",
        dest="run_seconds",
        metavar="SECONDS",
        default=options.DEFAULT_RUN_SECONDS,
        type=options.parse_run_seconds,
        help="how long a simulated pod runs that does not say so itself, or `forever` (default "
        f"{options.DEFAULT_RUN_SECONDS})",
    )
    _add_version(parser)


def add_name(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names a cluster."""
    parser.add_argument(
        "--name",
        type=options.parse_name,
        help="name of the cluster (default: of the only one that there is)",
    )


def _add_logs(parser: argparse.ArgumentParser) -> None:
    add_name(parser)
    parser.add_argument("component", metavar="COMPONENT", help="one that `status` lists")


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubernetes-version",
        metavar="V",
        type=options.parse_version,
        help=f"default: what is found on this machine, else {options.KUBERNETES_VERSION}",
    )


def _reported(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def reported(args: argparse.Namespace) -> int:
        try:
            return run(args)
        except cluster.ClusterError as error:
            print(f"muster local: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            processes.hush()
            return 130

    return reported


def _up(args: argparse.Namespace) -> int:
    show_use(args, cluster.up(wanted(args), say))
    return 0


def wanted(args: argparse.Namespace) -> options.Options:
    """Return the cluster that the flags of up ask for."""
    known = {field.name for field in dataclasses.fields(options.Options)}
    given = {name: value for name, value in vars(args).items() if name in known}
    labels, taints = options.parse_labels(args.node_label)
    shapes = tuple(args.node) or options.DEFAULT_SHAPES
    return options.Options(**given, shapes=shapes, labels=labels, taints=taints)


def show_use(args: argparse.Namespace, made: cluster.Cluster) -> None:
    """Print how to use the cluster that the flags of up asked for."""
    print(f"kubeconfig: {args.kubeconfig or made.kubeconfig}")
    name = "" if cluster.names() == [args.name] else f" --name {args.name}"
    print(f'to use it:  eval "$(muster local env{name})"')


def _meant(args: argparse.Namespace) -> str:
    """Name of the cluster that a command is about: the only one where none is named."""
    there = cluster.names()
    if not args.name and len(there) > 1:
        raise cluster.ClusterError(
            f"there are several clusters, name one by --name: {' '.join(there)}"
        )
    return args.name or (there[0] if there else options.DEFAULT_NAME)


def down(args: argparse.Namespace) -> int:
    """End a cluster and remove its files."""
    name = _meant(args)
    there = cluster.down(name, say)
    say(f"{name} is down" if there else f"there is no cluster {name}")
    return 0


def _status(args: argparse.Namespace) -> int:
    name = _meant(args)
    found = cluster.find(name)
    if not found:
        print(_missing(name))
        return 1
    pids = found.pids()
    for name, pid in pids.items():
        print(f"{name:24}  {f'running, pid {pid}' if pid else 'stopped'}")
    from muster.local import contents  # noqa: PLC0415 -- takes a second, and few commands ask

    try:
        there = found.ask(functools.partial(contents.simulated, found.options.mark))
        ready = f"{sum(map(nodes.ready, there))} of {len(there)} ready"
    except cluster.ClusterError as error:
        ready = f"unknown: {error}"
    print(f"{'nodes':24}  {ready}")
    print(f"{'server':24}  {found.server}")
    print(f"{'kubeconfig':24}  {found.kubeconfig}")
    return 0 if all(pids.values()) else 1


def _missing(name: str) -> str:
    there = cluster.names()
    if name in there:
        return f"{name} was not brought up whole; `muster local up` or `down` clears it away"
    return f"there is no cluster {name} (`muster local up`); others: {' '.join(there) or 'none'}"


def _env(args: argparse.Namespace) -> int:
    try:
        meant = found(args)
        if meant.existing:
            from muster.local import contents  # noqa: PLC0415 -- takes a second, few commands ask

            contents.require(meant.existing)
    except BaseException:
        print(EVAL_FAILS)
        raise
    print(f"export KUBECONFIG={shlex.quote(str(meant.kubeconfig))}")
    print(f'export PATH={shlex.quote(str(meant.files.bin))}:"$PATH"')
    return 0


def found(args: argparse.Namespace) -> cluster.Cluster:
    """Return the cluster that a command is about; ClusterError if there is none."""
    name = _meant(args)
    found = cluster.find(name)
    if not found:
        raise cluster.ClusterError(_missing(name))
    return found


def _logs(args: argparse.Namespace) -> int:
    name = _meant(args)
    path = layout.Layout(name).log(args.component)
    there = sorted(one.stem for one in path.parent.glob("*.log"))
    if args.component not in there:
        others = " ".join(there) or "none"
        raise cluster.ClusterError(f"{name} has no {args.component}; there are: {others}")
    sys.stdout.buffer.write(path.read_bytes())  # a terminal may have another encoding
    return 0


def _binaries(args: argparse.Namespace) -> int:
    print(json.dumps(binaries.find(args.kubernetes_version), indent=2))
    return 0


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
