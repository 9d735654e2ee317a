# SPDX-License-Identifier: Apache-2.0
"""`muster <command>`, and the names and arguments under which Deployments call its ancestors."""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import muster
from muster import flags
from muster.commands import arguments, output
from muster.flags import COMMANDS, FlagError
from muster.kube import loops
from muster.settings import Settings, TemplateError

ANCESTORS = {
    **dict.fromkeys(("manager", "training-operator", "mpi-operator", "tf-operator"), "run"),
    "kube-batch": "scheduler",
}
"""Programs that the image answers to -> the command that `muster` is, called by such a name."""


_PATCH = """kubectl patch KIND/NAME --type=merge -p '{"spec":{"runPolicy":{"suspend":%s}}}'"""
REMOVED = {
    "list": "kubectl get tfjobs,pytorchjobs,mpijobs,xgboostjobs,paddlejobs,jaxjobs -A "
    "(gangs: kubectl get podgroups; queues: kubectl get queues; nodes: muster top --once)",
    "suspend": _PATCH % "true",
    "resume": _PATCH % "false",
}
"""A removed command -> what to use instead."""
INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it: 128 and the number of SIGINT."""
PIPE_CLOSED = 141
"""The exit code after the reader of the output has ended: 128 and the number of SIGPIPE."""
COMPLETE = "__complete"
"""The command by which shells, and kubectl, ask what may come next."""
_SNAPSHOT = "a snapshot in place of the live cluster"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit code, 2 for arguments that cannot be meant."""
    program, *given = sys.argv if argv is None else ("muster", *argv)
    words = _words(program, given)
    if words and words[0] in COMMANDS:
        return _run(words[0], words[1:])
    if words[:1] == [COMPLETE]:
        completion = importlib.import_module("muster.commands.completion")
        print(completion.answer(_parser(), words[1:]), end="")
        return 0
    if words and words[0] in REMOVED:
        print(f"muster {words[0]} was removed: use {REMOVED[words[0]]}", file=sys.stderr)
        return 2
    try:
        args = arguments.parse(_parser(), words, flags.width)
    except SystemExit as ended:
        if words[:2] == ["local", "env"] and ended.code:
            print(importlib.import_module("muster.local.commands").EVAL_FAILS)
        raise
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has ended, as `head` does. Python would report the rest of the output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


def _words(program: str, arguments: Sequence[str]) -> list[str]:
    """Put the command before the arguments of a Deployment that was written for an ancestor.

    mpi-operator's brings flags alone and leaves the command to the image.
    """
    flags_alone = bool(arguments) and arguments[0].startswith("-")
    asks_for_help = arguments[:1] in (["-h"], ["--help"], ["--version"])
    called = Path(program).name
    if called.startswith("kubectl_complete-"):
        return [COMPLETE, *arguments]
    command = next((ANCESTORS[name] for name in ANCESTORS if called.startswith(name)), "")
    if flags_alone and not asks_for_help:
        command = command or "run"
    return [command, *arguments] if command else list(arguments)


@functools.cache
def _parser() -> argparse.ArgumentParser:
    """Return what reads all commands but those of flags: making it takes longer than reading."""
    parser: argparse.ArgumentParser = arguments.Parser(
        prog="muster",
        description="Distributed training jobs on Kubernetes, all together or not at all.",
    )
    parser.add_argument("--version", action="version", version=f"muster {muster.version()}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    subparsers.add_parser("run", help="run the operator", add_help=False)
    subparsers.add_parser("scheduler", help="run the scheduler alone", add_help=False)
    importlib.import_module("muster.local.commands").add_to(subparsers)
    demo = subparsers.add_parser("demo", help="show a gang waiting and starting on this machine")
    demo.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    demo.set_defaults(run=_demo)
    shown = subparsers.add_parser(
        "render",
        help="print all objects that a job would become",
        epilog="Flags of muster run that shape jobs are taken too, --gang-scheduler-name first.",
    )
    _add_files(shown, "JOB.yaml", "file of jobs, - for standard input; repeatable")
    shown.add_argument("-n", "--namespace", default="", help="where the job would be applied")
    shown.set_defaults(run=_render, run_flags=True)
    _add_questions(subparsers)
    page = subparsers.add_parser(
        "dashboard",
        parents=[arguments.connection()],
        help="show who holds what and who waits, as a page on this machine",
        epilog="It only reads. Flags of `muster run` that name the cluster or its policy count.",
    )
    page.add_argument("--cluster", default="live", metavar="FILE", help=_SNAPSHOT)
    port = arguments.up_to(65535)
    page.add_argument("--port", type=port, default=8083, help="of 127.0.0.1 (8083); 0: any")
    page.set_defaults(run=_dashboard, run_flags=True)
    arguments.add_to(subparsers)
    _add_doctor(subparsers)
    _add_report(subparsers)
    _add_bundle(subparsers)
    turned = subparsers.add_parser(
        "convert",
        help="turn jobs of old versions, of Volcano and of Trainer into jobs of v1, or back",
        epilog="What is lost is named on standard error. Code 0: converted, 1: a job that comes "
        "out cannot run, or with --strict something is lost, 2: no job.",
    )
    text = "file of jobs, and of the runtimes of TrainJobs; - for standard input; repeatable"
    _add_files(turned, "OLD.yaml", text)
    turned.add_argument("--to", choices=("v1", "trainjob"), default="v1", help="(v1)")
    turned.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")
    turned.add_argument("--strict", action="store_true", help="code 1 if anything is lost")
    turned.set_defaults(run=_convert)
    made = subparsers.add_parser("crds", help="write the CustomResourceDefinitions")
    made.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    made.add_argument("--folder", type=Path, default=Path("crds"), help="where (crds)")
    made.set_defaults(run=_crds)
    version = subparsers.add_parser("version", help="print the version")
    version.set_defaults(run=_print_version)
    return parser


def _add_files(parser: argparse.ArgumentParser, metavar: str, text: str) -> None:
    add = parser.add_argument
    add("-f", "--filename", action="append", required=True, metavar=metavar, help=text)


def _run(command: str, arguments: Sequence[str]) -> int:
    if set(arguments) & {"-h", "-help", "--help"}:
        print(flags.usage(command))
        return 0
    try:
        chosen = flags.parse(arguments, os.environ, command)
    except FlagError as error:
        print(f"muster {command}: {error}", file=sys.stderr)
        return 2
    if chosen.version:
        print(f"muster {muster.version()}")
        return 0
    # Until it takes them in itself: the kernel tells the first process of a container nothing of
    # signals that it has no handler for.
    for number in (signal.SIGTERM, signal.SIGINT):
        # At once: nothing has been begun.
        signal.signal(number, lambda *_: os._exit(0))
    # What the operator needs takes long to import, and no other command needs it.
    code: int = importlib.import_module("muster.runtime.app").main(chosen)
    return code


def _demo(args: argparse.Namespace) -> int:
    demo = importlib.import_module("muster.local.demo")
    code: int = demo.main(keep=args.keep)
    return code


def _render(args: argparse.Namespace) -> int:
    """Print what the jobs become; 1 for a job that cannot run, 2 for a file without any."""
    render = importlib.import_module("muster.commands.render")
    try:
        chosen = flags.parse(args.rest, os.environ)
        code: int = render.run(args.filename, chosen, args.namespace)
    except (FlagError, TemplateError, render.UnreadableError) as error:
        output.complain(str(error), "muster render: ")
        return 2
    return code


def _convert(args: argparse.Namespace) -> int:
    """Print the jobs in the version that is wanted, and what of them is lost."""
    command = importlib.import_module("muster.commands.convert.command")
    try:
        code: int = command.run(args.filename, args.to, args.output, strict=args.strict)
    except command.render.UnreadableError as error:
        output.complain(str(error), "muster convert: ")
        return 2
    return code


def _add_questions(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    connection = arguments.connection()
    where = argparse.ArgumentParser(add_help=False, parents=[connection])
    where.add_argument("-n", "--namespace", default="", help="namespace of the jobs")
    where.add_argument("--cluster", default="live", metavar="FILE", help=_SNAPSHOT)
    where.add_argument("-A", "--all-namespaces", action="store_true", help="all gangs, one a line")
    outputs = ("text", "wide", "json", "yaml")
    where.add_argument("-o", "--output", choices=outputs, default="text", help="wide: one a line")
    explain = subparsers.add_parser(
        "explain",
        parents=[where, arguments.selector()],
        help="say why a job waits, where it runs, or which of its ranks failed first",
        epilog="Code 0: placed, running or succeeded, 1: waiting, suspended, invalid or failed, "
        "2: no such job. Flags of `muster run` count.",
    )
    named = f"{arguments.FORMS} of a job, PodGroup, batch Job or pod; none: all gangs"
    explain.add_argument("what", metavar="NAME", nargs="*", help=named)
    text = "compute what the scheduler would decide now, instead of the operator's decision"
    explain.add_argument("--what-if", action="store_true", help=text)
    _asks(explain, _explain)
    tried = subparsers.add_parser(
        "simulate",
        parents=[where],
        help="say whether a job would fit, and where",
        epilog="Code 0: it fits, 1: it waits, 2: no such job. Flags of `muster run` count.",
    )
    one = tried.add_mutually_exclusive_group(required=True)
    one.add_argument("-f", "--filename", action="append", metavar="JOB.yaml", help="`-`: stdin")
    one.add_argument("--replay", metavar="FILE", help="decide again what a snapshot decided")
    _asks(tried, _simulate)
    saved = subparsers.add_parser(
        "snapshot",
        parents=[connection],
        help="write what the allocator sees",
        epilog="Flags of `muster run` count.",
    )
    saved.add_argument(
        "--from",
        dest="source",
        default="live",
        metavar="URL",
        help="metrics address of a running allocator: what it sees itself",
    )
    _asks(saved, lambda questions, chosen, args: questions.snapshot(chosen, args.source))


def _asks(parser: argparse.ArgumentParser, ask: Callable[..., Any]) -> None:
    """Set what answers a command that accepts the flags of `muster run`."""
    parser.set_defaults(run=_ask, ask=ask, run_flags=True)


def _add_doctor(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    asked = subparsers.add_parser(
        "doctor",
        parents=[arguments.connection()],
        help="say what is wrong with the installation, and the cure",
        epilog="Code 0: nothing, 1: warnings, 2: errors. Flags of `muster run` count.",
    )
    asked.add_argument("-n", "--namespace", default="", help="of the operator (muster-system)")
    asked.add_argument("-o", "--output", choices=("text", "json"), default="text")
    _asks(asked, _doctor)


def _add_report(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    asked = subparsers.add_parser(
        "report",
        parents=[arguments.connection(), arguments.selector()],
        help="add up what became of the devices that jobs asked for, by state",
        epilog="Flags of `muster run` count.",
    )
    asked.add_argument("-n", "--namespace", default="", help="of the jobs (all)")
    asked.add_argument("-A", "--all-namespaces", action="store_true", help="whatever -n says")
    asked.add_argument("--since", default="24h", metavar="DURATION", help="how far back (24h)")
    asked.add_argument("--resource", default="", help="what is counted (every kind of GPU)")
    asked.add_argument("--by", choices=("job", "queue", "namespace"), default="job")
    asked.add_argument("-o", "--output", choices=("text", "csv", "json"), default="text")
    _asks(asked, _report)


def _add_bundle(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    made = subparsers.add_parser(
        "bundle",
        parents=[arguments.connection()],
        help="write one file with what a report of a fault needs, and nobody's secrets",
        epilog="Code 0: all is in it, 1: what is missing is said. Flags of `muster run` count.",
    )
    file = "muster-bundle.tar.gz"
    made.add_argument("-o", "--output", default=file, metavar="FILE", help=f"where ({file})")
    made.add_argument(
        "--from",
        dest="sources",
        action="append",
        default=[],
        metavar="URL",
        help="an address of a running operator, as /debug or /metrics has; repeatable",
    )
    _asks(made, _bundle)


def _bundle(_questions: Any, chosen: Settings, args: argparse.Namespace) -> Any:
    bundle = importlib.import_module("muster.commands.bundle")
    known = {flag.name for section in flags.SECTIONS.values() for flag in section}
    return bundle.bundle(chosen, args.sources, args.output, known)


def _report(_questions: Any, chosen: Settings, args: argparse.Namespace) -> Any:
    try:
        since = flags.span(args.since)
    except ValueError as error:
        raise FlagError(f"--since={args.since}: {error}") from None
    report = importlib.import_module("muster.commands.report")
    namespace = "" if args.all_namespaces else args.namespace
    jobs = arguments.Reference(namespace=namespace, selector=args.selector)
    return report.report(chosen, jobs, since, args.resource, args.by, args.output)


def _doctor(_questions: Any, chosen: Settings, args: argparse.Namespace) -> Any:
    doctor = importlib.import_module("muster.commands.doctor")
    return doctor.doctor(chosen, flags.parse, args.namespace, as_json=args.output == "json")


def _asked(questions: Any, args: argparse.Namespace) -> Any:
    what_if = getattr(args, "what_if", False)
    return questions.Asked(args.cluster, args.namespace, args.all_namespaces, args.output, what_if)


def _explain(questions: Any, chosen: Settings, args: argparse.Namespace) -> Any:
    what = None
    if args.what or args.selector:
        everywhere = args.selector and args.all_namespaces
        what = arguments.reference(args.what, "" if everywhere else args.namespace, args.selector)
    if args.what and args.all_namespaces:
        raise FlagError(f"{what} is in one namespace; give -n NAMESPACE in place of -A")
    explain = importlib.import_module("muster.commands.explain")
    return explain.explain(chosen, what, _asked(questions, args))


def _simulate(questions: Any, chosen: Settings, args: argparse.Namespace) -> Any:
    if args.replay:
        return questions.replay(args.replay)
    return questions.simulate(chosen, args.filename, _asked(questions, args))


def _settings(args: argparse.Namespace) -> Settings:
    """Return the settings of a command that accepts the flags of `muster run`."""
    given = {"context": args.context, "kubeconfig": args.kubeconfig}
    own = [f"--{name}={value}" for name, value in given.items() if value]
    return flags.parse([*own, *args.rest], os.environ)


def _ask(args: argparse.Namespace) -> int:
    """Print the answer of a question to the scheduler core."""
    questions = importlib.import_module("muster.commands.questions")
    try:
        answer = args.ask(questions, _settings(args), args)
        if asyncio.iscoroutine(answer):
            answer = loops.run(answer)
    except (FlagError, arguments.ArgumentError, *questions.FAILURES) as error:
        output.complain(questions.live.explained(error))
        return 2
    output.write(answer.text)
    if answer.complaint:
        output.complain(answer.complaint)
    code: int = answer.code
    return code


def _dashboard(args: argparse.Namespace) -> int:
    """Serve the page until it is interrupted; 2 where there is nothing to be shown."""
    questions = importlib.import_module("muster.commands.questions")
    page = importlib.import_module("muster.commands.dashboard")
    try:
        loops.run(page.run(_settings(args), args.cluster, args.port))
    except KeyboardInterrupt:
        return 0
    except (FlagError, *questions.FAILURES) as error:
        output.complain(questions.live.explained(error))
        return 2
    return 0


def _crds(args: argparse.Namespace) -> int:
    """Write the files, or name those that are not as they would be written."""
    crds = importlib.import_module("muster.api.crds")
    table = importlib.import_module("muster.frameworks").FRAMEWORKS
    stale = []
    for name, text in crds.texts(row.api for row in table.values()).items():
        path: Path = args.folder / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path)
        if not args.check:
            args.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in stale:
        print(f"{path}: {'is not fresh; run muster crds' if args.check else 'written'}")
    return int(bool(args.check and stale))


def _print_version(_args: argparse.Namespace) -> int:
    print(f"muster {muster.version()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
