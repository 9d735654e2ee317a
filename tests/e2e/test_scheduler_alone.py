# SPDX-License-Identifier: Apache-2.0
"""`muster scheduler` in kube-batch's place: its tutorial, and what its own tests were named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.e2e.gangs import unschedulable, unschedulable_condition, wait_group
from support.e2e.harness import (
    Api,
    Json,
    Operator,
    StartOperator,
    add_nodes,
    node_of,
    phase_of,
)

pytestmark = pytest.mark.e2e

SEEDS = Path(__file__).parents[1] / "seeds"
EXAMPLES = Path(__file__).parents[2] / "examples" / "scheduler"
EVICTING = Path(__file__).parents[2] / "examples" / "policies" / "preempt.yaml"
KUBE_BATCH = "kube-batch"


POLICY = """
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the file of the scheduler's policy, which it reads while it runs."""
    made: Path = tmp_path_factory.mktemp("scheduler") / "policy.yaml"
    made.write_text(POLICY)
    return made


@pytest.fixture
def scheduler(start_operator: StartOperator, policy: Path) -> Operator:
    """Give the stories a scheduler, under the roles of its overlay."""
    return start_operator(f"--scheduler-conf={policy}", overlay="scheduler")


def pod_group(name: str, least: int, **spec: Any) -> Json:
    """Return a PodGroup."""
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": least, **spec},
    }


def batch_job(
    name: str, pods: int, *, run: str = "forever", cpu: str = "1", memory: str = "", **spec: Any
) -> Json:
    """Return a batch Job whose pods are a gang's, each of one CPU."""
    asked = {"cpu": cpu, "memory": memory}
    resources = {"requests": {name: text for name, text in asked.items() if text}}
    container = {"name": "main", "image": "busybox", "resources": resources}
    notes = {
        "scheduling.k8s.io/group-name": name,
        "local.muster.kubeflow.org/run-seconds": run,
    }
    pod = {
        "containers": [container],
        "restartPolicy": "Never",
        "schedulerName": KUBE_BATCH,
        **spec,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "template": {"metadata": {"annotations": notes}, "spec": pod},
        },
    }


def create(api: Api, name: str, pods: int, least: int | None = None, **job: Any) -> None:
    """Create a Job and its PodGroup."""
    api.create(pod_group(name, pods if least is None else least))
    api.create(batch_job(name, pods, **job))


def of(pods: Mapping[str, Json], name: str) -> list[Json]:
    """Return the pods of a batch Job."""
    return [p for p in pods.values() if p["metadata"]["labels"].get("job-name") == name]


def wait_running(api: Api, name: str, count: int) -> list[Json]:
    """Return the pods of a Job once so many of them run."""

    def enough(pods: dict[str, Json]) -> list[Json]:
        found = [p for p in of(pods, name) if phase_of(p) == "Running"]
        return found if len(found) == count else []

    found: list[Json] = api.wait("Pod", enough, what=f"{count} pods of {name} Running")
    return found


def wait_waiting(api: Api, name: str, count: int) -> list[Json]:
    """Return the pods of a Job once so many say why they have no node."""

    def enough(pods: dict[str, Json]) -> list[Json]:
        found = [p for p in of(pods, name) if unschedulable(p)]
        return found if len(found) == count else []

    found: list[Json] = api.wait("Pod", enough, what=f"{count} pods of {name} Unschedulable")
    return found


def wait_phase(api: Api, name: str, phase: str, **counts: int) -> Json:
    """Return the status of a PodGroup once it says that."""

    def told(groups: Mapping[str, Json]) -> Json | None:
        status = groups.get(name, {}).get("status", {})
        same = all(status.get(key, 0) == value for key, value in counts.items())
        return status if status.get("phase") == phase and same else None

    found: Json = api.wait("PodGroup", told, what=f"PodGroup {name} {phase} {counts}")
    return found


def queue(name: str, weight: int, **capability: str) -> Json:
    """Return a Queue."""
    spec: Json = {"weight": weight, **({"capability": capability} if capability else {})}
    kind = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def of_name(api: Api, name: str) -> list[Json]:
    """Return the pods of a batch Job as they are now."""
    return of({p["metadata"]["name"]: p for p in api.list("Pod")}, name)


def samples(scheduler: Operator) -> dict[str, float]:
    """Return each sample with its labels, and its value, as a scrape finds them."""
    lines = (line for line in scheduler.scrape().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


@pytest.mark.full
def test_what_the_flags_say(api: Api, start_operator: StartOperator, tmp_path: Path) -> None:
    """Another scheduler name, another default queue, a policy file, one address for all.

    The default queue is there without an object; the one that is named otherwise is not, not even
    the default of other clusters.
    """
    policy = tmp_path / "kube-batch-conf.yaml"
    policy.write_text(POLICY)
    start = ("--scheduler-name=batch", "--default-queue=pool", f"--scheduler-conf={policy}")
    made = start_operator(*start, "--leader-elect", "--schedule-period=200ms", overlay="scheduler")
    add_nodes(api, {"cpu": "4"})
    api.create(pod_group("named", 2, queue="default"))
    api.create(batch_job("named", 2, schedulerName="batch"))
    waiting = wait_waiting(api, "named", 2)
    message = waiting[0]["status"]["conditions"][0]["message"]
    assert 'queue "default" does not exist' in message
    api.create(pod_group("mine", 2))
    api.create(batch_job("mine", 2, schedulerName="batch"))
    wait_running(api, "mine", 2)
    create(api, "other", 1)
    api.create(queue("default", 1))
    try:
        wait_running(api, "named", 2)
        assert not any(c for p in of_name(api, "other") for c in p["status"].get("conditions", ()))
        assert "muster_binds_total" in made.scrape()
    finally:
        api.delete("Queue", "default")


@pytest.mark.full
def test_missing_permissions_are_one_clear_error(api: Api, start_operator: StartOperator) -> None:
    """The tutorial's FAQ: what may not be listed is named at once; nothing crashes or repeats.

    Shows S13.
    """
    seed = start_operator(overlay="scheduler")
    seed.stop()
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = api.get(bindings, "muster-scheduler")
    api.delete(bindings, "muster-scheduler")
    made = start_operator(overlay="scheduler", ready=False)
    said = made.wait_unready("may not")
    for resource in (
        "pods",
        "nodes",
        "persistentvolumes",
        "persistentvolumeclaims",
        "queues.scheduling.incubator.k8s.io",
        "podgroups.scheduling.incubator.k8s.io",
        "poddisruptionbudgets.policy",
    ):
        assert f" {resource};" in said
    assert "create pods/binding" in said
    assert "manifests/overlays/scheduler" in said
    assert sum("may not" in line for line in made.log.read_text().splitlines()) == 1
    metadata = {key: binding["metadata"][key] for key in ("name",)}
    api.send("POST", api.path(bindings), {**binding, "metadata": metadata})
    made.wait_ready()


def test_the_tutorials_job_waits_whole_and_runs_whole(api: Api, scheduler: Operator) -> None:
    """Schedule Job, Gang scheduling: job-01.yaml with room for five of six pods, then for all."""
    add_nodes(api, {"cpu": "5"})
    api.create_file(SEEDS / "job-qj-1.yaml")
    pods = wait_waiting(api, "qj-1", 6)
    group = wait_group(api, "qj-1", "True")
    assert group["status"]["phase"] == "Pending"
    said = unschedulable_condition(api, "qj-1")
    assert said["message"].startswith("6/6 tasks in gang unschedulable: 0/1 nodes are available")
    assert {c["message"] for p in pods for c in p["status"]["conditions"]} == {said["message"]}
    assert not any(map(node_of, pods))

    add_nodes(api, {"cpu": "1"}, prefix="more")
    api.wait("Job", lambda jobs: jobs["qj-1"]["status"].get("succeeded") == 6, what="qj-1 done")
    assert len(api.list("Pod")) == 6
    wait_phase(api, "qj-1", "Running", succeeded=6, running=0)
    assert wait_group(api, "qj-1", "False")
    assert len(api.wait_events("Unschedulable", "qj-1")) == 1
    assert len(api.wait_events("Scheduled", count=6)) == 6
    assert len(api.wait_events("FailedScheduling", count=6)) == 6


@pytest.mark.full
def test_the_example_starts_as_three_or_not_at_all(api: Api, scheduler: Operator) -> None:
    """With room for two of its pods none is on a node; with room for three the Job is done."""
    add_nodes(api, {"cpu": "2"})
    api.create_file(EXAMPLES / "batch-job-gang.yaml")
    assert not any(map(node_of, wait_waiting(api, "batch-gang", 4)))
    add_nodes(api, {"cpu": "1"}, prefix="more")
    api.wait("Job", lambda jobs: jobs["batch-gang"]["status"].get("succeeded") == 4, what="done")


def test_the_tutorials_queues(api: Api, scheduler: Operator) -> None:
    """Weights 2 and 4 on 9 CPUs and 27Gi: each queue's status says what it is due and holds."""
    add_nodes(api, {"cpu": "6", "memory": "15Gi"}, {"cpu": "3", "memory": "12Gi"})
    for name, weight in (("queue-1", 2), ("queue-2", 4)):
        api.create(queue(name, weight))
    try:
        for name, where, cpu, memory in (
            ("podgroup-1", "queue-1", "5", "10Gi"),
            ("podgroup-2", "queue-2", "4", "12Gi"),
            ("podgroup-3", "queue-2", "6", "8Gi"),
        ):
            api.create(pod_group(name, 1, queue=where))
            api.create(batch_job(name, 1, cpu=cpu, memory=memory))
            if where == "queue-1":
                # Beside others that wait it would be held to what its queue is due.
                wait_phase(api, name, "Running", running=1)

        def settled(queues: dict[str, Json]) -> Any:
            told = [queues[name].get("status", {}) for name in ("queue-1", "queue-2")]
            due = [status.get("deserved") for status in told]
            return due == [{"cpu": "3", "memory": "9Gi"}, {"cpu": "6", "memory": "18Gi"}] and told

        one, two = api.wait("Queue", settled, what="deserved shares")
        assert one["pending"] + one["running"] == 1
        assert two["pending"] + two["running"] == 2
        # The larger node has room for any one of them, the smaller for none.
        wait_phase(api, "podgroup-1", "Running", running=1)
        for name in ("podgroup-2", "podgroup-3"):
            wait_phase(api, name, "Pending")

        def told(queues: dict[str, Json]) -> bool:
            one, two = (queues[name]["status"] for name in ("queue-1", "queue-2"))
            held = one.get("allocated") == {"cpu": "5", "memory": "10Gi"}
            return held and (one["running"], two["pending"], two["unknown"]) == (1, 2, 0)

        api.wait("Queue", told, what="allocated, running, pending")
        since = api.revision("Queue")
        api.delete("Job", "podgroup-3")
        smaller = {"cpu": "4", "memory": "12Gi"}
        api.wait("Queue", lambda q: q["queue-2"]["status"]["deserved"] == smaller, what="less due")
        assert len(api.history("Queue", since, "queue-2")) <= 2
    finally:
        for name in ("queue-1", "queue-2"):
            api.delete("Queue", name)


@pytest.mark.full
def test_gangs_in_turn(api: Api, scheduler: Operator) -> None:
    """Schedule Multiple Jobs; Gang scheduling: Full Occupied: the second waits for the first."""
    add_nodes(api, {"cpu": "4"}, {"cpu": "4"})
    create(api, "gang-1", 8)
    first = wait_running(api, "gang-1", 8)
    create(api, "gang-2", 8, run="1")
    waiting = wait_waiting(api, "gang-2", 8)
    assert not any(map(node_of, waiting))
    wait_phase(api, "gang-2", "Pending")
    lacking = f'volcano_unschedule_task_count{{job_id="{api.namespace}/gang-2"}}'
    before = samples(scheduler)
    assert before[lacking] == 8
    assert before['muster_gangs{reason="NotEnoughResources",state="Waiting"}'] >= 1
    for pod in first:
        api.finish(pod["metadata"]["name"])
    api.wait("Job", lambda jobs: jobs["gang-2"]["status"].get("succeeded") == 8, what="gang-2")
    after = samples(scheduler)
    assert lacking not in after
    grown = {
        "muster_gang_wait_seconds_count": 1,
        "volcano_task_scheduling_latency_microseconds_count": 8,
        'volcano_schedule_attempts_total{result="scheduled"}': 8,
        'muster_binds_total{result="bound"}': 8,
    }
    assert {name: after[name] - before[name] for name in grown} == grown
    wait_phase(api, "gang-1", "Running", succeeded=8)


@pytest.mark.full
def test_the_higher_priority_goes_first(api: Api, scheduler: Operator) -> None:
    """Job Priority, TaskPriority: groups by their PriorityClass, pods of a group by theirs."""
    seed = yaml.safe_load((SEEDS / "priorityclass-high-priority.yaml").read_text())
    metadata = {"name": seed["metadata"]["name"]}
    api.create({**seed, "apiVersion": "scheduling.k8s.io/v1", "metadata": metadata})
    try:
        add_nodes(api, {"cpu": "2"})
        create(api, "first", 2)
        wait_running(api, "first", 2)
        create(api, "low", 2)
        wait_waiting(api, "low", 2)
        api.create(pod_group("high", 2, priorityClassName="high-priority"))
        api.create(batch_job("high", 2, priorityClassName="high-priority"))
        wait_waiting(api, "high", 2)
        api.delete("Job", "first")
        wait_running(api, "high", 2)
        assert not any(
            map(node_of, of({p["metadata"]["name"]: p for p in api.list("Pod")}, "low"))
        )
        # The pod of the tutorial names no scheduler of ours, and is left alone.
        api.create_file(SEEDS / "pod-ns01-r01.yaml")
        bare = api.get("Pod", "pod-ns01-r01")
        assert bare["spec"]["priority"] == 1000
        api.delete("Pod", "pod-ns01-r01", grace=0)
    finally:
        api.delete("PriorityClass", metadata["name"])


@pytest.mark.full
def test_a_hundred_pods(api: Api, scheduler: Operator) -> None:
    """Schedule Density Job: a hundred pods, each a gang of its own."""
    add_nodes(api, *[{"cpu": "32"}] * 4)
    job = batch_job("density", 100)
    del job["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
    api.create(job)
    wait_running(api, "density", 100)
    api.wait("Event", lambda told: sum(map(scheduled, told.values())) == 100, what="100 events")


def scheduled(event: Json) -> bool:
    """Say whether the event tells that a pod got its node."""
    return bool(event["reason"] == "Scheduled")


HAD = "muster.kubeflow.org/gang-had"


def labelled(name: str, gang: str, pods: int, *, least: int, **job: Any) -> Json:
    """Return a batch Job whose pods belong to a gang by their labels."""
    made = batch_job(name, pods, **job)
    metadata = made["spec"]["template"]["metadata"]
    del metadata["annotations"]["scheduling.k8s.io/group-name"]
    metadata["labels"] = {
        "pod-group.scheduling.sigs.k8s.io/name": gang,
        "pod-group.scheduling.sigs.k8s.io/min-available": str(least),
    }
    return made


@pytest.mark.full
def test_labels_alone_make_a_gang(api: Api, scheduler: Operator) -> None:
    """The lightweight dialect: no object, the minimum on the pods."""
    add_nodes(api, {"cpu": "2"})
    api.create(labelled("light", "light", 3, least=3, run="1"))
    wait_waiting(api, "light", 3)
    add_nodes(api, {"cpu": "1"}, prefix="more")
    api.wait("Job", lambda jobs: jobs["light"]["status"].get("succeeded") == 3, what="light")


@pytest.mark.full
def test_a_gang_of_labels_keeps_what_it_had_over_a_restart(
    api: Api, start_operator: StartOperator, policy: Path
) -> None:
    """What it is to grow by waits; one that has lost a member begins anew when its hold ends."""
    flags = (f"--scheduler-conf={policy}", "--member-hold=1s", "--on-hold-expired=restart")
    scheduler = start_operator(*flags, overlay="scheduler", fresh=True)
    (node,) = add_nodes(api, {"cpu": "5"})
    for name, count in (("grows", 3), ("breaks", 2)):
        api.create(labelled(name, name, count, least=count))
        wait_running(api, name, count)
    before = {p["metadata"]["uid"] for p in of_name(api, "grows")}
    assert {p["metadata"]["annotations"][HAD] for p in of_name(api, "grows")} == {"3"}
    scheduler.kill()
    api.create(labelled("more", "grows", 2, least=5))
    member, other = of_name(api, "breaks")
    api.delete("Pod", member["metadata"]["name"], grace=0)
    resources = {"requests": {"cpu": "1"}}
    container = {"name": "main", "image": "busybox", "resources": resources}
    filler: Json = {"containers": [container], "nodeName": node}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "filler"}, "spec": filler})
    api.wait("Pod", lambda pods: len(of(pods, "breaks")) == len(of(pods, "more")) == 2)
    scheduler.start()

    def anew(pods: dict[str, Json]) -> bool:
        found = of(pods, "breaks")
        there = other["metadata"]["uid"] in {p["metadata"]["uid"] for p in found}
        return not there and len(found) == 2 and all(map(unschedulable, found))

    api.wait("Pod", anew, what="the gang that lost a member begins anew")
    kept = of_name(api, "grows")
    assert {p["metadata"]["uid"] for p in kept} == before
    assert {phase_of(p) for p in kept} == {"Running"}


def evicted(api: Api, message: str, count: int) -> set[str]:
    """Return of which pods this is told, once it is told of so many."""

    def named(events: Mapping[str, Json]) -> set[str]:
        return {
            e["involvedObject"]["name"]
            for e in events.values()
            if (e["reason"], e["message"]) == ("Evict", message)
        }

    api.wait("Event", lambda events: len(named(events)) >= count, what=message)
    return named({e["metadata"]["name"]: e for e in api.list("Event")})


@pytest.fixture
def evicting(api: Api, policy: Path) -> Iterator[None]:
    """Let the scheduler make room for others while a story lasts, and give two priorities."""
    policy.write_text(EVICTING.read_text())
    classes = {"alone-high": 1000, "alone-low": 10}
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    for name, value in classes.items():
        api.create({**kind, "metadata": {"name": name}, "value": value})
    yield
    for name in classes:
        api.delete("PriorityClass", name)
    policy.write_text(POLICY)


def test_higher_priorities_evict_what_no_budget_guards(
    api: Api, scheduler: Operator, evicting: None
) -> None:
    """Preemption: whole gangs of batch Jobs go, those with a budget last; they start whole again.

    The policy that says so is read while the scheduler runs.
    """
    add_nodes(api, {"cpu": "2"}, {"cpu": "2"})
    for name in ("plain", "guarded"):
        api.create(pod_group(name, 2, priorityClassName="alone-low"))
        api.create(batch_job(name, 2, priorityClassName="alone-low"))
        wait_running(api, name, 2)
    spec: Json = {"minAvailable": 2, "selector": {"matchLabels": {"job-name": "guarded"}}}
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    api.create({**kind, "metadata": {"name": "guarded"}, "spec": spec})
    before = samples(scheduler)
    for name, victim in (("high", "plain"), ("next", "guarded")):
        going = {p["metadata"]["name"] for p in of_name(api, victim)}
        api.create(pod_group(name, 2, priorityClassName="alone-high"))
        api.create(batch_job(name, 2, priorityClassName="alone-high"))
        wait_running(api, name, 2)
        told = f"preempt: evicted for PodGroup {api.namespace}/{name}"
        assert evicted(api, told, 2) == going
        # What was evicted is made again, and waits whole.
        assert not any(map(node_of, wait_waiting(api, victim, 2)))
        wait_phase(api, victim, "Pending")
    after = samples(scheduler)
    for name, more in (
        ('muster_evictions_total{action="preempt"}', 4),
        ("volcano_total_preemption_attempts", 2),
    ):
        assert after[name] - before.get(name, 0) == more
    assert after["volcano_pod_preemption_victims"] == 2
    # Created in the same second, either of them may come first.
    for name in ("high", "next"):
        api.delete("Job", name)
    for name in ("plain", "guarded"):
        wait_running(api, name, 2)
