# SPDX-License-Identifier: Apache-2.0
"""Jobs and pods in, the allocator's view of their gangs out."""

import tracemalloc
from dataclasses import replace
from math import inf

import pytest

from muster import gang
from muster.allocator import members, tracker
from muster.allocator.members import GangSettings, Template
from muster.allocator.tracker import Assumed, Leaving, Retry
from muster.allocator.verdict import RELEASE
from muster.api.model import RunPolicy
from muster.api.status import Condition, JobStatus, ReplicaStatus, Verdict
from muster.cluster import gangs
from muster.cluster.gangs import GangRules, PriorityClass
from muster.frameworks import FRAMEWORKS, load
from muster.scheduler.model import Topology
from muster.store import jobs
from muster.store.store import Store
from support.apiserver.memory import of_kind, tfjob
from support.builders.mpijobs import mpijob, role
from support.builders.objects import make_job, make_pod, make_replica, make_template
from support.rehearsal.gang_tracking import Shown

CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
FOND = {"weight": 1, "podAffinityTerm": TERM}
RATHER_APART = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [FOND]}}
RULES = GangRules(frozenset({"muster"}), "default", {"high": 1000, "low": 1})
SYSTEM = "system-node-critical"
W0, W1, W2 = (f"mnist-worker-{i}" for i in range(3))
AGAIN = {"failures_before": 1}
REFUSED = {"reason": "OutOfcpu"}


def workers(count=3, **template):
    """Return the role of so many workers, which are replaced when they fail."""
    return make_replica(
        replicas=count, restart_policy="OnFailure", template=make_template(**template)
    )


def look(
    *pods,
    job=None,
    placed=None,
    previous=None,
    later=(),
    placed_at=None,
    leaving=(),
    nominated=None,
    unbound=(),
    charges=None,
):
    """Return the first step of the gang of a job of three workers, or of another one."""
    facts = facts_of(pods, job or make_job(replicas=[workers()]), charges=charges)
    shape = facts.tasks[0].shape if facts.tasks else None
    memory = replace(
        tracker.begin(facts),
        assumed={place: Assumed(node, shape, 0.0) for place, node in (placed or {}).items()},
        previous=previous or {},
        retries={place: Retry(2, 9.0) for place in later},
        placed_at=placed_at,
        leaving={pod.name: Leaving(pod.uid, RELEASE) for pod in pods if pod.name in leaving},
        nominated=nominated or {},
        unbound=frozenset(unbound),
    )
    return tracker.step(memory, facts, 0.0)


def see(*pods, **more):
    """Return the gang of a job of three workers, or of another one."""
    return look(*pods, **more).memory.input


def facts_of(given, job, *, charges=None, rules=RULES, pods=None):
    """Return what is known of the job's gang; `pods` by place, where names differ."""
    template = Template(
        of=("", 0, 0, 0),
        answers={},
        tasks=gangs.task_sets(job, rules, gangs.templates(job), charges or {}),
        obstacle=None,
        wanted=job.pod_names(job.replicas),
        free=frozenset(),
        late=gangs.late_names(job),
    )
    blank, settings = Verdict("muster", "Waiting"), GangSettings(rules, on_hold_expired="keep")
    there = {pod.name: pod for pod in given} if pods is None else pods
    return members.job_facts(job, there, template, settings, blank)


def worker(index, **fields):
    """Return a worker's pod."""
    return make_pod(name=f"mnist-worker-{index}", index=index, **fields)


def status(state):
    """Return the status of a job whose gang was seen in that state."""
    return JobStatus(gang=Verdict("muster", state, "mnist"))


def lists(gang):
    """Return waiting, returning, held and the counts of gated and succeeded, of the first role."""
    role = gang.roles[0]
    return (
        list(role.waiting),
        list(role.returning),
        list(role.held),
        (role.gated, role.succeeded),
    )


class TestTasks:
    """Every wanted pod is one task, in exactly one list."""

    @pytest.mark.parametrize(
        ("pod", "expected"),
        [
            (worker(0), ([0, 1, 2], [], [], (0, 0))),
            (worker(0, node="n1"), ([1, 2], [], [(0, "n1")], (0, 0))),
            (worker(0, node="n1", phase="Running"), ([1, 2], [], [(0, "n1")], (0, 0))),
            (worker(0, node="n1", phase="Succeeded"), ([1, 2], [], [], (0, 1))),
            (worker(0, node="n1", phase="Failed"), ([0, 1, 2], [], [], (0, 0))),
            (worker(0, node="n1", phase="Failed", **AGAIN), ([1, 2], [0], [], (0, 0))),
            (worker(0, node="n1", phase="Failed", **REFUSED), ([0, 1, 2], [], [], (0, 0))),
            (worker(0, node="n1", deleting=True), ([1, 2], [0], [], (0, 0))),
            (worker(0, deleting=True), ([1, 2], [0], [], (0, 0))),
            (worker(0, gated=True), ([1, 2], [], [], (1, 0))),
        ],
        ids=[
            "unbound",
            "bound",
            "running",
            "done",
            "failed",
            "failed-again",
            "refused",
            "going",
            "going-unbound",
            "gated",
        ],
    )
    def test_a_pod_in_every_state(self, pod, expected):
        """Where the task of the first worker is counted."""
        assert lists(see(pod)) == expected

    @pytest.mark.parametrize(
        "pods",
        [(), (worker(0, phase="Failed", reason="UnexpectedAdmissionError", node="n1"),),
         (worker(0, phase="Succeeded", node="n1", lost=True),)],
        ids=["removed", "rejected", "lost"],
    )  # fmt: skip
    def test_completed_index_has_done_its_work(self, pods):
        """The index wants no node and is ready, whatever happened to its pod."""
        done = JobStatus(replicas={"Worker": ReplicaStatus(completed=frozenset({0, 7}))})
        job = make_job(replicas=[workers()], status=done)
        assert lists(see(*pods, job=job)) == ([1, 2], [], [], (0, 1))
        assert facts_of(pods, job).ready == 1

    def test_promises_are_held(self):
        """A promise counts as a node, also while the pod before it is still there."""
        job = make_job(replicas=[workers()], status=status("Running"))
        failed = worker(1, node="n9", phase="Failed")
        gang = see(failed, job=job, placed={W0: "n1", W1: "n2"})
        assert lists(gang) == ([2], [], [(0, "n1"), (1, "n2")], (0, 0))

    def test_pods_that_are_being_evicted(self):
        """Their places are wanted again, but not now, and their room is about to come free."""
        assert lists(see(later={W1})) == ([0, 2], [1], [], (0, 0))
        gang = see(worker(0, node="n1"), worker(1, node="n2"), leaving={W1, W2})
        assert lists(gang) == ([2], [1], [(0, "n1")], (0, 0))
        assert gang.roles[0].leaving == ((1, "n2"),)
        pausing = see(worker(1, node="n2"), leaving={W1}, later={W1})
        assert pausing.roles[0].leaving == ((1, "n2"),)
        going = see(worker(1, node="n2", deleting=True), leaving={W1})
        assert (lists(going)[1], going.roles[0].leaving) == ([1], ())

    def test_since_when_tasks_run(self):
        """By their pods; a promised task has not run at all."""
        pods = (worker(0, node="n1", created=5.0), worker(1, node="n1", created=5.0, started=9.0))
        assert see(*pods, placed={W2: "n2"}).roles[0].started == (5.0, 9.0, inf)

    def test_nodes_that_are_kept(self):
        """By index, for tasks that wait and for those that come back."""
        gang = see(worker(1, node="n2", deleting=True), nominated={W0: "n1", W1: "n2", "x": "n3"})
        assert gang.roles[0].nominated == {0: "n1", 1: "n2"}
        assert see(nominated={W0: "n1"}).roles[0].nominated == {0: "n1"}

    def test_what_keeps_the_cluster_at_work(self):
        """By its namespace, or by a class that its pods were let in with."""
        assert not see().critical
        assert see(worker(0, priority_class=SYSTEM)).critical
        assert see(job=replace(make_job(replicas=[workers()]), namespace="kube-system")).critical

    @pytest.mark.parametrize(
        ("template", "policy", "movable"),
        [
            ({}, "OnFailure", True),
            ({"nodeSelector": {"a": "b"}}, "ExitCode", True),
            ({}, "Never", False),
            ({"schedulingGates": [{"name": "a"}]}, "OnFailure", False),
            ({"nodeName": "n1"}, "OnFailure", False),
            ({"volumes": [CLAIM]}, "OnFailure", False),
            ({"affinity": APART}, "OnFailure", False),
            ({"affinity": RATHER_APART}, "OnFailure", True),
        ],
    )
    def test_what_may_be_moved(self, template, policy, movable):
        """Who may start again, and is tied to its nodes by nothing but room and labels."""
        role = make_replica(replicas=2, restart_policy=policy, template=make_template(**template))
        assert see(job=make_job(replicas=[role])).movable is movable

    def test_new_pods_with_gates(self):
        """They are no candidates before they exist without their gates."""
        job = make_job(replicas=[workers(schedulingGates=[{"name": "a"}])])
        assert lists(see(job=job)) == ([], [], [], (3, 0))
        assert lists(see(worker(1), job=job)) == ([1], [], [], (2, 0))

    def test_pods_that_were_given_a_node_selector_of_their_own(self):
        """They are placed by it, and are else as those that have the template's."""
        mount = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
        job = make_job(replicas=[workers(nodeSelector={"flavor": "solid"}, volumes=[mount])])
        asked = {"flavor": "solid", "kubernetes.io/hostname": "n1"}
        pods = (worker(0, selector={"flavor": "solid"}), worker(1, selector=asked))
        rest, apart = see(*pods, job=job).roles
        assert (list(rest.waiting), list(apart.waiting)) == ([0, 2], [1])
        assert rest.role == apart.role == "worker"
        assert dict(apart.shape.selector) == asked
        assert dict(rest.shape.selector) == {"flavor": "solid"}
        assert apart.shape.claims == rest.shape.claims == ((job.namespace, "data"),)
        assert apart.shape.identity == rest.shape.identity

    def test_the_node_before(self):
        """Only of tasks that want one."""
        gang = see(worker(0, node="n1"), previous={W0: "n1", W1: "n2"})
        assert gang.roles[0].previous == {1: "n2"}


class TestGang:
    """Minimum, queue, priority, and whether it was whole before."""

    def test_the_policy_of_the_job(self):
        """Queue, minimum, resources, priority (U8); templates may name the priority (U11)."""
        policy = {
            "min_available": 2,
            "queue": "blue",
            "min_resources": {"cpu": "1500m"},
            "priority_class": "high",
        }
        gang = see(job=make_job(replicas=[workers()], scheduling=policy))
        assert (gang.queue, gang.min_member, gang.priority) == ("blue", 2, 1000)
        assert gang.min_resources == {"cpu": 1500}
        gang = see(job=make_job(replicas=[workers(priority="low")]))
        assert (gang.priority, gang.roles[0].priority) == (1, 1)

    def test_the_class_of_pods_that_name_none(self):
        """The default class has a value too, and some classes evict nobody (preemptionPolicy)."""
        classes = {
            name: PriorityClass(name, value, **fields)
            for name, value, fields in (
                ("normal", 50, {"default": True}),
                ("usual", 60, {"default": True}),
                ("calm", 2000, {"polite": True}),
            )
        }
        rules = RULES.knowing(classes)
        plain = facts_of((), make_job(replicas=[workers()]), rules=rules)
        assert (plain.asks.priority, plain.tasks[0].priority, plain.asks.polite) == (50, 50, False)
        calm = facts_of((), make_job(replicas=[workers(priority="calm")]), rules=rules)
        assert (calm.asks.priority, calm.asks.polite) == (2000, True)
        assert (plain.asks.priority_class, calm.asks.priority_class) == ("normal", "calm")
        calm_too = RULES.knowing({"normal": replace(classes["normal"], polite=True)})
        assert facts_of((), make_job(replicas=[workers()]), rules=calm_too).asks.polite

    def test_a_class_that_the_api_server_did_not_judge(self):
        """Nobody may evict for it, and it keeps nobody: what counts is what the pods carry."""
        policy = {"priority_class": "high"}
        job = make_job(replicas=[workers()], scheduling=policy)
        assert (see(job=job).priority, see(job=job).roles[0].priority) == (1000, 1000)
        # Named when the pods were there already.
        assert see(worker(0, node="n1"), job=job).priority == 0
        assert see(worker(0, node="n1", priority_class="high"), job=job).priority == 1000
        # As they were admitted: their class has been deleted, or made anew with a lower value.
        kept = worker(0, node="n1", priority_class="high", priority=5000)
        assert see(kept, job=job).priority == 5000
        assert see(replace(kept, priority_class="x")).priority == 5000
        assert see(replace(kept, phase="Failed"), job=job).priority == 1000
        # None of the pods will have it.
        low = [workers(priority="low"), make_replica(type="PS", replicas=0)]
        assert see(job=make_job(replicas=low, scheduling=policy)).priority == 1
        critical = make_job(replicas=[workers()], scheduling={"priority_class": SYSTEM})
        assert not see(job=critical).critical
        # Quotas that have classes as their scope see it, too.
        assert gangs.templates(job)["Worker"] == job.replicas[0].template
        spec = gangs.templates(job, {"high"})["Worker"]["spec"]
        assert spec["priorityClassName"] == "high"

    def test_pods_of_another_scheduler(self):
        """They are no tasks, the minimum is that of the others, and their nodes admit nobody."""
        ps = make_replica(type="PS", replicas=2, template=make_template(scheduler="default"))
        pod = make_pod(name="mnist-ps-0", role="ps", node="n1", phase="Running")
        gang = see(pod, job=make_job(replicas=[ps, workers()]))
        assert [role.role for role in gang.roles] == ["worker"]
        assert (gang.min_member, gang.admitted) == (3, False)
        assert see(job=make_job(replicas=[workers(scheduler="default")])) is None

    def test_nodes_are_not_kept_beyond_all_measure(self):
        """For pods that do not come; however long its owner would."""
        job = make_job(replicas=[workers()], scheduling={"schedule_timeout_seconds": 2**31 - 1})
        assert facts_of((), job).timeout == 86_400
        rules = replace(RULES, max_schedule_timeout=90.0)
        assert facts_of((), job, rules=rules).timeout == 90

    @pytest.mark.parametrize(
        ("pods", "state", "admitted"),
        [
            ([], "Waiting", False),
            ([worker(0)], "Waiting", False),
            ([worker(0, node="n1")], "Waiting", True),
            ([worker(0, node="n1", phase="Failed")], "Waiting", False),
            ([], "Running", True),
            ([], "Degraded", True),
            ([], "Placed", True),
            ([], "Released", False),
        ],
    )
    def test_admitted(self, pods, state, admitted):
        """A gang with a pod on a node, or that was whole before."""
        job = make_job(replicas=[workers()], status=status(state))
        assert see(*pods, job=job).admitted is admitted

    def test_missing(self):
        """What neither has a node, nor a promise, nor an end."""
        pods = [worker(0, node="n1"), worker(1, phase="Succeeded")]
        assert gangs.missing(see(*pods)) == 1
        assert gangs.missing(see(*pods, placed={W2: "n1"})) == 0


class TestTimes:
    """How long a gang runs, since when, and until when it waits for drained nodes."""

    ANNOTATED = {"muster.kubeflow.org/estimated-seconds": "300"}  # noqa: RUF012 -- read only

    def test_nobody_knows(self):
        """Without deadline and estimate it may run for ever; nodes are drained for it by age."""
        gang = see()
        assert (gang.duration, gang.deadline, gang.started) == (inf, inf, None)
        assert gang.drains_from == inf
        rules = replace(RULES, reservation_after=600.0)
        job = make_job(created=50.0)
        assert facts_of((), job, rules=rules).asks.drains_from == 650.0

    @pytest.mark.parametrize(
        ("annotations", "limit", "began", "expected"),
        [
            (ANNOTATED, None, None, (300, inf)),
            ({}, 60, None, (60, inf)),
            (ANNOTATED, 60, None, (60, inf)),
            ({}, 60, 1000.0, (inf, 1060.0)),
            (ANNOTATED, 60, 1000.0, (300, 1060.0)),
            ({"muster.kubeflow.org/estimated-seconds": "soon"}, None, None, (inf, inf)),
        ],
    )
    def test_estimate_and_deadline(self, annotations, limit, began, expected):
        """The deadline counts from the admission of the gang, and so does the estimate."""
        placed = Verdict("muster", "Placed", "mnist", admission_time=began)
        job = make_job(
            annotations=annotations,
            run_policy=RunPolicy(active_deadline_seconds=limit),
            status=JobStatus(start_time=500.0, gang=placed),
        )
        gang = see(job=job)
        assert (gang.duration, gang.deadline) == expected

    def test_since_when_it_runs(self):
        """By the condition, else by the moment of placement, else by its youngest pod."""
        pods = [worker(0, node="n1", created=20.0), worker(1, node="n1", created=30.0)]
        running = Condition("Running", "True", "TFJobRunning", "", 40.0, 40.0)
        job = make_job(replicas=[workers()], status=JobStatus(conditions=(running,)))
        assert see(*pods).started == 30.0
        assert see(*pods, placed_at=35.0).started == 35.0
        assert see(*pods, placed_at=35.0, job=job).started == 40.0
        assert see(placed_at=35.0, job=job).started == 35.0
        assert see(worker(0, created=9.0)).started is None


def test_pods_are_charged_to_the_quotas_of_their_namespace():
    """A quota counts pods that exist itself, but not yet those that may be created."""

    def charged(*pods, **fields):
        step = look(*pods, charges={"worker": {"team/few/pods": 1000}}, **fields)
        assert step.memory.input.roles[0].charge == {"team/few/pods": 1000}
        return step.memory.input.roles[0].absent, dict(step.memory.input.pending)

    assert charged(worker(0), worker(1, node="n1")) == ({2}, {})
    assert charged(unbound={W0, W1}) == ({2}, {"team/few/pods": 2000})
    job = make_job(replicas=[workers()], status=status("Running"))
    placed = {W0: "n1", W1: "n1"}
    assert charged(worker(0), job=job, placed=placed) == ({2}, {"team/few/pods": 1000})


class TestPodsOfBatchJobs:
    """MPIJobs, whose launcher may come last."""

    WAITS = {"launcherCreationPolicy": "WaitForWorkersReady"}  # noqa: RUF012 -- read only

    @pytest.mark.parametrize(
        ("spec", "there", "broken"), [(WAITS, 2, False), (WAITS, 1, True), ({}, 2, True)]
    )
    def test_a_launcher_that_is_still_to_come_is_not_missing(self, spec, there, broken):
        """One that comes later by design does not make a gang broken; a lost worker does."""
        job = load(FRAMEWORKS["MPIJob"], mpijob("v2beta1", **spec))
        found = look(*(worker(i, phase="Running", node="n") for i in range(there)), job=job)
        assert (found.memory.input.hold_until is not None) is broken

    @pytest.mark.parametrize(
        ("version", "spec"), [("v1", {}), ("v2beta1", {}), ("v2beta1", WAITS)]
    )
    def test_all_pods_are_placed_together(self, version, spec):
        """The launcher has its room from the beginning, whenever it is created."""
        job = load(FRAMEWORKS["MPIJob"], mpijob(version, **spec))
        gang = see(job=job)
        assert gang.min_member == 3
        assert {r.role: len(r.waiting) for r in gang.roles} == {"launcher": 1, "worker": 2}
        assert list(job.pod_names(job.replicas)) == [
            "mnist-launcher",
            "mnist-worker-0",
            "mnist-worker-1",
        ]


def test_where_a_job_and_its_roles_are_to_lie():
    """By annotations of the job and of the templates; a role of its own is told apart."""
    ours, theirs = (
        "muster.kubeflow.org/topology-required",
        "kueue.x-k8s.io/podset-required-topology",
    )
    metadata = {"annotations": {theirs: "rack"}}
    roles = [make_replica(type="Chief"), make_replica(template=make_template(metadata=metadata))]
    asking = make_job(replicas=roles, annotations={ours: "zone"})
    found = look(job=asking).memory.input
    assert found.topology == Topology("zone", required=True)
    chief, worker = found.roles
    assert (chief.topology, worker.topology) == (None, Topology("rack", required=True))
    assert chief.shape != worker.shape
    queued = make_job(replicas=roles, labels={"kueue.x-k8s.io/queue-name": "team"})
    assert [role.topology for role in look(job=queued).memory.input.roles] == [None, None]


def test_a_label_that_comes_and_goes_says_who_sees_to_where_roles_lie():
    """It is no part of the spec, so that the generation stays the same."""
    shown = Shown()
    shown.store = Store(gang.EMBEDDED, FRAMEWORKS.values())
    jobs = members.JobMembers(shown.store)
    theirs = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}}
    document = tfjob(Worker={"replicas": 2, "template": make_template() | theirs})
    for labels, expected in (({}, "rack"), ({"kueue.x-k8s.io/queue-name": "q"}, ""), ({}, "rack")):
        document["metadata"] |= {"labels": labels, "generation": 1}
        shown.put(document)
        (tasks,) = jobs.facts("TFJob/team/mnist", None, 0.0).tasks
        assert (tasks.topology.level if tasks.topology else "") == expected


def test_suspended_jobs_are_not_parsed(monkeypatch):
    """The store keeps them as bytes: half a gigabyte of them would block the loop for minutes."""
    shown, loaded = Shown(), []
    shown.store = Store(gang.EMBEDDED, FRAMEWORKS.values())
    monkeypatch.setattr(jobs, "load", lambda *given: loaded.append(given) or load(*given))
    for name, suspend in ("held", True), ("runs", False):
        shown.put(tfjob(name=name, Worker=1, policy={"suspend": suspend}))
    assert members.JobMembers(shown.store).gangs() == ["TFJob/team/runs"]
    assert len(loaded) == 1


def test_facts_of_a_job_of_ten_thousand_pods_contain_no_list_of_their_names():
    """Hundreds of such jobs fit into a few hundred kilobytes of documents."""
    shown = Shown()
    shown.store = Store(gang.EMBEDDED, FRAMEWORKS.values())
    jobs = members.JobMembers(shown.store)
    keys = []
    for number in range(20):
        document = of_kind("PyTorchJob", Worker=10_000)
        document["metadata"]["name"] = f"many-{number}"
        shown.put(document)
        keys.append(f"PyTorchJob/team/many-{number}")
        assert shown.store.jobs.get(keys[-1]).problems == ()
    tracemalloc.start()
    found = [jobs.facts(key, None, 0.0) for key in keys]
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {len(facts.wanted) for facts in found} == {10_000}
    assert kept < 20 * 50_000


def test_the_minimum_of_each_role():
    """It is the gang's minimum in all; what one role has above its own makes up for no other."""
    job = tfjob(Worker=3, Chief=1)
    job["metadata"]["annotations"] = {"muster.kubeflow.org/min-available": "chief=1,Worker=2"}
    job = load(FRAMEWORKS["TFJob"], job)
    there = [
        make_pod(name=f"{job.name}-worker-{i}", node="n1", owner=job.as_owner) for i in range(3)
    ]
    facts = facts_of(there, job)
    assert (facts.asks.min_member, facts.asks.leasts) == (3, {"chief": 1, "worker": 2})
    assert (facts.ready, facts.need) == (2, 3)
    elsewhere = replace(job, replicas=(workers(3, scheduler="other"), job.replicas[0]))
    assert facts_of((), elsewhere).asks.leasts == {"chief": 1}
    assert facts_of((), elsewhere).asks.min_member == 1


class TestFailedMembers:
    """A failed pod is a missing member only if it is replaced, by the rule of the controller."""

    STATUS = JobStatus(gang=Verdict("muster", "Running", "mnist", min_member=3))

    def ring(self, policy, **failed):
        """Return facts and first step of a ring that ran, and whose last worker failed."""
        document = mpijob("v2beta1", worker=role(policy=policy))
        job = replace(load(FRAMEWORKS["MPIJob"], document), status=self.STATUS)
        launcher = make_pod(
            name="mnist-launcher-abcde",
            maker="mnist-launcher",
            role="launcher",
            phase="Running",
            node="n1",
        )
        pods = {
            "mnist-launcher": launcher,
            W0: worker(0, phase="Running", node="n1"),
            W1: worker(1, phase="Failed", node="n2", **failed),
        }
        facts = facts_of((), job, pods=pods)
        memory = tracker.begin(facts)
        return facts, tracker.step(memory, facts, 0.0)

    def test_member_that_is_replaced_is_held_for(self):
        """The replacement is placed first, on a protected node; one that never ran is replaced."""
        facts, step = self.ring("Never", reason="OutOfcpu")
        assert (facts.need, step.memory.input.hold_until is None) == (3, False)
        facts, step = self.ring("OnFailure")
        assert (facts.ready, facts.need, facts.asks.min_member) == (2, 3, 3)
        assert step.memory.input.hold_until is not None
        (role,) = (role for role in step.memory.input.roles if role.role == "worker")
        assert (role.waiting, role.previous) == ((1,), {1: "n2"})

    def test_member_that_backs_off_is_placed_later(self):
        """Its node is protected meanwhile, and the hold counts from the end of the back-off."""
        facts, step = self.ring("OnFailure", failures_before=2)
        (role,) = (role for role in step.memory.input.roles if role.role == "worker")
        assert (role.waiting, role.returning, role.previous) == ((), (1,), {1: "n2"})
        assert step.memory.input.hold_until == 20.0 + tracker.PATIENCE
        assert step.wake == 20.0
        after = tracker.step(step.memory, facts, 20.0).memory.input
        (role,) = (role for role in after.roles if role.role == "worker")
        assert (role.waiting, role.returning, after.hold_until) == ((1,), (), 140.0)

    def test_member_that_is_not_replaced_is_not_missing(self):
        """Neither hold nor release, and nothing of the gang is to be placed."""
        facts, step = self.ring("Never")
        assert (facts.ready, facts.need, facts.asks.min_member) == (2, 2, 2)
        assert step.memory.input.hold_until is None
        assert step.memory.lifecycle.missing_since is None
        assert all(not (role.waiting or role.returning) for role in step.memory.input.roles)
        assert W1 not in facts.wanted
        later = tracker.step(step.memory, facts, 1e6)
        assert not later.memory.released
        assert later.memory.input.hold_until is None

    def test_failed_pod_that_was_deleted_is_new_demand(self):
        """The replica is filled again, without a claim that comes before other gangs."""
        facts, step = self.ring("Never")
        job = replace(
            load(FRAMEWORKS["MPIJob"], mpijob("v2beta1", worker=role(policy="Never"))),
            status=JobStatus(gang=Verdict("muster", "Running", "mnist", min_member=2)),
        )
        left = {place: pod for place, pod in facts.pods.items() if place != W1}
        again = tracker.step(step.memory, facts_of((), job, pods=left), 1.0)
        assert again.memory.facts.need == 3
        assert again.memory.input.hold_until is None
        assert not again.memory.input.admitted
        (role_,) = (found for found in again.memory.input.roles if found.role == "worker")
        assert role_.waiting == (1,)

    @pytest.mark.parametrize(
        ("leasts", "minimum"), [({"ps": 1, "worker": 3}, 3), ({"ps": 1, "worker": 2}, 3)]
    )
    def test_minimum_by_role_is_lowered(self, leasts, minimum):
        """Where enough of the role are left, its minimum stays."""
        job = make_job(
            replicas=[make_replica(type="PS"), make_replica(replicas=3)],
            scheduling={"leasts": leasts, "min_available": sum(leasts.values())},
        )
        server = make_pod(name="mnist-ps-0", role="ps", phase="Running", node="n1")
        running = [worker(i, phase="Running", node="n1") for i in range(2)]
        facts = facts_of((server, *running, worker(2, phase="Failed", node="n1")), job)
        assert (facts.ready, facts.need, facts.asks.min_member) == (3, minimum, minimum)
        assert facts.asks.leasts == {"ps": 1, "worker": 2}

    def test_member_of_another_scheduler_lowers_its_own_part(self):
        """What is placed here needs as many as before."""
        server = make_replica(type="PS", template=make_template(scheduler="other"))
        job = make_job(replicas=[server, workers()])
        gone = make_pod(name="mnist-ps-0", role="ps", phase="Failed", node="n1")
        there = [worker(i, phase="Running", node="n1") for i in range(3)]
        facts = facts_of((gone, *there), job)
        assert (facts.ready, facts.need, facts.asks.min_member) == (3, 3, 3)
