# SPDX-License-Identifier: Apache-2.0
"""The gang of one job, followed: what is shown of its pods, and what the next cycle sees."""

from muster import gang
from muster.allocator import tracker
from muster.allocator.members import JobMembers
from muster.allocator.tracker import Assumed, Evict, Outcome
from muster.api import edge, names
from muster.frameworks import FRAMEWORKS
from muster.store.store import Callbacks, Store
from support.apiserver.memory import START, tfjob
from support.builders.objects import reference
from support.builders.scheduler import make_node, make_pod
from support.rehearsal.gang_tracking import Following, Shown

HOLD = 120.0
KEY = "TFJob/team/mnist"


class JobStory(Shown):
    """A store that is shown objects, and the state of the one job in it."""

    def __init__(self, *, expired="keep", nodes=("n1", "n2"), **job):
        """Begin with the nodes and a job of three workers; `expired` is what the flag says."""
        self.said = []
        self.store = Store(
            gang.EMBEDDED, [FRAMEWORKS["TFJob"]], callbacks=Callbacks(self.said.append)
        )
        for name in nodes:
            self.put({"kind": "Node", **make_node(name=name)})
        replaced = {"replicas": 3, "restartPolicy": "OnFailure"}
        self.document = job.pop("document", None) or tfjob(Worker=replaced, **job)
        self.document["metadata"] |= {"uid": "job-uid", "generation": 1}
        self.document["metadata"]["creationTimestamp"] = edge.format_time(START)
        self.put(self.document)
        self.expired = expired
        self.follow(START)

    def follow(self, now):
        """Begin to follow the gang, as a process that starts now."""
        self.following = Following(self.store, JobMembers, KEY, "muster", now, HOLD, self.expired)

    @property
    def now(self):
        """What time it is."""
        return self.following.now

    @now.setter
    def now(self, now):
        self.following.now = now

    @property
    def wakes(self):
        """When cycles are wanted."""
        return self.following.wakes

    @property
    def memory(self):
        """What is remembered."""
        return self.following.memory

    @property
    def job(self):
        """The job as it is at present."""
        return self.store.jobs.get(KEY)

    def pod(
        self,
        name,
        *,
        node="n1",
        phase="Running",
        uid="",
        reason="",
        going=False,
        labels=None,
        by="",
        owner="job-uid",
        rejections=0,
        failures=0,
    ):
        """Show a pod of the job, which names the scheduler `by`."""
        document = make_pod(
            name=name, node=node, namespace="team", uid=uid, phase=phase, deleting=going
        )
        document["metadata"] |= {
            "creationTimestamp": edge.format_time(START),
            "labels": labels
            or {
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": name[-1],
            },
            "ownerReferences": [reference(uid=owner)],
            "annotations": {
                names.REJECTIONS_BEFORE: str(rejections),
                names.FAILURES_BEFORE: str(failures),
            },
        }
        document["spec"]["schedulerName"], document["status"]["reason"] = by, reason
        self.put({"kind": "Pod", **document})

    def gone(self, name, uid=""):
        """Show that a pod is not there any more."""
        self.store.gone("Pod", "team", name, uid or f"uid-{name}")

    def silence(self, name="n1", status="Unknown"):
        """Show a node that does not answer from now on, or answers again; look."""
        document = make_node(name=name)
        since = edge.format_time(self.now)
        ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
        document["status"]["conditions"] = [ready]
        self.put({"kind": "Node", **document})
        self.look()

    def guard(self, allowed=0):
        """Show a disruption budget for all pods that allows so many evictions."""
        budget = {"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "team"}}
        self.put({**budget, "spec": {"selector": {}}, "status": {"disruptionsAllowed": allowed}})

    def evicted(self):
        """Return the names of the pods that were evicted at the last look, and for whom."""
        return {it.pod.name: it.cause for it in self.following.effects.of(Evict)}

    def edit(self, **workers):
        """Change the role of the job."""
        self.document["spec"]["tfReplicaSpecs"]["Worker"].update(workers)
        self.document["metadata"]["generation"] += 1
        self.put(self.document)

    def look(self, seconds=0.0):
        """Let time pass and return the gang that the next cycle sees."""
        return self.following.look(seconds)

    def promise(self, *pairs):
        """Give pods their nodes."""
        self.following.assume(dict(pairs))

    def give(self, nodes):
        """Give pods their nodes, as a cycle does."""
        facts = self.following.gangs.facts(KEY, self.now)
        shape = facts.tasks[0].shape
        found = {p: Assumed(n, shape, 0.0, facts.pods[p].uid) for p, n in nodes.items()}
        step = tracker.accepted(self.memory, facts, Outcome(facts.blank, found), self.now)
        self.following.gangs.take(KEY, step)

    @property
    def promised(self):
        """The assumed pods, which are the same as the room that is taken for them."""
        return self.following.assumed()
