# SPDX-License-Identifier: Apache-2.0
"""What a pod asks of its node, by Kubernetes' rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from muster.api import quantity
from muster.api.edge import mapping, sequence
from muster.api.model import Json

Amounts = dict[str, int]
"""Resource name -> amount in the unit of `api.quantity`. Resources asked for 0 are left out."""

LISTS = ("containers", "initContainers")
_POD_LEVEL = ("cpu", "memory", "hugepages-")
MAX_TERMS: Final = 64
"""Maximum number of terms of one kind: each is compared with every pod or node."""
MAX_REQUIREMENTS: Final = 256
"""Maximum number of label requirements in all terms of one kind."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
NODE_AFFINITY: Final = f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
PREFERRED_NODES: Final = f"affinity.nodeAffinity.{PREFERRED}"
AFFINITY: Final = f"affinity.podAffinity.{REQUIRED}"
PREFERRED_AFFINITY: Final = f"affinity.podAffinity.{PREFERRED}"
ANTI_AFFINITY: Final = f"affinity.podAntiAffinity.{REQUIRED}"
PREFERRED_ANTI_AFFINITY: Final = f"affinity.podAntiAffinity.{PREFERRED}"
SPREAD: Final = "topologySpreadConstraints"
TOLERATIONS: Final = "tolerations"
POD_TERMS: Final = (AFFINITY, PREFERRED_AFFINITY, ANTI_AFFINITY, PREFERRED_ANTI_AFFINITY)
TERM_LISTS: Final = (NODE_AFFINITY, PREFERRED_NODES, *POD_TERMS, SPREAD, TOLERATIONS)
"""Paths of the lists in a pod's spec whose terms are compared with pods or nodes."""


def too_many_terms(spec: Json, paths: Iterable[str] = TERM_LISTS) -> Iterator[tuple[str, str]]:
    """Yield the path of each list of terms that exceeds a limit, and the error."""
    for path in paths:
        found = terms(spec, path)
        if len(found) > MAX_TERMS:
            yield path, f"Too many: {len(found)}: must have at most {MAX_TERMS} items"
            continue
        total = sum(map(_requirements, found))
        if total > MAX_REQUIREMENTS:
            most = f"at most {MAX_REQUIREMENTS} label requirements in all items"
            yield path, f"Too many: {total}: must have {most}"


def terms(spec: Json, path: str) -> Sequence[Any]:
    """Return the list of terms at one of the `TERM_LISTS` of a pod's spec."""
    *parents, last = path.split(".")
    parent: Mapping[str, Any] = spec
    for key in parents:
        parent = mapping(parent.get(key))
    return sequence(parent.get(last))


def readable_terms(spec: Json, path: str) -> Sequence[Any]:
    """Return the first terms at one of the `TERM_LISTS` that are within both limits."""
    found, total = terms(spec, path)[:MAX_TERMS], 0
    for count, term in enumerate(found):
        total += _requirements(term)
        if total > MAX_REQUIREMENTS:
            return found[:count]
    return found


def _requirements(term: object) -> int:
    found = mapping(term)
    inner = mapping(found.get("preference") or found.get("podAffinityTerm")) or found
    selectors = (inner, *(mapping(inner.get(f"{which}Selector")) for which in _SELECTORS))
    return sum(len(sequence(one.get(key))) for one in selectors for key in _REQUIREMENTS) + sum(
        len(mapping(one.get("matchLabels"))) for one in selectors
    )


_SELECTORS = ("label", "namespace")
_REQUIREMENTS = ("matchExpressions", "matchFields", "matchLabelKeys", "mismatchLabelKeys")


def requests(spec: Json) -> Amounts:
    """Return the effective request of one pod with this spec, without its pod slot.

    max(containers + sidecars, the largest step of the init containers) + overhead; a limit stands
    in for a missing request, and the pod's own `resources` replace the sum of cpu, memory and huge
    pages. Raises ValueError for what is no quantity.
    """
    amounts = _running(spec)
    if resources := spec.get("resources"):
        pod = {name: amount for name, amount in _amounts(resources.get("requests")).items()
               if name.startswith(_POD_LEVEL)}  # fmt: skip
        amounts = {**_amounts(resources.get("limits")), **amounts, **pod}
    if overhead := spec.get("overhead"):
        amounts = _sum((amounts, _amounts(overhead)))
    return {name: amount for name, amount in amounts.items() if amount}


def unreadable_part(spec: Json) -> str:
    """Return the path to the resources that are no quantities; empty if they are not in a list."""
    for part in LISTS:
        for index, container in enumerate(sequence(spec.get(part))):
            try:
                _container(container)
            except (ValueError, TypeError, AttributeError):
                return f".{part}[{index}].resources"
    return ""


def held(spec: Json, status: Json) -> Amounts:
    """Return what a pod takes of its node: the largest of its requests, asked, held and granted.

    A resize that is infeasible on the node never takes place: what it asks for does not count.
    """
    resizes = (c for c in status.get("conditions") or () if c.get("type") == "PodResizePending")
    infeasible = any(condition.get("reason") == "Infeasible" for condition in resizes)
    if spec.get("resources"):
        spec = _with_larger(spec, status, infeasible=infeasible)
    for part in LISTS:
        said = {each.get("name"): each for each in status.get(f"{part[:-1]}Statuses") or ()}
        if said:
            pairs = [(c, said.get(c.get("name"), {})) for c in spec.get(part) or ()]
            spec = {**spec, part: [_with_larger(*pair, infeasible=infeasible) for pair in pairs]}
    amounts, overhead = requests(spec), _amounts(spec.get("overhead"))
    # Since 1.36 kubelets report the sum, overhead included, and add the overhead once more.
    for name, text in _reported(status):
        if amount := quantity.units(name, text):
            total = min(amount + overhead.get(name, 0), quantity.LIMIT)
            amounts[name] = max(amounts.get(name, 0), total)
    return amounts


def _reported(said: Json) -> Sequence[tuple[str, str]]:
    """Return the requests that are held and granted by the status of a pod or a container."""
    found = (said.get("resources") or {}).get("requests"), said.get("allocatedResources")
    return [pair for each in found for pair in (each or {}).items()]


def _with_larger(of: Json, said: Json, *, infeasible: bool) -> Json:
    if not (reported := _reported(said)):
        return of
    resources = of.get("resources") or {}
    largest = dict(resources.get("requests") or {})
    for name, _ in reported if infeasible else ():
        largest.pop(name, None)
    # The larger, as the scheduler's resource helper: a resize may be refused or under way.
    for name, text in reported:
        if quantity.units(name, text) > quantity.units(name, largest.get(name, 0)):
            largest[name] = text
    return {**of, "resources": {**resources, "requests": largest}}


def _running(spec: Json) -> Amounts:
    """Return the larger of what start-up needs at its peak and what runs afterwards."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        for name, amount in _container(container).items():
            # Sidecars started earlier run on during an init container; others count in the end.
            step = min(sidecars.get(name, 0) + amount, quantity.LIMIT)
            peak[name] = max(peak.get(name, 0), step)
            if container.get("restartPolicy") == "Always":
                sidecars[name] = step
    containers = (_container(container) for container in spec.get("containers") or ())
    running = _sum((sidecars, *containers))
    return {name: max(peak.get(name, 0), running.get(name, 0)) for name in peak | running}


def _container(container: Json) -> Amounts:
    resources = container.get("resources") or {}
    # The API server's defaulting does it per resource, before any scheduler sees the pod.
    return _amounts(resources.get("limits")) | _amounts(resources.get("requests"))


def _amounts(listed: Mapping[str, str | float] | None) -> Amounts:
    return {name: quantity.units(name, text) for name, text in (listed or {}).items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            # Any number of containers may ask for any amount each.
            total[name] = min(total.get(name, 0) + amount, quantity.LIMIT)
    return total
