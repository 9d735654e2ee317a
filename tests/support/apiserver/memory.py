# SPDX-License-Identifier: Apache-2.0
"""An API server of one job in memory: applies actions, plays the kubelet, observes.

Documents go in and out; what the cores see is made by the views that the operator itself uses.
"""

import copy
import itertools
import math

from muster import gang
from muster.api import edge, names
from muster.controller import losses, reconcile
from muster.controller.model import (
    Context,
    Create,
    Delete,
    DryRun,
    Emit,
    Losses,
    Observed,
    Patch,
    RequeueAfter,
    SetStatus,
)
from muster.frameworks import FRAMEWORKS, load, of
from muster.store import parse
from support.builders.objects import reference

START = 1_700_000_000.0
PHASES = ("Running", "Succeeded", "Failed")


def copied(value):
    """Return documents that share nothing with these: of JSON, so sooner than copy.deepcopy."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(copied, value))
    return value


class World:
    """One job, its children, a clock that stands still, and everything that was said.

    Methods that change something return the world, so that calls can be chained.
    """

    def __init__(self, document, *, backend=gang.NONE, context=None, **observed):
        self.job = copied(document)
        self.framework = FRAMEWORKS[document["kind"]]
        self.backend = backend
        self.context = context or Context()
        self.now = START
        self.secrets = observed.pop("secrets", {})
        self.extra = observed
        self.objects = {}
        self.said, self.tried = [], []
        self.requeue = None
        self.writes = []
        self.losses = None
        self.silent = {}
        self._uids = itertools.count(1)
        self.job.setdefault("status", {})
        meta = self.job["metadata"]
        meta.setdefault("namespace", "team")
        meta.setdefault("uid", "job-uid")
        meta.setdefault("generation", 1)
        meta.setdefault("creationTimestamp", edge.format_time(START))

    # What the operator does.

    def observe(self):
        """Return what one pass sees."""
        job = load(self.framework, self.job)
        pods = {pod.name: pod for pod in map(parse.pod, self.of("Pod"))}
        own = {name: pod for name, pod in pods.items() if pod.owner == job.as_owner}
        known = self.losses, job, of(job), own, self.silent.__contains__, self.now
        self.losses, marked = losses.observe(*known, deletes=True)
        over = {k for k, v in self.extra.items() if getattr(v, "until", math.inf) <= self.now}
        return Observed(
            job=job,
            now=self.now,
            pods=(*{**pods, **marked}.values(),),
            services=tuple(parse.child(o) for o in self.of("Service")),
            configs=tuple(parse.child(o) for o in self.of("ConfigMap")),
            batches=tuple(parse.batch(o) for o in self.of("Job")),
            companions=tuple(parse.child(o) for o in self._companions(job)),
            secrets=self.secrets,
            autoscalers=tuple(parse.child(o) for o in self.of(names.AUTOSCALER)),
            group=next((_group(o) for o in self.of("PodGroup")), None),
            losses=self.losses or Losses(),
            **{k: v for k, v in self.extra.items() if k not in over},
        )

    def _companions(self, job):
        named = {(part.kind, part.name(job)) for part in of(job).companions}
        named |= {(kind, names.flat(job.name)) for kind in self.backend.companions}
        return [o for key, o in self.objects.items() if key in named]

    @property
    def rules(self):
        """The set of rules by which the job is read."""
        return of(load(self.framework, self.job))

    def decide(self):
        """Return the actions of one pass, without doing them."""
        if self.job is None:
            return []
        seen = self.observe()
        return reconcile.reconcile(seen, of(seen.job), self.backend, self.context)

    def creates(self, kind="Pod"):
        """Return the names of the objects of a kind that the next pass creates."""
        documents = [a.doc for a in self.decide() if isinstance(a, Create)]
        return [doc["metadata"]["name"] for doc in documents if doc["kind"] == kind]

    def deletes(self, kind="Pod"):
        """Return the names of the objects of a kind that the next pass deletes."""
        return [a.name for a in self.decide() if isinstance(a, Delete) and a.kind == kind]

    def step(self, *, upto=None):
        """Do one pass, or only its first actions; return what was done."""
        actions = self.decide()[:upto]
        self.requeue = None
        for action in actions:
            self.apply(action)
        return actions

    def settle(self, *, passes=12):
        """Do passes until one does nothing; fail if they never end."""
        for _ in range(passes):
            if not [a for a in self.step() if isinstance(a, Create | Delete | Patch | SetStatus)]:
                return self
        raise AssertionError(f"no fixpoint after {passes} passes: {self.decide()}")

    def apply(self, action):
        """Do one action as the API server would."""
        if isinstance(action, Emit):
            self.said.append(action)
        elif isinstance(action, RequeueAfter):
            self.requeue = action.at
        elif isinstance(action, DryRun):
            self.tried.append(action.build()["metadata"]["name"])
        else:
            self.writes.append(action)
            getattr(self, f"_{type(action).__name__.lower()}")(action)

    def _create(self, action):
        doc = copied(action.doc)
        meta = doc["metadata"]
        key = doc["kind"], meta["name"]
        if key not in self.objects:
            meta["uid"] = f"uid-{next(self._uids)}"
            meta["creationTimestamp"] = edge.format_time(self.now)
            self.objects[key] = doc

    def _delete(self, action):
        if action.kind == self.job["kind"] and action.uid == self.job["metadata"]["uid"]:
            self.objects.clear()
            self.job = None
            return
        found = self.objects.get((action.kind, action.name))
        if found and found["metadata"]["uid"] == action.uid:
            running = (found.get("status") or {}).get("phase") == "Running"
            if action.kind == "Pod" and running:
                found["metadata"]["deletionTimestamp"] = edge.format_time(self.now)
            else:
                del self.objects[action.kind, action.name]
                self._drop_pods_of(action.uid)

    def _patch(self, action):
        found = self.objects.get((action.kind, action.name), {})
        merge(found, action.body)
        if action.kind == "Job" and found["spec"].get("suspend"):
            self._drop_pods_of(found["metadata"]["uid"])

    def _drop_pods_of(self, uid):
        for key, found in list(self.objects.items()):
            if found["metadata"].get("ownerReferences", [{}])[0].get("uid") == uid:
                del self.objects[key]

    def _setstatus(self, action):
        self.job["status"] = copied(action.status)

    # What the cluster does.

    def wait(self, seconds):
        """Let time pass."""
        self.now += seconds
        return self

    def give(self, **observed):
        """Change what is observed beside the documents, as `placements` and `verdict`."""
        self.extra |= observed
        return self

    def of(self, kind):
        """Return the objects of a kind."""
        return [o for (k, _), o in self.objects.items() if k == kind]

    def pod(self, name):
        """Return a pod's document."""
        return self.objects["Pod", name]

    def names(self, kind="Pod"):
        """Return the names of the objects of a kind, sorted."""
        return sorted(o["metadata"]["name"] for o in self.of(kind))

    def start(self, *pods):
        """Let these pods run (all if none is named), ready."""
        for name in pods or self.names():
            self.pod(name)["spec"].setdefault("nodeName", f"n{name[-1]}")
            self.pod(name)["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            }
        return self

    def run(self):
        """Settle, let all pods run, and settle again."""
        return self.settle().start().settle()

    def launch(self, name="mnist-launcher", *, phase="Running", suffix="abcde"):
        """Let a batch Job make its next pod; return the pod's name."""
        batch = self.objects["Job", name]
        uid = batch["metadata"]["uid"]
        owner = reference(kind="Job", api_version="batch/v1", name=name, uid=uid)
        template = copied(batch["spec"]["template"])
        pod = f"{name}-{suffix}"
        meta = {**template["metadata"], "name": pod, "namespace": "team"}
        meta["ownerReferences"] = [owner]
        self._create(Create.of({**template, "apiVersion": "v1", "kind": "Pod", "metadata": meta}))
        self.start(pod)
        self.pod(pod)["status"]["phase"] = phase
        return pod

    def close(self, name="mnist-launcher", end="Complete", *, failed=0, reason="", message=""):
        """Let a batch Job come to its end."""
        ended = {"type": end, "status": "True", "reason": reason, "message": message}
        # Only a good end has a time of its own.
        time = {"completionTime": edge.format_time(self.now)} if end == "Complete" else {}
        self.objects["Job", name]["status"] = {"conditions": [ended], "failed": failed, **time}
        return self

    def on_launch(self):
        """Make the pod that a batch Job lacks, as the controller of batch Jobs."""
        made = self.pods_of_batch()
        for batch in self.of("Job"):
            over = batch.get("status", {}).get("conditions") or batch["spec"].get("suspend")
            if not over and all(p.get("status", {}).get("phase") == "Failed" for p in made):
                self.launch(suffix=f"try-{next(self._uids)}")

    def pods_of_batch(self):
        """Return the pods that a batch Job made."""
        return [p for p in self.of("Pod") if p["metadata"]["ownerReferences"][0]["kind"] == "Job"]

    def follow(self, ended):
        """Let a batch Job see how its pod has ended."""
        for batch in self.of("Job"):
            if ended in self.pods_of_batch():
                failed = sum(p["status"]["phase"] == "Failed" for p in self.pods_of_batch())
                if not failed:
                    self.close()
                elif failed > batch["spec"].get("backoffLimit", 6):
                    self.close(end="Failed", failed=failed, reason="BackoffLimitExceeded")
                else:
                    batch.setdefault("status", {})["failed"] = failed

    def end(self, name, code=0, *, reason=""):
        """Let a pod's program exit; no code: its node was lost."""
        status = {"phase": "Failed" if code or code is None else "Succeeded", "reason": reason}
        if code is not None:
            state = {"terminated": {"exitCode": code, "reason": "Completed"}}
            container = self.framework.pods.container or "main"
            status["containerStatuses"] = [{"name": container, "state": state}]
        self.pod(name)["status"] = status
        return self

    def lose(self, *pods):
        """Remove pods, as pod garbage collection does after their node was deleted."""
        for name in pods:
            del self.objects["Pod", name]
        return self

    def terminate(self, *pods):
        """Delete pods, which terminate until they are removed by `reap`."""
        for name in pods:
            self.pod(name)["metadata"]["deletionTimestamp"] = edge.format_time(self.now)
        return self

    def reap(self):
        """Let everything that is being deleted be gone."""
        for key, found in list(self.objects.items()):
            if "deletionTimestamp" in found["metadata"]:
                del self.objects[key]
        return self

    def edit(self, **spec):
        """Change fields of the job's spec; the generation grows."""
        self.job["spec"].update(spec)
        self.job["metadata"]["generation"] += 1
        return self

    def scale(self, replicas, type_="Worker"):
        """Ask for another number of pods of a role."""
        self.job["spec"][self.framework.spec_field][type_]["replicas"] = replicas
        return self.edit()

    def clone(self):
        """Return a world that is as this one and goes its own way."""
        twin = copy.copy(self)
        twin.job, twin.objects = copied((self.job, self.objects))
        twin.extra = dict(self.extra)
        twin.said, twin.writes = [], []
        twin._uids = itertools.count(next(self._uids) * 1000)
        return twin

    # What can be asked.

    @property
    def status(self):
        """The job's status document."""
        return self.job["status"]

    @property
    def conditions(self):
        """Type and status of the conditions, in order, e.g. `Created T`."""
        listed = self.status.get("conditions", ())
        return [f"{c['type']} {c['status'][0]}" for c in listed]

    @property
    def last(self):
        """Reason and message of the newest condition."""
        newest = self.status["conditions"][-1]
        return newest["reason"], newest["message"]

    def counts(self, type_="Worker"):
        """Return active, succeeded, failed of a role."""
        found = self.status["replicaStatuses"][type_]
        return tuple(found.get(key, 0) for key in ("active", "succeeded", "failed"))

    def reasons(self):
        """Return the reasons of everything that was said of the job, in order."""
        return [emit.reason for emit in self.said if emit.group is None]


def _group(document):
    return parse.group(document)


def merge(document, patch):
    """Apply a JSON merge patch in place."""
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict) and isinstance(document.get(key), dict):
            merge(document[key], value)
        else:
            document[key] = value


def of_kind(
    kind, *, name="mnist", policy=None, spec=None, labels=None, annotations=None, **replicas
):
    """Return a job of that kind; roles by name: a number of pods, or the role's fields."""
    framework = FRAMEWORKS[kind]
    roles = {}
    for type_, role in replicas.items():
        fields = role if isinstance(role, dict) else {"replicas": role}
        container = {"name": framework.pods.container, "image": "train:1"}
        roles[type_] = {"template": {"spec": {"containers": [container]}}, **fields}
    run_policy = {"runPolicy": policy} if policy else {}
    metadata = {"name": name, "namespace": "team"}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": framework.api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": {framework.spec_field: roles, **run_policy, **(spec or {})},
    }


def tfjob(*, name="mnist", policy=None, spec=None, labels=None, annotations=None, **replicas):
    """Return a TFJob document as of `of_kind`, by default of two workers."""
    fields = {"policy": policy, "spec": spec, "labels": labels, "annotations": annotations}
    return of_kind("TFJob", name=name, **fields, **(replicas or {"Worker": 2}))


def put(world, counts, *, decides=False, code=1):
    """Return the world whose roles have pods active, succeeded and failed, the rest Pending.

    Only where worker 0 is to decide does it come first, with its exit code.
    """
    for type_, numbers in counts.items():
        phases = [p for p, n in zip(PHASES, numbers, strict=True) for _ in range(n)]
        phases.sort(key=lambda phase: (phase != "Succeeded") == decides)
        for index, phase in enumerate(phases):
            name = f"mnist-{type_.lower()}-{index}"
            world.pod(name)["status"] = {"phase": phase}
            if phase == "Failed":
                world.end(name, code)
            elif decides and (type_, index) == ("Worker", 0):
                world.end(name, 0)
    return world


def unbound(world):
    """Return placements that let every wanted pod be created without a node."""
    return dict.fromkeys(wanted(world), "")


def wanted(world):
    """Return the names of the pods that the job wants."""
    job = load(world.framework, world.job)
    return list(job.pod_names(job.replicas))
