# SPDX-License-Identifier: Apache-2.0
"""One service for all pods of a job: names that resolve, few writes, no change while it runs."""

import copy
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import names
from muster.controller.model import Context, Create, Delete
from muster.frameworks import FRAMEWORKS
from muster.frameworks.loading import review
from support.apiserver.memory import World, of_kind, tfjob
from support.builders.mpijobs import SECRETS, mpijob
from support.builders.objects import make_template, reference

ASKED = {names.SERVICE: names.SERVICE_OF_JOB}
HOST = re.compile(
    r"\bmnist-(?:chief|master|ps|worker|evaluator|launcher)\b(?:-\d+)?(?:\.[a-z.]*\w)?"
)
ROLES = {
    "TFJob": ("Chief", "PS", "Worker", "Evaluator"),
    "PyTorchJob": ("Master", "Worker"),
    "XGBoostJob": ("Master", "Worker"),
    "PaddleJob": ("Master", "Worker"),
    "JAXJob": ("Worker",),
}
SINGLE = {"Chief", "Master"}
ELASTIC = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}


@st.composite
def jobs(draw):
    """Draw a job of any kind that names hosts to its pods, and asks for one service or not."""
    notes = dict(draw(st.sampled_from(({}, ASKED))))
    notes |= draw(st.sampled_from(({}, {names.SHARED_ENVIRONMENT: names.ALWAYS})))
    kind = draw(st.sampled_from((*ROLES, "MPIJob")))
    if kind == "MPIJob":
        doubles = draw(st.booleans())
        made = mpijob("v2beta1", workers=draw(st.integers(1, 3)), runLauncherAsWorker=doubles)
        made["metadata"]["annotations"] = notes
        return made
    spec = {}
    if kind == "TFJob":
        spec = {"enableDynamicWorker": draw(st.booleans())}
    elif kind == "PyTorchJob":
        spec = draw(st.sampled_from(({}, ELASTIC)))
    # Workers of a PyTorchJob alone are told of each other only if they are elastic.
    leads = kind == "XGBoostJob" or (kind == "PyTorchJob" and not spec)
    needed = "Master" if leads else "Worker"
    roles = [r for r in ROLES[kind] if r == needed or draw(st.booleans())]
    if "Master" in roles and "Worker" not in roles:
        roles.append("Worker")
    counts = {r: 1 if r in SINGLE else draw(st.integers(1, 3)) for r in roles}
    return of_kind(kind, annotations=notes, spec=spec, **counts)


def told(world):
    """Return the names of hosts in what the pods are given, wherever it stands."""
    specs = [pod["spec"] for pod in world.of("Pod")]
    specs += [batch["spec"]["template"]["spec"] for batch in world.of("Job")]
    texts = [
        json.dumps([container.get(field) for field in ("env", "command")])
        for spec in specs
        for container in (*spec["containers"], *spec.get("initContainers", ()))
    ]
    texts += [text for config in world.of("ConfigMap") for text in config["data"].values()]
    return {found for text in texts for found in HOST.findall(text)}


def resolved(world, host, domain):
    """Return the names of the pods that the cluster's DNS would answer with."""
    short = host.removesuffix(f".team.svc.{domain}" if domain else ".team.svc")
    first, _, second = short.partition(".")
    service = world.objects["Service", second or first]
    selector = service["spec"]["selector"]
    pods = [(p["metadata"], p["spec"]) for p in world.of("Pod")]
    for batch in world.of("Job"):
        template = batch["spec"]["template"]
        pods.append(
            ({**template["metadata"], "name": batch["metadata"]["name"]}, template["spec"])
        )
    behind = [(m, s) for m, s in pods if selector.items() <= m["labels"].items()]
    if not second:
        return [meta["name"] for meta, _ in behind]
    wanted = {"hostname": first, "subdomain": second}
    return [meta["name"] for meta, spec in behind if wanted.items() <= spec.items()]


@settings(max_examples=settings().max_examples // 2)
@given(document=jobs(), domain=st.sampled_from(("", "cluster.local")))
def test_every_name_that_a_pod_is_told_is_one_pod_of_its_job(document, domain):
    """Whatever the kind, its options, and how many services it has."""
    world = World(document, context=Context(cluster_domain=domain), secrets=SECRETS).settle()
    assert world.status.get("state") != "Invalid", world.status
    pods = set(world.names()) | set(world.names("Job"))
    hosts = told(world)
    for host in hosts:
        assert resolved(world, host, domain) == [host.partition(".")[0]]
        assert host.partition(".")[0] in pods
    if len(pods) > 1:
        assert hosts
    one = ASKED.items() <= document["metadata"].get("annotations", {}).items()
    if one or document["kind"] == "MPIJob":
        assert world.names("Service") == ["mnist"]
        assert all("." in host for host in hosts)
    else:
        assert set(world.names("Service")) == pods


@pytest.mark.parametrize("kind", ROLES)
def test_one_service_comes_before_the_pods_and_selects_all(kind):
    """Headless, without ports, with the job's labels; it names what is ready, as others do."""
    world = World(of_kind(kind, annotations=ASKED, **dict.fromkeys(ROLES[kind][-2:], 1))).settle()
    creates = [w.doc for w in world.writes if isinstance(w, Create)]
    kinds = [doc["kind"] for doc in creates]
    assert kinds.count("Service") == 1
    assert kinds.index("Service") < kinds.index("Pod")
    (service,) = world.of("Service")
    own = {names.OPERATOR_NAME: FRAMEWORKS[kind].operator.name, names.JOB_NAME: "mnist"}
    spec = {"clusterIP": "None", "selector": own, "publishNotReadyAddresses": False}
    assert service["spec"] == spec
    assert service["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    for pod in world.of("Pod"):
        placed = {"hostname": pod["metadata"]["name"], "subdomain": "mnist"}
        assert placed.items() <= pod["spec"].items()


def services(world, before):
    """Return the writes on services since then: verb and name."""
    found = []
    for write in world.writes[before:]:
        kind = write.doc["kind"] if isinstance(write, Create) else getattr(write, "kind", "")
        if kind == "Service":
            name = write.doc["metadata"]["name"] if isinstance(write, Create) else write.name
            found.append((type(write).__name__, name))
    return found


def test_nothing_is_written_of_it_after_it_was_made():
    """Not for restarts, growth, shrinking, suspension, resumption, nor the end."""
    worker = of_kind("TFJob", Worker=3)["spec"]["tfReplicaSpecs"]["Worker"]
    exits = {"Worker": {**worker, "restartPolicy": "ExitCode"}}
    world = World(tfjob(annotations=ASKED, policy={"cleanPodPolicy": "All"}, **exits)).settle()
    before = len(world.writes)
    world.start().settle().end("mnist-worker-1", 137)
    world.settle().reap().settle()
    assert len(world.names()) == 3
    for count in (5, 2):
        world.edit(tfReplicaSpecs={"Worker": {**exits["Worker"], "replicas": count}})
        world.settle().reap().settle()
    for suspend in (True, False):
        world.edit(runPolicy={"suspend": suspend, "cleanPodPolicy": "All"}).settle().reap()
        world.settle()
    assert len(world.names()) == 2
    world.end("mnist-worker-0", 0).settle()
    assert "Succeeded T" in world.conditions
    assert services(world, before) == []


@pytest.mark.parametrize(("first", "then"), [({}, ASKED), (ASKED, {})])
def test_a_job_keeps_the_names_that_its_pods_know(first, then):
    """Also for those that are made later; once none is left, it gets what it asks by then."""
    world = World(tfjob(annotations=first, Worker=2)).settle()
    pods, had = copy.deepcopy(world.of("Pod")), world.names("Service")
    before = len(world.writes)
    world.job["metadata"]["annotations"] = dict(then)
    world.settle()
    assert services(world, before) == []
    world.lose("mnist-worker-0").settle()

    def spec(of):
        return {pod["metadata"]["name"]: pod["spec"] for pod in of}

    assert spec(world.of("Pod")) == spec(pods)
    assert services(world, before) == []
    for suspend in (True, False):
        world.edit(runPolicy={"suspend": suspend}).settle().reap().settle()
    assert sorted(world.names("Service")) == (
        ["mnist"] if then else ["mnist-worker-0", "mnist-worker-1"]
    )
    assert world.names("Service") != had
    assert all(("subdomain" in pod["spec"]) == bool(then) for pod in world.of("Pod"))
    assert any(write[0] == "Delete" for write in services(world, before))


def test_it_is_made_again_and_mended():
    """Somebody deleted it, or turned it to other pods."""
    world = World(tfjob(annotations=ASKED, Worker=2)).settle()
    made = copy.deepcopy(world.of("Service")[0]["spec"])
    del world.objects["Service", "mnist"]
    world.settle()
    world.objects["Service", "mnist"]["spec"]["selector"] = {"app": "other"}
    world.settle()
    assert world.objects["Service", "mnist"]["spec"] == made


@pytest.mark.parametrize("notes", [{}, ASKED])
def test_a_service_of_somebody_else_is_in_the_way_only_if_it_is_wanted(notes):
    """Many have a service of their job's name by themselves."""
    world = World(tfjob(annotations=notes, Worker=1))
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "mnist", "namespace": "team", "uid": "x"},
    }
    owner = reference(uid="other", kind="Deployment", name="mnist", api_version="apps/v1")
    theirs["metadata"]["ownerReferences"] = [owner]
    world.objects["Service", "mnist"] = copy.deepcopy(theirs)
    world.settle()
    assert world.objects["Service", "mnist"] == theirs
    assert world.names() == ([] if notes else ["mnist-worker-0"])
    if notes:
        assert world.status["state"] == "Blocked"
    assert not [w for w in world.writes if isinstance(w, Delete)]


def test_a_job_of_its_users_own_names_is_no_such_job():
    """A template may bring a subdomain of the job's name."""
    template = make_template(subdomain="mnist")
    world = World(tfjob(Worker={"replicas": 2, "template": template})).settle()
    assert world.names("Service") == ["mnist-worker-0", "mnist-worker-1"]
    before = len(world.writes)
    assert services(world.settle(), before) == []


FIELDS = "spec.tfReplicaSpecs[Worker].template.spec"


@pytest.mark.parametrize(
    ("spec", "name", "path"),
    [
        ({"hostname": "mine"}, "mnist", f"{FIELDS}.hostname"),
        ({"subdomain": "mine"}, "mnist", f"{FIELDS}.subdomain"),
        ({"setHostnameAsFQDN": True}, "m" * 16, f"{FIELDS}.setHostnameAsFQDN"),
        ({"setHostnameAsFQDN": True}, "mnist", ""),
        ({}, "m" * 55, "metadata.name"),
    ],
)
def test_what_templates_say_of_names_is_a_problem_only_with_it(spec, name, path):
    """The webhook says so when the job is applied, with the field."""
    containers = [{"name": "tensorflow", "image": "i"}]
    role = {"replicas": 2, "template": {"spec": {"containers": containers, **spec}}}
    asked = tfjob(name=name, annotations=ASKED, Worker=role)
    found = [problem.path for problem in review(FRAMEWORKS["TFJob"], asked).problems]
    assert found == ([path] if path else [])
    without = review(FRAMEWORKS["TFJob"], tfjob(name=name, Worker=role)).problems
    assert [p.path for p in without] == [path for path in found if path == "metadata.name"]


def test_another_value_is_refused():
    """There is one that it can have."""
    (problem,) = review(FRAMEWORKS["TFJob"], tfjob(annotations={names.SERVICE: "jobs"})).problems
    assert str(problem) == (
        f'metadata.annotations[{names.SERVICE}]: Unsupported value: "jobs": '
        'supported values: "job"'
    )
