# SPDX-License-Identifier: Apache-2.0
"""Several operators, of which one writes: crash, clean stop, and a standby that is ready.

tests/kube/test_leaderelection.py checks how soon another leader follows.
"""

from __future__ import annotations

import pytest

from support.chaos.fault_player import SHORT_LEASE
from support.e2e.harness import Api, StartOperator, add_nodes, tfjob
from support.e2e.statuses import created_pods

pytestmark = pytest.mark.e2e

LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"
FLAGS = ("--leader-elect", *SHORT_LEASE)


def holder(api: Api) -> str:
    """Return who holds the lease."""
    return str(api.get(LEASE, "muster")["spec"].get("holderIdentity") or "")


def run_one(api: Api, name: str) -> None:
    """Run a small job to its end."""
    api.create(tfjob(name, workers=2, run="1"))
    api.wait_condition(name, "Succeeded")


def test_one_leads_and_another_takes_over(api: Api, start_operator: StartOperator) -> None:
    """Only the leader writes, a standby is ready, and jobs outlive a leader however it ends."""
    add_nodes(api, {"cpu": "16"})
    first = start_operator(*FLAGS, fresh=True)
    run_one(api, "alone")
    leader = holder(api)
    assert leader
    second = start_operator(*FLAGS)  # ready although it does not lead
    run_one(api, "early")
    assert holder(api) == leader
    assert (created_pods(first), created_pods(second)) == (4, 0)
    assert "leading as" not in second.log.read_text()

    api.create(tfjob("through", workers=2, run="forever"))
    through = api.wait_pods(2, "Running", "through")
    first.kill()
    run_one(api, "after-crash")
    assert holder(api) not in ("", leader)

    third = start_operator(*FLAGS)
    assert second.stop() == 0
    run_one(api, "after-stop")
    for pod in through:
        api.finish(pod["metadata"]["name"])
    job = api.wait_condition("through", "Succeeded")
    assert job["status"]["replicaStatuses"]["Worker"]["succeeded"] == 2
    assert created_pods(third) == 2
