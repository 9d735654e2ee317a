# SPDX-License-Identifier: Apache-2.0
"""The commands that ask a live cluster, or tell it something: their words and flags.

What carries them out is imported when it is called for: completion asks for the words alone.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

Subparsers = argparse._SubParsersAction  # noqa: SLF001 -- argparse has no other name for it
Ask = Callable[[Any, Any, str, argparse.Namespace], Any]
"""(module, connection, namespace, arguments) -> what is to be printed, as it comes."""


def add_to(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    """Add the commands; after parsing, `args.run(args)` is the exit code."""
    _add_logs(subparsers)
    _add_restart(subparsers)
    _add_queue(subparsers)
    shown = subparsers.add_parser(
        "top",
        parents=[_where()],
        help="show live how many GPUs are held, and by whom",
        epilog="All nodes are looked at, whatever the namespace. Ctrl-C ends it.",
    )
    shown.add_argument("--once", action="store_true", help="one picture, as into a file")
    _does(
        shown,
        "top",
        lambda top, kube, where, args: top.top(
            kube, where, once=args.once or not sys.stdout.isatty()
        ),
    )
    shells = ("bash", "zsh", "fish")
    made = subparsers.add_parser("completion", help="print what completes commands in a shell")
    made.add_argument("shell", choices=shells)
    made.set_defaults(run=_complete)


def _where() -> argparse.ArgumentParser:
    """Return the flags that all commands have: the cluster and the namespace."""
    where = argparse.ArgumentParser(add_help=False)
    add = where.add_argument
    add("-n", "--namespace", default="", help="namespace (that of the kubeconfig's context)")
    add("--context", default="", help="context of the kubeconfig")
    add("--kubeconfig", default="", metavar="FILE", help="kubeconfig file ($KUBECONFIG)")
    return where


def _does(parser: argparse.ArgumentParser, module: str, ask: Ask) -> None:
    """Have a command carried out by a module of this package."""
    parser.set_defaults(run=_run, module=f"{__package__}.{module}", ask=ask)


def _run(args: argparse.Namespace) -> int:
    live, module = (importlib.import_module(m) for m in (f"{__package__}.live", args.module))
    place = live.Place(args.namespace, args.kubeconfig, args.context)
    code: int = live.run(lambda kube, where: args.ask(module, kube, where, args), place)
    return code


def _complete(args: argparse.Namespace) -> int:
    completion = importlib.import_module(f"{__package__}.completion")
    sys.stdout.write(completion.SHELLS[args.shell])
    return 0


def _add_logs(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    logs = subparsers.add_parser(
        "logs",
        parents=[_where()],
        help="print what all ranks of a job print",
        epilog="Without --tail it is 20 lines of each rank, or all of one.",
    )
    add = logs.add_argument
    add("job", metavar="JOB", help="NAME or KIND/NAME")
    add("-f", "--follow", action="store_true", help="go on until the job is over")
    add("--rank", action="append", default=[], help="such as worker-0, or a number; repeatable")
    add("-c", "--container", default="", help="container (the one in which the framework runs)")
    add("--tail", type=int, metavar="LINES", help="the last lines of each rank")
    add("-p", "--previous", action="store_true", help="of the containers before these")

    def ask(module: Any, kube: Any, where: str, args: argparse.Namespace) -> Any:
        asked = module.Asked(
            args.rank, args.container, args.tail, args.previous, args.follow, in_colour()
        )
        return module.logs(kube, where, args.job, asked)

    _does(logs, "logs", ask)


def in_colour() -> bool:
    """Say whether what is printed goes to a terminal that shows colours."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and sys.stdout.isatty()


def _add_restart(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    restart = subparsers.add_parser(
        "restart", parents=[_where()], help="suspend a job, wait for its pods, and resume it"
    )
    restart.add_argument("job", metavar="JOB", help="NAME or KIND/NAME")
    _does(
        restart,
        "control",
        lambda control, kube, where, args: control.restart(kube, where, args.job),
    )


def _add_queue(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    queue = subparsers.add_parser("queue", help="stop or resume what a queue lets in")
    actions = queue.add_subparsers(metavar="ACTION", required=True)
    stop = actions.add_parser("stop", parents=[_where()], help="let nothing new in")
    stop.add_argument("--drain", action="store_true", help="nor have anything of it evicted")
    begin = actions.add_parser("resume", parents=[_where()], help="let gangs in again")
    for parser in (stop, begin):
        parser.add_argument("queue", metavar="QUEUE")
    _does(
        stop,
        "control",
        lambda control, kube, _where, args: control.stop(kube, args.queue, drain=args.drain),
    )
    _does(
        begin,
        "control",
        lambda control, kube, _where, args: control.queue(kube, args.queue),
    )
