# SPDX-License-Identifier: Apache-2.0
"""A large gang beside a stream of small ones: it is told when it starts, and starts by then."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from asking import ask
from gangs import holders
from harness import PATIENCE, Api, Json, Operator, add_nodes, tfjob, verdict

from muster.api import edge

pytestmark = [pytest.mark.e2e, pytest.mark.long]

StartOperator = Callable[..., Operator]
ESTIMATE = "muster.kubeflow.org/estimated-seconds"
GPU = {"nvidia.com/gpu": "1"}


def estimated(job: Json, seconds: int) -> Json:
    """Return the job with an expected run time."""
    job["metadata"]["annotations"] = {ESTIMATE: str(seconds)}
    return job


def small(number: int) -> Json:
    """Return a job of the stream: one GPU for five seconds."""
    return estimated(tfjob(f"small-{number:03}", workers=1, resources=GPU, run="5"), 10)


@pytest.mark.punctual
def test_a_large_gang_beside_a_stream(api: Api, start_operator: StartOperator) -> None:
    """32 GPUs, a job of one GPU three times a second, one gang that wants them all (S5)."""
    start_operator()
    add_nodes(api, *[{"cpu": "16", **GPU, "nvidia.com/gpu": "8"}] * 4)
    count = 24
    for number in range(count):
        api.create(small(number))
    api.wait_pods(count, "Running")
    api.create(estimated(tfjob("large", workers=32, resources=GPU, run="2"), 5))
    api.create(estimated(tfjob("other", workers=1, run="forever"), 9999))
    told: list[float] = []
    reasons: set[str] = set()
    states: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while not (whole := holders(api.pods(), "large") == 32) and time.monotonic() < deadline:
        said = verdict(api.get("TFJob", "large"))
        states.add(said.get("state", ""))
        eta = edge.parse_time(said.get("eta"))
        if eta is not None and eta not in told:
            told.append(eta)
        api.create(small(count))
        count += 1
        last = verdict(api.get("TFJob", f"small-{count - 2:03}"))
        reasons.add(last.get("reason", ""))
        time.sleep(0.3)
    now = time.time()
    assert whole
    assert "Reserved" in states
    # The simulated pods, and the times in a status, are exact to a second.
    assert now <= told[0] + 3.0, (now, told)
    assert len(told) <= 3, told
    assert "WaitingForReservation" in reasons
    # What it does not need was for others.
    assert holders(api.pods(), "other") == 1
    api.wait_condition("large", "Succeeded")
    api.wait_condition(f"small-{count - 1:03}", "Succeeded")


def test_nodes_are_drained_for_a_gang_that_nobody_can_foretell(
    api: Api, start_operator: StartOperator
) -> None:
    """Without estimates it passes nobody and is passed, until it has waited long enough."""
    start_operator("--reservation-after=4s")
    add_nodes(api, {"cpu": "4"}, {"cpu": "4"})
    for name in ("a", "b"):
        api.create(tfjob(name, workers=1, resources={"cpu": "2"}, run="8"))
    api.wait_pods(2, "Running")
    api.create(tfjob("large", workers=2, resources={"cpu": "4"}, run="1"))
    api.wait_job("large", lambda j: verdict(j).get("reason") == "NotEnoughResources")
    api.create(tfjob("early", workers=1, run="2"))
    api.wait_pods(1, "Running", "early")
    said = verdict(api.wait_job("large", lambda j: verdict(j).get("state") == "Reserved"))
    assert "eta" not in said
    assert said["position"] == 1
    api.create(tfjob("late", workers=1, run="1"))
    late = verdict(api.wait_job("late", lambda j: verdict(j).get("reason")))
    assert late["reason"] == "WaitingForReservation"
    assert late["blockedBy"] == [f"TFJob/{api.namespace}/large"]
    assert f"kept for TFJob/{api.namespace}/large" in late["message"]
    api.wait_condition("large", "Succeeded")
    api.wait_condition("late", "Succeeded")


def test_a_reservation_is_explained_as_the_operator_keeps_it(
    api: Api, start_operator: StartOperator, tmp_path: Path
) -> None:
    """To those who ask before they submit a job, and while it waits."""
    patience = "--reservation-after=2s"
    start_operator(patience)
    add_nodes(api, {"cpu": "4"}, {"cpu": "4"})
    for name in ("a", "b"):
        api.create(tfjob(name, workers=1, resources={"cpu": "2"}, run="forever"))
    api.wait_pods(2, "Running")
    api.create(tfjob("large", workers=2, resources={"cpu": "4"}))
    api.wait_job("large", lambda j: verdict(j).get("state") == "Reserved")
    file, where = tmp_path / "job.yaml", ("-n", api.namespace, patience)
    file.write_text(yaml.safe_dump(tfjob("late", workers=1)))
    answers = [ask(api, "simulate", "-f", str(file), *where)]
    api.create(tfjob("late", workers=1))
    late = verdict(api.wait_job("late", lambda j: verdict(j).get("reason")))
    answers.append(ask(api, "explain", "tfjob/late", *where))
    for code, text in answers:
        assert code == 1, text
        assert text.splitlines()[0].endswith(f"/late: waiting, not now: {late['reason']}")
        assert f"  behind TFJob/{api.namespace}/large" in text.splitlines()
    code, text = ask(api, "explain", "tfjob/large", *where)
    assert (code, text.splitlines()[0].rpartition("/")[2]) == (
        1,
        "large: reserved, not now: NotEnoughResources",
    )
