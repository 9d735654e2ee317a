# SPDX-License-Identifier: Apache-2.0
"""What other operators have made is found once, labelled, and told from what is others'."""

import asyncio
import copy
from unittest.mock import AsyncMock

import pytest

from muster import gang
from muster.api import names
from muster.frameworks import FRAMEWORKS
from muster.kube.client import ApiError
from muster.kube.resources import OF_KIND
from muster.store.store import Store
from muster.store.takeover import Takeover
from support.apiserver.memory import merge, tfjob
from support.builders import recorded_jobs
from support.rehearsal import call_count

GONE = 404
PATHS = {
    "Pod": "/api/v1/namespaces/team/pods",
    "Service": "/api/v1/namespaces/team/services",
    "ConfigMap": "/api/v1/namespaces/team/configmaps",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/team/horizontalpodautoscalers",
    "Job": "/apis/batch/v1/namespaces/team/jobs",
}


class Server:
    """Holds objects, lists those without our label two at a time, and takes labels."""

    def __init__(self, documents):
        """Begin with these."""
        self.objects, self.asked, self.refuses = {}, [], None
        for number, document in enumerate(documents):
            held = copy.deepcopy(document)
            held["metadata"]["resourceVersion"] = str(number + 10)
            self.objects[f"{PATHS[held['kind']]}/{held['metadata']['name']}"] = held

    async def get(self, path, **params):
        """Answer a list."""
        self.asked.append(path)
        assert params["labelSelector"] == f"!{names.OPERATOR_NAME}"
        found = [
            {key: value for key, value in held.items() if key not in ("apiVersion", "kind")}
            for at, held in sorted(self.objects.items())
            if at.rpartition("/")[0] == path and not labelled(held)
        ]
        kind = next((kind for kind, at in PATHS.items() if at == path), "")
        of = {"apiVersion": OF_KIND[kind].api_version, "kind": f"{kind}List"} if kind else {}
        start = int(params.get("continue") or 0)
        more = {"continue": str(start + 2)} if len(found) > start + 2 else {}
        return {**of, "metadata": more, "items": found[start : start + 2]}

    async def patch(self, path, exactly, body, _urgency):
        """Take a label."""
        if self.refuses == GONE:
            return None
        if self.refuses is not None:
            raise ApiError(self.refuses, "No", "no", None)
        held = self.objects[path]
        assert exactly.uid == held["metadata"]["uid"]
        merge(held, body)
        held["metadata"]["resourceVersion"] = "99"
        return held


def labelled(document):
    """Say whether our watches show it."""
    return names.OPERATOR_NAME in (document["metadata"].get("labels") or {})


def taken_over(name, *, backend=gang.NONE, followed=tuple(PATHS), **status):
    """Return a store that follows all kinds, the recorded job in it, and its server."""
    document, others = recorded_jobs.read(name)
    document["metadata"]["resourceVersion"] = "1"
    document["status"] |= status
    store = Store(backend, FRAMEWORKS.values())
    for kind in followed:
        store.collections[kind].listed("", (), 50)
    store.put(document)
    server = Server(other for other in others if other["kind"] in PATHS)
    return store, server


def look(store, takeover):
    """Let it look for what belongs to the job."""
    (job,) = store.jobs
    asyncio.run(takeover.look(job))
    return job


@pytest.mark.parametrize("name", recorded_jobs.NAMES)
def test_all_that_the_job_has_is_known_and_labelled(name):
    """Whatever page it is on."""
    store, server = taken_over(name)
    job = look(store, Takeover(server, store))
    own = [o for o in server.objects.values() if o["metadata"]["ownerReferences"][0]["uid"]
           == "job-uid"]  # fmt: skip
    assert all(map(labelled, own))
    for held in own:
        kind, called = held["kind"], held["metadata"]["name"]
        found = store.collections[kind].get("team", called)
        already = held["metadata"]["resourceVersion"] != "99"
        assert already or (getattr(found, "view", found)).owner == job.as_owner


def test_what_is_of_others_stays_as_it_is():
    """Of another job, of nobody, or of one of that name before; and it is read once.

    A thousand jobs of one namespace may be taken over.
    """
    store, server = taken_over("tf-operator-1.0-tfjob")
    (service,) = [at for at in server.objects if at.endswith("services/mnist-ps-0")]
    server.objects[service]["metadata"]["ownerReferences"][0]["uid"] = "another"
    takeover = Takeover(server, store)
    look(store, takeover)
    assert not labelled(server.objects[service])
    before = list(server.asked)
    look(store, takeover)
    assert server.asked == before


@pytest.mark.parametrize(("backend", "pods"), [(gang.NONE, True), (gang.EMBEDDED, False)])
def test_pods_are_looked_for_where_they_are_not_followed(backend, pods):
    """The allocator inside sees all there are."""
    store, server = taken_over("tf-operator-1.0-tfjob", backend=backend)
    look(store, Takeover(server, store))
    assert (PATHS["Pod"] in server.asked) is pods


def test_kinds_that_are_not_followed_are_not_read():
    """Nobody may have allowed it. A job of our own costs nothing: its state tells its writer."""
    store, server = taken_over("mpi-operator-0.8-mpijob", followed=("Service", "ConfigMap"))
    look(store, Takeover(server, store))
    assert PATHS["Job"] not in server.asked
    assert PATHS["Service"] in server.asked
    store, server = taken_over("tf-operator-1.0-tfjob", state="Running")
    look(store, Takeover(server, store))
    assert not server.asked


@pytest.mark.parametrize("code", [403, 422, GONE])
def test_what_may_not_be_labelled_is_known_nevertheless(code):
    """Unless it is gone; the job goes on with what it has."""
    store, server = taken_over("tf-operator-1.0-tfjob")
    server.refuses = code
    job = look(store, Takeover(server, store))
    known = store.children.of(job, "Service", ())
    assert len(known) == (0 if code == GONE else 3)


async def test_reading_all_jobs_leaves_turns_of_the_event_loop_to_others(monkeypatch):
    """Each job is parsed at the start, and the lease and the probes need the loop too."""
    monkeypatch.setattr("muster.store.takeover.SLICE", 0.0)
    store, read = Store(gang.NONE, FRAMEWORKS.values()), []
    for number in range(5):
        document = tfjob(name=f"job-{number}")
        document["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": "1"}
        store.put(document)
    takeover = Takeover(None, store)
    monkeypatch.setattr(
        takeover, "look", look := AsyncMock(side_effect=lambda _: read.append(turn()))
    )

    async with call_count.turns() as turn:
        await takeover.look_at_all()
    assert look.await_count == len(set(read)) == 5


def test_all_jobs_are_looked_at_before_any_pass():
    """What cannot be read then is left to the passes."""
    store, server = taken_over("tf-operator-1.0-tfjob")

    async def broken(_path, **_params):
        raise ApiError(500, "InternalError", "no", None)

    get, server.get = server.get, broken
    takeover = Takeover(server, store)
    asyncio.run(takeover.look_at_all())
    server.get = get
    asyncio.run(takeover.look_at_all())
    assert all(map(labelled, server.objects.values()))
