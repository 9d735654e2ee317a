# SPDX-License-Identifier: Apache-2.0
"""Whether a pod may go to a node: our word against that of kube-scheduler's own filters."""

import json
import os
import random
import subprocess
from collections import defaultdict

import numpy as np
import pytest

from muster.cluster import nodes, pods
from muster.cluster.state import ClusterColumns
from muster.cluster.tasks import RoleInput
from muster.local import binaries
from muster.scheduler import policy
from muster.scheduler.ask import Ask
from muster.scheduler.session import Session
from support.builders.scheduler import STORED, make_gang, make_queue

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
APPS = ({}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "1"}, {"app": "b", "tier": "2"})
SPACES = {"team": {"kind": "prod"}, "other": {"kind": "test"}, "third": {}}
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
KEYS = ("zone", "rack", "kubernetes.io/hostname")
ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


def question(draw, feature):
    """Return a cluster of four to six nodes and a pod, as JSON."""
    asked = {
        "nodes": [_node(draw, i) for i in range(draw.randint(4, 6))],
        "pods": [],
        "namespaces": [
            {"metadata": {"name": name, "labels": labels}} for name, labels in SPACES.items()
        ],
    }
    for i in range(draw.randint(0, 8)):
        pod = _pod(draw, f"p{i}")
        pod["spec"]["nodeName"] = draw.choice(asked["nodes"])["metadata"]["name"]
        if draw.random() < 0.15:
            pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
        asked["pods"].append(pod)
    asked["pod"] = _pod(draw, "wanted")
    FEATURES[feature](draw, asked)
    return asked


def _node(draw, index):
    name = f"n{index}"
    labels = {"kubernetes.io/hostname": name} if draw.random() < 0.95 else {}
    for key, values in (("zone", "abc"), ("rack", "rstu"), ("size", ("1", "5", "10", "x"))):
        if draw.random() < 0.85:
            labels[key] = draw.choice(values)
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "20"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(draw, name):
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "namespace": draw.choice(("team", "team", "other", "third")),
            "labels": draw.choice(APPS),
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
    }


def affinity(draw, asked):
    """Ask for labels and names of nodes."""
    spec = asked["pod"]["spec"]
    if draw.random() < 0.4:
        spec["nodeSelector"] = {draw.choice(("zone", "rack")): draw.choice("abrs")}
    if draw.random() < 0.8:
        terms = [_node_term(draw) for _ in range(draw.randint(1, 3))]
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def _node_term(draw):
    term = {}
    if draw.random() < 0.8:
        term["matchExpressions"] = [_expression(draw) for _ in range(draw.randint(0, 2))]
    if draw.random() < 0.3:
        values = [f"n{draw.randint(0, 6)}"]
        operator = draw.choice(("In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": values}]
    return term


def _expression(draw):
    if draw.random() < 0.3:
        values = [draw.choice(("0", "4", "5", "7", "-1"))]
        return {"key": "size", "operator": draw.choice(("Gt", "Lt")), "values": values}
    key, operator = draw.choice(("zone", "rack", "none")), draw.choice(OPERATORS)
    values = draw.sample("abcrst", draw.randint(1, 3)) if operator in ("In", "NotIn") else None
    return {"key": key, "operator": operator} | ({"values": values} if values else {})


def taints(draw, asked):
    """Taint and cordon nodes, and let the pod tolerate some of it."""
    for node in asked["nodes"]:
        node["spec"]["unschedulable"] = draw.random() < 0.2
        node["spec"]["taints"] = [_taint(draw) for _ in range(draw.randint(0, 2))]
    asked["pod"]["spec"]["tolerations"] = [_toleration(draw) for _ in range(draw.randint(0, 3))]
    if draw.random() < 0.1:
        asked["pod"]["spec"]["nodeName"] = draw.choice(("n0", "n1"))


def _taint(draw):
    effect = draw.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
    return {"key": draw.choice("kl"), "value": draw.choice(("", "v", "w")), "effect": effect}


def _toleration(draw):
    made = {"operator": draw.choice(("Exists", "Equal"))}
    keys = ("k", "l", "node.kubernetes.io/unschedulable")
    if made["operator"] == "Equal" or draw.random() < 0.8:
        made["key"] = draw.choice(keys)
    if made["operator"] == "Equal":
        made["value"] = draw.choice(("", "v", "w"))
    if draw.random() < 0.6:
        made["effect"] = draw.choice(("NoSchedule", "NoExecute"))
    return made


def ports(draw, asked):
    """Take host ports, by containers and sidecars."""
    for pod in (*asked["pods"], asked["pod"]):
        for container in (*pod["spec"]["containers"], *_sidecars(draw, pod["spec"])):
            container["ports"] = [_port(draw) for _ in range(draw.randint(0, 2))]


def _sidecars(draw, spec):
    if draw.random() < 0.3:
        policy = {"restartPolicy": "Always"} if draw.random() < 0.7 else {}
        spec["initContainers"] = [{"name": "init", **policy}]
    return spec.get("initContainers", ())


def _port(draw):
    made = {"containerPort": 80}
    if draw.random() < 0.8:
        made["hostPort"] = draw.choice((80, 81))
    if draw.random() < 0.4:
        made["hostIP"] = draw.choice(("", "0.0.0.0", "10.0.0.1", "10.0.0.2"))
    if draw.random() < 0.6:
        made["protocol"] = draw.choice(("TCP", "UDP"))
    return made


def resources(draw, asked):
    """Ask for resources by all the ways in which a pod can."""
    for node in asked["nodes"]:
        node["status"]["allocatable"] = {
            "cpu": draw.choice(("1", "2500m", "4")),
            "memory": draw.choice(("1Gi", "2G", "4000Mi")),
            "pods": draw.choice(("1", "2", "20")),
            **({"example.com/gpu": draw.choice("012")} if draw.random() < 0.7 else {}),
            **({"ephemeral-storage": "1Gi"} if draw.random() < 0.7 else {}),
        }
    for pod in (*asked["pods"], asked["pod"]):
        spec = pod["spec"]
        spec["containers"] = [_container(draw, f"c{i}") for i in range(draw.randint(1, 2))]
        spec["initContainers"] = [_initial(draw, f"i{i}") for i in range(draw.randint(0, 3))]
        if draw.random() < 0.3:
            spec["overhead"] = {"cpu": draw.choice(("100m", "500m")), "memory": "64Mi"}
        if draw.random() < 0.15:
            spec["resources"] = {"requests": _amounts(draw, ("cpu", "memory"))}
        elif pod is not asked["pod"] and draw.random() < 0.4:
            pod["status"] = _resizing(draw, spec)


def _resizing(draw, spec):
    """Leave the pod one container, and return its status while that is being resized."""
    spec |= {"containers": spec["containers"][:1], "initContainers": []}
    asked = spec["containers"][0]["resources"].get("requests", {})
    held, granted = ({name: draw.choice(("0", "1", "2")) for name in asked} for _ in range(2))
    main = {"name": "c0", "resources": {"requests": held}, "allocatedResources": granted}
    reason = draw.choice(("Deferred", "Infeasible"))
    made = {"conditions": [{"type": "PodResizePending", "reason": reason}]}
    sums = (
        {"resources": main["resources"], "allocatedResources": granted}
        if draw.random() < 0.5
        else {}
    )
    return made | {"containerStatuses": [main]} | sums


def _container(draw, name):
    kinds = ("cpu", "memory", "example.com/gpu", "ephemeral-storage")
    made = {}
    if draw.random() < 0.8:
        made["requests"] = _amounts(draw, kinds)
    return {"name": name, "resources": made}


def _initial(draw, name):
    policy = {"restartPolicy": "Always"} if draw.random() < 0.5 else {}
    return _container(draw, name) | policy


def _amounts(draw, kinds):
    choices = {
        "cpu": ("0", "100m", "500m", "1", "2", "0.3"),
        "memory": ("0", "100Mi", "500M", "1Gi", "1e9", "128974848"),
        "example.com/gpu": ("0", "1", "2"),
        "ephemeral-storage": ("100Mi", "600Mi"),
    }
    return {kind: draw.choice(choices[kind]) for kind in kinds if draw.random() < 0.4}


def spread(draw, asked):
    """Spread over labels, by every field that a constraint has."""
    affinity(draw, asked)
    taints(draw, asked)
    asked["pod"]["spec"].pop("nodeName", None)
    for node in asked["nodes"]:
        node["spec"]["unschedulable"] = False
    constraints = [_constraint(draw, key) for key in draw.sample(KEYS, draw.randint(1, 2))]
    asked["pod"]["spec"]["topologySpreadConstraints"] = constraints


def _constraint(draw, key):
    made = {
        "topologyKey": key,
        "maxSkew": draw.randint(1, 2),
        "whenUnsatisfiable": draw.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
    }
    if draw.random() < 0.9:
        made["labelSelector"] = selector(draw)
        if draw.random() < 0.3:
            made["matchLabelKeys"] = draw.sample(("tier", "none"), draw.randint(1, 2))
    if made["whenUnsatisfiable"] == "DoNotSchedule" and draw.random() < 0.3:
        made["minDomains"] = draw.randint(1, 5)
    for rule in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if draw.random() < 0.5:
            made[rule] = draw.choice(("Honor", "Ignore"))
    return made


def selector(draw):
    """Return a label selector, at times an empty one."""
    made = {}
    if draw.random() < 0.6:
        made["matchLabels"] = {"app": draw.choice("ab")}
    if draw.random() < 0.4:
        operator = draw.choice(OPERATORS)
        values = {"values": ["1"]} if operator in ("In", "NotIn") else {}
        made["matchExpressions"] = [{"key": "tier", "operator": operator, **values}]
    return made


def neighbours(draw, asked):
    """Let the pod, and those on nodes, want others near or far."""
    for pod in (*asked["pods"], asked["pod"]):
        kinds = [kind for kind in ("podAffinity", "podAntiAffinity") if draw.random() < 0.35]
        if pod is asked["pod"] and not kinds:
            kinds = [draw.choice(("podAffinity", "podAntiAffinity"))]
        if kinds:
            pod["spec"]["affinity"] = {
                kind: {REQUIRED: [_pod_term(draw) for _ in range(draw.randint(1, 2))]}
                for kind in kinds
            }


def _pod_term(draw):
    made = {"topologyKey": draw.choice(KEYS)}
    if draw.random() < 0.9:
        made["labelSelector"] = selector(draw)
    if draw.random() < 0.4:
        made["namespaces"] = draw.sample(sorted(SPACES), draw.randint(1, 2))
    if draw.random() < 0.3:
        labels = draw.choice(({}, {"kind": "prod"}, {"kind": "test"}))
        made["namespaceSelector"] = {"matchLabels": labels} if labels else {}
    return made


def volumes(draw, asked):
    """Mount claims that are bound, wait, are missing, or may be used once."""
    for node in asked["nodes"]:
        labels = node["metadata"]["labels"]
        for key in ZONES:
            if draw.random() < 0.5:
                labels[key] = draw.choice("abc")
    asked["classes"] = [_class(draw, name) for name in ("now", "later", "static")]
    asked["claims"], asked["volumes"] = [], []
    for name in ("c0", "c1", "c2", "c3"):
        claim = _claim(draw, name)
        asked["claims"].append(claim)
        if claim["spec"].get("volumeName") and draw.random() < 0.95:
            asked["volumes"].append(_volume(draw, claim))
    asked["volumes"] += [_free_volume(draw, i) for i in range(draw.randint(0, 8))]
    for pod in (*asked["pods"], asked["pod"]):
        pod["metadata"]["namespace"] = "team"
        least = 1 if pod is asked["pod"] else 0
        names = draw.sample(("c0", "c1", "c2", "c3", "none")[: draw.choice((4, 4, 5))], least)
        if draw.random() < 0.3:
            names.append(draw.choice(("c0", "c1")))
        if pod is not asked["pod"]:
            # A pod is not on a node before its claims have their volumes.
            waiting = {c["metadata"]["name"] for c in asked["claims"] if _waits(c)}
            names = [name for name in names if name not in waiting]
        pod["spec"]["volumes"] = [
            {"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}}
            for i, name in enumerate(dict.fromkeys(names))
        ]

    asked["capacities"] = [_capacity(draw, i) for i in range(draw.choice((0, 0, 3)))]
    tracked = {"storageCapacity": bool(asked["capacities"]) and draw.random() < 0.8}
    asked["drivers"] = [{"metadata": {"name": "later.example.com"}, "spec": tracked}]


def _capacity(draw, index):
    """Return how much storage is left for one of the classes on some nodes."""
    made = {"metadata": {"name": f"left-{index}", "namespace": "storage"}}
    made |= {"storageClassName": "later", "capacity": draw.choice(("1Gi", "2Gi", "0"))}
    if draw.random() < 0.2:
        made["maximumVolumeSize"] = "3Gi"
    if draw.random() < 0.9:
        on = {"zone": draw.choice("abc")} if draw.random() < 0.8 else {}
        made["nodeTopology"] = {"matchLabels": on}
    return made


def _waits(claim):
    """Say whether the claim has to wait for its first consumer."""
    return "volumeName" not in claim["spec"] and claim["spec"]["storageClassName"] != "now"


def _class(draw, name):
    makes = name != "static" or draw.random() < 0.2
    made = {
        "metadata": {"name": name},
        "provisioner": f"{name}.example.com" if makes else "kubernetes.io/no-provisioner",
        "volumeBindingMode": "Immediate" if name == "now" else "WaitForFirstConsumer",
    }
    if draw.random() < 0.6:
        made["allowedTopologies"] = [
            {
                "matchLabelExpressions": [
                    {"key": draw.choice(KEYS[:2]), "values": draw.sample("abcrst", 3)}
                    for _ in range(draw.randint(1, 2))
                ]
            }
            for _ in range(draw.randint(1, 2))
        ]
    return made


def _claim(draw, name):
    state = draw.choice(("bound", "bound", "bound", "waits", "waits", "prebound", "odd"))
    annotations, status = {}, {"phase": "Bound" if state == "bound" else "Pending"}
    modes = ["ReadWriteOncePod" if draw.random() < 0.2 else "ReadWriteMany"]
    waits = draw.choice(("later", "static", "static")) if state == "waits" else "now"
    spec = {"accessModes": modes, "storageClassName": waits}
    spec["resources"] = {"requests": {"storage": draw.choice(("1Gi", "1Gi", "2Gi", "3Gi"))}}
    if state == "waits" and draw.random() < 0.2:
        spec["selector"] = {"matchLabels": {"tier": "gold"}}
    if state == "waits" and draw.random() < 0.1:
        spec["volumeMode"] = "Block"
    if state in ("bound", "prebound"):
        spec["volumeName"] = f"pv-{name}"
    if state == "bound":
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    if state == "waits" and draw.random() < 0.3:
        annotations["volume.kubernetes.io/selected-node"] = draw.choice(("n0", "n1", "n2"))
    metadata = {"name": name, "namespace": "team", "uid": name, "annotations": annotations}
    if state == "odd":
        choice = draw.choice(("lost", "deleting", "no class", "unknown class"))
        if choice == "lost":
            status["phase"] = "Lost"
        elif choice == "deleting":
            metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z"
        else:
            spec["storageClassName"] = "" if choice == "no class" else "unknown"
    return {"metadata": metadata, "spec": spec, "status": status}


def _free_volume(draw, index):
    """Return a volume that is nobody's yet, or is kept for a claim."""
    label = draw.choice(KEYS)
    values = {"zone": "abc", "rack": "rstu"}.get(label) or [f"n{i}" for i in range(6)]
    named = {"key": label, "operator": "In", "values": draw.sample(values, draw.randint(1, 3))}
    spec = {
        # Of volumes that suit equally well kube-scheduler takes any.
        "capacity": {"storage": f"{draw.randint(1, 4) * 1024 + index}Mi"},
        "accessModes": draw.choice((["ReadWriteMany"], ["ReadWriteMany", "ReadWriteOncePod"])),
        "storageClassName": draw.choice(("static", "static", "later")),
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [named]}]}},
    }
    if draw.random() < 0.1:
        spec["volumeMode"] = "Block"
    if draw.random() < 0.2:
        spec["claimRef"] = {"namespace": "team", "name": f"c{index}"}
        if draw.random() < 0.3:
            spec["claimRef"]["uid"] = draw.choice(("c0", "before"))
    metadata = {"name": f"free-{index}", "labels": draw.choice(({}, {"tier": "gold"}))}
    if draw.random() < 0.05:
        metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    phase = "Available" if draw.random() < 0.9 else "Released"
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def _volume(draw, claim):
    labels = {}
    if draw.random() < 0.4:
        key = draw.choice(ZONES)
        labels[key] = draw.choice(("a", "b", "a__b"))
    metadata = {"name": claim["spec"]["volumeName"], "labels": labels}
    where = {}
    if draw.random() < 0.6:
        terms = [{"matchExpressions": [_expression(draw)]} for _ in range(draw.randint(1, 2))]
        where["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    reference = {"namespace": "team", "name": claim["metadata"]["name"]}
    return {"metadata": metadata, "spec": {"claimRef": reference, **where}}


DRIVERS = ("disk.example.com", "ebs.csi.aws.com", "pd.csi.storage.gke.io", "other.example.com")
MAKERS = (*DRIVERS, "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/azure-file")


def limits(draw, asked):
    """Mount volumes of several drivers, of which nodes take only few."""
    asked["limits"] = [_limits(draw, node) for node in asked["nodes"] if draw.random() < 0.9]
    asked["classes"] = [
        _maker(draw, name, mode)
        for name, mode in (("now", "Immediate"), ("later", "WaitForFirstConsumer"))
    ]
    asked["claims"], asked["volumes"] = [], []
    for i in range(8):
        name = f"c{i}"
        bound = i == 0 or draw.random() < 0.8
        asked["claims"].append(_counted_claim(draw, name, bound=bound))
        if bound and draw.random() < 0.99:
            asked["volumes"].append(_counted_volume(draw, name))
    for pod in (*asked["pods"], asked["pod"]):
        pod["metadata"]["namespace"] = "team"
        if pod is not asked["pod"]:
            pod["spec"]["nodeName"] = draw.choice(("n0", "n1", "n2"))
        names = draw.sample([f"c{i}" for i in range(8)], draw.randint(1, 4))
        pod["spec"]["volumes"] = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names
        ]
        if draw.random() < 0.3:
            inline = {"driver": DRIVERS[0], "volumeAttributes": {}}
            pod["spec"]["volumes"].append({"name": "inline", "csi": inline})


def scratch(draw, asked):
    """Give pods volumes of their own beside the others; at times the claim is another pod's."""
    limits(draw, asked)
    for pod in (*asked["pods"], asked["pod"]):
        if pod is asked["pod"] or draw.random() < 0.5:
            pod["spec"]["volumes"] = [*pod["spec"]["volumes"][:2], _own_volume(draw, asked, pod)]


def _own_volume(draw, asked, pod):
    """Return a volume whose claim is there in the way of the controller that makes it."""
    name, wanted = pod["metadata"]["name"], pod is asked["pod"]
    bound, lost = draw.random() < 0.5, wanted and draw.random() < 0.1
    made = _counted_claim(draw, f"{name}-own", bound=bound)
    uid = "before" if wanted and draw.random() < 0.1 else pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    if not bound:
        made["spec"]["storageClassName"] = "later"
    if not lost:
        asked["claims"].append(made)
    if bound:
        asked["volumes"].append(_counted_volume(draw, f"{name}-own"))
    template = {"spec": {"storageClassName": made["spec"]["storageClassName"]}}
    return {"name": "own", "ephemeral": {"volumeClaimTemplate": template}}


def _limits(draw, node):
    drivers = []
    for name in DRIVERS[: draw.randint(1, 4)]:
        count = {"allocatable": {"count": draw.randint(1, 3)}} if draw.random() < 0.85 else {}
        drivers.append({"name": name, "nodeID": "i", **count})
    return {"metadata": {"name": node["metadata"]["name"]}, "spec": {"drivers": drivers}}


def _maker(draw, name, mode):
    maker = draw.choice(MAKERS)
    return {"metadata": {"name": name}, "provisioner": maker, "volumeBindingMode": mode}


def _counted_claim(draw, name, *, bound):
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": draw.choice(("now", "later"))}
    if bound:
        spec["volumeName"] = f"pv-{name}"
    elif draw.random() < 0.95:
        spec["storageClassName"] = "later"
    spec["resources"] = {"requests": {"storage": "1Gi"}}
    metadata = {"name": name, "namespace": "team", "uid": name, "annotations": annotations}
    status = {"phase": "Bound" if bound else "Pending"}
    return {"metadata": metadata, "spec": spec, "status": status}


def _counted_volume(draw, name):
    handle = draw.choice((name, name, name, "shared"))
    source = draw.choice(
        (
            *({"csi": {"driver": driver, "volumeHandle": handle}} for driver in DRIVERS[:3]),
            *[{"csi": {"driver": DRIVERS[0], "volumeHandle": handle}}] * 4,
            {"awsElasticBlockStore": {"volumeID": handle}},
            {"gcePersistentDisk": {"pdName": handle}},
            {"nfs": {"server": "nfs.example.com", "path": f"/{name}"}},
        )
    )
    reference = {"namespace": "team", "name": name}
    return {"metadata": {"name": f"pv-{name}"}, "spec": {"claimRef": reference, **source}}


def everything(draw, asked):
    """Change all of it at once."""
    spread(draw, asked)
    ports(draw, asked)
    wanted = asked["pod"]["spec"].get("affinity", {})
    neighbours(draw, asked)
    asked["pod"]["spec"]["affinity"] = {**wanted, **asked["pod"]["spec"].get("affinity", {})}


MADE = (
    affinity,
    taints,
    ports,
    resources,
    spread,
    neighbours,
    volumes,
    limits,
    scratch,
    everything,
)
FEATURES = {make.__name__: make for make in MADE}


PAIRS = int(os.environ.get("MUSTER_ORACLE_PAIRS", "1000"))
"""Of a pod and a node, per feature; `make nightly` asks about ten times as many."""
SEED = int(os.environ.get("MUSTER_ORACLE_SEED", "1"))

pytestmark = [pytest.mark.e2e, pytest.mark.full]


@pytest.fixture(scope="module")
def answered():
    """Return each feature's questions with the answers, if the control plane was built here.

    All are asked at once: the program takes longer to start than to answer.
    """
    program = binaries.build_folder() / "controlplane"
    if not program.exists():
        pytest.skip("the control plane was downloaded, not built: kube-scheduler cannot be asked")
    questions = [(feature, asked) for feature in FEATURES for asked in asked_of(feature)]
    lines = "\n".join(json.dumps(asked) for _, asked in questions)
    done = subprocess.run(
        [program, "oracle"], check=False, input=lines, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = defaultdict(list)
    for (feature, asked), line in zip(questions, done.stdout.splitlines(), strict=True):
        found[feature].append((asked, json.loads(line)))
    return found


def ours(asked):
    """Return node -> whether the pod may go there."""
    columns = ClusterColumns()
    for space in asked["namespaces"]:
        columns.space_changed(space["metadata"]["name"], space["metadata"]["labels"])
    for kind, parse in STORED.items():
        for document in asked.get(kind, ()):
            columns.volumes.changed(None, parse(document))
    for node in asked["nodes"]:
        columns.node_changed(None, nodes.parse_node(node))
    for pod in asked["pods"]:
        columns.pod_changed(None, pods.parse_use(pod))
    role = RoleInput("", shape=pods.shape_of(asked["pod"]), waiting=(0,))
    snapshot = columns.snapshot([make_gang(roles=[role])], [make_queue()], 0.0)
    session = Session(snapshot, policy.DEFAULT.openers())
    tasks = session.gangs[0].tasks[0]
    free = session.fit(Ask(session.gangs[0]), tasks).capacity > 0
    free &= tasks.shape.refusal is None
    allowed = session.room.affinity.open(tasks.pod_set.shape)
    marks = free if allowed is None else free & allowed
    # What is decided must be what is checked again before it is carried out. Terms about other
    # pods are evaluated by the cycle alone.
    again = np.array([columns.fits(name, role.shape) for name in snapshot.nodes.names])
    again &= session.barred(tasks.pod_set.shape)[0] == 0
    assert (marks == (again if allowed is None else again & allowed)).all()
    return dict(zip(snapshot.nodes.names, marks.tolist(), strict=True))


def asked_of(feature):
    """Yield questions with at least PAIRS nodes in all."""
    draw, pairs = random.Random(f"{feature} {SEED}"), 0
    while pairs < PAIRS:
        made = question(draw, feature)
        pairs += len(made["nodes"])
        yield made


@pytest.mark.parametrize("feature", FEATURES)
def test_agrees_with_kube_scheduler(answered, feature):
    """On every pair of a pod and a node; both answers occur often."""
    feasible = total = 0
    for asked, verdicts in answered[feature]:
        theirs = {verdict["node"]: "plugin" not in verdict for verdict in verdicts}
        assert ours(asked) == theirs, json.dumps({"asked": asked, "verdicts": verdicts}, indent=1)
        feasible += sum(theirs.values())
        total += len(theirs)
    assert total >= PAIRS
    assert 0.05 < feasible / total < 0.95
