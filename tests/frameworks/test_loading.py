# SPDX-License-Identifier: Apache-2.0
"""What is said of a job that is applied or changed, and how many pods it may ask for."""

import copy

import pytest

from muster.api.jobs import MAX_REPLICAS
from muster.frameworks import FRAMEWORKS, load
from muster.frameworks.loading import Ruling, Site, review
from support.apiserver.memory import of_kind, tfjob
from support.builders.job_kinds import SORTS, job_of
from support.builders.mpijobs import mpijob

TF = FRAMEWORKS["TFJob"]
LEASTS = "muster.kubeflow.org/min-available"
WORKER = "spec.tfReplicaSpecs[Worker].template"
TWO = "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"


def texts(ruling):
    """Return the problems as users read them."""
    return [str(problem) for problem in ruling.problems]


def test_a_bad_job_is_refused_and_a_good_one_is_let_in_without_a_word():
    """By the rules that the controller has."""
    assert review(TF, tfjob()) == Ruling()
    assert texts(review(TF, tfjob(Chief=1, Master=1))) == [TWO]


def test_what_was_wrong_before_is_a_warning():
    """The job stays writable; what is wrong anew is refused."""
    bad = tfjob(Chief=1, Master=1)
    worse = tfjob(Chief=1, Master=1, policy={"backoffLimit": -1})
    assert review(TF, copy.deepcopy(bad), bad) == Ruling((), (TWO,))
    ruling = review(TF, worse, bad)
    assert [text.split(":")[0] for text in texts(ruling)] == ["spec.runPolicy.backoffLimit"]
    assert ruling.warnings == (TWO,)


def test_a_job_on_its_way_out_is_let_go():
    """Its finalizers can be taken away whatever its spec says."""
    bad = tfjob(Chief=1, Master=1)
    bad["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    assert review(TF, bad, tfjob()) == Ruling()


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
@pytest.mark.parametrize("kind", FRAMEWORKS)
def test_the_manager_does_not_change(kind, version):
    """Not set, unset, or changed: of every kind."""
    ours = "kubeflow.org/training-operator"
    roles = {"XGBoostJob": {"Master": 1}}.get(kind, {})

    def managed_by(manager):
        policy = {"managedBy": manager} if manager else None
        if kind == "MPIJob":
            return mpijob(version, policy=policy)
        return of_kind(kind, Worker=1, policy=policy, **roles)

    if (kind, version) == ("MPIJob", "v2beta1"):
        ours = "kubeflow.org/mpi-operator"
    theirs = "kueue.x-k8s.io/multikueue"
    shown = {None: "null", ours: f'"{ours}"', theirs: f'"{theirs}"'}
    for before, after in ((ours, None), (None, ours), (ours, theirs), (theirs, ours)):
        found = review(FRAMEWORKS[kind], managed_by(after), managed_by(before))
        text = f"spec.runPolicy.managedBy: Invalid value: {shown[after]}: field is immutable"
        assert texts(found) == [text]
    assert not review(FRAMEWORKS[kind], managed_by(ours), managed_by(ours)).problems


def test_what_is_overruled_or_deprecated_is_a_warning():
    """It is let in, and said."""
    both = tfjob(policy={"backoffLimit": 1}, spec={"backoffLimit": 2})
    assert review(TF, both).warnings == (
        "spec.backoffLimit is ignored because spec.runPolicy.backoffLimit is set",
    )
    old = of_kind("PyTorchJob", Worker=1, spec={"elasticPolicy": {"nProcPerNode": 2}})
    assert review(FRAMEWORKS["PyTorchJob"], old).warnings == (
        "spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead",
    )


def test_garbage_is_refused_and_does_not_raise():
    """Whatever is sent."""
    for garbage in (None, [], "x", {"spec": 1, "metadata": []}):
        assert review(TF, garbage).problems
        assert bool(review(TF, garbage, garbage).problems) == (garbage is None)


def test_a_job_in_the_operators_own_namespace():
    """Its pods could name the operator's account as theirs."""
    said = "metadata.namespace: Forbidden: team is the operator's own namespace"
    (problem,) = review(TF, tfjob(), site=Site(home="team")).problems
    assert str(problem).startswith(said)
    assert review(TF, tfjob(), site=Site(home="muster-system")) == Ruling()


def test_a_level_of_the_topology_that_is_no_label():
    """On the job and on its templates, with the place named."""
    job = tfjob(Worker=1, Chief=1)
    job["metadata"]["annotations"] = {"muster.kubeflow.org/topology-required": "my rack"}
    template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": ""}}
    assert [text.split(": ")[0] for text in texts(review(TF, job))] == [
        "metadata.annotations[muster.kubeflow.org/topology-required]",
        f"{WORKER}.metadata.annotations[kueue.x-k8s.io/podset-preferred-topology]",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Worker", 'Invalid value: "Worker": write roles and numbers, e.g. "Master=1,Worker=3"'),
        ("Worker=1,worker=2", 'Duplicate value: "worker": a role stands there once'),
        ("ps=1", 'Unsupported value: "ps": supported values: "Chief", "Worker"'),
        ("Worker=4", "Invalid value: 4: must be less than or equal to the 3 replicas of Worker"),
    ],
)
def test_a_minimum_of_each_role_that_cannot_be(text, said):
    """What is wrong, with the annotation named."""
    job = tfjob(Worker=3, Chief=1)
    job["metadata"]["annotations"] = {LEASTS: text}
    assert texts(review(TF, job)) == [f"metadata.annotations[{LEASTS}]: {said}"]


def test_two_minimums():
    """Their sum is the gang's: another number beside it would be a second answer."""
    job = tfjob(Worker=3, Chief=1, policy={"schedulingPolicy": {"minAvailable": 2}})
    job["metadata"]["annotations"] = {LEASTS: "Chief=1, worker=2"}
    (said,) = texts(review(TF, job))
    assert said.endswith("Invalid value: 3 in all: runPolicy.schedulingPolicy.minAvailable is 2")
    job["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] = 3
    assert review(TF, job) == Ruling()


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
    job, field = load(SORTS[sort], document), SORTS[sort].spec_field
    asked = HUGE + len(document["spec"][field]) - 1
    (message,) = problems(document)
    assert message == (
        f"spec.{field}: Invalid value: {asked}: must be less than or equal to "
        f"{MAX_REPLICAS} pods in all"
    )
    assert job.replicas
    assert list(job.pod_names(job.replicas)) == []


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
    # A mistake in one role does not hide the size of another role.
    assert problems(tfjob(PS=-HUGE, Worker=HUGE))
