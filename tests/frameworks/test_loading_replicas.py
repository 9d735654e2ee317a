# SPDX-License-Identifier: Apache-2.0
"""The number of pods that a job may ask for, and the cost of reading a job that asks for more."""

import pytest

from muster.api.jobs import MAX_REPLICAS
from muster.frameworks import FRAMEWORKS, Site, load
from support.apiserver.memory import tfjob
from support.builders.job_kinds import SORTS, job_of

HUGE = 2**31 - 1


def problems(document, **limits):
    """Return the messages about the number of pods, without those about sizes and names."""
    found = load(FRAMEWORKS[document["kind"]], document, Site(**limits)).problems
    return [str(problem) for problem in found if "pods in all" in problem.detail]


@pytest.mark.timeout(5)
@pytest.mark.parametrize("sort", SORTS)
def test_job_above_the_limit_is_invalid_without_any_pod_name(sort):
    """A list of all pod names would take minutes and many gigabytes."""
    document = job_of(sort, HUGE)
    job = load(SORTS[sort], document)
    asked = HUGE + len(document["spec"][job_field(sort)]) - 1
    (message,) = problems(document)
    assert message == (
        f"spec.{job_field(sort)}: Invalid value: {asked}: must be less than or equal to "
        f"{MAX_REPLICAS} pods in all"
    )
    assert job.replicas
    assert list(job.pod_names(job.replicas)) == []


def job_field(sort):
    """Return the name of the map of replica specs."""
    return SORTS[sort].spec_field


@pytest.mark.parametrize(("servers", "accepted"), [(4_000, True), (4_001, False)])
def test_limit_applies_to_the_sum_of_all_roles(servers, accepted):
    """Each role alone may stay below the limit of the job."""
    shared = {"muster.kubeflow.org/shared-environment": "always"}
    document = tfjob(PS=servers, Worker=MAX_REPLICAS - 4_000, annotations=shared)
    assert (problems(document) == []) is accepted


def test_limit_can_be_lower():
    """The operator's flag lowers the limit; the message contains the number in force."""
    assert problems(tfjob(Worker=3), max_replicas=3) == []
    (message,) = problems(tfjob(Worker=4), max_replicas=3)
    assert message.endswith("Invalid value: 4: must be less than or equal to 3 pods in all")


def test_other_mistakes_of_a_job_above_the_limit_are_reported():
    """The author can correct all mistakes at once."""
    document = tfjob(Worker=HUGE, policy={"backoffLimit": -1})
    found = load(FRAMEWORKS["TFJob"], document).problems
    assert [p.path for p in found] == ["spec.tfReplicaSpecs", "spec.runPolicy.backoffLimit"]


def test_negative_role_does_not_lower_the_sum():
    """A mistake in one role does not hide the size of another role."""
    assert problems(tfjob(PS=-HUGE, Worker=HUGE))
