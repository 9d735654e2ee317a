# SPDX-License-Identifier: Apache-2.0
"""Whatever an API server stores: it is read, and what one writes stops nobody else's work.

The documents are drawn from the schemas of all kinds that are watched, extremes included. A
number makes a document: the same one each time.
"""

import contextlib
import copy
import logging
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import crdgen
from muster import gang
from muster.allocator.members import GangSettings
from muster.api import names, quantity
from muster.cluster import recording
from muster.cluster.gangs import GangRules
from muster.frameworks import FRAMEWORKS
from muster.scheduler import cycle, policy
from muster.store.store import Callbacks, Store
from support.apiserver.memory import tfjob
from support.builders.scheduler import make_node
from support.rehearsal.gang_tracking import Shown, evaluated, reconcile_all, tracked

ROOT = Path(__file__).parents[2]
BUILT_IN = {
    "Pod": ("v1", "V1Pod"),
    "Node": ("v1", "V1Node"),
    "Namespace": ("v1", "V1Namespace"),
    "Service": ("v1", "V1Service"),
    "ConfigMap": ("v1", "V1ConfigMap"),
    "PersistentVolumeClaim": ("v1", "V1PersistentVolumeClaim"),
    "PersistentVolume": ("v1", "V1PersistentVolume"),
    "ResourceQuota": ("v1", "V1ResourceQuota"),
    "LimitRange": ("v1", "V1LimitRange"),
    "ServiceAccount": ("v1", "V1ServiceAccount"),
    "StorageClass": ("storage.k8s.io/v1", "V1StorageClass"),
    "CSINode": ("storage.k8s.io/v1", "V1CSINode"),
    "CSIDriver": ("storage.k8s.io/v1", "V1CSIDriver"),
    "CSIStorageCapacity": ("storage.k8s.io/v1", "V1CSIStorageCapacity"),
    "PriorityClass": ("scheduling.k8s.io/v1", "V1PriorityClass"),
    "RuntimeClass": ("node.k8s.io/v1", "V1RuntimeClass"),
    "PodDisruptionBudget": ("policy/v1", "V1PodDisruptionBudget"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "V2HorizontalPodAutoscaler"),
    "Job": ("batch/v1", "V1Job"),
}
JOBS = ("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")
GROUPS = ("PodGroup", "PodGroup.volcano", "PodGroup.plugins", "PodGroup.open")
"""Ours, others', and one whose schema says nothing."""
KINDS = (*BUILT_IN, *JOBS, *GROUPS, "Queue")
CLUSTER_WIDE = frozenset(
    {
        *("Node", "Namespace", "PersistentVolume", "StorageClass", "CSINode"),
        *("CSIDriver", "PriorityClass", "RuntimeClass", "Queue"),
    }
)
NODES = ("node-0", "node-1", "node-2")

ENDLESS = "1e" + "9" * 12
"""Over which an API server itself thinks for minutes."""
AMOUNTS = (
    "0", "1", "2", "500m", "1Gi", "8Pi", "16Ei", "1e3", "1E-3", "1e1002", "1e-1002", "1000e999",
    "9223372036854775807", "9223372036854775808", ".5", "1.", "+1", "100n", "1u", "7Ki", "3E",
    "9" * 60, "0." + "0" * 60 + "1", ENDLESS,
)  # fmt: skip
BELOW = ("-1", "-1e1002", "-500m", "-0")
NUMBERS = (
    0, 1, 1, 2, 2, 3, 5, 10, 100, 1000, -1, 2**15, 2**31 - 1, -(2**31), 2**31, 10**15, 2**62,
    2**63 - 1, -(2**63),
)  # fmt: skip
TIMES = (
    "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.123456Z", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z", "2030-06-01T12:00:00+14:00", "1969-12-31T23:59:59Z",
)  # fmt: skip
WORDS = (
    "a", "b", "zone", "rack", "app", "x" * 63, "5", "007", "9" * 63, "9" * 5000, "-5", "",
    "é\u202e", "9223372036854775808", "true", "a/b", "example.com/gpu", "line\nbreak",
    "0x10", "\u0661\u0662",
)  # fmt: skip
VALUES = tuple(
    w for w in WORDS if re.fullmatch(r"([A-Za-z0-9]([-\w.]{,61}[A-Za-z0-9])?)?", w, re.ASCII)
)
"""Of labels: the server stores no others."""
RESOURCES = (
    "cpu", "memory", "pods", "example.com/gpu", "ephemeral-storage", "hugepages-2Mi", "storage",
    "requests.cpu", "limits.memory", "count/pods", "nobody.example.com/has-it",
)  # fmt: skip
LABELS = (
    "zone", "rack", "app", "kubernetes.io/hostname", "topology.kubernetes.io/zone",
    names.REPLICA_INDEX, names.REPLICA_TYPE, names.OPERATOR_NAME, names.LIGHTWEIGHT_GROUP,
    names.LIGHTWEIGHT_MIN_AVAILABLE, names.SCHEDULER_PLUGINS_GROUP, "x" * 63,
)  # fmt: skip
KEY = re.compile(r"(\w[-\w]*\.)+\w+/[a-z][-a-z]+")
NOTES = (
    *sorted(key for key in vars(names).values() if isinstance(key, str) and KEY.fullmatch(key)),
    "volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed",
    "volume.beta.kubernetes.io/storage-class", "storageclass.kubernetes.io/is-default-class",
)  # fmt: skip
"""Annotations: all that anything here is read by."""
TEXTS = {
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "Nonsense"),
    "topologyKey": ("zone", "rack", "kubernetes.io/hostname", "nowhere"),
    "key": ("zone", "rack", "app", "x", names.REPLICA_INDEX, "example.com/dedicated"),
    "nodeName": ("", *NODES, "ghost"),
    "claimName": ("c0", "c1", "c2"),
    "volumeName": ("", "v0", "v1"),
    "storageClassName": ("", "s0", "s1"),
    "schedulerName": ("muster", "muster", "kube-batch", "default-scheduler", ""),
    "priorityClassName": ("", "p0", "p1", "system-node-critical"),
    "priorityClass": ("", "p0", "p1"),
    "queue": ("", "default", "q0", "q1", "nowhere"),
    "phase": ("Pending", "Running", "Succeeded", "Failed", "Bound", "Available", "Lost", ""),
    "status": ("True", "False", "Unknown"),
    "type": (
        "Container",
        "Pod",
        "PersistentVolumeClaim",
        "Ready",
        "MemoryPressure",
        "PodScheduled",
        "Complete",
        "Failed",
        "Running",
        "Succeeded",
        "Scheduled",
    ),
    "effect": ("NoSchedule", "NoExecute", "PreferNoSchedule"),
    "restartPolicy": ("Always", "Never", "OnFailure"),
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
    "volumeBindingMode": ("Immediate", "WaitForFirstConsumer"),
    "provisioner": (
        "",
        "disk.example.com",
        "kubernetes.io/no-provisioner",
        "kubernetes.io/gce-pd",
    ),
    "driver": ("disk.example.com", "net.example.com"),
    "scopeName": (
        "PriorityClass",
        "Terminating",
        "BestEffort",
        "CrossNamespacePodAffinity",
        "Odd",
    ),
    "protocol": ("TCP", "UDP"),
    "hostIP": ("", "0.0.0.0", "10.0.0.1"),
    "accessModes": ("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"),
    "cleanPodPolicy": ("All", "None", "Running"),
    "onHoldExpired": ("keep", "release", "restart"),
}
AMOUNT_FIELDS = frozenset(
    {"allocatable", "capacity", "hard", "used", "limits", "requests", "overhead", "default",
     "defaultRequest", "max", "min", "maxLimitRequestRatio", "capability", "minResources",
     "allocated", "deserved"}
)  # fmt: skip
LIKELY = frozenset(
    {"affinity", "nodeAffinity", "podAffinity", "podAntiAffinity", "nodeSelector", "tolerations",
     "topologySpreadConstraints", "resources", "requests", "limits", "containers", "volumes",
     "persistentVolumeClaim", "ephemeral", "initContainers", "overhead", "nodeName", "phase",
     "conditions", "allocatable", "taints", "capability", "weight", "hard", "used",
     "scopeSelector", "scopes", "min", "max", "default", "minMember", "minResources",
     "schedulerName", "selector",
     "storageClassName", "claimRef", "runPolicy", "schedulingPolicy", "replicas",
     "activeDeadlineSeconds", "minAvailable", "spec", "status", "template", "ports", "hostPort",
     "requiredDuringSchedulingIgnoredDuringExecution", "matchExpressions", "matchLabels",
     "drivers", "preferredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms",
     "labelSelector",
     "containerStatuses", "state", "terminated", "exitCode", "allowedTopologies", "csi",
     "disruptionsAllowed", "value", "volumeBindingMode", "provisioner", "minDomains",
     "maxSkew", "storage", "startTime", "restartPolicy", "queue", "priorityClassName"}
)  # fmt: skip
UNLIKELY = frozenset({"managedFields", "ephemeralContainers", "lifecycle", "ownerReferences"})
DEEPEST = 12


class Writer:
    """Draws values for schemas; `odd` is how often a value is at its edge."""

    def __init__(self, seed, odd=0.15):
        """Begin with a number."""
        self.dice = random.Random(seed)
        self.odd = odd

    def one(self, options):
        """Return one of them."""
        return self.dice.choice(options)

    def often(self, chance):
        """Say whether it is to be, this time."""
        return self.dice.random() < chance

    def value(self, schema, field="", depth=0):
        """Return a value that the schema allows."""
        if schema.get("pattern") in (quantity.PATTERN, quantity.AMOUNT):
            return self.amount()
        if schema.get("x-kubernetes-int-or-string"):
            return self.one((self.number(), "50%", "http"))
        if "enum" in schema:
            return self.one(schema["enum"])
        made = {
            "object": lambda: self.mapping(schema, field, depth),
            "array": lambda: self.items(schema, field, depth),
            "integer": lambda: self.number(schema, field),
            "number": lambda: self.number(schema, field),
            "boolean": lambda: self.often(0.5),
        }
        return made.get(schema.get("type"), lambda: self.text(schema, field))()

    def amount(self, *, signed=False):
        """Return a quantity."""
        if self.often(self.odd):
            return self.one((*AMOUNTS, *BELOW) if signed else AMOUNTS)
        return self.one(("1", "2", "250m", "1Gi", "64Mi", 1))

    def number(self, schema=None, field=""):
        """Return a number in the schema's bounds, as far as these are the server's business."""
        schema = schema or {}
        bits = 31 if schema.get("format") == "int32" else 63
        least = schema.get("minimum", -(2**bits))
        if not self.often(self.odd):
            return max(self.one((1, 1, 2, 3)), least)
        found = self.one([n for n in NUMBERS if least <= n < 2**bits])
        # So many pods are refused, and take long to be counted.
        return min(found, 300) if field == "replicas" and self.often(0.9) else found

    def text(self, schema, field):
        """Return a text; a field that is known says something known, as a rule."""
        if schema.get("format") == "date-time":
            return self.one(TIMES)
        if field in TEXTS and not self.often(0.05):
            return self.one(TEXTS[field])
        longest = schema.get("maxLength", 10_000)
        return self.one([word for word in WORDS if len(word) <= longest])

    def items(self, schema, field, depth):
        """Return a list, short or sometimes long."""
        few = self.one((0, 1, 1, 2))
        if depth > DEEPEST:
            few = 0
        elif field in ("containers", "values", "tolerations") and self.often(self.odd / 5):
            few = self.one((40, 1024 if field == "containers" else 200))
        made = [self.value(schema.get("items", {}), field, depth + 1) for _ in range(min(few, 2))]
        return (made * few)[:few] if few > 2 else made

    def mapping(self, schema, field, depth):
        """Return an object: what is required, and some of the rest."""
        if field in AMOUNT_FIELDS and not schema.get("properties"):
            signed = field in (
                "min",
                "max",
                "default",
                "defaultRequest",
                "capability",
                "minResources",
            )
            return {r: self.amount(signed=signed) for r in self.some(RESOURCES)}
        if "additionalProperties" in schema:
            keys = self.some({"annotations": NOTES}.get(field, LABELS))
            inner = schema["additionalProperties"]
            return {key: self.value(inner, field, depth + 1) for key in keys}
        if schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
            return self.anything(depth)
        required = schema.get("required", ())
        found = {}
        for name, inner in schema.get("properties", {}).items():
            chance = 0.5 if name in LIKELY else 0.0 if name in UNLIKELY else 0.08
            if name in required or (depth < DEEPEST and self.often(chance)):
                found[name] = self.value(inner, name, depth + 1)
        return found

    def some(self, keys):
        """Return a few of these keys."""
        return self.dice.sample(keys, self.one((0, 1, 1, 2, 3)))

    def anything(self, depth=0):
        """Return an object of which no schema says anything."""
        fields = ("minMember", "minResources", "queue", "phase", "conditions", "minAvailable", "x")
        return {field: self.json(depth + 1) for field in self.dice.sample(fields, 3)}

    def json(self, depth):
        """Return some JSON."""
        plain = [
            self.number(),
            self.one(WORDS),
            True,
            1.5,
            1e300,
            self.amount(signed=True),
            10**20,
        ]
        if depth < DEEPEST:
            plain += [[self.json(depth + 4)], {"a": self.json(depth + 4)}, {"cpu": self.amount()}]
        return self.one(plain)


@cache
def schema(kind):
    """Return what the API server knows of a kind."""
    if kind == "ConfigMap":  # its model has bytes
        texts = {"type": "object", "additionalProperties": {"type": "string"}}
        return {"type": "object", "properties": {"data": texts, "binaryData": texts}}
    if kind in BUILT_IN:
        return crdgen.kubernetes_schema(BUILT_IN[kind][1])
    if kind == "PodGroup.open":
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    where = {
        "PodGroup.volcano": "tests/e2e/crds/volcano.yaml",
        "PodGroup.plugins": "tests/e2e/crds/scheduler-plugins.yaml",
        "PodGroup": "crds/scheduling.incubator.k8s.io_podgroups.yaml",
        "Queue": "crds/scheduling.incubator.k8s.io_queues.yaml",
    }.get(kind, f"crds/kubeflow.org_{kind.lower()}s.yaml")
    listed = yaml.load_all((ROOT / where).read_text(encoding="utf-8"), yaml.CSafeLoader)
    found = next(c for c in listed if c["spec"]["names"]["kind"] == kind.partition(".")[0])
    return found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@cache
def bases():
    """Return jobs that people run, by kind."""
    found = {kind: [] for kind in JOBS}
    for path in sorted((ROOT / "examples").glob("*job-*.yaml")):
        for document in yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
            if document and document.get("kind") in found:
                found[document["kind"]].append(document)
    return found


def document(kind, seed, *, namespace="hostile"):
    """Return the document of that kind that the number stands for."""
    writer = Writer(seed, odd=random.Random(seed).choice((0.02, 0.15, 0.5)))
    dice = writer.dice
    if kind == "PodGroup.open":
        made = {"spec": writer.json(0) if dice.random() < 0.3 else writer.anything()}
        made["status"] = writer.json(0) if dice.random() < 0.3 else writer.anything()
    else:
        top = schema(kind)["properties"]
        fields = [f for f in top if f not in ("apiVersion", "kind", "metadata")]
        made = {
            f: writer.value(top[f], f, 1) for f in fields if f != "status" or writer.often(0.6)
        }
    if kind in JOBS:
        _as_a_job(kind, made, writer)
    version = BUILT_IN.get(kind, ("", ""))[0] or _version(kind)
    name = f"{_NAMES.get(kind, kind.lower().replace('.', '-') + '-')}{dice.randrange(4)}"
    if kind in ("Node", "CSINode"):
        name = dice.choice(NODES)
    return {
        "apiVersion": version,
        "kind": kind.partition(".")[0],
        "metadata": _metadata(writer, kind, name, namespace, seed),
        **made,
    }


_CONTAINERS = {"containers": [{"name": "a", "image": "i"}]}
_USUAL = {
    "Pod": {"spec": _CONTAINERS},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "ConfigMap": {"data": {}},
    "Job": {"spec": {"template": {"spec": {**_CONTAINERS, "restartPolicy": "Never"}}}},
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "PersistentVolume": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "disk.example.com", "volumeHandle": "h"},
        }
    },
    "StorageClass": {"provisioner": "disk.example.com"},
    "PriorityClass": {"value": 1},
    "RuntimeClass": {"handler": "runc"},
    "CSINode": {"spec": {"drivers": []}},
    "CSIDriver": {"spec": {"storageCapacity": True}},
    "CSIStorageCapacity": {"storageClassName": "fast", "nodeTopology": {}},
    "ResourceQuota": {"spec": {"hard": {"count/pods": "1000"}}},
    "LimitRange": {"spec": {"limits": []}},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1}},
    "HorizontalPodAutoscaler": {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "a"}}
    },
    "Node": {"spec": {}},
    "Namespace": {"spec": {}},
}


def mutated(kind, seed):
    """Return a document as people write it but for a field or two, which are drawn."""
    made = document(kind, seed)
    if kind not in _USUAL:
        return made
    usual, dice = copy.deepcopy(_USUAL[kind]), random.Random(seed)
    own = {key: made.pop(key) for key in ("apiVersion", "kind", "metadata")}
    rest = sorted(made.keys() - usual.keys())
    drawn = {key: made[key] for key in dice.sample(rest, min(2, len(rest)))}
    for part, fields in usual.items():
        found = made.get(part)
        if isinstance(fields, dict) and isinstance(found, dict) and found:
            fields |= {key: found[key] for key in dice.sample(sorted(found), min(2, len(found)))}
    return {**own, **drawn, **usual}


_NAMES = {
    "PersistentVolumeClaim": "c",
    "PersistentVolume": "v",
    "StorageClass": "s",
    "PriorityClass": "p",
    "Queue": "q",
    "PodGroup": "a",
}


def _version(kind):
    if kind in JOBS:
        return "kubeflow.org/v1"
    if kind == "PodGroup.volcano":
        return "scheduling.volcano.sh/v1beta1"
    if kind == "PodGroup.plugins":
        return "scheduling.x-k8s.io/v1alpha1"
    return "scheduling.incubator.k8s.io/v1alpha1"


def _metadata(writer, kind, name, namespace, seed):
    """Return metadata as the server makes it, with labels and owners of anybody's choice."""
    made = {
        "name": name,
        "uid": f"uid-{kind}-{name}",
        "creationTimestamp": writer.one(TIMES[:4]),
        "generation": 1,
        "resourceVersion": str(seed % 1000 + 1000),
    }
    if kind not in CLUSTER_WIDE:
        made["namespace"] = namespace
    if writer.often(0.5):
        made["labels"] = {key: writer.one(VALUES) for key in writer.some(LABELS)}
    if writer.often(0.5):
        made["annotations"] = {key: writer.one(WORDS) for key in writer.some(NOTES)}
    if writer.often(0.1):
        made["deletionTimestamp"] = TIMES[0]
    if writer.often(0.3):
        owner = writer.one((*JOBS, "Job", "ReplicaSet"))
        api = {"Job": "batch/v1", "ReplicaSet": "apps/v1"}.get(owner, "kubeflow.org/v1")
        name = f"{owner.lower()}-{writer.dice.randrange(4)}"
        uid = f"uid-{owner}-{name}"
        made["ownerReferences"] = [
            {"apiVersion": api, "kind": owner, "name": name, "uid": uid, "controller": True}
        ]
    return made


def _as_a_job(kind, made, writer):
    """Make most jobs such that they are not turned away for want of a container."""
    base = writer.one(bases()[kind])
    roles = next(field for field in base["spec"] if field.endswith("ReplicaSpecs"))
    if not writer.often(0.9):
        return
    drawn = made.setdefault("spec", {}).get(roles) or {}
    template = schema(kind)["properties"]["spec"]["properties"][roles]
    made["spec"][roles] = {}
    for type_, role in base["spec"][roles].items():
        other = next(iter(drawn.values()), None) or writer.value(
            template["additionalProperties"], "", 4
        )
        pod = (other.get("template") or {}).get("spec") or {}
        own = role["template"]["spec"]
        first = {**(pod.get("containers") or [{}])[0], "name": own["containers"][0]["name"]}
        first["image"] = "i"
        several = writer.one((1, 1, 1, 2, 1024 if writer.often(writer.odd / 5) else 3))
        made["spec"][roles][type_] = {
            **other,
            "replicas": role.get("replicas", 1),
            "template": {
                **(other.get("template") or {}),
                "spec": {**pod, "containers": [first, *[{**first, "name": "x"}] * (several - 1)]},
            },
        }
        if writer.often(0.3):
            made["spec"][roles][type_]["replicas"] = writer.number({"minimum": 0}, "replicas")


NOW = 1_800_000_000.0
DRAWN = (document, mutated)
SEEDS = st.integers(0, 2**40)
BATCH = 24
"""Documents of one cluster."""
CLUSTERS = settings(max_examples=max(25, settings().max_examples // 4))
PLAIN = policy.parse({"tiers": [{"plugins": [{"name": "gang"}, {"name": "predicates"}]}]})
"""No share of a queue and no priority: who has room gets it."""
ALL = policy.parse({"actions": "allocate, backfill, preempt, reclaim, defragment"})
QUIET = "TFJob/quiet/mnist"


class Cluster(Shown):
    """A store with one job that has a node for itself, and whatever else is shown to it."""

    def __init__(self):
        """Begin with the quiet job."""
        self.told = []
        callbacks = Callbacks(unreadable=lambda about, why: self.told.append((about, why)))
        self.store = Store(gang.EMBEDDED, FRAMEWORKS.values(), callbacks=callbacks)
        self.store.groups.use(gang.EMBEDDED.apis[0])
        for groups in self.store.podgroups.others.values():
            groups.use(groups.backend.apis[0])
        settings = GangRules(frozenset({"muster"}), "default", self.store.priorities)
        self.settings = GangSettings(settings)
        self.gangs = tracked(self.store)
        self.store.arrived = lambda pod: self.gangs.arrived(pod, NOW)
        self.shown = {}
        self._begin()

    def _begin(self):
        node = make_node(name="quiet-node", cpu=2, labels={"quiet": "yes"})
        node["spec"]["taints"] = [{"key": "quiet", "value": "yes", "effect": "NoSchedule"}]
        self.put({"kind": "Node", **node})
        self.put({"kind": "Queue", "metadata": {"name": "default"}})
        self.put({"kind": "Queue", "metadata": {"name": "quiet"}})
        spec = {
            "nodeSelector": {"quiet": "yes"},
            "tolerations": [{"key": "quiet", "operator": "Exists"}],
            "containers": [
                {"name": "tensorflow", "image": "i", "resources": {"requests": {"cpu": "1"}}}
            ],
        }
        job = tfjob(name="mnist", Worker={"replicas": 2, "template": {"spec": spec}})
        job["spec"]["runPolicy"] = {"schedulingPolicy": {"queue": "quiet"}}
        job["metadata"] |= {"namespace": "quiet", "creationTimestamp": "2024-01-01T00:00:00Z"}
        self.put(job)

    def show(self, seed, count=BATCH):
        """Show documents of many kinds, some of them in the place of others."""
        dice = random.Random(seed)
        kinds = [*KINDS, *["Pod", "Node"] * 4, *JOBS]
        for kind in dice.choices(kinds, k=count):
            made = dice.choice(DRAWN)(kind, dice.randrange(2**40))
            made["metadata"]["generation"] = self.version + 1
            if made["kind"] != "PodGroup":
                self.put(made)
            else:
                self._group(made)
            meta = made["metadata"]
            self.shown[made["kind"], meta.get("namespace", ""), meta["name"]] = meta["uid"]

    def _group(self, made):
        """Show a group to the collection of its API: all are called the same."""
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        for groups in (self.store.groups, *self.store.podgroups.others.values()):
            if groups.api is not None and groups.api.api_version == made["apiVersion"]:
                groups.kept.apply(made)

    def cycle(self, chosen):
        """Return what a cycle sees, and what it decides by that policy."""
        inputs = evaluated(self.gangs, self.settings, NOW)
        queues, columns = list(self.store.queues.values()), self.store.columns
        moves = () if "defragment" in chosen.actions else None
        snapshot = columns.snapshot(inputs, queues, NOW, moves)
        decisions = cycle.schedule(snapshot, chosen)
        saw = recording.take(columns, inputs, queues, self.settings.rules, snapshot, chosen)
        return inputs, decisions, saw

    def overfull(self, inputs, decisions):
        """Yield (node, resource) of which more was given than there is, in numbers of any size."""
        nodes, uses, _ = self.store.columns.contents()
        there = {node.name: dict(node.allocatable) for node in nodes}
        used, given = {name: Counter() for name in there}, {name: set() for name in there}
        for use in uses:
            if use.node in there:
                used[use.node].update(dict(use.requests))
                if use.whole:
                    used[use.node].update(dict.fromkeys(("cpu", "memory", "pods"), 10**60))
        roles = {(g.key, i, r.role): r.shape for g in inputs for i, r in enumerate(g.roles)}
        for decision in decisions:
            for placed in decision.placements:
                shapes = [
                    s
                    for (k, _, role), s in roles.items()
                    if (k, role) == (decision.gang, placed.role)
                ]
                if len(shapes) == 1:
                    used[placed.node].update(dict(shapes[0].requests))
                    given[placed.node] |= dict(shapes[0].requests).keys()
        for name, resources in given.items():
            for resource in resources:
                if used[name][resource] > there[name].get(resource, 0):
                    yield name, resource


@contextlib.contextmanager
def unforeseen():
    """Yield what is logged with a traceback meanwhile: what no parser has foreseen."""
    found, logger, handler = [], logging.getLogger("muster"), logging.Handler()
    handler.emit = lambda record: found.append(str(record.exc_info)) if record.exc_info else None
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)


@given(seed=SEEDS)
@CLUSTERS
def test_every_document_is_read(seed):
    """By a parser that foresees it; what it cannot understand is told on that object alone."""
    dice, cluster = random.Random(seed), Cluster()
    for kind in dice.choices(KINDS, k=BATCH):
        made = dice.choice(DRAWN)(kind, dice.randrange(2**40))
        with unforeseen() as found:
            if made["kind"] == "PodGroup":
                cluster._group(made)
            else:
                cluster.put(made)
        assert not found, (kind, found, made)
    for job in cluster.store.jobs:
        assert job.name
    counted = cluster.store.unreadable()
    assert sum(counted.values()) <= len(cluster.told)
    assert {about["kind"] for about, _ in cluster.told} >= set(counted)
    assert all(about["apiVersion"] and why.reason for about, why in cluster.told)


@given(seed=SEEDS)
@CLUSTERS
def test_a_cycle_and_a_pass_go_on(seed):
    """Whatever there is, nobody gets more than there is, and the quiet job has its room."""
    cluster = Cluster()
    for part in range(3):
        cluster.show(seed + part, BATCH // 3)
        for chosen in (PLAIN, policy.DEFAULT, ALL):
            inputs, decisions, saw = cluster.cycle(chosen)
            assert not list(cluster.overfull(inputs, decisions)), chosen.actions
        _, decisions, saw = cluster.cycle(PLAIN)
        placed = {d.gang: {p.node for p in d.placements} for d in decisions}
        elsewhere = [g for g, nodes in placed.items() if "quiet-node" in nodes and g != QUIET]
        assert placed[QUIET] == {"quiet-node"} or elsewhere, (placed, saw)
        reconcile_all(cluster.store, NOW)
    again, _ = recording.load(recording.dump(saw, decisions))
    assert recording.plain(again.decide()) == recording.plain(decisions)


@given(seed=SEEDS)
@CLUSTERS
def test_what_goes_leaves_nothing_behind(seed):
    """Sums that were beyond all bounds are back at what is there."""
    cluster = Cluster()
    cluster.show(seed)
    cluster.cycle(PLAIN)
    for (kind, namespace, name), uid in cluster.shown.items():
        cluster.store.gone(kind, namespace, name, uid)
    for groups in (cluster.store.groups, *cluster.store.podgroups.others.values()):
        for namespace, name in list(groups.kept.objects):
            groups.kept.discard(namespace, name, f"uid-PodGroup-{name}")
    inputs, decisions, _ = cluster.cycle(PLAIN)
    (decision,) = decisions
    assert {p.node for p in decision.placements} == {"quiet-node"}
    nodes = cluster.store.columns.snapshot(inputs, [], NOW).nodes
    assert nodes.names == ("quiet-node",)
    assert not nodes.used.any()
    assert not nodes.load.any()
