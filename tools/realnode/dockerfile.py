# SPDX-License-Identifier: Apache-2.0
"""What a Dockerfile says: the part of the language that ours need.

RUN, COPY, ENV, WORKDIR, USER, ENTRYPOINT and CMD, in stages. ENTRYPOINT and CMD are JSON lists.
`ARG NAME=VALUE` in front of them names what a stage starts FROM. A stage is made on this machine
(`--platform=$BUILDPLATFORM`, or nothing) for that which `ARG TARGETARCH` asks for.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PLAIN = ("RUN", "COPY", "ENV", "WORKDIR", "USER")
_LISTS = ("ENTRYPOINT", "CMD")
_HERE = "--platform=$BUILDPLATFORM"


class DockerfileError(Exception):
    """An instruction is not understood; the message names it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction; `text` is what stands behind its name."""

    name: str
    text: str


MACHINE = Step("ARG", "TARGETARCH")
"""Asks for which machine the image is."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What is done over a parent; `name` is empty where no later stage copies from it."""

    parent: str
    name: str = ""
    steps: tuple[Step, ...] = ()


def parse(text: str) -> tuple[Stage, ...]:
    """Read the stages of a Dockerfile, the image being the last one."""
    stages: list[Stage] = []
    given: dict[str, str] = {}
    lines = (line for line in text.splitlines() if not re.match(r"\s*(#|$)", line))
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        name, _, rest = line.strip().partition(" ")
        words = [word for word in rest.split() if word != _HERE]
        if name == "FROM" and words[1:2] in ([], ["AS"]):
            parent = given.get(words[0], words[0])
            stages.append(Stage(parent, words[-1] if words[1:] else ""))
        elif name == "ARG" and not stages and "=" in rest:
            key, _, value = rest.partition("=")
            given[f"${key}"] = value
        elif stages and words and _is_known(step := Step(name, " ".join(words))):
            stages[-1] = replace(stages[-1], steps=(*stages[-1].steps, step))
        else:
            raise DockerfileError(f"not understood in a Dockerfile: {line}")
    if not stages:
        raise DockerfileError("a Dockerfile without FROM")
    return tuple(stages)


def _is_known(step: Step) -> bool:
    listed = step.name in _LISTS and step.text.startswith("[")
    return step.name in _PLAIN or step == MACHINE or listed


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY, read: sources and target; `stage` is empty where they come from the context."""

    stage: str
    sources: tuple[str, ...]
    target: str

    @classmethod
    def read(cls, text: str) -> Copy:
        """Read what stands behind COPY."""
        words = text.split()
        options = [word for word in words if word.startswith("--")]
        stages = [word.removeprefix("--from=") for word in options if word.startswith("--from=")]
        *sources, target = [word for word in words if not word.startswith("--")]
        if len(options) != len(stages) or not sources:
            raise DockerfileError(f"not understood in a Dockerfile: COPY {text}")
        return cls(stages[0] if stages else "", tuple(sources), target)


@dataclass(frozen=True, slots=True)
class Config:
    """How a container of an image starts, and with what the next RUN does."""

    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    folder: str = "/"
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def after(self, step: Step) -> Config:
        """Return what it is behind an instruction; RUN and COPY change nothing."""
        match step.name:
            case "ENV":
                pairs = (word.partition("=") for word in shlex.split(step.text))
                return replace(self, env={**self.env, **{k: self._filled(v) for k, _, v in pairs}})
            case "WORKDIR":
                return replace(self, folder=os.path.normpath(f"{self.folder}/{step.text}"))
            case "USER":
                return replace(self, user=step.text)
            case "ENTRYPOINT":
                return replace(self, entrypoint=tuple(json.loads(step.text)), command=())
            case "CMD":
                return replace(self, command=tuple(json.loads(step.text)))
        return self

    def _filled(self, value: str) -> str:
        return re.sub(r"\$\{?(\w+)\}?", lambda match: self.env.get(match[1], ""), value)

    def document(self) -> dict[str, Any]:
        """Return it as the configuration of an image has it."""
        return {
            "Env": [f"{name}={value}" for name, value in self.env.items()],
            "WorkingDir": self.folder,
            "User": self.user,
            "Entrypoint": list(self.entrypoint) or None,
            "Cmd": list(self.command) or None,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Config:
        """Read what `document` wrote."""
        return cls(
            dict(pair.split("=", 1) for pair in document["Env"]),
            document["WorkingDir"],
            document["User"],
            tuple(document["Entrypoint"] or ()),
            tuple(document["Cmd"] or ()),
        )
