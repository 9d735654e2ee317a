# SPDX-License-Identifier: Apache-2.0
"""TF_CONFIG, byte for byte, and what only a TFJob demands."""

import json

import pytest

from muster.frameworks import Site, load
from muster.frameworks.base import LONGEST_VARIABLE
from muster.frameworks.tensorflow import TENSORFLOW
from support.apiserver.memory import tfjob


def job_of(*, name="j", namespace="ns", domain="", **kwargs):
    """Return the parsed job."""
    document = tfjob(name=name, **kwargs)
    document["metadata"]["namespace"] = namespace
    return load(TENSORFLOW, document, Site(domain))


def told(job, type_, index, domain=""):
    """Return the environment of one pod as name -> value."""
    environment = TENSORFLOW.pods.environment(job, job.replica(type_), domain)
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in environment.entries(index)}


def test_the_cluster_in_full():
    """Every role is listed, in alphabetical order, then the task, then the environment."""
    job = job_of(Worker=2, Chief=1, PS=1)
    assert told(job, "Worker", 1) == {
        "TF_CONFIG": '{"cluster":{"chief":["j-chief-0.ns.svc:2222"],"ps":["j-ps-0.ns.svc:2222"],'
        '"worker":["j-worker-0.ns.svc:2222","j-worker-1.ns.svc:2222"]},'
        '"task":{"type":"worker","index":1},"environment":"cloud"}'
    }


@pytest.mark.parametrize(
    ("leads", "domain"), [("PS", ".tf.training.org"), ("Chief", ""), ("Evaluator", "")]
)
def test_roles_of_one_pod_are_a_cluster_in_the_domain(leads, domain):
    """The operator's domain follows svc, and a job of one pod has no cluster."""
    job, roles = job_of(namespace="ns2", Worker=1, **{leads: 1}), (leads.lower(), "worker")
    value = json.loads(told(job, "Worker", 0, domain.removeprefix("."))["TF_CONFIG"])
    assert value["cluster"] == {role: [f"j-{role}-0.ns2.svc{domain}:2222"] for role in roles}
    assert told(job_of(Worker=1), "Worker", 0) == {}


def test_a_role_without_pods_is_listed_empty():
    """No servers are an empty list, not null, also beside dynamic workers."""
    for more in {"PS": 0}, {"spec": {"enableDynamicWorker": True}}:
        value = json.loads(told(job_of(Worker=2, **more), "Worker", 0)["TF_CONFIG"])
        assert value["cluster"]["ps"] == []


def test_the_ports_are_those_of_the_containers():
    """A container port named tfjob-port is the role's port."""
    container = {
        "name": "tensorflow",
        "image": "i",
        "ports": [{"containerPort": 1}, {"name": "tfjob-port", "containerPort": 7777}],
    }
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    value = json.loads(told(job_of(PS=role, Worker=1), "Worker", 0)["TF_CONFIG"])
    assert value["cluster"]["ps"] == ["j-ps-0.ns.svc:7777"]
    assert value["cluster"]["worker"] == ["j-worker-0.ns.svc:2222"]


SPARSE = {
    ("Worker", 1): '{"cluster":{"worker":{"1":"j-worker-1.ns.svc:2222"},'
    '"ps":["j-ps-0.ns.svc:2222"]},"task":{"type":"worker","index":1}}',
    ("PS", 0): '{"cluster":{"worker":{},"ps":["j-ps-0.ns.svc:2222"]},'
    '"task":{"type":"ps","index":0}}',
    ("Evaluator", 0): '{"cluster":{"worker":{},"ps":[]},"task":{"type":"evaluator","index":0}}',
}


@pytest.mark.parametrize(("type_", "index"), SPARSE)
def test_dynamic_workers_are_told_little(type_, index):
    """Each is told of itself, workers also of the servers; no environment."""
    job = job_of(PS=1, Worker=2, Evaluator=1, spec={"enableDynamicWorker": True})
    assert told(job, type_, index) == {"TF_CONFIG": SPARSE[type_, index]}


@pytest.mark.parametrize(("workers", "shared"), [(31, False), (32, True)])
def test_a_large_cluster_is_stored_once(workers, shared):
    """Above 32 replicas the cluster stands in a ConfigMap; the kubelet puts it together."""
    job = job_of(PS=1, Worker=workers)
    env = told(job, "Worker", 1)
    configs = TENSORFLOW.pods.configs(job, "")
    assert list(env) == (["MUSTER_TF_CLUSTER"] if shared else []) + ["TF_CONFIG"]
    assert list(configs) == (["j-tf-config"] if shared else [])
    if shared:
        reference = {"name": "j-tf-config", "key": "cluster"}
        assert env["MUSTER_TF_CLUSTER"] == {"configMapKeyRef": reference}
        cluster = configs["j-tf-config"]["cluster"]
        whole = env["TF_CONFIG"].replace("$(MUSTER_TF_CLUSTER)", cluster)
    else:
        whole = env["TF_CONFIG"]
    addresses = [f"j-worker-{i}.ns.svc:2222" for i in range(workers)]
    cluster = {"ps": ["j-ps-0.ns.svc:2222"], "worker": addresses}
    wanted = {"cluster": cluster, "task": {"type": "worker", "index": 1}, "environment": "cloud"}
    assert whole == json.dumps(wanted, separators=(",", ":"))


INLINE = {"muster.kubeflow.org/shared-environment": "inline"}


def test_a_large_cluster_stands_in_the_pods_if_the_author_wants_it():
    """Webhooks and tools that read TF_CONFIG in a pod's spec find it whole, as it was."""
    job = job_of(PS=1, Worker=40, annotations=INLINE)
    ((name, value),) = told(job, "Worker", 1).items()
    found = name, json.loads(value)["cluster"]["worker"][39]
    assert found == ("TF_CONFIG", "j-worker-39.ns.svc:2222")
    assert TENSORFLOW.pods.configs(job, "") == {}
    assert told(job_of(Worker=2, annotations=INLINE), "Worker", 1) == told(
        job_of(Worker=2), "Worker", 1
    )


def test_a_small_cluster_stands_in_a_config_map_if_the_author_wants_it():
    """To see what a large job would get."""
    job = job_of(Worker=2, annotations={"muster.kubeflow.org/shared-environment": "always"})
    assert "$(MUSTER_TF_CLUSTER)" in told(job, "Worker", 1)["TF_CONFIG"]
    assert list(TENSORFLOW.pods.configs(job, "")) == ["j-tf-config"]


def test_a_variable_that_linux_does_not_take_is_a_problem():
    """The longest TF_CONFIG is measured with its name; one byte decides."""
    sizes = [n for n in range(2000, 5000, 100) if not job_of(Worker=n).problems]
    fits = sizes[-1]
    while not job_of(Worker=fits + 1).problems:
        fits += 1
    value = told(job_of(Worker=fits), "Worker", fits - 1)["TF_CONFIG"]
    cluster = TENSORFLOW.pods.configs(job_of(Worker=fits), "")["j-tf-config"]["cluster"]
    length = len(f"TF_CONFIG={value}".replace("$(MUSTER_TF_CLUSTER)", cluster)) + 1
    one_more = len(f',"j-worker-{fits}.ns.svc:2222"')
    assert length <= LONGEST_VARIABLE < length + one_more
    (problem,) = job_of(Worker=fits + 1).problems
    assert problem.path == "spec.tfReplicaSpecs"
    assert "TF_CONFIG would take" in problem.detail


def test_the_domain_counts_for_the_limit():
    """A long cluster domain makes each address longer."""
    assert not job_of(Worker=3000).problems
    assert job_of(Worker=3000, domain="training.example.org").problems


MASTERS = [
    ({"Chief": 1, "Worker": 2}, "Chief", 0, True),
    ({"Chief": 1, "Worker": 2}, "Worker", 0, False),
    ({"Master": 1, "Worker": 2}, "Master", 0, True),
    ({"PS": 1, "Worker": 2}, "Worker", 0, True),
    ({"PS": 1, "Worker": 2}, "Worker", 1, False),
    ({"PS": 1, "Worker": 2}, "PS", 0, False),
]


@pytest.mark.parametrize(("roles", "type_", "index", "master"), MASTERS)
def test_who_is_the_master(roles, type_, index, master):
    """Chief or Master, else worker 0."""
    job = job_of(**roles)
    assert TENSORFLOW.roles.is_master(job, job.replica(type_), index) is master


BAD = [
    (
        {"Chief": 1, "Master": 1},
        {},
        "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role",
    ),
    ({"Chief": 2}, {}, "spec.tfReplicaSpecs[Chief].replicas: Forbidden: must be 1"),
    (
        {"Worker": 1},
        {"successPolicy": "SomeWorkers"},
        'spec.successPolicy: Unsupported value: "SomeWorkers": supported values: "", "AllWorkers"',
    ),
]


@pytest.mark.parametrize(("roles", "spec", "text"), BAD)
def test_what_only_a_tfjob_demands(roles, spec, text):
    """The problem is told in the words of a field error."""
    assert [str(problem) for problem in job_of(**roles, spec=spec).problems] == [text]
