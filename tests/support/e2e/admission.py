# SPDX-License-Identifier: Apache-2.0
"""An admission policy by which simulated kubelets reject pods."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from support.e2e.harness import PATIENCE, Api, Json

GROUP = "/apis/admissionregistration.k8s.io/v1"


@contextmanager
def rejecting(api: Api, nodes: Collection[str], reason: str) -> Iterator[None]:
    """Have simulated kubelets that reject the pods of this namespace, which have annotations."""
    key, name = "local.muster.kubeflow.org/refuse", f"story-{api.namespace}"
    path = f"/metadata/annotations/{key.replace('/', '~1')}"
    expression = f'[JSONPatch{{op: "add", path: "{path}", value: "{reason}"}}]'
    named = " || ".join(f'object.spec.nodeName == "{node}"' for node in nodes)
    condition = f"has(object.spec.nodeName) && ({named})"
    created = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}}
    policy: Json = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConditions": [{"name": "node", "expression": condition}],
        "matchConstraints": {
            "resourceRules": [{**created, "resources": ["pods"]}],
            "namespaceSelector": here,
        },
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    specs = {"policies": policy, "policybindings": {"policyName": name}}
    paths = {f"{GROUP}/mutatingadmission{plural}": spec for plural, spec in specs.items()}
    try:
        for where, spec in paths.items():
            api.send("POST", where, {"metadata": {"name": name}, "spec": spec})
        end = time.monotonic() + PATIENCE
        while key not in tried(api, min(nodes))["metadata"]["annotations"]:
            assert time.monotonic() < end, "the policy has no effect"
            time.sleep(0.1)  # no event reports when an API server applies a policy
        yield
    finally:
        for where in paths:
            api.send("DELETE", f"{where}/{name}")


def tried(api: Api, node: str) -> Json:
    """Return a pod on a node as it would be stored."""
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": node}
    pod = {"metadata": {"name": "tried", "annotations": {"story": "tried"}}, "spec": spec}
    return api.send("POST", f"{api.path('Pod')}?dryRun=All", pod)
