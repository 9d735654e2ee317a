# SPDX-License-Identifier: Apache-2.0
"""Several operators, of which one writes: crash, clean stop, and a standby that is ready."""

from __future__ import annotations

import re
import time

import pytest

from support.chaos.fault_player import SHORT_LEASE
from support.e2e.harness import PATIENCE, Api, Json, Operator, StartOperator, add_nodes, tfjob
from support.e2e.statuses import Lag, created_pods

pytestmark = pytest.mark.e2e

LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"
FLAGS = ("--leader-elect", *SHORT_LEASE)
HANDOVER_SECONDS = 5.0
TAKEOVER_SECONDS = 8.0 + HANDOVER_SECONDS
"""With this lease. With the one that is shipped: tests/kube/test_leaderelection.py."""


def holder(api: Api) -> str:
    """Return who holds the lease."""
    return str(api.get(LEASE, "muster")["spec"].get("holderIdentity") or "")


def run_one(api: Api, name: str) -> Json:
    """Run a small job to its end."""
    api.create(tfjob(name, workers=2, run="1"))
    return api.wait_condition(name, "Succeeded")


def first_pod(api: Api, job: str) -> float:
    """Return the time at which the first pod of the job is seen."""

    def any_pod(pods: dict[str, Json]) -> list[str]:
        return [name for name in pods if name.startswith(f"{job}-")]

    api.wait("Pod", any_pod, what=f"a pod of {job}")
    return time.monotonic()


def wait_counters(operator: Operator, api: Api, **wanted: int) -> None:
    """Wait until the counters of TFJobs in the namespace are these, and all others 0."""
    labels = f'framework="tensorflow",job_namespace="{api.namespace}"'
    form = rf"^training_operator_jobs_(\w+)_total{{{labels}}} (\d+)\.0$"
    deadline, found = time.monotonic() + PATIENCE, dict[str, int]()
    while found != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)  # a counter has no event to wait for
        samples = re.findall(form, operator.scrape(), re.MULTILINE)
        found = {name: int(count) for name, count in samples if count != "0"}


def test_one_leads_and_another_takes_over(api: Api, start_operator: StartOperator) -> None:
    """Only the leader writes; a killed one is followed after its lease, a stopped one at once.

    Each counts the transitions that it writes.
    """
    add_nodes(api, {"cpu": "16"})
    first = start_operator(*FLAGS, fresh=True)
    run_one(api, "alone")
    lag = Lag(api)
    leader = holder(api)
    assert leader
    second = start_operator(*FLAGS)  # ready although it does not lead
    run_one(api, "early")
    assert holder(api) == leader
    assert created_pods(first) == 4
    assert created_pods(second) == 0
    assert "leading as" not in second.log.read_text()

    api.create(tfjob("through", workers=2, run="forever"))
    through = api.wait_pods(2, "Running", "through")
    first.kill()
    killed = time.monotonic()
    api.create(tfjob("after-crash", workers=2, run="1"))
    crashed = first_pod(api, "after-crash") - killed
    assert crashed < TAKEOVER_SECONDS + lag.allowed()
    heir = holder(api)
    assert heir != leader
    assert api.get(LEASE, "muster")["spec"]["leaseTransitions"] >= 1
    api.wait_condition("after-crash", "Succeeded")

    third = start_operator(*FLAGS)
    began = time.monotonic()
    assert second.stop() == 0
    stopped = time.monotonic()
    api.create(tfjob("after-stop", workers=2, run="1"))
    handed = first_pod(api, "after-stop") - stopped
    late = lag.allowed()
    assert stopped - began < HANDOVER_SECONDS + late
    assert handed < HANDOVER_SECONDS + late
    api.wait_condition("after-stop", "Succeeded")
    for pod in through:
        api.finish(pod["metadata"]["name"])
    job = api.wait_condition("through", "Succeeded")
    assert job["status"]["replicaStatuses"]["Worker"]["succeeded"] == 2
    assert created_pods(third) == 2
    # Of jobs that were created or ended under another leader only what comes later is counted.
    # The job of the lag was created by this leader too.
    api.delete("TFJob", "alone")
    wait_counters(third, api, created=2, successful=2, deleted=1)
