# SPDX-License-Identifier: Apache-2.0
"""The one door to the API server: requests, retries, order of urgency."""

from __future__ import annotations

from dataclasses import dataclass

from muster.api import names


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind of object lives on the server."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, or of one object in it."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


def namespace_of(path: str) -> str:
    """Return the namespace of what is at a URL path; empty if it is in none."""
    _, found, rest = path.partition("/namespaces/")
    return rest.partition("/")[0] if found else ""


PODS = Resource("", "v1", "pods")
SERVICES = Resource("", "v1", "services")
CONFIG_MAPS = Resource("", "v1", "configmaps")
NODES = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", namespaced=False)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas")
LIMIT_RANGES = Resource("", "v1", "limitranges")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts")
QUEUES = Resource("scheduling.incubator.k8s.io", "v1alpha1", "queues", namespaced=False)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers")
EVENTS = Resource("", "v1", "events")
BATCH_JOBS = Resource("batch", "v1", "jobs")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
OF_KIND = {
    "Pod": PODS,
    "Service": SERVICES,
    "ConfigMap": CONFIG_MAPS,
    "Node": NODES,
    "Namespace": NAMESPACES,
    "PersistentVolumeClaim": CLAIMS,
    "PersistentVolume": VOLUMES,
    "StorageClass": CLASSES,
    names.CSI_NODE: CSI_NODES,
    names.RUNTIME_CLASS: RUNTIME_CLASSES,
    "PriorityClass": PRIORITY_CLASSES,
    "ResourceQuota": RESOURCE_QUOTAS,
    "LimitRange": LIMIT_RANGES,
    names.SERVICE_ACCOUNT: SERVICE_ACCOUNTS,
    "Queue": QUEUES,
    "PodDisruptionBudget": BUDGETS,
    names.AUTOSCALER: AUTOSCALERS,
    names.BATCH_JOB: BATCH_JOBS,
}
"""What is followed, jobs and groups aside."""
RESOURCES = {
    ("v1", "Pod"): PODS,
    ("v1", "Service"): SERVICES,
    ("v1", "ConfigMap"): CONFIG_MAPS,
    (names.AUTOSCALING_API, names.AUTOSCALER): AUTOSCALERS,
    (names.BATCH_API, names.BATCH_JOB): BATCH_JOBS,
}
"""By apiVersion and kind: the children that are written for jobs."""
