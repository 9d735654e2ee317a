# SPDX-License-Identifier: Apache-2.0
"""Of the largest job that is accepted each object fits; a larger one is told by how much not."""

import pytest

from muster.api.jobs import MAX_REPLICAS
from muster.frameworks import FRAMEWORKS, mpi
from muster.frameworks.loading import Site, load
from support.apiserver.memory import of_kind
from support.builders.mpijobs import mpijob
from support.builders.objects import make_pod

DOMAIN = "cluster.local"


def loaded(version, implementation, workers):
    """Return a job with long names, its rules, and its problems."""
    document = mpijob(version, workers=workers)
    document["metadata"]["name"] = "n" * 30
    if version == "v2beta1":
        document["spec"]["mpiImplementation"] = implementation
    job = load(FRAMEWORKS["MPIJob"], document, Site(DOMAIN))
    return job, FRAMEWORKS["MPIJob"].chosen(document), job.problems


@pytest.mark.parametrize(
    ("version", "implementation"),
    [("v1", ""), ("v2beta1", "OpenMPI"), ("v2beta1", "Intel"), ("v2beta1", "MPICH")],
)
def test_config_map_of_the_largest_job_fits(version, implementation):
    """While all its workers run; with one more worker the job is invalid."""
    least, most = 1, MAX_REPLICAS
    while least < most:
        middle = (least + most + 1) // 2
        wrong = loaded(version, implementation, middle)[2]
        least, most = (least, middle - 1) if wrong else (middle, most)
    assert most > 4_500
    job, framework, _ = loaded(version, implementation, most)
    pods = [make_pod(name=name, phase="Running") for name in mpi.workers(job)]
    (config,) = (part for part in framework.pods.companions if part.kind == "ConfigMap")
    size = sum(map(len, config.content(job, DOMAIN, pods)["data"].values()))
    _, _, (problem,) = loaded(version, implementation, most + 1)
    assert problem.path == "spec.mpiReplicaSpecs"
    assert problem.detail.startswith(f"Invalid value: {most + 2}: ")
    if most + 2 <= MAX_REPLICAS:
        assert 0.9 * mpi.MAX_CONFIG_BYTES < size <= mpi.MAX_CONFIG_BYTES
        assert f"and may have {mpi.MAX_CONFIG_BYTES}; use fewer replicas" in problem.detail


def test_what_the_author_wrote_counts():
    """A job with long templates may have fewer pods."""
    document = of_kind("PyTorchJob", Master=1, Worker=9_000)
    for role in document["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["metadata"] = {"annotations": {"notes": "x" * 600_000}}
    (said,) = load(FRAMEWORKS["PyTorchJob"], document).problems
    assert "must be less than or equal to 7871 pods: the status" in said.detail
