# SPDX-License-Identifier: Apache-2.0
"""MPIJobs on a cluster whose operator may not serve them: said, and mended by a grant."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.e2e.harness import (
    OPERATOR_NAMESPACE,
    ROLES,
    Api,
    StartOperator,
    add_nodes,
    install_roles,
    tfjob,
)
from support.e2e.kinds import job

pytestmark = pytest.mark.e2e

KIND = "MPIJob"


def test_jobs_say_what_is_missing_and_run_once_it_is_granted(
    api: Api, start_operator: StartOperator, tmp_path: Path
) -> None:
    """The sentence names the permissions and where they are; other kinds run meanwhile."""
    start_operator()
    add_nodes(api, {"cpu": "8"})
    api.create(tfjob("other", workers=1, run="1"))
    poor = {KIND: "pods/exec", f"{KIND}-v2beta1": "jobs.batch"}
    for sort, missing in poor.items():
        name = sort.lower()
        api.create(job(sort, name))
        found = api.wait_job(
            name, lambda j: (j.get("status") or {}).get("state") == "Blocked", of=KIND
        )
        assert missing in found["status"]["reason"]
        assert "manifests/components/mpi" in found["status"]["reason"]
        assert not api.pods(name)
    api.wait(
        "Event", lambda found: any(e["reason"] == "PermissionMissing" for e in found.values())
    )
    api.wait_condition("other", "Succeeded")
    install_roles(Api(api.cluster, OPERATOR_NAMESPACE), "mpi")
    ROLES[api.cluster.server] = "mpi"
    for sort in poor:
        api.wait_condition(sort.lower(), "Succeeded", of=KIND)
