# SPDX-License-Identifier: Apache-2.0
"""Small documents with large numbers, alone and in combination.

Each document is a job of which some quantities are as large as the API server stores them, or a
little larger. No document exceeds `MAX_BYTES`. The gangs request more than the free resources of
any test cluster, except for those of two pods.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Final

from support.builders.job_kinds import SORTS
from support.e2e.harness import Json
from support.e2e.kinds import job

MAX_BYTES: Final = 250_000
SIZES: Final = (1, 63, 64, 65, 500, 1500)
REPLICAS: Final = (2, 3_000, 9_999, 10_000, 10_001, 2**31 - 1)
LONG: Final = (63, 64, 253, 254, 5_000)
ZONE: Final = "topology.kubernetes.io/zone"
IGNORED: Final = "IgnoredDuringExecution"

Enlarge = Callable[[Json, Json, random.Random, int], None]
"""Changes a job and the pod template of its workers: the size is the number of items."""


def _selector(chance: random.Random, size: int) -> Json:
    values = [f"v{i}" for i in range(size)]
    if chance.random() < 0.5:
        return {"matchLabels": {f"k{i}": "v" for i in range(size)}}
    return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": values}]}


def _pod_terms(field: str, *, required: bool) -> Enlarge:
    def enlarge(_job: Json, template: Json, chance: random.Random, size: int) -> None:
        keys = ("kubernetes.io/hostname", ZONE)
        terms: list[Json] = [
            {"topologyKey": chance.choice(keys), "labelSelector": _selector(chance, 1)}
            for _ in range(size)
        ]
        when = (
            f"required{'DuringScheduling'}{IGNORED}"
            if required
            else f"preferredDuringScheduling{IGNORED}"
        )
        if not required:
            terms = [{"weight": 1, "podAffinityTerm": term} for term in terms]
        template["spec"].setdefault("affinity", {}).setdefault(field, {})[when] = terms

    return enlarge


def _node_terms(_job: Json, template: Json, chance: random.Random, size: int) -> None:
    operators = ("In", "NotIn", "Exists", "Gt")
    terms = []
    for number in range(size):
        operator = chance.choice(operators)
        values = {"In": ["a", "b"], "NotIn": ["a"], "Exists": [], "Gt": [str(2**62)]}[operator]
        expression = {"key": f"k{number}", "operator": operator, "values": values}
        terms.append({"matchExpressions": [expression]})
    wanted = {f"requiredDuringScheduling{IGNORED}": {"nodeSelectorTerms": terms}}
    template["spec"].setdefault("affinity", {})["nodeAffinity"] = wanted


def _wide_term(_job: Json, template: Json, chance: random.Random, size: int) -> None:
    term = {"topologyKey": ZONE, "labelSelector": _selector(chance, 4 * size)}
    affinity = template["spec"].setdefault("affinity", {})
    affinity["podAffinity"] = {f"requiredDuringScheduling{IGNORED}": [term]}


def _spread(_job: Json, template: Json, chance: random.Random, size: int) -> None:
    template["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": chance.choice((1, 2**31 - 1)),
            "topologyKey": f"example.com/level-{number}",
            "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": chance.choice((1, 2**31 - 1)),
            "labelSelector": _selector(chance, 1),
        }
        for number in range(size)
    ]


def _listed(field: str, item: Callable[[int], Json]) -> Enlarge:
    def enlarge(_job: Json, template: Json, _chance: random.Random, size: int) -> None:
        template["spec"][field] = [item(number) for number in range(2 * size)]

    return enlarge


def _in_container(field: str, item: Callable[[int], Json]) -> Enlarge:
    def enlarge(_job: Json, template: Json, _chance: random.Random, size: int) -> None:
        items = [item(number) for number in range(2 * size)]
        template["spec"]["containers"][0][field] = items

    return enlarge


def _containers(_job: Json, template: Json, _chance: random.Random, size: int) -> None:
    first = template["spec"]["containers"][0]
    template["spec"]["containers"] += [{**first, "name": f"c{i}"} for i in range(size)]


def _resources(_job: Json, template: Json, _chance: random.Random, size: int) -> None:
    requests = {f"example.com/r{i}": "9223372036854775807" for i in range(size)}
    template["spec"]["containers"][0]["resources"] = {"limits": requests}


def _labels(_job: Json, template: Json, _chance: random.Random, size: int) -> None:
    template["metadata"]["labels"] = {f"example.com/l{i}": "v" for i in range(size)}


def _node_selector(_job: Json, template: Json, _chance: random.Random, size: int) -> None:
    template["spec"]["nodeSelector"] = {f"example.com/l{i}": "v" for i in range(size)}


def _numbers(job_: Json, template: Json, chance: random.Random, _size: int) -> None:
    most = 2**31 - 1
    policy = job_["spec"].setdefault("runPolicy", {})
    policy["schedulingPolicy"] = {"minAvailable": chance.choice((1, 2, 5_000, most))}
    policy["backoffLimit"] = most
    policy["activeDeadlineSeconds"] = chance.choice((1, most, 2**63 - 1))
    template["spec"]["terminationGracePeriodSeconds"] = chance.choice((0, most, 2**63 - 1))


def _names(job_: Json, template: Json, chance: random.Random, _size: int) -> None:
    long = "n" * chance.choice(LONG)
    field = chance.choice(("priorityClassName", "schedulerName", "runtimeClassName", "hostname"))
    template["spec"][field] = long
    policy = job_["spec"].setdefault("runPolicy", {})
    policy.setdefault("schedulingPolicy", {})["queue"] = long


DIMENSIONS: Final[Mapping[str, Enlarge]] = {
    "affinity": _pod_terms("podAffinity", required=True),
    "anti-affinity": _pod_terms("podAntiAffinity", required=True),
    "preferred-affinity": _pod_terms("podAffinity", required=False),
    "preferred-anti-affinity": _pod_terms("podAntiAffinity", required=False),
    "node-affinity": _node_terms,
    "selector": _wide_term,
    "spread": _spread,
    "tolerations": _listed("tolerations", lambda i: {"key": f"k{i}", "operator": "Exists"}),
    "pull-secrets": _listed("imagePullSecrets", lambda i: {"name": f"s{i}"}),
    "volumes": _listed("volumes", lambda i: {"name": f"v{i}", "emptyDir": {}}),
    "claims": _listed(
        "volumes", lambda i: {"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}}
    ),
    "gates": _listed("schedulingGates", lambda i: {"name": f"example.com/g{i}"}),
    "env": _in_container("env", lambda i: {"name": f"E{i}", "value": f"$(E{i - 1})$(E{i - 2})"}),
    "ports": _in_container("ports", lambda i: {"name": f"p{i}", "containerPort": i % 65_535 + 1}),
    "containers": _containers,
    "resources": _resources,
    "labels": _labels,
    "node-selector": _node_selector,
    "numbers": _numbers,
    "names": _names,
}


def document(number: int, seed: int) -> tuple[str, Json]:
    """Return the dimensions and the body of one document; equal arguments give equal documents."""
    chance = random.Random(f"{seed}/{number}")
    sort = chance.choice(list(SORTS))
    found = chance.sample(list(DIMENSIONS), chance.choice((0, 1, 1, 2, 3, 5)))
    body = job(sort, f"large-{number}", run="forever", cpu="2")
    worker = next(v for v in body["spec"].values() if isinstance(v, dict) and "Worker" in v)
    worker["Worker"]["replicas"] = replicas = chance.choice(REPLICAS)
    sizes = []
    for name in found:
        size = chance.choice(SIZES)
        before = json.dumps(body)
        DIMENSIONS[name](body, worker["Worker"]["template"], chance, size)
        if len(json.dumps(body)) > MAX_BYTES:
            body = json.loads(before)
            worker = next(
                v for v in body["spec"].values() if isinstance(v, dict) and "Worker" in v
            )
        else:
            sizes.append(f"{name}={size}")
    return f"{number}: {sort} replicas={replicas} {' '.join(sizes)}", body
