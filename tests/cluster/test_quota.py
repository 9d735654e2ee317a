# SPDX-License-Identifier: Apache-2.0
"""What pods take of quotas, and what limit ranges make of them, as the API server has it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from muster.cluster import gangs
from muster.cluster.quota import Admission, QuotaBook, parse_limits, parse_quota, views_of
from muster.frameworks import FRAMEWORKS, load
from muster.scheduler.model import Quota
from muster.scheduler.plugins import quota as quotas
from support.apiserver.memory import of_kind


def quota(*, hard=None, used=None, **spec):
    """Return a ResourceQuota of namespace team."""
    return parse_quota(
        {
            "metadata": {"namespace": "team", "name": "few"},
            "spec": {"hard": hard or {"pods": "4"}, **spec},
            "status": {"used": used or {}},
        }
    )


def limits(kind="Container", **item):
    """Return a LimitRange of one item."""
    metadata = {"namespace": "team", "name": "range"}
    return parse_limits({"metadata": metadata, "spec": {"limits": [{"type": kind, **item}]}})


def template(*, requests=None, limits=None, **spec):
    """Return a pod template of one container."""
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"spec": {"containers": [{"name": "main", "resources": resources}], **spec}}


@pytest.mark.parametrize(
    ("hard", "taken"), [("services", 1000), ("count/services", 1000), ("pods", 0)]
)
def test_service_is_charged_to_quotas_of_services(hard, taken):
    """A headless Service takes one of each."""
    charge = Admission([quota(hard={hard: "9"})]).service_charge()
    assert charge == ({f"team/few/{hard}": taken} if taken else {})


@pytest.mark.parametrize(
    ("hard", "taken"),
    [
        ("pods", 1000),
        ("count/pods", 1000),
        ("cpu", 500),
        ("requests.cpu", 500),
        ("limits.cpu", 2000),
        ("memory", 2**30),
        ("limits.memory", 0),
        ("requests.nvidia.com/gpu", 1000),
        ("services", 0),
        ("requests.storage", 0),
        ("count/configmaps", 0),
    ],
)
def test_what_a_pod_takes(hard, taken):
    """Each resource of a quota counts its own."""
    asks = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    pod = template(requests=asks, limits={"cpu": "2", "nvidia.com/gpu": "1"})
    taken_of = Admission([quota(hard={hard: "9"})]).charge(pod)
    assert taken_of == ({f"team/few/{hard}": taken} if taken else {})


@pytest.mark.parametrize(
    ("hard", "taken"),
    [
        ("persistentvolumeclaims", 2000),
        ("requests.storage", 3 * 2**40),
        ("fast.storageclass.storage.k8s.io/requests.storage", 2**40),
        ("slow.storageclass.storage.k8s.io/persistentvolumeclaims", 0),
    ],
)
def test_what_the_claims_of_a_pod_take(hard, taken):
    """The claims that are created for ephemeral volumes count, those that exist do not."""
    sizes = [{"resources": {"requests": {"storage": size}}} for size in ("1Ti", "2Ti")]
    asked = {"storageClassName": "fast", **sizes[0]}, sizes[1]
    own = [{"ephemeral": {"volumeClaimTemplate": {"spec": spec}}} for spec in asked]
    pod = template(volumes=[*own, {"persistentVolumeClaim": {"claimName": "data"}}])
    charge = Admission([quota(hard={hard: "90Ti"})]).charge(pod)
    assert charge == ({f"team/few/{hard}": taken} if taken else {})


LATE = {"activeDeadlineSeconds": 9}
FAR = {"topologyKey": "zone", "namespaces": ["other"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("scope", "pod", "counts"),
    [
        ("Terminating", template(**LATE), True),
        ("Terminating", template(), False),
        ("NotTerminating", template(), True),
        ("NotTerminating", template(**LATE), False),
        ("BestEffort", template(), True),
        ("BestEffort", template(requests={"cpu": "1"}), False),
        ("BestEffort", template(overhead={"cpu": "1"}), True),
        ("BestEffort", template(requests={"nvidia.com/gpu": "1"}), True),
        ("NotBestEffort", template(limits={"memory": "1"}), True),
        ("NotBestEffort", template(), False),
        ("PriorityClass", template(priorityClassName="high"), True),
        ("PriorityClass", template(), False),
        ("CrossNamespacePodAffinity", template(), False),
        ("CrossNamespacePodAffinity", template(affinity={"podAffinity": {REQUIRED: [FAR]}}), True),
        (
            "CrossNamespacePodAffinity",
            template(affinity={"podAntiAffinity": {PREFERRED: [{"podAffinityTerm": FAR}]}}),
            True,
        ),
        ("NobodyKnowsThis", template(), False),
    ],
)
def test_scopes(scope, pod, counts):
    """A quota counts the pods of its scopes only."""
    assert bool(Admission([quota(scopes=[scope])]).charge(pod)) is counts


@pytest.mark.parametrize(
    ("operator", "values", "named", "counts"),
    [
        ("In", ["high"], "high", True),
        ("In", ["high"], "low", False),
        ("NotIn", ["high"], "low", True),
        ("NotIn", ["high"], "high", False),
        ("Exists", [], "", False),
        ("DoesNotExist", [], "", True),
        ("DoesNotExist", [], "low", False),
    ],
)
def test_scope_of_a_priority_class(operator, values, named, counts):
    """By the class that the template names."""
    selector = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    view = quota(scopeSelector={"matchExpressions": [selector]})
    assert bool(Admission([view]).charge(template(priorityClassName=named))) is counts


def test_defaults_of_a_range():
    """What a container does not name it is given; a limit of its own is its request."""
    view = limits(default={"cpu": "2", "memory": "2Gi"}, defaultRequest={"cpu": "1"})
    admission = Admission(ranges=[view])
    bare = admission.admitted(template())["spec"]["containers"][0]["resources"]
    assert bare == {
        "limits": {"cpu": "2", "memory": "2Gi"},
        "requests": {"cpu": "1", "memory": "2Gi"},
    }
    own = admission.admitted(template(limits={"cpu": "4"}))["spec"]["containers"][0]
    assert own["resources"]["requests"]["cpu"] == "4"
    same = template()
    assert Admission().admitted(same) is same
    assert Admission(ranges=[limits("Pod", max={"cpu": "1"})]).admitted(same) is same


CPU, MEMORY = quota(hard={"requests.cpu": "4"}), {"limits.memory": "4"}


@pytest.mark.parametrize(
    ("by", "pod", "says"),
    [
        (quota(), template(), ""),
        (CPU, template(requests={"cpu": "1"}), ""),
        (CPU, template(limits={"cpu": "1"}), ""),
        (CPU, template(), 'does not name requests.cpu, which resource quota "few" asks of'),
        (CPU, template(resources={"limits": {"memory": "1"}}), ""),
        (CPU, template(requests={"cpu": "1"}, initContainers=[{}]), "does not name requests.cpu"),
        (quota(hard=MEMORY), template(requests={"memory": "1"}), "does not name limits.memory"),
        (quota(hard=MEMORY, scopes=["Terminating"]), template(), ""),
        (limits(max={"cpu": "2"}), template(limits={"cpu": "2"}), ""),
        (
            limits(max={"cpu": "2"}),
            template(limits={"cpu": "2500m"}),
            'has 2500m cpu, the max for a container is 2 by limit range "range"',
        ),
        (
            limits(min={"memory": "1Gi"}),
            template(requests={"memory": "1Mi"}),
            "has 1Mi memory, the min for a container is 1Gi",
        ),
        (
            limits(min={"cpu": "1"}),
            template(initContainers=[{"resources": {"requests": {"cpu": "50m"}}}]),
            "has 50m cpu, the min for a container is 1",
        ),
        (
            limits("Pod", max={"cpu": "1"}),
            template(limits={"cpu": "2"}),
            "has 2 cpu, the max for a pod is 1",
        ),
        (limits("PersistentVolumeClaim", max={"storage": "1"}), template(), ""),
    ],
)
def test_pods_that_would_be_refused(by, pod, says):
    """The sentence names the role, the amounts and the object that refuses."""
    views = ([by], []) if hasattr(by, "hard") else ([], [by])
    found = Admission(*views).obstacle("worker", pod)
    assert (found.sentence if found else "worker ").startswith(f"worker {says}")
    assert bool(found) is bool(says)
    assert found is None or not found.reason.ever_possible


@pytest.mark.parametrize(
    ("kinds", "limited"), [((), False), (("Pod", "X"), False), (("Pod", "Container"), True)]
)
def test_limit_range_for_containers_bounds_added_containers(kinds, limited):
    """A LimitRange for pods or claims says nothing about a single container."""
    ranges = [limits(kind, min={"cpu": "1"}) for kind in kinds]
    assert Admission(ranges=ranges).limits_containers is limited


def test_added_container_is_no_obstacle_under_a_limit_range():
    """Workers whose own container reaches the minimum are not refused for Muster's container."""
    admission = Admission(ranges=[limits(min={"cpu": "1"})])
    document = of_kind("PyTorchJob", Master=1, Worker=1)
    for role in document["spec"]["pytorchReplicaSpecs"].values():
        (container,) = role["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": "2"}}
    job = load(FRAMEWORKS["PyTorchJob"], document)
    made = gangs.templates(job, limited=admission.limits_containers)["Worker"]
    assert [c["name"] for c in made["spec"]["initContainers"]] == ["init-pytorch"]
    assert admission.obstacle("worker", admission.admitted(made)) is None


def test_the_book():
    """It knows the quotas of each namespace, and when what they say of pods has changed."""
    book = QuotaBook()
    first = quota(used={"pods": "1"})
    book.quota_changed(None, first)
    assert (list(book.quotas("team")), list(book.quotas("other"))) == ([first], [])
    more = quota(used={"pods": "2"})
    version = book.version
    book.quota_changed(first, more)
    assert book.version == version
    found = book.dimensions([{"team/few/pods": 1000, "gone/few/pods": 1}])
    assert found == {"team/few/pods": Quota("team/few", "pods", 4000, 3000)}
    assert book.dimensions(spaces={"other"}) == {}
    book.quota_changed(more, quota(hard={"cpu": "1"}))
    view = limits(max={"cpu": "1"})
    book.limits_changed(None, view)
    assert list(book.ranges("team")) == [view]
    book.limits_changed(view, view)
    assert book.version == version + 2
    book.limits_changed(view, None)
    book.quota_changed(quota(hard={"cpu": "1"}), None)
    assert (book.ranges("team"), book.quotas("team")) == ([], [])


def test_storage_of_a_class_is_told_in_bytes():
    """As that of a namespace is, whatever the class is called."""
    few = Quota("team/few", "fast.storageclass.storage.k8s.io/requests.storage", 2**40, 0)
    gang = SimpleNamespace(spec=SimpleNamespace(pod_sets=()))
    said = quotas._refusal(gang, "team/few/x", few, 2**41, 2**40).sentence
    assert said.startswith("the gang takes 2Ti fast.storageclass.storage.k8s.io/requests.storage")


def test_quotas_come_back_from_their_dimensions():
    """In order, with the scopes that are known of them."""
    book = QuotaBook()
    some = {"pods": "4", "cpu": "1"}
    first = quota(hard=some, used=some)
    second = replace(quota(used={"pods": "1"}, scopes=["Terminating"]), namespace="other")
    for view in (first, second):
        book.quota_changed(None, view)
    scopes = {"other/few": second.scopes}
    assert list(views_of(book.dimensions(), scopes)) == [first, second]
    assert book.contents() == ([second, first], [])
