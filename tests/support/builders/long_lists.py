# SPDX-License-Identifier: Apache-2.0
"""Long lists of a pod template: each field that holds as many items as its author likes."""

KEY = "example.com/k"
TOPOLOGY_KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")


def labels(count):
    """Return so many labels."""
    return {f"{KEY}-{i}": f"v{i}" for i in range(count)}


def expressions(count, operator="In"):
    """Return so many requirements on labels."""
    return [{"key": f"{KEY}-{i}", "operator": operator, "values": ["a"]} for i in range(count)]


def term(i, **more):
    """Return a term about other pods."""
    selector = {"matchLabels": {f"{KEY}-{i}": f"v{i}"}}
    return {"topologyKey": TOPOLOGY_KEYS[i % 2], "labelSelector": selector, **more}


def spec(**fields):
    """Return how a pod's spec gets such fields."""
    return lambda template: template["spec"].update(fields)


def affinity(kind, required=None, preferred=None):
    """Return how a template gets an affinity of that kind beside its other affinities."""
    found = {
        **({f"required{DURING}": required} if required else {}),
        **({f"preferred{DURING}": preferred} if preferred else {}),
    }

    def change(template):
        affinity = template["spec"].setdefault("affinity", {})
        affinity[kind] = {**affinity.get(kind, {}), **found}

    return change


DURING = "DuringSchedulingIgnoredDuringExecution"


def on_nodes(*terms):
    """Return how it gets an affinity to nodes by these terms."""
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return affinity("nodeAffinity", required)


def of_container(**fields):
    """Return how its container gets such fields."""
    return lambda template: template["spec"]["containers"][0].update(fields)


def meta(**fields):
    """Return how a template gets such metadata."""
    return lambda template: template["metadata"].update(fields)


def both(*changes):
    """Return all of these changes as one."""

    def change(template):
        for one in changes:
            one(template)

    return change


def _even(i, **more):
    where = {"topologyKey": TOPOLOGY_KEYS[0], **more}
    return term(i, maxSkew=1, whenUnsatisfiable="DoNotSchedule", **where)


LISTS = {
    "tolerations": lambda n: spec(
        tolerations=[{"key": f"k{i}", "operator": "Equal", "value": "v"} for i in range(n)]
    ),
    "selector": lambda n: spec(nodeSelector=labels(n)),
    "terms of nodes": lambda n: on_nodes(*[expressions(1)] * n),
    "expressions on nodes": lambda n: on_nodes(expressions(n, "NotIn")),
    "values of nodes": lambda n: on_nodes(
        [{"key": "zone", "operator": "NotIn", "values": [f"z{i}" for i in range(n)]}]
    ),
    "preferred nodes": lambda n: affinity(
        "nodeAffinity",
        None,
        [{"weight": 1, "preference": {"matchExpressions": [e]}} for e in expressions(n)],
    ),
    "pods to be near": lambda n: affinity("podAffinity", [term(i) for i in range(n)]),
    "pods to keep away from": lambda n: affinity("podAntiAffinity", [term(i) for i in range(n)]),
    "pods to be fond of": lambda n: affinity(
        "podAffinity", None, [{"weight": 1, "podAffinityTerm": term(i)} for i in range(n)]
    ),
    "pods to be averse to": lambda n: affinity(
        "podAntiAffinity", None, [{"weight": 1, "podAffinityTerm": term(i)} for i in range(n)]
    ),
    "namespaces of a term": lambda n: affinity(
        "podAntiAffinity", [term(0, namespaces=[f"n{i}" for i in range(n)])]
    ),
    "expressions on pods": lambda n: affinity(
        "podAntiAffinity", [{**term(0), "labelSelector": {"matchExpressions": expressions(n)}}]
    ),
    "label keys": lambda n: both(
        meta(labels=labels(n)),
        affinity("podAntiAffinity", [term(0, matchLabelKeys=list(labels(n)))]),
    ),
    "terms and labels": lambda n: both(
        meta(labels=labels(n)), affinity("podAntiAffinity", [term(i) for i in range(n)])
    ),
    "spread": lambda n: spec(topologySpreadConstraints=[_even(i) for i in range(n)]),
    "spread over zones": lambda n: spec(
        topologySpreadConstraints=[_even(0, topologyKey=f"z{i}") for i in range(n)]
    ),
    "claims": lambda n: spec(
        volumes=[
            {"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(n)
        ]
    ),
    "scratch": lambda n: spec(
        volumes=[{"name": f"v{i}", "ephemeral": {"volumeClaimTemplate": CLAIM}} for i in range(n)]
    ),
    "folders": lambda n: both(
        spec(volumes=[{"name": f"v{i}", "emptyDir": {}} for i in range(n)]),
        of_container(volumeMounts=[{"name": f"v{i}", "mountPath": f"/{i}"} for i in range(n)]),
    ),
    "resource claims": lambda n: spec(resourceClaims=[{"name": f"r{i}"} for i in range(n)]),
    "resources": lambda n: of_container(
        resources={"requests": {f"{KEY}{i}": 1 for i in range(n)}}
    ),
    "first containers": lambda n: spec(
        initContainers=[{"name": f"i{i}", "image": "i"} for i in range(n)]
    ),
    "containers": lambda n: (
        lambda template: template["spec"]["containers"].extend(
            {"name": f"i{i}", "image": "i"} for i in range(n)
        )
    ),
    "env": lambda n: of_container(
        env=[{"name": f"E{i}", "value": f"$(E{i - 1})$(E{i - 2})"} for i in range(n)]
    ),
    "ports": lambda n: of_container(
        ports=[{"name": f"p{i}", "containerPort": i + 1} for i in range(n)]
    ),
    "host ports": lambda n: of_container(
        ports=[{"containerPort": i + 1, "hostPort": i + 1} for i in range(n)]
    ),
    "gates": lambda n: spec(schedulingGates=[{"name": f"{KEY}-{i}"} for i in range(n)]),
    "labels": lambda n: meta(labels=labels(n)),
    "annotations": lambda n: meta(annotations=labels(n)),
    "sidecars": lambda n: spec(
        initContainers=[
            {
                "name": "sidecar",
                "image": "i",
                "restartPolicy": "Always",
                "resources": {"requests": {f"{KEY}{i}": 1 for i in range(n)}},
            },
            *({"name": f"i{i}", "image": "i"} for i in range(n)),
        ]
    ),
    "aliases": lambda n: spec(
        hostAliases=[{"ip": f"10.0.{i >> 8}.{i & 255}", "hostnames": ["h"]} for i in range(n)]
    ),
}
"""Name -> how a template gets such a list of that length."""
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
