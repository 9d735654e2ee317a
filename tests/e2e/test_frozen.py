# SPDX-License-Identifier: Apache-2.0
"""An operator that does not know that it has stood still, and that another one leads."""

from __future__ import annotations

import pytest

from support.e2e.harness import Api, StartOperator, add_nodes, tfjob
from support.e2e.statuses import created_pods

pytestmark = pytest.mark.e2e


def test_a_leader_that_was_frozen_writes_nothing_afterwards(
    api: Api, start_operator: StartOperator
) -> None:
    """Stopped without its knowing until another leads: it ends itself when it wakes."""
    add_nodes(api, {"cpu": "16"})
    first = start_operator("--leader-elect")
    api.create(tfjob("early", workers=2, run="1"))
    api.wait_condition("early", "Succeeded")
    second = start_operator("--leader-elect")
    with first.frozen():
        api.create(tfjob("meanwhile", workers=2, run="5"))
        api.wait("Pod", lambda pods: any(name.startswith("meanwhile-") for name in pods))
        assert "leading as" in second.log.read_text()
    assert first.ended() == 1
    assert "lost the lease" in first.log.read_text()
    api.wait_condition("meanwhile", "Succeeded")
    assert created_pods(second) == 2
    assert len(api.pods("meanwhile")) == 2
