# SPDX-License-Identifier: Apache-2.0
"""What the operator must be allowed to do, asked of the API server before the first job suffers.

Each permission is tried with a SelfSubjectAccessReview; what is missing is named in one line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import aiohttp

from muster.api import names
from muster.api.model import Json
from muster.frameworks.base import Framework
from muster.gang import GangBackend, Permission
from muster.runtime.gate import Urgency
from muster.runtime.kube import ApiError, Kube, Resource

log = logging.getLogger(__name__)

REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
RETRY_SECONDS = 2.0
ASKED_AT_ONCE = 8
"""Questions in flight: an answer comes sooner than one more connection."""
LIST_WATCH = ("list", "watch")
READ = ("get", *LIST_WATCH)
CHILDREN = (*READ, "create", "patch", "delete")

EVERY_JOB = (
    Permission("", "pods", CHILDREN),
    Permission("", "services", CHILDREN),
    Permission("", "configmaps", CHILDREN),
    Permission("", "events", ("create",)),
    Permission("scheduling.k8s.io", "priorityclasses", LIST_WATCH, everywhere=True),
    # Kopf learns from these which kinds and namespaces there are.
    Permission("apiextensions.k8s.io", "customresourcedefinitions", LIST_WATCH, everywhere=True),
    Permission("", "namespaces", LIST_WATCH, everywhere=True),
)
"""What jobs of every kind need, under every gang backend."""

ALONE = (
    Permission("", "events", ("create",)),
    Permission("", "pods", ("delete",)),
    Permission("scheduling.k8s.io", "priorityclasses", LIST_WATCH, everywhere=True),
)
"""What a scheduler needs that no jobs belong to, beside its backend's."""

AUTOSCALING = Permission("autoscaling", "horizontalpodautoscalers", CHILDREN)
LEASE = Permission("coordination.k8s.io", "leases", ("get", "create", "update"))


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """One question to the API server: whether this account may do that there."""

    resource: str
    """`plural[.group]`, its subresource after a slash."""
    namespace: str
    """Empty: in all, or the resource has none."""
    verb: str

    def review(self) -> Json:
        """Return the SelfSubjectAccessReview that asks it."""
        whole, _, subresource = self.resource.partition("/")
        plural, _, group = whole.partition(".")
        attributes = {
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "namespace": self.namespace,
            "verb": self.verb,
        }
        return {
            "apiVersion": REVIEWS.api_version,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        }


def of_kind(framework: Framework) -> tuple[Permission, ...]:
    """Return what the jobs of one kind need for themselves."""
    own = (
        Permission(names.GROUP, framework.plural, (*READ, "delete")),
        Permission(names.GROUP, f"{framework.plural}/status", ("patch",)),
    )
    return (*own, *((AUTOSCALING,) if framework.autoscaler else ()))


def needed(
    backend: GangBackend,
    frameworks: Collection[Framework],
    namespaces: Sequence[str],
    lease_namespace: str | None,
) -> tuple[Access, ...]:
    """Return every access that the operator needs, each once; without jobs the scheduler alone.

    `namespaces` are those whose jobs are handled, none for all; `lease_namespace` is where the
    leader's Lease is, None without leader election.
    """
    permissions = [*EVERY_JOB, *backend.permissions] if frameworks else [*_alone(backend)]
    for framework in frameworks:
        permissions += of_kind(framework)
    found = accesses(permissions, namespaces)
    if lease_namespace is not None:
        found += _accesses(LEASE, (lease_namespace,))
    return tuple(dict.fromkeys(found))


def _alone(backend: GangBackend) -> Iterator[Permission]:
    """Yield what a scheduler needs without jobs: it makes no groups and takes none away."""
    yield from ALONE
    groups = {api.plural for api in backend.apis}
    for permission in backend.permissions:
        verbs = permission.verbs
        if permission.resource in groups:
            verbs = tuple(verb for verb in verbs if verb not in ("create", "delete"))
        yield replace(permission, verbs=verbs)


def accesses(permissions: Iterable[Permission], namespaces: Sequence[str]) -> list[Access]:
    """Return the single questions that permissions come to."""
    return [a for p in permissions for a in _accesses(p, ("",) if p.everywhere else namespaces)]


def _accesses(permission: Permission, namespaces: Sequence[str]) -> Iterator[Access]:
    plural, slash, subresource = permission.resource.partition("/")
    group = f".{permission.group}" if permission.group else ""
    resource = f"{plural}{group}{slash}{subresource}"
    for namespace in namespaces or ("",):
        for verb in permission.verbs:
            yield Access(resource, namespace, verb)


def sentence(missing: Iterable[Access], overlay: str) -> str:
    """Return in one line what is missing and which overlay grants it; empty if nothing is."""
    return told(missing, f"manifests/overlays/{overlay}")


def told(missing: Iterable[Access], folder: str) -> str:
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


async def missing(kube: Kube, accesses: Iterable[Access]) -> tuple[Access, ...]:
    """Return the accesses that the API server does not grant. Raises ApiError."""
    asked, few = tuple(accesses), asyncio.Semaphore(ASKED_AT_ONCE)

    async def granted(access: Access) -> bool:
        async with few:
            answer = await kube.create(REVIEWS.path(), access.review(), Urgency.PLACEMENT)
        return bool(answer["status"].get("allowed"))

    answers = await asyncio.gather(*map(granted, asked))
    return tuple(access for access, yes in zip(asked, answers, strict=True) if not yes)


async def wait(
    kube: Kube,
    accesses: Iterable[Access],
    overlay: str,
    tell: Callable[[str], None],
) -> None:
    """Return once everything is granted, or cannot be asked.

    `tell` hears what is missing, each time it changes, and an empty string in the end.
    """
    said, left = "", tuple(accesses)
    while left:
        try:
            left = await missing(kube, left)
            problem = sentence(left, overlay)
        except ApiError as error:
            log.warning("permissions could not be tried: %s", error.message)
            break
        except (aiohttp.ClientError, TimeoutError) as error:
            problem = f"no answer from the API server: {type(error).__name__}: {error}"
        if problem != said:
            said = problem
            tell(problem)
        if problem:
            await asyncio.sleep(RETRY_SECONDS)
    if said:
        tell("")
