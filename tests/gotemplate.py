# SPDX-License-Identifier: Apache-2.0
"""As much of Go's templates, and of what Helm adds to them, as our chart needs.

The chart is rendered where there is no helm; where there is, a test holds both to the same
objects. What is not known here is an error, never left out.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|\$?[\w.]+|\$|:=|[=(),|])')


class TemplateError(Exception):
    """A template asks for what is not known here, or fails as it says itself."""


@dataclass(slots=True)
class _Block:
    """`if`, `with`, `range` or `define`, with the actions and texts up to its `else` or `end`."""

    word: str
    rest: str
    body: list[str | _Block] = field(default_factory=list)
    otherwise: list[str | _Block] = field(default_factory=list)


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield texts and actions in turn, the white space taken away that the actions ask to be."""
    at = 0
    trimmed = False
    for match in re.finditer(r"\{\{(-\s)?(.*?)(\s-)?\}\}", text, re.DOTALL):
        plain = text[at : match.start()]
        plain = plain.lstrip() if trimmed else plain
        yield "text", plain.rstrip() if match[1] else plain
        yield "action", match[2].strip()
        at, trimmed = match.end(), bool(match[3])
    yield "text", text[at:].lstrip() if trimmed else text[at:]


def _parse(pieces: Iterator[tuple[str, str]], block: _Block) -> _Block:
    """Read up to the `end` of a block."""
    into = block.body
    for kind, text in pieces:
        if kind == "text":
            into.append(text)
            continue
        word, _, rest = text.partition(" ")
        if word == "end":
            return block
        if word == "else":
            into = block.otherwise
            if rest:  # else if: a block of its own, which ends where this one does
                into.append(_parse(pieces, _Block("if", rest.removeprefix("if "))))
                return block
        elif word in {"if", "with", "range", "define"}:
            into.append(_parse(pieces, _Block(word, rest)))
        elif not text.startswith("/*"):
            into.append(_Block("print", text))
    return block


class Chart:
    """A chart on disk."""

    def __init__(self, folder: Path) -> None:
        """Read it."""
        self.values = yaml.load((folder / "values.yaml").read_text(), yaml.CSafeLoader)
        about = yaml.load((folder / "Chart.yaml").read_text(), yaml.CSafeLoader)
        self.about = {name[0].upper() + name[1:]: value for name, value in about.items()}
        self.files = {
            str(Path(top, name).relative_to(folder)): Path(top, name).read_text()
            for top, _, names in os.walk(folder / "files", followlinks=True)
            for name in names
        }
        self.defines: dict[str, list[str | _Block]] = {}
        self.templates: dict[str, list[str | _Block]] = {}
        for path in sorted((folder / "templates").iterdir()):
            parsed = _parse(_pieces(path.read_text()), _Block("file", path.name)).body
            for block in parsed:
                if isinstance(block, _Block) and block.word == "define":
                    self.defines[json.loads(block.rest)] = block.body
            self.templates[path.name] = parsed

    def render(
        self, values: Mapping[str, Any], namespace: str, known: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return what each template becomes; `known` are the APIs that the cluster has."""
        scope = {
            "Values": merged(self.values, values),
            "Chart": self.about,
            "Release": {"Name": "muster", "Namespace": namespace, "Service": "Helm"},
            "Capabilities": {"APIVersions": {"Has": lambda name: name in known}},
            "Files": {"Get": lambda path: self.files.get(path, ""), "Glob": self._glob},
        }
        run = _Run(self.defines)
        return {
            name: run.body(template, scope, {"$": scope})
            for name, template in self.templates.items()
        }

    def _glob(self, shape: str) -> dict[str, str]:
        return {p: text for p, text in self.files.items() if fnmatch.fnmatch(p, shape)}


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay values over others, mapping by mapping."""
    both = {
        key: merged(below[key], value)
        if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
        else value
        for key, value in above.items()
    }
    return {**below, **both}


class _Run:
    """One rendering."""

    def __init__(self, defines: Mapping[str, list[str | _Block]]) -> None:
        self.defines = defines
        self.functions: dict[str, Callable[..., Any]] = {**_FUNCTIONS, "include": self.include}

    def include(self, name: str, dot: Any) -> str:
        """Render what a `define` has."""
        return self.body(self.defines[name], dot, {"$": dot})

    def body(self, body: Sequence[str | _Block], dot: Any, names: dict[str, Any]) -> str:
        """Render it; `names` are the variables, those with a `:=` in here only until its end."""
        names = _Names(names)
        return "".join(
            part if isinstance(part, str) else self.block(part, dot, names) for part in body
        )

    def block(self, block: _Block, dot: Any, names: dict[str, Any]) -> str:
        """Render one block, or action."""
        if block.word == "define":
            return ""
        variables, how, asked = _assignment(block.rest)
        value = _Expression(asked, self.functions, dot, names).pipeline()
        if block.word == "print":
            if how == "=":
                names.assign(variables[0], value)  # type: ignore[attr-defined]
            elif how:
                names[variables[0]] = value
            return "" if how else shown(value)
        if not value:
            return self.body(block.otherwise, dot, names)
        if block.word == "range":
            pairs = sorted(value.items()) if isinstance(value, Mapping) else enumerate(value)
            turns = []
            for key, item in pairs:
                given = dict(zip(variables[::-1], (item, key), strict=False))
                turns.append(self.body(block.body, item, _Names(names, given)))
            return "".join(turns)
        given = dict.fromkeys(variables, value)
        inner = value if block.word == "with" else dot
        return self.body(block.body, inner, _Names(names, given))


class _Names(dict[str, Any]):
    """Variables, over those of the block around."""

    def __init__(self, around: dict[str, Any], own: Mapping[str, Any] | None = None) -> None:
        super().__init__(own or {})
        self.around = around

    def __missing__(self, name: str) -> Any:
        return self.around[name]

    def assign(self, name: str, value: Any) -> None:
        """Change it where it was declared."""
        place = self
        while name not in place:
            place = place.around  # type: ignore[assignment]
        place[name] = value


def _assignment(text: str) -> tuple[list[str], str, str]:
    match = re.match(r"((?:\$\w+,\s*)?\$\w+)\s*(:?=)\s+(.*)", text, re.DOTALL)
    if not match:
        return [], "", text
    return [name.strip() for name in match[1].split(",")], match[2], match[3]


class _Expression:
    """What stands in an action."""

    def __init__(
        self, text: str, functions: Mapping[str, Callable[..., Any]], dot: Any, names: Any
    ) -> None:
        self.tokens = _tokens(text)
        self.functions, self.dot, self.names = functions, dot, names

    def pipeline(self) -> Any:
        """Evaluate it, up to its end or a closing parenthesis."""
        value = self.command()
        while self.tokens and self.tokens[0] == "|":
            self.tokens.pop(0)
            value = self.command(value)
        return value

    def command(self, *piped: Any) -> Any:
        """Evaluate a function, or a method, with all that stands behind it."""
        first = self.tokens[0]
        if first in self.functions:
            self.tokens.pop(0)
            called = self.functions[first]
        else:
            called = self.term()
        given = []
        while self.tokens and self.tokens[0] not in {"|", ")"}:
            given.append(self.term())
        given.extend(piped)
        if callable(called):
            return called(*given)
        if given:
            raise TemplateError(f"{first} is no function that is known here")
        return called

    def term(self) -> Any:
        """Evaluate one argument."""
        token = self.tokens.pop(0)
        if token == "(":
            value = self.pipeline()
            self.tokens.pop(0)
            return value
        if token[0] == '"':
            return json.loads(token)
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        if token in {"true", "false", "nil"}:
            return {"true": True, "false": False, "nil": None}[token]
        if token[0] not in "$.":
            raise TemplateError(f"{token} is not known here")
        first, *path = token.split(".")
        value = self.names[first] if first else self.dot
        for name in filter(None, path):
            value = (value or {}).get(name)
        return value


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if not match:
            raise TemplateError(f"not understood: {text[at:]}")
        tokens.append(match[1])
        at = match.end()
    return tokens


def shown(value: Any) -> str:
    """Print as Go does."""
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, width=10**6).removesuffix("\n").removesuffix("\n...")


def _required(message: str, value: Any) -> Any:
    return value or _fail(message)


def _fail(message: str) -> Any:
    raise TemplateError(message)


def _indented(count: int, text: str) -> str:
    return "\n" + "\n".join(" " * count + line for line in text.split("\n"))


def _replaced(pattern: str, text: str, by: str) -> str:
    return re.sub(pattern, re.sub(r"\$\{(\w+)\}", r"\\g<\1>", by), text)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "and": lambda *values: next((value for value in values if not value), values[-1]),
    "append": lambda values, one: [*values, one],
    "default": lambda other, value: value or other,
    "dict": lambda *words: dict(zip(words[::2], words[1::2], strict=True)),
    "eq": lambda one, other: one == other,
    "fail": _fail,
    "fromYaml": lambda text: yaml.load(text, yaml.CSafeLoader),
    "get": lambda values, key: values.get(key, ""),
    "gt": lambda one, other: one > other,
    "hasKey": lambda values, key: key in values,
    "has": lambda one, values: one in values,
    "int": int,
    "list": lambda *values: list(values),
    "ne": lambda one, other: one != other,
    "nindent": _indented,
    "not": lambda value: not value,
    "or": lambda *values: next((value for value in values if value), values[-1]),
    "printf": lambda shape, *values: shape.replace("%d", "%s") % values,
    "quote": json.dumps,
    "regexReplaceAll": _replaced,
    "replace": lambda old, new, text: text.replace(old, new),
    "required": _required,
    "set": lambda values, key, value: values.__setitem__(key, value) or values,
    "splitList": lambda by, text: text.split(by),
    "ternary": lambda yes, no, value: yes if value else no,
    "toYaml": _yaml,
    "trim": str.strip,
}
