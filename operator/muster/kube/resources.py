# SPDX-License-Identifier: Apache-2.0
"""The API resources that are read and written."""

from __future__ import annotations

from muster.api import names
from muster.api.resource import Resource as Resource  # noqa: PLC0414 -- the type of what is below


def namespace_of(path: str) -> str:
    """Return the namespace of what is at a URL path; empty if it is in none."""
    _, found, rest = path.partition("/namespaces/")
    return rest.partition("/")[0] if found else ""


PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", names.CSI_NODE, namespaced=False)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", names.CSI_DRIVER, namespaced=False)
CAPACITIES = Resource("storage.k8s.io", "v1", "csistoragecapacities", names.STORAGE_CAPACITY)
RUNTIME_CLASSES = Resource(
    "node.k8s.io", "v1", "runtimeclasses", names.RUNTIME_CLASS, namespaced=False
)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", names.SERVICE_ACCOUNT)
QUEUES = Resource("scheduling.incubator.k8s.io", "v1alpha1", "queues", "Queue", namespaced=False)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", names.AUTOSCALER)
EVENTS = Resource("", "v1", "events")
BATCH_JOBS = Resource("batch", "v1", "jobs", names.BATCH_JOB)
DEPLOYMENTS = Resource("apps", "v1", "deployments")
SECRETS = Resource("", "v1", "secrets", "Secret")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
OF_KIND = {each.kind: each for each in (
    PODS, SERVICES, CONFIG_MAPS, NODES, NAMESPACES, CLAIMS, VOLUMES, CLASSES, CSI_NODES,
    CSI_DRIVERS, CAPACITIES, RUNTIME_CLASSES, PRIORITY_CLASSES, RESOURCE_QUOTAS, LIMIT_RANGES,
    SERVICE_ACCOUNTS, QUEUES, BUDGETS, AUTOSCALERS, BATCH_JOBS, SECRETS, ROLES, ROLE_BINDINGS,
)}  # fmt: skip
"""Kinds of objects that are watched or written, without jobs and PodGroups."""
