# SPDX-License-Identifier: Apache-2.0
"""Arguments of all commands: one grammar for names and flags, and their completion.

`muster __complete WORDS` prints as programs made with Cobra do, so that kubectl can complete it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Subparsers = argparse._SubParsersAction  # noqa: SLF001 -- argparse has no other name for it
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
    """Return the named object; raises ArgumentError, also if -n `namespace` contradicts it."""
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
    """Return the parsed words; `rest` has the flags of `muster run`. Raises SystemExit.

    `width`: the number of words of a flag of `muster run` with its value, 0 for other words.
    """
    root = parser
    parser, left = _command(root, words)
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


def _command(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser of the command that the words begin with, and the words after it."""
    left = list(words)
    while left and left[0] in (choices := _subcommands(parser)):
        parser = choices[left.pop(0)]
    return parser, left


def _subcommands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    found = (a.choices for a in parser._actions if isinstance(a, Subparsers))  # noqa: SLF001
    return next(found, {})


NO_FILES, FILES = 4, 0
"""Directives of Cobra's: whether the shell may complete names of files."""
SHELLS: Final[Mapping[str, str]] = {
    "bash": """\
_muster() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(muster __complete "${COMP_WORDS[@]:1:COMP_CWORD}" \\
        | sed -e '$d' -e 's/\\t.*//')" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _muster muster
""",
    "zsh": """\
#compdef muster
_muster() {
    local -a found
    found=("${(@f)$(muster __complete "${(@)words[2,CURRENT]}" \\
        | sed -e '$d' -e 's/:/\\\\:/g' -e 's/\\t/:/')}")
    [[ -n "$found" ]] && _describe muster found || _files
}
compdef _muster muster
""",
    "fish": """\
function __muster
    set -l words (commandline -opc) (commandline -ct)
    muster __complete $words[2..-1] | sed '$d'
end
complete -c muster -a '(__muster)'
""",
}


def completions(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Return what may stand in place of the last word, one in a line, then the directive."""
    *before, begun = words or [""]
    found = [each for each in _next(parser, before, begun) if each[0].startswith(begun)]
    lines = [f"{word}\t{text}" if text else word for word, text in found]
    return "".join(f"{line}\n" for line in [*lines, f":{NO_FILES if found else FILES}"])


def _next(
    parser: argparse.ArgumentParser, before: Sequence[str], begun: str
) -> Iterator[tuple[str, str]]:
    parser, left = _command(parser, before)
    pending: argparse.Action | None = None
    options = parser._option_string_actions  # noqa: SLF001 -- argparse shows it nowhere else
    places = [each for each in parser._actions if not each.option_strings]  # noqa: SLF001
    for word in left:
        if pending is not None:
            pending = None
        elif word.startswith("-"):
            option = options.get(word)
            pending = option if option is not None and option.nargs != 0 else None
        elif places and isinstance(places.pop(0), Subparsers):
            return
    place = pending or next(iter(places), None)
    if pending is None and begun.startswith("-"):
        yield from ((word, action.help or "") for word, action in options.items())
    elif isinstance(place, Subparsers):
        texts = {each.dest: each.help or "" for each in place._choices_actions}  # noqa: SLF001
        # Commands without a help text are not shown.
        yield from ((word, texts[word]) for word in place.choices if texts.get(word))
    elif place is not None:
        yield from ((str(choice), "") for choice in place.choices or ())
