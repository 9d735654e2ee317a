# SPDX-License-Identifier: Apache-2.0
"""What holds for every job, whatever happens to it and whenever the operator crashes."""

from __future__ import annotations

import dataclasses
import random

from hypothesis import example, given
from hypothesis import strategies as st

from muster import gang
from muster.api.status import Verdict
from muster.controller.model import Create, Delete, Patch, Refusal, SetStatus
from muster.controller.reconcile import reconcile
from support.apiserver.memory import World, of_kind, tfjob, wanted
from support.builders.mpijobs import SECRETS, led, role

WRITES = Create | Delete | Patch | SetStatus
CODES = st.sampled_from([0, 1, 127, 128, 137, None])
WHICH = st.integers(0, 7)
REFUSED = ["Pod", "Service", "ConfigMap", "HorizontalPodAutoscaler", "Job", "Role", "Secret"]
WHOLE = {"muster.kubeflow.org/restart": "gang"}

roles = st.fixed_dictionaries(
    {
        "Worker": st.fixed_dictionaries(
            {
                "replicas": st.integers(1, 3),
                "restartPolicy": st.sampled_from(["Never", "OnFailure", "ExitCode", "Always"]),
            }
        )
    },
    optional={
        "PS": st.fixed_dictionaries(
            {
                "replicas": st.integers(1, 2),
                "restartPolicy": st.sampled_from(["Never", "ExitCode"]),
            }
        ),
        "Chief": st.just({"replicas": 1}),
    },
)
policies = st.fixed_dictionaries(
    {},
    optional={
        "cleanPodPolicy": st.sampled_from(["All", "Running", "None"]),
        "backoffLimit": st.integers(0, 3),
        "activeDeadlineSeconds": st.integers(0, 30),
        "schedulingPolicy": st.builds(lambda n: {"minAvailable": n}, st.integers(0, 3)),
    },
)
tfjobs = st.builds(
    lambda roles, policy, whole: tfjob(
        policy=policy,
        annotations=WHOLE if whole else None,
        **roles,
    ),
    roles,
    policies,
    st.booleans(),
)
ranked_roles = st.builds(
    lambda workers, policy, led: {
        "Worker": {"replicas": workers, "restartPolicy": policy},
        **({"Master": {"replicas": 1, "restartPolicy": policy}} if led else {}),
    },
    st.integers(1, 3),
    st.sampled_from(["Never", "OnFailure", "ExitCode", "Always"]),
    st.booleans(),
)
METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}
ELASTIC = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4, "metrics": [METRIC]}}


def ranked(kind, roles, policy, elastic, whole):
    """Return a job of that kind, with the roles and fields that it knows."""
    roles = {"Master": {"replicas": 1}, **roles} if kind == "XGBoostJob" else roles
    return of_kind(
        kind,
        policy=policy,
        spec=ELASTIC if elastic and kind in ("PyTorchJob", "PaddleJob") else None,
        annotations=WHOLE if whole else None,
        **{type_: role for type_, role in roles.items() if kind != "JAXJob" or type_ == "Worker"},
    )


OF_V1 = st.sampled_from(["Never", "OnFailure", "ExitCode", "Always"])
OF_V2 = st.sampled_from(["Never", "OnFailure"])
mpijobs = st.builds(
    led,
    st.just("v1"),
    st.tuples(OF_V1, OF_V1),
    st.none() | st.integers(0, 3),
    policies,
    st.booleans(),
) | st.builds(
    led,
    st.just("v2beta1"),
    st.tuples(OF_V2, OF_V2),
    st.none() | st.integers(1, 3),
    policies,
    st.booleans(),
    runLauncherAsWorker=st.booleans(),
    launcherCreationPolicy=st.sampled_from(["AtStartup", "WaitForWorkersReady"]),
)
jobs = (
    tfjobs
    | st.builds(
        ranked,
        st.sampled_from(["PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob"]),
        ranked_roles,
        policies,
        st.booleans(),
        st.booleans(),
    )
    | mpijobs
)
backends = st.sampled_from([gang.NONE, gang.EMBEDDED, gang.SCHEDULER_PLUGINS, gang.VOLCANO])

pod_events = st.one_of(
    st.tuples(st.just("start"), WHICH),
    st.tuples(st.just("end"), WHICH, CODES),
    st.tuples(st.just("turned_away"), WHICH),
    st.tuples(st.just("evict"), WHICH),
    st.tuples(st.just("vanish"), WHICH),
    st.tuples(st.just("reap")),
    st.tuples(st.just("launch")),
)
job_events = st.one_of(
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("resize"), st.integers(0, 4)),
    st.tuples(st.just("tick"), st.integers(1, 20)),
    st.tuples(st.just("place"), st.booleans()),
    st.tuples(st.just("admit"), st.sampled_from(["Pending", "Inqueue", "Running"])),
    st.tuples(st.just("refuse"), st.sampled_from(REFUSED)),
)
histories = st.lists(pod_events | job_events, max_size=8)


class Cluster(World):
    """A world to which things happen."""

    def __init__(self, document, **fields):
        super().__init__(document, secrets=SECRETS, **fields)

    def happen(self, event, *args):
        """Let one thing happen; what has no subject does nothing."""
        getattr(self, f"on_{event}")(*args)
        return self

    def some(self, which):
        """Return the name of one of the pods, or None."""
        pods = self.names()
        return pods[which % len(pods)] if pods else None

    def living(self, which):
        """Return the name of a pod that has not ended, or None."""
        name = self.some(which)
        phase = name and self.pod(name).get("status", {}).get("phase")
        return None if phase in ("Succeeded", "Failed") else name

    def on_start(self, which):
        """Start a pod."""
        name = self.living(which)
        if name:
            self.start(name)

    def on_end(self, which, code):
        """End a pod."""
        name = self.living(which)
        if name:
            self.end(name, code)
            self.follow(self.pod(name))

    def on_turned_away(self, which):
        """Refuse, as its kubelet, a pod that has not started."""
        name = self.some(which)
        if name and "status" not in self.pod(name):
            self.end(name, None, reason="OutOfcpu")
            self.follow(self.pod(name))

    def on_evict(self, which):
        """Somebody deletes a pod; it takes its time."""
        name = self.some(which)
        if name:
            self.pod(name)["metadata"].setdefault("deletionTimestamp", "2024-01-01T00:00:00Z")

    def on_vanish(self, which):
        """Remove a pod at once."""
        name = self.some(which)
        if name:
            del self.objects["Pod", name]

    def on_reap(self):
        """Remove what is being deleted."""
        self.reap()

    def on_overdue(self):
        """Let the batch Job, once it is there, be over its deadline."""
        for name in self.names():
            self.on_start(self.names().index(name))
        self.happen("reap").settle()
        if self.of("Job"):
            self.close(end="Failed", reason="DeadlineExceeded")

    def on_suspend(self, suspend):
        """Suspend or resume, as the user."""
        self.edit(runPolicy={**self.job["spec"].get("runPolicy", {}), "suspend": suspend})

    def on_resize(self, replicas):
        """Ask for another number of workers."""
        field = self.framework.spec_field
        roles = self.job["spec"][field]
        # One worker at least, or none in its spec: workers decide unless there is a master.
        led = self.job["kind"] in ("TFJob", "PaddleJob", "XGBoostJob") and {"Chief", "Master"} & {
            *roles
        }
        replicas = replicas if led else max(replicas, 1)
        workers = roles.get("Worker", role())
        self.edit(**{field: {**roles, "Worker": {**workers, "replicas": replicas}}})

    def on_tick(self, seconds):
        """Time goes by."""
        self.now += seconds

    def on_place(self, placed):
        """Say yes or no, as the allocator."""
        if self.backend.embedded:
            state = "Placed" if placed else "Waiting"
            self.extra["placements"] = dict.fromkeys(wanted(self), "node") if placed else {}
            self.extra["verdict"] = Verdict("muster", state, "mnist", reason="" if placed else "R")

    def on_admit(self, phase):
        """Volcano moves the group."""
        group = self.objects.get(("PodGroup", "mnist"))
        if group:
            group["status"] = {"phase": phase}

    def on_refuse(self, kind):
        """Refuse an object for a while, as the server."""
        self.extra["refusal"] = Refusal(kind, "any", "Forbidden", "exceeded quota", self.now + 5)

    def alike(self):
        """Return what two worlds must share that saw the same: no uids, no times."""
        kinds = sorted({kind for kind, _ in self.objects})
        pods = {p["metadata"]["name"]: p.get("status", {}).get("phase") for p in self.of("Pod")}
        status = self.status
        replicas = {
            type_: {k: v for k, v in counted.items() if k != "restarted"}
            for type_, counted in status.get("replicaStatuses", {}).items()
        }
        gang_ = {k: v for k, v in status.get("gang", {}).items() if k != "since"}
        words = status.get("state"), status.get("reason"), self.conditions, replicas, gang_
        return {kind: self.names(kind) for kind in kinds}, pods, words


def lived(document, backend, history):
    """Return the world in which all this has happened, and been dealt with.

    After anything, a few passes are enough, and then nothing is written any more.
    """
    cluster = Cluster(document, backend=backend).happen("place", True)
    cluster.settle()
    for event in history:
        cluster.happen(*event)
        cluster.settle()
    if any(c in cluster.conditions for c in ("Succeeded T", "Failed T")):
        assert "Running T" not in cluster.conditions
        assert cluster.status["completionTime"]
    return cluster


def in_order(actions, job):
    """Return whether there is at most one status, after every other write.

    The status of jobs that are suspended or restart as a whole may be written before them.
    """
    first = job.run_policy.suspend or job.restarts_whole
    sorts = [isinstance(action, SetStatus) for action in actions if isinstance(action, WRITES)]
    return sorts in (sorted(sorts), sorted(sorts, reverse=first)) and sum(sorts) <= 1


@given(jobs, backends, histories, pod_events | job_events, st.integers(0, 12))
@example(
    led("v1", ("ExitCode", "Never"), None, {}, False),
    gang.EMBEDDED,
    [("refuse", "Pod")],
    ("end", 0, 128),
    1,
)
@example(
    led("v2beta1", ("Never", "Never"), 1, {}, False, launcherCreationPolicy="WaitForWorkersReady"),
    gang.EMBEDDED,
    [],
    ("start", 0),
    2,
)
def test_a_crash_after_any_action_is_repaired(document, backend, history, last, crash):
    """Two operators see the same; one crashes in the middle of a pass. The end is the same."""
    calm = lived(document, backend, history).happen(*last)
    crashed = calm.clone()
    crashed.step(upto=crash)
    # What a rejected pod reports is an annotation of its successor. A crash between the deletion
    # of the one and the creation of the other loses it, so that the statuses differ.
    parts = 2 if any(event[0] == "turned_away" for event in (*history, last)) else 3
    assert crashed.settle().alike()[:parts] == calm.settle().alike()[:parts]


@given(jobs, backends, histories, st.lists(st.integers(0, 12), max_size=6))
def test_no_restart_is_ever_lost(document, backend, history, crashes):
    """At every moment the status counts at least the failed pods that were replaced.

    The operator crashes after any action of any pass.
    """
    cluster = Cluster(document, backend=backend).happen("place", True)
    replaced = 0
    for event in (event for event in history if event[0] not in ("suspend", "resize")):
        cluster.happen(*event)
        for upto in (*crashes, *[None] * 6):
            over = cluster.status.get("completionTime")
            failed = {
                pod["metadata"]["uid"]
                for pod in cluster.of("Pod")
                if pod.get("status", {}).get("phase") == "Failed"
                and not pod["status"].get("reason", "").startswith("OutOf")
                and "deletionTimestamp" not in pod["metadata"]
            }
            for action in cluster.decide()[:upto]:
                cluster.apply(action)
                mine = isinstance(action, Delete) and action.uid in failed
                replaced += bool(mine and not over)
                counted = cluster.status.get("replicaStatuses", {}).values()
                restarts = sum(role.get("restarts", 0) for role in counted)
                whole = "annotations" in cluster.job["metadata"]
                assert restarts >= (min(replaced, 1) if whole else replaced)


@given(jobs, backends, histories, st.randoms(use_true_random=False))
def test_what_is_seen_first_makes_no_difference(document, backend, history, dice: random.Random):
    """The order in which objects are observed does not change what is done."""
    cluster = lived(document, backend, history[:-1])
    if history:
        cluster.happen(*history[-1])
    seen = cluster.observe()
    pods, services = list(seen.pods), list(seen.services)
    dice.shuffle(pods)
    dice.shuffle(services)
    mixed = dataclasses.replace(seen, pods=tuple(pods), services=tuple(services))
    rules = cluster.rules, cluster.backend, cluster.context
    actions = reconcile(seen, *rules)
    assert set(map(repr, reconcile(mixed, *rules))) == set(map(repr, actions))
    assert in_order(actions, seen.job)


@given(jobs, backends, histories, histories)
def test_an_end_is_an_end(document, backend, before, after):
    """Conditions and times of a finished job never change again."""
    cluster = lived(document, backend, before)
    cluster.edit(runPolicy={"activeDeadlineSeconds": 1})
    for event in (("reap",), ("place", True), ("tick", 10), ("admit", "Running")):
        cluster.happen(*event).settle()
    # A gang's time begins with its pods.
    for which in range(len(cluster.names())):
        cluster.happen("start", which)
    cluster.settle().happen("tick", 10).settle()
    for _ in range(4):  # what is evicted or turned away comes back before the launcher comes
        if cluster.rules.life.limits_itself and "completionTime" not in cluster.status:
            cluster.happen("overdue").settle()
    written = cluster.status
    assert written["completionTime"]
    for event in after:
        cluster.happen(*event).settle()
    assert cluster.status == written
