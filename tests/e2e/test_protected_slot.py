# SPDX-License-Identifier: Apache-2.0
"""A running gang that loses a member gets it back, whoever else waits for that room.

The stories of the seeds' note: the cluster is full, a gang of four runs, a small job waits for
just the room of one member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from support.e2e.harness import (
    Api,
    Json,
    Operator,
    add_nodes,
    condition,
    node_of,
    of_job,
    phase_of,
    tfjob,
    verdict,
)

pytestmark = pytest.mark.e2e

MEMBER = "gang-worker-2"
Loss = Callable[[Api], None]


def fill(api: Api, **fields: str) -> dict[str, str]:
    """Fill two nodes with a gang of four, let a small job wait; return the uids by pod name."""
    add_nodes(api, {"cpu": "2"}, {"cpu": "2"})
    api.create(tfjob("gang", workers=4, run="forever", **{"restart_policy": "ExitCode", **fields}))
    pods = api.wait_pods(4, "Running", "gang")
    api.create(tfjob("filler", workers=1, run="forever"))
    api.wait_job("filler", lambda j: verdict(j).get("reason"))
    api.wait_pods(1, "Pending", "filler")
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods}


def wait_whole(api: Api, before: Mapping[str, str], name: str = MEMBER) -> dict[str, str]:
    """Return the uids once the gang runs again, with a successor under that name."""

    def whole(pods: Mapping[str, Json]) -> dict[str, str]:
        found = list(of_job(pods.values(), "gang"))
        uids = {p["metadata"]["name"]: p["metadata"]["uid"] for p in found}
        running = all(phase_of(p) == "Running" for p in found)
        changed = uids.get(name) not in (None, before[name])
        return uids if running and changed and len(found) == 4 else {}

    found: dict[str, str] = api.wait("Pod", whole, what="the gang is whole again")
    return found


def check(api: Api, since: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Fail unless the others were left alone and the filler never had a node."""
    assert {n: u for n, u in after.items() if n != MEMBER} == {
        n: u for n, u in before.items() if n != MEMBER
    }
    history = api.history("Pod", since)
    assert not [p for p in of_job(history, "filler") if node_of(p)]
    api.wait_job("gang", lambda j: verdict(j).get("state") == "Running")
    job = api.get("TFJob", "gang")
    assert condition(job, "Failed") is None


def exits(code: int) -> Loss:
    """Let the member's program end with that code."""

    def end(api: Api) -> None:
        ended = {"exitCode": code, "reason": "Error"}
        status = {
            "phase": "Failed",
            "containerStatuses": [
                {
                    "name": "tensorflow",
                    "image": "training:1",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": ended},
                }
            ],
        }
        api.patch("Pod", MEMBER, {"status": status}, "status")

    return end


def deleted(api: Api) -> None:
    """Delete the member as a user does."""
    api.delete("Pod", MEMBER)


def evicted(api: Api) -> None:
    """Evict the member as a drain does."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": MEMBER}}
    api.send("POST", api.path("Pod", MEMBER, "eviction"), eviction)


LOSSES = (exits(137), exits(130), deleted, evicted)


def test_while_the_operator_is_dead(api: Api, operator: Operator) -> None:
    """Its successor knows from the cluster alone whose room it is (M5)."""
    uids = fill(api)
    since = api.revision("Pod")
    for loss in LOSSES:
        before = uids
        operator.kill()
        loss(api)
        operator.start()
        uids = wait_whole(api, before)
        check(api, since, before, uids)
