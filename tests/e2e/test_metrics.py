# SPDX-License-Identifier: Apache-2.0
"""Who may read the metrics."""

from __future__ import annotations

import re
import shlex
import ssl
import time
import urllib.error
import urllib.request

import pytest

from support.e2e.harness import PATIENCE, ROOT, Api, Operator, StartOperator

pytestmark = pytest.mark.e2e
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
