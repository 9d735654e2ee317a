# SPDX-License-Identifier: Apache-2.0
"""How many pods of an elastic job must start together, whoever places them."""

from __future__ import annotations

import pytest

from muster import gang
from muster.cluster import gangs
from muster.controller import reconcile
from muster.frameworks import FRAMEWORKS, load
from support.apiserver.memory import World, of_kind

# Roles, elastic policy, minAvailable, the gang.
TABLE = {
    "no policy": ({"Master": 1, "Worker": 4}, None, None, 5),
    "the master and the fewest workers": (
        {"Master": 1, "Worker": 4},
        {"minReplicas": 2, "maxReplicas": 6},
        None,
        3,
    ),
    "workers alone": ({"Worker": 4}, {"minReplicas": 2, "maxReplicas": 6}, None, 2),
    "the fewest as the most": ({"Worker": 4}, {"maxReplicas": 3}, None, 3),
    "no numbers": ({"Worker": 4}, {}, None, 4),
    "scaled below the fewest": ({"Master": 1, "Worker": 1}, {"minReplicas": 2}, None, 2),
    "the user's word": ({"Worker": 4}, {"minReplicas": 2}, 3, 3),
    "the user's word, larger than the job": ({"Worker": 4}, {"minReplicas": 2}, 10, 10),
}


@pytest.mark.parametrize("row", TABLE)
@pytest.mark.parametrize("backend", [gang.VOLCANO, gang.SCHEDULER_PLUGINS, gang.EMBEDDED])
def test_the_gang_of_a_pytorch_job(row, backend):
    """The group on the server and the embedded allocator hold to the same number (U13)."""
    roles, policy, asked, wanted = TABLE[row]
    spec = {"elasticPolicy": policy} if policy is not None else {}
    run_policy = {"schedulingPolicy": {"minAvailable": asked}} if asked is not None else None
    document = of_kind("PyTorchJob", policy=run_policy, spec=spec, **roles)
    world = World(document, backend=backend)
    world.extra = {"placements": {}} if backend.embedded else {}
    world.now += reconcile.FIRST_VERDICT
    world.settle()
    assert world.objects["PodGroup", "mnist"]["spec"]["minMember"] == wanted
    assert gangs.minimum(load(FRAMEWORKS["PyTorchJob"], document)) == wanted


def test_a_paddle_job_starts_whole():
    """Its policy only says between which numbers it is scaled."""
    spec = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}
    job = load(FRAMEWORKS["PaddleJob"], of_kind("PaddleJob", Worker=3, spec=spec))
    assert gangs.minimum(job) == 3
