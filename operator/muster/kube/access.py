# SPDX-License-Identifier: Apache-2.0
"""Access reviews: what an account may not do, in one line, with the roles that grant it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from muster.api.edge import mapping
from muster.api.model import Json
from muster.gang import Permission
from muster.kube import client
from muster.kube.client import BROKEN, WARMING, ApiError, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.resources import Resource

log = logging.getLogger(__name__)
REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
OF_OTHERS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
RETRY_SECONDS = 2.0
ASKED_AT_ONCE = 8
"""Questions in flight: an answer comes sooner than one more connection."""


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

    @property
    def attributes(self) -> Json:
        """What a review of it says."""
        whole, _, subresource = self.resource.partition("/")
        plural, _, group = whole.partition(".")
        attributes = {
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "namespace": self.namespace,
            "verb": self.verb,
            "name": self.name,
        }
        return {"resourceAttributes": {k: v for k, v in attributes.items() if v}}


def qualified(group: str, resource: str) -> str:
    """Return the resource of an `Access`; `resource`: plural, its subresource after a slash."""
    plural, slash, subresource = resource.partition("/")
    return f"{plural}{group and '.'}{group}{slash}{subresource}"


def accesses(permissions: Iterable[Permission], namespaces: Sequence[str]) -> list[Access]:
    """Return the single questions that permissions come to."""
    found = []
    for permission in permissions:
        resource = qualified(permission.group, permission.resource)
        for namespace in (() if permission.everywhere else namespaces) or ("",):
            found += [Access(resource, namespace, verb) for verb in permission.verbs]
    return found


def described(missing: Iterable[Access]) -> str:
    """Return in one line what is missing; empty if nothing is."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for access in missing:
        verbs.setdefault((access.resource, access.namespace), []).append(access.verb)
    return "; ".join(
        f"{', '.join(named)} {resource}" + (f" in namespace {namespace}" if namespace else "")
        for (resource, namespace), named in verbs.items()
    )


def lacking(missing: Iterable[Access], folder: str) -> str:
    """Return in one line what is missing; the roles in that folder of manifests grant it."""
    if not (found := described(missing)):
        return ""
    return f"this account may not {found}; the roles of manifests/{folder} grant what is needed"


async def allowed(kube: Kube, attributes: Json, user: Json | None, urgency: PriorityLevel) -> bool:
    """Return whether a user (None: this account) may do that. Raises what a request raises."""
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    review: Json = {"apiVersion": REVIEWS.api_version, "kind": kind}
    review["spec"] = {**attributes, **(user or {})}
    answer = await kube.create((OF_OTHERS if user else REVIEWS).path(), review, urgency)
    return mapping(answer.get("status")).get("allowed") is True


async def missing(
    kube: Kube, accesses: Iterable[Access], account: Account | None = None
) -> tuple[Access, ...]:
    """Return the accesses that the API server does not grant. Raises ApiError.

    `account`: whose; None: those of this process. Of many namespaces it is asked for all first:
    what is granted there need not be asked apart. In a removed namespace no access is missing: the
    roles were deleted with the namespace, and it has no objects.
    """
    asked = tuple(accesses)
    spaced = [access for access in asked if access.namespace]
    wide = dict.fromkeys(replace(access, namespace="") for access in spaced)
    if len(spaced) <= len(wide):
        return await _refused(kube, asked, account)
    apart = set(await _refused(kube, tuple(wide), account))
    left = (a for a in asked if not a.namespace or replace(a, namespace="") in apart)
    return await _refused(kube, tuple(left), account)


async def _refused(
    kube: Kube, asked: Sequence[Access], account: Account | None
) -> tuple[Access, ...]:
    few, user = asyncio.Semaphore(ASKED_AT_ONCE), account.subject if account else None

    async def granted(access: Access) -> bool:
        async with few:
            return await allowed(kube, access.attributes, user, PriorityLevel.PLACEMENT)

    answers = await asyncio.gather(*map(granted, asked))
    refused = [access for access, yes in zip(asked, answers, strict=True) if not yes]
    spaces = dict.fromkeys(access.namespace for access in refused)
    removed = {space for space in spaces if await client.is_namespace_removed(kube, space)}
    return tuple(access for access in refused if access.namespace not in removed)


async def wait(
    kube: Kube,
    accesses: Iterable[Access],
    overlay: str,
    report: Callable[[str], None],
) -> None:
    """Return once everything is granted, or cannot be asked.

    `report` is called with what is missing, each time it changes, and with nothing in the end.
    """
    reported, left, warm = "", tuple(accesses), time.monotonic() + WARMING
    while left:
        try:
            left = await missing(kube, left)
            problem = lacking(left, f"overlays/{overlay}")
        except ApiError as error:
            # An API server that has just started has not read its roles yet. Later, an account
            # that may not ask learns nothing by waiting: requests without permission are refused.
            starts = error.unpermitted and time.monotonic() < warm
            if not (starts or error.passing("POST")):
                log.warning("permissions could not be tried: %s", error.message)
                break
            problem = f"no answer from the API server: {error.message}"
        except BROKEN as error:
            problem = f"no answer from the API server: {type(error).__name__}: {error}"
        if problem != reported:
            reported = problem
            report(problem)
        if problem:
            await asyncio.sleep(RETRY_SECONDS)
    if reported:
        report("")
