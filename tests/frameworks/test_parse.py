# SPDX-License-Identifier: Apache-2.0
"""From a document to a job: normalised, defaulted, never raising."""

import re
from dataclasses import replace

import pytest

from muster.api import crds, schema
from muster.api.model import Notice
from muster.frameworks import FRAMEWORKS, load
from muster.frameworks.loading import fold
from support.apiserver.memory import tfjob

TF = FRAMEWORKS["TFJob"]


def problems(document):
    """Return the texts of what is wrong with a document."""
    return [str(problem) for problem in load(TF, document).problems]


def with_role(**role):
    """Return a TFJob whose worker role has these fields."""
    return tfjob(Worker=role)


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_template_of_too_many_containers(field):
    """Of all kinds together at most 64; more is told with the number."""
    document = tfjob(Worker=1)
    spec = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    more = [{"name": f"c{i}", "image": "i"} for i in range(64 - len(spec["containers"]))]
    spec[field] = [*spec.get(field, ()), *more]
    assert not problems(document)
    spec[field].append({"name": "last", "image": "i"})
    (text,) = problems(document)
    assert text.endswith(
        "[Worker].template.spec.containers: Too many: 65: "
        "must have at most 64 containers, with those of initContainers"
    )


@pytest.mark.parametrize("part", ["requests", "limits"])
def test_a_template_of_too_many_resources(part):
    """By whatever part of it they are named."""
    document = tfjob(Worker=1)
    spec = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = spec["containers"]
    spec["resources"] = {"requests": {"cpu": "1"}}
    container["resources"] = {part: {f"example.com/r{i}": "1" for i in range(63)}}
    assert not problems(document)
    container["resources"][part]["example.com/last"] = "1"
    assert problems(document) == [
        "spec.tfReplicaSpecs[Worker].template.spec: Too many: 65: must have at most 64 resources"
    ]


@pytest.mark.parametrize(
    ("part", "field", "what"),
    [("metadata", "labels", "labels"), ("spec", "nodeSelector", "entries")],
)
def test_a_template_of_too_many_labels(part, field, what):
    """Each of its pods would be kept with all of them."""
    document = tfjob(Worker=1)
    template = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    many = template.setdefault(part, {})[field] = {f"l{i}": "v" for i in range(256)}
    assert not problems(document)
    many["last"] = "v"
    container = template["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "much"}}
    assert len(problems(document)) == 2, "what it asks for is looked at all the same"
    del container["resources"]
    (text,) = problems(document)
    assert text == (
        f"spec.tfReplicaSpecs[Worker].template.{part}.{field}: "
        f"Too many: 257: must have at most 256 {what}"
    )


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
TERM_LISTS = (
    ("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"),
    ("affinity", "nodeAffinity", PREFERRED),
    ("affinity", "podAffinity", REQUIRED),
    ("affinity", "podAffinity", PREFERRED),
    ("affinity", "podAntiAffinity", REQUIRED),
    ("affinity", "podAntiAffinity", PREFERRED),
    ("topologySpreadConstraints",),
    ("tolerations",),
)


def with_terms(path, terms):
    """Return a TFJob whose worker template has these terms at that path of its spec."""
    document = tfjob(Worker=1)
    spec = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    for key in path[:-1]:
        spec = spec.setdefault(key, {})
    spec[path[-1]] = terms
    return document


@pytest.mark.parametrize("path", TERM_LISTS, ids=".".join)
def test_template_with_more_than_64_terms_of_one_kind_is_invalid(path):
    """The error names the field, the number of terms and the limit."""
    assert not problems(with_terms(path, [{}] * 64))
    (error,) = problems(with_terms(path, [{}] * 1500))
    assert error == (
        f"spec.tfReplicaSpecs[Worker].template.spec.{'.'.join(path)}: "
        "Too many: 1500: must have at most 64 items"
    )


REQUIREMENTS = [{"key": "a", "operator": "Exists"}] * 128


@pytest.mark.parametrize(
    ("path", "term"),
    [
        (TERM_LISTS[0], {"matchExpressions": REQUIREMENTS, "matchFields": REQUIREMENTS}),
        (TERM_LISTS[1], {"preference": {"matchExpressions": REQUIREMENTS * 2}}),
        (
            TERM_LISTS[2],
            {
                "labelSelector": {"matchExpressions": REQUIREMENTS},
                "namespaceSelector": {"matchExpressions": REQUIREMENTS},
            },
        ),
        (
            TERM_LISTS[3],
            {
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {f"l{i}": "v" for i in range(128)}},
                    "matchLabelKeys": ["a"] * 64,
                    "mismatchLabelKeys": ["b"] * 64,
                }
            },
        ),
        (TERM_LISTS[6], {"labelSelector": {"matchExpressions": REQUIREMENTS * 2}}),
    ],
    ids=["node", "node preferred", "pod", "pod preferred", "spread"],
)
def test_terms_with_more_than_256_requirements_are_invalid(path, term):
    """Requirements are counted over all terms of one kind, wherever a term has them."""
    assert not problems(with_terms(path, [term]))
    (error,) = problems(with_terms(path, [term, term]))
    assert error == (
        f"spec.tfReplicaSpecs[Worker].template.spec.{'.'.join(path)}: "
        "Too many: 512: must have at most 256 label requirements in all items"
    )


def test_values_and_namespaces_of_a_term_are_not_limited():
    """A term that names many nodes or namespaces is one comparison with each pod or node."""
    many = [f"n{i}" for i in range(5000)]
    names = {"key": "kubernetes.io/hostname", "operator": "In", "values": many}
    assert not problems(with_terms(TERM_LISTS[0], [{"matchExpressions": [names]}]))
    assert not problems(with_terms(TERM_LISTS[4], [{"namespaces": many, "topologyKey": "zone"}]))


@pytest.mark.parametrize("field", ["ports", "volumes"])
def test_template_with_more_than_256_ports_or_volumes_is_invalid(field):
    """Ports are counted over all containers, as each pod is stored with all of them."""
    document = tfjob(Worker=1)
    spec = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    first, other = spec["containers"][0], {"name": "other", "image": "i", "ports": []}
    spec["containers"].append(other)
    many = (first if field == "ports" else spec)[field] = [
        {"name": f"x{i}", "containerPort": i + 1} for i in range(256)
    ]
    assert not problems(document)
    (other["ports"] if field == "ports" else many).append({"name": "y", "containerPort": 1})
    where = "spec.containers" if field == "ports" else "spec.volumes"
    (text,) = problems(document)
    assert text == (
        f"spec.tfReplicaSpecs[Worker].template.{where}: "
        f"Too many: 257: must have at most 256 {field}"
    )


def test_defaults():
    """One replica, never restarted, no clean-up."""
    job = load(TF, with_role())
    (worker,) = job.replicas
    assert (worker.replicas, worker.restart_policy) == (1, "Never")
    assert job.run_policy.clean_pod_policy == "None"
    assert job.options == {"successPolicy": "", "enableDynamicWorker": False}
    assert not job.problems


def test_keys_in_any_case_come_in_canonical_order():
    """Roles are found by any spelling and listed chief first."""
    document = tfjob(worker=2, EVALUATOR=1, chief=1, ps=1)
    assert [r.type for r in load(TF, document).replicas] == ["Chief", "PS", "Worker", "Evaluator"]


@pytest.mark.parametrize(
    ("spec", "policy", "ignored"),
    [
        ({}, {}, ()),
        ({"runPolicy": None}, {}, ()),
        ({"cleanPodPolicy": "All"}, {"cleanPodPolicy": "All"}, ()),
        (
            {"backoffLimit": 0, "runPolicy": {"suspend": True}},
            {"backoffLimit": 0, "suspend": True},
            (),
        ),
        (
            {"cleanPodPolicy": "All", "runPolicy": {"cleanPodPolicy": "None"}},
            {"cleanPodPolicy": "None"},
            ("cleanPodPolicy",),
        ),
        ({"backoffLimit": 3, "runPolicy": {"backoffLimit": 3}}, {"backoffLimit": 3}, ()),
        ({"backoffLimit": 3, "runPolicy": {"backoffLimit": None}}, {"backoffLimit": 3}, ()),
        ({"successPolicy": "AllWorkers"}, {}, ()),
    ],
)
def test_old_fields_fill_the_run_policy(spec, policy, ignored):
    """The run policy wins, and what it overrules with another value is named."""
    before = repr(spec)
    assert fold(TF.api.old_policy, spec) == (policy, ignored)
    assert repr(spec) == before


def test_a_kind_without_a_past_keeps_its_run_policy():
    """Only listed fields of listed kinds are old."""
    spec = {"cleanPodPolicy": "All", "runPolicy": {"suspend": True}}
    assert fold(FRAMEWORKS["JAXJob"].api.old_policy, spec) == ({"suspend": True}, ())


@pytest.mark.parametrize(
    ("field", "wins", "old"),
    [
        ("cleanPodPolicy", "All", "Running"),
        ("ttlSecondsAfterFinished", 1, 2),
        ("activeDeadlineSeconds", 1, 2),
        ("backoffLimit", 1, 2),
    ],
)
def test_the_run_policy_wins_over_an_old_field(field, wins, old):
    """And the author is told."""
    job = load(TF, tfjob(policy={field: wins}, spec={field: old}))
    snake = re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", field)
    assert getattr(job.run_policy, snake) == wins
    text = f"spec.{field} is ignored because spec.runPolicy.{field} is set"
    assert job.notices == (Notice("Warning", "LegacyFieldIgnored", text),)


def test_an_empty_clean_up_is_none_given():
    """As it always was; also where an old field says what is meant."""
    for spec, kept in (
        ({"runPolicy": {"cleanPodPolicy": ""}}, "None"),
        ({"cleanPodPolicy": ""}, "None"),
        ({"cleanPodPolicy": "All", "runPolicy": {"cleanPodPolicy": ""}}, "All"),
    ):
        document = tfjob()
        document["spec"] |= spec
        job = load(TF, document)
        assert (job.problems, job.notices) == ((), ())
        assert job.run_policy.clean_pod_policy == kept
        assert not list(schema.problems(crds.job_spec(TF.api, "v1"), document["spec"], ""))


def test_a_quantity_that_is_none():
    """It is found before anything computes with it."""
    container = {"name": "tensorflow", "image": "i", "resources": {"limits": {"cpu": "much"}}}
    (text,) = problems(with_role(template={"spec": {"containers": [container]}}))
    path = "spec.tfReplicaSpecs[Worker].template.spec"
    assert text.startswith(f"{path}.containers[0].resources: Invalid value: ")
    init = {"name": "i", "image": "i", "resources": {"requests": {"cpu": "-1"}}}
    both = {"containers": [{"name": "tensorflow", "image": "i"}], "initContainers": [init]}
    (text,) = problems(with_role(template={"spec": both}))
    assert text.startswith(f'{path}.initContainers[0].resources: Invalid value: "-1" is negative')
    (text,) = problems(with_role(template={"spec": {**both, "overhead": {"cpu": "much"}}}))
    assert text.startswith(f"{path}.initContainers[0].resources: ")
    both = {**both, "initContainers": [], "overhead": {"cpu": "much"}}
    (text,) = problems(with_role(template={"spec": both}))
    assert text.startswith(f"{path}: Invalid value: ")
    many = {"containers": [{"name": "tensorflow", "image": "i", "env": [{}] * 2000}]}
    assert len(problems(with_role(template={"spec": many}))) == 1000
    (text,) = problems(with_role(template={"spec": {**both, "initContainers": 5}}))
    assert text.startswith(f"{path}: Invalid value: ")
    (text,) = problems(tfjob(policy={"schedulingPolicy": {"minResources": {"cpu": "much"}}}))
    assert text.startswith("spec.runPolicy.schedulingPolicy.minResources[cpu]: Invalid value: ")


def test_what_the_rules_of_a_kind_do_not_foresee_is_a_problem_of_the_job():
    """It is Invalid and says why; whoever asks for all jobs gets the others."""

    def check(_spec, _job):
        raise KeyError("Worker")

    document = {"metadata": {"name": "a"}, "spec": tfjob(Worker=1)["spec"]}
    job = load(replace(TF, spec=replace(TF.spec, check=check)), document)
    found = job.name, list(map(str, job.problems))
    assert found == ("a", ["cannot be read: KeyError: 'Worker'"])
