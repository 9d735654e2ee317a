# SPDX-License-Identifier: Apache-2.0
"""What is carried out of what was decided about pods that make room, and what is not."""

from __future__ import annotations

import pytest

from muster import gang
from muster.api import edge
from muster.frameworks import FRAMEWORKS
from muster.runtime.evictions import Evictions
from muster.runtime.gangstate import TELLING, GangState
from muster.runtime.metrics import Metrics
from muster.runtime.store import Store
from muster.scheduler.decision import Decision, Eviction, Move, Placement, State, Verdict
from muster.scheduler.model import Reason
from world import START, tfjob

MOVED, W0, W1 = "TFJob/team/mnist", "mnist-worker-0", "mnist-worker-1"
RESERVED = Verdict(State.RESERVED, Reason.NONE, "", "", 1, 1, 0, 1)


class Binder:
    """Takes down what is evicted."""

    def __init__(self):
        """Begin with nothing."""
        self.evicted = []

    def evict(self, pod, cause):
        """Take it down."""
        self.evicted.append((pod.name, cause.sentence))


class Story:
    """A job of two workers that run on one node, guarded by a disruption budget."""

    def __init__(self, allowed):
        """Begin with a budget that allows so many evictions at once."""
        self.version = 1
        backend, none = gang.EMBEDDED, lambda *_: None
        self.cache = Store(backend, [FRAMEWORKS["TFJob"]])
        self.put(tfjob(Worker=2), uid="job-uid")
        for name in (W0, W1):
            labels = {
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": name[-1],
            }
            owners = [{"uid": "job-uid", "controller": True}]
            metadata = {"name": name, "labels": labels, "ownerReferences": owners}
            spec, status = {"containers": [], "nodeName": "n1"}, {"phase": "Running"}
            self.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
        budget = {"kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
        self.put(budget | {"spec": {"selector": {}}, "status": {"disruptionsAllowed": allowed}})
        job = self.cache.jobs.get(MOVED)
        self.state, self.binder = GangState(job, self.cache, none), Binder()
        self.evictions = Evictions(
            self.cache, self.binder, None, {job.uid: self.state}, Metrics().cycles, none
        )

    def put(self, document, uid=""):
        """Show an object."""
        given = {
            "namespace": "team",
            "uid": uid or f"uid-{document['metadata']['name']}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": edge.format_time(START),
        }
        self.cache.put({**document, "metadata": {**given, **document["metadata"]}})

    def carry_out(self, action, moves=()):
        """Evict both pods for another gang; return whether that was done."""
        going = tuple(Eviction(MOVED, "worker", i, "n1", action) for i in range(2))
        decision = Decision("TFJob/team/large", RESERVED, evictions=going, moves=moves)
        return self.evictions.carry_out(decision, START, 1.0)

    def go_on(self, now=START, told=""):
        """Look again at what is to go, with what the status tells of the gang."""
        status = {"gang": {"state": told, "reason": "", "scheduler": "muster"}} if told else {}
        self.version += 1
        metadata = {"uid": "job-uid", "resourceVersion": str(self.version)}
        document = tfjob(Worker=2)
        document["metadata"] |= metadata
        self.put({**document, "status": status})
        self.evictions.repeat(self.cache.jobs.get(MOVED), self.state, now)


MOVE = Move(MOVED, (Placement("worker", 0, "n2"), Placement("worker", 1, "n3")))


def test_a_move_is_carried_out():
    """All pods go, and the job knows where it starts again."""
    story = Story(allowed=2)
    assert story.carry_out("defragment", (MOVE,))
    assert story.state.nominated == {W0: "n2", W1: "n3"}
    assert story.state.released
    story.go_on(told="Released")
    cause = "defragment: evicted for TFJob team/large"
    assert story.binder.evicted == [(W0, cause), (W1, cause)]


@pytest.mark.parametrize(
    ("told", "after", "goes"),
    [("Running", 0.1, False), ("Running", TELLING, True), ("Released", 0.1, True)],
)
def test_a_gang_goes_when_its_status_tells_it(told, after, goes):
    """Or when the status has had its time: a process after this one must know why it is half."""
    story = Story(allowed=2)
    assert story.carry_out("preempt")
    story.go_on(told="Running")
    assert not story.binder.evicted
    story.go_on(START + after, told)
    assert bool(story.binder.evicted) is goes


@pytest.mark.parametrize(
    ("action", "moves", "goes"), [("defragment", (MOVE,), False), ("preempt", (), True)]
)
def test_no_move_is_worth_a_disruption_budget(action, moves, goes):
    """Preemption overrides it where nothing else would do, a move never does."""
    story = Story(allowed=1)
    assert story.carry_out(action, moves) is goes
    assert story.state.released is goes
