# SPDX-License-Identifier: Apache-2.0
"""The validating webhook: refusals at apply, and life without it."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator

import pytest
import yaml

from support.e2e.harness import (
    PATIENCE,
    ROOT,
    Api,
    Json,
    Refused,
    StartOperator,
    add_nodes,
    free_port,
    tfjob,
)

pytestmark = pytest.mark.e2e

COMPONENT = ROOT / "manifests" / "components" / "webhook"
WITH_WEBHOOK = "embedded+webhook"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
TWO = "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"
DENIED = f'admission webhook "jobs.muster.kubeflow.org" denied the request: {TWO}'


def two_chiefs(name: str = "bad") -> Json:
    """Return a job that no schema refuses."""
    document = tfjob(name, chief=True)
    roles = document["spec"]["tfReplicaSpecs"]
    roles["Master"] = copy.deepcopy(roles["Chief"])
    return document


@pytest.fixture
def port(api: Api) -> Iterator[int]:
    """Install the shipped configuration, with an address instead of the Service."""
    chosen = free_port()
    document = yaml.safe_load((COMPONENT / "configuration.yaml").read_text())
    (webhook,) = document["webhooks"]
    webhook["clientConfig"] = {"url": f"https://127.0.0.1:{chosen}/validate"}
    api.send("POST", CONFIGURATIONS, document)
    yield chosen
    api.delete(CONFIGURATIONS, "muster")


def dry_run(api: Api, document: Json) -> str:
    """Return what is said against a job that is not stored; nothing if it is let in."""
    try:
        api.send("POST", api.path("TFJob") + "?dryRun=All", document)
    except Refused as error:
        return str(error)
    return ""


def wait_refused(api: Api, seconds: float = PATIENCE) -> None:
    """Return once the API server asks the webhook and believes it."""
    deadline = time.monotonic() + seconds
    while not dry_run(api, two_chiefs()):
        assert time.monotonic() < deadline, api.send("GET", f"{CONFIGURATIONS}/muster")
        time.sleep(0.05)  # the API server tells nobody when it has read a configuration


def test_what_only_the_webhook_can_refuse(
    api: Api, start_operator: StartOperator, port: int
) -> None:
    """At apply and at each change, in the rules' words; without the operator jobs are let in."""
    add_nodes(api, {"cpu": "8"})
    operator = start_operator(f"--admission-bind-address=127.0.0.1:{port}", overlay=WITH_WEBHOOK)
    wait_refused(api)
    with pytest.raises(Refused) as caught:
        api.create(two_chiefs())
    assert (caught.value.code, str(caught.value)) == (422, DENIED)

    api.create(tfjob("good", chief=True, run="forever"))
    api.wait_condition("good", "Running")
    roles = two_chiefs()["spec"]["tfReplicaSpecs"]
    with pytest.raises(Refused) as caught:
        api.patch("TFJob", "good", {"spec": {"tfReplicaSpecs": {"Master": roles["Master"]}}})
    assert str(caught.value) == DENIED
    api.patch("TFJob", "good", {"metadata": {"annotations": {"note": "seen"}}})

    operator.kill()
    api.create(two_chiefs())


def test_an_operator_without_the_permission_works_and_says_so(
    api: Api, start_operator: StartOperator, port: int
) -> None:
    """The webhook is an extra: jobs run, the log names what is missing."""
    add_nodes(api, {"cpu": "4"})
    operator = start_operator(f"--admission-bind-address=127.0.0.1:{port}")
    api.create(tfjob("calm", run="0"))
    api.wait_condition("calm", "Succeeded")
    said = "may not get and update it; apply manifests/components/webhook"
    assert said in operator.log.read_text()
