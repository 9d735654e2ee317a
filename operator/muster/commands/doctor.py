# SPDX-License-Identifier: Apache-2.0
"""`muster doctor`: the facts of an installation, read with whatever rights one has."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar

from muster import frameworks
from muster.api import crds, edge, names
from muster.api.edge import mapping, sequence, text
from muster.api.model import Job, Json
from muster.cluster.nodes import NodeView, parse_node
from muster.commands import checks, live
from muster.commands.checks import Deployment, Facts, Lease, Severity, Webhook
from muster.commands.live import connected
from muster.commands.output import JSON, Answer, data, plain
from muster.commands.published import HOME
from muster.gang import Permission
from muster.kube import access, certificates, client, resources
from muster.kube.access import Access, Account
from muster.kube.admission import CONFIGURATIONS
from muster.kube.client import BROKEN, ApiError, Kube
from muster.kube.leaderelection import LEASES
from muster.kube.resources import DEPLOYMENTS, PODS, Resource
from muster.settings import Settings
from muster.store import permissions

T = TypeVar("T")
ACCOUNT: Final = "muster"
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
LONGEST_HOST: Final = 63
"""Of a pod's name as many characters are its host's."""
ReadFlags = Callable[[Sequence[str], Mapping[str, str], str], Settings]


async def doctor(chosen: Settings, read_flags: ReadFlags, home: str, *, as_json: bool) -> Answer:
    """Return findings and remedies; `read_flags` parses a Deployment's arguments.

    `home` is the operator's namespace, empty for the usual one.
    """
    async with connected(chosen) as kube:
        facts = await _Reader(kube, chosen, read_flags, home or HOME).read()
    found = checks.findings(facts)
    code = checks.exit_code(found)
    if as_json:
        return Answer(data({"code": code, "findings": list(map(asdict, found))}, JSON), code)
    lines = [plain(f"{one.severity:8} {one.what}. Cure: {one.cure}") for one in found]
    if not any(one.severity is not Severity.UNKNOWN for one in found):
        lines.insert(0, "ok       nothing is wrong" + (", as far as can be seen" if found else ""))
    return Answer("".join(f"{line}\n" for line in lines), code)


NOTHING: Final = Facts(0.0, Settings())


class _Reader:
    """Reads each fact apart: what it may not read is told, and costs no other."""

    def __init__(self, kube: Kube, chosen: Settings, read_flags: ReadFlags, home: str) -> None:
        self._kube, self._read_flags, self._home = kube, read_flags, home
        self._settings = self._at_home(chosen)
        self._account = Account(home, ACCOUNT)
        self._unread: dict[str, str] = {}
        self._refuses = ""
        """What the operator has against its arguments."""

    def _at_home(self, settings: Settings) -> Settings:
        return replace(settings, lock_namespace=settings.lock_namespace or self._home)

    async def read(self) -> Facts:
        """Return the facts. Raises ApiError and connection errors where nobody answers."""
        now = await self._known("now", "get /version", self._kube.clock(), None)
        deployments = await self._working(await self._apart("deployments", self._deployments()))
        if why := self._unread.get("deployments"):
            self._unread.setdefault("elsewhere", why)
        operator = min((d for d in deployments if d.of_muster), key=self._order, default=None)
        if operator is not None:
            self._settings, self._home = self._settings_of(operator), operator.namespace
            self._account = Account(operator.namespace, operator.account)
        reading: dict[str, Awaitable[Any]] = {
            "stuck": self._stuck(),
            "lease": self._lease(operator.labels if operator else {}),
            "crds": self._crds(),
            "missing": self._missing(),
            "served": self._served(),
            "webhook": self._webhook(),
            "nodes": self._nodes(),
            "jobs": self._jobs(),
            "queues": self._queues(),
        }
        parts = itertools.starmap(self._apart, reading.items())
        found = dict(zip(reading, await asyncio.gather(*parts), strict=True))
        return Facts(
            now=time.time() if now is None else now,
            settings=self._settings,
            operator=operator,
            deployments=deployments,
            refuses=self._refuses,
            components=await self._apart("components", self._components(found["jobs"])),
            unread=self._unread,
            **found,
        )

    async def _working(self, found: Sequence[Deployment]) -> tuple[Deployment, ...]:
        """Return the programs without those that claim to be an operator, and may not act.

        Whoever has a namespace can give a Deployment there any label and image.
        """
        suspects = [each for each in found if each.claims and each.namespace != self._home]
        idle = await asyncio.gather(*map(self._idle, suspects))
        strangers = {str(each) for each, is_idle in zip(suspects, idle, strict=True) if is_idle}
        left = [each for each in found if str(each) not in strangers]
        # The only one may be ours without its roles, which is to be told.
        alone = not any(each.of_muster for each in left)
        return (*left, *(d for d in found if alone and d.of_muster))

    async def _idle(self, each: Deployment) -> bool:
        """Say whether a program may neither write a job's status nor bind a pod."""
        words = re.findall(r"(?m)^--?namespace[=\n](.*)$", "\n".join(each.arguments))
        words = words or [each.environ.get("KUBEFLOW_NAMESPACE", "")]
        named = [space for word in words for space in word.split(",")]
        jobs = (f"{row.plural}.{names.GROUP}/status" for row in self._settings.frameworks)
        acts = [*itertools.product(jobs, ("patch", "update")), ("pods/binding", "create")]
        asked = [Access(what, space, verb) for space in named for what, verb in acts]
        return len(await self._denied(asked, Account(each.namespace, each.account))) == len(asked)

    def _order(self, each: Deployment) -> tuple[bool, bool, bool, str]:
        return each.namespace != self._home, not each.replicas, each.schedules, str(each)

    def _settings_of(self, operator: Deployment) -> Settings:
        command = operator.command
        flags = [word for place, word in enumerate(operator.arguments) if place or word != command]
        try:
            environ = {**operator.environ, "POD_NAMESPACE": operator.namespace}
            read = self._read_flags(flags, environ, command)
        except ValueError as error:
            self._refuses = str(error)
            read = replace(self._settings, lock_namespace="")
        return self._at_home(read)

    async def _apart(self, field: str, reading: Awaitable[Any]) -> Any:
        """Return a field that is read; if no answer comes, or an odd one, what stands for none."""
        try:
            return await reading
        except BROKEN as error:
            self._unread[field] = f"ask again: {live.explained(error)}"
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self._unread[field] = f"what the server answers cannot be read: {error!r:.100}"
        return getattr(NOTHING, field)

    async def _known(self, field: str, asked: str, reading: Awaitable[T], otherwise: T) -> T:
        """Return what is read, or `otherwise`. Raises ApiError for refused credentials."""
        try:
            return await reading
        except ApiError as error:
            if error.code == 401:
                raise
            if error.code == 403:
                self._unread[field] = f"have a role grant you: {asked}"
            elif error.code != 404:
                self._unread[field] = f"ask again: {asked}: {error.message}"
        return otherwise

    async def _list(
        self, field: str, resource: Resource, namespace: str = "", **params: str
    ) -> list[Json]:
        reading = live.listed(self._kube, resource, namespace, **params)
        return await self._known(field, f"list {_called(resource, namespace)}", reading, [])

    async def _get(
        self, field: str, resource: Resource, name: str, space: str = ""
    ) -> Json | None:
        reading = self._kube.get(resource.path(space, name))
        return await self._known(field, f"get {_called(resource, space)}", reading, None)

    async def _denied(self, asked: Iterable[Access], account: Account) -> tuple[Access, ...]:
        reading = access.missing(self._kube, asked, account)
        return await self._known("missing", f"create {_called(access.OF_OTHERS)}", reading, ())

    async def _deployments(self) -> tuple[Deployment, ...]:
        found = await self._list("elsewhere", DEPLOYMENTS)
        if "elsewhere" in self._unread:
            found = await self._list("deployments", DEPLOYMENTS, self._home)
        return tuple(map(_deployment, found))

    async def _stuck(self) -> tuple[str, ...]:
        about, ours = "why pods of the operator wait", _selector(checks.DEPLOYMENT)
        pods = await self._list(about, PODS, self._home, labelSelector=ours)
        return tuple(dict.fromkeys(why for pod in pods for why in _waits(pod)))

    async def _lease(self, labels: Mapping[str, str]) -> Lease | None:
        space, name = self._settings.lock_namespace, self._settings.leader_election_id
        found = await self._get("lease", LEASES, name, space)
        if found is None:
            return None
        # Later than the Lease: who holds it was there by then.
        chosen = {"labelSelector": _selector(labels), "fieldSelector": "status.phase=Running"}
        lease, about = Lease.of(found), "who holds Leases"
        pods = await self._list(about, PODS, lease.namespace, **chosen)
        if about in self._unread:
            return lease
        return replace(lease, runs=any(_is_of(lease.holder, pod) for pod in pods))

    async def _crds(self) -> Mapping[str, str]:
        async def state(crd: Json) -> tuple[str, str]:
            name = crd["metadata"]["name"]
            return name, differs(await self._get("crds", CRDS, name) or {}, crd)

        wanted = crds.documents(row.api for row in self._settings.frameworks)
        return dict(await asyncio.gather(*map(state, wanted)))

    async def _missing(self) -> tuple[Access, ...]:
        chosen = self._settings
        backend, lease = chosen.backend, (chosen.lock_namespace, chosen.leader_election_id)
        elected = lease if chosen.leader_elect else None
        needed = permissions.needed(backend, chosen.frameworks, chosen.namespaces, elected)
        return await self._denied(needed, self._account)

    async def _components(self, jobs: Sequence[Job]) -> Mapping[str, tuple[Access, ...]]:
        rows = {row.operator.component: row for row in map(frameworks.of, jobs)}
        found: dict[str, tuple[Access, ...]] = {}
        for component, row in rows.items():
            if component and "missing" not in self._unread:
                asked = [Permission(*each) for each in row.operator.permissions]
                inside = [Permission(*each) for each in row.operator.in_namespaces]
                spaces = {job.namespace for job in jobs if frameworks.of(job) is row}
                needed = access.accesses(asked, self._settings.namespaces)
                needed += access.accesses(inside, sorted(spaces))
                if denied := await self._denied(needed, self._account):
                    found[component] = denied
        return found

    async def _served(self) -> frozenset[tuple[str, str]]:
        versions = {api.api_version for api in self._settings.backend.apis}

        async def kinds(version: str) -> set[tuple[str, str]]:
            reading = client.served(self._kube, (version,))
            return await self._known("served", f"get /apis/{version}", reading, set())

        return frozenset().union(*await asyncio.gather(*map(kinds, versions)))

    async def _nodes(self) -> tuple[NodeView, ...]:
        views = []
        for document in await self._list("nodes", resources.NODES):
            # The operator reports an unreadable Node on the object.
            with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError):
                views.append(parse_node(document))
        return tuple(views)

    async def _jobs(self) -> tuple[Job, ...]:
        asked = f"list the jobs of {names.GROUP}"
        reading = live.permitted_jobs(self._kube, "")
        found, _ = await self._known("jobs", asked, reading, ([], ""))
        kinds = {row.kind for row in self._settings.frameworks}
        return tuple(j for j, _ in found if j.kind in kinds and not j.status.finished)

    async def _queues(self) -> Mapping[str, str]:
        kind, part = self._settings.backend.queues, "status"
        if kind is None and self._settings.backend.embedded:
            kind, part = resources.QUEUES, "spec"
        if kind is None:
            return {}
        return {
            document["metadata"]["name"]: text(mapping(document.get(part)).get("state")) or "Open"
            for document in await self._list("queues", kind)
        }

    async def _webhook(self) -> Webhook | None:
        found = await self._get("webhook", CONFIGURATIONS, self._settings.admission_configuration)
        if found is None:
            return None
        hooks = map(mapping, sequence(found.get("webhooks")))
        clients = [mapping(hook.get("clientConfig")) for hook in hooks]
        of = [client["service"] for client in clients if "service" in client]
        services = dict.fromkeys((each["namespace"], each["name"]) for each in of)
        slices = [
            each
            for space, name in services
            for each in await self._list(
                "slices", SLICES, space, labelSelector=f"kubernetes.io/service-name={name}"
            )
        ]
        known = services and "slices" not in self._unread
        ready = sum(map(_ready, slices)) if known else None
        return Webhook(tuple(map("/".join, services)), ready, *_validity(clients))


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _called(resource: Resource, namespace: str = "") -> str:
    called = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f"{called} in namespace {namespace}" if namespace else called


def _deployment(document: Json) -> Deployment:
    metadata, spec = document["metadata"], mapping(document.get("spec"))
    pod = mapping(mapping(spec.get("template")).get("spec"))
    containers = [mapping(each) for each in sequence(pod.get("containers"))]
    variables = map(mapping, sequence(containers[0].get("env")) if containers else ())
    return Deployment(
        namespace=metadata["namespace"],
        name=metadata["name"],
        labels=mapping(mapping(mapping(spec.get("selector")).get("matchLabels"))),
        images=tuple(text(each.get("image")) for each in containers),
        arguments=tuple(map(str, sequence(containers[0].get("args")) if containers else ())),
        replicas=edge.within(spec.get("replicas", 1), 0, 2**31),
        ready=edge.within(mapping(document.get("status")).get("readyReplicas"), 0, 2**31),
        account=text(pod.get("serviceAccountName")) or "default",
        environ={text(each.get("name")): text(each.get("value")) for each in variables},
    )


def _waits(pod: Json) -> Iterator[str]:
    """Yield why a pod does not start."""
    status = mapping(pod.get("status"))
    containers = map(mapping, sequence(status.get("containerStatuses")))
    states = [mapping(mapping(each.get("state")).get("waiting")) for each in containers]
    conditions = map(mapping, sequence(status.get("conditions")))
    unplaced = {"type": "PodScheduled", "status": "False"}
    states += (each for each in conditions if each.items() >= unplaced.items())
    for each in filter(None, states):
        told = f"{text(each.get('reason'))}: {text(each.get('message'))}".removesuffix(": ")
        yield checks.shortened(" ".join(told.split()))


def _is_of(holder: str, pod: Json) -> bool:
    """Say whether a pod may have taken a Lease: all begin with the host's name, then `_`."""
    host, spec = holder.partition("_")[0].lower(), mapping(pod.get("spec"))
    name = text(spec.get("hostname")) or pod["metadata"]["name"][:LONGEST_HOST].rstrip("-.")
    if spec.get("hostNetwork"):
        name = text(spec.get("nodeName"))
    return host == name or host.startswith(f"{name}.")


def differs(there: Json, wanted: Json) -> str:
    """Return in what a CRD is not the wanted one; empty: in nothing that is wanted."""
    spec = mapping(there.get("spec"))
    if not spec:
        return checks.ABSENT
    versions = {mapping(v).get("name"): mapping(v) for v in sequence(spec.get("versions"))}
    for version in wanted["spec"]["versions"]:
        found = versions.get(version["name"])
        if found is None:
            return f"it has no version {version['name']}"
        if version["storage"] and not found.get("served"):
            return f"{version['name']} is not served"
        # Whether old versions are served is the administrator's choice.
        if not edge.covers(found, {**version, "served": found.get("served")}):
            return f"{version['name']} has another schema"
    return ""


def _validity(clients: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    try:
        bundles = [base64.b64decode(text(client.get("caBundle"))) for client in clients]
        return min(map(certificates.validity, bundles), key=lambda pair: pair[1],
                   default=(0.0, 0.0))  # fmt: skip
    except ValueError:
        return 0.0, 0.0


def _ready(piece: Json) -> int:
    ends = map(mapping, sequence(piece.get("endpoints")))
    return sum(mapping(end.get("conditions")).get("ready") is not False for end in ends)
