# SPDX-License-Identifier: Apache-2.0
"""How much a gang asks for its pods."""

import pytest

from muster.gang import BACKENDS, demand
from muster.gang.model import GangFacts
from support.builders.objects import make_job, make_replica, make_template

FACTS = GangFacts(operator_name="op", priorities={"high": 1000, "low": -5})


def gpu_job(**scheduling):
    """Return a job of one PS (1 cpu) and four workers (2 cpu, 1 GPU)."""
    return make_job(
        replicas=[
            make_replica(type="PS", template=make_template(requests={"cpu": "1"})),
            make_replica(
                replicas=4, template=make_template(requests={"cpu": "2", "nvidia.com/gpu": "1"})
            ),
        ],
        scheduling=scheduling,
    )


@pytest.mark.parametrize(
    ("asked", "resources"),
    [
        (None, {"cpu": "9", "nvidia.com/gpu": "4"}),
        (1, {"cpu": "1"}),
        (3, {"cpu": "5", "nvidia.com/gpu": "2"}),
        (99, {"cpu": "9", "nvidia.com/gpu": "4"}),
        (0, None),
    ],
)
def test_resources_of_the_first_pods(asked, resources):
    """The requests of the first minMember pods in canonical order, all if there are fewer."""
    assert demand.resources(gpu_job(min_available=asked), FACTS) == resources


@pytest.mark.parametrize(
    ("worker", "first"),
    [("high", "2"), ("low", "1"), ("unknown", "1"), ("", "1")],
)
def test_pods_of_high_priority_come_first(worker, first):
    """Real PriorityClass values order the roles; an unknown class counts 0, ties stay in order.

    Shows U11.
    """
    job = make_job(
        replicas=[
            make_replica(type="PS", template=make_template(requests={"cpu": "1"})),
            make_replica(template=make_template(requests={"cpu": "2"}, priority=worker)),
        ],
        scheduling={"min_available": 1},
    )
    assert demand.resources(job, FACTS) == {"cpu": first}


@pytest.mark.parametrize(
    ("least", "resources"),
    [
        ({"worker": 1}, {"cpu": "2", "nvidia.com/gpu": "1"}),
        ({"ps": 1, "worker": 1}, {"cpu": "3", "nvidia.com/gpu": "1"}),
        ({"ps": 1, "worker": 0}, {"cpu": "1"}),
    ],
)
def test_resources_of_as_many_pods_of_each_role_as_are_asked_for(least, resources):
    """And not of the first: a gang would be let in where it has no room for its last role."""
    job = gpu_job(min_available=sum(least.values()), leasts=least)
    assert demand.resources(job, FACTS) == resources


def test_resources_as_the_user_wrote_them():
    """The minResources of the policy are taken verbatim."""
    job = gpu_job(min_resources={"cpu": "1000m", "memory": 1024})
    assert demand.resources(job, FACTS) == {"cpu": "1000m", "memory": 1024}


def test_resources_count_init_containers_limits_and_overhead():
    """The effective request: largest init step, limits where requests are missing, overhead."""
    template = make_template(
        initContainers=[{"name": "init", "resources": {"requests": {"cpu": "3"}}}],
        overhead={"memory": "10Mi"},
    )
    template["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "500m"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }
    job = make_job(replicas=[make_replica(replicas=2, template=template)])
    assert demand.resources(job, FACTS) == {"cpu": "6", "memory": "2068Mi"}


def test_a_job_that_asks_for_nothing_has_no_resources():
    """An empty sum is left out."""
    assert demand.resources(make_job(), FACTS) is None


@pytest.mark.parametrize(
    ("policy", "template", "chosen"),
    [
        ("high", "low", "high"),
        ("", "low", "low"),
        ("", "", None),
        ("gone", "low", None),
        ("", "gone", None),
    ],
)
def test_priority_class(policy, template, chosen):
    """The policy's, else the first template's; one that does not exist is left out."""
    job = make_job(
        replicas=[
            make_replica(type="PS"),
            make_replica(template=make_template(priority=template)),
            make_replica(
                type="Evaluator", template=make_template(priority="high" if template else "")
            ),
        ],
        scheduling={"priority_class": policy},
    )
    assert demand.priority_class(job, FACTS) == chosen


def test_the_minimum_of_each_role():
    """Roles that are not named need none; of a job that does not say it nothing is."""
    job = gpu_job(min_available=2, leasts={"worker": 2})
    assert demand.leasts(job, FACTS) == {"ps": 0, "worker": 2}
    spec = BACKENDS["volcano"].group(job, FACTS)["spec"]
    assert (spec["minMember"], spec["minTaskMember"]) == (2, {"ps": 0, "worker": 2})
    assert demand.leasts(gpu_job(min_available=2), FACTS) is None
