# SPDX-License-Identifier: Apache-2.0
"""How a pass is carried out on a server that refuses, and when the job itself is the trouble."""

import asyncio
import logging
import time
import weakref
from collections import Counter
from dataclasses import replace

import pytest

from muster import gang
from muster.api import names
from muster.api.reasons import DeletionReason
from muster.cluster.dryrun import Answer
from muster.controller import reconcile
from muster.controller.model import (
    Context,
    Create,
    Delete,
    DryRun,
    Emit,
    Patch,
    RequeueAfter,
    SetStatus,
)
from muster.frameworks import FRAMEWORKS
from muster.kube import clock
from muster.kube.client import ApiError, Exactly, UnwantedError
from muster.kube.flowcontrol import LINGER, FlowControl, PriorityLevel
from muster.runtime.metrics import Metrics
from muster.runtime.reconciler import UNDER_WAY, Reconciler
from muster.store import observe
from muster.store.jobs import DEFAULT_LIMITS, DocumentLimits
from muster.store.store import Store
from support.apiserver.memory import World, tfjob
from support.builders.objects import reference
from support.rehearsal import call_count

KEY = "TFJob/team/mnist"


class Server:
    """Answers writes, and remembers them; `refuses` says which ones it does not take."""

    def __init__(self):
        """Take all."""
        self.writes, self.refuses, self.meanwhile, self.drops = [], {}, None, ()
        self.loses, self.job, self.one = False, None, None
        self.tried, self.rejects, self.message = [], lambda _pod: None, "denied by policy"
        self.urgency, self.gate = None, None

    async def _write(self, verb, path, body):
        await asyncio.sleep(0.02 if "slow" in str(body) else 0)
        name = path.split("/namespaces/team/")[1]
        self.writes.append((verb, name))
        if (verb, name) in self.refuses:
            code = self.refuses[verb, name]
            reason = "AlreadyExists" if code == 409 else "Forbidden"
            error = ApiError(code, reason, f"{verb} {name} refused", None)
            error.unsure = self.loses
            raise error
        if self.meanwhile:
            self.meanwhile()
        return body

    async def create(self, path, body, _urgency, wanted, still):
        """Create; where answers get `lost`, once and, if it is wanted, once more.

        What is named `late` waits for its turn.
        """
        name = f"{path}/{body['metadata']['name']}"
        await asyncio.sleep(0.02 if "late" in name else 0)
        if not still():
            raise UnwantedError(name)
        await self._write("create", name, body)
        if self.loses:
            if not await wanted():
                raise UnwantedError(name)
            await self._write("create", name, body)
        stored = {**body, "metadata": {**body["metadata"], "uid": "new", "resourceVersion": "9"}}
        if "spec" in body:
            stored["spec"] = {k: v for k, v in body["spec"].items() if k not in self.drops}
        return stored

    async def dry_run(self, path, body, _urgency):
        """Return the pod unless `rejects` returns an HTTP status code for it."""
        node = body.get("spec", {}).get("nodeName", "")
        self.tried.append((path, node))
        if code := self.rejects(node):
            raise ApiError(code, "Forbidden", self.message, None)
        return body

    async def patch(self, path, exactly, body, urgency):
        """Patch; what was sent is kept in `body`, for which object in `exactly`."""
        self.body, self.exactly, self.urgency = body, exactly, urgency
        if self.gate is not None:
            async with self.gate.enter(urgency, "team"):
                return await self._patched(path, body)
        return await self._patched(path, body)

    async def _patched(self, path, body):
        return {**await self._write("patch", path, body), "kind": "Patched",
                "metadata": {"name": "x", "namespace": "team", "uid": "x"}}  # fmt: skip

    async def delete(self, path, _uid, _urgency, *, still, **_more):
        """Delete what is still to be deleted; a pod that is named `late` waits for its turn."""
        await asyncio.sleep(0.02 if "late" in path else 0)
        if not still():
            raise UnwantedError(path)
        await self._write("delete", path, {})
        return {"kind": "Status"}

    async def get(self, path):
        """Find the job and the pod `one`, if there are any, and nothing else."""
        if self.job is not None and path.endswith("/tfjobs/mnist"):
            return self.job
        if self.one is not None and path.endswith("/pods/one"):
            return self.one
        raise ApiError(404, "NotFound", f"{path} not found", None)


class Said:
    """Remembers what was recorded."""

    def __init__(self):
        """Begin with nothing."""
        self.all, self.sources, self.about = [], set(), set()

    def emit(self, about, _type, reason, message, **more):
        """Remember it."""
        self.all.append((reason, message))
        self.about.add(about["metadata"]["uid"])
        self.sources.add(more.get("source"))
        return True


@pytest.fixture
def story(monkeypatch):
    """Give a pass over one job that is to do what it is told."""
    return Story(monkeypatch)


class Story:
    """One job, whose passes come to whatever `actions` are."""

    def __init__(self, monkeypatch, backend=gang.NONE, limits=DEFAULT_LIMITS):
        """Begin with a job that was just created."""
        kinds = [FRAMEWORKS["TFJob"], FRAMEWORKS["MPIJob"]]
        self.store = Store(backend, kinds, limits=limits)
        self.server, self.said, self.actions = Server(), Said(), []
        self.show(1)
        self.reconciler = Reconciler(
            self.server,
            self.store,
            backend,
            lambda _namespace: Context(),
            self.said,
            metrics := Metrics(),
            None,
        )
        self.registry = metrics.registry

        def decide(*given):
            self.dropped, self.placement = dict(given[-1].dropped), given[-1].placement
            return self.actions

        monkeypatch.setattr(reconcile, "reconcile", decide)

    def show(self, version, status=None, **metadata):
        """Show a version of the job."""
        document = tfjob() | ({"status": status} if status else {})
        document["metadata"] |= {"uid": "u", "resourceVersion": str(version), **metadata}
        self.store.put(document)
        self.server.job = document

    def go(self, *actions):
        """Do a pass; return when the next one is due, and what was written."""
        self.actions = list(actions)
        self.server.writes.clear()
        self.said.all.clear()
        after = asyncio.run(self.reconciler.reconcile(KEY))
        return after, self.server.writes


def create(name, kind="Pod"):
    """Return the creation of an object."""
    metadata = {"name": name, "namespace": "team"}
    return Create.of({"apiVersion": "v1", "kind": kind, "metadata": metadata})


def delete(name, reason=DeletionReason.SURPLUS, phase="Running"):
    """Return the deletion of a pod."""
    return Delete("v1", "Pod", "team", name, f"uid-{name}", reason, phase=phase)


def patch(name, body, subresource=""):
    """Return a change of a pod."""
    return Patch("v1", "Pod", "team", name, f"uid-{name}", body, subresource)


STATUS = SetStatus({"state": "Running"})
WRITTEN = ("patch", "tfjobs/mnist/status")


def test_too_large_job_that_has_pods_is_read_again(monkeypatch):
    """Its document counts again, though its version is the same."""
    story = Story(monkeypatch, limits=DocumentLimits(per_namespace=1))
    story.go()
    assert "TooLarge" in str(story.store.jobs.get(KEY).problems)
    owners = [reference(uid="u")]
    metadata = {"name": "mnist-worker-0", "namespace": "team", "uid": "p", "resourceVersion": "2"}
    pod = {"kind": "Pod", "metadata": {**metadata, "ownerReferences": owners}, "spec": {}}
    story.store.put({**pod, "status": {}})
    story.go()
    assert story.store.jobs.get(KEY).problems == ()


@pytest.mark.parametrize(
    ("code", "reason", "message", "deletes"),
    [
        (0, "", "", True),
        (403, "Forbidden", "denied by policy", False),
        (403, "Forbidden", 'exceeded quota: "small"', False),
        (500, "InternalError", "failed calling webhook", False),
        (409, "AlreadyExists", "exists", True),
        (400, "BadRequest", "admission webhook x does not support dry run", True),
    ],
)
def test_deletions_follow_a_dry_run_that_is_not_refused(story, code, reason, message, deletes):
    """Of several roles the first that is refused is recorded."""

    async def dry_run(*_request):
        if code:
            raise ApiError(code, reason, message, None)

    story.server.dry_run = dry_run
    tried = [DryRun(create(name).build) for name in ("one", "two")]
    _, writes = story.go(*tried, delete("peer"))
    assert writes == ([("delete", "pods/peer")] if deletes else [])
    refusal = story.store.jobs.refusal(story.store.jobs.get(KEY), 0.0)
    assert refusal is None if deletes else refusal.message == message


@pytest.mark.parametrize(("phase", "deletes"), [("Running", True), ("Failed", False)])
def test_full_quota_does_not_refuse_a_pod_that_has_not_ended(story, phase, deletes):
    """It uses the quota that its replacement needs."""
    story.server.rejects, story.server.message = lambda _node: 403, "exceeded quota: small"
    metadata = {"name": "one", "namespace": "team", "uid": "p", "resourceVersion": "2"}
    status = {"phase": phase}
    story.store.put({"kind": "Pod", "metadata": metadata, "spec": {}, "status": status})
    _, writes = story.go(DryRun(create("one").build), delete("peer"))
    assert writes == [("delete", "pods/peer")] * deletes


def test_nothing_is_deleted_if_a_dry_run_cannot_be_made(story):
    """The reconcile is repeated."""
    story.server.rejects = lambda _node: 504
    with pytest.raises(ApiError):
        story.go(DryRun(create("one").build), delete("peer"))
    assert story.server.writes == []


def test_changes_of_one_object_are_made_in_their_order(story):
    """The second one may need the first, which takes longer; other objects do not wait."""
    first, second = patch("one", {"a": "slow"}, "status"), patch("one", {"b": 1})
    _, writes = story.go(first, second, patch("two", {"c": 1}))
    assert writes == [("patch", "pods/two"), ("patch", "pods/one/status"), ("patch", "pods/one")]


@pytest.mark.parametrize(("workers", "turns"), [(2, 1), (2_500, 10)])
async def test_reconcile_of_thousands_of_pods_leaves_turns_of_the_loop_to_others(
    story, monkeypatch, workers, turns
):
    """Probes are answered between observing, deciding and the creations that wait at once."""
    document = tfjob(Worker=workers)
    document["metadata"] |= {"uid": "u", "resourceVersion": "2"}
    story.store.put(document)
    made = map(create, (f"worker-{index}" for index in range(workers)))
    story.actions = [replace(each, placed=True) for each in made]
    seen, begun = [], []
    real, write = observe.observe, story.server._write

    def observed(*given):
        seen.append(turn())
        return real(*given)

    def decided(*_given):
        seen.append(turn())
        return story.actions

    async def written(*given):
        begun.append(turn())
        await write(*given)

    monkeypatch.setattr(observe, "observe", observed)
    monkeypatch.setattr(reconcile, "reconcile", decided)
    monkeypatch.setattr(story.server, "_write", written)

    async with call_count.turns() as turn:
        await story.reconciler.reconcile(KEY)
    assert len(begun) == workers
    assert len(set(seen)) == min(turns, 2)
    assert len(set(begun)) == turns
    assert max(Counter(begun).values()) <= UNDER_WAY


@pytest.mark.parametrize(("accepted", "requests"), [(0, 1), (1, 3), (3, 7)])
def test_a_refusal_is_known_before_the_other_pods_are_created(story, accepted, requests):
    """The API server may need a second to refuse a pod with thousands of invalid values."""
    refused = range(accepted, 100)
    story.server.refuses = {("create", f"pods/worker-{index}"): 422 for index in refused}
    _, writes = story.go(*(create(f"worker-{index}") for index in range(100)))
    assert len(writes) == requests


def test_the_pods_of_a_job_that_is_gone_are_not_made_anew(story):
    """They may be seen to go before it is, and before a status of it was written."""
    metadata = {"name": "one", "namespace": "team", "uid": "p", "resourceVersion": "2"}
    owned = {**metadata, "ownerReferences": [reference(uid="u")]}
    story.store.put({"apiVersion": "v1", "kind": "Pod", "metadata": owned, "spec": {}})
    story.store.gone("Pod", "team", "one", "p")
    story.server.job = None
    _, writes = story.go(create("one"), STATUS)
    assert writes == []
    assert story.store.jobs.get(KEY) is None


@pytest.mark.parametrize(
    ("admitted", "created"),
    [({}, [("create", "pods/one")]), ({"admissionTime": "2026-01-01T00:00:00Z"}, [])],
)
def test_job_is_read_again_before_pods_of_admitted_gang_are_created(
    monkeypatch, admitted, created
):
    """The pods of a deleted job that had some must not be created again."""
    story = Story(monkeypatch, gang.EMBEDDED)
    waits = {"scheduler": "muster", "state": "Waiting", **admitted}
    story.show(2, {"startTime": "2026-01-01T00:00:00Z", "gang": waits})
    story.server.job = None
    assert story.go(create("one"))[1] == created


def test_a_pod_whose_answer_was_lost_is_not_made_again_for_a_job_that_is_gone(story):
    """It ran, and went with its job, before anybody here knew of it."""
    story.server.loses, story.server.job = True, None
    after, writes = story.go(create("one"), STATUS)
    assert (writes, after) == ([("create", "pods/one")], pytest.approx(0.05, abs=0.05))
    assert story.store.jobs.get(KEY) is None
    story.show(3, uid="v")
    assert story.go(create("one"))[1] == [("create", "pods/one")] * 2
    story.server.meanwhile = lambda: story.show(4, uid="v", generation=2)
    assert story.go(create("one"))[1] == [("create", "pods/one")]


@pytest.mark.parametrize("change", ["deleted", "terminating", "applied again", "suspended"])
def test_creations_that_wait_while_their_job_ends_are_not_sent(story, change):
    """Thousands of pods and services may wait for their turn."""
    document = tfjob(policy={"suspend": True})
    document["metadata"] |= {"uid": "u", "resourceVersion": "2"}
    story.server.meanwhile = {
        "deleted": lambda: story.store.gone("TFJob", "team", "mnist", "u"),
        "terminating": lambda: story.show(2, deletionTimestamp="2026-01-01T00:00:00Z"),
        "applied again": lambda: story.show(2, uid="v"),
        "suspended": lambda: story.store.put(document),
    }[change]
    _, writes = story.go(create("one"), create("late"), create("late", "Service"))
    assert writes == [("create", "pods/one")]


def test_pods_that_a_job_wants_again_before_their_turn_are_not_deleted(story):
    """Deletions may wait for their turn, or for the API server to accept them."""
    story.server.meanwhile = lambda: story.show(2, generation=2)
    _, writes = story.go(delete("one"), delete("late"))
    assert writes == [("delete", "pods/one")]
    newer = {**story.server.job["metadata"], "generation": 3, "resourceVersion": "3"}
    story.server.job = {**story.server.job, "metadata": newer}
    assert story.go(delete("one"))[1] == []


def test_created_pod_whose_answer_was_lost_is_found_though_its_quota_is_full(story):
    """Else its peers would be deleted as those of a gang that cannot start."""
    owned = {"uid": "p", "resourceVersion": "2", "ownerReferences": [reference(uid="u")]}
    made = create("one").doc | {"spec": {}}
    made["metadata"] |= owned | {"labels": {names.OPERATOR_NAME: "tfjob-controller"}}
    story.server.loses, story.server.one = True, made
    story.server.refuses["create", "pods/one"] = 403
    story.go(create("one"))
    assert story.store.children.pod("team", "one").uid == "p"
    assert story.store.jobs.refusal(story.store.jobs.get(KEY), 0.0) is None


@pytest.mark.parametrize(("before", "writes"), [("Running", 0), ("Succeeded", 1)])
def test_pod_of_a_suspended_job_that_succeeds_before_its_deletion_is_kept(story, before, writes):
    """The job may have finished with the pod."""
    metadata = {"name": "one", "namespace": "team", "uid": "uid-one", "resourceVersion": "2"}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {}, "status": {"phase": "Succeeded"}}
    story.store.put(pod)
    assert len(story.go(delete("one", DeletionReason.SUSPENDED, before))[1]) == writes


def test_pod_of_index_that_is_completed_by_now_is_not_created(monkeypatch):
    """The watch may not have shown yet that the status lists its index."""
    story = Story(monkeypatch, gang.EMBEDDED)
    placed = {"scheduler": "muster", "state": "Running"}
    started = {"gang": {**placed, "admissionTime": "2026-01-01T00:00:00Z"}}
    story.show(2, status=started)
    done = {"replicaStatuses": {"Worker": {"succeeded": 1, "completedIndexes": "0"}}}
    document = story.server.job
    story.server.job = {
        **document,
        "metadata": {**document["metadata"], "resourceVersion": "3"},
        "status": {**started, **done},
    }
    assert story.go(create("mnist-worker-0"))[1] == []
    assert story.go(create("mnist-worker-1"))[1] == [("create", "pods/mnist-worker-1")]


def test_nor_is_it_by_the_pass_after_one_that_was_cut_short(story):
    """All its tries were in vain, as far as anybody here knows."""
    story.server.refuses["create", "pods/one"] = 504
    with pytest.raises(ExceptionGroup):
        story.go(create("one"), create("two"))
    story.server.refuses.clear()
    story.server.job = None
    assert story.go(create("one"), STATUS)[1] == []
    assert story.store.jobs.get(KEY) is None


def test_what_programs_say_is_not_logged(monkeypatch, caplog):
    """The last words of a container are for who may read its job, not for the operator's log."""
    caplog.set_level(logging.DEBUG)
    world = World(tfjob(Worker=1)).settle()
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "a password"}}
    statuses = [{"name": "tensorflow", "state": ended}]
    world.pod("mnist-worker-0")["status"] = {"phase": "Running", "containerStatuses": statuses}
    world.step()
    (told,) = (emit for emit in world.said if "a password" in emit.message)
    story = Story(monkeypatch)
    story.go(STATUS, told)
    assert (told.reason, told.message) in story.said.all
    assert f"{KEY}: Error: " in caplog.text
    assert "password" not in caplog.text


@pytest.mark.parametrize("code", [403, 409, 422, 500])
@pytest.mark.parametrize(
    "change", [patch("one", {"a": 1}), delete("one")], ids=["patch", "delete"]
)
def test_a_refusal_is_told_and_stops_neither_others_nor_the_status(story, change, code):
    """What comes behind it in the order of writes waits for the next pass, which comes soon."""
    verb = "patch" if isinstance(change, Patch) else "delete"
    story.server.refuses[verb, "pods/one"] = code
    other = delete("two") if verb == "delete" else patch("two", {})
    after, writes = story.go(
        change, other, Emit("Normal", "Early", "all is done"), create("later"), STATUS,
        Emit("Normal", "Became", "it runs"), RequeueAfter(2e9),
    )  # fmt: skip
    assert writes == [(verb, "pods/one"), (verb, "pods/two"), WRITTEN]
    reasons = [reason for reason, _ in story.said.all]
    told = "FailedDeletePod" if verb == "delete" else "FailedUpdatePod"
    assert set(reasons) == {told, "Became", *(["SuccessfulDeletePod"] if verb == "delete" else [])}
    assert any(f"{verb} pods/one refused" in message for _, message in story.said.all)
    assert after <= 2.0
    again, _ = story.go(change)
    assert after < again <= 60


def test_missing_permission_for_secrets_names_its_remedy(story, monkeypatch):
    """The job waits for a RoleBinding in its namespace."""
    message = 'secrets is forbidden: User "muster" cannot create resource "secrets"'
    error = ApiError(403, "Forbidden", message, None)

    async def refuse(*_given):
        raise error

    assert error.unpermitted
    monkeypatch.setattr(story.server, "create", refuse)
    story.go(create("mnist-ssh", "Secret"))
    told = story.store.jobs.refusal(story.store.jobs.get(KEY), 0.0).message
    assert told.startswith(f"{message}; bind the ClusterRole muster-mpi-secrets")


def test_a_refusal_is_tried_ever_more_rarely_whatever_else_can_be_made(story):
    """The pods that are made anew with each try do not make the next one come sooner."""
    worker, launcher = create("worker-0"), create("launcher", "Job")
    story.server.refuses["create", "jobs/launcher"] = 422
    pauses = []
    for _ in range(4):
        story.go(worker)
        story.go(launcher)
        job = story.store.jobs.get(KEY)
        pauses.append(round(story.store.jobs.refusal(job, 0.0).until - time.time()))
    assert pauses == [10, 20, 40, 80]
    story.server.refuses.clear()
    story.go(worker, launcher)
    story.server.refuses["create", "pods/worker-0"] = 422
    story.go(worker)
    assert round(story.store.jobs.refusal(job, 0.0).until - time.time()) == 10


def test_refusals_of_an_autoscaler_do_not_delay_attempts_of_other_objects(story):
    """Each has a back-off of its own."""
    scaler = create("mnist", "HorizontalPodAutoscaler")
    story.server.refuses["create", "horizontalpodautoscalers/mnist"] = 422
    story.server.refuses["create", "pods/one"] = 422
    for _ in range(4):
        story.go(scaler)
    story.go(create("one"))
    jobs = story.store.jobs
    job = jobs.get(KEY)
    assert round(jobs.refusal(job, 0.0).until - time.time()) == 10
    assert round(jobs.refusal(job, 0.0, of_autoscaler=True).until - time.time()) == 80
    story.server.refuses.clear()
    story.go(scaler)
    story.server.refuses["create", "horizontalpodautoscalers/mnist"] = 422
    story.go(scaler)
    assert round(jobs.refusal(job, 0.0, of_autoscaler=True).until - time.time()) == 10


def test_a_job_that_took_the_name_of_another_is_not_held_up_by_what_that_was_refused(story):
    """Deleted and applied again between two passes: whoever mended it is not to wait for it."""
    story.server.refuses["create", "pods/one"] = 500
    for _ in range(6):
        story.go(create("one"))
    story.server.refuses["create", "pods/one"] = 404
    story.show(2, uid="v")
    story.go(create("one"))
    refusal = story.store.jobs.refusal(story.store.jobs.get(KEY), 0.0)
    assert round(refusal.until - time.time()) == 10


@pytest.mark.parametrize(("code", "again"), [(403, True), (422, True), (500, False)])
def test_rejected_pod_is_tried_by_another_dry_run_before_the_next_attempt(story, code, again):
    """A policy may have changed since: without that, each attempt would start its peers."""
    answers, key = story.store.dry_runs, ("team", "digest")
    answers.put(key, Answer(time.time() + 600, under=answers.changes("team")))
    story.server.refuses["create", "pods/one"] = code
    story.go(create("one"))
    assert (answers.get(key, time.time()) is None) is again
    assert round(story.store.jobs.refusal(story.store.jobs.get(KEY), 0.0).until - time.time()) > 0


PLACED = Create.of(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "team"},
        "spec": {"nodeName": "n1"},
    }
)
PODS = "/api/v1/namespaces/team/pods"


@pytest.mark.parametrize("code", [403, 422])
def test_pods_are_bound_for_an_hour_where_a_policy_forbids_their_node(story, monkeypatch, code):
    """Two dry runs show that nodeName alone is rejected; then no refusal delays the job."""
    story.server.refuses["create", "pods/one"] = code
    story.server.rejects = lambda node: code if node else None
    after, _ = story.go(PLACED)
    assert story.placement == "create"
    assert story.server.tried == [(PODS, ""), (PODS, "n1")]
    assert story.store.jobs.refusal(story.store.jobs.get(KEY), 0.0) is None
    assert after < 1
    story.go()
    assert story.placement == "bind"
    now = time.time()
    monkeypatch.setattr(clock, "now", lambda: now + 3599)
    story.go()
    assert story.placement == "bind"
    monkeypatch.setattr(clock, "now", lambda: now + 3601)
    story.go()
    assert story.placement == "create"


@pytest.mark.parametrize(
    ("code", "rejects"),
    [
        (403, lambda _node: 403),
        (422, lambda _node: None),
        (422, lambda node: 409 if node else None),
        (404, lambda node: 404 if node else None),
    ],
    ids=["whole pod", "nothing now", "another error", "not a policy"],
)
def test_pod_that_is_not_rejected_for_its_node_alone_is_refused(story, code, rejects):
    """Its job waits for the next attempt."""
    story.server.refuses["create", "pods/one"] = code
    story.server.rejects = rejects
    story.go(PLACED)
    assert story.store.jobs.refusal(story.store.jobs.get(KEY), 0.0).kind == "Pod"
    story.go()
    assert story.placement == "create"


def test_what_follows_a_refused_change_of_the_same_object_is_not_done(story):
    """It would come before what it needs."""
    story.server.refuses["patch", "pods/one/status"] = 403
    _, writes = story.go(patch("one", {"a": 1}, "status"), patch("one", {"b": 1}), STATUS)
    assert writes == [("patch", "pods/one/status"), WRITTEN]


def test_what_stands_in_the_way_and_cannot_be_seen_is_not_asked_for_in_a_hurry(story):
    """Passes that end before their end follow each other ever later, until one goes well."""
    story.server.refuses["create", "pods/one"] = 409
    pauses = [story.go(create("one"), STATUS)[0] for _ in range(12)]
    assert pauses[0] < 0.1
    assert pauses == sorted(pauses)
    assert 1 < pauses[-1] <= 5
    story.server.refuses.clear()
    assert story.go(create("one"), STATUS)[0] is None
    story.server.refuses["create", "pods/one"] = 409
    assert story.go(create("one"), STATUS)[0] == pauses[0]


def test_no_event_is_lost_as_a_later_write_fails(story):
    """What was created is told, though the rest was not."""
    story.server.refuses["create", "pods/two"] = 403
    after, _ = story.go(create("one"), create("two"), Emit("Normal", "X", "Created both"))
    assert ("SuccessfulCreatePod", "Created pod: one") in story.said.all
    assert "X" not in dict(story.said.all)
    assert after < 1


def test_a_status_goes_with_the_version_that_it_was_derived_from(story):
    """Though the job has changed by the time at which it is written."""
    story.server.meanwhile = lambda: story.show(2, annotations={"edited": "yes"})
    story.go(create("one"), STATUS)
    assert story.server.exactly == Exactly("u", "1")


class Watched(dict):
    """A part of a document of which can be told that nobody has it any more."""


def test_a_pass_that_waits_for_its_status_keeps_neither_what_it_made_nor_what_it_saw(
    monkeypatch,
):
    """Hundreds may wait, and who writes jobs says how large that is."""
    story, kept, left = Story(monkeypatch), [], []

    def watched(part):
        part = Watched(part)
        kept.append(weakref.ref(part))
        return part

    def meanwhile():
        if story.server.writes[-1] == WRITTEN:
            left.extend(it() for it in kept)
        else:
            story.show(3, generation=2)

    job = story.server.job
    job["spec"] = watched(job["spec"])
    job["metadata"]["resourceVersion"] = "2"
    story.store.put(job)
    del job
    story.server.meanwhile = meanwhile
    monkeypatch.setattr(
        reconcile, "reconcile", lambda *_: [Create.of(watched(create("a").doc)), STATUS]
    )
    asyncio.run(story.reconciler.reconcile(KEY))
    assert left == [None, None]


def test_events_come_from_whom_upstream_has_them_come(story):
    """A source for each kind."""
    story.go(Emit("Normal", "X", "x"))
    assert story.said.sources == {"tfjob-controller"}
    sources = {
        row.operator.recorder or row.operator.name
        for kind in FRAMEWORKS.values()
        for row in (kind, *kind.variants)
    }
    assert sources == {
        "tfjob-controller", "pytorchjob-controller", "xgboostjob-controller",
        "paddlejob-controller", "jaxjob-controller", "mpijob-controller", "mpi-job-controller",
    }  # fmt: skip


def test_a_job_whose_pass_fails_says_so_itself(story, monkeypatch):
    """Once, in its state and in an event; the error is raised, so that it is backed off."""

    def fails(*_):
        raise OverflowError("int too large")

    monkeypatch.setattr(reconcile, "reconcile", fails)
    for _ in range(2):
        with pytest.raises(OverflowError):
            story.go()
        assert story.said.all == [
            ("Unreadable", "the operator cannot handle this job: OverflowError: int too large")
        ]
        if story.server.writes:
            assert story.server.exactly == Exactly("u", "1")
            said = {"state": "Blocked", "reason": story.said.all[0][1]}
            assert story.server.body == {"status": said}
            document = tfjob()
            document["metadata"] |= {"uid": "u", "resourceVersion": "2"}
            story.store.put({**document, "status": story.server.body["status"]})
        else:
            assert story.store.jobs.find(KEY)["metadata"]["resourceVersion"] == "2"


def test_what_becomes_of_a_job_is_not_said_of_its_successor(story, monkeypatch):
    """It was deleted, and applied again, while its pass was under way."""
    story.server.meanwhile = lambda: story.show(2, uid="v")
    story.go(create("one"), Emit("Normal", "X", "x"))
    assert story.said.about == {"u"}

    def fails(*_):
        story.show(3, uid="w")
        raise OverflowError("int too large")

    monkeypatch.setattr(reconcile, "reconcile", fails)
    with pytest.raises(OverflowError):
        story.go()
    assert (story.said.all, story.server.writes) == ([], [])


def test_trouble_of_the_server_is_no_state_of_the_job(story):
    """It is raised, and nothing is said of it."""
    story.server.refuses["create", "pods/one"] = 503
    with pytest.raises(ApiError):
        story.go(create("one"))
    assert story.said.all == []
    assert story.server.writes == [("create", "pods/one")]


@pytest.mark.parametrize(
    ("backend", "field"),
    [
        (gang.EMBEDDED, "minResources"),
        (gang.VOLCANO, "minResources"),
        (gang.SCHEDULER_PLUGINS, "scheduleTimeoutSeconds"),
        (gang.KUBE_BATCH, "queue"),
        (gang.KUBERNETES, "disruptionMode"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_field_of_a_group_that_the_server_drops_is_told_counted_and_known(
    monkeypatch, caplog, backend, field
):
    """Once of each job, and once in the log; a server that takes it again is believed."""
    story = Story(monkeypatch, backend)
    story.store.groups.use(backend.apis[0])
    metadata = {"name": "mnist", "namespace": "team"}
    api = {"apiVersion": backend.apis[0].api_version, "kind": "PodGroup", "metadata": metadata}
    group = Create.of({**api, "spec": {field: {"any": 1}, "minMember": 2}})
    count = ("muster_group_fields_dropped_total", {"kind": "PodGroup", "field": field})

    story.go(group)
    assert story.said.all == []
    assert story.registry.get_sample_value(*count) is None

    story.server.drops = (field,)
    for times in (1, 2):
        story.go(group)
        ((reason, text),) = story.said.all
        assert reason == "GroupFieldDropped"
        assert f"left spec.{field} out of PodGroup mnist" in text
        assert story.registry.get_sample_value(*count) == times
    assert [record.levelname for record in caplog.records].count("WARNING") == 1

    story.go()
    assert story.dropped == {"PodGroup": {field}}
    story.server.drops = ()
    story.go(group)
    story.go()
    assert story.dropped == {"PodGroup": frozenset()}
    assert story.said.all == []


def test_what_is_told_is_not_told_again_as_a_later_write_fails(story):
    """An event would count twice."""
    story.server.refuses["patch", "pods/one"] = 403
    told = Emit("Normal", "SuccessfulCreatePod", "Created pod: one")
    story.go(create("one"), told, patch("one", {"metadata": {"labels": {"a": "b"}}}), STATUS)
    assert story.said.all.count(("SuccessfulCreatePod", "Created pod: one")) == 1


def test_pods_are_deleted_though_the_status_before_them_is_refused(story):
    """A suspended job would keep its capacity. An event names the error, and none the status."""
    story.server.refuses["patch", "tfjobs/mnist/status"] = 403
    with pytest.raises(ApiError, match="refused"):
        story.go(STATUS, Emit("Normal", "TFJobSuspended", "it is suspended"), delete("one"))
    assert story.server.writes == [WRITTEN, ("delete", "pods/one")]
    assert [reason for reason, _ in story.said.all] == ["SuccessfulDeletePod", "FailedUpdateTFJob"]


def test_job_whose_status_is_not_served_is_not_gone(story, monkeypatch):
    """Without a status subresource a CRD answers as for a job that does not exist."""

    async def patch(*_request):
        return None

    monkeypatch.setattr(story.server, "patch", patch)
    with pytest.raises(ApiError, match="no status subresource"):
        story.go(STATUS)
    assert [reason for reason, _ in story.said.all] == ["FailedUpdateTFJob"]
    story.server.job = None
    story.go(STATUS)
    assert story.store.jobs.get(KEY) is None


def test_job_that_a_proxy_does_not_find_is_not_gone(story, monkeypatch):
    """Nothing would reconcile it again."""

    async def get(_path):
        raise ApiError(404, "Not Found", "<html>", None)

    monkeypatch.setattr(story.server, "get", get)
    story.server.refuses["patch", "tfjobs/mnist/status"] = 409
    with pytest.raises(ApiError, match="html"):
        story.go(STATUS)
    assert story.store.jobs.get(KEY) is not None


ENDS = SetStatus({"state": "Succeeded", "completionTime": "2026-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("status", "level"), [(STATUS, PriorityLevel.STATUS), (ENDS, PriorityLevel.PLACEMENT)]
)
def test_status_that_ends_a_job_is_as_urgent_as_a_placement(story, status, level):
    """Clean-up waits for it, and keeps the capacity of the job until then."""
    story.go(status)
    assert story.server.urgency is level


def test_status_of_a_suspended_job_is_as_urgent_as_a_placement(story):
    """Its pods are deleted once it is stored."""
    document = tfjob(policy={"suspend": True})
    document["metadata"] |= {"uid": "u", "resourceVersion": "2"}
    story.store.put(document)
    story.go(STATUS)
    assert story.server.urgency is PriorityLevel.PLACEMENT


async def test_status_before_the_end_of_a_pod_waits_for_no_placement(story):
    """The status that ends the job would wait behind it, while pods of others are placed."""
    story.actions = [STATUS]
    story.server.gate = gate = FlowControl(1)
    async with gate.enter(PriorityLevel.PLACEMENT, "team"), gate.enter(PriorityLevel.STATUS):
        reconciles = asyncio.create_task(story.reconciler.reconcile(KEY))
        await asyncio.sleep(2 * LINGER)
        waiting = gate._waiting
        assert len(waiting[PriorityLevel.STATUS]) == 1
        story.reconciler.on_pod_ended("TFJob/team/other")
        assert len(waiting[PriorityLevel.PLACEMENT]) == 0
        story.reconciler.on_pod_ended(KEY)
        assert len(waiting[PriorityLevel.PLACEMENT]) == 1
    await reconciles
    assert story.server.writes == [WRITTEN]
