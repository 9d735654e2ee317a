# SPDX-License-Identifier: Apache-2.0
"""Jobs that other operators have in flight: Muster starts, nothing ends, each goes on."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from muster.local.handle import Cluster
from support.builders import recorded_jobs
from support.e2e.harness import Api, Operators, StartOperator, add_nodes, own_namespace
from support.e2e.jobs_in_flight import Flight

pytestmark = [pytest.mark.e2e, pytest.mark.full]
LABELLED = ("Pod", "Service", "ConfigMap", "HorizontalPodAutoscaler", "Job")
PATIENCE = 5.0
"""Seconds in which nothing may happen, of which no event tells."""


@pytest.mark.parametrize(
    ("scheduler", "recorded"),
    [("embedded", recorded_jobs.NAMES), ("none", recorded_jobs.WITHOUT_OUR_LABELS)],
)
def test_a_cluster_is_taken_over(
    local_cluster: Cluster,
    api: Api,
    operators: Operators,
    start_operator: StartOperator,
    scheduler: str,
    recorded: tuple[str, ...],
) -> None:
    """What there is stays as it is, is found by our label, and each job ends with its programs.

    Where other schedulers place pods, those without our label are not even watched.
    """
    operators.stop()
    add_nodes(api, {"cpu": "64"})
    with ExitStack() as stack:
        flying = [
            Flight(name, stack.enter_context(own_namespace(local_cluster, "flight")))
            for name in recorded
        ]
        start_operator(f"--gang-scheduler-name={scheduler}", overlay="mpi", fresh=True)
        groups = () if scheduler == "none" else ("PodGroup",)
        for flight in flying:
            flight.wait_found(*LABELLED, *groups)
        time.sleep(PATIENCE)
        for flight in flying:
            flight.has_lost_nothing()
        for flight in flying:
            flight.ends_well()
