# SPDX-License-Identifier: Apache-2.0
"""Jobs from a file, as gangs beside those that are there."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from muster.api import names
from muster.cluster import storage
from muster.cluster.quota import LimitView
from muster.cluster.runtimeclass import RuntimeView
from muster.commands import snapshot
from muster.commands.live import RefusedError
from support.apiserver.memory import tfjob
from support.builders.scheduler import make_gang
from support.builders.snapshots import seen

SEEDS = Path(__file__).parents[1] / "seeds"


def offered(*documents, there=(), namespace=""):
    """Return the gangs of these documents."""
    view, _ = seen(gangs=list(there))
    view, keys = snapshot.with_offers(view, documents, namespace)
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
    with pytest.raises(RefusedError, match=r"TFJob/mnist: spec\..*replicas"):
        offered(tfjob(Worker={"replicas": -1}))
    much = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}
    for kind, spec in (("Pod", {**SPEC, **much}), ("PodGroup", {"minResources": {"cpu": "much"}})):
        with pytest.raises(RefusedError, match=f"{kind}/p: "):
            offered({"kind": kind, "metadata": {"name": "p"}, "spec": spec}, tfjob(Worker=1))
    foreign = {
        "spec": {"schedulerName": "volcano", "containers": [{"name": "tensorflow", "image": "i"}]}
    }
    with pytest.raises(RefusedError, match="none of its pods"):
        offered(tfjob(Worker={"replicas": 1, "template": foreign}))
    with pytest.raises(RefusedError, match="kinds are TFJob"):
        offered({"kind": "ConfigMap", "metadata": {"name": "c"}})


@pytest.mark.parametrize(
    ("spec", "count"),
    [({}, 1), ({"parallelism": 4}, 4), ({"parallelism": 4, "completions": 2}, 2)],
)
def test_a_batch_job_begins_with_its_parallelism(spec, count):
    """As the Job controller does; without a group each pod is a gang with its siblings."""
    pod = {"spec": {"schedulerName": "kube-batch", "containers": [{"name": "c"}]}}
    job = {"kind": "Job", "metadata": {"name": "qj"}, "spec": {**spec, "template": pod}}
    ((gang,), _) = offered(job)
    assert (gang.key, gang.min_member) == ("Job/default/qj", 1)
    assert sum(len(role.waiting) for role in gang.roles) == count
    job["spec"] |= {"parallelism": 2**31 - 1, "completions": None}
    with pytest.raises(RefusedError, match=r"Job/qj: spec\.parallelism: Invalid value"):
        offered(job)


def test_pods_of_one_generate_name_are_several():
    """The API server gives each a name of its own; so does it to a job."""
    pod = {"kind": "Pod", "metadata": {"generateName": "p-", "namespace": "a"}, "spec": SPEC}
    assert sum(len(r.waiting) for gang in offered(pod, pod)[0] for r in gang.roles) == 2


SPEC = {"schedulerName": "muster", "containers": [{"name": "c"}]}


def simulated(*documents, stored=(), **more):
    """Return the verdict on what these documents would be."""
    view, _ = seen(gangs=[], **more)
    for field in ("claims", "classes"):
        view = replace(view, **{field: tuple(s for f, s in stored if f == field)})
    view, (key,) = snapshot.with_offers(view, documents, "team")
    (verdict,) = (d.verdict for d in view.decide() if d.gang == key)
    return verdict


@pytest.mark.parametrize("kind", ["Pod", "Job"])
@pytest.mark.parametrize("named", [None, "fast"])
def test_ephemeral_volumes_of_pods_that_are_not_there(kind, named):
    """Nobody has made their claims yet; their class, or the default, says where they can be."""
    claim = {"volumeClaimTemplate": {"spec": {"storageClassName": named} if named else {}}}
    spec = {**SPEC, "volumes": [{"name": "tmp", "ephemeral": claim}]}
    document = {"kind": kind, "metadata": {"name": "p"}, "spec": spec}
    if kind == "Job":
        document["spec"] = {"parallelism": 3, "template": {"spec": spec}}
    fast = ("classes", storage.ClassView("fast", True, True, None, default=True))
    assert simulated(document, stored=[fast]).state == "Placed"
    verdict = simulated(document)
    assert verdict.reason == "WaitingForVolume"
    assert "storage class" in verdict.message


@pytest.mark.parametrize("kind", ["TFJob", "Job", "Pod"])
def test_runtimes_of_pods_that_are_not_there(kind):
    """What a class adds is counted."""
    spec = {**SPEC, "runtimeClassName": "kata"}
    document = {"kind": kind, "metadata": {"name": "p"}, "spec": spec}
    if kind == "Job":
        document["spec"] = {"template": {"spec": spec}}
    if kind == "TFJob":
        document = tfjob(name="p", Worker={"replicas": 1, "template": {"spec": spec}})
        spec["containers"] = [{"name": "tensorflow", "image": "i"}]
    assert simulated(document).state == "Placed"
    light = RuntimeView("kata", {"cpu": "1"})
    assert simulated(document, runtimes=(light,)).state == "Placed"
    heavy = RuntimeView("kata", {"cpu": "1000"})
    assert simulated(document, runtimes=(heavy,)).reason == "NoNodeLargeEnough"


def test_limits_of_pods_that_are_not_there():
    """A pod without requests gets those of its namespace."""
    limits = LimitView("team", "range", ({"type": "Container", "defaultRequest": {"cpu": "5"}},))
    template = {"metadata": {"annotations": {names.GROUP_MIN_MEMBER: "2"}}, "spec": SPEC}
    two = {
        "kind": "Job", "metadata": {"name": "qj"}, "spec": {"parallelism": 2, "template": template}
    }  # fmt: skip
    assert simulated(two).state == "Placed"
    assert simulated(two, ranges=[limits]).reason == "ExceedsCluster"
