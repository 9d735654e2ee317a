# SPDX-License-Identifier: Apache-2.0
"""What `muster render` prints, and what it says of a file that cannot be meant."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from muster import cli, gang
from muster.api import manifest
from muster.api.names import MANAGED_BY_MULTIKUEUE
from muster.commands import render
from muster.controller.model import Context
from muster.frameworks import FRAMEWORKS, load
from support.apiserver.memory import World, of_kind, tfjob, unbound

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def written(folder, *documents):
    """Return the path of a file with these documents."""
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def rendered(capsys, *words):
    """Return the documents that the command printed; fail if it was not content."""
    assert cli.main(["render", *words]) == 0
    return list(yaml.load_all(capsys.readouterr().out, yaml.CSafeLoader))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("backend", gang.BACKENDS)
def test_every_example_becomes_a_gang_of_its_pods(capsys, example, backend):
    """All pods, a service each or one for all, and the group of the gang scheduler."""
    words = ["-f", str(example), f"--gang-scheduler-name={backend}"]
    found = Counter(document["kind"] for document in rendered(capsys, *words))
    text = example.read_text()
    jobs = [d for d in yaml.load_all(text, yaml.CSafeLoader) if d["kind"] in FRAMEWORKS]
    assert sum(found[kind] for kind in FRAMEWORKS) == len(jobs)
    assert found["Pod"] > 0
    loaded = [load(FRAMEWORKS[job["kind"]], job) for job in jobs]
    if all(FRAMEWORKS[job["kind"]].pods.services for job in jobs):
        assert found["Service"] == sum(1 if job.service else job.total for job in loaded)
    else:
        assert found["ConfigMap"] == len(jobs)
    assert bool(found["PodGroup"] + found["PodDisruptionBudget"]) == (backend != "none")


def test_jobs_of_one_generate_name_have_names_of_their_own(capsys, tmp_path):
    """As on the API server, so that the objects of each can be told apart."""
    job = tfjob(Worker=1)
    job["metadata"] = {"generateName": "mnist-"}
    found = rendered(capsys, "-f", written(tmp_path, job, job))
    pods = [each["metadata"]["name"] for each in found if each["kind"] == "Pod"]
    assert pods == ["mnist-00000-worker-0", "mnist-00001-worker-0"]


def test_examples_have_no_name_twice():
    """The whole folder is applied at once, and pods are named by their jobs."""
    found = [d for path in EXAMPLES for d in manifest.documents(path.read_bytes())]
    names = Counter(
        ("job" if each["kind"] in FRAMEWORKS else each["kind"], each["metadata"]["name"])
        for each in found
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_what_it_prints_is_what_the_operator_creates():
    """The same documents, in the same order, as in a world where passes are carried out."""
    document = of_kind("PyTorchJob", Master=1, Worker=2)
    document["metadata"]["uid"] = render.UID
    world = World(document, backend=gang.EMBEDDED, placements={})
    for placements in (unbound(world), dict.fromkeys(unbound(world), "a")):
        world.extra["placements"] = placements
        world.settle()
    shown = render.objects(FRAMEWORKS["PyTorchJob"], document, gang.EMBEDDED, Context())
    created = [write.doc for write in world.writes if type(write).__name__ == "Create"]
    assert shown[1:] == created


def test_the_job_is_shown_with_its_defaults(capsys, tmp_path):
    """Replicas, restart policy, port, clean-up, gang size and queue, in canonical spelling."""
    document = tfjob(worker={}, PS={"replicas": 2})
    job, *_ = rendered(capsys, "-f", written(tmp_path, document))
    roles = job["spec"]["tfReplicaSpecs"]
    assert list(roles) == ["PS", "Worker"]
    assert (roles["Worker"]["replicas"], roles["Worker"]["restartPolicy"]) == (1, "Never")
    (container,) = roles["Worker"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
    scheduling = {"schedulingPolicy": {"minAvailable": 3, "queue": "default"}}
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "suspend": False, **scheduling}
    assert job["spec"]["successPolicy"] == ""


def test_an_old_version_has_its_old_defaults(capsys, tmp_path):
    """As the API server would give them to what is applied in that version."""
    document = tfjob(Worker=1) | {"apiVersion": "kubeflow.org/v1beta1"}
    job, *_ = rendered(capsys, "-f", written(tmp_path, document))
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == "Running"


def test_flags_of_the_operator_shape_what_is_shown(capsys, tmp_path):
    """The gang scheduler, the cluster domain, the namespace."""
    path = written(tmp_path, tfjob(Worker=2))
    flags = ["--gang-scheduler-name=volcano", "--cluster-domain=example.org", "-n", "research"]
    _, group, pod, *_ = rendered(capsys, "-f", path, *flags)
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert pod["metadata"]["namespace"] == "research"
    assert pod["spec"]["schedulerName"] == "volcano"
    (entry,) = pod["spec"]["containers"][0]["env"]
    assert "mnist-worker-0.research.svc.example.org:2222" in entry["value"]
    job, *_ = rendered(capsys, "-f", path, "--gang-scheduler-name=kubernetes")
    assert job["spec"]["runPolicy"]["schedulingPolicy"] == {"minAvailable": 2}


def test_a_flag_says_how_large_a_job_has_a_config_map(capsys, tmp_path):
    """As in jobs of more than 32 pods without it."""
    path = written(tmp_path, tfjob(Worker=2))
    for most, kinds in (("2", 0), ("1", 1)):
        made = rendered(capsys, "-f", path, f"--shared-environment-above={most}")
        assert [document["kind"] for document in made].count("ConfigMap") == kinds


def test_job_above_the_limit_of_the_flag_is_refused(capsys, tmp_path):
    """The message is that of the operator."""
    path = written(tmp_path, tfjob(Worker=3))
    assert rendered(capsys, "-f", path, "--max-replicas-per-job=3")
    assert cli.main(["render", "-f", path, "--max-replicas-per-job=2"]) == 1
    assert "3: must be less than or equal to 2 pods in all" in capsys.readouterr().err


@pytest.mark.parametrize("policy", [{"suspend": True}, {"managedBy": MANAGED_BY_MULTIKUEUE}])
def test_suspended_job_is_shown_resumed_and_dispatched_job_alone(capsys, tmp_path, policy):
    """MultiKueue's jobs run in another cluster."""
    path = written(tmp_path, tfjob(policy=policy, Worker=2))
    kinds = [document["kind"] for document in rendered(capsys, "-f", path)]
    assert kinds.count("Pod") == 2 if "suspend" in policy else kinds == ["TFJob"]


NULLS = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {generateName: nulls-, labels: {team: }}
spec:
  runPolicy:
  pytorchReplicaSpecs:
    Master:
    Worker:
      replicas: 1.0
      template:
        metadata: {annotations: {a: ~}}
        spec:
          volumes: [{name: key, secret: {secretName: s, defaultMode: 0o600}}]
          containers:
          - name: pytorch
            image: x
            env: [{name: A, value: }]
            args: ["1e3", "y"]
            resources: {requests: {nvidia.com/gpu: 1, efa: }, limits: {nvidia.com/gpu: 1, efa: }}
"""


def test_nulls_are_dropped_as_the_api_server_drops_them(capsys, tmp_path):
    """Null fields are absent, null labels are empty, and numbers are those that kubectl sends."""
    path = tmp_path / "job.yaml"
    path.write_text(NULLS)
    made = {document["kind"]: document for document in rendered(capsys, "-f", str(path))}
    job, pod = made["PyTorchJob"], made["Pod"]
    assert job["metadata"]["labels"] == {"team": ""}
    assert pod["metadata"]["name"] == "nulls-00000-worker-0"
    assert list(job["spec"]["pytorchReplicaSpecs"]) == ["Worker"]
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1
    spec = pod["spec"]
    assert spec["volumes"][0]["secret"]["defaultMode"] == 0o600
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert {"name": "A"} in container["env"]
    assert container["args"] == ["1e3", "y"]


def test_null_in_a_list_is_refused_as_by_the_api_server(capsys, tmp_path):
    """Only fields may be null."""
    path = tmp_path / "job.yaml"
    path.write_text(NULLS.replace('"y"', ""))
    assert cli.main(["render", "-f", str(path)]) == 0
    capsys.readouterr()
    path.write_text(NULLS.replace('"y"', "y, ~, 1e3"))
    assert cli.main(["render", "-f", str(path)]) == 1
    told = capsys.readouterr().err
    for index, value in ((1, "true"), (2, "null"), (3, "1000")):
        assert f"args[{index}]: Invalid value: {value}: must be of type string" in told


WRONG = {
    "a rule": (
        tfjob(Chief=1, Master=1),
        "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role",
    ),
    "a type in the template": (
        tfjob(Worker={"template": {"spec": {"containers": [
            {"name": "tensorflow", "image": "i", "command": "run"}]}}}),
        ("spec.tfReplicaSpecs[Worker].template.spec.containers[0].command: "
        'Invalid value: "run": must be of type array'),
    ),
    "a number in annotations": (
        tfjob(annotations={"muster.kubeflow.org/estimated-seconds": 60}),
        ("metadata.annotations[muster.kubeflow.org/estimated-seconds]: Invalid value: 60: "
        "must be of type string"),
    ),
    "a version": (
        tfjob() | {"apiVersion": "kubeflow.org/v2"},
        ('apiVersion: Unsupported value: "kubeflow.org/v2": supported values: "kubeflow.org/v1", '
        '"kubeflow.org/v1beta2", "kubeflow.org/v1beta1", "kubeflow.org/v1alpha2"'),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_job_that_cannot_run_is_told_so(capsys, tmp_path, case):
    """The file, the job, the field, what is wrong; nothing is printed of it; code 1."""
    document, text = WRONG[case]
    path = written(tmp_path, document)
    assert cli.main(["render", "-f", path]) == 1
    shown = capsys.readouterr()
    assert shown.err == f"{path}: TFJob mnist: {text}\n"
    assert shown.out == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line 2, column 1: did not find expected node content"),
        ("kind: Pod", "no job found; kinds are TFJob"),
        ("", "no job found"),
        (None, "No such file"),
    ],
)
def test_a_file_without_jobs(capsys, tmp_path, text, said):
    """Code 2, and why."""
    path = tmp_path / "job.yaml"
    if text is not None:
        path.write_text(text)
    assert cli.main(["render", "-f", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_ignored_annotation_is_a_warning(capsys, tmp_path):
    """The job is rendered, with code 0."""
    document = tfjob(Worker=1)
    document["metadata"]["annotations"] = {"muster.kubeflow.org/restrat": "gang"}
    path = written(tmp_path, document)
    assert cli.main(["render", "-f", path]) == 0
    shown = capsys.readouterr()
    assert "kind: Pod" in shown.out
    assert shown.err.startswith(f"warning: {path}: TFJob mnist: annotation muster.kubeflow.org/r")
    assert "did you mean muster.kubeflow.org/restart?" in shown.err


def test_render_with_template_file_shows_its_init_containers(capsys, tmp_path):
    """A file that is no list of containers is an error of the command."""
    template, example = tmp_path / "init.yaml", EXAMPLES[0].with_name("pytorchjob-simple.yaml")
    words = ["-f", str(example), f"--pytorch-init-container-template-file={template}"]
    template.write_text("- name: mine\n  image: i")
    pods = [found for found in rendered(capsys, *words) if found["kind"] == "Pod"]
    init = [each["name"] for pod in pods for each in pod["spec"].get("initContainers") or ()]
    assert set(init) == {"mine"}
    template.write_text("name: mine")
    assert cli.main(["render", *words]) == 2
    assert "must be a list of containers" in capsys.readouterr().err
