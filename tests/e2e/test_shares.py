# SPDX-License-Identifier: Apache-2.0
"""Who may use which queue, and what admission makes of pods before there are any."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.e2e.gangs import wait_reason
from support.e2e.harness import (
    PATIENCE,
    Api,
    Json,
    Operator,
    add_nodes,
    node_of,
    tfjob,
    verdict,
)

pytestmark = pytest.mark.e2e


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


def tried(api: Api) -> Json:
    """Return a pod as it would be stored. Raises Refused."""
    container = {"name": "c", "image": "i"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried"}}
    path = f"{api.path('Pod')}?dryRun=All"
    return api.send("POST", path, {**pod, "spec": {"containers": [container]}})


def until(answer: Callable[[], bool]) -> None:
    """Return once the API server goes by a policy, of which nothing tells when that is."""
    end = time.monotonic() + PATIENCE
    while not answer():
        assert time.monotonic() < end, "the policy has no effect"
        time.sleep(0.1)


def test_what_admission_makes_of_pods_before_there_are_any(api: Api, operator: Operator) -> None:
    """A limit range and a policy that changes pods: the first one already has its right place."""
    _, chosen, _ = add_nodes(api, {"cpu": "8"}, {"cpu": "4"}, {"cpu": "8"})
    api.patch("Node", chosen, {"metadata": {"labels": {"story-disk": "ssd"}}})
    limits = {"type": "Container", "defaultRequest": {"cpu": "2"}, "default": {"cpu": "2"}}
    document = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"}}
    api.create({**document, "spec": {"limits": [limits]}})
    patch = '[JSONPatch{op: "add", path: "/spec/nodeSelector", value: {"story-disk": "ssd"}}]'
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}
    spec = {"failurePolicy": "Fail", "reinvocationPolicy": "Never", "mutations": [mutation]}
    since = api.revision("Pod")
    with there(api, *policy(api, "MutatingAdmissionPolicy", spec)):
        until(lambda: "nodeSelector" in tried(api)["spec"])
        api.create(tfjob("bare", workers=2, resources={"memory": "1Mi"}, run="forever"))
        pods = api.wait_pods(2, "Running", "bare")
        assert {node_of(pod) for pod in pods} == {chosen}
        assert {pod["spec"]["nodeSelector"]["story-disk"] for pod in pods} == {"ssd"}
        api.create(tfjob("more", workers=1, resources={"memory": "1Mi"}))
        said = verdict(wait_reason(api, "more", "NotEnoughResources"))
        assert "cpu" in said["message"]
        # Before the policy goes: without it there is a node for the second job too. Its pod may
        # stand there by now, for people and autoscalers to see, but has none.
        pods = api.history("Pod", since)
    placed = [pod for pod in pods if node_of(pod)]
    assert len({pod["metadata"]["uid"] for pod in placed}) == 2
    assert {pod["metadata"]["name"] for pod in placed} == {"bare-worker-0", "bare-worker-1"}
    assert {node_of(pod) for pod in placed} == {chosen}
