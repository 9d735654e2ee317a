# SPDX-License-Identifier: Apache-2.0
"""What is counted of jobs: each transition once, by whatever reason its event has."""

from __future__ import annotations

import pytest
from prometheus_client.exposition import generate_latest

import mpijobs
from muster import frameworks
from muster.api import names
from muster.controller.model import Emit
from muster.frameworks import FRAMEWORKS
from muster.runtime.metrics import Metrics
from muster.store.jobs import Jobs
from world import tfjob


def shown(metrics):
    """Return sample with its labels -> value, as a scrape finds it."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def job_of(version):
    """Return an MPIJob of that version."""
    document = mpijobs.mpijob(version)
    return frameworks.load(FRAMEWORKS["MPIJob"], document, "")


def test_every_name_of_jobs_is_served_from_the_start():
    """Those without labels show nothing yet, those with labels come with their first job."""
    text = generate_latest(Metrics().registry).decode()
    words = ("created", "deleted", "successful", "failed", "restarted")
    assert all(f"# TYPE training_operator_jobs_{word}_total counter" in text for word in words)
    assert "# TYPE mpi_operator_job_info gauge" in text
    plain = [f"mpi_operator_jobs_{word}_total" for word in ("created", "successful", "failed")]
    plain += [f"{verb}_pods_total" for verb in ("created", "deleted", "failed")]
    plain += ["created_pod_groups_total", "deleted_pod_groups_total"]
    plain += ["succeeded_service_creation_total", "failed_service_creation_total"]
    found = shown(Metrics())
    assert {name: found.get(name) for name in plain} == dict.fromkeys(plain, 0.0)


@pytest.mark.parametrize(("version", "own"), [("v1", 0), ("v2beta1", 1)])
def test_v2beta1_has_counters_of_its_own(version, own):
    """Beside those of all kinds."""
    metrics, job = Metrics(), job_of(version)
    for condition in ("Created", "Running", "Failed"):
        metrics.became(job, frameworks.of(job), condition)
    found = shown(metrics)
    labels = f'{{framework="mpi",job_namespace="{job.namespace}"}}'
    assert found[f"training_operator_jobs_created_total{labels}"] == 1
    assert found[f"training_operator_jobs_failed_total{labels}"] == 1
    assert found["mpi_operator_jobs_created_total"] == own
    assert found["mpi_operator_jobs_failed_total"] == own
    assert found["mpi_operator_jobs_successful_total"] == 0


def test_launchers_are_shown_for_as_long_as_they_are_there():
    """By the batch Job's name and namespace."""
    metrics, found = Metrics(), [("mpi_operator", "one-launcher", "team")]
    metrics.launchers.find = lambda: found
    sample = 'mpi_operator_job_info{launcher="one-launcher",namespace="team"}'
    assert shown(metrics)[sample] == 1
    found.clear()
    assert sample not in shown(metrics)


def test_a_failure_counts_whatever_its_reason():
    """A launcher's batch Job gives its own reason, which tells nothing of the transition."""
    made = mpijobs.world("v2beta1")
    made.launch()
    made.settle()
    made.close(end="Failed", failed=7, reason="BackoffLimitExceeded", message="too often")
    emitted = [action for action in made.decide() if isinstance(action, Emit)]
    counted = [(emit.transition, emit.reason) for emit in emitted if emit.transition]
    assert counted == [(names.Condition.FAILED, "BackoffLimitExceeded")]


def test_a_job_ends_once_whoever_deleted_it():
    """Also one that was made anew before its end was seen."""
    metrics = Metrics()
    jobs = Jobs({"TFJob": FRAMEWORKS["TFJob"]}, lambda _key: None, lambda: None)

    def version(number, uid):
        document = tfjob()
        document["metadata"] |= {"resourceVersion": str(number), "uid": uid}
        return document

    shown_jobs = jobs.collections["TFJob"]
    shown_jobs.take(version(1, "a"))
    shown_jobs.remove(version(2, "a"))
    shown_jobs.take(version(3, "b"))
    jobs.ended = metrics.ended
    shown_jobs.take(version(4, "c"))
    (key,) = (job.key for job in jobs)
    jobs.forget(key, "c")
    shown_jobs.remove(version(5, "c"))
    labels = '{framework="tensorflow",job_namespace="team"}'
    assert shown(metrics)[f"training_operator_jobs_deleted_total{labels}"] == 2
