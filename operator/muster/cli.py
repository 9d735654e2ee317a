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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import muster
from muster import flags
from muster.api.reasons import QueuePhase
from muster.commands import arguments, output
from muster.commands.arguments import FORMS, ArgumentError, Reference, reference
from muster.commands.output import Answer
from muster.flags import COMMANDS, FlagError
from muster.kube import loops
from muster.settings import TemplateError

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit code, 2 for arguments that cannot be meant."""
    program, *given = sys.argv if argv is None else ("muster", *argv)
    words = _words(program, given)
    if words and words[0] in COMMANDS:
        return _run(words[0], words[1:])
    if words[:1] == [COMPLETE]:
        print(arguments.completions(_parser(), words[1:]), end="")
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
        # The page has no other end.
        return 0 if "port" in args else INTERRUPTED
    except BrokenPipeError:
        # The reader has ended, as `head` does. Python would report the rest of the output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:  # a full disk, or a folder that cannot be used
        print(f"muster {words[0]}: {error}", file=sys.stderr)
        code = 1
    return code


def _words(program: str, arguments: Sequence[str]) -> list[str]:
    """Put the command before an earlier operator's arguments; mpi-operator's are flags alone."""
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
    every = parser.add_subparsers(metavar="COMMAND", required=True)
    every.add_parser("run", help="run the operator", add_help=False)
    every.add_parser("scheduler", help="run the scheduler alone", add_help=False)
    importlib.import_module("muster.local.commands").add_to(every)
    queue = every.add_parser("queue", help="stop or resume what a queue lets in")
    actions = queue.add_subparsers(metavar="ACTION", required=True)
    for row in TABLE:
        epilog = f"{row.epilog} {_COUNT}".strip() if row.run_flags else row.epilog
        group, _, name = row.name.rpartition(" ")
        made = (actions if group else every).add_parser(name, help=row.text, epilog=epilog)
        for names, settings in row.flags:
            made.add_argument(*names, **settings)
        made.set_defaults(run=_answer, row=row, run_flags=row.run_flags)
    return parser


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
    # Until its own handlers: the kernel sends process 1 no signal that has no handler.
    for number in (signal.SIGTERM, signal.SIGINT):
        # At once: nothing has been begun.
        signal.signal(number, lambda *_: os._exit(0))
    # What the operator needs takes long to import, and no other command needs it.
    code: int = importlib.import_module("muster.runtime.app").main(chosen)
    return code


def _answer(args: argparse.Namespace) -> int:
    """Print what a command answers, or why there is no answer; return the exit code."""
    try:
        given = {name: vars(args).get(name) for name in ("context", "kubeconfig")}
        own = [f"--{name}={value}" for name, value in given.items() if value]
        args.settings = flags.parse([*own, *args.rest], os.environ)
        answer = args.row.ask(importlib.import_module(f"muster.{args.row.module}"), args)
        if asyncio.iscoroutine(answer):
            answer = loops.run(answer)
    except (FlagError, ArgumentError, TemplateError) as error:
        output.complain(str(error))
        return 2
    except BrokenPipeError:
        raise
    # Only where something fails is it imported what can fail.
    except importlib.import_module("muster.commands.questions").FAILURES as error:
        live = importlib.import_module("muster.commands.live")
        output.complain(live.explained(error))
        return 2
    if not isinstance(answer, Answer):
        return answer or 0
    output.write(answer.text)
    if answer.complaint:
        output.complain(answer.complaint)
    return answer.code


def _printed(args: argparse.Namespace, command: Callable[[Any, str], Any]) -> Any:
    """Return what prints the output of `command(connection, namespace)` as it comes."""
    live = importlib.import_module("muster.commands.live")
    return live.printed(command, args.settings, args.namespace)


def _logs(logs: Any, args: argparse.Namespace) -> Any:
    what, terminal = reference(args.job, args.namespace, args.selector), sys.stdout.isatty()
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    asked = logs.Asked(
        args.rank, args.container, args.tail, args.previous, args.follow, terminal, colour
    )
    return _printed(args, lambda kube, where: logs.logs(kube, where, what, asked))


def _restart(control: Any, args: argparse.Namespace) -> Any:
    what = reference(args.job, args.namespace, args.selector)
    return _printed(args, lambda kube, where: control.restart(kube, where, what))


def _queue(control: Any, args: argparse.Namespace, state: QueuePhase) -> Any:
    found = reference(args.queue)
    if found.kind.partition(".")[0].lower() not in ("", "queue", "queues") or found.namespace:
        raise ArgumentError(f"{' '.join(args.queue)}: write NAME, queue/NAME or queue NAME")
    return _printed(args, lambda kube, _: control.queue(kube, found.name, state))


def _top(top: Any, args: argparse.Namespace) -> Any:
    once = args.once or not sys.stdout.isatty()
    return _printed(args, lambda kube, where: top.top(kube, where, once=once))


def _bundle(bundle: Any, args: argparse.Namespace) -> Any:
    known = {flag.name for section in flags.SECTIONS.values() for flag in section}
    return bundle.bundle(args.settings, args.sources, args.output, known)


def _report(report: Any, args: argparse.Namespace) -> Any:
    jobs = Reference("", "" if args.all_namespaces else args.namespace, "", args.selector)
    return report.report(args.settings, jobs, args.since, args.resource, args.by, args.output)


def _asked(questions: Any, args: argparse.Namespace) -> Any:
    what_if = vars(args).get("what_if", False)
    return questions.Asked(args.cluster, args.namespace, args.all_namespaces, args.output, what_if)


def _explain(explain: Any, args: argparse.Namespace) -> Any:
    what = None
    if args.what or args.selector:
        everywhere = args.selector and args.all_namespaces
        what = reference(args.what, "" if everywhere else args.namespace, args.selector)
    if args.what and args.all_namespaces:
        raise FlagError(f"{what} is in one namespace; give -n NAMESPACE in place of -A")
    return explain.explain(args.settings, what, _asked(explain, args))


def _simulate(questions: Any, args: argparse.Namespace) -> Any:
    if bool(args.replay) == bool(args.filename):
        raise ArgumentError("write either -f JOB.yaml or --replay FILE")
    if args.replay:
        return questions.replay(args.replay)
    return questions.simulate(args.settings, args.filename, _asked(questions, args))


def _crds(crds: Any, args: argparse.Namespace) -> int:
    """Write the files, or name those that are not as they would be written."""
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


Flag = tuple[tuple[str, ...], dict[str, Any]]
"""Arguments of `add_argument`."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command, its help, and how it is run."""

    name: str
    text: str
    module: str
    """Of `muster`, imported only to run it: completion needs the parser alone."""
    ask: Callable[[Any, argparse.Namespace], Any]
    """(module, arguments) -> an exit code or an Answer, or what is to be awaited for one."""
    flags: tuple[Flag, ...] = ()
    epilog: str = ""
    run_flags: bool = False
    """Flags of `muster run` count."""


def _flag(*names: str, **settings: Any) -> Flag:
    return names, settings


def _switch(*names: str, help: str) -> Flag:  # noqa: A002 -- as argparse calls it
    return names, {"action": "store_true", "help": help}


def _namespace(text: str) -> Flag:
    return _flag("-n", "--namespace", default="", help=text)


def _output(*choices: str, help: str | None = None) -> Flag:  # noqa: A002
    return _flag("-o", "--output", choices=choices, default=choices[0], help=help)


def _files(metavar: str, text: str, *, required: bool = True) -> Flag:
    names = ("-f", "--filename")
    return _flag(*names, action="append", required=required, metavar=metavar, help=text)


def _typed(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the type of a flag that is read like one of `muster run`."""

    def typed(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text}: {error}") from None

    return typed


_COUNT: Final = "Flags of `muster run` count."
_CONNECTION: Final = (
    _flag("--context", default="", help="context of the kubeconfig"),
    _flag("--kubeconfig", default="", metavar="FILE", help="kubeconfig file ($KUBECONFIG)"),
)
_SELECTOR: Final = _flag("-l", "--selector", default="", metavar="LABELS",
                         help="select jobs by their labels, as kubectl does")  # fmt: skip
_SNAPSHOT: Final = _flag("--cluster", default="live", metavar="FILE",
                         help="a snapshot in place of the live cluster")  # fmt: skip
_WHERE: Final = (*_CONNECTION, _namespace("namespace (that of the kubeconfig's context)"))
_JOB: Final = (*_WHERE, _SELECTOR, _flag("job", metavar="JOB", nargs="*",
                                         help=f"{FORMS}; or -l LABELS"))  # fmt: skip
_QUEUE: Final = (*_WHERE, _flag("queue", metavar="QUEUE", nargs="+", help="NAME or queue/NAME"))
_GANGS: Final = (
    *_CONNECTION,
    _namespace("namespace of the jobs"),
    _SNAPSHOT,
    _switch("-A", "--all-namespaces", help="all gangs, one a line"),
    _output("text", "wide", "json", "yaml", help="wide: one a line"),
)
OPEN, DRAINED, STOPPED = QueuePhase.OPEN, QueuePhase.DRAINING, QueuePhase.CLOSED
_FILE: Final = "muster-bundle.tar.gz"
TABLE: Final = (
    Command("explain", "say why a job waits, where it runs, or which of its ranks failed first",
            "commands.explain", _explain,
            (*_GANGS, _SELECTOR,
             _flag("what", metavar="NAME", nargs="*",
                   help=f"{FORMS} of a job, PodGroup, batch Job or pod; none: all gangs"),
             _switch("--what-if", help="compute what the scheduler would decide now, instead of "
                   "the operator's decision")),
            "Code 0: placed, running or succeeded, 1: waiting, suspended, invalid or failed, "
            "2: no such job.", run_flags=True),
    Command("simulate", "say whether a job would fit, and where", "commands.questions", _simulate,
            (*_GANGS, _files("JOB.yaml", "`-`: stdin", required=False),
             _flag("--replay", metavar="FILE", help="decide again what a snapshot decided")),
            "Code 0: it fits, 1: it waits, 2: no such job.", run_flags=True),
    Command("render", "print all objects that a job would become", "commands.render",
            lambda render, args: render.run(args.filename, args.settings, args.namespace),
            (_files("JOB.yaml", "file of jobs, - for standard input; repeatable"),
             _namespace("where the job would be applied")),
            "What a job becomes depends on --gang-scheduler-name and others.", run_flags=True),
    Command("snapshot", "write what the allocator sees", "commands.questions",
            lambda questions, args: questions.snapshot(args.settings, args.source),
            (*_CONNECTION,
             _flag("--from", dest="source", default="live", metavar="URL",
                   help="metrics address of a running allocator: what it sees itself")),
            run_flags=True),
    Command("dashboard", "show who holds what and who waits, as a page on this machine",
            "commands.dashboard",
            lambda page, args: page.run(args.settings, args.cluster, args.port),
            (*_CONNECTION, _SNAPSHOT,
             _flag("--port", type=_typed(flags.integer(0, 65535)), default=8083,
                   help="of 127.0.0.1 (8083); 0: any")), "It only reads.", run_flags=True),
    Command("logs", "print what all ranks of a job print", "commands.logs", _logs,
            (*_JOB, _switch("-f", "--follow", help="go on until the job is over"),
             _flag("--rank", action="append", default=[],
                   help="such as worker-0, or a number; repeatable"),
             _flag("-c", "--container", default="",
                   help="container (the one in which the framework runs)"),
             _flag("--tail", type=_typed(flags.count), metavar="LINES",
                   help="the last lines of each rank"),
             _switch("-p", "--previous", help="of the containers before these")),
            "Without --tail it is 20 lines of each rank, or all of one."),
    Command("restart", "suspend a job, wait for its pods, and resume it", "commands.control",
            _restart, _JOB),
    Command("queue stop", "let nothing new in", "commands.control",
            lambda control, args: _queue(control, args, DRAINED if args.drain else STOPPED),
            (*_QUEUE, _switch("--drain", help="nor have anything of it evicted"))),
    Command("queue resume", "let gangs in again", "commands.control",
            lambda control, args: _queue(control, args, OPEN), _QUEUE),
    Command("top", "show live how many GPUs are held, and by whom", "commands.top", _top,
            (*_WHERE, _switch("--once", help="one picture, as into a file")),
            "All nodes are looked at, whatever the namespace. Ctrl-C ends it."),
    Command("doctor", "say what is wrong with the installation, and the cure", "commands.doctor",
            lambda doctor, args: doctor.doctor(args.settings, flags.parse, args.namespace,
                                               as_json=args.output == "json"),
            (*_CONNECTION, _namespace("of the operator (muster-system)"), _output("text", "json")),
            "Code 0: nothing, 1: warnings, 2: errors.", run_flags=True),
    Command("report", "add up what became of the devices that jobs asked for, by state",
            "commands.report", _report,
            (*_CONNECTION, _SELECTOR, _namespace("of the jobs (all)"),
             _switch("-A", "--all-namespaces", help="whatever -n says"),
             _flag("--since", type=_typed(flags.span), default="24h", metavar="DURATION",
                   help="how far back (24h)"),
             _flag("--resource", default="", help="what is counted (every kind of GPU)"),
             _flag("--by", choices=("job", "queue", "namespace"), default="job"),
             _output("text", "csv", "json")), run_flags=True),
    Command("bundle", "write one file with what a report of a fault needs, and nobody's secrets",
            "commands.bundle", _bundle,
            (*_CONNECTION,
             _flag("-o", "--output", default=_FILE, metavar="FILE", help=f"where ({_FILE})"),
             _flag("--from", dest="sources", action="append", default=[], metavar="URL",
                   help="an address of a running operator, as /debug or /metrics has; "
                   "repeatable")),
            "Code 0: all is in it, 1: what is missing is said.", run_flags=True),
    Command("convert",
            "turn jobs of old versions, of Volcano and of Trainer into jobs of v1, or back",
            "commands.convert.command",
            lambda convert, args: convert.run(args.filename, args.to, args.output,
                                              strict=args.strict),
            (_files("OLD.yaml", "file of jobs, and of the runtimes of TrainJobs; - for standard "
                    "input; repeatable"),
             _flag("--to", choices=("v1", "trainjob"), default="v1", help="(v1)"),
             _output("yaml", "json"),
             _switch("--strict", help="code 1 if anything is lost")),
            "What is lost is named on standard error. Code 0: converted, 1: a job that comes out "
            "cannot run, or with --strict something is lost, 2: no job."),
    Command("crds", "write the CustomResourceDefinitions", "api.crds", _crds,
            (_switch("--check", help="write nothing; fail if a file differs"),
             _flag("--folder", type=Path, default=Path("crds"), help="where (crds)"))),
    Command("completion", "print what completes commands in a shell", "commands.arguments",
            lambda _, args: Answer(arguments.SHELLS[args.shell]),
            (_flag("shell", choices=tuple(arguments.SHELLS)),)),
    Command("demo", "show a gang waiting and starting on this machine", "local.demo",
            lambda demo, args: demo.main(keep=args.keep),
            (_switch("--keep", help="leave the cluster up at the end"),)),
    Command("version", "print the version", "commands.output",
            lambda *_: Answer(f"muster {muster.version()}\n")),
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
