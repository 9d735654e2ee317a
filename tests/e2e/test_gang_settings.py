# SPDX-License-Identifier: Apache-2.0
"""Gangs whose pods cannot be created."""

from __future__ import annotations

import pytest

from support.e2e.gangs import wait_reason
from support.e2e.harness import (
    Api,
    StartOperator,
    add_nodes,
    of_job,
    tfjob,
    verdict,
)

pytestmark = pytest.mark.e2e


def test_pods_that_a_broken_webhook_keeps_from_being_created(
    api: Api, start_operator: StartOperator
) -> None:
    """The job gives its places back and says why; it follows when the webhook is mended."""
    start_operator()
    add_nodes(api, {"cpu": "2"})
    hook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "broken"},
        "webhooks": [
            {
                "name": "broken.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/nobody"},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
                "objectSelector": {"matchLabels": {"training.kubeflow.org/job-name": "hooked"}},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
            }
        ],
    }
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    api.send("POST", hooks, hook)
    try:
        api.create(tfjob("hooked", run="forever"))
        api.wait_job("hooked", lambda j: verdict(j).get("reason"))
        api.create(tfjob("other", run="1"))
        api.wait_condition("other", "Succeeded")
        said = verdict(wait_reason(api, "hooked", "CreationRefused"))
        assert "failed calling webhook" in said["message"]
        assert not list(of_job(api.list("Pod"), "hooked"))
    finally:
        api.send("DELETE", f"{hooks}/broken")
    api.wait_pods(2, "Running", "hooked")
