# SPDX-License-Identifier: Apache-2.0
"""What users of other operators and gang schedulers complained about, and where it is shown that
it does not happen here; and which of kube-batch's own tests are kept by which of ours.

A story is the name of a scenario under scenarios/scheduler, or `file::test`. It carries what it
shows in its own name or in its docstring, so that nobody drops it unawares.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SCENARIOS = TESTS / "scenarios" / "scheduler"

PAINS = {
    "S1": (
        "a gang below its minimum loses the slot to a filler, and neither heals nor yields",
        "s1-protected-slot",
        "e2e/test_protected_slot.py::test_a_lost_member_comes_back",
        "e2e/test_gang_settings.py::test_a_gang_that_cannot_be_made_whole_begins_anew",
    ),
    "S2": (
        "part of a gang is bound from a stale cache",
        "allocator/test_loop.py::test_room_that_goes_while_a_cycle_decides",
        "controller/test_groups.py::test_a_half_gang_is_undone",
    ),
    "S3": (
        "one pod is killed in each of ten jobs",
        "s3-not-one-of-each-gang",
        "s3-no-eviction-for-a-gang-that-never-starts",
    ),
    "S4": (
        "evicting and rescheduling without end",
        "s4-freed-room-is-kept",
        "s4-nobody-goes-twice",
        "properties/test_evicting.py::test_evicting_ends",
    ),
    "S5": (
        "large jobs starve behind small ones",
        "s5-drain-for-the-head",
        "scheduler/actions/test_reserve.py::test_a_stream_of_jobs",
    ),
    "S6": ("small jobs are blocked behind a large head", "s6-small-pass-large"),
    "S7": ("a gang that is not ready hoards room", "s7-unready-gang-holds-nothing"),
    "S8": ("admitted by sums though no set of nodes fits", "s8-fragmented"),
    "S9": (
        "devices are scattered, and not packed by default",
        "s9-gpus-packed-by-default",
    ),
    "S10": (
        "misleading messages, autoscalers that do not act",
        "s10-honest-counts",
        "e2e/test_gangs.py::test_n_pods_with_room_for_fewer_wait_together",
    ),
    "S11": ("an impossible job waits for ever without a word", "s11-no-matching-node"),
    "S12": ("a namespace's quota makes two jobs hold half each", "s12-quota-for-one-of-two"),
    "S13": (
        "a gang is silently none",
        "s13-queue-not-found",
        "e2e/test_backends.py::test_a_missing_api_is_told_and_waited_for",
        "e2e/test_scheduler_alone.py::test_missing_permissions_are_one_clear_error",
    ),
    "S14": (
        "a launcher that comes last, against the minimum",
        "s14-room-for-the-launcher",
        "e2e/test_mpi.py::test_a_launcher_that_waits_for_its_workers_has_its_room_kept",
    ),
    "S15": (
        "stages that start one after another, against the minimum",
        "gang/test_standing.py::test_minimum",
        "gang/test_notices.py::test_lowered_minimum",
    ),
    "S16": (
        "a rolling update of a gang hangs",
        "s16-rolling-update",
        "s16-rolling-update-while-the-old-pod-ends",
    ),
    "S17": (
        "slow at scale, slow after a restart, throttled by webhooks",
        "allocator/test_job_gangs.py::test_an_unchanged_gang_is_the_same_object",
        "cluster/test_state.py::test_gang_is_taken_in_once",
        "manifests/test_manifests.py::test_the_webhook_asks_about_every_kind_and_stops_nobody",
    ),
    "S18": ("two gangs hold half each", "s18-two-halves"),
    "S19": (
        "quota is not released after an eviction",
        "controller/test_reconcile.py::test_s19_a_gang_that_makes_room_restarts_whole",
        "e2e/test_lifecycle.py::test_suspended_while_running_frees_its_room_when_it_is_free",
    ),
    "S20": (
        "preemption to and fro, one head per cycle, queues that slow each other",
        "s20-no-thrash-between-queues",
        "s20-gpu-queue-does-not-slow-cpu-queue",
    ),
    "S21": (
        "how long must I wait, and why",
        "s21-how-long-and-why",
        "e2e/test_questions.py::test_a_gang_that_waits_explains_itself",
    ),
    "S22": (
        "reservations, backfilling, and the edges between gangs and preemption",
        "s22-reservation-where-nobody-may-go",
        "properties/test_reservation.py::test_who_passes_by_delays_nobody",
        "properties/test_evicting.py::test_no_gang_is_broken",
    ),
    "S23": (
        "one member comes back slowly; a gang is created in part",
        "s23-one-member-comes-back-alone",
        "controller/test_groups.py::test_a_half_gang_is_undone",
        "e2e/test_faults.py::test_every_job_ends_as_it_would_have",
    ),
    "U2": (
        "two jobs, quota for one: both start by half",
        "e2e/test_quota.py::test_quota_for_one_of_two_jobs",
    ),
    "U3": (
        "a launcher that waits for ready workers keeps a gang from ever starting",
        "e2e/test_mpi.py::test_a_launcher_that_waits_for_its_workers_has_its_room_kept",
    ),
    "U8": (
        "queue and priority of a job need another set-up",
        "allocator/test_job_facts.py::test_the_policy_of_the_job",
    ),
    "U11": (
        "minResources and priorities by chance; group and pods differ",
        "gang/test_demand.py::test_pods_of_high_priority_come_first",
        "allocator/test_job_facts.py::test_the_priority_of_a_template",
    ),
    "U12": (
        "a job of one pod waits for lack of a group",
        "controller/test_groups.py::test_a_job_of_one_pod_has_a_group_too",
    ),
    "U13": (
        "elastic gangs: the minimum is the fewest workers, extras are extras",
        "conformance/test_elastic_gang.py::test_the_gang_of_a_pytorch_job",
        "e2e/test_kinds.py::test_an_elastic_job_starts_with_the_workers_that_fit",
    ),
    "U15": (
        "the master runs and waits for workers that have no room",
        "e2e/test_gangs.py::test_n_pods_with_room_for_fewer_wait_together",
    ),
    "U16": (
        "one pod that waits wastes the other 99",
        "e2e/test_gangs.py::test_n_pods_with_room_for_fewer_wait_together",
        "controller/test_groups.py::test_since_is_when_the_reason_was_first_given",
    ),
    "M1": (
        "eight requests for each pod, a write and an event for each attempt",
        "e2e/test_gangs.py::test_n_pods_with_room_for_fewer_wait_together",
    ),
    "M2": (
        "services follow their pods after a minute",
        "controller/test_reconcile.py::test_a_thousand_pods_in_one_pass",
    ),
    "M3": (
        "groups are read and written in every pass",
        "controller/test_groups.py::test_it_is_patched_on_a_difference_only",
        "gang/test_base.py::test_no_difference_to_what_was_written",
    ),
    "M4": (
        "half a gang says Running for ever",
        "controller/test_groups.py::test_running_means_ready",
    ),
    "M5": (
        "the slot of a lost member is gone at once, worst while the operator is away",
        "e2e/test_protected_slot.py::test_a_lost_member_comes_back",
        "e2e/test_protected_slot.py::test_while_the_operator_is_dead",
    ),
    "M6": (
        "deleting a running worker fails the job",
        "conformance/test_run_policy.py::test_a_deleted_worker_is_replaced_and_nothing_fails",
    ),
}
"""Pain -> what it is, and the stories that show how Muster does without it."""
NUMBERED = {f"S{i}" for i in range(1, 24)} | {f"M{i}" for i in range(1, 7)}
OF_JOBS = {"U2", "U3", "U8", "U11", "U12", "U13", "U15", "U16"}
"""Those pains of jobs that scheduling is to blame for."""

ALONE = "e2e/test_scheduler_alone.py"
KUBE_BATCH = {
    "Schedule Job": f"{ALONE}::test_the_tutorials_job_waits_whole_and_runs_whole",
    "Schedule Multiple Jobs": f"{ALONE}::test_gangs_in_turn",
    "Gang scheduling": f"{ALONE}::test_the_tutorials_job_waits_whole_and_runs_whole",
    "Gang scheduling: Full Occupied": f"{ALONE}::test_gangs_in_turn",
    "Preemption": "preemption",
    "Multiple Preemption": "multiple-preemption",
    "Schedule BestEffort Job": "best-effort-gang",
    "Statement": "statement",
    "TaskPriority": "task-priority",
    "Try to fit unassigned task with different resource requests in one loop": (
        "different-sizes-in-one-gang"
    ),
    "Job Priority": "scheduler/plugins/test_priority.py::test_gangs",
    "Proportion": "proportion-tutorial",
    "NodeAffinity": "node-affinity",
    "Hostport": "host-ports",
    "Pod Affinity": "pod-affinity",
    "Taints/Tolerations": "taints-and-tolerations",
    "Node Affinity Test": "node-affinity-preferred",
    "Pod Affinity Test": "pod-anti-affinity",
    "Least Requested Resource Test": "least-requested",
    "Reclaim": "reclaim",
    "Schedule Density Job": f"{ALONE}::test_a_hundred_pods",
}
"""Name of a test in kube-batch's own suite -> ours."""


@cache
def docstrings(file: str) -> dict[str, str]:
    """Return the tests of a file with their docstrings."""
    module = ast.parse((TESTS / file).read_text())
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def words(story: str) -> str:
    """Return the name of a story and what it says of itself. Fails if there is no such story."""
    file, _, test = story.partition("::")
    if test:
        assert test in docstrings(file), story
        return f"{test}\n{docstrings(file)[test]}"
    path = SCENARIOS / f"{story}.yaml"
    assert path.exists(), story
    return f"{story}\n{path.read_text()}"


def test_every_pain_is_in_the_table() -> None:
    """Each has a sentence and a story at least."""
    assert set(PAINS) == NUMBERED | OF_JOBS
    assert [pain for pain, (said, *stories) in PAINS.items() if not (said and stories)] == []


@pytest.mark.parametrize("pain", PAINS)
def test_a_pain_is_shown_where_the_table_says(pain: str) -> None:
    """By a scenario that begins with its number, or a test that names it."""
    for story in PAINS[pain][1:]:
        found = words(story)
        named = found.startswith(f"{pain.lower()}-") or f"_{pain.lower()}_" in found
        assert named or re.search(rf"\b{pain}\b", found), f"{story} does not name {pain}"


def test_every_numbered_scenario_is_in_the_table() -> None:
    """One that begins with a number shows a pain that there is."""
    numbers = (re.match(r"[sum]\d+(?=-)", path.stem) for path in SCENARIOS.glob("*.yaml"))
    assert {found[0].upper() for found in numbers if found} <= set(PAINS)


@pytest.mark.parametrize("name", KUBE_BATCH)
def test_a_test_of_kube_batchs_is_kept(name: str) -> None:
    """By a story that names it."""
    assert name.lower() in " ".join(words(KUBE_BATCH[name]).lower().split())
