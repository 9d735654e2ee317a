# SPDX-License-Identifier: Apache-2.0
"""What the operator asks to be allowed, what the shipped roles grant, how a gap is named,
and what waits until it is closed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from muster import gang
from muster.frameworks import FRAMEWORKS, rows
from muster.frameworks.mpi_v2beta1 import MPI_V2BETA1
from muster.kube import access
from muster.kube.access import Access
from muster.kube.client import ApiError
from muster.store import permissions
from muster.store.store import Store

LEASES = "leases.coordination.k8s.io"
MANIFESTS = Path(__file__).parents[2] / "manifests"


def needed(backend="none", namespaces=(), lease=None):
    """Return what an operator for all kinds needs."""
    chosen = gang.BACKENDS[backend]
    return permissions.needed(chosen, FRAMEWORKS.values(), namespaces, lease)


def granted(*paths):
    """Return the roles of these files as (resource, verb), by the name of the role."""
    roles = {}
    for path in paths:
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] in {"Role", "ClusterRole"}:
                roles[document["metadata"]["name"]] = {
                    (with_group(resource, group), verb)
                    for rule in document["rules"]
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return roles


def with_group(resource, group):
    """Return `plural.group/subresource`."""
    plural, slash, subresource = resource.partition("/")
    return f"{plural}.{group}{slash}{subresource}" if group else resource


@pytest.mark.parametrize("backend", gang.BACKENDS)
def test_shipped_roles_are_enough_and_no_more(backend):
    """For all namespaces; and for one, where only the roles for the whole cluster go beyond it.

    Beyond what is asked for is only what some clusters want of who sets blockOwnerDeletion.
    """
    files = [MANIFESTS / "base" / "roles.yaml", MANIFESTS / "base" / "leases.yaml"]
    component = MANIFESTS / "components" / backend / "roles.yaml"
    roles = granted(*files, *([component] if component.exists() else []))
    everything = set().union(*roles.values())
    asked = needed(backend, lease=("muster-system", "muster"))
    beyond = {rule for rule in everything if rule[0].endswith("/finalizers")}
    assert {(a.resource, a.verb) for a in asked} == everything - beyond
    wide = set().union(*(rules for name, rules in roles.items() if name.endswith("-cluster")))
    beyond = {(a.resource, a.verb) for a in needed(backend, ["team"]) if not a.namespace}
    assert beyond <= wide


def test_the_schedulers_roles_are_enough_and_no_more():
    """Alone it makes no group and no pod, and what its roles grant is what it asks for."""
    files = ("components/scheduler/roles.yaml", "base/leases.yaml")
    roles = granted(*(MANIFESTS / file for file in files))
    asked = permissions.needed(gang.EMBEDDED, (), (), ("muster-system", "kube-batch"))
    wanted = {(access.resource, access.verb) for access in asked}
    assert wanted == set().union(*roles.values())
    assert not {("pods", "create"), ("configmaps", "list")} & wanted


def test_namespaces_are_asked_one_by_one():
    """What a job needs is asked for each; what the cluster has once, once.

    A single operator does without a Lease.
    """
    asked = needed("embedded", ["one", "two"], ("three", "muster"))
    spaces = [a.namespace for a in asked if (a.resource, a.verb) == ("pods", "create")]
    assert spaces == ["one", "two"]
    wide = [a for a in asked if (a.resource, a.verb) == ("nodes", "watch")]
    assert wide == [Access("nodes", "", "watch")]
    leases = {(a.verb, a.name) for a in asked if a.resource == LEASES and a.namespace == "three"}
    assert leases == {("create", ""), ("get", "muster"), ("update", "muster")}
    assert len(asked) == len(set(asked))
    assert not [a for a in needed() if a.resource.startswith("leases")]


@pytest.mark.parametrize(
    "row", [row for row in rows() if row.operator.component], ids=lambda r: r.operator.component
)
def test_components_grant_what_single_kinds_need_and_no_more(row):
    """Their verbs and resources are those of the rows."""
    roles = granted(MANIFESTS / "components" / row.operator.component / "roles.yaml")
    assert set().union(*roles.values()) == {
        (with_group(resource, group), verb)
        for group, resource, verbs in (*row.operator.permissions, *row.operator.in_namespaces)
        for verb in verbs
    }


def test_patching_volumes_is_asked_for_apart():
    """Where no claim waits for its first consumer, nobody needs it: a component has it alone."""
    delayed = {(p.resource, verb) for p in gang.EMBEDDED.delayed_binding for verb in p.verbs}
    assert delayed == {("persistentvolumes", "patch"), ("persistentvolumeclaims", "patch")}
    assert not delayed & {(a.resource, a.verb) for a in needed("embedded")}
    roles = granted(MANIFESTS / "components" / permissions.DELAYED / "roles.yaml")
    assert set().union(*roles.values()) == delayed
    wide = {p.resource for p in gang.EMBEDDED.delayed_binding if p.everywhere}
    assert {resource for resource, _ in roles["muster-volumes-cluster"]} == wide


async def test_gangs_learn_that_volumes_may_not_be_patched(monkeypatch):
    """And that they may, once it is granted; what is refused later is asked for again."""
    monkeypatch.setattr(permissions, "PAUSE", 0.0)
    missed, asked = list[Access](), list[int]()

    async def missing(_kube: object, accesses: object) -> tuple[Access, ...]:
        asked.append(1)
        return tuple(a for a in accesses if a in missed)

    monkeypatch.setattr(access, "missing", missing)
    store = Store(gang.EMBEDDED, ())
    informers = SimpleNamespace(store=store, grant_batches=list)
    missed.append(Access("persistentvolumes", "", "patch"))
    volumes, said = store.columns.volumes, asyncio.Queue[str]()
    made = permissions.Grants(None, informers, (), (), lambda: said.put_nowait(volumes.unserved))
    await made.look()
    first = said.get_nowait()
    assert "may not patch persistentvolumes;" in first
    assert "manifests/components/delayed-binding" in first
    missed.clear()
    following = asyncio.create_task(made.run())
    assert await said.get() == ""
    asked.clear()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asked
    missed.append(Access("persistentvolumeclaims", "", "patch"))
    made.doubt()
    assert "may not patch persistentvolumeclaims;" in await said.get()
    following.cancel()


class Slow:
    """A collection whose first list takes until it is allowed to come in."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.running = asyncio.Event()

    async def run(self) -> None:
        """Follow it for ever."""
        self.running.set()
        await asyncio.Event().wait()


async def test_jobs_wait_until_their_batch_jobs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that runs is else taken for one that is gone, once the operator may see it."""
    asked = iter([["no"], []])

    async def missing(_kube: object, accesses: object) -> tuple[object, ...]:
        return tuple(accesses) if next(asked) else ()

    monkeypatch.setattr(access, "missing", missing)
    monkeypatch.setattr(permissions, "PAUSE", 0.0)
    jobs = Slow()
    store = Store(gang.SCHEDULER_PLUGINS, ())
    informers = SimpleNamespace(store=store, grant_batches=lambda: [jobs])
    made = permissions.Grants(None, informers, [MPI_V2BETA1], ())
    await made.look()
    assert "mpi" in "".join(made.lacking.values())
    following = asyncio.create_task(made.run())
    await jobs.running.wait()
    assert made.lacking
    jobs.synced.set()
    await asyncio.wait([following], timeout=0.1)
    assert not made.lacking
    following.cancel()


async def test_a_server_in_trouble_has_granted_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again; who may not even ask is refused when it is tried."""
    monkeypatch.setattr(permissions, "PAUSE", 0.0)
    answers = [ApiError(code, "", "no", None) for code in (503, 503, 403)]

    async def missing(*_asked: object) -> tuple[Access, ...]:
        raise answers.pop(0)

    monkeypatch.setattr(access, "missing", missing)
    store, granted = Store(gang.SCHEDULER_PLUGINS, ()), asyncio.Event()
    informers = SimpleNamespace(store=store, grant_batches=lambda: granted.set() or [])
    made = permissions.Grants(None, informers, [MPI_V2BETA1], ())
    await made.look()
    assert "no answer" in "".join(made.lacking.values())
    following = asyncio.create_task(made.run())
    await granted.wait()
    assert (answers, made.lacking) == ([], {})
    following.cancel()


CANNOT = 'x is forbidden: User "m" cannot {} resource "{}" in API group "" in the namespace "team"'


async def test_what_is_lost_is_asked_for_when_something_is_refused(monkeypatch):
    """It is told at once, blocks jobs when it is missing still, and until it is given back."""
    monkeypatch.setattr(permissions, "PAUSE", 0.01)
    create = Access("pods", "team", "create")
    nodes = Access("nodes", "", "watch")
    needed = (create, Access("events", "", "create"), Access("pods", "other", "create"), nodes)
    gone: set[Access] = set()
    asked, changed, trouble = asyncio.Semaphore(0), [], []

    async def missing(_kube: object, accesses: tuple[Access, ...]) -> tuple[Access, ...]:
        asked.release()
        if trouble:
            raise trouble.pop()
        return tuple(access for access in accesses if access in gone)

    monkeypatch.setattr(access, "missing", missing)
    losses = permissions.Losses(None, needed, "embedded", lambda: changed.append(1))
    running = asyncio.create_task(losses.run())
    await asyncio.sleep(0.05)
    assert (asked.locked(), losses.problem) == (True, "")
    gone.update(needed[:2])
    losses.doubt(CANNOT.format("create", "pods"))
    await asked.acquire()
    await asyncio.sleep(0)
    assert "create pods in namespace team; create events" in losses.problem
    assert not losses.blocks("team")
    await asyncio.sleep(0.1)
    assert "may not create pods in namespace team;" in losses.blocks("team")
    assert "events" not in losses.blocks("team")
    assert (losses.blocks("other"), len(changed)) == ("", 1)
    gone.clear()
    await asyncio.sleep(0.1)
    assert (losses.problem, losses.blocks("team"), len(changed)) == ("", "", 2)
    # What is refused and not needed is no reason to ask, a review without an answer is.
    while not asked.locked():
        await asked.acquire()
    losses.doubt(CANNOT.format("get", "secrets"))
    await asyncio.sleep(0.1)
    assert asked.locked()
    gone.add(nodes)
    trouble.append(ApiError(503, "", "no", None))
    losses.doubt(CANNOT.format("watch", "nodes"))
    await asyncio.sleep(0.1)
    assert "may not watch nodes" in losses.blocks("other")
    gone.clear()
    await asyncio.sleep(0.1)
    while not asked.locked():
        await asked.acquire()
    await asyncio.sleep(0.1)
    assert asked.locked()
    running.cancel()


@pytest.mark.parametrize(
    ("resource", "group", "known"),
    [
        ("pods/binding", "", "pods/binding"),
        ("podgroups", "scheduling.x-k8s.io", "podgroups.scheduling.x-k8s.io"),
        ("tfjobs/status", "kubeflow.org", "tfjobs.kubeflow.org/status"),
    ],
)
def test_refusals_name_what_was_refused_with_group_and_subresource(resource, group, known):
    """The message is that of the API server's authorizer."""
    needed = (Access(known, "", "create"),)
    losses = permissions.Losses(None, needed, "embedded", lambda: None)
    losses.doubt(
        f'x is forbidden: User "m" cannot create resource "{resource}" in API group "{group}"'
    )
    assert losses._doubt.is_set()


async def test_jobs_are_retried_though_a_permission_was_missing_for_moments(monkeypatch):
    """What it allows may have been refused to jobs meanwhile."""
    monkeypatch.setattr(permissions, "PAUSE", 0.01)
    create, changed = Access("pods", "team", "create"), asyncio.Event()
    reviews = [(create,)]

    async def missing(*_asked: object) -> tuple[Access, ...]:
        return reviews.pop() if reviews else ()

    monkeypatch.setattr(access, "missing", missing)
    losses = permissions.Losses(None, (create,), "embedded", changed.set)
    running = asyncio.create_task(losses.run())
    losses.doubt(CANNOT.format("create", "pods"))
    async with asyncio.timeout(10):
        await changed.wait()
    assert losses.problem == ""
    running.cancel()


def test_of_many_namespaces_all_are_asked_for_first() -> None:
    """What is granted everywhere is not asked for in each of them."""
    asked: list[tuple[str, str]] = []

    class Server:
        async def create(self, _path: str, review: dict[str, dict[str, dict[str, str]]], _: int):
            attributes = review["spec"]["resourceAttributes"]
            asked.append((attributes["resource"], attributes.get("namespace", "")))
            allowed = attributes["resource"] == "pods" or asked[-1][1] == "n3"
            return {"status": {"allowed": allowed}}

        async def get(self, _path: str, **_name: str) -> dict[str, list[object]]:
            return {"items": [{}]}

    wanted = [Access(r, f"n{i}", "list") for r in ("pods", "services") for i in range(50)]
    wanted.append(Access("nodes", "", "list"))
    found = asyncio.run(access.missing(Server(), wanted))
    assert [a.namespace for a in found] == [*(f"n{i}" for i in range(50) if i != 3), ""]
    assert [r for r, _ in asked].count("pods") == 1
    assert len(asked) == 1 + 51 + 1
