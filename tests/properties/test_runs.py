# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a job: running pods are deleted only for a reason that holds.

Within a run nothing that was done is done again, and no count decreases.
"""

import dataclasses

from hypothesis import example, given
from hypothesis import strategies as st

from muster import gang
from muster.api import indexes
from muster.api.reasons import DeletionReason
from muster.api.status import Verdict
from muster.controller.model import Create, Delete, Patch, Refusal, SetStatus
from muster.frameworks import load, of
from support.apiserver.memory import World, copied, of_kind, wanted
from support.builders.mpijobs import SECRETS, led

DELETED_AT = "2024-01-01T00:00:00Z"
WHOLE = {"muster.kubeflow.org/restart": "gang"}
WRITES = Create | Delete | Patch | SetStatus
WHICH = st.integers(0, 7)
TYPES = {
    "TFJob": ("Chief", "PS", "Worker"),
    "PyTorchJob": ("Master", "Worker"),
    "XGBoostJob": ("Master", "Worker"),
    "PaddleJob": ("Master", "Worker"),
    "JAXJob": ("Worker",),
    "MPIJob": ("Worker",),
}
NEEDED = {"XGBoostJob": "Master"}
NODES = ("n0", "n1", "n2")


def job_of(kind, present, workers, policy, options, annotations, clean="None"):
    """Return a job of that kind with some of its roles."""
    given_ = {type_ for type_, there in zip(TYPES[kind], present, strict=False) if there}
    roles = {
        type_: {"replicas": workers if type_ == "Worker" else 1, "restartPolicy": policy}
        for type_ in TYPES[kind]
        if type_ in {"Worker", NEEDED.get(kind)} | given_
    }
    spec = options if kind == "TFJob" else None
    cleans = {"cleanPodPolicy": clean}
    return of_kind(kind, annotations=annotations, spec=spec, policy=cleans, **roles)


cleans = st.sampled_from(["None", "Running", "All"])


def mpijobs(version, *policies, **fields):
    """Return MPIJobs of that version, of whose roles each has one of these restart policies."""
    ends = st.tuples(st.sampled_from(policies), st.sampled_from(policies))
    clean = st.builds(lambda clean: {"cleanPodPolicy": clean}, cleans)
    made = st.just(version), ends, st.integers(1, 4), clean, st.booleans()
    return st.builds(led, *made, **fields)


jobs = st.builds(
    job_of,
    st.sampled_from(sorted(TYPES.keys() - {"MPIJob"})),
    st.tuples(st.booleans(), st.booleans()),
    st.integers(1, 4),
    st.sampled_from(["Never", "OnFailure", "ExitCode", "Always"]),
    st.builds(
        lambda dynamic: {"successPolicy": "AllWorkers", "enableDynamicWorker": dynamic},
        st.booleans(),
    ),
    st.sampled_from([None, WHOLE]),
    cleans,
) | (
    mpijobs("v1", "Never", "OnFailure", "ExitCode", "Always")
    | mpijobs("v2beta1", "Never", "OnFailure", runLauncherAsWorker=st.booleans())
)
nodes = st.integers(0, len(NODES) - 1)
events = st.one_of(
    st.tuples(st.just("start")),
    st.tuples(st.just("launch")),
    st.tuples(st.just("succeed"), WHICH),
    st.tuples(st.just("fail"), WHICH, st.sampled_from([1, 137])),
    st.tuples(st.just("disrupt"), WHICH),
    st.tuples(st.just("collect"), WHICH),
    st.tuples(st.just("reject"), WHICH),
    st.tuples(st.just("drain"), WHICH),
    st.tuples(st.just("lose_node"), nodes),
    st.tuples(st.just("silence"), st.sets(nodes, min_size=1)),
    st.tuples(st.just("expire")),
    st.tuples(st.just("fence"), nodes),
    st.tuples(st.just("return")),
    st.tuples(st.just("double"), WHICH),
    st.tuples(st.just("refuse")),
    st.tuples(st.just("reap")),
    st.tuples(st.just("resize"), st.integers(1, 5)),
    st.tuples(st.just("leave_out")),
    st.tuples(st.just("crash"), st.integers(0, 6)),
    st.tuples(st.just("tick"), st.sampled_from([1, 400])),
    st.tuples(st.just("pause")),
    st.tuples(st.just("release")),
    st.tuples(st.just("queue"), st.booleans()),
)
histories = st.builds(
    lambda first, rest: [*first, *rest],
    st.sampled_from([[], [("start",)], [("start",)], [("start",), ("launch",)]]),
    st.lists(events, max_size=14),
)
WAITS = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}
backends = st.sampled_from([gang.NONE, gang.EMBEDDED, gang.VOLCANO, gang.KUBE_BATCH])


class Cluster(World):
    """A world that records what the status has counted in the run under way."""

    def __init__(self, document, backend):
        """Begin with a job that has its pods."""
        super().__init__(document, backend=backend, secrets=SECRETS)
        self.done, self.restarts, self.restarted = {}, {}, False
        self.whole = bool(document["metadata"].get("annotations"))
        self.silent, self.fenced = {}, set()
        self.hosts, self.born = {}, {}
        """uid of a pod -> its node, and the number of the event that it was created after."""
        self.clock = self.lost_at = self.failed_at = self.failures = 0
        self.ran, self.group = False, {"phase": "Running"}
        self.placed()
        self.passes()

    def observe(self):
        """Return what one reconcile observes, with the pods of unreachable nodes marked."""
        seen = super().observe()
        return dataclasses.replace(seen, pods=tuple(map(self.seen, seen.pods)))

    def seen(self, pod):
        """Return a pod as the store shows it."""
        host = self.host(pod.uid)
        if pod.terminal or host not in self.silent:
            return dataclasses.replace(pod, node=host)
        fenced = host in self.fenced
        return dataclasses.replace(pod, node=host, unreachable=True, lost=True, fenced=fenced)

    def host(self, uid):
        """Return the node of a pod: one that answers when it is created, or none."""
        if uid not in self.hosts:
            there = [name for name in NODES if name not in self.silent] or [""]
            self.hosts[uid] = there[len(self.hosts) % len(there)]
            self.born[uid] = self.clock
        return self.hosts[uid]

    def on(self, hosts):
        """Return the names of the pods on these nodes that have not ended."""
        return [
            pod["metadata"]["name"]
            for pod in self.of("Pod")
            if self.host(pod["metadata"]["uid"]) in hosts
            and pod.get("status", {}).get("phase", "Pending") in ("Pending", "Running")
        ]

    def placed(self):
        """Give all pods nodes, those of completed indexes as well."""
        if self.backend.embedded:
            self.extra["placements"] = dict.fromkeys(wanted(self), "node")
            self.extra["verdict"] = Verdict("muster", "Placed", "mnist")

    # What is checked.

    def passes(self, *, upto=None):
        """Do reconciles until one writes nothing; check after each write."""
        for _ in range(12):
            group = self.objects.get(("PodGroup", "mnist"))
            if group is not None and not self.backend.embedded:
                group["status"] = self.group
            actions = self.decide()[:upto]
            for action in actions:
                self.check(action)
                self.apply(action)
            if upto is not None or not any(isinstance(a, WRITES) for a in actions):
                return
        raise AssertionError(f"no fixpoint: {self.decide()}")

    def check(self, action):
        """Check one write against what the run has counted so far."""
        if isinstance(action, Create) and action.doc["kind"] == "Pod":
            assert action.doc["metadata"]["name"] not in self.completed_names()
        if isinstance(action, Delete) and action.kind == "Pod":
            pod = self.objects.get(("Pod", action.name))
            if pod is not None and is_running(pod):
                assert self.may_delete(action.reason, pod), action
                # A gang that restarts has not run: what starts of it may be undone.
                self.ran = self.ran and action.reason is not DeletionReason.PEER_LOST
        if isinstance(action, SetStatus):
            self.count(action.status)

    def may_delete(self, reason, pod):
        """Return whether that is a reason to delete a running pod now."""
        uid, host = pod["metadata"]["uid"], self.host(pod["metadata"]["uid"])
        policy, over = self.job["spec"]["runPolicy"], self.status.get("completionTime")
        return {
            DeletionReason.SUSPENDED: policy.get("suspend"),
            DeletionReason.FINISHED: over and policy["cleanPodPolicy"] != "None",
            DeletionReason.SURPLUS: self.is_unwanted(pod["metadata"]["name"]),
            DeletionReason.DUPLICATE: len(self.of_index(pod["metadata"]["name"])) > 1,
            DeletionReason.FENCED: host in self.fenced,
            # Once for each failure or loss, and never while a member may still run.
            DeletionReason.RESTARTED: self.whole and self.born[uid] <= self.failed_at,
            DeletionReason.PEER_LOST: self.whole
            and self.born[uid] <= self.lost_at
            and not self.may_run(),
            DeletionReason.UNDONE: "refusal" in self.extra and not (self.ran or self.may_run()),
        }.get(reason, False)

    def is_unwanted(self, name):
        """Return whether the job does not want the index of a pod."""
        role, *index = name.split("-")[1:3]
        roles = self.job["spec"][self.framework.spec_field]
        replicas = {type_.lower(): fields.get("replicas") for type_, fields in roles.items()}
        return role != "launcher" and int(*index) >= replicas.get(role, 0)

    def of_index(self, name):
        """Return the names of all pods of an index."""
        first = name.removesuffix("-second")
        return [each for each in (first, f"{first}-second") if ("Pod", each) in self.objects]

    def may_run(self):
        """Return whether a wanted member may run on a node that does not answer."""
        return not all(map(self.is_unwanted, self.on(self.silent.keys() - self.fenced)))

    def completed_names(self):
        """Return the names of the pods that this run must not create again."""
        return {f"mnist-{type_.lower()}-{i}" for type_, found in self.done.items() for i in found}

    def count(self, status):
        """Compare the counts of a status with those before."""
        replicas = status.get("replicaStatuses", {})
        job = load(self.framework, self.job)
        collective = of(job).life.collective(job)
        running = not (status.get("completionTime") or job.run_policy.suspend)
        for type_ in TYPES[job.kind]:
            counted = replicas.get(type_, {})
            done = indexes.parse(counted.get("completedIndexes"))
            before = self.done.get(type_, frozenset())
            if not (self.restarted and collective):
                assert done >= before
            assert counted.get("restarts", 0) >= self.restarts.get(type_, 0)
            role = job.replica(type_)
            if running and role is not None:
                assert counted.get("succeeded", 0) == len(done & frozenset(range(role.replicas)))
        self.done = {t: indexes.parse(c.get("completedIndexes")) for t, c in replicas.items()}
        self.restarts = {t: c.get("restarts", 0) for t, c in replicas.items()}
        assert sum(self.restarts.values()) <= self.failures

    # What happens.

    def happen(self, event, *args):
        """Let one thing happen, and the operator see to it."""
        if self.status.get("completionTime"):
            return
        self.clock += 1
        getattr(self, f"on_{event}")(*args)
        self.passes()
        assert not any(
            is_running(p) and self.is_unwanted(p["metadata"]["name"]) for p in self.of("Pod")
        )
        self.ran = self.ran or self.runs_whole()

    def runs_whole(self):
        """Return whether all pods that are wanted run."""
        there = (self.objects.get(("Pod", name)) for name in wanted(self))
        return all(pod is not None and is_running(pod) for pod in there)

    def some(self, which, *phases):
        """Return the name of one of the pods in these phases, or None."""
        pods = [p["metadata"]["name"] for p in self.of("Pod")
                if p.get("status", {}).get("phase", "Pending") in phases]  # fmt: skip
        return sorted(pods)[which % len(pods)] if pods else None

    def loses(self, *pods):
        """Note that a gang that restarts as a whole may begin a new run from here on.

        Not for pods that have done their work.
        """
        needed = set(pods) - self.completed_names()
        self.restarted = self.restarted or (self.whole and bool(needed))
        self.lost_at = self.clock if needed else self.lost_at

    def on_start(self):
        """Let all pods run that are to."""
        for pod in self.of("Pod"):
            if "status" not in pod:
                self.start(pod["metadata"]["name"])

    def on_succeed(self, which):
        """Let a program end well."""
        if name := self.some(which, "Running"):
            self.end(name, 0)

    def end(self, name, code=0, *, reason=""):
        """Let a pod end, and its batch Job observe that."""
        super().end(name, code, reason=reason)
        self.follow(self.pod(name))

    def on_fail(self, which, code):
        """Let a program fail."""
        if name := self.some(which, "Running"):
            self.loses(name)
            self.failed_at = self.clock
            self.failures += 1
            self.end(name, code)

    def on_disrupt(self, which):
        """Let a node that shuts down end a pod; that is no failure of its program."""
        if name := self.some(which, "Running"):
            self.loses(name)
            self.end(name, 143, reason="Terminated")

    def on_reject(self, which):
        """Let a kubelet that restarts reject a pod that has succeeded."""
        if name := self.some(which, "Succeeded"):
            self.end(name, None, reason="UnexpectedAdmissionError")

    def on_collect(self, which):
        """Remove a pod that has ended, as PodGC."""
        if name := self.some(which, "Succeeded", "Failed"):
            del self.objects["Pod", name]

    def on_drain(self, which):
        """Delete a pod; it takes its time."""
        name = self.some(which, "Pending", "Running", "Succeeded")
        # Its controller alone decides about the next pod of a batch Job.
        if name and self.pod(name) not in self.pods_of_batch():
            self.loses(name)
            self.pod(name)["metadata"].setdefault("deletionTimestamp", DELETED_AT)

    def on_lose_node(self, which):
        """Delete a node, and with it the pods that it had."""
        for pod in self.of("Pod"):
            if self.host(pod["metadata"]["uid"]) == NODES[which]:
                self.loses(pod["metadata"]["name"])
                del self.objects["Pod", pod["metadata"]["name"]]

    def on_silence(self, which):
        """Cut nodes off, for so long that their pods are treated as lost."""
        self.silent |= {NODES[index]: self.now for index in which}

    def on_expire(self):
        """Let Kubernetes delete the pods of the nodes that were cut off; no kubelet ends them."""
        for name in self.on(self.silent):
            self.loses(name)
            self.pod(name)["metadata"].setdefault("deletionTimestamp", DELETED_AT)

    def on_fence(self, which):
        """Put a node out of service."""
        self.silent[NODES[which]] = self.now
        self.fenced.add(NODES[which])
        self.loses(*self.on({NODES[which]}))

    def on_return(self):
        """Let all nodes answer again."""
        self.silent, self.fenced = {}, set()

    def on_double(self, which):
        """Let another operator have made a second pod of an index."""
        name = self.some(which, "Running")
        if name and "launcher" not in name:
            twin = copied(self.pod(name))
            twin["metadata"] |= {"name": f"{name}-second", "uid": f"second-{self.clock}"}
            twin["metadata"].pop("deletionTimestamp", None)
            self.objects["Pod", f"{name}-second"] = twin
            self.host(twin["metadata"]["uid"])
            self.born[twin["metadata"]["uid"]] = self.born[self.pod(name)["metadata"]["uid"]]

    def on_refuse(self):
        """Let the server refuse a pod for a while; before the gang has run it is undone."""
        self.extra["refusal"] = Refusal("Pod", "mnist-worker-0", "Forbidden", "no", self.now + 60)
        self.passes()
        del self.extra["refusal"]

    def _delete(self, action):
        super()._delete(action)
        if action.force:
            self.objects.pop((action.kind, action.name), None)

    def on_reap(self):
        """Remove what is being deleted, where a kubelet ends it."""
        kept = {("Pod", name) for name in self.on(self.silent)}
        for key, found in list(self.objects.items()):
            if "deletionTimestamp" in found["metadata"] and key not in kept:
                # Only now has the gang lost the member.
                self.loses(key[1])
                del self.objects[key]

    def on_resize(self, replicas):
        """Scale the workers."""
        field = self.framework.spec_field
        roles = self.job["spec"][field]
        if "Worker" in roles:
            self.edit(**{field: {**roles, "Worker": {**roles["Worker"], "replicas": replicas}}})
        self.placed()

    def on_leave_out(self):
        """Leave a role out of the spec, and put it back."""
        field = self.framework.spec_field
        roles = self.job["spec"][field]
        if len(roles) > 1 and self.job["kind"] not in ("XGBoostJob", "MPIJob"):
            self.loses(*self.names())
            first, *_ = sorted(set(roles) - {"Worker"})
            others = {type_: role for type_, role in roles.items() if type_ != first}
            self.edit(**{field: others})
            self.passes()
            self.edit(**{field: roles})
        self.placed()

    def on_crash(self, upto):
        """Let the operator end in the middle of a reconcile."""
        self.passes(upto=upto)

    def on_tick(self, seconds):
        """Let time go by."""
        self.now += seconds

    def on_pause(self):
        """Suspend the job, and resume it: a new run begins."""
        policy = self.job["spec"].get("runPolicy", {})
        self.edit(runPolicy={**policy, "suspend": True})
        self.restarted = True
        self.passes()
        self.reap()
        self.passes()
        if not self.status.get("completionTime"):
            self.restarts = {}
            self.edit(runPolicy={**policy, "suspend": False})
            self.passes()
            self.restarted = False

    def on_queue(self, waits):
        """Let the scheduler's group be new, or wait again for whatever reason."""
        self.objects.pop(("PodGroup", "mnist"), None)
        self.group = {"phase": "Pending", "conditions": [WAITS]} if waits else {"phase": "Running"}

    def on_release(self):
        """Let the allocator release the whole gang: a new run begins."""
        if not self.backend.embedded:
            return
        self.restarted = True
        self.extra["verdict"] = Verdict("muster", "Released", "mnist", reason="Preempted")
        self.extra["placements"] = {}
        self.passes()
        for pod in self.of("Pod"):
            if pod.get("status", {}).get("phase", "Pending") in ("Pending", "Running"):
                del self.objects["Pod", pod["metadata"]["name"]]
        self.passes()
        self.placed()
        self.passes()
        self.restarted = self.whole


GANG = job_of("PyTorchJob", (True,), 3, "OnFailure", {}, WHOLE)
LED = led("v1", ("Never", "Never"), 2, {"cleanPodPolicy": "None"}, whole=True)
ONE = job_of("JAXJob", (False,), 1, "Never", {}, WHOLE)
TWO_LOST = (("start",), ("silence", {0, 2}), ("expire",))


def is_running(pod):
    """Return whether a pod runs and is not being deleted."""
    return pod.get("status", {}).get("phase") == "Running" and (
        "deletionTimestamp" not in pod["metadata"]
    )


@given(jobs, backends, histories)
@example(
    job_of("TFJob", (True, True), 2, "OnFailure", {"successPolicy": "AllWorkers"}, None),
    gang.EMBEDDED,
    [("start",), ("succeed", 2), ("reject", 0), ("crash", 1), ("collect", 0), ("resize", 1)],
)
@example(GANG, gang.VOLCANO, [("start",), ("queue", True), ("drain", 0), ("reap",), ("refuse",)])
@example(ONE, gang.EMBEDDED, [("start",), ("drain", 0), ("double", 0)])
@example(GANG, gang.NONE, [("start",), ("silence", {0}), ("expire",), ("return",), ("reap",)])
@example(GANG, gang.NONE, [("start",), ("lose_node", 0), ("crash", 1), ("crash", 1), ("reap",)])
@example(GANG, gang.VOLCANO, [("start",), ("fence", 1), ("crash", 2), ("return",), ("start",)])
@example(LED, gang.NONE, [("start",), ("succeed", 1), ("fence", 1)])
@example(
    job_of("JAXJob", (False,), 3, "Never", {}, WHOLE),
    gang.NONE,
    [*TWO_LOST, ("succeed", 0), ("succeed", 0), ("reap",), ("double", 0), ("tick", 400)],
)
def test_job_in_any_history_keeps_its_running_pods_and_counts(document, backend, history):
    """No running pod is deleted without a reason or is left over, and no count decreases."""
    cluster = Cluster(document, backend)
    for event in history:
        cluster.happen(*event)
