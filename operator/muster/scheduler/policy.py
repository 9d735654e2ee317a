# SPDX-License-Identifier: Apache-2.0
"""The policy: its actions, and its plugins by tier. `parse` reads kube-batch's form."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from muster.scheduler.actions import ACTIONS, Action
from muster.scheduler.hooks import Hooks
from muster.scheduler.plugins import PLUGINS, Plugin, fairshare
from muster.scheduler.plugins.fairshare import DEFAULT_HALF_LIFE
from muster.scheduler.session import Around, Opener, Session, unwatched

SWITCHES: Final[Mapping[str, tuple[str, ...]]] = {
    "JobOrder": ("job_order", "head_order"),
    "JobReady": ("ready",),
    "JobPipelined": ("pipelined",),
    "TaskOrder": ("task_order",),
    "Preemptable": ("preemptable",),
    "Reclaimable": ("reclaimable",),
    "QueueOrder": ("queue_order", "usage_order"),
    "Predicate": ("feasible", "regions"),
    "NodeOrder": ("score",),
}
"""What follows `enable` or `disable` in a policy file -> the hooks that it switches."""


class PolicyError(ValueError):
    """A policy that cannot be used."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key
        """Where it is wrong, e.g. `tiers[0].plugins[1].name`; empty: as a whole."""
        self.message = message


@dataclass(frozen=True, slots=True)
class Option:
    """One plugin of a tier."""

    name: str
    off: frozenset[str] = frozenset()
    """Hooks that are not asked."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Parsed."""


ALWAYS: Final = (Option("quota"), Option("topology"))
"""What is asked, last, where a policy does not name it.

The API server goes by quotas whatever a file says: for a gang whose pods it refuses others would
be evicted, or kept waiting, over and over. And a gang may say itself where it lies."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a cycle does, and by which rules."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[Option, ...], ...]
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Action -> its arguments, parsed."""
    source: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The document that `parse` made it from."""

    def openers(self, around: Around = unwatched) -> Sequence[Sequence[Opener]]:
        """Return the plugins of each tier, ready to answer for a session."""
        named = {option.name for tier in self.tiers for option in tier}
        unnamed = ((option,) for option in ALWAYS if option.name not in named)
        tiers = (*self.tiers, *unnamed)
        return [[partial(_open, option, around) for option in tier] for tier in tiers]

    @property
    def half_life(self) -> float | None:
        """In how many seconds half of what queues used is forgotten; None: it does not count."""
        options = (option for tier in self.tiers for option in tier if option.name == "fairshare")
        lives = (o.arguments.get(fairshare.HALF_LIFE, DEFAULT_HALF_LIFE) for o in options)
        return next(lives, None)

    @property
    def moves(self) -> bool:
        """Whether any action may move what runs."""
        return any(ACTIONS[name].moves for name in self.actions)


DEFAULT: Final = Policy(
    actions=("allocate", "backfill"),
    tiers=(
        # quota first: the API server would refuse the rest. Without quotas this costs nothing.
        (Option("priority"), Option("gang"), ALWAYS[0]),
        (Option("drf"), Option("predicates"), Option("proportion"), Option("nodeorder")),
    ),
)
"""What kube-batch does without a policy file, and the namespaces' quotas kept."""


def parse(document: object) -> Policy:
    """Return the policy in a file's document; what the file leaves out is as in DEFAULT.

    Raises PolicyError, which names the key and the nearest right one.
    """
    top = _mapping("", document)
    _known("", top, ("actions", "configurations", "tiers"))
    actions = _actions(top["actions"]) if top.get("actions") is not None else DEFAULT.actions
    given = top.get("configurations")
    parts = _sequence("configurations", () if given is None else given)
    configured = dict(_configured(f"configurations[{i}]", part) for i, part in enumerate(parts))
    if top.get("tiers") is None:
        return Policy(actions, DEFAULT.tiers, configured, top)
    tiers = [_tier(f"tiers[{i}]", tier) for i, tier in enumerate(_sequence("tiers", top["tiers"]))]
    return Policy(actions, tuple(tiers), configured, top)


def _open(option: Option, around: Around, session: Session) -> Hooks:
    with around("plugin", option.name):
        hooks = PLUGINS[option.name].answer(session, option.arguments)
    return dataclasses.replace(hooks, **dict.fromkeys(option.off))


def _actions(value: object) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise PolicyError("actions", 'write the names in one string: "allocate, backfill"')
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise PolicyError("actions", "names no action; allocate is the least")
    for name in names:
        _one_of("actions", "action", name, ACTIONS)
    return names


def _configured(key: str, value: object) -> tuple[str, Mapping[str, Any]]:
    """Return an action's name and its arguments."""
    part = _mapping(key, value)
    _known(key, part, ("name", "arguments"))
    name = part.get("name")
    if not isinstance(name, str):
        raise PolicyError(f"{key}.name", "names no action")
    _one_of(f"{key}.name", "action", name, ACTIONS)
    given = part.get("arguments") or {}
    return name, _arguments(f"{key}.arguments", name, ACTIONS[name], given)


def _tier(key: str, value: object) -> tuple[Option, ...]:
    tier = _mapping(key, value)
    _known(key, tier, ("plugins",))
    plugins = _sequence(f"{key}.plugins", tier.get("plugins") or ())
    return tuple(_option(f"{key}.plugins[{i}]", plugin) for i, plugin in enumerate(plugins))


def _option(key: str, value: object) -> Option:
    option = _mapping(key, value)
    switches = [f"{verb}{name}" for verb in ("enable", "disable") for name in SWITCHES]
    _known(key, option, ("name", "arguments", *switches))
    name = option.get("name")
    if not isinstance(name, str):
        raise PolicyError(f"{key}.name", "a plugin needs a name")
    _one_of(f"{key}.name", "plugin", name, PLUGINS)
    off: set[str] = set()
    for switch in switches:
        if switch not in option:
            continue
        if not isinstance(option[switch], bool):
            raise PolicyError(f"{key}.{switch}", "is either true or false")
        if option[switch] == switch.startswith("disable"):
            off.update(SWITCHES[switch.removeprefix("enable").removeprefix("disable")])
    parsed = _arguments(f"{key}.arguments", name, PLUGINS[name], option.get("arguments") or {})
    return Option(name, frozenset(off), parsed)


def _arguments(key: str, owner: str, row: Action | Plugin, value: object) -> Mapping[str, Any]:
    parsed = {}
    for name, text in _mapping(key, value).items():
        parser = _parser(row, name)
        if parser is None:
            known = row.arguments
            detail = _nearest(name, known) if known else f". {owner} takes none"
            raise PolicyError(f"{key}.{name}", f'"{name}" is no argument of {owner}{detail}')
        try:
            parsed[name] = parser(str(text).lower() if isinstance(text, bool) else str(text))
        except ValueError as error:
            raise PolicyError(f"{key}.{name}", str(error)) from None
    return parsed


def _parser(row: Action | Plugin, name: str) -> Callable[[str], Any] | None:
    for known, parser in row.arguments.items():
        open_ended = known.endswith(".") and name.startswith(known)
        # The bare prefix of an open-ended name is no argument: a name must follow its dot.
        if open_ended != (name == known):
            return parser
    return None


def _mapping(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PolicyError(key, "must be a mapping of names to values")
    return {str(name): item for name, item in value.items()}


def _sequence(key: str, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise PolicyError(key, "must be a list")
    return value


def _known(key: str, mapping: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in mapping:
        if name not in names:
            path = f"{key}.{name}" if key else name
            raise PolicyError(path, f'"{name}" is no key of a policy{_nearest(name, names)}')


def _one_of(key: str, kind: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise PolicyError(key, f'"{name}" is no {kind}{_nearest(name, known)}')


def _nearest(name: str, known: Iterable[str]) -> str:
    folded = {right.lower(): right for right in known}
    close = difflib.get_close_matches(name.lower(), folded, n=1)
    if close:
        return f'; did you mean "{folded[close[0]]}"?'
    return f". Known are: {', '.join(folded.values())}"
