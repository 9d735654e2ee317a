# SPDX-License-Identifier: Apache-2.0
"""An API server in memory that commands can only read."""

import time
from types import MappingProxyType

from muster.allocator import policyfile
from muster.api import edge
from muster.kube.client import ApiError
from muster.scheduler import policy
from muster.settings import Settings
from support.apiserver.memory import tfjob
from support.builders.objects import make_template

PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "ResourceQuota": "/api/v1/resourcequotas",
    "LimitRange": "/api/v1/limitranges",
    "Queue": "/apis/scheduling.incubator.k8s.io/v1alpha1/queues",
    "TFJob": "/apis/kubeflow.org/v1/tfjobs",
    "PodGroup": "/apis/scheduling.incubator.k8s.io/v1alpha1/podgroups",
}


DEFAULT_QUEUE = {"kind": "Queue", "metadata": {"name": "default"}}


OBJECTS = {
    "ConfigMap": "/api/v1/namespaces/muster-system/configmaps/muster-policy",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster",
}
"""Objects of the operator, which are read by name."""


class Served:
    """An API server that can only be read: these documents, and the default queue.

    The operator runs and publishes its policy. `failing`: path -> the error in place of what is
    there, None if nothing is.
    """

    namespace = "team"

    def __init__(self, *documents, failing=MappingProxyType({})):
        self._lists = {path: [] for path in PATHS.values()}
        self._named = {}
        for number, document in enumerate((DEFAULT_QUEUE, published(), lease(), *documents)):
            kind = document["kind"]
            if kind in OBJECTS:
                self._named[OBJECTS[kind]] = document
                continue
            given = {"uid": str(max(number - 2, 0)), "resourceVersion": "1", "namespace": "team"}
            if kind in ("Node", "Queue"):
                del given["namespace"]
            metadata, path = {**given, **document["metadata"]}, PATHS[kind]
            about = {"apiVersion": "/".join(path.split("/")[2:-1]), **document}
            self._lists[path].append({**about, "metadata": metadata})
        self._named |= failing

    async def get(self, path, **params):
        """Return the list that is at the path, of the namespace of all objects or of all."""
        if path in self._named:
            found = self._named.get(path) or ApiError(404, "NotFound", f"{path} not found", None)
            if isinstance(found, ApiError):
                raise found
            return found
        path = path.replace("/namespaces/team/", "/")
        named = params.get("fieldSelector", "").removeprefix("metadata.name=")
        items = self._lists.get(path, [])
        shown = [each for each in items if named in ("", each["metadata"]["name"])]
        return {"metadata": {"resourceVersion": "1"}, "items": shown}

    async def clock(self):
        """Return the time by the server's clock."""
        return time.time()

    async def close(self):
        """Do nothing: there is no connection."""


def published(document=policy.DEFAULT.source, **settings):
    """Return the ConfigMap of an operator with this policy and these settings."""
    chosen = policy.parse(document)
    data = policyfile.data(chosen, Settings(**settings).published)
    return {"kind": "ConfigMap", "data": data}


def lease(age=0.0, holder="muster-1"):
    """Return the Lease of an operator, renewed so many seconds ago."""
    return {
        "kind": "Lease",
        "metadata": {"name": "muster", "namespace": "muster-system"},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 12,
            "renewTime": edge.format_time(time.time() - age),
        },
    }


def job(name="mnist", *, workers, cpu="1", age=0.0):
    """Return a job that was created so many seconds ago."""
    template = make_template(requests={"cpu": cpu})
    document = tfjob(name=name, Worker={"replicas": workers, "template": template})
    document["metadata"]["creationTimestamp"] = edge.format_time(time.time() - age)
    document["metadata"]["generation"] = 1
    return document
