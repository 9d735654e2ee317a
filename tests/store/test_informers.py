# SPDX-License-Identifier: Apache-2.0
"""What is followed for a store: by backend, by namespace, by what the server serves and grants."""

import asyncio

import pytest

from muster import gang
from muster.api import names
from muster.frameworks import FRAMEWORKS
from muster.kube.client import ApiError
from muster.kube.resources import OF_KIND
from muster.store import informers
from muster.store.informers import Informers
from muster.store.store import Store
from support.apiserver.memory import tfjob

JOBS = [FRAMEWORKS["TFJob"]]
GROUPS, QUEUES = gang.VOLCANO.apis[0], gang.VOLCANO.queues


class Server:
    """Answers lists of what it holds, and no watch for as long as anybody waits."""

    def __init__(self, **pages):
        """Hold these pages by path; every other list is empty, every other API is not served."""
        self.pages, self.asked, self.refused = pages, {}, set()

    def serve(self, *apis):
        """Serve these APIs and no others."""
        served = {}
        for api in apis:
            served.setdefault(f"/apis/{api.api_version}", []).append({"kind": api.kind})
        known = {path: page for path, page in self.pages.items() if "resources" not in page}
        self.pages = known | {path: {"resources": kinds} for path, kinds in served.items()}

    async def get(self, path, **params):
        """Answer one list."""
        self.asked[path] = params.get("labelSelector", "")
        discovery = path.startswith("/apis/") and path.count("/") == 3
        if path in self.refused or discovery:
            if path not in self.pages:
                raise ApiError(404, "NotFound", f"{path} is not here", None)
            return self.pages[path]
        metadata = {"resourceVersion": "9"}
        return {"metadata": metadata, "items": self.pages.get(path, ())}

    async def watch(self, _path, _params):
        """Show nothing for ever."""
        await asyncio.Event().wait()
        yield {}


def follow(server, store, *, batches=False):
    """Return which paths are asked for in one reading of everything, and by which label."""

    async def read():
        made = Informers(server, store)
        await made.read()
        for informer in made.grant_batches() if batches else ():
            await informer.read()

    asyncio.run(read())
    return {path for path in server.asked if path.count("/") != 3 or path.startswith("/api/")}


def test_without_an_allocator_only_what_is_of_jobs():
    """By our label, in each of the namespaces."""
    server = Server()
    found = follow(server, Store(gang.SCHEDULER_PLUGINS, JOBS, ["a", "b"]))
    spaced = {
        path.format(space)
        for space in "ab"
        for path in (
            "/api/v1/namespaces/{}/pods",
            "/api/v1/namespaces/{}/services",
            "/api/v1/namespaces/{}/configmaps",
            "/apis/kubeflow.org/v1/namespaces/{}/tfjobs",
        )
    }
    assert found == spaced | {"/apis/scheduling.k8s.io/v1/priorityclasses"}
    labelled = {path for path, label in server.asked.items() if label == names.OPERATOR_NAME}
    assert labelled == {path for path in spaced if "/api/v1" in path}


@pytest.mark.parametrize("jobs", [JOBS, []])
def test_a_cycle_reads_the_whole_cluster(jobs):
    """Pods on all nodes, whoever made them; quotas only where pods are still to be created."""
    server = Server()
    found = follow(server, Store(gang.EMBEDDED, jobs))
    assert server.asked["/api/v1/pods"] == ""
    assert {"/api/v1/nodes", "/api/v1/namespaces", "/apis/storage.k8s.io/v1/csinodes"} <= found
    assert "/apis/node.k8s.io/v1/runtimeclasses" in found
    assert ("/api/v1/resourcequotas" in found) is bool(jobs)
    assert ("/api/v1/services" in found) is bool(jobs)


def test_every_collection_of_the_store_is_fed():
    """And once all have been read, each is complete."""
    kinds = [FRAMEWORKS["TFJob"], FRAMEWORKS["MPIJob"], FRAMEWORKS["PyTorchJob"]]
    for backend in (gang.EMBEDDED, gang.NONE):
        store = Store(backend, kinds, ["a", "b"])
        follow(Server(), store, batches=True)
        assert {kind for kind, held in store.collections.items() if not held.complete} == set()


def test_jobs_that_may_not_be_listed(caplog):
    """It is logged, and those that are known stay."""
    store, server = Store(gang.NONE, JOBS), Server()
    job = tfjob()
    job["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    store.put(job)
    server.refused.add("/apis/kubeflow.org/v1/tfjobs")
    follow(server, store)
    assert "cannot list tfjobs" in caplog.text
    assert store.jobs.get("TFJob/team/mnist") is not None
    server.refused.clear()
    follow(server, store)
    assert store.jobs.get("TFJob/team/mnist") is None


@pytest.mark.parametrize(
    "error", [TimeoutError("too slow"), *(ApiError(c, "", "too slow", None) for c in (410, 503))]
)
def test_jobs_of_which_the_answer_breaks_off(error):
    """Those of other kinds are read all the same; whoever asked hears of it, and asks again."""
    kinds = [FRAMEWORKS[kind] for kind in ("TFJob", "PyTorchJob")]
    store, server, asked = Store(gang.NONE, kinds), Server(), []

    async def get(path, **params):
        asked.append(path)
        if path.endswith("tfjobs"):
            raise error
        return await Server.get(server, path, **params)

    server.get = get
    with pytest.raises(type(error), match="too slow"):
        asyncio.run(Informers(server, store).read_jobs())
    assert [path.rpartition("/")[2] for path in asked] == ["tfjobs", "pytorchjobs"]


async def test_the_api_of_the_groups_may_come_later(monkeypatch):
    """It is looked for until then; that it has come is a reason to look at every job."""
    monkeypatch.setattr(informers, "DISCOVERY_PAUSE", 0.01)
    server = Server()
    metadata = {"namespace": "team", "name": "g", "resourceVersion": "1", "uid": "g"}
    group = {"apiVersion": GROUPS.api_version, "kind": "PodGroup", "metadata": metadata}
    server.pages[f"/apis/{GROUPS.api_version}/{GROUPS.plural}"] = [group]
    queue = {"metadata": {"name": "q", "resourceVersion": "1"}}
    server.pages[f"/apis/{QUEUES.api_version}/{QUEUES.plural}"] = [queue]
    store, turned = Store(gang.VOLCANO, []), asyncio.Event()
    store.groups.turned = turned.set
    made = Informers(server, store)
    task = asyncio.create_task(made.run())
    await made.synced()
    assert (store.groups.missing, store.groups.kept.get("team", "g")) == (True, None)
    turned.clear()
    server.serve(GROUPS, QUEUES)
    await turned.wait()
    await made.synced()
    assert (store.groups.missing, store.groups.kept.get("team", "g").name) == (False, "g")
    while store.groups.queues is None:
        turned.clear()
        await turned.wait()
    assert store.groups.queues == {"q": "Open"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_jobs_are_read_while_the_queues_of_muster_are_not_served(monkeypatch):
    """Jobs report the missing API; groups are followed once the queues are read."""
    monkeypatch.setattr(informers, "DISCOVERY_PAUSE", 0.01)
    store, server = Store(gang.EMBEDDED, JOBS), Server()
    server.refused.add(OF_KIND["Queue"].path())
    made = Informers(server, store)
    task = asyncio.create_task(made.run())
    async with asyncio.timeout(5):
        await made.synced()
        assert store.groups.missing
        server.serve(gang.EMBEDDED.apis[0], OF_KIND["Queue"])
        server.refused.clear()
        while store.groups.missing:  # noqa: ASYNC110 -- it has no event
            await asyncio.sleep(0.01)
    assert store.collections["Queue"].complete
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_audit_that_met_trouble_is_made_again(monkeypatch):
    """Not when the next one would be due: jobs that are gone count as there until then."""
    monkeypatch.setattr(informers, "RELIST_PAUSE", 0.0)
    store, server = Store(gang.NONE, JOBS), Server()
    path, told = "/apis/kubeflow.org/v1/tfjobs", []

    async def broken(asked, **params):
        if asked == path and not told:
            told.append(asked)
            raise TimeoutError
        return await answer(asked, **params)

    answer, server.get = server.get, broken
    asked = asyncio.Event()
    asked.set()
    task = asyncio.create_task(Informers(server, store).audit_jobs(asked))
    while not store.collections["TFJob"].complete:  # noqa: ASYNC110 -- it has no event
        await asyncio.sleep(0)
    task.cancel()
    assert told
