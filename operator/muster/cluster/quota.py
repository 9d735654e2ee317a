# SPDX-License-Identifier: Apache-2.0
"""ResourceQuota and LimitRange as admission applies them, to evaluate gangs before their pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from muster.api import podtemplate, quantity
from muster.api.model import Json
from muster.api.reasons import Reason
from muster.cluster import runtimeclass, tables
from muster.cluster.runtimeclass import Runtimes, RuntimeView
from muster.cluster.selectors import Expression, meets
from muster.scheduler.model import Quota, Refusal

POD: Final = 1000
_COUNTS: Final = ("pods", "count/pods")
_SERVICES: Final = ("services", "count/services")
_CLAIMS: Final = ("persistentvolumeclaims", "count/persistentvolumeclaims")
_OF_CLASS: Final = "storageclass.storage.k8s.io/"
"""Ends what stands before a resource of claims, after the name of their class and a dot."""
_PLAIN: Final = ("cpu", "memory", "ephemeral-storage", "hugepages-")
_NAMED: Final = {
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
}
"""Resources that every container must name where a quota has them: where, and which."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which pods a quota counts."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuotaView:
    """A ResourceQuota, amounts in the units of `api.quantity`."""

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]
    scopes: tuple[Scope, ...] = ()

    @property
    def terms(self) -> tuple[object, ...]:
        """What does not change by pods that come and go."""
        return (self.name, sorted(self.hard), self.scopes)

    def dimension(self, resource: str) -> str:
        """Return the key of one of its resources."""
        return f"{self.namespace}/{self.name}/{resource}"

    def dimensions(self) -> Iterator[tuple[str, Quota]]:
        """Yield its resources as the scheduler core sees them, by key."""
        for resource, hard in self.hard.items():
            used = self.used.get(resource, 0)
            quota = Quota(f"{self.namespace}/{self.name}", resource, hard, used)
            yield self.dimension(resource), quota


@dataclass(frozen=True, slots=True)
class LimitView:
    """A LimitRange."""

    namespace: str
    name: str
    items: tuple[Json, ...]


V = TypeVar("V", QuotaView, LimitView)


@dataclass(frozen=True, slots=True)
class Admission:
    """What admission goes by for new pods of one namespace."""

    quotas: Sequence[QuotaView] = ()
    ranges: Sequence[LimitView] = ()
    runtimes: Runtimes = field(default_factory=dict)

    def admitted(self, template: Json) -> Json:
        """Return a template as its pods will be created: defaults and RuntimeClass applied."""
        return runtimeclass.applied(self._defaulted(template), self.runtimes)

    @property
    def limits_containers(self) -> bool:
        """Whether a LimitRange bounds single containers."""
        return bool(self._of_containers())

    def _of_containers(self) -> list[Json]:
        listed = (item for view in self.ranges for item in view.items)
        return [item for item in listed if item.get("type") == "Container"]

    def _defaulted(self, template: Json) -> Json:
        items = self._of_containers()
        if not items:
            return template
        spec = template.get("spec") or {}
        lists = {key: _filled(spec[key], items) for key in podtemplate.LISTS if spec.get(key)}
        return {**template, "spec": {**spec, **lists}}

    def charge(self, admitted: Json) -> Mapping[str, int]:
        """Return what a new pod takes of quotas, by dimension; ValueError for a bad quantity."""
        spec = admitted.get("spec") or {}
        # Limits are summed by the same rule as requests: they are put in their place for that.
        asked, allowed = podtemplate.requests(spec), podtemplate.requests(_limits(spec))
        taken: dict[str, int] = {}
        # Without its claims, which a controller creates only once the pod exists, it never runs.
        claims = _claims_of(spec)
        for quota in self._counting(spec):
            for resource in quota.hard:
                amount = _taken(resource, asked, allowed)
                if amount := amount + sum(_taken_by_claim(resource, claim) for claim in claims):
                    taken[quota.dimension(resource)] = amount
        return taken

    def service_charge(self) -> Mapping[str, int]:
        """Return what one new headless Service takes of each quota, by dimension."""
        # The API server accepts scopes only in quotas of pods.
        return {
            quota.dimension(resource): POD
            for quota in self.quotas
            for resource in _SERVICES
            if resource in quota.hard
        }

    def obstacle(self, role: str, admitted: Json) -> Refusal | None:
        """Return why the API server would take no pod of that template at all, or None."""
        spec = admitted.get("spec") or {}
        for quota in self._counting(spec):
            for resource in quota.hard:
                if resource in _NAMED and not _names(spec, *_NAMED[resource]):
                    text = f"{role} does not name {resource}, which resource quota "
                    text += f'"{quota.name}" asks of every container'
                    return Refusal(Reason.EXCEEDS_RESOURCE_QUOTA, text)
        items = ((view, item) for view in self.ranges for item in view.items)
        text = next((text for view, item in items for text in _broken(spec, view, item)), "")
        return Refusal(Reason.EXCEEDS_RESOURCE_QUOTA, f"{role} {text}") if text else None

    def _counting(self, spec: Json) -> Iterator[QuotaView]:
        for quota in self.quotas:
            # All scopes must hold, as for the API server's quota evaluator.
            if all(_in_scope(scope, spec) for scope in quota.scopes):
                yield quota


class QuotaBook:
    """What admission goes by: the quotas and limit ranges of every namespace, the runtimes."""

    def __init__(self) -> None:
        self.runtimes: Mapping[str, RuntimeView] = {}
        self._quotas: dict[str, dict[str, QuotaView]] = {}
        self._ranges: dict[str, dict[str, LimitView]] = {}
        self.version = 0
        """Grows whenever what they say of a pod changes; how much is used does not count."""

    def quotas(self, namespace: str) -> Sequence[QuotaView]:
        """Return the quotas of a namespace, by name."""
        return [view for _, view in sorted(self._quotas.get(namespace, {}).items())]

    def ranges(self, namespace: str) -> Sequence[LimitView]:
        """Return the limit ranges of a namespace, by name."""
        return [view for _, view in sorted(self._ranges.get(namespace, {}).items())]

    def quota_changed(self, before: QuotaView | None, after: QuotaView | None) -> None:
        """Take in that a quota came, changed or went."""
        _put(self._quotas, before, after)
        # `used` changes with every pod, and none of the templates has to be judged anew for that.
        if before is None or after is None or before.terms != after.terms:
            self.version += 1

    def limits_changed(self, before: LimitView | None, after: LimitView | None) -> None:
        """Take in that a limit range came, changed or went."""
        _put(self._ranges, before, after)
        self.version += before != after

    def runtime_changed(self, before: RuntimeView | None, after: RuntimeView | None) -> None:
        """Take in that a RuntimeClass came, changed or went."""
        kept = {n: v for n, v in self.runtimes.items() if before is None or n != before.name}
        self.runtimes = kept if after is None else {**kept, after.name: after}
        self.version += before != after

    def counts_services(self, namespace: str) -> bool:
        """Return whether a quota of the namespace counts Services."""
        return bool(Admission(self.quotas(namespace)).service_charge())

    def admission(self, namespace: str) -> Admission:
        """Return what counts for new pods of a namespace."""
        return Admission(self.quotas(namespace), self.ranges(namespace), self.runtimes)

    def contents(self) -> tuple[list[QuotaView], list[LimitView]]:
        """Return all quotas and all limit ranges, by namespace and name."""
        quotas = [view for space in sorted(self._quotas) for view in self.quotas(space)]
        return quotas, [view for space in sorted(self._ranges) for view in self.ranges(space)]

    def dimensions(
        self, pending: Iterable[Mapping[str, int]] = (), spaces: Collection[str] | None = None
    ) -> Mapping[str, Quota]:
        """Return the quotas of these namespaces, or of all, less what `pending` pods will take."""
        wanted = self._quotas if spaces is None else self._quotas.keys() & spaces
        everything = (view for space in wanted for view in self._quotas[space].values())
        found = {key: quota for view in everything for key, quota in view.dimensions()}
        for amounts in pending:
            for key, amount in amounts.items():
                # A quota may have gone since the amounts were worked out.
                if key in found:
                    found[key] = replace(found[key], used=found[key].used + amount)
        return found


def _put(views: dict[str, dict[str, V]], before: V | None, after: V | None) -> None:
    for view in filter(None, (before, after)):
        tables.put(views, view.namespace, view.name, view if view is after else None)


def parse_quota(document: Json) -> QuotaView:
    """Return a ResourceQuota. Raises ValueError for a bad quantity."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return QuotaView(
        namespace=document["metadata"]["namespace"],
        name=document["metadata"]["name"],
        # From the spec: the status follows it late, and admission goes by what it will be then.
        hard=_amounts(spec.get("hard")),
        used=_amounts(status.get("used")),
        scopes=(
            *(Scope(name) for name in spec.get("scopes") or ()),
            *(
                Scope(s["scopeName"], s["operator"], tuple(s.get("values") or ()))
                for s in selector
            ),
        ),
    )


def views_of(
    dimensions: Mapping[str, Quota], scopes: Mapping[str, tuple[Scope, ...]]
) -> Iterator[QuotaView]:
    """Yield the quotas that have these dimensions; `scopes` by namespace/name, if it has any."""
    by_name: dict[str, list[Quota]] = {}
    for quota in dimensions.values():
        by_name.setdefault(quota.name, []).append(quota)
    for whole, parts in by_name.items():
        namespace, _, name = whole.partition("/")
        hard = {quota.resource: quota.hard for quota in parts}
        used = {quota.resource: quota.used for quota in parts}
        yield QuotaView(namespace, name, hard, used, scopes.get(whole, ()))


def parse_limits(document: Json) -> LimitView:
    """Return a LimitRange. ValueError for what is no quantity."""
    # Amounts are none below zero: no pod asks for less than nothing.
    items = tuple(
        {**item, **{key: quantity.floored(item[key]) for key in _BOUNDS if item.get(key)}}
        for item in (document.get("spec") or {}).get("limits") or ()
    )
    metadata = document["metadata"]
    return LimitView(metadata["namespace"], metadata["name"], items)


_BOUNDS: Final = ("default", "defaultRequest", "max", "min")


def _amounts(listed: Mapping[str, str] | None) -> Mapping[str, int]:
    return {resource: quantity.units(resource, text) for resource, text in (listed or {}).items()}


def _filled(containers: Sequence[Json], items: Sequence[Json]) -> list[Json]:
    result = []
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        # The API server takes a limit for the request before any range is looked at.
        requests = {**limits, **requests}
        for item in items:
            default = item.get("default") or {}
            limits = {**default, **limits}
            requests = {**default, **(item.get("defaultRequest") or {}), **requests}
        result.append({**container, "resources": {"limits": limits, "requests": requests}})
    return result


def _limits(spec: Json) -> Json:
    """Return a spec whose requests are the limits of this one."""

    def turned(holder: Json) -> Json:
        limits = (holder.get("resources") or {}).get("limits") or {}
        return {**holder, "resources": {"requests": limits}}

    lists = {key: [turned(c) for c in spec[key]] for key in podtemplate.LISTS if spec.get(key)}
    return {**turned(spec), **lists}


def _taken(resource: str, asked: Mapping[str, int], allowed: Mapping[str, int]) -> int:
    if resource in _COUNTS:
        return POD
    if resource.startswith("limits."):
        return allowed.get(resource.removeprefix("limits."), 0)
    if resource.startswith("requests."):
        return asked.get(resource.removeprefix("requests."), 0)
    return asked.get(resource, 0) if resource.startswith(_PLAIN) else 0


def _claims_of(spec: Json) -> Sequence[Json]:
    """Return the specs of the claims that are created for a pod with ephemeral volumes."""
    volumes = (volume.get("ephemeral") or {} for volume in spec.get("volumes") or ())
    templates = (
        each["volumeClaimTemplate"] for each in volumes if each.get("volumeClaimTemplate")
    )
    return [template.get("spec") or {} for template in templates]


def _taken_by_claim(resource: str, claim: Json) -> int:
    kind = resource.removeprefix(f"{claim.get('storageClassName')}.{_OF_CLASS}")
    if kind in _CLAIMS:
        return POD
    size = ((claim.get("resources") or {}).get("requests") or {}).get("storage", 0)
    return quantity.units(resource, size) if kind == "requests.storage" else 0


def counts_failed(dimension: str) -> bool:
    """Return whether a quota counts a failed pod, or its claims, until the pod is deleted."""
    return dimension.endswith(("/count/pods", "/persistentvolumeclaims", "requests.storage"))


def _names(spec: Json, part: str, resource: str) -> bool:
    # A limit stands for the request that is left out.
    parts = (part, "limits") if part == "requests" else (part,)
    # Any resources of the whole pod stand for all of its containers, as for the API server.
    lists = () if spec.get("resources") else podtemplate.LISTS
    holders = (holder for key in lists for holder in spec.get(key) or ())
    return all(
        any(resource in ((holder.get("resources") or {}).get(p) or {}) for p in parts)
        for holder in holders
    )


def _best_effort(spec: Json) -> bool:
    # The class of service depends on the containers alone, not on the overhead of the runtime.
    bare = {**spec, "overhead": None}
    return not any(podtemplate.requests(s).get(r) for s in (bare, _limits(bare)) for r in _BASIC)


_BASIC: Final = ("cpu", "memory")


def _crosses(spec: Json) -> bool:
    found = (term for path in podtemplate.POD_TERMS for term in podtemplate.terms(spec, path))
    terms = (term.get("podAffinityTerm") or term for term in found)
    return any(term.get("namespaces") or "namespaceSelector" in term for term in terms)


_SCOPES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "Terminating": lambda spec: spec.get("activeDeadlineSeconds") is not None,
    "NotTerminating": lambda spec: spec.get("activeDeadlineSeconds") is None,
    "BestEffort": _best_effort,
    "NotBestEffort": lambda spec: not _best_effort(spec),
    "CrossNamespacePodAffinity": _crosses,
}


def _in_scope(scope: Scope, spec: Json) -> bool:
    if scope.name == "PriorityClass":
        named = Expression(scope.name, scope.operator, frozenset(scope.values))
        classes = spec.get("priorityClassName")
        return meets(named, {scope.name: classes} if classes else {})
    known = _SCOPES.get(scope.name)
    # A scope that is unknown here counts nothing: the API server judges the pods that it matches.
    return known is not None and known(spec)


def _broken(spec: Json, view: LimitView, item: Json) -> Iterator[str]:
    whole = {"Container": "a container", "Pod": "a pod"}.get(item.get("type", ""))
    if whole is None:
        return
    containers = [each for key in podtemplate.LISTS for each in spec.get(key) or ()]
    holders = [spec] if item["type"] == "Pod" else containers
    for holder in holders:
        asked = _held(holder, item["type"], "requests")
        allowed = _held(holder, item["type"], "limits")
        for sign, bound, amounts in ((1, "max", allowed), (-1, "min", asked)):
            for resource, text in (item.get(bound) or {}).items():
                amount = amounts.get(resource)
                if amount is not None and sign * amount > sign * quantity.units(resource, text):
                    yield (
                        f"has {quantity.format(resource, amount)} {resource}, the {bound} for "
                        f'{whole} is {text} by limit range "{view.name}"'
                    )


def _held(holder: Json, kind: str, part: str) -> Mapping[str, int]:
    if kind == "Pod":
        return podtemplate.requests(holder if part == "requests" else _limits(holder))
    resources = holder.get("resources") or {}
    amounts = _amounts(resources.get(part))
    return amounts or (_amounts(resources.get("limits")) if part == "requests" else {})
