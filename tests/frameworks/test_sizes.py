# SPDX-License-Identifier: Apache-2.0
"""Of the largest job that is accepted each object fits; a larger one is told by how much not."""

import json

import pytest

from muster.api import status
from muster.api.jobs import MAX_REPLICAS
from muster.api.status import JobStatus, ReplicaStatus
from muster.frameworks import FRAMEWORKS, sizes
from muster.frameworks.loading import Site, load
from support.apiserver.memory import of_kind
from support.builders.mpijobs import mpijob

UID = "01234567-89ab-cdef-0123-456789abcdef"
DOMAIN = "cluster.local"


def pytorch(workers):
    """Return a PyTorchJob."""
    return of_kind("PyTorchJob", Master=1, Worker=workers)


def mpi(version):
    """Return what makes MPIJobs of that version."""

    def made(workers):
        document = mpijob(version, workers=workers)
        document["metadata"]["name"] = "n" * 30
        return document

    return made


KINDS = {
    "PyTorchJob": (pytorch, "PyTorchJob"),
    "v2beta1": (mpi("v2beta1"), "MPIJob"),
    "v1": (mpi("v1"), "MPIJob"),
}


def loaded(made, kind, workers):
    """Return a job, its rules, and what is said of its size."""
    document = made(workers)
    job = load(FRAMEWORKS[kind], document, Site(DOMAIN))
    said = [p for p in job.problems if "less than or equal" in p.detail or "bytes" in p.detail]
    assert job.problems == tuple(said)
    return job, FRAMEWORKS[kind].chosen(document), said


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def largest(request):
    """Return what makes jobs, of which kind, and the most workers that are accepted."""
    made, kind = request.param
    least, most = 1, MAX_REPLICAS
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (least, middle - 1) if loaded(made, kind, middle)[2] else (middle, most)
    return made, kind, least


def test_all_objects_of_the_largest_job_fit(largest):
    """Its own, while all of its pods are restarted, and its companions, while they run."""
    made, kind, most = largest
    job, framework, _ = loaded(made, kind, most)
    assert most > 5_000
    full = JobStatus(replicas={"Worker": ReplicaStatus(restarted=(UID,) * job.total)})
    own = {**made(most), "status": status.write(full)}
    assert len(json.dumps(own, separators=(",", ":"))) < sizes.LARGEST - sizes.SPARE / 2
    pods = [sizes._running(job, role, i) for role in job.replicas for i in range(role.replicas)]
    for companion in framework.pods.companions:
        content = companion.content(job, DOMAIN, pods)
        size = sum(len(text) for text in content.get("data", {}).values())
        assert size <= sizes.MOST_DATA
        assert len(json.dumps(content)) <= sizes.LARGEST - sizes.SPARE / 2
        measured = sizes._size(companion, job, DOMAIN)
        real = sizes._bytes(content)
        assert real <= measured <= real * 1.05


def test_one_more_is_told_with_the_number(largest):
    """How many there may be, or how large it would be."""
    made, kind, most = largest
    _, _, (said,) = loaded(made, kind, most + 1)
    asked = most + 2  # with the master, or the launcher
    assert said.detail.startswith(f"Invalid value: {asked}: ")
    assert said.path in ("spec.pytorchReplicaSpecs", "spec.mpiReplicaSpecs")
    if asked > MAX_REPLICAS:
        assert f"less than or equal to {MAX_REPLICAS} pods in all" in said.detail
    else:
        assert f"and may have {sizes.MOST_DATA}; use fewer replicas" in said.detail


def test_what_the_author_wrote_counts():
    """A job with long templates may have fewer pods."""
    document = pytorch(9_000)
    for role in document["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["metadata"] = {"annotations": {"notes": "x" * 600_000}}
    (said,) = load(FRAMEWORKS["PyTorchJob"], document).problems
    assert "must be less than or equal to 7871 pods: the status" in said.detail
