# SPDX-License-Identifier: Apache-2.0
"""What is carried out of what was decided about pods that make room, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster import gang
from muster.allocator.eviction import Evictions
from muster.allocator.members import JobMembers
from muster.allocator.tracker import Evict
from muster.api import edge
from muster.api.reasons import DeletionReason, GangPhase, Reason
from muster.frameworks import FRAMEWORKS
from muster.runtime.metrics import Metrics
from muster.scheduler.decision import Decision, Eviction, Move, Placement, Verdict
from muster.store.store import Store
from support.apiserver.memory import START, tfjob
from support.builders.objects import reference
from support.rehearsal.gang_tracking import Following

MOVED, W0, W1 = "TFJob/team/mnist", "mnist-worker-0", "mnist-worker-1"
RESERVED = Verdict(GangPhase.RESERVED, Reason.NONE, "", "", 1, 1, 0, 1)


class Story:
    """A job of two workers that run on one node, guarded by a disruption budget."""

    def __init__(self, allowed):
        """Begin with a budget that allows so many evictions at once."""
        self.version = 1
        backend, none = gang.EMBEDDED, lambda *_: None
        self.store = Store(backend, [FRAMEWORKS["TFJob"]])
        self.put(tfjob(Worker=2), uid="job-uid")
        for name in (W0, W1):
            self.put_pod(name)
        budget = {"kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
        self.put(budget | {"spec": {"selector": {}}, "status": {"disruptionsAllowed": allowed}})
        self.following = Following(self.store, JobMembers, MOVED, "muster", START)
        self.following.look()
        self.evictions = Evictions(
            self.following.gangs, self.store.budgets, Metrics().cycles, none
        )

    @property
    def memory(self):
        """What is remembered of the job's gang."""
        return self.following.memory

    def put_pod(self, name, uid=""):
        """Show a worker that runs."""
        labels = {
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": name[-1],
        }
        owners = [reference()]
        version = str(self.version + bool(uid))
        metadata = {"name": name, "labels": labels, "ownerReferences": owners}
        metadata["resourceVersion"] = version
        spec, status = {"containers": [], "nodeName": "n1"}, {"phase": "Running"}
        self.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}, uid)

    def put(self, document, uid=""):
        """Show an object."""
        given = {
            "namespace": "team",
            "uid": uid or f"uid-{document['metadata']['name']}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": edge.format_time(START),
        }
        self.store.put({**document, "metadata": {**given, **document["metadata"]}})

    def carry_out(self, action, moves=(), claimant="TFJob/team/large"):
        """Evict both pods for another gang; return whether that was done."""
        going = tuple(Eviction(MOVED, "worker", i, "n1", DeletionReason(action)) for i in range(2))
        decision = Decision(claimant, RESERVED, evictions=going, moves=moves)
        return self.evictions.carry_out(decision, START, 1.0)

    def go_on(self, state=""):
        """Return who is evicted when a cycle looks, with what the status says of the gang."""
        status = {"gang": {"state": state, "reason": "", "scheduler": "muster"}} if state else {}
        self.version += 1
        metadata = {"uid": "job-uid", "resourceVersion": str(self.version)}
        document = tfjob(Worker=2)
        document["metadata"] |= metadata
        self.put({**document, "status": status})
        self.following.look()
        return [(it.pod.name, it.cause.sentence) for it in self.following.effects.of(Evict)]


MOVE = Move(MOVED, (Placement("worker", 0, "n2"), Placement("worker", 1, "n3")))


def test_a_move_is_carried_out():
    """All pods go, and the job knows where it starts again."""
    story = Story(allowed=2)
    assert story.carry_out("defragment", (MOVE,))
    assert story.memory.nominated == {W0: "n2", W1: "n3"}
    assert story.memory.released
    cause = "defragment: evicted for TFJob team/large"
    assert story.go_on(state="Released") == [(W0, cause), (W1, cause)]


@pytest.mark.parametrize(
    ("hide", "claimant", "named"),
    [
        (False, "TFJob/other/large", "TFJob other/large"),
        (True, "TFJob/other/large", "a job of another namespace"),
        (True, "TFJob/team/large", "TFJob team/large"),
    ],
)
def test_for_whom_it_goes(hide, claimant, named):
    """By name, unless names of other namespaces are hidden."""
    story = Story(allowed=2)
    settings = story.following.settings
    story.following.settings = replace(settings, hide_others=hide)
    story.following.look()
    assert story.carry_out("preempt", claimant=claimant)
    cause = f"preempt: evicted for {named}"
    assert story.go_on(state="Released") == [(W0, cause), (W1, cause)]


def test_a_pod_that_is_not_the_one_that_was_seen():
    """Nothing goes: its successor may be of use where the other one was not."""
    story = Story(allowed=2)
    story.put_pod(W0, uid="second")
    assert not story.carry_out("preempt")
    assert not story.memory.leaving


@pytest.mark.parametrize(
    ("action", "moves", "goes"), [("defragment", (MOVE,), False), ("preempt", (), True)]
)
def test_no_move_is_worth_a_disruption_budget(action, moves, goes):
    """Preemption overrides it where nothing else would do, a move never does."""
    story = Story(allowed=1)
    assert story.carry_out(action, moves) is goes
    assert story.memory.released is goes
