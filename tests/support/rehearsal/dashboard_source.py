# SPDX-License-Identifier: Apache-2.0
"""The source of a dashboard: what a cycle saw and a store, both of which tests change."""

from dataclasses import replace

from muster.commands.snapshot import empty_store
from muster.dashboard.server import Source
from support.apiserver.memory import tfjob
from support.builders import sample_clusters
from support.builders.scheduler import make_pod

_, WHOLE = sample_clusters.small()
SEEN = replace(WHOLE, decisions=WHOLE.decisions[:1])
RUNNING = {"type": "Running", "status": "True", "reason": "r", "message": "It runs."}
EVENT = {"reason": "Queued", "message": "waits", "type": "Normal", "count": 3,
         "lastTimestamp": "2026-09-21T14:13:20Z"}  # fmt: skip


class Hall:
    """What a dashboard is told, which can change."""

    def __init__(self, seen=SEEN, **more):
        """Show this."""
        self.seen, self.looked = seen, 0
        self.store = empty_store(("muster",))
        self.source = Source(self.look, self.store, **more)

    def look(self):
        """Return what the last cycle saw."""
        self.looked += 1
        return self.seen

    def goes_on(self, seen):
        """Have a cycle see this."""
        self.seen = seen
        self.source.past.saw(seen.snapshot)

    def brings(self, name="mine", **labels):
        """Show a job, with a pod."""
        document = tfjob(name=name)
        document["metadata"] |= {"namespace": "vision", "uid": "u-1", "resourceVersion": "1"}
        if labels:
            document["metadata"]["labels"] = labels
            document["spec"]["runPolicy"] = {"managedBy": "kueue.x-k8s.io/multikueue"}
            document["status"] = {"conditions": [RUNNING]}
        self.store.jobs.show("TFJob", document, gone=False)
        owner = {"kind": "TFJob", "name": name, "uid": "u-1", "controller": True,
                 "apiVersion": "kubeflow.org/v1"}  # fmt: skip
        pod = {"kind": "Pod", **make_pod(name=f"{name}-worker-0", namespace="vision", uid="p-1")}
        labels = {"training.kubeflow.org/replica-type": "worker",
                  "training.kubeflow.org/replica-index": "0"}  # fmt: skip
        pod["metadata"] |= {"ownerReferences": [owner], "resourceVersion": "2", "labels": labels}
        self.store.put(pod)
