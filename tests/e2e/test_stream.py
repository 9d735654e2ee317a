# SPDX-License-Identifier: Apache-2.0
"""When a large gang starts beside a stream of small ones: as was predicted, if nobody is late."""

from __future__ import annotations

import time

import pytest

from support.e2e.gangs import holders
from support.e2e.harness import PATIENCE, Api, Json, Operator, add_nodes, condition, tfjob, verdict
from support.e2e.statuses import Lag, seconds

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.alone]

ESTIMATE = "muster.kubeflow.org/estimated-seconds"
GPU = {"nvidia.com/gpu": "1"}


def estimated(job: Json, seconds: int) -> Json:
    """Return the job with an expected run time."""
    job["metadata"]["annotations"] = {ESTIMATE: str(seconds)}
    return job


def small(number: int, run: str = "5") -> Json:
    """Return a job of one GPU, of the stream, which says that it runs for ten seconds."""
    return estimated(tfjob(f"small-{number:03}", workers=1, resources=GPU, run=run), 10)


def test_a_large_gang_beside_a_stream(api: Api, operator: Operator) -> None:
    """32 GPUs, a job of one GPU three times a second, one gang that wants them all (S5)."""
    add_nodes(api, *[{"cpu": "16", **GPU, "nvidia.com/gpu": "8"}] * 4)
    lag = Lag(api)
    since, count = api.revision("TFJob"), 24
    for number in range(count):
        api.create(small(number, "forever"))
    first = [pod["metadata"]["name"] for pod in api.wait_pods(count, "Running")]
    large = tfjob("large", workers=32, resources=GPU, run="forever", cleanPodPolicy="Running")
    api.create(estimated(large, 5))
    api.create(estimated(tfjob("other", workers=1, run="forever"), 9999))
    api.wait_job("large", lambda job: "eta" in verdict(job), what="large is told when it starts")
    deadline = time.monotonic() + PATIENCE
    while condition(found := api.get("TFJob", "large"), "Running") is None:
        assert time.monotonic() < deadline, verdict(found)
        api.create(small(count))
        count += 1
        # Each ends some time before it has to.
        for pod in first[:4]:
            api.finish(pod)
        del first[:4]
        time.sleep(0.3)
    began = [seconds(pod["status"]["startTime"]) for pod in api.pods("large")]
    assert len(began) == 32
    # What it does not need was for others.
    assert holders(api.pods(), "other") == 1
    api.finish("large-worker-0")
    api.wait_condition("large", "Succeeded")
    api.wait_condition(f"small-{count - 1:03}", "Succeeded")
    told = dict.fromkeys(filter(None, (v.get("eta") for v in verdicts(api, since, "large"))))
    # The simulated pods, and the times in a status, are exact to a second.
    assert max(began) <= seconds(next(iter(told))) + 3.0 + lag.allowed(), (began, told)
    assert len(told) <= 3, told
    assert "Reserved" in {v.get("state") for v in verdicts(api, since, "large")}
    assert "WaitingForReservation" in {v.get("reason") for v in verdicts(api, since)}


def verdicts(api: Api, since: str, name: str = "") -> list[Json]:
    """Return all that has been said of gangs (of one) since then, in its order."""
    return [verdict(version) for version in api.history("TFJob", since, name)]
