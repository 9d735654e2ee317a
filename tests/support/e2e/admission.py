# SPDX-License-Identifier: Apache-2.0
"""Admission policies of a cluster for as long as a story needs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from support.e2e.harness import PATIENCE, Api, Json


@contextmanager
def there(api: Api, *documents: Json) -> Iterator[None]:
    """Have objects of the whole cluster for a while."""
    made: list[Json] = []
    try:
        for document in documents:
            api.create(document)
            made.append(document)
        yield
    finally:
        for document in reversed(made):
            api.delete(document["kind"], document["metadata"]["name"])


def policy(api: Api, kind: str, spec: Json) -> list[Json]:
    """Return a policy for the pods of this namespace, and its binding."""
    version, metadata = "admissionregistration.k8s.io/v1", {"name": f"story-{api.namespace}"}
    created = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}}
    matched = {"resourceRules": [{**created, "resources": ["pods"]}], "namespaceSelector": here}
    bound: Json = {"policyName": metadata["name"]}
    if kind == "ValidatingAdmissionPolicy":
        bound["validationActions"] = ["Deny"]
    common = {"apiVersion": version, "metadata": metadata}
    return [
        {**common, "kind": kind, "spec": {"matchConstraints": matched, **spec}},
        {**common, "kind": f"{kind}Binding", "spec": bound},
    ]


def mutation(expression: str) -> Json:
    """Return the spec of a policy that applies a JSONPatch to each pod."""
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    return {"failurePolicy": "Fail", "reinvocationPolicy": "Never", "mutations": [patch]}


def tried(api: Api, **spec: str) -> Json:
    """Return a pod as it would be stored. Raises Refused."""
    container = {"name": "c", "image": "i"}
    pod: Json = {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] = {"name": "tried", "annotations": {"story": "tried"}}
    path = f"{api.path('Pod')}?dryRun=All"
    return api.send("POST", path, {**pod, "spec": {"containers": [container], **spec}})


def until(answer: Callable[[], bool]) -> None:
    """Wait until the API server applies a policy, which no event reports."""
    end = time.monotonic() + PATIENCE
    while not answer():
        assert time.monotonic() < end, "the policy has no effect"
        time.sleep(0.1)


@contextmanager
def rejecting(api: Api, nodes: Collection[str], reason: str) -> Iterator[None]:
    """Have simulated kubelets that reject the pods of this namespace, which have annotations."""
    key = "local.muster.kubeflow.org/refuse"
    path = f"/metadata/annotations/{key.replace('/', '~1')}"
    spec = mutation(f'[JSONPatch{{op: "add", path: "{path}", value: "{reason}"}}]')
    named = " || ".join(f'object.spec.nodeName == "{node}"' for node in nodes)
    condition = f"has(object.spec.nodeName) && ({named})"
    spec["matchConditions"] = [{"name": "node", "expression": condition}]
    node = min(nodes)
    with there(api, *policy(api, "MutatingAdmissionPolicy", spec)):
        until(lambda: key in tried(api, nodeName=node)["metadata"]["annotations"])
        yield
