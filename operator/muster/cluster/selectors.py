# SPDX-License-Identifier: Apache-2.0
"""Selectors, affinity and spread terms, parsed; `podaffinity` counts the pods that they match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, TypeVar

from muster.api import edge, podtemplate
from muster.api.model import Json
from muster.api.podtemplate import ANTI_AFFINITY
from muster.scheduler.model import Link

K = TypeVar("K")
Labels = Mapping[str, str]
WEIGHTS: Final = (1, 100)
"""Of a preference, as the API server takes them of a pod; so is what a template may say beyond."""
HOSTNAME: Final = "kubernetes.io/hostname"
COUNTS: Final = (1, 2**31 - 1)
"""Of pods and of domains, likewise."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on a label (or field): key, operator, values."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()
    """A set: one requirement may have thousands, and is compared with every node."""


Selector = tuple[Expression, ...] | None
"""Requirements that must all hold; none at all: everything; None: nothing."""
MAX_SELECTOR: Final = 1024
"""Maximum requirements, with their values, in the selector of a budget or a claim."""
IDLE_VALUES: Final = 100
"""Values for which an object in a cache, such as the shape of a deleted job, counts once more."""


def size(expressions: Iterable[Expression]) -> int:
    """Return the number of requirements and of their values."""
    return sum(1 + len(one.values) for one in expressions)


def unused(cache: dict[K, Any], used: int, most: int, size: Callable[[K], int]) -> list[K]:
    """Return the keys that exceed a total size, not counting the ones used last."""
    idle = [*reversed(cache)][used:]
    sizes = accumulate(map(size, idle))
    return [key for key, total in zip(idle, sizes, strict=True) if total > most]


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods by namespace and labels."""

    namespaces: frozenset[str]
    spaces: Selector
    """By the labels of their namespace, in addition to those named."""
    pods: Selector

    @property
    def size(self) -> int:
        """The number of its names and values, which no limit bounds."""
        return len(self.namespaces) + size((*(self.spaces or ()), *(self.pods or ())))


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """One term about other pods in the same domain, which is a value of a node label."""

    link: Link
    key: str
    """The node label."""
    who: Selection
    weight: int = 0
    """Of a preference; negative: rather apart."""
    skew: int = 1
    least_domains: int = 1
    honours_affinity: bool = True
    """Nodes that the pod's selector and affinity rule out do not count."""
    honours_taints: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """How other pods' terms see a pod."""

    namespace: str
    labels: Labels


def read(spec: Json, identity: Identity) -> tuple[PodAffinityTerm, ...]:
    """Return the terms of a pod's spec that are within the limits, required ones first."""

    def terms(path: str) -> Iterable[Json]:
        return podtemplate.readable_terms(spec, path)

    return (
        *(_required(Link.NEAR, term, identity) for term in terms(podtemplate.AFFINITY)),
        *(_required(Link.APART, term, identity) for term in terms(ANTI_AFFINITY)),
        *_spread(terms(podtemplate.SPREAD), identity),
        *_preferred(terms(podtemplate.PREFERRED_AFFINITY), identity, 1),
        *_preferred(terms(podtemplate.PREFERRED_ANTI_AFFINITY), identity, -1),
    )


def apart(spec: Json, identity: Identity) -> tuple[PodAffinityTerm, ...]:
    """Return the terms by which a pod on a node excludes other pods.

    Terms beyond the limits exclude all pods of their namespaces from the node and their domains.
    """
    read = podtemplate.readable_terms(spec, ANTI_AFFINITY)
    rest = podtemplate.terms(spec, ANTI_AFFINITY)[len(read) :]
    return (
        *(_required(Link.APART, term, identity) for term in read),
        *(_cautious(rest, identity) if rest else ()),
    )


def _cautious(terms: Sequence[Json], identity: Identity) -> Iterator[PodAffinityTerm]:
    spaces = [_spaces(term, identity) for term in terms]
    named = frozenset[str]().union(*(named for named, _ in spaces))
    who = Selection(named, () if any(chooses for _, chooses in spaces) else None, ())
    keys = dict.fromkeys((HOSTNAME, *(term.get("topologyKey", "") for term in terms)))
    for key in [*keys][: podtemplate.MAX_TERMS]:
        yield PodAffinityTerm(Link.APART, key, who)


def _required(link: Link, term: Json, identity: Identity) -> PodAffinityTerm:
    return PodAffinityTerm(link, term.get("topologyKey", ""), _selection(term, identity))


def _preferred(terms: Iterable[Json], identity: Identity, sign: int) -> Iterator[PodAffinityTerm]:
    for term in terms:
        inner = term.get("podAffinityTerm") or {}
        who = _selection(inner, identity)
        weight = sign * edge.within(term.get("weight", 1), *WEIGHTS)
        yield PodAffinityTerm(Link.FOND, inner.get("topologyKey", ""), who, weight=weight)


def _spread(constraints: Iterable[Json], identity: Identity) -> Iterator[PodAffinityTerm]:
    for constraint in constraints:
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") != "DoNotSchedule":
            continue
        pods = selector(constraint.get("labelSelector"))
        yield PodAffinityTerm(
            Link.EVEN,
            constraint.get("topologyKey", ""),
            Selection(
                frozenset({identity.namespace}), None, _with_keys(pods, constraint, identity)
            ),
            skew=edge.within(constraint.get("maxSkew", 1), *COUNTS),
            least_domains=edge.within(constraint.get("minDomains") or 1, *COUNTS),
            honours_affinity=constraint.get("nodeAffinityPolicy", "Honor") == "Honor",
            honours_taints=constraint.get("nodeTaintsPolicy", "Ignore") == "Honor",
        )


def _selection(term: Json, identity: Identity) -> Selection:
    named, _ = _spaces(term, identity)
    pods = _with_keys(selector(term.get("labelSelector")), term, identity)
    return Selection(named, selector(term.get("namespaceSelector")), pods)


def _spaces(term: Json, identity: Identity) -> tuple[frozenset[str], bool]:
    """Return the namespaces that a term names, and whether it selects others by their labels."""
    named, chooses = frozenset(term.get("namespaces") or ()), term.get("namespaceSelector")
    # Neither is said: the pod's own namespace, as the API has it; an empty selector means all.
    if not named and chooses is None:
        named = frozenset({identity.namespace})
    return named, chooses is not None


def _with_keys(selector: Selector, term: Json, identity: Identity) -> Selector:
    """Add what matchLabelKeys and mismatchLabelKeys stand for."""
    if selector is None:
        # Without a selector nobody is meant, and keys only narrow what is meant.
        return None
    kinds: tuple[tuple[Any, str], ...] = (
        (term.get("matchLabelKeys"), "In"),
        (term.get("mismatchLabelKeys"), "NotIn"),
    )
    more = tuple(
        Expression(key, operator, frozenset({identity.labels[key]}))
        for keys, operator in kinds
        for key in keys or ()
        if key in identity.labels
    )
    return tuple(dict.fromkeys((*selector, *more)))


def selector(doc: Json | None) -> Selector:
    """Return a label selector, parsed."""
    if doc is None:
        return None
    plain = sorted((doc.get("matchLabels") or {}).items())
    return (
        *(_equal(key, value) for key, value in plain),
        *map(expression, doc.get("matchExpressions") or ()),
    )


def bounded(doc: Json | None) -> Selector:
    """Return the label selector of an object. ValueError if it is too large."""
    found = selector(doc)
    if (count := size(found or ())) > MAX_SELECTOR:
        raise ValueError(f"spec.selector: Too many: {count}: must have at most {MAX_SELECTOR}")
    return found


@lru_cache(maxsize=4096)
def _equal(key: str, value: str) -> Expression:
    """Return the requirement that a label has that value, the same object for many pods."""
    return Expression(key, "In", frozenset({value}))


def expression(doc: Json) -> Expression:
    """Return one requirement."""
    return Expression(doc["key"], doc["operator"], frozenset(doc.get("values") or ()))


LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_INTEGER: Final = re.compile(r"0*([0-9]{1,19})")
"""Label values are neither signed nor beyond 64 bits: a term with such a value holds nowhere."""


def chosen(selector: Iterable[Expression], labels: Labels) -> bool:
    """Return whether all requirements hold; operators of node selectors alone, as Gt, never do."""
    return all(
        expression.operator in LABEL_OPERATORS and meets(expression, labels)
        for expression in selector
    )


def meets(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Say whether one requirement holds for these labels."""
    holds = _OPERATORS.get(expression.operator)
    return holds is not None and holds(labels.get(expression.key), expression.values)


def _greater(value: str | None, values: frozenset[str], sign: int) -> bool:
    if value is None or len(values) != 1:
        return False
    one, other = _INTEGER.fullmatch(value), _INTEGER.fullmatch(next(iter(values)))
    if one is None or other is None:
        return False
    there, bound = int(one[1]), int(other[1])
    return (there - bound) * sign > 0 and max(there, bound) < 2**63


_OPERATORS: Final[Mapping[str, Callable[[str | None, frozenset[str]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _greater(value, values, 1),
    "Lt": lambda value, values: _greater(value, values, -1),
}
