# SPDX-License-Identifier: Apache-2.0
"""Higher first, among gangs and among the roles of one."""

from __future__ import annotations

from muster.scheduler import policy
from muster.scheduler.session import Session
from support.builders.scheduler import make_gang, make_node, make_role, make_snapshot

RULES = policy.parse({"tiers": [{"plugins": [{"name": "priority"}]}]})


def opened(*gangs):
    """Return a session in which only priorities count."""
    return Session(make_snapshot(nodes=[make_node()], gangs=gangs), RULES.openers())


def test_gangs():
    """By the priority of the group (Job Priority in kube-batch); of equal ones the oldest."""
    session = opened(
        make_gang(key="old", created=1.0),
        make_gang(key="high", priority=5, created=9.0),
        make_gang(key="low", priority=-1),
        make_gang(key="young", created=2.0),
    )
    found = [gang.spec.key for gang in sorted(session.gangs, key=session.order)]
    assert found == ["high", "old", "young", "low"]


def test_roles():
    """By that of their pods, else as they are named in the job."""
    names = {"ps": 0, "worker": 5, "evaluator": 0}
    roles = [make_role(role=name, replicas=1, priority=rank) for name, rank in names.items()]
    (gang,) = opened(make_gang(roles=roles)).gangs
    assert [tasks.pod_set.role for tasks in gang.tasks] == ["worker", "ps", "evaluator"]
