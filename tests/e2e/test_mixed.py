# SPDX-License-Identifier: Apache-2.0
"""Jobs of all sorts at once, and an operator that dies in the middle of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from support.builders.job_kinds import SORTS
from support.e2e.harness import Api, Json, StartOperator, add_nodes, condition, nothing_left
from support.e2e.kinds import job

pytestmark = pytest.mark.e2e

JOBS, NODES = int(os.environ.get("MUSTER_MIXED_JOBS", "28")), 6
"""Each sort meets each fate once; of `make nightly` there are two hundred jobs."""
ENDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "done": ("0", {"restart_policy": "Never"}, "Succeeded"),
    "broken": ("3", {"restart_policy": "Never", "backoffLimit": 0}, "Failed"),
    "again": ("137,0", {"restart_policy": "ExitCode"}, "Succeeded"),
    "permanent": ("1", {"restart_policy": "ExitCode", "backoffLimit": 0}, "Failed"),
}
"""What happens to a job -> exit codes, its policies, how it must end."""
DEATHS = (JOBS // 5, JOBS * 5 // 4)
"""The operator is killed when so many pods have been made."""


def story(index: int) -> tuple[str, str]:
    """Return the sort of a job and what happens to it."""
    return tuple(SORTS)[index % len(SORTS)], tuple(ENDS)[index // len(SORTS) % len(ENDS)]


def test_every_job_comes_to_its_right_end_and_leaves_nothing(
    api: Api, start_operator: StartOperator
) -> None:
    """Whatever its sort and its fate, and though the operator was killed twice."""
    add_nodes(api, *[{"cpu": "64"}] * NODES)
    operator = start_operator(overlay="mpi")
    names = {}
    for index in range(JOBS):
        sort, fate = story(index)
        codes, policies, end = ENDS[fate]
        name = f"{fate}-{index}"
        names[name] = (SORTS[sort].kind, end)
        api.create(job(sort, name, exits=codes, cpu="500m", cleanPodPolicy="All", **policies))
    made: set[str] = set()
    for count in DEATHS:

        def enough(pods: Mapping[str, Json], count: int = count) -> bool:
            made.update(pod["metadata"]["uid"] for pod in pods.values())
            return len(made) >= count

        api.wait("Pod", enough, what=f"{count} pods made")
        operator.kill()
        operator.start(ready=False)

    kinds = {kind for kind, _ in names.values()}
    for kind in kinds:

        def ended(jobs: Mapping[str, Json]) -> bool:
            return all(
                condition(found, "Succeeded") == "True" or condition(found, "Failed") == "True"
                for found in jobs.values()
            )

        api.wait(kind, ended, what=f"every {kind} has ended")
    wrong = {
        found["metadata"]["name"]: found["status"]["conditions"]
        for kind in kinds
        for found in api.list(kind)
        if condition(found, names[found["metadata"]["name"]][1]) != "True"
    }
    assert not wrong
    counted = Counter(kind for kind, _ in names.values())
    assert {kind: len(api.list(kind)) for kind in kinds} == counted
    for kind in kinds:
        api.send("DELETE", api.path(kind), {"propagationPolicy": "Background"})
    nothing_left(api)
