# SPDX-License-Identifier: Apache-2.0
"""What is known of the cluster, without a client: who owns what, and whom a change concerns."""

from dataclasses import replace

import pytest

from muster import gang
from muster.api import edge, names
from muster.cluster.gangs import PriorityClass
from muster.controller import jobpods
from muster.controller.model import Refusal
from muster.frameworks import FRAMEWORKS
from muster.store import observe
from muster.store.away import AwayNodes
from muster.store.ondemand import Unwatched
from muster.store.store import Callbacks, Store
from support.apiserver.memory import tfjob
from support.builders.objects import make_owner, reference
from support.builders.scheduler import make_gang, make_node, make_queue, make_role
from support.rehearsal.call_count import calls

KEY, W0 = "TFJob/team/mnist", "mnist-worker-0"
LABELS = {
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}


def owned_by(owner):
    """Return the reference to that job of this name, or to a batch Job given by its document."""
    if isinstance(owner, str):
        return reference(uid=owner)
    named = {key: owner["metadata"][key] for key in ("uid", "name")}
    return reference(kind="Job", api_version="batch/v1", **named)


class Story:
    """A store with one job, and what it has asked for since it was last looked at."""

    def __init__(self, backend=gang.EMBEDDED, namespaces=()):
        """Begin with a job of one worker."""
        self.enqueued, self.cycles, self.arrived, self.version = [], [], [], 0
        self.ended = []
        callbacks = Callbacks(
            self.enqueued.append,
            lambda: self.cycles.append(self.version),
            self.arrived.append,
            ended=self.ended.append,
        )
        kinds = [FRAMEWORKS["TFJob"], FRAMEWORKS["MPIJob"]]
        self.store = Store(backend, kinds, namespaces, callbacks)
        self.put(tfjob(Worker=1), uid="job-uid")
        self.asked()

    def put(self, document, **metadata):
        """Show an object in its next version; return it as it was put in."""
        self.version += 1
        given = {"uid": f"uid-{document['metadata']['name']}", "namespace": "team"}
        given |= {**document["metadata"], "resourceVersion": str(self.version), **metadata}
        stored = {**document, "metadata": given}
        self.store.put(stored)
        return stored

    def pod(self, name=W0, *, owner="job-uid", node="", phase="Pending", status=None, **metadata):
        """Show a pod of somebody's."""
        owners = [owned_by(owner)] if owner else []
        given = {"name": name, "labels": LABELS, "ownerReferences": owners, **metadata}
        spec = {"containers": [], **({"nodeName": node} if node else {})}
        status = status or {"phase": phase}
        return self.put({"kind": "Pod", "metadata": given, "spec": spec, "status": status})

    def view(self):
        """Return the job's pod as it is known."""
        return self.store.children.pod("team", W0)

    def object(self, kind, name="mnist", *, owner="job-uid", **fields):
        """Show another object of somebody's."""
        owners = [owned_by(owner)] if owner else []
        metadata = {"name": name, "ownerReferences": owners}
        return self.put({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})

    def asked(self):
        """Return the jobs that were enqueued since the last look, and whether for a cycle."""
        found = set(self.enqueued), bool(self.cycles)
        self.enqueued.clear()
        self.cycles.clear()
        return found

    @property
    def job(self):
        """The job as it is at present."""
        return self.store.jobs.get(KEY)

    def own(self):
        """Return the uids of the job's own pods by place."""
        return {name: pod.uid for name, pod in self.store.children.own_pods(self.job).items()}

    def seen(self):
        """Return the owners of all pods that a pass over the job sees."""
        return [pod.owner.uid for pod in self.store.children.pods(self.job, [W0])]


@pytest.fixture
def story():
    """Return a story of the embedded scheduler."""
    return Story()


def test_a_pod_of_the_job(story):
    """By its owner and by its name; it asks for a pass, and for a node, as its successor does."""
    story.pod(uid="first")
    story.asked()
    story.pod()
    assert (story.own(), story.seen()) == ({W0: f"uid-{W0}"}, ["job-uid"])
    assert story.store.children.pod("team", W0).uid == f"uid-{W0}"
    assert story.asked() == ({KEY}, True)
    assert story.store.jobs.revision(KEY) == 3


def test_a_pod_that_begins_on_its_node_lets_nobody_start(story):
    """The allocator takes note of it, and needs no cycle until its room is free."""
    story.pod(node="n1")
    assert story.asked() == ({KEY}, False)
    assert [(pod.name, pod.node) for pod in story.arrived] == [(W0, "n1")]
    story.pod(node="n1", phase="Succeeded")
    assert story.asked() == ({KEY}, True)


def test_a_pod_of_another_owner_with_a_wanted_name(story):
    """The gang is evaluated again, as it may need the name; the pod does not belong to it.

    No owner keeps a name that was lost, whether the pod is a new one or has another owner.
    """
    story.pod(owner="stranger")
    assert (story.own(), story.seen()) == ({}, ["stranger"])
    assert story.asked()[0] == set()
    assert story.store.jobs.revision(KEY) == 1
    story.pod(uid="second")
    assert (story.own(), story.seen()) == ({W0: "second"}, ["job-uid"])
    assert story.store.children.own_pods(replace(story.job, uid="stranger")) == {}
    story.asked()
    story.pod(uid="second", owner="stranger")
    assert (story.own(), story.seen()) == ({}, ["stranger"])
    assert story.asked()[0] == {KEY}


def test_pods_that_a_batch_job_makes(story):
    """They stand in the place that their name says, for the batch Job's own owner."""
    batch = story.object("Job", "mnist-launcher")
    maker = batch["metadata"]["uid"]
    assert story.asked() == ({KEY}, True)
    story.pod(
        "mnist-launcher-x7", owner=batch, uid="old", creationTimestamp="2024-01-01T00:00:00Z"
    )
    story.pod(
        "mnist-launcher-z9",
        owner=batch,
        uid="new",
        node="n1",
        creationTimestamp="2024-01-02T00:00:00Z",
    )
    assert story.asked()[0] == {KEY}
    assert [pod.owner.uid for pod in story.store.children.pods(story.job, [])] == [maker, maker]
    assert {pod.owner for pod in story.store.children.own_pods(story.job).values()} == {
        make_owner()
    }
    assert [pod.owner for pod in story.arrived] == [make_owner()]
    before = story.store.jobs.revision(KEY)
    story.store.gone("Job", "team", "mnist-launcher", maker)
    assert story.own() == {}
    assert story.store.jobs.revision(KEY) > before


ELSEWHERE = [
    ("team", {"kind": "XJob"}),
    ("team", {"name": "another"}),
    ("team", {"api_version": "example.org/v1"}),
    ("evil", {}),
]
"""Namespace of an object, and what its controller reference says beside the job's own uid."""


@pytest.mark.parametrize(
    ("namespace", "fields"), ELSEWHERE, ids=["kind", "name", "group", "place"]
)
def test_whoever_writes_the_uid_of_a_job_into_his_own_objects(story, namespace, fields):
    """They are not the job's: it is not looked at, and what it sees and holds stays the same."""
    owners = [reference(**fields)]
    story.store.groups.use(gang.EMBEDDED.apis[0])
    before = sights(story)
    given = {"ownerReferences": owners, "namespace": namespace, "labels": LABELS}
    spec = {"containers": [], "nodeName": "n1"}
    batch = {"kind": "Job", "metadata": {"name": "theirs", **given}, "spec": {}}
    story.put(batch, uid="uid-of-theirs")
    for kind in ("Service", "ConfigMap", "PodGroup", "HorizontalPodAutoscaler"):
        made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "theirs", **given}}
        story.put(made, uid=f"their-{kind}")
    ends = {"phase": "Failed"}
    for uid, owner in (("p", owners[0]), ("q", owned_by(batch | {"metadata": MAKER}))):
        metadata = {"name": f"theirs-{uid}", **given, "uid": uid, "ownerReferences": [owner]}
        story.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": ends})
    assert story.asked()[0] == set()
    assert sights(story) == before
    assert not [pod for pod in story.arrived if story.store.jobs.key_of(pod.owner)]


MAKER = {"name": "theirs", "uid": "uid-of-theirs"}


def sights(story):
    """Return all that a pass and a cycle would see of the job."""
    store, job = story.store, story.job
    seen = observe.observe(store, Unwatched(None), job, FRAMEWORKS["TFJob"], 0.0)
    return seen, dict(store.children.own_pods(job)), store.jobs.revision(KEY)


def test_a_stranger_under_the_name_of_what_no_watch_shows():
    """It is kept in mind, whatever labels it has; what a watch shows needs not be."""
    story = Story(gang.KUBERNETES)
    strangers = Unwatched(None, gang.KUBERNETES.companions)
    metadata = {"name": "mnist", "namespace": "team", "uid": "u"}
    metadata["labels"] = {names.OPERATOR_NAME: "x"}
    for kind, known in (("Workload", True), ("Service", False)):
        document = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
        assert strangers.meet(story.job, kind, document) is known
    seen = observe.observe(story.store, strangers, story.job, FRAMEWORKS["TFJob"], 0.0)
    assert [(view.kind, view.name, view.owner) for view in seen.companions] == [
        ("Workload", "mnist", None)
    ]


def test_a_pod_that_is_called_as_a_job_of_another_namespace():
    """A kind may hold slashes, and yet the gang is found in the namespace of its pods."""
    story = Story()
    metadata = {"ownerReferences": [reference(kind="TFJob/team/mnist", name="x")]}
    pod = story.pod("theirs", owner="", namespace="evil")
    spec = {**pod["spec"], "schedulerName": "muster"}
    story.put({**pod, "spec": spec}, uid="u", **metadata)
    (key,) = story.store.foreign
    assert key.split("/", 2)[1] == "evil"
    story.asked()
    tolerant = {**spec, "tolerations": [{"operator": "Exists"}]}
    story.put({**pod, "spec": tolerant}, uid="u", **metadata)
    assert story.asked() == (set(), True)


def test_a_refusal_that_comes_after_the_job_has_gone(story):
    """As of all in a namespace that is being deleted: nobody is left to tell."""
    job = story.job
    story.store.gone("TFJob", "team", "mnist", "job-uid")
    story.asked()
    story.store.jobs.refuse(job, Refusal("Pod", W0, "Forbidden", "is being terminated", 1e12))
    assert story.asked() == (set(), False)
    assert not story.store.jobs._refusals
    story.put(tfjob(Worker=1), uid="next")
    assert story.store.jobs.refusal(story.job, 0.0) is None
    # The edit may have removed the cause.
    story.store.jobs.refuse(story.job, Refusal("Pod", W0, "Invalid", "no", 1e12))
    story.put(tfjob(Worker=2), uid="next", generation=2)
    assert story.store.jobs.refusal(story.job, 0.0) is None


def test_refusal_of_an_autoscaler_replaces_no_other_refusal(story):
    """Each ends by its own time, and both with the job."""
    jobs, job = story.store.jobs, story.job
    pod = Refusal("Pod", W0, "Forbidden", "no", 10.0)
    scaler = Refusal("HorizontalPodAutoscaler", "mnist", "Invalid", "bad", 20.0)
    jobs.refuse(job, pod)
    jobs.refuse(job, scaler)
    assert jobs.refusal(job, 0.0) == pod
    assert jobs.refusal(job, 0.0, of_autoscaler=True) == scaler
    assert jobs.refusal(job, 15.0) is None
    assert jobs.refusal(job, 15.0, of_autoscaler=True) == scaler
    story.store.gone("TFJob", "team", "mnist", "job-uid")
    assert not jobs._refusals


def test_other_objects_of_the_job(story):
    """Of one kind, by owner and by name; another owner's is seen where its name is wanted."""
    story.object("Service", W0)
    story.object("ConfigMap", "mnist-config", owner="stranger")
    assert story.asked() == ({KEY}, False)
    children = story.store.children
    assert [view.name for view in children.of(story.job, "Service", ())] == [W0]
    assert children.of(story.job, "ConfigMap", ()) == ()
    wanted = children.of(story.job, "ConfigMap", ["mnist-config"])
    assert [view.owner.uid for view in wanted] == ["stranger"]
    story.store.gone("Service", "team", W0, f"uid-{W0}")
    assert children.of(story.job, "Service", [W0]) == ()
    assert story.asked() == ({KEY}, False)


@pytest.mark.parametrize(("owner", "kept"), [("job-uid", True), ("", False)])
def test_what_is_kept_of_config_maps(story, owner, kept):
    """Of those of jobs what is in them; of others not, though they have our labels."""
    data = {"config": "x" * 1000}
    story.object("ConfigMap", "mnist-config", owner=owner, data=data)
    (view,) = story.store.children.of(story.job, "ConfigMap", ["mnist-config"])
    assert (view.data, view.content) == ((data, {"data": data}) if kept else ({}, {}))


def test_the_same_again_asks_for_nothing(story):
    """A new version that differs in nothing that is kept, and a kind that is not kept."""
    story.object("Service", W0)
    story.pod(node="n1")
    story.put({"kind": "Node", **make_node(name="n1")}, namespace="")
    story.asked()
    story.object("Service", W0)
    story.pod(node="n1")
    story.put({"kind": "Node", **make_node(name="n1")}, namespace="")
    story.put({"kind": "Secret", "metadata": {"name": "s"}})
    story.store.gone("Secret", "team", "s", "uid-s")
    assert story.asked() == (set(), False)


def test_nothing_is_kept_of_what_is_gone(story):
    """Neither by owner nor by name, so that memory grows with what there is."""
    children = story.store.children
    empty = {key: dict(value) for key, value in vars(children).items() if isinstance(value, dict)}
    story.object("Service", W0)
    batch = story.object("Job", "mnist-launcher")
    story.pod()
    story.pod("mnist-launcher-x7", owner=batch)
    ends = ("Pod", "mnist-launcher-x7"), ("Pod", W0), ("Job", "mnist-launcher"), ("Service", W0)
    for kind, name in ends:
        story.store.gone(kind, "team", name, f"uid-{name}")
    assert {key: vars(children)[key] for key in empty} == empty


def test_refused_jobs_are_reconciled_at_once_with_other_permissions(story):
    """A permission that is granted again does not wait for the end of a back-off of minutes."""
    jobs, job = story.store.jobs, story.job
    jobs.refuse(job, Refusal("Pod", W0, "Forbidden", "cannot create", 1e12))
    story.asked()
    jobs.enqueue_all()
    assert (jobs.refusal(job, 0.0), story.asked()[0]) == (None, {KEY})


def test_a_job_that_is_gone(story):
    """Its key and its uid lead nowhere; pods that it left ask for no pass."""
    story.store.jobs.refuse(story.job, Refusal("Pod", W0, "Forbidden", "quota", 1e12))
    story.store.gone("TFJob", "team", "mnist", "another")
    assert story.job is not None
    story.asked()
    story.store.gone("TFJob", "team", "mnist", "job-uid")
    assert story.asked() == ({KEY}, True)
    assert (story.job, story.store.jobs.key_of(make_owner())) == (None, None)
    story.pod()
    assert story.asked()[0] == set()


def test_jobs_that_a_list_does_not_hold(story):
    """They are gone, in the namespace of the list, unless they are newer than it."""
    shown_jobs = story.store.collections["TFJob"]
    story.put(tfjob(name="elsewhere", Worker=1), namespace="other")
    late = story.put(tfjob(name="late", Worker=1))
    listed = int(late["metadata"]["resourceVersion"]) - 1
    shown_jobs.listed("team", set(), listed)
    assert {job.name for job in story.store.jobs} == {"elsewhere", "late"}
    shown_jobs.listed("", {("team", "late")}, listed + 1)
    assert {job.name for job in story.store.jobs} == {"late"}


def test_a_group_is_found_through_the_api_that_is_served(story):
    """Before it is known which one that is there are no groups, nor after it has gone."""
    groups, (api, *_) = story.store.groups, gang.EMBEDDED.apis
    document = {"apiVersion": api.api_version, "spec": {"minMember": 1}}
    story.object("PodGroup", **document)
    assert (groups.missing, story.store.group(story.job)) == (False, None)
    groups.sought = True
    assert groups.missing
    groups.use(api)
    story.object("PodGroup", **document)
    found = story.store.group(story.job)
    assert story.store.is_of_job(found)
    assert (groups.missing, story.asked()) == (False, ({KEY}, False))
    groups.use(None)
    assert (groups.missing, story.store.group(story.job)) == (True, None)


def test_a_stranger_frees_the_name_of_a_jobs_group(story):
    """The job is looked at again, although nothing of its own has changed."""
    story.store.groups.use(gang.EMBEDDED.apis[0])
    story.object("PodGroup", owner="stranger")
    assert not story.store.is_of_job(story.store.group(story.job))
    story.asked()
    story.store.gone("PodGroup", "team", "mnist", "uid-mnist")
    assert story.asked()[0] == {KEY}


def test_a_group_of_foreign_pods(story):
    """Found by the key of the gang, and each change of it makes a new revision of the gang."""
    store, metadata = story.store, {"scheduling.k8s.io/group-name": "g"}
    store.groups.use(gang.EMBEDDED.apis[0])
    pod = story.pod("a", owner="", annotations=metadata)
    spec = {**pod["spec"], "schedulerName": "muster"}
    story.put({**pod, "spec": spec}, uid="uid-b", name="b")
    key = "PodGroup/team/g"
    assert [member.name for member, _ in store.foreign.members(key)] == ["b"]
    assert store.podgroups.find(key) is None
    before = store.foreign.revision(key)
    story.asked()
    story.object("PodGroup", "g", owner="", spec={"minMember": 2})
    assert store.podgroups.find(key).spec == {"minMember": 2}
    assert store.foreign.revision(key) > before
    assert story.asked() == (set(), True)


BUDGET = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}


def test_a_budget_costs_what_it_is_about():
    """However many other gangs there are: each may come with a budget of its own."""

    def cost(count):
        story = Story()
        others = story.store.podgroups.others["budget"]
        budgets = others.use(others.backend.apis[0])
        for number in range(count):
            made = {"kind": "Job", "api_version": "batch/v1", "name": f"j{number}"}
            owners = [reference(uid=f"u{number}", **made)]
            pod = story.pod(f"p{number}", owner="", ownerReferences=owners)
            story.put({**pod, "spec": {**pod["spec"], "schedulerName": "muster"}})
        assert len(list(story.store.foreign)) == count
        given = {"namespace": "team", "uid": "b", "resourceVersion": "1000"}
        budget = BUDGET | {"metadata": {"name": "b", "ownerReferences": owners, **given}}
        return calls(lambda: budgets.take(budget))

    assert cost(40) < 1.5 * cost(10)


def test_budget_that_loses_its_owner_is_no_longer_the_group_of_its_pods(story):
    """The gang would wait for a minimum that is not asked for any more."""
    others = story.store.podgroups.others["budget"]
    budgets = others.use(others.backend.apis[0])
    owners = [reference(uid="u", kind="Job", api_version="batch/v1", name="j")]
    pod = story.pod("p", owner="", ownerReferences=owners)
    story.put({**pod, "spec": {**pod["spec"], "schedulerName": "muster"}})
    for version, found in (("1", owners), ("2", [])):
        given = {"name": "b", "namespace": "team", "uid": "b", "resourceVersion": version}
        budgets.take(BUDGET | {"metadata": {**given, "ownerReferences": found}})
        assert bool(story.store.podgroups.find("Job/team/j")) is bool(found)


def test_the_schedulers_queues(story):
    """They are not known before all are; a change of one is a reason to look at every job."""
    groups = Story(gang.VOLCANO).store.groups
    assert groups.queues is None
    found = story.store.groups
    queues = found.use_queues()
    queues.take({"metadata": {"name": "a", "resourceVersion": "1"}})
    assert found.queues is None
    queues.listed("", {("", "a")}, 2)
    assert found.queues == {"a": "Open"}
    assert story.asked()[0] == {KEY}
    found.use(None)
    assert found.queues is None


def test_what_is_known_of_a_node(story):
    """Nothing before the first list; then that it is there, or gone."""
    assert story.store.knows_node("n1") is None
    story.put({"kind": "Node", **make_node(name="n1")}, namespace="")
    assert story.store.knows_node("n1") is None
    story.store.collections["Node"].listed("", {("", "n1")}, 1000)
    assert story.store.knows_node("n1") is True
    assert story.store.knows_node("n2") is False
    assert Story(gang.VOLCANO).store.knows_node("n1") is None


@pytest.mark.parametrize(
    ("kind", "space", "fields"),
    [
        ("Node", "", make_node(name="o")),
        ("Queue", "", {}),
        ("PriorityClass", "", {"value": 7}),
        ("ResourceQuota", "team", {"spec": {"hard": {"pods": "1"}}}),
        ("LimitRange", "team", {"spec": {"limits": []}}),
        ("PersistentVolumeClaim", "team", {"spec": {}}),
        ("StorageClass", "", {}),
    ],
)
def test_what_may_let_a_gang_start_asks_for_a_cycle(story, kind, space, fields):
    """By coming and by going, and for no pass over any job."""
    story.put({"metadata": {"name": "o"}, "kind": kind, **fields}, namespace=space)
    assert story.asked() == (set(), True)
    story.store.gone(kind, space, "o", "uid-o")
    assert story.asked() == (set(), True)


def test_queues_priorities_and_budgets(story):
    """By name; what was made with the old priorities can tell that there are others."""
    store, before = story.store, story.store.priorities
    calm = {"value": 7, "globalDefault": True, "preemptionPolicy": "Never"}
    story.put({"kind": "PriorityClass", "metadata": {"name": "high"}, **calm}, namespace="")
    assert (store.priorities, before) == ({"high": 7}, {})
    assert store.classes["high"] == PriorityClass("high", 7, default=True, polite=True)
    status = {"state": "Open"}
    queue = {"kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 3}, "status": status}
    story.put(queue, namespace="")
    assert (store.queues["q"].weight, store.queue_status["q"]) == (3, ("uid-q", status))
    store.gone("Queue", "", "q", "uid-q")
    assert (store.queues, store.queue_status) == ({}, {})
    story.pod(node="n1")
    budget = {"kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    story.put(budget | {"spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}})
    assert store.budgets.forbid("team", store.children.own_pods(story.job).values())
    store.gone("PodDisruptionBudget", "team", "b", "uid-b")
    assert not store.budgets.forbid("team", store.children.own_pods(story.job).values())


def test_without_an_allocator_only_what_is_of_jobs_is_kept():
    """Nodes and the like are nobody's business; pods still ask for a pass, but for no cycle."""
    story = Story(gang.VOLCANO)
    story.put({"kind": "Node", **make_node(name="n1")}, namespace="")
    story.pod(node="n1")
    assert story.asked() == ({KEY}, False)
    assert (story.arrived, story.own()) == ([], {W0: f"uid-{W0}"})
    assert "Node" not in story.store.collections


def test_what_is_in_other_namespaces():
    """Beside the jobs' namespaces, the embedded scheduler counts the pods on all nodes."""
    volcano, embedded = Story(gang.VOLCANO, ["team"]), Story(gang.EMBEDDED, ["team"])
    for story in (volcano, embedded):
        story.pod(namespace="other")
        story.put({"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "other"}})
        assert story.store.collections["ConfigMap"].objects == {}
    assert volcano.store.children.pod("other", W0) is None
    assert embedded.store.children.pod("other", W0) is not None
    assert names.BATCH_JOB in embedded.store.collections


def test_a_friend_that_begins_on_its_node_may_let_a_gang_start(story):
    """One that somebody waits to be near; not one that was expected, or that nobody waits for."""
    columns = story.store.columns
    near = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
    terms = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    gangs = [make_gang(roles=[make_role(replicas=1, cpu=1, affinity=terms)])]
    columns.snapshot(gangs, [make_queue()], 0.0)
    story.pod(name="other", owner="", node="n1", labels={"app": "web"})
    assert story.asked()[1] is False
    story.pod(name="db", owner="", node="n1", labels={"app": "db"})
    assert story.asked()[1] is True
    columns.assume("team", "expected", "n1", gangs[0].roles[0].shape)
    story.pod(name="expected", owner="", node="n1", labels={"app": "db"})
    assert story.asked()[1] is False


DOWN = 1_700_000_000.0


def heartbeat(story, *nodes, ready="True", at=DOWN, **labels):
    """Store nodes whose condition Ready has that status since then."""
    for name in nodes:
        document = make_node(name=name, labels=labels)
        state = {"type": "Ready", "status": ready, "lastTransitionTime": edge.format_time(at)}
        document["status"]["conditions"] = [state]
        story.put({"kind": "Node", **document}, namespace="")


def observed(story, now):
    """Return the first worker as a reconcile of the job observes it."""
    job = story.job
    found = observe.observe(story.store, Unwatched(None), job, FRAMEWORKS["TFJob"], now)
    return next(pod for pod in found.pods if pod.name == W0), found.loses_at


def test_pod_on_unreachable_node_is_lost_after_its_own_toleration(story):
    """The API server adds 300 seconds to a pod whose template tolerates nothing."""
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    added = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    pod = story.pod(node="n1", phase="Running")
    pod["spec"]["tolerations"] = [{**added, "key": key} for key in keys]
    story.put(pod)
    heartbeat(story, "n1", ready="Unknown")
    heartbeat(story, "n2")
    for now, expected, due in (
        (DOWN + 59, (False, False), DOWN + 60),
        (DOWN + 60, (True, False), DOWN + 300),
        (DOWN + 300, (True, True), None),
    ):
        pod, loses_at = observed(story, now)
        assert ((pod.unreachable, pod.lost), loses_at) == (expected, due)


def test_no_pod_is_lost_in_an_outage(story):
    """The job reports the unreachable nodes, and is evaluated again when the outage ends."""
    clock = [DOWN]
    story.store.away = AwayNodes(story.store.columns.on, clock=lambda: clock[0])
    names_ = [f"n{index}" for index in range(4)]
    heartbeat(story, *names_)
    story.store.collections["Node"].reach("", 0)
    for index in range(4):
        story.pod(f"mnist-worker-{index}", node=f"n{index}", phase="Running")
    heartbeat(story, *names_[:3], ready="Unknown")
    assert {pod.node for pod in story.store.stranded()} == {"n0", "n1", "n2"}
    pod, loses_at = observed(story, DOWN + 300)
    assert ((pod.unreachable, pod.lost), loses_at) == ((True, False), None)
    clock[0] += 300
    story.asked()
    heartbeat(story, "n2", at=DOWN + 300)
    assert story.asked() == ({KEY}, True)
    pod, loses_at = observed(story, DOWN + 300)
    assert ((pod.unreachable, pod.lost), loses_at) == ((True, False), DOWN + 360)
    assert {pod.node for pod in story.store.stranded()} == {"n0", "n1"}
    assert observed(story, DOWN + 360)[0].lost


def test_outage_ends_with_a_heartbeat_of_a_reachable_node(story):
    """Nodes that are unreachable for a day are not counted, though none of them changes."""
    clock = [DOWN]
    story.store.away = AwayNodes(story.store.columns.on, clock=lambda: clock[0])
    heartbeat(story, "n0", "n1", "n2", ready="Unknown")
    heartbeat(story, "n3")
    story.store.collections["Node"].reach("", 0)
    story.pod(node="n0", phase="Running")
    heartbeat(story, "n3")
    assert story.asked()[0] == {KEY}
    clock[0] += 24 * 3600 + 1
    heartbeat(story, "n3")
    assert story.asked() == ({KEY}, True)
    assert observed(story, clock[0] + 60)[0].lost


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_end_of_a_pod_is_recorded_once(phase):
    """Later changes of the pod report no other end."""
    story = Story()
    story.pod(phase="Running")
    assert story.ended == []
    story.pod(phase=phase)
    story.pod(phase=phase, labels={**LABELS, "more": "a"})
    assert story.ended == ["TFJob/team/mnist"]


OUT_OF_CPU = {"phase": "Failed", "reason": "OutOfcpu", "containerStatuses": None}


def test_pod_that_a_restarted_kubelet_rejects_is_known_to_have_run(story):
    """The kubelet reports no containers of it any more; a later version changes nothing."""
    for status in ({"phase": "Running"}, OUT_OF_CPU, OUT_OF_CPU):
        story.pod(status=status, creationTimestamp=edge.format_time(5))
    assert jobpods.rejected(story.view())
    assert not jobpods.refused(story.view())
    story.pod(status=OUT_OF_CPU, uid="next")
    assert jobpods.refused(story.view())


@pytest.mark.parametrize(
    ("reason", "suspects"), [("OutOfcpu", {"n1", "n2"}), ("Terminated", {"n1", "n2"}), ("", set())]
)
def test_node_that_rejects_or_ends_pods_is_suspected(story, reason, suspects):
    """The pods of two jobs fail on two nodes; if their programs failed, no node is suspected."""
    status = {"phase": "Failed", "reason": reason, "startTime": edge.format_time(5)}
    for index, owner in enumerate(("job-uid", "other") * 2):
        story.pod(f"p{index}", owner=owner, node=f"n{1 + index // 2}", status=status)
    assert story.store.suspects.nodes("team", 10.0) == suspects


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_ended_keeps_its_end_when_a_restarted_kubelet_rejects_it(story, phase):
    """Neither a success nor the exit code of a failure is lost."""
    ended = {"terminated": {"exitCode": 3 * (phase == "Failed")}}
    container = {"name": "tensorflow", "state": ended}
    story.pod(status={"phase": phase, "containerStatuses": [container]})
    before = story.view()
    story.pod(status=OUT_OF_CPU, deletionTimestamp=edge.format_time(5))
    assert story.view() == replace(before, deleting=True, deletion=5)


def test_removal_of_a_namespace_is_notified():
    """A change of its labels is not."""
    removed = []
    store = Store(gang.EMBEDDED, [], callbacks=Callbacks(space_removed=removed.append))
    spaces = store.collections["Namespace"]
    for version, labels in ("1", {}), ("2", {"a": "b"}):
        metadata = {"name": "team", "uid": "u", "resourceVersion": version, "labels": labels}
        spaces.take({"metadata": metadata})
    assert not removed
    spaces.remove({"metadata": {**metadata, "resourceVersion": "3"}})
    assert removed == ["team"]
    assert not store.dry_runs._changes_in
