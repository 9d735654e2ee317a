# SPDX-License-Identifier: Apache-2.0
"""What MPIJobs alone have on a real API server, under the roles that are shipped for them.

What they share with all kinds is told in test_kinds.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.e2e.harness import Api, StartOperator, add_nodes, condition
from support.e2e.kinds import job

pytestmark = pytest.mark.e2e

KIND = "MPIJob"


@pytest.fixture
def place(api: Api, start_operator: StartOperator) -> Iterator[Api]:
    """Give a namespace without nodes, and an operator that may serve MPIJobs."""
    made = start_operator(overlay="mpi")
    yield api
    assert "PRIVATE KEY" not in made.log.read_text()


def test_job_with_ttl_of_zero_runs_once(place: Api) -> None:
    """A job of v1 is deleted; of one of v2beta1 only the launcher's batch Job is."""
    add_nodes(place, {"cpu": "32"})
    since, jobs_since = place.revision(KIND), place.revision("Job")
    for index in range(5):
        for sort in (KIND, f"{KIND}-v2beta1"):
            place.create(job(sort, f"{sort.lower()}-{index}", ttlSecondsAfterFinished=0))
    kept = [f"mpijob-v2beta1-{index}" for index in range(5)]
    for name in kept:
        place.wait_condition(name, "Succeeded", of=KIND)
    place.wait("Job", lambda found: not found or None, what="all batch Jobs deleted")
    last = place.wait(KIND, lambda found: found if sorted(found) == kept else None)
    last = {found["metadata"]["name"]: found for found in place.history(KIND, since)} | last
    assert len(last) == 10
    assert {condition(found, "Succeeded") for found in last.values()} == {"True"}
    lives = {
        (j["metadata"]["name"], j["metadata"]["uid"]) for j in place.history("Job", jobs_since)
    }
    assert sorted(name for name, _ in lives) == [f"mpijob-v2beta1-{i}-launcher" for i in range(5)]
