# SPDX-License-Identifier: Apache-2.0
"""Whatever the API server takes from one namespace, the operator goes on with the work of others.

The documents are those of `tests/support/chaos/random_documents.py`.
What the server refuses concerns nobody.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from support.chaos import random_documents
from support.e2e.harness import Api, Json, Operator, Refused, add_nodes, own_namespace, tfjob

pytestmark = pytest.mark.e2e

SEED = 20_260
BOUNDS = ("LimitRange", "ResourceQuota")
COUNT = 120
PATIENCE = 20.0
"""Seconds that a job may take longer than it took before."""
KINDS = (
    *("Pod", "Service", "ConfigMap", "ResourceQuota", "LimitRange", "Job", "PodGroup", "Queue"),
    *("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "PriorityClass", "CSINode"),
    "RuntimeClass",
    *("PodDisruptionBudget", "HorizontalPodAutoscaler", *random_documents.JOBS),
)
ODD = [
    {"kind": "Queue", "spec": {"capability": {"cpu": -1}}},
    {"kind": "Queue", "spec": {"capability": {"cpu": "1e10000"}, "weight": -5}},
    {
        "kind": "PersistentVolumeClaim",
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1000e999"}},
        },
    },
    {
        "kind": "Pod",
        "spec": {
            "nodeName": "ghost",
            "containers": [
                {"name": "a", "image": "i", "resources": {"requests": {"cpu": "1e1002"}}}
            ],
        },
    },
    {
        "kind": "LimitRange",
        "spec": {"limits": [{"type": "Pod", "min": {"cpu": "-1"}}]},
    },
    {
        "kind": "PodGroup",
        "spec": {"minMember": 1, "minResources": {"cpu": -1}},
    },
]
"""Those that are known to be stored and hard to read."""
ODDEST = {("Queue", "odd-0")}


def drawn(api: Api) -> Iterator[Json]:
    """Yield documents, each under a name of its own; jobs stay small."""
    dice = random.Random(SEED)
    drawn = [
        random_documents.mutated(dice.choice(KINDS), dice.randrange(2**40)) for _ in range(COUNT)
    ]
    for i, odd in enumerate(ODD):
        version = random_documents.BUILT_IN.get(
            odd["kind"], ("scheduling.incubator.k8s.io/v1alpha1",)
        )[0]
        metadata = {"name": f"odd-{i}", "namespace": api.namespace}
        yield {"apiVersion": version, "metadata": metadata, **odd}
    # What bounds the namespace comes last, or little else would be taken.
    for i, made in enumerate(sorted(drawn, key=lambda one: one["kind"] in BOUNDS)):
        if random_documents.ENDLESS in json.dumps(made):
            continue
        made["metadata"] |= {"name": f"drawn-{i}", "namespace": api.namespace}
        for key in ("uid", "resourceVersion", "deletionTimestamp", "ownerReferences"):
            made["metadata"].pop(key, None)
        for field, value in made.get("spec", {}).items():
            for role in value.values() if field.endswith("ReplicaSpecs") else ():
                role["replicas"] = min(role.get("replicas", 1), 2)
        yield made


def store(api: Api) -> list[tuple[str, str]]:
    """Have everything stored that the server takes; return kinds and names."""
    kept, outcome = [], Counter[tuple[str, bool]]()
    for made in drawn(api):
        kind = made["kind"]
        try:
            api.create(made)
        except Refused:
            outcome[kind, False] += 1
        else:
            outcome[kind, True] += 1
            kept.append((kind, made["metadata"]["name"]))
    print(sorted(outcome.items()))
    return kept


def clear(api: Api, kept: list[tuple[str, str]]) -> None:
    """Delete what was stored, pods at once: nobody else would."""
    for kind, name in kept:
        try:
            api.delete(kind, name, grace=0 if kind == "Pod" else None)
        except Refused as error:
            assert error.code == 404, error


def run(api: Api, name: str) -> float:
    """Run a job to its end; return the seconds that this took."""
    started = time.monotonic()
    api.create(tfjob(name, run="0", workers=2, resources={"cpu": "100m"}))
    api.wait_condition(name, "Succeeded")
    return time.monotonic() - started


def test_what_one_stores_does_not_slow_the_others(api: Api, operator: Operator) -> None:
    """A victim's jobs end as they did before, and the process is the same one."""
    add_nodes(api, {"cpu": "8"}, prefix="calm")
    assert operator.process is not None
    before = operator.process.pid
    with own_namespace(api.cluster, "victim") as victim:
        usual = run(victim, "before")
        kept = store(api)
        assert len(kept) > COUNT / 3
        try:
            beside = [run(victim, f"beside-{i}") for i in range(3)]
        finally:
            clear(api, kept)
        print(usual, beside)
        assert max(beside) < usual + PATIENCE
        assert operator.running
        assert operator.process.pid == before
        assert operator.readiness() == "ok"
        told = [
            e
            for e in Api(api.cluster, "default").events("Unreadable")
            if "negative" in e["message"]
        ]
        assert {e["involvedObject"]["kind"] for e in told} >= {"Queue"}
        run(victim, "after")
