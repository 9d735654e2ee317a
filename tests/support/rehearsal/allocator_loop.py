# SPDX-License-Identifier: Apache-2.0
"""The allocator's loop at work, on a store that is shown objects; nobody writes."""

import asyncio
import contextlib
import math
import time

from muster import gang
from muster.allocator.loop import Loop
from muster.allocator.members import GangSettings
from muster.api import edge
from muster.cluster.gangs import GangRules
from muster.frameworks import FRAMEWORKS
from muster.runtime.metrics import Metrics
from muster.scheduler import policy
from muster.store.store import Callbacks, Store
from support.apiserver.memory import tfjob
from support.builders.objects import reference
from support.builders.scheduler import make_node, make_pod
from support.rehearsal.gang_tracking import Shown

PATIENCE = 60.0
KEY = "TFJob/team/mnist"


class Silence:
    """An API server that answers no write but dry runs."""

    def __getattr__(self, verb):
        async def write(*_args):
            if verb != "dry_run":
                raise TimeoutError

        return write


class Looping(Shown):
    """A loop; `meanwhile` happens while a cycle decides."""

    def __init__(self, server, nodes, **more):
        """Begin with `nodes`, by name, and no queue that somebody has made."""
        self.server = server
        self.policy = policy.DEFAULT
        self.priorities = {}
        self.patience = math.inf
        self.meanwhile = []
        self._news = asyncio.Event()
        callbacks = Callbacks(self._enqueue, self._trigger)
        self.store = Store(gang.EMBEDDED, [FRAMEWORKS["TFJob"]], callbacks=callbacks)
        self.loop = Loop(
            server,
            self.store,
            self._policy,
            self._settings,
            Metrics().cycles,
            self._enqueue,
            **more,
        )
        for name, fields in nodes.items():
            self.put({"kind": "Node", **make_node(name=name, **fields)})

    def _settings(self):
        rules = GangRules(
            frozenset({"muster"}), "default", self.priorities, reservation_after=self.patience
        )
        return GangSettings(rules)

    def _policy(self):
        while self.meanwhile:
            self.meanwhile.pop(0)()
        return self.policy

    def _trigger(self):
        if hasattr(self, "loop"):
            self.loop.trigger()

    def _enqueue(self, _key):
        self._news.set()

    def show_job(self, name, workers, *, spec=None, template=None, status=None, **metadata):
        """Show a job whose workers take one CPU each."""
        container = {"name": "tensorflow", "image": "i"}
        whole = {"containers": [{**container, "resources": {"requests": {"cpu": "1"}}}]}
        role = {"replicas": workers, "template": {"spec": {**whole, **(template or {})}}}
        document = tfjob(name=name, Worker=role)
        document["spec"] |= spec or {}
        document["status"] = status or {}
        created = edge.format_time(time.time())
        document["metadata"] |= {"generation": 1, "creationTimestamp": created, **metadata}
        return self.put(document)

    def show_worker(self, name, job, uid, **fields):
        """Show a pod of a job."""
        pod = make_pod(name=name, namespace="team", cpu=1, **fields)
        pod["metadata"] |= {
            "creationTimestamp": edge.format_time(time.time()),
            "labels": {"training.kubeflow.org/replica-type": "worker"},
            "ownerReferences": [reference(uid=uid, name=job)],
        }
        self.put({"kind": "Pod", **pod})

    def placements(self, key=KEY):
        """Return what may be created of the job now."""
        job = self.store.jobs.get(key)
        return {} if job is None else self.loop.placements(job)

    async def until(self, question):
        """Return once the answer is yes; it is asked after every news of the loop."""
        async with asyncio.timeout(PATIENCE):
            while not question():
                self._news.clear()
                await self._news.wait()


@contextlib.asynccontextmanager
async def running(looping):
    """Yield a loop that runs until the block ends."""
    task = asyncio.create_task(looping.loop.run())
    try:
        yield looping
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
