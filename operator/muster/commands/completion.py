# SPDX-License-Identifier: Apache-2.0
"""What may come next on a command line, by the parser alone; and the scripts by which shells ask.

`muster __complete WORDS` prints it as programs made with Cobra do, so that kubectl, which knows
that convention, completes `kubectl muster` too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

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


def answer(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Return what may stand in place of the last word, one in a line, then the directive."""
    *before, begun = words or [""]
    found = [each for each in _next(parser, before, begun) if each[0].startswith(begun)]
    lines = [f"{word}\t{text}" if text else word for word, text in found]
    return "".join(f"{line}\n" for line in [*lines, f":{NO_FILES if found else FILES}"])


def _next(
    parser: argparse.ArgumentParser, before: Sequence[str], begun: str
) -> Iterator[tuple[str, str]]:
    """Yield words and what they mean."""
    pending: argparse.Action | None = None
    places = _places(parser)
    for word in before:
        if pending is not None:
            pending = None
        elif word.startswith("-"):
            option = _options(parser).get(word)
            pending = option if option is not None and option.nargs != 0 else None
        elif places:
            here = places.pop(0)
            if isinstance(here, argparse._SubParsersAction):  # noqa: SLF001 -- it has no other name
                if word not in here.choices:
                    return
                parser = here.choices[word]
                places = _places(parser)
    if pending is not None:
        yield from ((str(choice), "") for choice in pending.choices or ())
    elif begun.startswith("-"):
        yield from ((word, action.help or "") for word, action in _options(parser).items())
    elif places:
        yield from _choices(places[0])


def _options(parser: argparse.ArgumentParser) -> Mapping[str, argparse.Action]:
    return parser._option_string_actions  # noqa: SLF001 -- argparse shows it nowhere else


def _places(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]  # noqa: SLF001


def _choices(action: argparse.Action) -> Iterator[tuple[str, str]]:
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
        texts = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
        # What has no text is not for people.
        yield from ((word, texts[word]) for word in action.choices if texts.get(word))
    else:
        yield from ((str(choice), "") for choice in action.choices or ())
