# SPDX-License-Identifier: Apache-2.0
"""What dashboards made for kube-batch find, and what else is shown of the allocator."""

import pytest
from prometheus_client.exposition import generate_latest

from muster.runtime.metrics import Metrics
from muster.scheduler import cycle, policy
from muster.scheduler.plugins.proportion import Share, shares
from support.builders.scheduler import (
    make_gang,
    make_node,
    make_pod,
    make_queue,
    make_role,
    make_snapshot,
)

OF_OLD = {
    "volcano_e2e_scheduling_latency_milliseconds": "histogram",
    "volcano_plugin_scheduling_latency_microseconds": "histogram",
    "volcano_action_scheduling_latency_microseconds": "histogram",
    "volcano_task_scheduling_latency_microseconds": "histogram",
    "volcano_schedule_attempts_total": "counter",
    "volcano_pod_preemption_victims": "gauge",
    "volcano_total_preemption_attempts": "untyped",
    "volcano_unschedule_task_count": "gauge",
    "volcano_unschedule_job_count": "gauge",
    "volcano_job_retry_counts": "untyped",
}
OWN = {
    "muster_gang_wait_seconds": "histogram",
    "muster_cycle_seconds": "histogram",
    "muster_snapshot_seconds": "histogram",
    "muster_binds_total": "counter",
    "muster_evictions_total": "counter",
    "muster_holds_active": "gauge",
    "muster_reservations_active": "gauge",
    "muster_queue_deserved": "gauge",
    "muster_queue_allocated": "gauge",
    "muster_queue_request": "gauge",
    "muster_gangs": "gauge",
    "muster_nodes_overcommitted": "gauge",
}
EVICTING = policy.parse({"actions": "allocate, backfill, preempt"})
WAITS = make_gang(key="PodGroup/team/waits", min_member=6, roles=[make_role(replicas=8, cpu=1)])
RUNS = make_gang(
    key="TFJob/team/runs", roles=[make_role(held=[(0, "n1"), (1, "n1")], cpu=1)], admitted=True
)
FITS = make_gang(key="TFJob/team/fits", roles=[make_role(replicas=2, cpu="500m")])


def seen(gangs):
    """Return a snapshot of one node of seven CPUs, on which two pods run."""
    return make_snapshot(
        nodes=[make_node(cpu=7)],
        pods=[make_pod(name=f"runs-{i}", cpu=1) for i in range(2)],
        queues=[make_queue(cpu=10)],
        gangs=gangs,
    )


class Story:
    """Cycles over gangs on one node, and what is shown of them."""

    def __init__(self):
        """Begin before the first cycle."""
        self.metrics = Metrics()

    def cycle(self, *gangs, rules=policy.DEFAULT):
        """Run one cycle; return its decisions."""
        snapshot = seen(gangs)
        cycles = self.metrics.cycles
        decisions = cycle.schedule(snapshot, rules, cycles.around)
        cycles.decided(decisions, snapshot)
        found = shares(snapshot, decisions)
        cycles.shares = lambda: found
        return decisions

    @property
    def shown(self):
        """Sample with its labels -> value, as a scrape finds it."""
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    @property
    def types(self):
        """Name -> type, as a scrape finds it."""
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        return dict(line.split()[2:] for line in lines if line.startswith("# TYPE"))


@pytest.fixture
def story():
    """Give a story."""
    return Story()


def test_every_name_is_served_from_the_start(story):
    """kube-batch's names and ours, each of its type, and ten buckets, each twice the one before.

    Counters begin with 0: of a series that begins with 100 evictions nobody sees that it rose.
    """
    assert {name: story.types.get(name) for name in OF_OLD | OWN} == OF_OLD | OWN
    name = "volcano_e2e_scheduling_latency_milliseconds_bucket"
    edges = [k.split('"')[1] for k in story.shown if k.startswith(name)]
    assert [float(edge) for edge in edges[:-1]] == [5.0 * 2**i for i in range(10)]
    assert edges[-1] == "+Inf"
    counts = {n: count for n, count in story.shown.items() if n.startswith("muster_evictions_to")}
    actions = ("defragment", "preempt", "reclaim", "release")
    assert counts == {f'muster_evictions_total{{action="{name}"}}': 0 for name in actions}
    assert story.shown['muster_binds_total{result="error"}'] == 0


def test_a_cycle_is_measured_by_action_and_plugin(story):
    """Once per cycle, and no decision changes."""
    gangs = (WAITS, RUNS, FITS)
    for _ in range(2):
        assert story.cycle(*gangs) == cycle.schedule(seen(gangs), policy.DEFAULT)
    shown = story.shown
    for action in policy.DEFAULT.actions:
        name = "volcano_action_scheduling_latency_microseconds"
        assert shown[f'{name}_count{{action="{action}"}}'] == 2
        assert shown[f'{name}_sum{{action="{action}"}}'] > 0
    for plugin in (option.name for tier in policy.DEFAULT.tiers for option in tier):
        labels = f'{{OnSession="OnSessionOpen",plugin="{plugin}"}}'
        assert shown[f"volcano_plugin_scheduling_latency_microseconds_count{labels}"] == 2


def test_gangs_that_cannot_start_are_counted_until_they_are_gone(story):
    """How many pods each lacks, in how many cycles it was tried, and by state and reason."""
    story.cycle(WAITS, RUNS)
    story.cycle(WAITS, RUNS, FITS)
    shown = story.shown
    assert shown['volcano_unschedule_task_count{job_id="team/waits"}'] == 6
    assert shown['volcano_job_retry_counts{job_id="team/waits"}'] == 2
    assert shown["volcano_unschedule_job_count"] == 1
    assert shown['muster_gangs{reason="NotEnoughResources",state="Waiting"}'] == 1
    assert shown['muster_gangs{reason="",state="Running"}'] == 1
    assert shown['muster_gangs{reason="",state="Placed"}'] == 1
    assert shown['volcano_schedule_attempts_total{result="scheduled"}'] == 2
    assert shown['volcano_schedule_attempts_total{result="unschedulable"}'] == 2 * 8
    story.cycle(RUNS)
    shown = story.shown
    assert not [name for name in shown if "team/waits" in name]
    assert shown["volcano_unschedule_job_count"] == 0


def test_no_gang_is_named_where_others_namespaces_are_hidden(story):
    """What all of them come to is told all the same."""
    story.metrics.cycles.names_gangs = False
    story.cycle(WAITS, RUNS)
    assert not [name for name in story.shown if "team" in name]
    assert story.shown["volcano_unschedule_job_count"] == 1


def test_names_that_two_kinds_share_are_one_sample(story):
    """A scrape with the same sample twice would be refused as a whole."""
    twin = make_gang(key="TFJob/team/waits", min_member=6, roles=WAITS.roles)
    story.cycle(WAITS, twin)
    assert story.shown['volcano_unschedule_task_count{job_id="team/waits"}'] == 12


def test_queues_in_cpus_and_bytes(story):
    """What each is due, holds, and holds and wants."""
    story.cycle(WAITS, RUNS, FITS)
    shown = story.shown
    assert shown['muster_queue_deserved{queue="default",resource="cpu"}'] == 7
    assert shown['muster_queue_allocated{queue="default",resource="cpu"}'] == 3
    assert shown['muster_queue_request{queue="default",resource="cpu"}'] == 11
    assert 'muster_queue_request{queue="default",resource="pods"}' not in shown


def test_a_queue_that_holds_nothing_of_what_it_is_due(story):
    """It is the one that an alert on less than its due is for; no series is no number."""
    due = Share(allocated={}, deserved={"cpu": 4000}, request={"cpu": 6000, "memory": 1})
    story.metrics.cycles.shares = lambda: {"waits": due}
    shown = {name: n for name, n in story.shown.items() if name.startswith("muster_queue_")}
    assert shown == {
        'muster_queue_deserved{queue="waits",resource="cpu"}': 4,
        'muster_queue_deserved{queue="waits",resource="memory"}': 0,
        'muster_queue_allocated{queue="waits",resource="cpu"}': 0,
        'muster_queue_allocated{queue="waits",resource="memory"}': 0,
        'muster_queue_request{queue="waits",resource="cpu"}': 6,
        'muster_queue_request{queue="waits",resource="memory"}': 1,
    }


def test_nodes_that_hold_more_than_they_have(story):
    """Counted by resource for as long as it is so."""
    pods = [make_pod(name=f"pod-{i}", cpu=3) for i in range(2)]
    pods.append(make_pod(name="other", node="n2", cpu=4))
    for size, count in ((8, None), (4, 1), (2, 2), (6, None)):
        nodes = [make_node(name=name, cpu=size) for name in ("n1", "n2")]
        story.metrics.cycles.decided((), make_snapshot(nodes=nodes, pods=pods))
        assert story.shown.get('muster_nodes_overcommitted{resource="cpu"}') == count


def test_preemption_and_what_went_wrong(story):
    """The victims of the last attempt, all attempts, and failures as errors."""
    cycles = story.metrics.cycles
    high = make_gang(
        key="TFJob/team/high", priority=9, roles=[make_role(replicas=6, cpu=1, priority=9)]
    )
    decisions = story.cycle(RUNS, high, rules=EVICTING)
    (preempting,) = [decision for decision in decisions if decision.evictions]
    cycles.preempts(preempting)
    cycles.preempts(preempting)
    cycles.not_bound()
    cycles.failed()
    cycles.binds.labels("bound").inc()
    cycles.placed([0.001])
    cycles.whole.observe(20)
    shown = story.shown
    assert shown["volcano_pod_preemption_victims"] == 2
    assert shown["volcano_total_preemption_attempts"] == 2
    assert shown['volcano_schedule_attempts_total{result="error"}'] == 2
    assert shown['muster_binds_total{result="error"}'] == 1
    assert shown['muster_binds_total{result="bound"}'] == 1
    assert shown["volcano_task_scheduling_latency_microseconds_sum"] == pytest.approx(1000)
    assert shown["volcano_e2e_scheduling_latency_milliseconds_sum"] == pytest.approx(20)
