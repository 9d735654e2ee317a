# SPDX-License-Identifier: Apache-2.0
"""How soon another operator works when the one that leads has died, or was told to go."""

from __future__ import annotations

import os
import signal
import time

import pytest

from support.chaos.fault_player import Player, Replicas
from support.chaos.fault_report import Tally
from support.e2e.harness import tfjob

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.full,
    pytest.mark.skipif("MUSTER_TAKEOVERS" not in os.environ, reason="`make faults` measures it"),
]

TAKEOVERS = int(os.environ.get("MUSTER_TAKEOVERS") or "1")
PROMPT = {signal.SIGKILL: 15.0, signal.SIGTERM: 2.0}
"""Seconds from the end of a leader until the next one works."""


@pytest.mark.parametrize("number", PROMPT)
def test_another_takes_over(player: Player, tally: Tally, number: signal.Signals) -> None:
    """At once when the leader is told to go, soon when it dies, with the lease as it is shipped.

    Counted until the first pod of a job that was applied meanwhile.
    """
    api = player.namespace(-1)
    replicas = Replicas(player.cluster, player.folder, player.proxy, 2, flags=())
    replicas.start()
    taken = tally.takeovers.setdefault(number.name, [])
    try:
        for index in range(TAKEOVERS):
            began = time.monotonic()
            replicas.end(replicas.leader(), number)
            name = f"next-{number.name.lower()}-{index}"
            api.create(tfjob(name, workers=1, run="0"))
            pod = "Pod", api.namespace, f"{name}-worker-0"
            assert player.onlooker.wait(lambda: player.onlooker.find(*pod), 120)  # noqa: B023
            taken.append(time.monotonic() - began)
            replicas.settle()
    finally:
        replicas.stop()
    print(f"{number.name}: {taken}")
    assert replicas.wrong == []
    assert max(taken) < PROMPT[number]
