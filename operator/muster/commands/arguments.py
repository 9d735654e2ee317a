# SPDX-License-Identifier: Apache-2.0
"""Arguments of all commands: one grammar for names, and the commands for a live cluster.

The modules that run the commands are imported on demand, because completion needs the parser only.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from muster.api.reasons import QueuePhase
from muster.commands import output

Subparsers = argparse._SubParsersAction  # noqa: SLF001 -- argparse has no other name for it
Ask = Callable[[Any, Any, str, argparse.Namespace], Any]
"""(module, connection, namespace, arguments) -> what is to be printed, as it comes."""
RUN_FLAGS: Final = "run_flags"
"""Set to True on the parsers of commands that accept the flags of `muster run`."""
FORMS: Final = "NAME, KIND/NAME, KIND/NAMESPACE/NAME or KIND NAME"


class ArgumentError(ValueError):
    """A name that cannot be parsed; the message quotes it and lists the accepted forms."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An object, or with a selector several objects, as a command line names it."""

    kind: str = ""
    """As written: a kind, plural or short name, with or without its API group; empty: any kind."""
    namespace: str = ""
    """Empty: the namespace of the command."""
    name: str = ""
    selector: str = ""
    """A label selector in place of the name."""

    def __str__(self) -> str:
        """Return the name as kubectl prints it, without the namespace."""
        name = self.name or f"with labels {self.selector}"
        return f"{self.kind}/{name}" if self.kind else name


def reference(words: Sequence[str], namespace: str = "", selector: str = "") -> Reference:
    """Return the object that the words name. Raises ArgumentError.

    `namespace`: value of the flag -n, which must not contradict the words.
    """
    written = " ".join(words)
    if selector and not words:
        return Reference(namespace=namespace, selector=selector)
    if selector:
        raise ArgumentError(f"{written} and --selector={selector}: give one of them")
    parts = [part for word in words for part in word.split("/")]
    if [word.count("/") for word in words] not in ([0], [1], [2], [0, 0]) or not all(parts):
        raise ArgumentError(f"{written or 'no name'}: write {FORMS}")
    kind, space = parts[0] if len(parts) > 1 else "", parts[1] if len(parts) > 2 else ""
    if space and namespace not in ("", space):
        raise ArgumentError(f"{written} is in namespace {space}, and -n names {namespace}")
    return Reference(kind, space or namespace, parts[-1])


class Parser(argparse.ArgumentParser):
    """A parser without abbreviated flags: `parse` must know which flags are its own."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})


def parse(
    parser: argparse.ArgumentParser, words: Sequence[str], width: Callable[[str], int]
) -> argparse.Namespace:
    """Return the parsed words; `rest` has the flags of `muster run` among them.

    `width`: the number of words that a flag of `muster run` takes with its value, 0 for any other
    word. Raises SystemExit.
    """
    root, left = parser, list(words)
    while left and left[0] in (choices := _subcommands(parser)):
        parser = choices[left.pop(0)]
    known, own, rest = parser._option_string_actions, list[str](), list[str]()  # noqa: SLF001
    while left:
        word = left.pop(0)
        if word == "--":
            own += [word, *left]
            break
        # Go programs also read -context, which argparse would read as -c ontext.
        if word.startswith("-") and f"-{word}".partition("=")[0] in known:
            word = f"-{word}"
        is_run_flag = width(word) > 0 or word.startswith("--")
        if is_run_flag and parser.get_default(RUN_FLAGS) and word.partition("=")[0] not in known:
            values = max(width(word) - 1, 0)
            rest += [word, *left[:values]]
            del left[:values]
        else:
            own.append(word)
    if _subcommands(parser):
        return parser.parse_args(own)
    # Flags may stand between two names.
    args, unknown = parser.parse_known_intermixed_args(own)
    if unknown:
        root.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.rest = rest
    return args


def _subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    found = (a.choices for a in parser._actions if isinstance(a, Subparsers))  # noqa: SLF001
    return next(found, {})


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


def connection() -> argparse.ArgumentParser:
    """Return the flags that select the cluster."""
    flags = argparse.ArgumentParser(add_help=False)
    add = flags.add_argument
    add("--context", default="", help="context of the kubeconfig")
    add("--kubeconfig", default="", metavar="FILE", help="kubeconfig file ($KUBECONFIG)")
    return flags


def up_to(most: int) -> Callable[[str], int]:
    """Return the type of a flag whose value is a number of 0 to `most`."""

    def number(text: str) -> int:
        if text.isdecimal() and int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text}: write a number of 0 to {most}")

    return number


def selector() -> argparse.ArgumentParser:
    """Return the flag that selects jobs by their labels."""
    flags = argparse.ArgumentParser(add_help=False)
    text = "select jobs by their labels, as kubectl does"
    flags.add_argument("-l", "--selector", default="", metavar="LABELS", help=text)
    return flags


def _where() -> argparse.ArgumentParser:
    """Return the flags that select the cluster and the namespace."""
    where = argparse.ArgumentParser(add_help=False, parents=[connection()])
    help_ = "namespace (that of the kubeconfig's context)"
    where.add_argument("-n", "--namespace", default="", help=help_)
    return where


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", nargs="*", help=f"{FORMS}; or -l LABELS")
    parser.set_defaults(named=lambda args: reference(args.job, args.namespace, args.selector))


def _queue(args: argparse.Namespace) -> Reference:
    """Return the queue that the arguments name. Raises ArgumentError."""
    found = reference(args.queue)
    if found.kind.partition(".")[0].lower() not in ("", "queue", "queues") or found.namespace:
        raise ArgumentError(f"{' '.join(args.queue)}: write NAME, queue/NAME or queue NAME")
    return found


def _does(parser: argparse.ArgumentParser, module: str, ask: Ask) -> None:
    """Set the module of this package that runs a command."""
    parser.set_defaults(run=_run, module=f"{__package__}.{module}", ask=ask)


def _run(args: argparse.Namespace) -> int:
    try:
        args.reference = args.named(args) if "named" in args else None
    except ArgumentError as error:
        output.complain(str(error))
        return 2
    live, module = (importlib.import_module(m) for m in (f"{__package__}.live", args.module))
    where = args.namespace, args.kubeconfig, args.context
    code: int = live.run(lambda kube, space: args.ask(module, kube, space, args), *where)
    return code


def _complete(args: argparse.Namespace) -> int:
    completion = importlib.import_module(f"{__package__}.completion")
    sys.stdout.write(completion.SHELLS[args.shell])
    return 0


def _add_logs(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    logs = subparsers.add_parser(
        "logs",
        parents=[_where(), selector()],
        help="print what all ranks of a job print",
        epilog="Without --tail it is 20 lines of each rank, or all of one.",
    )
    add = logs.add_argument
    _add_job(logs)
    add("-f", "--follow", action="store_true", help="go on until the job is over")
    add("--rank", action="append", default=[], help="such as worker-0, or a number; repeatable")
    add("-c", "--container", default="", help="container (the one in which the framework runs)")
    add("--tail", type=up_to(2**31 - 1), metavar="LINES", help="the last lines of each rank")
    add("-p", "--previous", action="store_true", help="of the containers before these")

    def ask(module: Any, kube: Any, where: str, args: argparse.Namespace) -> Any:
        asked = module.Asked(
            args.rank,
            args.container,
            args.tail,
            args.previous,
            args.follow,
            sys.stdout.isatty(),
            in_colour(),
        )
        return module.logs(kube, where, args.reference, asked)

    _does(logs, "logs", ask)


def in_colour() -> bool:
    """Say whether what is printed goes to a terminal that shows colours."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and sys.stdout.isatty()


def _add_restart(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    restart = subparsers.add_parser(
        "restart",
        parents=[_where(), selector()],
        help="suspend a job, wait for its pods, and resume it",
    )
    _add_job(restart)
    _does(
        restart,
        "control",
        lambda control, kube, where, args: control.restart(kube, where, args.reference),
    )


def _add_queue(subparsers: Subparsers[argparse.ArgumentParser]) -> None:
    queue = subparsers.add_parser("queue", help="stop or resume what a queue lets in")
    actions = queue.add_subparsers(metavar="ACTION", required=True)
    stop = actions.add_parser("stop", parents=[_where()], help="let nothing new in")
    stop.add_argument(
        "--drain",
        dest="state",
        action="store_const",
        const=QueuePhase.DRAINING,
        default=QueuePhase.CLOSED,
        help="nor have anything of it evicted",
    )
    begin = actions.add_parser("resume", parents=[_where()], help="let gangs in again")
    begin.set_defaults(state=QueuePhase.OPEN)
    for parser in (stop, begin):
        parser.add_argument("queue", metavar="QUEUE", nargs="+", help="NAME or queue/NAME")
        parser.set_defaults(named=_queue)
        _does(
            parser,
            "control",
            lambda control, kube, _, args: control.queue(kube, args.reference.name, args.state),
        )
