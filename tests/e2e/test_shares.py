# SPDX-License-Identifier: Apache-2.0
"""Who may use which queue, and what admission makes of pods before there are any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gangs import wait_reason
from harness import Api, Json, Operator, add_nodes, node_of, tfjob, verdict

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


def test_a_queue_of_some_namespaces(api: Api, operator: Operator) -> None:
    """Others wait and are told; a label on their namespace lets them in at once."""
    add_nodes(api, {"cpu": "4"})
    version = "scheduling.incubator.k8s.io/v1alpha1"
    queue = {"apiVersion": version, "kind": "Queue", "metadata": {"name": "story-research"}}
    spec = {"namespaceSelector": {"matchLabels": {"story-team": "research"}}}
    with there(api, {**queue, "spec": {**spec, "reservationLimits": {"maxSeconds": 600}}}):
        api.create(tfjob("early", run="1", schedulingPolicy={"queue": "story-research"}))
        said = verdict(wait_reason(api, "early", "QueueNotAllowed"))
        assert said["everPossible"] is False
        sentence = f'queue "story-research" lets no job of namespace "{api.namespace}" in'
        assert sentence in said["message"]
        labels = {"metadata": {"labels": {"story-team": "research"}}}
        api.patch("Namespace", api.namespace, labels)
        api.wait_condition("early", "Succeeded")


def test_what_a_runtime_class_adds(api: Api, operator: Operator) -> None:
    """Pods go where their class lets them, with room for its overhead; without it they wait."""
    sandbox = {"story-runtime": "sandbox"}
    _, small, large = add_nodes(api, {"cpu": "9"}, {"cpu": "5"}, {"cpu": "6"})
    for node in (small, large):
        api.patch("Node", node, {"metadata": {"labels": sandbox}})
    job = tfjob("boxed", resources={"cpu": "2"}, run="forever", template={"runtimeClassName": "s"})
    api.create(job)
    said = verdict(wait_reason(api, "boxed", "RuntimeClassNotFound"))
    assert 'RuntimeClass "s", which worker names, does not exist' in said["message"]
    assert not api.pods()
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    runtime |= {"metadata": {"name": "s"}, "overhead": {"podFixed": {"cpu": "2500m"}}}
    with there(api, {**runtime, "scheduling": {"nodeSelector": sandbox}}):
        pods = api.wait_pods(2, "Running", "boxed")
        assert {pod["spec"]["overhead"]["cpu"] for pod in pods} == {"2500m"}
        assert sorted(map(node_of, pods)) == sorted([small, large])
