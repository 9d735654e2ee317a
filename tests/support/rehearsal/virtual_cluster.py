# SPDX-License-Identifier: Apache-2.0
"""The operator on an API server in memory, in a time of its own that passes at once.

All parts are the operator's own, from its client to its allocator; what is played is the server,
the kubelets, the collector and the users. Each request and each event takes its time, drawn by
a seed, and the same seed gives the same story again.
"""

import asyncio
import contextlib
import json
import random
import selectors
import time
from collections import Counter, defaultdict
from unittest import mock

import aiohttp

from muster import gang
from muster.allocator.loop import Loop
from muster.allocator.members import GangSettings
from muster.api import edge, names
from muster.api.quantity import parse
from muster.cluster.gangs import GangRules
from muster.controller.model import Context
from muster.frameworks import FRAMEWORKS
from muster.kube import clock
from muster.kube.client import BROKEN, WATCH_SECONDS, ApiError, FencedError, Kube
from muster.kube.events import EventRecorder
from muster.kube.informer import Informer
from muster.kube.resources import OF_KIND, Resource
from muster.kube.workqueue import WorkQueue
from muster.runtime.metrics import Metrics
from muster.runtime.reconciler import Reconciler
from muster.scheduler import policy
from muster.store.informers import Informers
from muster.store.store import Callbacks, Store
from support.apiserver.memory import copied, merge
from support.rehearsal.gang_tracking import Watched

START = 1_700_000_000.0
DISK = {"ephemeral-storage": "100Gi"}
TOLERATED = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute",
             "operator": "Exists", "tolerationSeconds": 300}  # fmt: skip
"""What admission adds to each pod."""
LONG = 62.0
"""Seconds after which the operator treats a silent node as unreachable, and has seen that."""
KINDS = ("TFJob", "PyTorchJob", "MPIJob", "JAXJob")
PLURALS = {
    **{resource.plural: kind for kind, resource in OF_KIND.items()},
    **{FRAMEWORKS[kind].plural: kind for kind in KINDS},
    "podgroups": "PodGroup",
    "events": "Event",
}
OWNERS = frozenset({"jobs", *(FRAMEWORKS[kind].plural for kind in KINDS)})
OVER = ("Succeeded", "Failed")


class _Selector(selectors.SelectSelector):
    """Waits for nothing: the time that somebody would wait has passed."""

    now = 0.0

    def select(self, timeout=None):
        found = super().select(0)
        assert found or timeout is not None, "nothing will ever happen"
        if not found:
            self.now += max(0.0, timeout)
        return found


class Clockwork(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once; what runs in threads takes a time that is drawn."""

    def __init__(self, dice):
        """Begin at zero."""
        self._patient = _Selector()
        super().__init__(self._patient)
        self._dice = dice
        self.ahead = 0.0
        """Seconds by which the clock of the operator's machine is ahead of the server's."""

    def time(self):
        """Return the seconds since the beginning."""
        return self._patient.now

    def run_in_executor(self, _executor, func, *args):
        """Do it now, and tell of it later."""
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:  # noqa: BLE001 -- its caller's
            future.set_exception(error)
            return future
        self.call_later(self._dice.choice((0.0, 0.02, 0.3)), _tell, future, result)
        return future


def _time():
    return START + asyncio.get_running_loop().time()


def _tell(future, result):
    if not future.done():
        future.set_result(result)


class Server:
    """Holds all objects; `wrong` is what must never have been, `risen` the pods that were made
    again after they had succeeded.
    """

    def __init__(self, dice, cpus):
        """Begin with nodes of so many CPUs each, by name."""
        self.dice, self.cpus = dice, cpus
        self.objects, self.version = {}, 0
        self.log = defaultdict(list)
        """Plural -> version, labels and event, as a watch shows it."""
        self.news = defaultdict(asyncio.Event)
        self.wrong, self.risen, self.made = [], [], Counter()
        self.succeeded = set()
        self.tasks = set()
        self.trouble = 0.0
        """Share of the requests that fare badly."""
        self.silent = {}
        """Unreachable node -> what is set when its kubelet is reached again."""
        self.lost = []
        """Names of pods that are gone or whose node is fenced, one after the other."""
        self.taken = []
        """The running pods that the operator deleted or evicted: name, node, whether it was
        evicted, the names that were lost before, and the node of each pod that is cut off."""
        self.slow = (0.0, 0.01, 0.05)
        """Seconds that an answer, or an event, may take."""
        for name, count in cpus.items():
            self.add_node(name, count)

    def spawn(self, work):
        """Have something done beside all else."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    @property
    def now(self):
        """The time as it is written."""
        return edge.format_time(_time())

    # What is kept.

    def put(self, plural, document):
        """Keep this version of an object; return it as it is kept."""
        self.version += 1
        meta = document["metadata"]
        new = "uid" not in meta
        if new:
            meta |= {"uid": f"uid-{self.version}", "creationTimestamp": self.now, "generation": 1}
            if plural == "pods":
                document["status"] = {"phase": "Pending"}
        meta["resourceVersion"] = str(self.version)
        key = plural, meta.get("namespace", ""), meta["name"]
        self.objects[key] = document
        self.note("ADDED" if new else "MODIFIED", plural, document)
        return document

    def note(self, verb, plural, document):
        """Tell of a change."""
        line = json.dumps({"type": verb, "object": document}).encode() + b"\n"
        labels = document["metadata"].get("labels") or {}
        self.log[plural].append((self.version, labels, line))
        self.news[plural].set()
        if plural == "pods":
            self.check(document["spec"].get("nodeName"))

    def drop(self, key):
        """Let an object be gone."""
        document = self.objects.pop(key, None)
        if document is None:
            return
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.note("DELETED", key[0], document)
        if key[0] == "pods":
            self.lost.append(key[2])
        uid = document["metadata"]["uid"]
        if key[0] in OWNERS:
            self.spawn(self.collect(uid))

    def check(self, node):
        """Look whether a node has more than it takes."""
        if not node:
            return
        on = [o for (p, _, _), o in self.objects.items()
              if p == "pods" and o["spec"].get("nodeName") == node
              and o["status"]["phase"] not in OVER]  # fmt: skip
        total = sum(cpu(pod) for pod in on)
        if total > self.cpus[node]:
            held = sorted(pod["metadata"]["name"] for pod in on)
            self.wrong.append(f"{node}: {total} CPUs of {self.cpus[node]}: {held}")

    # What else goes on in a cluster.

    async def collect(self, uid):
        """Take away, by and by, what has lost its owner."""
        for _ in range(3):
            await asyncio.sleep(self.dice.choice((0.1, 0.5, 1.0)))
            for key, found in list(self.objects.items()):
                if owned(found, uid):
                    self.delete(key, found)

    async def make(self, key, uid):
        """Make pods for a batch Job as its controller does: one, and the next when it has failed.

        `made`: the uid of its last pod. It is held back while it is suspended, and its start time
        is that of its last resumption.
        """
        made, held = "", True
        while (job := self.objects.get(key)) is not None and job["metadata"]["uid"] == uid:
            status = job.setdefault("status", {})
            mine = {k: o for k, o in self.objects.items() if k[0] == "pods" and owned(o, uid)}
            living = [k for k, o in mine.items() if o["status"]["phase"] not in OVER]
            ends = [o["status"]["phase"] for o in mine.values() if o["metadata"]["uid"] == made]
            if ends == ["Succeeded"]:
                # Also one that was suspended in that moment.
                ended = {"type": "Complete", "status": "True"}
                job["status"] = {**status, "conditions": [ended], "completionTime": self.now}
                self.put("jobs", job)
                return
            if job["spec"].get("suspend"):
                for at in living:
                    self.delete(at, self.objects[at])
                held = True
            elif held:
                held = False
                status["startTime"] = self.now
                self.put("jobs", job)
            elif not living:
                template = copied(job["spec"]["template"])
                owner = {"apiVersion": "batch/v1", "kind": "Job", "name": key[2], "uid": uid}
                meta = template["metadata"]
                meta |= {"name": f"{key[2]}-{self.version}", "ownerReferences": [
                    {**owner, "controller": True}]}  # fmt: skip
                _, pod = self.create("pods", key[1], template)
                made = pod["metadata"]["uid"]
            await asyncio.sleep(self.dice.choice((0.05, 0.2, 0.5)))

    def delete(self, key, found):
        """Begin to take an object away; return what is left of it."""
        placed = key[0] == "pods" and found["spec"].get("nodeName")
        if not placed or found["status"]["phase"] in OVER:
            self.drop(key)
            return found
        if "deletionTimestamp" not in found["metadata"]:
            found["metadata"]["deletionTimestamp"] = self.now
            self.put(key[0], found)
            self.spawn(self.end(key, found["metadata"]["uid"]))
        return found

    def silence(self, nodes):
        """Cut the kubelets of these nodes off."""
        for node in nodes:
            self.silent[node] = asyncio.Event()
            self.silent[node].since = _time()
            self._report(node, "Unknown")

    def answer(self):
        """Let all kubelets be reached again."""
        for node, event in self.silent.items():
            event.set()
            if ("nodes", "", node) in self.objects:
                self._report(node, "True")
        self.silent.clear()

    def _report(self, node, status):
        ready = {"type": "Ready", "status": status, "lastTransitionTime": self.now}
        self.change(("nodes", "", node), {"status": {"conditions": [ready]}})

    def cut_off(self):
        """Return the nodes of the running pods by name, if they have been silent for long."""
        long = [n for n, event in self.silent.items() if _time() > event.since + LONG]
        found = ((key[2], o) for key, o in self.objects.items() if key[0] == "pods")
        return {
            name: o["spec"]["nodeName"]
            for name, o in found
            if o["status"]["phase"] == "Running" and o["spec"]["nodeName"] in long
        }

    async def reached(self, node):
        """Return when the kubelet of a node is reached."""
        if node in self.silent:
            await self.silent[node].wait()

    async def end(self, key, uid):
        """Let a pod go as its kubelet does."""
        await asyncio.sleep(self.dice.choice((0.0, 0.1, 0.6)))
        if key in self.objects:
            await self.reached(self.objects[key]["spec"].get("nodeName"))
        found = self.objects.get(key)
        if found is not None and found["metadata"]["uid"] == uid:
            self.drop(key)

    async def run(self, key, uid):
        """Let a pod run as its kubelet does."""

        def there():
            found = self.objects.get(key)
            same = found is not None and found["metadata"]["uid"] == uid
            return found if same and "deletionTimestamp" not in found["metadata"] else None

        await asyncio.sleep(self.dice.choice((0.05, 0.3)))
        if (pod := there()) is None:
            return
        await self.reached(pod["spec"]["nodeName"])
        if (pod := there()) is None:
            return
        told = pod["metadata"]["annotations"]
        ready = [{"type": "Ready", "status": "True"}]
        pod["status"] = {"phase": "Running", "conditions": ready, "startTime": self.now}
        self.put("pods", pod)
        if told["run"] == "forever":
            return
        await asyncio.sleep(float(told["run"]))
        if (pod := there()) is None:
            return
        if told["exits"] == "0":
            self.succeeded.add(key)
        codes = [int(code) for code in told["exits"].split(",")]
        code = codes[min(self.made[key], len(codes)) - 1]
        ended = {"name": pod["spec"]["containers"][0]["name"],
                 "state": {"terminated": {"exitCode": code}}}  # fmt: skip
        pod["status"] = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}
        self.put("pods", pod)

    # What people do.

    def add_node(self, name, cpus, **labels):
        """Show a node that is ready."""
        self.cpus[name] = cpus
        amounts = {"cpu": str(cpus), "memory": "64Gi", "pods": "110", **DISK}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": amounts, "conditions": ready}
        metadata = {"name": name, **({"labels": labels} if labels else {})}
        self.put("nodes", {"metadata": metadata, "status": status})

    def change(self, key, body):
        """Change an object that is there."""
        self._patch(key, self.objects[key], "", body)

    def lose(self, *key):
        """Let an object be deleted, if it is there."""
        if (found := self.objects.get(key)) is not None:
            self.delete(key, found)

    def has_begun(self, job):
        """Say whether there is a pod of that job."""
        return any(p == "pods" and name.startswith(f"{job}-") for p, _, name in self.objects)

    # What is asked of it.

    def serve(self, method, path, params, body):
        """Return the code and the answer of a request."""
        parts = path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        if not parts:
            served = path.endswith(names.SCHEDULING_API)
            kinds = [{"kind": "PodGroup"}, {"kind": "Queue"}]
            told = {"kind": "APIResourceList", "resources": kinds}
            return (200, told) if served else fail(404, "NotFound")
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        plural, name, sub = (*parts, "", "")[:3]
        if plural == "events":
            return 201, {"kind": "Event", "metadata": {"uid": "e", "resourceVersion": "1"}}
        key = plural, namespace, name
        if method == "POST" and not name:
            return self.create(plural, namespace, body)
        if not name:
            return 200, self.listing(plural, namespace, params)
        found = self.objects.get(key)
        if found is None or "dryRun" in params:
            return fail(404, "NotFound") if found is None else (201, copied(found))
        return getattr(self, f"_{method.lower()}")(key, found, sub, body)

    def listing(self, plural, namespace, params):
        """Return a list."""
        items = [
            copied(found)
            for (p, n, _), found in self.objects.items()
            if p == plural and namespace in ("", n)
            if chosen(found["metadata"].get("labels") or {}, params)
            if params.get("fieldSelector") in (None, f"metadata.name={found['metadata']['name']}")
        ]
        version = {"resourceVersion": str(self.version)}
        return {"kind": "List", "metadata": version, "items": items}

    def create(self, plural, namespace, body):
        """Create an object."""
        meta = body["metadata"]
        meta["namespace"] = namespace
        key = plural, namespace, meta["name"]
        if key in self.objects:
            return fail(409, "AlreadyExists")
        if self.lacks(plural, namespace, body):
            return fail(404 if plural == "rolebindings" else 403, "NotFound")
        document = {"kind": PLURALS[plural], **body}
        meta.pop("uid", None)
        if plural == "pods":
            body["spec"].setdefault("tolerations", []).append(TOLERATED)
        self.made[key] += 1
        if key in self.succeeded:
            self.risen.append(meta["name"])
        stored = self.put(plural, document)
        if plural == "pods" and stored["spec"].get("nodeName"):
            self.spawn(self.run(key, stored["metadata"]["uid"]))
        if plural == "jobs":
            self.spawn(self.make(key, stored["metadata"]["uid"]))
        there = {found["metadata"]["uid"] for found in self.objects.values()}
        for owner in meta.get("ownerReferences") or ():
            if owner["uid"] not in there:
                self.spawn(self.collect(owner["uid"]))
        return 201, copied(stored)

    def lacks(self, plural, namespace, body):
        """Say whether it names an object that is not there, where the server looks for it."""
        if plural == "rolebindings":
            return ("roles", namespace, body["roleRef"]["name"]) not in self.objects
        account = body["spec"].get("serviceAccountName") if plural == "pods" else None
        return bool(account) and ("serviceaccounts", namespace, account) not in self.objects

    def _get(self, _key, found, _sub, _body):
        return 200, copied(found)

    def _post(self, key, found, sub, body):
        meta = found["metadata"]
        if sub == "eviction":
            if body["deleteOptions"]["preconditions"]["uid"] != meta["uid"]:
                return fail(409, "Conflict")
            self._take(found, evicted=True)
            return 201, copied(self.delete(key, found))
        if body["metadata"]["uid"] != meta["uid"] or found["spec"].get("nodeName"):
            return fail(409, "Conflict")
        if "deletionTimestamp" in meta:
            return fail(409, "Conflict")
        found["spec"]["nodeName"] = body["target"]["name"]
        self.put("pods", found)
        self.spawn(self.run(key, meta["uid"]))
        return 201, {"kind": "Status"}

    def _delete(self, key, found, _sub, body):
        if body["preconditions"]["uid"] != found["metadata"]["uid"]:
            return fail(409, "Conflict")
        at_once = body.get("gracePeriodSeconds") == 0
        if key[0] == "pods":
            self._take(found, at_once=at_once)
        if at_once:
            self.drop(key)
            return 200, copied(found)
        return 200, copied(self.delete(key, found))

    def _take(self, pod, *, evicted=False, at_once=False):
        # A pod without a kubelet that ends it may run on, and its successor with it.
        going = "deletionTimestamp" in pod["metadata"] and not at_once
        if pod["status"]["phase"] == "Running" and not going:
            name = pod["metadata"]["name"]
            lost, away = frozenset(self.lost), self.cut_off()
            self.taken.append((name, pod["spec"]["nodeName"], evicted, lost, away))

    def _patch(self, key, found, sub, body):
        meta, asked = found["metadata"], body.pop("metadata", {})
        if asked.get("uid", meta["uid"]) != meta["uid"]:
            return fail(422, "Invalid", f'metadata.uid: Invalid value: "{asked["uid"]}"')
        if asked.get("resourceVersion", meta["resourceVersion"]) != meta["resourceVersion"]:
            return fail(409, "Conflict")
        after = copied(found)
        asked = {k: v for k, v in asked.items() if k not in ("uid", "resourceVersion")}
        merge(after, {"status": body.get("status")} if sub == "status" else
              {**body, **({"metadata": asked} if asked else {})})  # fmt: skip
        if key[0] == "jobs" and (why := fixed(found, after)):
            return fail(422, "Invalid", why)
        if after != found:
            if after.get("spec") != found.get("spec"):
                after["metadata"]["generation"] += 1
            self.put(key[0], after)
        return 200, copied(after)


def cpu(pod):
    """Return the CPUs that a pod takes."""
    requests = (c.get("resources", {}).get("requests", {}) for c in pod["spec"]["containers"])
    return sum(float(parse(r["cpu"])) for r in requests if "cpu" in r)


def owned(document, uid):
    """Say whether that is its owner."""
    return any(o["uid"] == uid for o in document["metadata"].get("ownerReferences") or ())


def fixed(before, after):
    """Return what of a batch Job cannot be changed as it is, as the server does."""
    suspended, started = before["spec"].get("suspend"), before.get("status", {}).get("startTime")
    if before["spec"]["template"] != after["spec"]["template"] and (started or not suspended):
        return "spec.template: field is immutable"
    if started and "startTime" not in after["status"] and not suspended:
        return "status.startTime: cannot be removed for unsuspended job"
    return ""


def chosen(labels, params):
    """Say whether a label selector takes what has these labels."""
    selector = params.get("labelSelector", "")
    if selector.startswith("!"):
        return selector[1:] not in labels
    if "=" in selector:
        key, value = selector.split("=")
        return labels.get(key) == value
    return not selector or selector in labels


def fail(code, reason, message="played"):
    """Return an answer that is an error."""
    return code, {"kind": "Status", "reason": reason, "message": message, "code": code}


class Answer:
    """What a client gets."""

    reason, headers = "", {}

    def __init__(self, status, document, content=None):
        """Begin."""
        self.status, self._document, self.content = status, document, content or self

    async def iter_any(self):
        """Yield the body."""
        yield json.dumps(self._document).encode()


class Session:
    """A client's connections to the server; `open` until its process has died."""

    timeout = aiohttp.ClientTimeout(total=60)

    def __init__(self, server):
        """Begin."""
        self.server, self.open = server, True

    @contextlib.asynccontextmanager
    async def request(self, method, url, *, data, headers, params, **limits):
        """Give the answer to a request, if its process lives to see it."""
        server, dice = self.server, self.server.dice
        del headers, limits
        fault = ""
        if dice.random() < server.trouble:
            fault = dice.choice(("cut", "lose", "500", "done 500", "429", "twice", "late", "lose"))
        pause = dice.choice(server.slow)
        if method != "GET":
            # A request that has left is carried out, whether or not somebody waits for it.
            done = asyncio.get_running_loop().create_future()
            server.spawn(self._carry(done, pause, fault, method, url, data, params))
            code, document = await asyncio.shield(done)
        else:
            await asyncio.sleep(pause)
            code, document = server.serve(method, url.removeprefix("http://x"), params or {}, None)
            document = copied(document)
        await asyncio.sleep(dice.choice(server.slow))
        if fault in ("cut", "lose"):
            raise aiohttp.ServerDisconnectedError
        yield Answer(code, document)

    async def _carry(self, done, pause, fault, method, url, data, params):
        server = self.server
        await asyncio.sleep(pause + (server.dice.choice((0.4, 1.5)) if fault == "late" else 0))
        path, answer = url.removeprefix("http://x"), fail(500, "InternalError")
        for _ in range(2 if fault == "twice" else 1):
            if fault == "429":
                answer = fail(429, "TooManyRequests")
            elif fault not in ("cut", "500"):
                answer = server.serve(method, path, params or {}, json.loads(data))
        _tell(done, fail(500, "InternalError") if fault == "done 500" else copied(answer))

    @contextlib.asynccontextmanager
    async def get(self, url, *, params, timeout):  # noqa: ASYNC109 -- aiohttp's own
        """Give a watch."""
        del timeout
        path = url.removeprefix("http://x").strip("/").split("/")
        yield Answer(200, {}, _Stream(self.server, path[-1], params))


class _Stream:
    def __init__(self, server, plural, params):
        self.server, self.plural, self.params = server, plural, params

    async def iter_any(self):
        server, log = self.server, self.server.log[self.plural]
        at, loop = int(self.params["resourceVersion"]), asyncio.get_running_loop()
        index = next((i for i, event in enumerate(log) if event[0] > at), len(log))
        ends = loop.time() + WATCH_SECONDS
        while True:
            while index == len(log):
                server.news[self.plural].clear()
                try:
                    async with asyncio.timeout_at(ends):
                        await server.news[self.plural].wait()
                except TimeoutError:
                    return
            _, labels, line = log[index]
            index += 1
            if chosen(labels, self.params):
                await asyncio.sleep(server.dice.choice(server.slow))
                yield line


class Process:
    """One life of the operator."""

    def __init__(self, server, hold=30.0, rules=policy.DEFAULT, expired="keep"):
        """Put its parts together."""
        kube = self.kube = Kube("http://x", lambda _limit: Session(server), "muster-system", 64)
        self.queue = WorkQueue(
            self._pass,
            width=64,
            quiet=(FencedError,),
            trouble=(ApiError, *BROKEN),
            tenant=lambda key: key.split("/")[1],
        )
        kube.recovered = self.queue.hurry
        rows = [FRAMEWORKS[kind] for kind in KINDS]

        def trigger():
            self.loop.trigger()

        callbacks = Callbacks(self.queue.add, trigger, ended=self._on_pod_ended)
        self.store = Store(gang.EMBEDDED, rows, callbacks=callbacks)
        self.informers = Informers(kube, self.store)
        self.jobs = [
            Informer(kube, Resource(names.GROUP, row.version, row.plural),
                     self.store.collections[row.kind]) for row in rows
        ]  # fmt: skip
        metrics, recorder = Metrics(), EventRecorder(kube)

        def settings():
            classes = self.store.priorities
            rules_ = GangRules(frozenset({"muster"}), "default", classes)
            return GangSettings(rules_, hold, expired, schedule_period=0.1)

        self.loop = Loop(
            kube, self.store, lambda: rules, settings, metrics.cycles, self._publish, recorder
        )
        self.reconciler = Reconciler(
            kube, self.store, gang.EMBEDDED, lambda _n: Context(), recorder, metrics, self.loop
        )
        self._parts = [self.informers.run(), recorder.run(), self._work()]
        granted = self.informers.grant_batches()
        self._parts += [informer.run() for informer in (*self.jobs, *granted)]

    def _on_pod_ended(self, key):
        self.reconciler.on_pod_ended(key)

    def _publish(self, key):
        self.reconciler.hurry(key)
        self.queue.add(key, at_once=True)

    async def _pass(self, key):
        after = await self.reconciler.reconcile(key)
        if after is None and self.store.jobs.find(key) is None:
            self.queue.forget(key)
        return after

    async def _work(self):
        await self.informers.synced()
        self.loop.trigger()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.queue.run(self.store.jobs.all_keys))
            tasks.create_task(self.loop.run())

    async def run(self):
        """Work until it is killed."""
        tasks = [asyncio.create_task(part) for part in self._parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*(task for task in tasks if task.done()))
            raise AssertionError("a part of the operator has ended")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def end(*tasks):
    """Cancel tasks and wait for their ends, as of an operator that is killed."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(question, seconds=300):
    """Return when the answer is yes; the time passes at once."""
    async with asyncio.timeout(seconds):
        while not question():  # noqa: ASYNC110 -- time passes at once
            await asyncio.sleep(0.02)


async def waited(question, seconds):
    """Return when the answer is yes, or after that time, which passes at once."""
    with contextlib.suppress(TimeoutError):
        await until(question, seconds)


def play(story, seed, cpus):
    """Let `await story(server, dice)` come to pass in a time that passes at once."""
    dice = random.Random(seed)
    loop = Clockwork(dice)

    async def run():
        server = Server(dice, cpus)
        try:
            return await story(server, dice)
        finally:
            for task in list(server.tasks):
                task.cancel()

    def now():
        return START + loop.time() + loop.ahead

    with (
        mock.patch.object(time, "time", now),
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(clock, "since_boot", loop.time),
        mock.patch.object(clock.now, "_read", (0.0, START)),
        mock.patch("muster.allocator.loop.GangTracker", Watched),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        return runner.run(run())
