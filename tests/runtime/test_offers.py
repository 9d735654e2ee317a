# SPDX-License-Identifier: Apache-2.0
"""Jobs from a file, as gangs beside those that are there."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from builders_scheduler import make_gang
from muster.runtime import offers
from muster.runtime.offers import OfferError
from seen import seen
from world import tfjob

SEEDS = Path(__file__).parents[1] / "seeds"


def offered(*documents, there=(), namespace=""):
    """Return the gangs of these documents."""
    view, _ = seen(gangs=list(there))
    view, keys = offers.with_offers(view, documents, namespace)
    gangs = {gang.key: gang for gang in view.gangs}
    return [gangs[key] for key in keys], view


def test_the_tutorials_job():
    """A batch Job's pods and their PodGroup, in one file, are one gang."""
    documents = yaml.safe_load_all((SEEDS / "job-qj-1.yaml").read_text())
    ((gang,), _) = offered(*documents)
    assert (gang.key, gang.min_member, gang.refusal) == ("PodGroup/default/qj-1", 6, None)
    ((role),) = gang.roles
    assert (len(role.waiting), dict(role.shape.requests)) == (6, {"cpu": 1000})


def test_a_job_takes_its_own_place():
    """In the namespace that is asked for; one that is there already is not counted twice."""
    there = make_gang(key="TFJob/other/mnist")
    ((gang,), view) = offered(tfjob(Worker=3), there=[there], namespace="other")
    assert (gang.key, gang.min_member) == ("TFJob/other/mnist", 3)
    assert [each.key for each in view.gangs] == ["TFJob/other/mnist"]
    assert gang.created == view.now


def test_what_cannot_run_is_refused():
    """A job with a mistake, one of another scheduler, a file without pods."""
    with pytest.raises(OfferError, match=r"TFJob/mnist: spec\..*replicas"):
        offered(tfjob(Worker={"replicas": -1}))
    foreign = {
        "spec": {"schedulerName": "volcano", "containers": [{"name": "tensorflow", "image": "i"}]}
    }
    with pytest.raises(OfferError, match="none of its pods"):
        offered(tfjob(Worker={"replicas": 1, "template": foreign}))
    with pytest.raises(OfferError, match="kinds are TFJob"):
        offered({"kind": "ConfigMap", "metadata": {"name": "c"}})


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 4}, 4),
        ({"parallelism": 4, "completions": 2}, 2),
    ],
)
def test_a_batch_job_begins_with_its_parallelism(spec, count):
    """As the Job controller does; without a group each pod is a gang with its siblings."""
    pod = {"spec": {"schedulerName": "kube-batch", "containers": [{"name": "c"}]}}
    job = {"kind": "Job", "metadata": {"name": "qj"}, "spec": {**spec, "template": pod}}
    ((gang,), _) = offered(job)
    assert (gang.key, gang.min_member) == ("Job/default/qj", 1)
    assert sum(len(role.waiting) for role in gang.roles) == count
