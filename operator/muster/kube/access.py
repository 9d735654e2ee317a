# SPDX-License-Identifier: Apache-2.0
"""Whether this account, or another, may do something, asked of the API server by access reviews.

What is missing is named in one line, with the roles that grant it. This account may also ask for
all its rules at once, which need not be complete: what they leave open is asked one by one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import aiohttp

from muster.api.model import Json
from muster.gang import Permission
from muster.kube.client import ApiError, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import Resource

log = logging.getLogger(__name__)
REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
OF_OTHERS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
RULES = Resource("authorization.k8s.io", "v1", "selfsubjectrulesreviews", namespaced=False)
NOWHERE = "-"
"""No namespace can be called so: the rules that hold there hold everywhere."""
RETRY_SECONDS = 2.0
ASKED_AT_ONCE = 8
"""Questions in flight: an answer comes sooner than one more connection."""
FEW = 4
"""Questions that are not more than the rules are worth."""


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount."""

    namespace: str
    name: str

    @property
    def subject(self) -> Json:
        """Who it is to the API server."""
        every = "system:serviceaccounts"
        return {
            "user": f"system:serviceaccount:{self.namespace}:{self.name}",
            "groups": [every, f"{every}:{self.namespace}", "system:authenticated"],
        }


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """One question to the API server: whether this account may do that there."""

    resource: str
    """`plural[.group]`, its subresource after a slash."""
    namespace: str
    """Empty: in all, or the resource has none."""
    verb: str
    name: str = ""
    """Empty: whatever its name."""

    def review(self, account: Account | None = None) -> Json:
        """Return the SelfSubjectAccessReview that asks it, or the one about another account."""
        plural, group, subresource = self._parts
        attributes = {
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "namespace": self.namespace,
            "verb": self.verb,
            "name": self.name,
        }
        return {
            "apiVersion": REVIEWS.api_version,
            "kind": "SubjectAccessReview" if account else "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {k: v for k, v in attributes.items() if v},
                **(account.subject if account else {}),
            },
        }

    def granted_by(self, rule: Json) -> bool:
        """Say whether a rule of a SelfSubjectRulesReview grants it."""
        plural, group, subresource = self._parts
        called = {f"{plural}/{subresource}", f"*/{subresource}"} if subresource else {plural}
        names = rule.get("resourceNames")
        return (
            not {"*", group}.isdisjoint(rule.get("apiGroups") or ())
            and not {"*", *called}.isdisjoint(rule.get("resources") or ())
            and not {"*", self.verb}.isdisjoint(rule.get("verbs") or ())
            and (not names or self.name in names)
        )

    @property
    def _parts(self) -> tuple[str, str, str]:
        """The plural, its group, and its subresource."""
        whole, _, subresource = self.resource.partition("/")
        plural, _, group = whole.partition(".")
        return plural, group, subresource


def accesses(permissions: Iterable[Permission], namespaces: Sequence[str]) -> list[Access]:
    """Return the single questions that permissions come to."""
    return [a for p in permissions for a in accesses_of(p, ("",) if p.everywhere else namespaces)]


def accesses_of(permission: Permission, namespaces: Sequence[str]) -> Iterator[Access]:
    """Yield the single questions that one permission comes to."""
    plural, slash, subresource = permission.resource.partition("/")
    group = f".{permission.group}" if permission.group else ""
    resource = f"{plural}{group}{slash}{subresource}"
    for namespace in namespaces or ("",):
        for verb in permission.verbs:
            yield Access(resource, namespace, verb)


def sentence(missing: Iterable[Access], overlay: str) -> str:
    """Return in one line what is missing and which overlay grants it; empty if nothing is."""
    return lacking(missing, f"manifests/overlays/{overlay}")


def lacking(missing: Iterable[Access], folder: str) -> str:
    """Return in one line what is missing; the roles in `folder` grant it."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for access in missing:
        verbs.setdefault((access.resource, access.namespace), []).append(access.verb)
    if not verbs:
        return ""
    parts = (
        f"{', '.join(listed)} {resource}" + (f" in namespace {namespace}" if namespace else "")
        for (resource, namespace), listed in verbs.items()
    )
    return f"this account may not {'; '.join(parts)}; the roles of {folder} grant what is needed"


async def missing(
    kube: Kube,
    accesses: Iterable[Access],
    account: Account | None = None,
    *,
    by_rules: bool = True,
) -> tuple[Access, ...]:
    """Return the accesses that the API server does not grant. Raises ApiError.

    `account`: whose; None: those of this process. `by_rules`: what its rules grant is not asked
    for, though an authorizer that stands before them may refuse it.
    Of many namespaces it is asked for all first: what is granted there need not be asked apart.
    """
    asked = tuple(accesses)
    spaced = [access for access in asked if access.namespace]
    wide = dict.fromkeys(replace(access, namespace="") for access in spaced)
    if len(spaced) <= len(wide):
        return await _refused(kube, asked, account, by_rules=by_rules)
    apart = set(await _refused(kube, tuple(wide), account, by_rules=by_rules))
    left = (a for a in asked if not a.namespace or replace(a, namespace="") in apart)
    return await _refused(kube, tuple(left), account, by_rules=by_rules)


async def _refused(
    kube: Kube, asked: Sequence[Access], account: Account | None, *, by_rules: bool
) -> tuple[Access, ...]:
    few = asyncio.Semaphore(ASKED_AT_ONCE)
    path = (OF_OTHERS if account else REVIEWS).path()

    async def granted(access: Access) -> bool:
        async with few:
            answer = await kube.create(path, access.review(account), PriorityLevel.PLACEMENT)
        return bool(answer["status"].get("allowed"))

    left = await _left_open(kube, asked) if by_rules and account is None else asked
    answers = await asyncio.gather(*map(granted, left))
    return tuple(access for access, yes in zip(left, answers, strict=True) if not yes)


async def _left_open(kube: Kube, asked: Sequence[Access]) -> Sequence[Access]:
    """Return what the rules of this account do not grant everywhere, as far as they are told.

    Those of a namespace are not asked for: whoever may bind roles there says how many they are.
    """
    if sum(not access.namespace for access in asked) <= FEW:
        return asked
    body = {
        "apiVersion": RULES.api_version,
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": NOWHERE},
    }
    try:
        answer = await kube.create(RULES.path(), body, PriorityLevel.PLACEMENT)
    except ApiError:  # nobody has to tell them
        return asked
    rules: Sequence[Json] = answer["status"].get("resourceRules") or ()
    return [a for a in asked if a.namespace or not any(map(a.granted_by, rules))]


async def wait(
    kube: Kube,
    accesses: Iterable[Access],
    overlay: str,
    report: Callable[[str], None],
) -> None:
    """Return once everything is granted, or cannot be asked.

    `report` is called with what is missing, each time it changes, and with nothing in the end.
    """
    reported, left = "", tuple(accesses)
    while left:
        try:
            left = await missing(kube, left)
            problem = sentence(left, overlay)
        except ApiError as error:
            # Whoever may not even ask learns nothing by waiting: what is not permitted is refused
            # when it is tried.
            if not error.passing("POST"):
                log.warning("permissions could not be tried: %s", error.message)
                break
            problem = f"no answer from the API server: {error.message}"
        except (aiohttp.ClientError, TimeoutError) as error:
            problem = f"no answer from the API server: {type(error).__name__}: {error}"
        if problem != reported:
            reported = problem
            report(problem)
        if problem:
            await asyncio.sleep(RETRY_SECONDS)
    if reported:
        report("")
