# SPDX-License-Identifier: Apache-2.0
"""What is kept of jobs: what is read of them, and of those that are over hardly more than that."""

import copy
import json
import tracemalloc

import pytest

from muster import gang
from muster.api import names, status
from muster.api.status import read as read_status
from muster.frameworks import FRAMEWORKS
from muster.store.children import Children
from muster.store.jobs import DocumentLimits, Jobs
from muster.store.store import Store
from support.apiserver.memory import World, tfjob
from support.builders import recorded_jobs
from support.builders.mpijobs import mpijob
from support.builders.objects import reference

LONG = "x" * 50_000
ENDED = {"conditions": [{"type": "Succeeded", "status": "True"}], "state": "Succeeded"}


def show(document):
    """Return what is known when a job is shown."""
    kind, metadata = document["kind"], document["metadata"]
    jobs = Jobs({kind: FRAMEWORKS[kind]}, lambda _key: None, lambda: None)
    before = copy.deepcopy(document)
    jobs.show(kind, document, False)
    assert document == before
    return jobs, f"{kind}/{metadata['namespace']}/{metadata['name']}"


def kept(document):
    """Return what is kept of a job."""
    jobs, key = show(document)
    return jobs.find(key)


def wordy(**fields):
    """Return a job with much in it, as the API server shows it."""
    job = tfjob(Worker=2)
    (role,) = job["spec"]["tfReplicaSpecs"].values()
    (container,) = role["template"]["spec"]["containers"]
    container["env"] = [{"name": "LONG", "value": LONG}]
    role["template"]["metadata"] = {"annotations": {"long": LONG}}
    job["metadata"] |= {
        "namespace": "team",
        "uid": "job-uid",
        "annotations": {names.LAST_APPLIED: LONG, "own": "yes"},
        "managedFields": [{"manager": LONG}],
    }
    return {**job, **fields}


def test_what_nobody_reads_is_not_kept():
    """Who wrote which field, what kubectl remembers of the last time, and a flood of labels."""
    job = wordy()
    job["metadata"]["labels"] = {f"label-{number}": "" for number in range(40_000)}
    found = kept(job)
    assert found["spec"] == job["spec"]
    assert found["metadata"]["annotations"] == {"own": "yes"}
    assert "managedFields" not in found["metadata"]
    assert len(found["metadata"]["labels"]) <= 1024


def test_a_job_that_is_over_is_kept_small():
    """No pod is made of its templates any more."""
    job = wordy(status=ENDED)
    found = kept(job)
    assert found["status"] == ENDED
    assert len(json.dumps(found)) < 1500
    assert not World(found).settle().job["status"].get("reason")


@pytest.mark.parametrize(
    "spec", [None, 5, {"tfReplicaSpecs": [1]}, {"tfReplicaSpecs": {"Worker": 1}}]
)
def test_a_job_that_is_over_may_be_garbage(spec):
    """It is kept as it is."""
    assert kept(wordy(status=ENDED, spec=spec))["spec"] == spec


@pytest.mark.parametrize("policy", ["All", "Running", "None"])
@pytest.mark.parametrize("name", recorded_jobs.NAMES)
def test_what_is_kept_of_a_job_that_is_over_is_all_that_is_needed(name, policy):
    """To clean up after it, and to let it go in time."""
    job, others = recorded_jobs.read(name)
    job["spec"]["runPolicy"] = {"cleanPodPolicy": policy, "ttlSecondsAfterFinished": 60}
    whole = World(job).settle()
    whole.objects = {(o["kind"], o["metadata"]["name"]): o for o in others}
    whole.job["status"] |= {**ENDED, "completionTime": "2023-11-14T22:13:20Z"}
    part = copy.copy(whole)
    part.job = kept(whole.job)
    assert part.job["spec"] != whole.job["spec"]
    for seconds in (0, 3600):
        whole.now = part.now = whole.now + seconds
        assert whole.decide() == part.decide() != []


def test_jobs_of_one_second_are_as_old_as_they_came():
    """One file makes many in a second, of which the server says no more than that."""
    jobs = Jobs({"TFJob": FRAMEWORKS["TFJob"]}, lambda _key: None, lambda: None)
    for name in ("zeta", "alpha", "zeta"):
        document = tfjob(Worker=2)
        document["metadata"] |= {"namespace": "team", "name": name, "uid": f"uid-{name}"}
        document["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        jobs.show("TFJob", document, False)
    zeta, alpha = jobs.get("TFJob/team/zeta"), jobs.get("TFJob/team/alpha")
    assert zeta.created < alpha.created < zeta.created + 1


def test_what_a_status_leaves_alone_is_not_read_again():
    """A change of anything but the status is read, also a change to an earlier generation."""
    jobs = Jobs({"TFJob": FRAMEWORKS["TFJob"]}, lambda _key: None, lambda: None)

    def shown(version, **changes):
        document = copy.deepcopy(wordy(**changes))
        document["metadata"] |= {"resourceVersion": version, "generation": 2}
        jobs.show("TFJob", document, False)
        return jobs.get(f"TFJob/team/{document['metadata']['name']}")

    first = shown("1")
    running = shown("2", status={"conditions": [{"type": "Running", "status": "True"}]})
    assert running.replicas is first.replicas
    assert [c.type for c in running.status.conditions] == ["Running"]
    edited = wordy()["spec"]
    edited["tfReplicaSpecs"]["Worker"]["replicas"] = 3
    later = shown("3", spec=edited)
    assert [role.replicas for role in later.replicas] == [3]
    assert shown("4", spec=edited, status=ENDED).status.finished
    # What the CRD drops of a status is part of it, whoever changes what, but not of the next job.
    jobs.keep_unstored(later, {"state": "Queued"})
    assert shown("5", spec=edited, status={"reason": "r"}).status.state == "Queued"
    assert shown("6", status={}).status.state == "Queued"
    another = {**wordy()["metadata"], "uid": "another"}
    assert shown("7", metadata=another, status={}).status.state == ""


WAITS = {
    "conditions": [{"type": "Created", "status": "True"}],
    "gang": {"state": "Waiting", "message": "1 short", "position": 2},
}


@pytest.mark.parametrize(
    ("change", "asks"),
    [
        ({"status": {**WAITS, "gang": {**WAITS["gang"], "message": "2 short", "position": 7}}}, 0),
        ({"status": {}}, 0),
        ({"status": {**WAITS, "gang": {"state": "Queued"}}}, 0),
        ({"status": {**WAITS, "gang": {"state": "Reserved"}}}, 1),
        ({"status": {**WAITS, "gang": {"state": "Running"}}}, 1),
        ({"status": {**WAITS, "gang": {"state": "Released"}}}, 1),
        ({"status": {**WAITS, "startTime": "2026-01-01T00:00:00Z"}}, 0),
        ({"status": {**WAITS, "completionTime": "2026-01-01T00:00:00Z"}}, 1),
        ({"status": ENDED}, 1),
        ({"status": {"conditions": [{"type": "Running", "status": "True"}]}}, 1),
        ({"metadata": {"annotations": {"muster.kubeflow.org/estimated-seconds": "5"}}}, 1),
        ({"metadata": {"uid": "another"}}, 1),
        ({"spec": {"runPolicy": {"suspend": True}}}, 1),
    ],
)
def test_words_about_a_wait_ask_for_no_cycle(change, asks):
    """They come back from the server by the hundreds; all else may let somebody start."""
    cycles, passes = [], []
    jobs = Jobs({"TFJob": FRAMEWORKS["TFJob"]}, passes.append, lambda: cycles.append(1))
    document = wordy(status=WAITS)
    jobs.show("TFJob", document, False)
    (key,) = jobs.all_keys()
    assert jobs.get(key) is not None
    cycles.clear()
    passes.clear()
    news = copy.deepcopy(document)
    news["metadata"]["resourceVersion"] = "2"
    for field, value in change.items():
        news[field] = value if field == "status" else news[field] | value
    jobs.show("TFJob", news, False)
    assert len(cycles) == asks
    assert passes
    assert jobs.get(key).status.gang == read_status(news["status"]).gang


def old_mpijob(**metadata):
    """Return a job of v2beta1 that was stored before the field existed, as it is read now."""
    document = mpijob("v2beta1")
    document["spec"]["mpiVersion"] = "v1"
    document["metadata"] |= {"uid": "job-uid", "resourceVersion": "1", **metadata}
    return document


def test_managed_fields_decide_the_version_before_they_are_dropped():
    """What decides is read with the document; the managed fields themselves are not kept."""
    fields = {"f:spec": {"f:mpiReplicaSpecs": {".": {}}}}
    entry = {"apiVersion": "kubeflow.org/v2beta1", "fieldsV1": fields, "operation": "Update"}
    jobs, key = show(old_mpijob(managedFields=[entry]))
    assert jobs.get(key).api_version == "kubeflow.org/v2beta1"
    assert "managedFields" not in jobs.find(key)["metadata"]


@pytest.mark.parametrize("operator", ["mpi-operator", "mpijob-controller"])
@pytest.mark.parametrize("kind", ["Pod", "Service"])
def test_children_decide_the_version_without_managed_fields(kind, operator):
    """A backup may have restored the job without them."""
    store = Store(gang.EMBEDDED, [FRAMEWORKS["MPIJob"]])
    owner = reference(kind="MPIJob", api_version="kubeflow.org/v2beta1")
    metadata = {"name": "mnist-worker-0", "namespace": "team", "uid": "c", "resourceVersion": "2"}
    metadata |= {"labels": {names.OPERATOR_NAME: operator}, "ownerReferences": [owner]}
    child = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
    child["spec"] = {"containers": [{"name": "c", "image": "i"}]} if kind == "Pod" else {}
    store.put(child)
    store.put(old_mpijob())
    job = store.jobs.get("MPIJob/team/mnist")
    version = "v2beta1" if operator == "mpi-operator" else "v1"
    assert job.api_version == f"kubeflow.org/{version}"


SUSPENDED = {"runPolicy": {"suspend": True}}


def test_waiting_jobs_take_few_times_the_memory_of_their_documents():
    """As objects they would take many times as much."""
    jobs, size = Jobs({"TFJob": FRAMEWORKS["TFJob"]}, lambda _key: None, lambda: None), 0
    tracemalloc.start()
    for number in range(100):
        job = tfjob(Worker=2)
        job["metadata"] |= {"name": f"j{number}", "namespace": "team", "uid": f"u{number}"}
        (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
        container["env"] = [{"name": f"V{number}X{i}", "value": f"{i}"} for i in range(300)]
        jobs.show("TFJob", job, False)
        size += len(json.dumps(job))
        assert not jobs.get(f"TFJob/team/j{number}").problems
    del job, container
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 4 * size


def test_suspended_job_is_parsed_on_demand():
    """Of a job that may stay for long only its document is kept."""
    job = wordy()
    job["spec"] |= SUSPENDED
    jobs, key = show(job)
    entry = jobs.collections["TFJob"].get("team", "mnist")
    assert jobs.get(key).run_policy.suspend
    assert jobs.find(key)["spec"] == job["spec"]
    assert entry.job is None
    resumed = copy.deepcopy(job)
    resumed["spec"]["runPolicy"] = {"suspend": False}
    resumed["metadata"]["resourceVersion"] = "2"
    jobs.show("TFJob", resumed, False)
    assert jobs.get(key) is jobs.get(key)


class Crowd:
    """Jobs of 50 kB each, of which 120 kB fit in a namespace and 220 kB in all."""

    def __init__(self):
        """Begin without jobs."""
        self.requeued, self.running, self.version = [], set(), 0
        limits, children = DocumentLimits(120_000, 220_000), Children()
        children.has_pods = lambda owner: owner.name in self.running
        self.jobs = Jobs(
            {"TFJob": FRAMEWORKS["TFJob"]},
            self.requeued.append,
            lambda: None,
            children=children,
            limits=limits,
        )

    def show(self, name, minute, *, namespace="team", gone=False, text=LONG, **fields):
        """Show a job, or its end; return its key."""
        document = tfjob(Worker=2)
        (role,) = document["spec"]["tfReplicaSpecs"].values()
        role["template"]["metadata"] = {"annotations": {"long": text}}
        self.version += 1
        document["metadata"] |= {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        document["metadata"] |= {
            "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z",
            "resourceVersion": str(self.version),
            "managedFields": [{"manager": LONG}],
        }
        self.jobs.show("TFJob", {**document, **fields}, gone)
        return f"TFJob/{namespace}/{name}"

    def too_large(self):
        """Return the names of the jobs without a document."""
        jobs = (job for job in self.jobs if "TooLarge" in str(job.problems))
        return sorted(job.name for job in jobs)


def test_youngest_job_beyond_the_limit_of_its_namespace_or_of_all_is_too_large():
    """The managed fields are not counted, and the limit of all counts in each namespace."""
    crowd = Crowd()
    for name, minute in (("c", 3), ("a", 1)):
        crowd.show(name, minute)
    assert crowd.too_large() == []
    crowd.show("b", 2)
    assert crowd.too_large() == ["c"]
    crowd.show("d", 4, namespace="other")
    assert crowd.too_large() == ["c"]
    (problem,) = crowd.jobs.get("TFJob/team/c").problems
    assert "--max-job-bytes-per-namespace" in str(problem)
    assert len(json.dumps(crowd.jobs.find("TFJob/team/c"))) < 500
    crowd = Crowd()
    for minute, name in enumerate("abcde"):
        crowd.show(name, minute, namespace=f"team-{minute}")
    assert crowd.too_large() == ["e"]
    (problem,) = crowd.jobs.get("TFJob/team-4/e").problems
    assert "(--max-job-bytes)" in str(problem)


ADMITTED = {"gang": {"state": "Placed", "admissionTime": "2026-01-01T00:00:00Z"}}


def test_job_that_has_pods_or_was_admitted_is_never_too_large(monkeypatch):
    """The youngest of the others is, and all stay if there is none, at no cost for each."""
    crowd = Crowd()
    crowd.running.add("c")
    for minute, name in enumerate("abcd"):
        crowd.show(name, minute, **({"status": ADMITTED} if name in "bd" else {}))
    assert crowd.too_large() == ["a"]
    reads = []
    monkeypatch.setattr(status, "read", lambda read: reads.append(1) or read_status(read))
    for name in "efg":
        crowd.show(name, 5, status=ADMITTED)
    assert len(reads) == 3
    assert crowd.too_large() == ["a"]


def test_too_large_jobs_are_read_again_once_they_fit():
    """Their passes are requeued in turn as other jobs end, and the same version counts."""
    crowd = Crowd()
    keys = [crowd.show(name, minute) for minute, name in enumerate("abcd")]
    assert not crowd.jobs.fits(keys[2])
    crowd.requeued.clear()
    for minute, name in enumerate("ab"):
        crowd.show(name, minute, gone=True)
    assert "for the jobs of a namespace (" in str(crowd.jobs.get(keys[2]).problems)
    for minute, name in ((2, "c"), (3, "d")):
        assert crowd.jobs.fits(keys[minute])
        assert keys[minute] in crowd.requeued
        crowd.jobs.collections["TFJob"].doubt("team", name)
        crowd.version = minute
        crowd.show(name, minute)
    assert crowd.too_large() == []


def test_younger_jobs_follow_when_the_oldest_too_large_job_is_removed():
    """It needed more than was free, and they need less."""
    crowd = Crowd()
    crowd.show("a", 0)
    crowd.show("big", 1, text=2 * LONG)
    crowd.show("c", 2)
    last = crowd.show("d", 3)
    crowd.show("c", 2, gone=True)
    assert crowd.too_large() == ["big", "d"]
    crowd.requeued.clear()
    crowd.show("big", 1, text=2 * LONG, gone=True)
    assert last in crowd.requeued
    assert crowd.jobs.fits(last)


def test_too_large_job_is_read_again_once_its_pods_are_observed():
    """They may be listed after the jobs."""
    crowd = Crowd()
    for minute, name in enumerate("abc"):
        last = crowd.show(name, minute)
    crowd.running.add("c")
    assert crowd.jobs.fits(last)


def test_removed_jobs_leave_no_count_of_their_namespace():
    """A stream of namespaces with jobs leaves nothing."""
    crowd = Crowd()
    crowd.show("a", 0)
    crowd.show("a", 0, gone=True)
    assert not crowd.jobs._sizes
