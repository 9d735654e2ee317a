# SPDX-License-Identifier: Apache-2.0
"""How many pods of an elastic job must start together, whoever places them."""

import copy

import pytest

from muster import gang
from muster.api import names
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
    world.wait(reconcile.FIRST_VERDICT).settle()
    assert world.objects["PodGroup", "mnist"]["spec"]["minMember"] == wanted
    assert gangs.minimum(load(FRAMEWORKS["PyTorchJob"], document)) == wanted


RUN = ["torchrun", "--nproc_per_node=8"]
# command, args, the gang of a job of one master and three workers with minReplicas 1.
NNODES = {
    "none": ([*RUN, "train.py"], None, 2),
    "a number": ([*RUN, "--nnodes=3", "train.py"], None, 4),
    "a number in its own argument": (RUN, ["--nnodes", "4", "train.py"], 4),
    "one dash": ([*RUN, "-nnodes=4"], None, 4),
    "in a script": (["sh", "-c"], ["cd /x && torchrun --nnodes 4 train.py"], 4),
    "in a script over lines": (["sh", "-c", "torchrun \\\n --nnodes='4' train.py"], None, 4),
    "a range": ([*RUN, "--nnodes=1:4"], None, 2),
    "a range above minReplicas": ([*RUN, "--nnodes", "3:4"], None, 3),
    "a range in quotes": (["bash", "-c", 'torchrun --nnodes="3:4" train.py'], None, 3),
    "a range above the job": ([*RUN, "--nnodes=7:9"], None, 4),
    "the last is a range": ([*RUN, "--nnodes=4"], ["--nnodes=1:4"], 2),
    "the last is a number": ([*RUN, "--nnodes=1:4"], ["--nnodes=4"], 4),
    "a variable": ([*RUN, "--nnodes=$(NODES)"], None, 4),
    "a variable of the shell": (["sh", "-c", 'torchrun --nnodes="$NODES" train.py'], None, 4),
    "no value": ([*RUN, "--nnodes"], None, 4),
    "digits without end": ([*RUN, f"--nnodes={'9' * 5000}:4"], None, 4),
    "another option": ([*RUN, "--max-nnodes=4", "--nnodes_hint=4"], None, 2),
    "no words": ([1, None], {"a": 1}, 2),
}


@pytest.mark.parametrize("row", NNODES)
@pytest.mark.parametrize("role", ["Master", "Worker"])
def test_minimum_of_an_elastic_job_follows_the_option_nnodes(row, role):
    """A job whose command fixes its number of nodes starts with all of its pods."""
    command, args, wanted = NNODES[row]
    policy = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 64}}
    document = copy.deepcopy(of_kind("PyTorchJob", spec=policy, Master=1, Worker=3))
    template = document["spec"]["pytorchReplicaSpecs"][role]["template"]
    template["spec"]["containers"][0] |= {"command": command, "args": args}
    assert gangs.minimum(load(FRAMEWORKS["PyTorchJob"], document)) == wanted


@pytest.mark.parametrize("by", ["minAvailable", "annotation"])
def test_minimum_that_the_author_sets_wins_over_the_option_nnodes(by):
    """The number in schedulingPolicy or in the annotation is taken as it is written."""
    asked = {"schedulingPolicy": {"minAvailable": 2}} if by == "minAvailable" else None
    policy = {"elasticPolicy": {"minReplicas": 1}}
    document = copy.deepcopy(of_kind("PyTorchJob", policy=asked, spec=policy, Worker=3))
    if by == "annotation":
        document["metadata"]["annotations"] = {names.MIN_AVAILABLE: "worker=2"}
    template = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["spec"]["containers"][0]["command"] = [*RUN, "--nnodes=3"]
    assert gangs.minimum(load(FRAMEWORKS["PyTorchJob"], document)) == 2


def test_a_paddle_job_starts_whole():
    """Its policy only says between which numbers it is scaled."""
    spec = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}
    job = load(FRAMEWORKS["PaddleJob"], of_kind("PaddleJob", Worker=3, spec=spec))
    assert gangs.minimum(job) == 3


def test_elastic_job_without_roles_has_no_minimum():
    """A stored job whose roles cannot be parsed is read without an exception."""
    spec = {"pytorchReplicaSpecs": {}, "elasticPolicy": {"minReplicas": 1}}
    job = load(FRAMEWORKS["PyTorchJob"], {"metadata": {"name": "x"}, "spec": spec})
    assert FRAMEWORKS["PyTorchJob"].gang.minimum(job) == 0
