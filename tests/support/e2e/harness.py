# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests are written with: an API to act and wait on, an operator to run.

Waiting is always for an event of a watch, never for time to pass.
"""

from __future__ import annotations

import base64
import copy
import functools
import itertools
import json
import os
import re
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, ClassVar, Protocol

import urllib3
import yaml

from muster.local import nodes, options
from muster.local.cluster import free_port
from muster.local.handle import Cluster
from support.e2e import forkserver

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
PATIENCE, LIMIT = 120.0, 480.0
"""Seconds without an event after which nothing more is expected to come, and seconds in all."""
OPERATOR_NAMESPACE, ACCOUNT = "muster-system", "muster"

PATHS: Mapping[str, str] = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{ns}/pods",
    "Service": "/api/v1/namespaces/{ns}/services",
    "ServiceAccount": "/api/v1/namespaces/{ns}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{ns}/configmaps",
    "Event": "/api/v1/namespaces/{ns}/events",
    "ResourceQuota": "/api/v1/namespaces/{ns}/resourcequotas",
    "Job": "/apis/batch/v1/namespaces/{ns}/jobs",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
    "TFJob": "/apis/kubeflow.org/v1/namespaces/{ns}/tfjobs",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{ns}/pytorchjobs",
    "XGBoostJob": "/apis/kubeflow.org/v1/namespaces/{ns}/xgboostjobs",
    "PaddleJob": "/apis/kubeflow.org/v1/namespaces/{ns}/paddlejobs",
    "JAXJob": "/apis/kubeflow.org/v1/namespaces/{ns}/jaxjobs",
    "MPIJob": "/apis/kubeflow.org/v1/namespaces/{ns}/mpijobs",
    "MPIJob-v2beta1": "/apis/kubeflow.org/v2beta1/namespaces/{ns}/mpijobs",
    "Secret": "/api/v1/namespaces/{ns}/secrets",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
    "PodGroup": "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{ns}/podgroups",
    "Queue": "/apis/scheduling.incubator.k8s.io/v1alpha1/queues",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
    "PersistentVolumeClaim": "/api/v1/namespaces/{ns}/persistentvolumeclaims",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}
JOBS = ("TFJob", "PyTorchJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")


class Refused(Exception):
    """The API server answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def watched(
    pool: urllib3.PoolManager, url: str, version: str, seconds: int, more: str = ""
) -> Iterator[Json]:
    """Yield the events of one watch, for so long at the most."""
    query = f"?watch=true&resourceVersion={version}&timeoutSeconds={seconds}{more}"
    timeout = urllib3.Timeout(connect=5, read=seconds + 5)
    answer = pool.request("GET", url + query, preload_content=False, timeout=timeout)
    rest = b""
    try:
        for chunk in answer.stream(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from map(json.loads, filter(None, lines))
    except urllib3.exceptions.HTTPError:
        return
    finally:
        answer.close()


class History(threading.Thread):
    """Keeps what a watch shows, from a version on.

    While it happens: the server tells of what was changed more than 75 s ago only as long as
    nobody else has changed much.
    """

    def __init__(self, pool: urllib3.PoolManager, url: str, since: str) -> None:
        super().__init__(name=f"history of {url} since {since}", daemon=True)
        self._pool, self._url, self._version = pool, url, since
        self.events: list[Json] = []
        self.ended = threading.Event()
        self._news = threading.Condition()
        self._problem = ""

    def run(self) -> None:
        """Follow the watch until the end of who asked for it."""
        while not self.ended.is_set() and not self._problem:
            try:
                self._follow()
            except urllib3.exceptions.HTTPError:
                self.ended.wait(0.1)  # the server is down; it comes back, or the story ends

    def _follow(self) -> None:
        # A bookmark comes shortly before the end: how far all is told where nothing changes.
        more = "&allowWatchBookmarks=true"
        for event in watched(self._pool, self._url, self._version, 3, more):
            with self._news:
                # An answer that is no watch is the Status itself.
                if event.get("type", "ERROR") == "ERROR":
                    self._problem = str(event)
                else:
                    self.events.append(event)
                    self._version = event["object"]["metadata"]["resourceVersion"]
                self._news.notify_all()
            if self._problem or self.ended.is_set():
                return

    def reach(self, version: int, deadline: float) -> None:
        """Wait until all is told up to that version."""
        with self._news:
            while int(self._version) < version and not self._problem:
                if not self._news.wait(deadline - time.monotonic()):
                    self._problem = f"not told up to {version}"
        if self._problem:
            raise AssertionError(f"{self.name}: {self._problem}")


class Api:
    """The administrator's view of one cluster, in one namespace of its own."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._pool = connections(cluster.kubeconfig.read_text())
        self._server = cluster.server
        self._kept: dict[tuple[str, str], History] = {}

    def path(self, kind: str, name: str = "", sub: str = "") -> str:
        """Return the path of the collection, of an object, or of its subresource."""
        base = PATHS.get(kind, kind).format(ns=self.namespace)
        return "/".join(filter(None, (base, name, sub)))

    def send(
        self, method: str, path: str, body: Json | None = None, kind: str = "application/json"
    ) -> Json:
        """Send one request; Refused if the server does not like it."""
        answer = self._pool.request(
            method,
            self._server + path,
            body=None if body is None else json.dumps(body),
            headers={**self._pool.headers, "Content-Type": kind},
            timeout=30.0,
        )
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        document: Json = json.loads(answer.data) if is_json else {}
        if answer.status == 429 and "Retry-After" in answer.headers:
            time.sleep(float(answer.headers["Retry-After"]))  # the server asks for it
            return self.send(method, path, body, kind)
        if answer.status >= 400:
            raise Refused(answer.status, str(document.get("message")))
        return document

    def get(self, kind: str, name: str) -> Json:
        """Read one object."""
        return self.send("GET", self.path(kind, name))

    def find(self, kind: str, name: str) -> Json | None:
        """Read one object, None if it is not there."""
        try:
            return self.get(kind, name)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    def list(self, kind: str, selector: str = "") -> list[Json]:
        """Read a collection, by creation and name."""
        query = f"?labelSelector={selector}" if selector else ""
        found = self.send("GET", self.path(kind) + query)["items"]
        return sorted(
            found, key=lambda o: (o["metadata"]["creationTimestamp"], o["metadata"]["name"])
        )

    def create(self, document: Json, query: str = "") -> Json:
        """Create an object; of a namespaced kind in this namespace."""
        path, document = self._placed(document)
        return self.send("POST", path + query, document)

    def apply(self, document: Json) -> Json:
        """Apply an object, strictly read, as `kubectl apply --server-side` does."""
        path, document = self._placed(document)
        query = "?fieldManager=kubectl&fieldValidation=Strict"
        where = f"{path}/{document['metadata']['name']}{query}"
        return self.send("PATCH", where, document, "application/apply-patch+yaml")

    def _placed(self, document: Json) -> tuple[str, Json]:
        """Return the collection that an object belongs to, and the object with its namespace."""
        path = self.path(document["kind"])
        if "/namespaces/" in path:
            document = {
                **document,
                "metadata": {**document["metadata"], "namespace": self.namespace},
            }
        if document["kind"] in ("TFJob", "MPIJob"):
            path = path.replace("kubeflow.org/v1/", f"{document['apiVersion']}/")
        return path, document

    def create_file(self, path: Path) -> list[Json]:
        """Create the documents of a YAML file, as strictly read as kubectl has it."""
        documents = [d for d in yaml.safe_load_all(path.read_text()) if d]
        return [self.create(document, "?fieldValidation=Strict") for document in documents]

    def kubectl(self, *words: str, check: bool = True) -> str:
        """Run kubectl and return what it printed."""
        done = subprocess.run(
            ["kubectl", *words],
            env={**os.environ, **self.cluster.env()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stderr + done.stdout
        return done.stdout + done.stderr

    def patch(self, kind: str, name: str, body: Json, sub: str = "") -> Json:
        """Apply a JSON merge patch."""
        return self.send("PATCH", self.path(kind, name, sub), body, "application/merge-patch+json")

    def finish(self, pod: str) -> None:
        """Let a simulated pod that runs for ever end now."""
        notes = {"local.muster.kubeflow.org/run-seconds": "0"}
        self.patch("Pod", pod, {"metadata": {"annotations": notes}})

    def delete(self, kind: str, name: str, *, grace: int | None = None) -> None:
        """Delete one object."""
        body: Json = {"propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        self.send("DELETE", self.path(kind, name), body)

    def wait(
        self,
        kind: str,
        until: Callable[[dict[str, Json]], Any],
        *,
        seconds: float | None = None,
        what: str = "",
    ) -> Any:
        """Return what `until` says of the collection, by name, as soon as it is true.

        `until` is asked at the start and after each event of the collection. AssertionError
        with the last state if it stays false: for so many seconds, or until nothing more happens.
        """
        began = time.monotonic()
        deadline = began + (PATIENCE if seconds is None else seconds)
        while True:
            listing = self.send("GET", self.path(kind))
            state = {o["metadata"]["name"]: o for o in listing["items"]}
            if result := until(state):
                return result
            version = listing["metadata"]["resourceVersion"]
            for event in self._events(kind, version, deadline):
                if seconds is None:
                    # A busy machine is slow, and not at fault.
                    deadline = min(began + LIMIT, time.monotonic() + PATIENCE)
                name = event["object"]["metadata"]["name"]
                if event["type"] == "DELETED":
                    state.pop(name, None)
                else:
                    state[name] = event["object"]
                if result := until(state):
                    return result
            if time.monotonic() >= deadline:
                took = time.monotonic() - began
                told = "\n".join(filter(None, (*self._told(), _short(state))))
                raise AssertionError(f"{what or kind}: not within {took:.0f} s\n{told}")

    def _told(self) -> Iterator[str]:
        """Yield what the jobs of the namespace say of themselves."""
        for kind in JOBS:
            try:
                jobs = self.list(kind)
            except Refused:
                continue  # a cluster without that kind
            for found in jobs:
                status = found.get("status") or {}
                last = (status.get("conditions") or [{}])[-1]
                said = last.get("type"), last.get("message"), status.get("reason")
                yield f"  {kind}/{found['metadata']['name']}: {said}"

    def _events(self, kind: str, version: str, deadline: float) -> Iterator[Json]:
        left = max(1, int(deadline - time.monotonic()) + 1)
        url = self._server + self.path(kind)
        for event in watched(self._pool, url, version, left):
            if event["type"] == "ERROR":
                return
            yield event

    def revision(self, kind: str) -> str:
        """Return the present revision of a collection, of which the `history` is kept from now."""
        since = str(self.send("GET", self.path(kind))["metadata"]["resourceVersion"])
        self._history(kind, since)
        return since

    def _history(self, kind: str, since: str) -> History:
        """Return what is kept since then; it is from now on where it was not yet."""
        if (kind, since) not in self._kept:
            made = self._kept[kind, since] = History(
                self._pool, self._server + self.path(kind), since
            )
            # Nobody ends all views of a cluster that stories make.
            weakref.finalize(self, made.ended.set)
            made.start()
        return self._kept[kind, since]

    def history(self, kind: str, since: str, name: str = "") -> list[Json]:
        """Return every version of the objects (of one of them) from then until now, in order.

        The last version of a deleted object has a deletionTimestamp or is followed by none.
        """
        # Of a version that an object had it need not be kept yet.
        kept = self._history(kind, since)
        listing = self.send("GET", self.path(kind))
        now = int(listing["metadata"]["resourceVersion"])
        kept.reach(now, time.monotonic() + PATIENCE)
        seen = [event["object"] for event in kept.events if event["type"] != "BOOKMARK"]
        # What came while it was waited for is none of the past that was asked for.
        past = [each for each in seen if int(each["metadata"]["resourceVersion"]) <= now]
        return [each for each in past if name in ("", each["metadata"]["name"])]

    # The questions that nearly every story asks.

    def wait_condition(
        self,
        job: str,
        kind: str,
        status: str = "True",
        seconds: float | None = None,
        of: str = "TFJob",
    ) -> Json:
        """Return the job once it has that condition; `of` is the kind of job."""
        found: Json = self.wait(
            of,
            lambda jobs: jobs.get(job) if condition(jobs.get(job), kind) == status else None,
            seconds=seconds,
            what=f"{job} {kind}={status}",
        )
        return found

    def wait_job(
        self,
        job: str,
        until: Callable[[Json], Any],
        seconds: float | None = None,
        what: str = "",
        of: str = "TFJob",
    ) -> Json:
        """Return the job once `until` is true of it; `of` is the kind of job."""
        found: Json = self.wait(
            of,
            lambda jobs: jobs[job] if job in jobs and until(jobs[job]) else None,
            seconds=seconds,
            what=what or job,
        )
        return found

    def wait_pods(
        self, count: int, phase: str, job: str = "", seconds: float | None = None
    ) -> list[Json]:
        """Return the pods (of one job) in that phase once there are so many."""

        def enough(pods: dict[str, Json]) -> list[Json]:
            found = [p for p in of_job(pods.values(), job) if phase_of(p) == phase]
            return found if len(found) == count else []

        found: list[Json] = self.wait(
            "Pod", enough, seconds=seconds, what=f"{count} pods {phase} of {job or 'all'}"
        )
        return found

    def pods(self, job: str = "") -> list[Json]:
        """Return the pods (of one job)."""
        return list(of_job(self.list("Pod"), job))

    def events(self, reason: str = "", name: str = "") -> list[Json]:
        """Return the events about objects of this namespace."""
        return [
            e
            for e in self.list("Event")
            if (not reason or e["reason"] == reason)
            and (not name or e["involvedObject"]["name"] == name)
        ]

    def wait_events(self, reason: str, name: str = "", count: int = 1) -> list[Json]:
        """Return these events once there are so many: they are written when all else is done."""
        what = f"{count} {reason} {name}"
        self.wait("Event", lambda _: len(self.events(reason, name)) >= count, what=what)
        return self.events(reason, name)


@functools.cache
def connections(kubeconfig: str) -> urllib3.PoolManager:
    """Return connections as the administrator of a cluster, whoever made it: one set for all."""
    config = yaml.safe_load(kubeconfig)
    server, user = (
        {key: base64.b64decode(part[f"{key}-data"]) for key in IN_FILES if f"{key}-data" in part}
        for part in map(_inlined, (config["clusters"][0]["cluster"], config["users"][0]["user"]))
    )
    context = ssl.create_default_context(cadata=server["certificate-authority"].decode())
    if user:
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(b"\n".join(user.values()))
            pair.flush()
            context.load_cert_chain(pair.name)
    token = config["users"][0]["user"].get("token")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return urllib3.PoolManager(headers=headers, ssl_context=context, maxsize=16)


def _short(state: Mapping[str, Json]) -> str:
    """Return the objects with their status; objects with the same description share a line."""
    alike: dict[str, list[str]] = {}
    for name, found in sorted(state.items()):
        alike.setdefault(_description(found), []).append(name)
    return "\n".join(f"  {', '.join(found)}: {told}" for told, found in alike.items())


def _description(found: Json) -> str:
    """Return the status of an object, of a pod without what all running pods have."""
    status = found.get("status") or {}
    if "nodeName" not in (found.get("spec") or {}):
        return json.dumps(status, sort_keys=True)[:1500]
    states = [c.get("state") or {} for c in status.get("containerStatuses") or ()]
    reasons = [s["reason"] for state in states for s in state.values() if "reason" in s]
    reasons += [c["type"] for c in status.get("conditions") or () if c.get("status") == "False"]
    end = found["metadata"].get("deletionTimestamp")
    text = f"{status.get('phase')} on {found['spec']['nodeName']}"
    return " ".join([text, *([f"ends {end}"] if end else ()), *reasons])


def condition(job: Json | None, kind: str) -> str | None:
    """Return the status of that condition, None if it is not there."""
    conditions = ((job or {}).get("status") or {}).get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == kind), None)


def condition_types(job: Json) -> list[tuple[str, str]]:
    """Return (type, status) of the conditions in their order."""
    return [(c["type"], c["status"]) for c in job["status"]["conditions"]]


def verdict(job: Json) -> Json:
    """Return what the job's status says of its gang, nothing before the first word."""
    return (job.get("status") or {}).get("gang") or {}


def phase_of(pod: Json) -> str:
    """Return the phase of a pod; `Terminating` once it is being deleted."""
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    return str(pod.get("status", {}).get("phase", "Pending"))


def node_of(pod: Json) -> str:
    """Return the node of a pod, or an empty string."""
    return str(pod["spec"].get("nodeName", ""))


def of_job(pods: Any, job: str) -> Iterator[Json]:
    """Yield the pods of one job; all of them if none is named."""
    for pod in pods:
        if not job or pod["metadata"]["labels"].get("training.kubeflow.org/job-name") == job:
            yield pod


SECRETS: Json = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "secrets-of-mpijobs"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "muster-mpi-secrets",
    },
    "subjects": [{"kind": "ServiceAccount", "name": "muster", "namespace": "muster-system"}],
}
"""What an administrator creates in each namespace of MPIJobs."""


def create_namespace(api: Api) -> None:
    """Create the namespace of an Api, in which MPIJobs are permitted their Secrets."""
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": api.namespace}})
    api.create(SECRETS)
    api.wait("ServiceAccount", lambda found: "default" in found)


@contextmanager
def own_namespace(cluster: Cluster, prefix: str) -> Iterator[Api]:
    """Give a new namespace; at the end its jobs and pods are deleted, and what makes them anew.

    The namespace stays, since to end one takes the server a hundred requests.
    """
    made = Api(cluster, f"{prefix}-{next(COUNTER)}")
    create_namespace(made)
    yield made
    clear(made)


def clear(api: Api) -> None:
    """Delete the jobs and pods of a namespace, and what makes them anew."""
    for kind in (*JOBS, "Job", "Pod", "Service", "PodGroup"):
        # In pages: ten thousand pods at once take a server longer than the client waits.
        page = f"{api.path(kind)}?limit=1000"
        try:
            found = api.send("DELETE", page, {"gracePeriodSeconds": 0})
            while more := found["metadata"].get("continue"):
                found = api.send("DELETE", f"{page}&continue={more}", {"gracePeriodSeconds": 0})
        except Refused as error:
            if error.code != 404:  # nobody serves that kind there
                raise


def nothing_left(api: Api) -> None:
    """Wait until the namespace is as empty as a new one, whatever kind one looks at."""
    ordinary = {
        "configmaps": {"kube-root-ca.crt"},
        "serviceaccounts": {"default"},
        "rolebindings": {SECRETS["metadata"]["name"]},
    }
    kinds, waited = _namespaced(api), True
    while waited:  # until one look at everything finds nothing
        waited = False
        for version, plural in kinds:
            path = f"{version}/namespaces/{api.namespace}/{plural}"
            usual = ordinary.get(plural, set())
            if any(found["metadata"]["name"] not in usual for found in api.list(path)):
                api.wait(path, lambda found, usual=usual: not found.keys() - usual)
                waited = True


def _namespaced(api: Api) -> list[tuple[str, str]]:
    """Return the path of the version and the plural of all that a namespace may hold."""
    groups = api.send("GET", "/apis")["groups"]
    versions = ["/api/v1", *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups)]
    return [
        (version, found["name"])
        for version in versions
        for found in api.send("GET", version)["resources"]
        if found["namespaced"]
        and {"list", "delete"} <= set(found["verbs"])
        and found["name"] not in ("events", "endpoints")
    ]


def tfjob(
    name: str,
    *,
    workers: int = 2,
    ps: int = 0,
    chief: bool = False,
    resources: Mapping[str, str] | None = None,
    restart_policy: str | None = "Never",
    run: str = "",
    exits: str = "",
    spec: Json | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    template: Json | None = None,
    **run_policy: Any,
) -> Json:
    """Return a TFJob.

    `run` and `exits` are the simulated pods' run time and exit codes, `resources` what each pod
    asks for, `template` more of the pod spec, `spec` more of the job spec.
    """
    told = {"run-seconds": run, "exit-codes": exits}
    notes = {f"local.muster.kubeflow.org/{k}": v for k, v in told.items() if v}
    container = {
        "name": "tensorflow",
        "image": "training:1",
        "resources": {"limits": dict(resources or {"cpu": "1"})},
    }
    pod = {
        "metadata": {"annotations": {**notes, **(annotations or {})}},
        "spec": {"containers": [container], **(template or {})},
    }
    counts = {"Chief": int(chief), "PS": ps, "Worker": workers}
    replicas: Json = {
        role: {"replicas": count, "template": pod} for role, count in counts.items() if count
    }
    if restart_policy:
        for replica in replicas.values():
            replica["restartPolicy"] = restart_policy
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "tfReplicaSpecs": replicas,
            **({"runPolicy": run_policy} if run_policy else {}),
            **(spec or {}),
        },
    }


@contextmanager
def changed_crd(api: Api, name: str, change: Callable[[Json], None]) -> Iterator[None]:
    """Serve a CRD whose schemas of the spec are changed for as long as the block lasts."""
    shipped = api.get("CustomResourceDefinition", name)["spec"]
    spec = copy.deepcopy(shipped)
    for version in spec["versions"]:
        change(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    api.patch("CustomResourceDefinition", name, {"spec": spec})
    try:
        yield
    finally:
        api.patch("CustomResourceDefinition", name, {"spec": shipped})


def add_nodes(api: Api, *shapes: Mapping[str, str], prefix: str = "node") -> list[str]:
    """Create simulated nodes, wait until they are Ready, return their names."""
    made = []
    for index, shape in enumerate(shapes):
        wanted = options.Options(shapes=({"pods": "110", "memory": "64Gi", **shape},))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        document = nodes.document(0, wanted, f"v{options.KUBERNETES_VERSION}", now)
        name = f"{prefix}-{index + 1}"
        document["metadata"]["name"] = name
        document["metadata"]["labels"]["kubernetes.io/hostname"] = name
        document["spec"] = {}
        status = document["status"]
        api.send("POST", api.path("Node"), document)
        api.patch("Node", name, {"status": status}, "status")
        made.append(name)

    def ready(found: dict[str, Json]) -> bool:
        return all(condition(found.get(name), "Ready") == "True" for name in made)

    api.wait("Node", ready, what="nodes Ready")
    return made


@dataclass(slots=True)
class Operator:
    """One operator process that uses the shipped ServiceAccount."""

    config: Path
    log: Path
    flags: Sequence[str]
    health: int = field(default_factory=free_port)
    metrics: int = field(default_factory=free_port)
    debug: int = field(default_factory=free_port)
    page: int = 0
    """Where it serves the page; 0: nowhere."""
    process: ForkServerProcess | None = None
    command: str = "run"
    outage: bool = False
    """Whether its server restarts, which then knows nobody's roles for a moment."""
    _looked_at: int = 0
    """How much of its log other stories have answered for."""

    def start(self, *, ready: bool = True) -> None:
        """Start the process; return when it is ready to work."""
        words = [
            self.command,
            f"--kubeconfig={self.config}",
            f"--metrics-bind-address=127.0.0.1:{self.metrics}",
            f"--health-probe-bind-address=127.0.0.1:{self.health}",
            f"--debug-bind-address=127.0.0.1:{self.debug}",
            *([f"--dashboard-bind-address=127.0.0.1:{self.page}"] if self.page else ()),
            *self.flags,
        ]
        self.log.touch()
        self.process = forkserver.start(words, self.log)
        if ready:
            self.wait_ready()

    def wait_ready(self, seconds: float = PATIENCE) -> None:
        """Return when /readyz says yes."""
        deadline = time.monotonic() + seconds
        while self.readiness() != "ok":
            assert self.running, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, f"not ready: {self.readiness()}"
            time.sleep(0.1)  # a readiness probe has no event to wait for

    def wait_unready(self, words: str, seconds: float = PATIENCE) -> str:
        """Return what /readyz says once these words are in it."""
        deadline = time.monotonic() + seconds
        while words not in (said := self.readiness()):
            assert self.running, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, f"not said: {words}; but: {said}"
            time.sleep(0.1)  # a readiness probe has no event to wait for
        return said

    def readiness(self) -> str:
        """Return what /readyz says, an empty string while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz") as answer:
                return str(answer.read().decode().strip())
        except urllib.error.HTTPError as error:
            return str(error.read().decode().strip())
        except OSError:
            return ""

    def scrape(self) -> str:
        """Return what /metrics says."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics") as answer:
            return str(answer.read().decode())

    def begin(self) -> None:
        """Leave what is in the log so far to those who have had it logged."""
        self._looked_at = self.log.stat().st_size

    def check_log(self) -> None:
        """Fail if something went wrong inside, or if the operator tried what it may not do."""
        text = self._logged()
        print(f"--- {self.command} {' '.join(self.flags)}\n{text[-8000:]}")
        assert "Traceback" not in text, text[-8000:]
        refused = FORBIDDEN.findall(text)
        if self.outage:
            refused = [line for line in refused if TRIED_AGAIN not in line]
        assert not refused, refused[:5]

    def _logged(self) -> str:
        with self.log.open(encoding="utf-8") as file:
            file.seek(self._looked_at)
            return file.read()

    @property
    def fit(self) -> bool:
        """Whether another story may have it."""
        return self.running and not self.outage and self.readiness() == "ok"

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.is_alive()

    def kill(self) -> None:
        """End the process at once, as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.join()

    def stop(self) -> int:
        """End the process cleanly and return its exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.ended()
        except AssertionError:
            self.kill()
            raise

    def ended(self) -> int:
        """Return the exit code once the process has ended."""
        assert self.process is not None
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, self.log.read_text()[-4000:]
        return self.process.exitcode


class StartOperator(Protocol):
    """Gives an operator that is under way."""

    def __call__(
        self,
        *flags: str,
        overlay: str = "embedded",
        ready: bool = True,
        fresh: bool = False,
        through: Proxy | None = None,
    ) -> Operator:
        """Give one with the shipped roles of an overlay, that reaches its server `through`.

        Components that an administrator would add stand behind it: `embedded+webhook`.
        It may have worked for other stories under the same flags before, and may do so later,
        unless it is one of several, or is to be `fresh`, or looked at before it is `ready`.
        """


class Proxy(Protocol):
    """Stands before an API server."""

    def config(self, kubeconfig: Path) -> Path:
        """Return a copy of a kubeconfig that leads there."""


class Operators:
    """All operators of this process. One works on for the next story that wants it so.

    It ends before any other begins that it is not lent for: whoever starts one has its account
    made, and finds none beside it.
    """

    _kept: ClassVar[tuple[object, Operator] | None] = None

    def __init__(self, folder: Path) -> None:
        """Write their files there."""
        self._folder = folder
        self._numbers = itertools.count()

    @classmethod
    def stop(cls) -> None:
        """End the one that nobody uses at present."""
        kept, Operators._kept = cls._kept, None
        if kept:
            kept[1].stop()
            kept[1].check_log()

    @contextmanager
    def lending(self, cluster: Cluster, well: Callable[[], bool]) -> Iterator[StartOperator]:
        """Give a function that gives operators for as long as the block lasts.

        Then what they have logged is looked at. A single one works on if all went `well`; others
        end with the block whatever happens: they would work beside those of later stories.
        """
        given: list[tuple[object, Operator]] = []

        def start(
            *flags: str,
            overlay: str = "embedded",
            ready: bool = True,
            fresh: bool = False,
            through: Proxy | None = None,
        ) -> Operator:
            key = () if fresh else (cluster.server, overlay, flags, through)
            kept = self._kept
            if kept and kept[0] == key and kept[1].fit and ready and not given:
                Operators._kept = None
                kept[1].begin()
                given.append(kept)
                return kept[1]
            made = self._new(cluster, flags, overlay, through)
            given.append((key, made))
            made.start(ready=ready)
            return made

        try:
            yield start
        finally:
            self._end(given, on=well())

    def _new(
        self, cluster: Cluster, flags: Sequence[str], overlay: str, through: Proxy | None
    ) -> Operator:
        config = account_config(cluster, self._folder, overlay)
        log = self._folder / f"operator-{next(self._numbers)}.log"
        page = free_port() if overlay == "embedded" else 0
        made = Operator(through.config(config) if through else config, log, flags, page=page)
        made.command = "scheduler" if overlay == "scheduler" else "run"
        return made

    def _end(self, given: list[tuple[object, Operator]], *, on: bool) -> None:
        with ExitStack() as ends:
            for _, made in given:
                ends.callback(made.check_log)
            if len(given) == 1 and on and given[0][0] and given[0][1].fit:
                (Operators._kept,) = given
            else:
                for _, made in given:
                    ends.callback(made.stop)


def account_config(cluster: Cluster, folder: Path, overlay: str) -> Path:
    """Install an overlay's roles, and no others, and return its ServiceAccount's kubeconfig.

    Who worked with others ends before.
    """
    Operators.stop()
    api = Api(cluster, OPERATOR_NAMESPACE)
    if ROLES.get(cluster.server) != overlay:
        install_roles(api, overlay)
        ROLES[cluster.server] = overlay
    request = {"spec": {"expirationSeconds": 7200}}
    answer = api.send("POST", api.path("ServiceAccount", ACCOUNT, "token"), request)
    admin = yaml.safe_load(cluster.kubeconfig.read_text())
    server = admin["clusters"][0]["cluster"]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "muster",
        "clusters": [{"name": "local", "cluster": _inlined(server)}],
        "users": [{"name": "muster", "user": {"token": answer["status"]["token"]}}],
        "contexts": [
            {
                "name": "muster",
                "context": {"cluster": "local", "user": "muster", "namespace": OPERATOR_NAMESPACE},
            }
        ],
    }
    path = folder / f"{overlay}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def install_roles(api: Api, overlay: str) -> None:
    """Apply the roles, bindings and FlowSchemas of an overlay; those of others are deleted."""
    documents = _roles(api, overlay)
    spaces = sorted({d["metadata"].get("namespace", OPERATOR_NAMESPACE) for d in documents})
    made = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": s}} for s in spaces]
    named = {(d["kind"], d["metadata"]["name"]) for d in documents}
    for kind in INSTALLED - set(CORE):
        for found in (each["metadata"] for each in api.list(_place(kind, ""))):
            if found["name"].startswith("muster-") and (kind, found["name"]) not in named:
                api.delete(_place(kind, found.get("namespace", "")), found["name"])
    for document in sorted([*made, *documents], key=lambda d: d["kind"] != "Namespace"):
        found = document["metadata"]
        path = f"{_place(document['kind'], found.get('namespace', ''))}/{found['name']}"
        query = "?fieldManager=kubectl&force=true"  # who applies the overlay is no stranger
        api.send("PATCH", path + query, document, "application/apply-patch+yaml")


def _roles(api: Api, overlay: str) -> list[Json]:
    if overlay not in RENDERED:
        documents = yaml.load_all(_rendered(api, overlay), yaml.CSafeLoader)
        RENDERED[overlay] = [d for d in documents if d["kind"] in INSTALLED]
    return RENDERED[overlay]


def _rendered(api: Api, overlay: str) -> str:
    """Return the documents of an overlay, with the components that stand behind its name."""
    name, *components = overlay.split("+")
    with tempfile.TemporaryDirectory(prefix="overlay-") as folder:
        manifests, here = ROOT / "manifests", Path(folder).resolve()
        parts = [manifests / "components" / component for component in components]
        own = {
            "resources": [os.path.relpath(manifests / "overlays" / name, here)],
            "components": [os.path.relpath(part, here) for part in parts],
        }
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(own))
        return api.kubectl("kustomize", folder)


def _place(kind: str, namespace: str) -> str:
    """Return the path of the collection of a kind that is installed."""
    group = "/api/v1" if kind in CORE else f"/apis/{GROUPS.get(kind, RBAC)}/v1"
    # kustomize gives a namespace to kinds that it does not know, which kubectl ignores.
    scope = f"/namespaces/{namespace}" if namespace and kind not in GROUPS else ""
    return f"{group}{scope}/{kind.lower()}s"


RENDERED: dict[str, list[Json]] = {}
"""Overlay -> what it has of roles and bindings."""
ROLES: dict[str, str] = {}
"""Server -> the overlay whose roles are installed there."""
FORBIDDEN = re.compile(r".* is forbidden: User .*|.*cannot \w+ resource \".*")
TRIED_AGAIN = "failed; will retry: "
CORE = ("Namespace", "ServiceAccount")
RBAC = "rbac.authorization.k8s.io"
GROUPS = {"FlowSchema": "flowcontrol.apiserver.k8s.io"}
INSTALLED = frozenset(
    {
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "FlowSchema",
        "Role",
        "RoleBinding",
    }
)
COUNTER = itertools.count()


IN_FILES = ("certificate-authority", "client-certificate", "client-key")


def _inlined(part: Json) -> Json:
    """Return a part of a kubeconfig with what its files have in itself."""
    files = {key: Path(part[key]).read_bytes() for key in IN_FILES if key in part}
    data = {f"{key}-data": base64.b64encode(text).decode() for key, text in files.items()}
    return {key: value for key, value in part.items() if key not in files} | data
