# SPDX-License-Identifier: Apache-2.0
"""An API server in memory that commands can only read."""

from __future__ import annotations

import time

from muster.api import edge
from support.apiserver.memory import tfjob

PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "ResourceQuota": "/api/v1/resourcequotas",
    "LimitRange": "/api/v1/limitranges",
    "Queue": "/apis/scheduling.incubator.k8s.io/v1alpha1/queues",
    "TFJob": "/apis/kubeflow.org/v1/tfjobs",
}


DEFAULT_QUEUE = {"kind": "Queue", "metadata": {"name": "default"}}


class Served:
    """An API server that can only be read: these documents, and the default queue."""

    namespace = "team"

    def __init__(self, *documents):
        self._lists = {path: [] for path in PATHS.values()}
        for number, document in enumerate((DEFAULT_QUEUE, *documents)):
            given = {"uid": str(number), "resourceVersion": "1", "namespace": "team"}
            if document["kind"] in ("Node", "Queue"):
                del given["namespace"]
            metadata = {**given, **document["metadata"]}
            self._lists[PATHS[document["kind"]]].append({**document, "metadata": metadata})

    async def get(self, path, **_params):
        """Return the list that is at the path, of the namespace of all objects or of all."""
        path = path.replace("/namespaces/team/", "/")
        return {"metadata": {"resourceVersion": "1"}, "items": self._lists.get(path, [])}

    async def close(self):
        """Do nothing: there is no connection."""


def job(name="mnist", *, workers, cpu="1", age=0.0):
    """Return a job that was created so many seconds ago."""
    container = {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"containers": [container]}}
    document = tfjob(name=name, Worker={"replicas": workers, "template": template})
    document["metadata"]["creationTimestamp"] = edge.format_time(time.time() - age)
    document["metadata"]["generation"] = 1
    return document
