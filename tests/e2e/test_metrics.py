# SPDX-License-Identifier: Apache-2.0
"""What dashboards get to know: each transition, each object, once."""

from __future__ import annotations

import re
import shlex
import ssl
import time
import urllib.error
import urllib.request

import pytest

from support.e2e.harness import PATIENCE, ROOT, Api, Operator, StartOperator, add_nodes, tfjob

pytestmark = pytest.mark.e2e


def counters(operator: Operator, namespace: str) -> dict[str, int]:
    """Return what the operator has counted of TFJobs in a namespace, and of objects at all."""
    text = operator.scrape()
    labels = f'{{framework="tensorflow",job_namespace="{namespace}"}}'
    jobs = re.findall(
        rf"^training_operator_jobs_(\w+)_total{re.escape(labels)} (\S+)", text, re.MULTILINE
    )
    plain = r"^((?:created|deleted|failed)_(?:pods|pod_groups)|\w+_service_creation)_total (\S+)"
    objects = re.findall(plain, text, re.MULTILINE)
    return {name: int(float(count)) for name, count in (*jobs, *objects)}


def settled(operator: Operator, namespace: str, jobs: dict[str, int]) -> dict[str, int]:
    """Return the counters once they say so of the jobs: a count comes after what is counted."""
    deadline = time.monotonic() + PATIENCE
    while True:
        counted = counters(operator, namespace)
        found = {name: counted.get(name, 0) for name in jobs}
        if found == jobs:
            return counted
        assert time.monotonic() < deadline, found
        time.sleep(0.05)  # a metric has no event to wait for


def test_every_transition_is_counted_once(api: Api, start_operator: StartOperator) -> None:
    """Also by an operator that is started again: what it finds done it does not count."""
    operator = start_operator(fresh=True)
    add_nodes(api, {"cpu": "8"})
    api.create(tfjob("good", run="0", cleanPodPolicy="All"))
    api.create(tfjob("bad", run="0", exits="1", ttlSecondsAfterFinished=0))
    api.create(tfjob("late", run="0", activeDeadlineSeconds=0))
    api.create(tfjob("again", workers=1, restart_policy="ExitCode", run="0", exits="137,137,0"))
    api.create(tfjob("runs", workers=1, run="forever"))
    api.create({**tfjob("wrong"), "spec": {"tfReplicaSpecs": {}}})
    api.wait("TFJob", lambda jobs: "bad" not in jobs)
    for name in ("good", "again"):
        api.wait_condition(name, "Succeeded")
    api.wait_condition("late", "Failed")
    api.wait_condition("runs", "Running")
    api.delete("TFJob", "late")
    api.wait("TFJob", lambda jobs: "late" not in jobs)
    api.wait("PodGroup", lambda found: set(found) <= {"runs", "wrong", "bad"})
    api.wait("Pod", lambda pods: not any("good" in name for name in pods))
    api.wait_events("SuccessfulDeleteJob", "bad")
    jobs = {"created": 6, "successful": 2, "failed": 2, "restarted": 2, "deleted": 2}
    counted = settled(operator, api.namespace, jobs)
    assert counted["created_pods"] == 2 + 2 + 3 + 1
    assert counted["deleted_pods"] == 2 + 2
    assert counted["failed_pods"] == counted["failed_service_creation"] == 0
    assert counted["succeeded_service_creation"] == 2 + 2 + 1 + 1
    # One ends before it starts, and of one the garbage collector removes what is left.
    assert (counted["created_pod_groups"], counted["deleted_pod_groups"]) == (5, 2)
    operator.kill()
    operator.start()
    api.create(tfjob("next", workers=1, run="0"))
    api.wait_condition("next", "Succeeded")
    jobs = {"created": 1, "successful": 1, "failed": 0, "restarted": 0, "deleted": 0}
    counted = settled(operator, api.namespace, jobs)
    assert counted["created_pods"] == 1
    served = operator.scrape()
    for name in set(re.findall(r"\b(?:muster|volcano|training_operator)_\w+", ALERTS)):
        plain = re.sub(r"_(total|bucket|sum|count)$", "", name)
        assert re.search(rf"^# TYPE {plain}(_total)? ", served, re.MULTILINE), name
    assert "muster_leader 1.0" in served


ALERTS = "".join(
    line
    for line in (ROOT / "manifests/components/monitoring/rules.yaml").read_text().splitlines()
    if "expr:" in line
)
GUIDE = (ROOT / "docs" / "metrics.md").read_text()
(LET_IN,) = re.findall(r"^kubectl (create clusterrolebinding .*)$", GUIDE, re.MULTILINE)
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
OUTSIDE = "monitoring:prometheus-k8s"
"""The account of the guide."""


def answered(operator: Operator, token: str = "") -> tuple[int, str]:
    """Return the status and the text of what a scrape over TLS gets."""
    url = f"https://127.0.0.1:{operator.metrics}/metrics"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    asked = urllib.request.Request(url, headers=headers)
    trusting = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(asked, context=trusting) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def token_of(api: Api, account: str) -> str:
    """Return a token of a new account."""
    named = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
    api.create(named)
    asked = {"spec": {"expirationSeconds": 600}}
    made = api.send("POST", api.path("ServiceAccount", account, "token"), asked)
    return str(made["status"]["token"])


def test_metrics_are_shown_to_who_may_read_them(api: Api, start_operator: StartOperator) -> None:
    """By the overlay's flags and roles: Prometheus is let in by the guide's command, no other."""
    operator = start_operator("--metrics-secure", fresh=True)
    stranger, prometheus = token_of(api, "stranger"), token_of(api, "prometheus")
    name, whose = f"reads-{api.namespace}", f"{api.namespace}:prometheus"
    assert OUTSIDE in LET_IN
    words = LET_IN.replace("muster-metrics-reader ", f"{name} ", 1).replace(OUTSIDE, whose)
    api.kubectl(*shlex.split(words))
    try:
        asked = {"path": "/metrics", "verb": "get"}
        spec = {"user": f"system:serviceaccount:{whose}", "nonResourceAttributes": asked}
        deadline = time.monotonic() + PATIENCE
        while not api.send("POST", REVIEWS, {"spec": spec})["status"]["allowed"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # the server's own look at roles has no event to wait for
        assert answered(operator)[0] == 401
        assert answered(operator, "made up")[0] == 401
        assert answered(operator, stranger)[0] == 403
        status, text = answered(operator, prometheus)
        assert (status, "muster_permissions_missing 0.0" in text) == (200, True), text
    finally:
        api.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", name)
