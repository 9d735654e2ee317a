# SPDX-License-Identifier: Apache-2.0
"""Jobs of other operators become jobs of v1, and nothing of them is lost without a word."""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import crdgen
from muster import cli
from muster.api import schema
from muster.commands import render
from muster.commands.convert import Conversion, command, convert, job, trainer
from muster.frameworks import FRAMEWORKS, load

ROOT = Path(__file__).parents[1]
OLD_JOBS = list(yaml.load_all((ROOT / "corpus" / "old_jobs.yaml").read_text(), yaml.CSafeLoader))
STORIES = [story for story in OLD_JOBS if story["becomes"]]
LEFT_OUT = [story for story in OLD_JOBS if not story["becomes"]]
SEEDS = sorted((ROOT / "seeds").glob("tfjob-*.yaml"))
EXAMPLES = sorted((ROOT.parent / "examples").glob("*.yaml"))
WITHOUT_A_TRAINER = {"TFJob", "PaddleJob"}


def each_story(function):
    """Run a test for every story of the corpus."""
    return pytest.mark.parametrize("story", STORIES, ids=lambda story: story["about"])(function)


def the_job(found: Conversion):
    """Return the only job, with the framework that reads it."""
    (document,) = found.documents
    return document, FRAMEWORKS[document["kind"]].chosen(document)


def counts(document):
    """Return how many pods each role has."""
    framework = FRAMEWORKS[document["kind"]]
    roles = document["spec"][framework.spec_field]
    return {type_: role.get("replicas", 1) for type_, role in roles.items()}


@each_story
def test_a_job_of_another_operator_becomes_one_of_ours(story):
    """Kind, version and pods are those of the story; so is all that is lost; it may run."""
    found = convert(story["given"])
    document, framework = the_job(found)
    shown = {"kind": document["kind"], "apiVersion": document["apiVersion"], **counts(document)}
    assert shown == story["becomes"]
    assert sorted(loss.path for loss in found.losses) == sorted(story["lost"])
    assert list(command.problems(found)) == []
    assert load(framework, document).problems == ()


@each_story
def test_what_came_out_is_as_it_was_converted_again(story):
    """A job of v1 becomes itself, and nothing is lost on the way."""
    first = convert(story["given"])
    again = convert(first.documents)
    assert again.documents == first.documents
    assert again.losses == ()


def everywhere(value, path=()) -> Iterator[tuple[tuple[str | int, ...], object]]:
    """Yield every value in a document with its path, the document first."""
    yield path, value
    listed = enumerate(value) if isinstance(value, list) else ()
    for key, part in value.items() if isinstance(value, dict) else listed:
        yield from everywhere(part, (*path, key))


def shown(path) -> str:
    """Return a path as losses spell it, whatever way keys are bracketed."""
    return "".join(f"[{part}]" for part in path)


def plain(path: str) -> str:
    """Return a loss's path in that way."""
    parts = path.replace("[", ".[").split(".") if "/" not in path else [path]
    return "".join(part if part.startswith("[") else f"[{part}]" for part in parts if part)


def named(found: Conversion, path) -> bool:
    """Say whether what is lost has that field, or something that it is in or that is in it."""
    wanted = shown(path)
    return any(
        wanted.startswith(plain(loss.path)) or plain(loss.path).startswith(wanted)
        for loss in found.losses
    )


def of_the_server(path) -> bool:
    """Say whether only the API server, or kubectl for itself, writes it."""
    own = path[:1] == ("status",) or (path[:1] == ("metadata",) and path[1:2] in OF_META)
    return own or "last-applied" in str(path[-1]) or path[-1] == "creationTimestamp"


def a_mere_name(document, path) -> bool:
    """Say whether it tells parts of a runtime apart, which is no more once it became a job."""
    runtime = document["kind"] in trainer.RUNTIMES
    return runtime and (path[0] == "metadata" or path[-3::2] == ("replicatedJobs", "name"))


OF_META = {(name,) for name in job.SERVERS}
OVERRULED = {"apiGroup", "status", "operator", "targetReplicatedJobs"}
"""What says the same in any case, or cannot say anything else."""


def other(value):
    """Return another value of that type."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}x"


def leaves(document):
    """Yield the path of every text, number and truth value that the author wrote."""
    for path, value in everywhere(document):
        is_field = isinstance(value, str | int) and isinstance(path[-1], str)
        if is_field and not (of_the_server(path) or a_mere_name(document, path)):
            yield path


def changed(documents, index, path, value):
    """Return the documents with another value at a path of one of them."""
    found = deepcopy(documents)
    inner = found[index]
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value(inner.get(path[-1]))
    return found


def assert_each_is_carried_or_named(documents, *, to_trainjob):
    """Another value of any field makes another job, or the field is among what is lost."""
    before = convert(documents, to_trainjob=to_trainjob)
    for index, document in enumerate(documents):
        for path in leaves(document):
            after = convert(changed(documents, index, path, other), to_trainjob=to_trainjob)
            same = after.documents == before.documents and after.losses == before.losses
            assert not same or path[-1] in OVERRULED or named(after, path), path


@each_story
def test_every_field_is_carried_or_named(story):
    """On the way to v1, whatever it comes from."""
    assert_each_is_carried_or_named(story["given"], to_trainjob=False)


@each_story
def test_every_field_is_carried_or_named_on_the_way_back(story):
    """From v1 to a TrainJob."""
    made = convert(story["given"]).documents
    assert_each_is_carried_or_named(made, to_trainjob=True)


@each_story
def test_a_field_that_nobody_knows_is_named(story):
    """Wherever it stands, but in maps with keys of the author's own."""
    for index, document in enumerate(story["given"]):
        for path, value in everywhere(document):
            at = (*path, "nobodyKnows")
            if not isinstance(value, dict) or of_the_server(at) or a_mere_name(document, at):
                continue
            found = convert(changed(story["given"], index, at, lambda _none: "this"))
            said = named(found, at) or any("nobodyKnows" in loss.path for loss in found.losses)
            assert said or "nobodyKnows" in json.dumps(found.documents), path


@pytest.mark.parametrize("path", [*SEEDS, *EXAMPLES], ids=lambda path: path.stem)
def test_what_is_applied_today_needs_no_conversion(path):
    """The examples are their own conversion, and nothing of them is lost."""
    documents = list(yaml.load_all(path.read_text(), yaml.CSafeLoader))
    found = convert(documents)
    assert found.losses == ()
    assert list(command.problems(found)) == []
    if path in EXAMPLES:
        assert list(found.documents) == documents


def story(about):
    """Return what is given in the story that begins so."""
    (found,) = (each for each in STORIES if each["about"].startswith(about))
    return deepcopy(found["given"])


def test_a_trainjob_goes_before_its_runtime():
    """Image, command and variables of the job replace those of the runtime, the others stay."""
    runtime, train = story("a TrainJob with PyTorch")
    train["spec"]["trainer"] |= {"image": "own:1", "env": [{"name": "B", "value": "above"}]}
    document, _ = the_job(convert([train, runtime]))
    for role in document["spec"]["pytorchReplicaSpecs"].values():
        (container,) = role["template"]["spec"]["containers"]
        assert container["image"] == "own:1"
        assert container["env"] == [{"name": "B", "value": "above"}]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
        assert role["template"]["spec"]["nodeSelector"] == {"gpu": "a100"}
        assert role["restartPolicy"] == "Never"
    assert document["spec"]["runPolicy"] == {
        "ttlSecondsAfterFinished": 30,
        "activeDeadlineSeconds": 600,
        "backoffLimit": 2,
        "suspend": True,
        "schedulingPolicy": {"scheduleTimeoutSeconds": 100},
    }


def test_what_volcano_says_of_a_gang_is_said_in_our_words():
    """Minimum, queue, class and the restart of all together; the plugin's port is the job's."""
    document, framework = the_job(convert(story("Volcano with its plugin for PyTorch")))
    assert document["spec"]["runPolicy"] == {
        "cleanPodPolicy": "Running",
        "backoffLimit": 4,
        "ttlSecondsAfterFinished": 60,
        "schedulingPolicy": {"minAvailable": 3, "queue": "research", "priorityClass": "high"},
    }
    read = load(framework, document)
    assert read.restarts_whole
    assert read.run_policy.scheduling.leasts == {"master": 1, "worker": 2}
    master = document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert master["containers"][0]["ports"] == [
        {"name": "pytorchjob-port", "containerPort": 23457}
    ]


@pytest.mark.parametrize(("written", "limit"), [(4, 4), (0, 3), (None, 3)])
def test_restarts_of_volcano_are_limited(written, limit):
    """As the default of Volcano, which also stands for 0; without RestartJob nothing restarts."""
    (volcano,) = story("Volcano with its plugin for PyTorch")
    volcano["spec"] |= {"maxRetry": written, "minAvailable": 0}
    policy = the_job(convert([volcano]))[0]["spec"]["runPolicy"]
    assert policy["backoffLimit"] == limit
    assert "minAvailable" not in policy["schedulingPolicy"]
    (others,) = convert(story("Volcano with parameter servers")).documents
    assert others["spec"]["runPolicy"] == {"cleanPodPolicy": "Running"}


@pytest.mark.parametrize(
    ("runtime", "own", "slots"), [(1, None, 4), (None, None, 4), (2, None, 2), (1, 1, None)]
)
def test_slots_of_a_trainjob_are_its_gpus_by_default(runtime, own, slots):
    """Trainer takes 1 in a runtime for the default, and in a TrainJob for 1."""
    documents = story("a TrainJob with MPI")
    documents[0]["spec"]["mlPolicy"]["mpi"]["numProcPerNode"] = runtime
    documents[1]["spec"]["trainer"] |= {
        "numProcPerNode": own, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}},
    }  # fmt: skip
    document, _ = the_job(convert(documents))
    assert document["spec"].get("slotsPerWorker") == slots
    _, train = convert([document], to_trainjob=True).documents
    assert train["spec"]["trainer"]["numProcPerNode"] == (slots or 1)


def test_workers_of_a_trainjob_go_with_its_launcher():
    """They run sshd, which does not end; a JobSet deletes them."""
    document, framework = the_job(convert(story("a TrainJob with MPI")))
    assert load(framework, document).run_policy.clean_pod_policy == "Running"


def test_failed_container_of_volcano_restarts_without_a_policy():
    """The kubelet restarts it, and the default of a TFJob is to fail."""
    (volcano,) = story("Volcano with parameter servers")
    for task in volcano["spec"]["tasks"]:
        task["template"]["spec"].pop("restartPolicy", None)
    roles = the_job(convert([volcano]))[0]["spec"]["tfReplicaSpecs"].values()
    assert {role.get("restartPolicy") for role in roles} == {"OnFailure"}


@pytest.mark.parametrize("own", [{"name": "pytorchjob-port"}, {"hostPort": 80}, {"name": "a"}])
def test_port_that_a_template_declares_is_declared_once(own):
    """The API server rejects a container with a port or a name twice."""
    found = {"spec": {"containers": [{"name": "pytorch", "ports": [{"containerPort": 8, **own}]}]}}
    job.listen(FRAMEWORKS["PyTorchJob"], found, 8)
    (port,) = found["spec"]["containers"][0]["ports"]
    assert port == {"containerPort": 8, **own, "name": "pytorchjob-port"}


def test_gpus_that_an_mpijob_counts_are_its_workers():
    """Sixteen, eight a node: two workers with eight each and as many slots; the launcher: none."""
    document, _ = the_job(convert(story("an MPIJob that counts GPUs")))
    roles = document["spec"]["mpiReplicaSpecs"]
    limits = {
        type_: role["template"]["spec"]["containers"][0].get("resources", {}).get("limits")
        for type_, role in roles.items()
    }
    assert limits == {"Launcher": None, "Worker": {"nvidia.com/gpu": 8}}
    assert document["spec"]["slotsPerWorker"] == 8


def test_workers_of_an_old_mpijob_sleep_and_go_with_its_end():
    """The template's command is the launcher's, which has six more tries."""
    document, framework = the_job(convert(story("an MPIJob that counts replicas")))
    assert document["spec"]["runPolicy"] == {"cleanPodPolicy": "Running", "backoffLimit": 6}
    assert [role.restart_policy for role in load(framework, document).replicas] == [
        "OnFailure", "Always",
    ]  # fmt: skip
    (given_,) = story("an MPIJob with roles")
    given_["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] = [
        "x"
    ]
    document, framework = the_job(convert([given_]))
    assert document["spec"]["runPolicy"] == {"backoffLimit": 6, "cleanPodPolicy": "Running"}
    launcher, worker = load(framework, document).replicas
    assert (launcher.restart_policy, worker.restart_policy) == ("OnFailure", "Always")
    assert "args" not in worker.template["spec"]["containers"][0]
    document, _ = the_job(convert(story("an MPIJob that counts GPUs")))
    launcher, worker = document["spec"]["mpiReplicaSpecs"].values()
    assert launcher["template"]["spec"]["containers"][0]["command"] == ["mpirun", "python", "b.py"]
    assert "command" not in worker["template"]["spec"]["containers"][0]


def test_both_versions_of_the_xgboost_operator_are_known():
    """They are alike."""
    (document,) = story("the XGBoost operator's own group")
    found = [convert([{**document, "apiVersion": f"xgboostjob.kubeflow.org/{v}"}]).documents
             for v in ("v1", "v1alpha1")]  # fmt: skip
    assert found[0] == found[1] != ()


def test_an_old_default_is_written_out():
    """What v1 would do otherwise than the version that the job was written for."""
    (oldest,) = convert(story("the first TFJobs")).documents
    assert oldest["spec"]["runPolicy"] == {"cleanPodPolicy": "Running"}
    document, _ = the_job(convert(story("a TFJob of the time before")))
    assert document["spec"]["runPolicy"] == {
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": 100,
        "activeDeadlineSeconds": 3600,
        "backoffLimit": 5,
    }


CONTAINER = st.fixed_dictionaries(
    {"image": st.sampled_from(["a:1", "b@sha256:0"])},
    optional={
        "command": st.just(["python", "run.py"]),
        "args": st.lists(st.sampled_from(["--x", "-y=1"]), min_size=1),
        "env": st.just([{"name": "A", "value": "1"}]),
        "resources": st.just({"limits": {"nvidia.com/gpu": 8}, "requests": {"cpu": "2"}}),
        "volumeMounts": st.just([{"name": "data", "mountPath": "/data"}]),
    },
)
POLICY = st.fixed_dictionaries(
    {},
    optional={
        "ttlSecondsAfterFinished": st.integers(0, 9),
        "activeDeadlineSeconds": st.integers(1, 9),
        "backoffLimit": st.integers(0, 9),
        "suspend": st.just(True),
        "schedulingPolicy": st.just({"scheduleTimeoutSeconds": 60}),
    },
)


@st.composite
def jobs_of_v1(draw):
    """Return a job of a kind that Trainer has, its nodes all alike."""
    kind = draw(st.sampled_from(["PyTorchJob", "XGBoostJob", "JAXJob", "MPIJob"]))
    framework = job.rules_of(kind)
    main = {"name": framework.pods.container or "node", **draw(CONTAINER)}
    spec = {"containers": [main, {"name": "side", "image": "s:1"}], "nodeSelector": {"a": "b"}}
    policy = draw(st.sampled_from(["OnFailure", "Never"]))
    first = framework.api.types[0]
    number = {first: 1} if first != "Worker" else {}
    if first == "Worker" or draw(st.booleans()):
        number["Worker"] = draw(st.integers(1, 5))
    roles = {
        type_: {"replicas": n, "restartPolicy": policy, "template": {"spec": deepcopy(spec)}}
        for type_, n in number.items()
    }
    run_policy = ({"cleanPodPolicy": "Running"} if kind == "MPIJob" else {}) | draw(POLICY)
    own = {"mpiImplementation": "OpenMPI"}
    if "Worker" in number and draw(st.booleans()):
        own["launcherCreationPolicy"] = "WaitForWorkersReady"
    return {
        "apiVersion": framework.api_version,
        "kind": kind,
        "metadata": {"name": "train", "namespace": "team", "labels": {"a": "b"}},
        "spec": {
            **({"runPolicy": run_policy} if run_policy else {}),
            **(own if kind == "MPIJob" else {}),
            framework.spec_field: roles,
        },
    }


@functools.cache
def trainer_schemas():
    """Return the schemas of Trainer's objects, by kind."""

    def whole(schema):
        if "of" in schema:
            labels = {"type": "object", "additionalProperties": {"type": "string"}}
            named = schema["of"]
            return labels if named == "labels" else crdgen.kubernetes_schema(named)
        fields = {name: whole(inner) for name, inner in schema.get("properties", {}).items()}
        items = {"items": whole(schema["items"])} if "items" in schema else {}
        return {**schema, **({"properties": fields} if fields else {}), **items}

    text = (ROOT / "corpus" / "trainer.yaml").read_text()
    return {kind: whole(schema) for kind, schema in yaml.safe_load(text).items()}


def refused(documents):
    """Return what the API server says of documents that Trainer 2.3 is to accept."""
    return [
        str(problem)
        for document in documents
        for problem in schema.problems(
            trainer_schemas()[document["kind"]], document["spec"], document["kind"]
        )
    ]


@pytest.mark.parametrize(
    ("processes", "count", "lost_"),
    [("2", 2, []), ("auto", None, []), ("gpu", None, ["spec.nprocPerNode"]), (None, None, [])],
)
def test_processes_of_a_node_are_a_number(processes, count, lost_):
    """Trainer 2.3 takes an integer in the TrainJob, and nothing in the runtime."""
    (document,) = convert(story("a TrainJob with PyTorch")).documents
    document["spec"].pop("nprocPerNode", None)
    document["spec"] |= {"nprocPerNode": processes} if processes else {}
    found = convert([document], to_trainjob=True)
    runtime, train = found.documents
    assert runtime["spec"]["mlPolicy"] == {"torch": {}}
    assert train["spec"]["trainer"].get("numProcPerNode") == count
    assert [loss.path for loss in found.losses] == lost_
    assert refused(found.documents) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"metadata": {"name": "1st.job"}}, "metadata.name"),
        ({"spec": {"runPolicy": {"activeDeadlineSeconds": 0}}},
         "spec.runPolicy.activeDeadlineSeconds"),
    ],
)  # fmt: skip
def test_value_that_trainer_refuses_is_named(change, path):
    """The API server would reject the TrainJob."""
    (document,) = convert(story("a TrainJob with PyTorch")).documents
    for field, more in change.items():
        document[field] |= more
    found = convert([document], to_trainjob=True)
    assert path in {loss.path for loss in found.losses}
    assert refused(found.documents) == []


@given(jobs_of_v1())
def test_a_job_that_became_a_trainjob_becomes_itself_again(document):
    """Image, command, resources, numbers of pods and limits are those it had; nothing is lost.

    Trainer 2.3 accepts what comes out.
    """
    away = convert([document], to_trainjob=True)
    assert refused(away.documents) == []
    assert [each["kind"] for each in away.documents] == ["TrainingRuntime", "TrainJob"]
    back = convert(away.documents)
    assert away.losses == back.losses == ()
    (found,) = back.documents
    assert found == document


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_becomes_a_trainjob_or_says_why_not(path):
    """Trainer has no runtime for two kinds; the others come out with the pods they have."""
    documents = list(yaml.load_all(path.read_text(), yaml.CSafeLoader))
    given_ = [each for each in documents if each["kind"] in FRAMEWORKS]
    found = convert(documents, to_trainjob=True)
    trained = [each for each in found.documents if each["kind"] == "TrainJob"]
    possible = [each for each in given_ if each["kind"] not in WITHOUT_A_TRAINER]
    assert len(trained) == len(possible)
    others = {loss.of for loss in found.losses if loss.path == "kind"}
    assert len(others) == len(given_) - len(possible)
    for document, train in zip(possible, trained, strict=True):
        runtime = found.documents[found.documents.index(train) - 1]
        (back,) = convert([runtime, train]).documents
        assert sum(counts(back).values()) == sum(counts(document).values())
        assert refused([runtime, train]) == []


@pytest.mark.parametrize("story", LEFT_OUT, ids=lambda story: story["about"])
def test_what_cannot_be_converted_is_left_out_and_said(story):
    """A version of the future, a runtime that is elsewhere, tasks of no framework."""
    found = convert(story["given"])
    assert found.documents == ()
    assert set(story["lost"]) <= {loss.path for loss in found.losses}


def test_a_runtime_of_another_namespace_is_another():
    """Two teams may have runtimes of one name; a TrainJob has that of its own namespace."""
    runtime, train = story("a TrainJob with MPI")
    train["metadata"]["namespace"] = "mine"
    theirs, mine = deepcopy(runtime), deepcopy(runtime)
    theirs["metadata"]["namespace"] = "theirs"
    mine["metadata"]["namespace"] = "mine"
    mine["spec"]["mlPolicy"]["mpi"]["numProcPerNode"] = 7
    found = convert([theirs, mine, train])
    assert found.documents[0]["spec"]["slotsPerWorker"] == 7
    assert [loss.why for loss in found.losses] == ["no TrainJob here refers to it"]


def test_the_command(capsys, monkeypatch, tmp_path):
    """Losses go to standard error, and --strict makes them a failure; JSON and stdin are known."""
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump_all(STORIES[0]["given"]))
    assert cli.main(["convert", "-f", str(file)]) == 0
    answer = capsys.readouterr()
    assert yaml.safe_load(answer.out)["apiVersion"] == "kubeflow.org/v1"
    assert "lost: TFJob listed: spec.RuntimeId: " in answer.err
    assert cli.main(["convert", "--strict", "-f", str(file)]) == 1
    capsys.readouterr()
    given = yaml.safe_dump_all(STORIES[4]["given"] * 2).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert cli.main(["convert", "--strict", "-o", "json", "-f", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)["items"]
    assert [each["kind"] for each in listed] == ["PyTorchJob"] * 2
    file.write_text("kind: ConfigMap")
    assert cli.main(["convert", "-f", str(file)]) == 2
    assert "no job found" in capsys.readouterr().err


def test_the_commands_of_the_guide(capsys, monkeypatch, tmp_path):
    """Each does what the page says, on files as it names them."""
    runtime, train = story("a TrainJob with MPI")
    documents = {"vcjob": story("Volcano with MPI")[0], "trainjob": train, "runtime": runtime}
    monkeypatch.chdir(tmp_path)
    for name, document in documents.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(document))
    page = (ROOT.parent / "docs" / "migration.md").read_text()
    made = []
    for line in re.findall(r"^\$ muster (convert .*)$", page, re.MULTILINE):
        words, _, file = line.partition(" > ")
        assert cli.main(words.split()) == 0
        Path(file).write_text(printed := capsys.readouterr().out)
        made.append([each["kind"] for each in yaml.safe_load_all(printed)])
    assert made == [["MPIJob"], ["MPIJob"], ["TrainingRuntime", "TrainJob"]]


def test_a_job_that_cannot_run_is_said(capsys, tmp_path):
    """The result is printed with what is wrong with it, and the code is 1."""
    document = deepcopy(STORIES[4]["given"][0])
    document["metadata"]["name"] = "No-Name"
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump(document))
    assert cli.main(["convert", "-f", str(file)]) == 1
    assert "wrong: PyTorchJob No-Name: metadata.name: Invalid value" in capsys.readouterr().err


SEVERAL = {
    "nothing between two lines": ("---\n---\n{job}---\n", [""]),
    "a list": ("kind: List\nitems:\n- {kind: List, items: [{job}]}\n- {job}", ["", ""]),
    "a list of jobs": (
        "kind: TFJobList\napiVersion: kubeflow.org/v1alpha1\nitems: [{metadata: {name: a}}]", [""]
    ),
    "an empty list": ("{job}---\nkind: List\nitems:\n", [""]),
    "lines as Windows ends them": ("{job}", [""]),
    "a text": ("{job}---\njust a text\n", "document 2: it is no object"),
    "items that are none": ("kind: List\nitems: {a: 1}", "document 1: items is no list"),
    "an item that is none": ("kind: List\nitems: [{job}, 5]", "document 1: items[1] is no object"),
    "an item of an item": ("items: [{items: [{job}, [x]]}]", "items[0].items[1] is no object"),
    "deep objects": ("a: " + "{a: " * 150 + "1" + "}" * 150, "line 1, column"),
}  # fmt: skip
FLOW = "{apiVersion: kubeflow.org/v1alpha1, kind: TFJob, metadata: {name: a}}"


@pytest.mark.parametrize("about", SEVERAL)
def test_a_file_holds_several_documents_or_lists_of_them(about):
    """Each is found, and what is none is told by its place; nothing is left out."""
    text, told = SEVERAL[about]
    job_ = FLOW if "{job}]" in text or "- {job}" in text else f"{FLOW}\n"
    text = text.replace("{job}", job_)
    if isinstance(told, str):
        with pytest.raises(render.UnreadableError) as raised:
            list(render.parsed(text, "f"))
        assert told in str(raised.value)
        assert "\n" not in str(raised.value)
        return
    found = convert(render.parsed(text.replace("\n", "\r\n"), "f"))
    assert [each["metadata"] for each in found.documents] == [{"name": "a"}] * len(told)


def test_texts_that_only_kubectl_reads_otherwise_are_quoted():
    """A learning rate among the arguments would be a number, which no argument may be."""
    for text in ("1e-4", "-1E5", "1.e3", "0o17", "+0O7", "09", "y", "N", "yes"):
        assert command.written([{"args": [text]}], "yaml") == f"args:\n- '{text}'\n"
    plain_ = [5, -3, 0.5, 1e-7, 10**18, "8Gi", "1.2.3", "0xfg", "year"]
    assert "'" not in command.written([{"args": plain_}], "yaml")


def test_what_is_there_twice_is_named():
    """A field by both of its names, a task by one name; documents of one name by their places."""
    (document,) = story("a TFJob of the time before")
    document["spec"]["RunPolicy"] = {"backoffLimit": 1, "ttlSecondsAfterFinished": 1}
    document["spec"]["runPolicy"] = {"backoffLimit": 2}
    assert "spec.RunPolicy.backoffLimit" in {loss.path for loss in convert([document]).losses}
    (volcano,) = story("Volcano with its plugin for PyTorch")
    volcano["spec"]["tasks"].append(volcano["spec"]["tasks"][0] | {"replicas": 9})
    assert "another task is called" in str([str(loss) for loss in convert([volcano]).losses])
    nameless = deepcopy(document)
    del nameless["metadata"]["name"]
    found = convert([document, deepcopy(document), nameless])
    assert {loss.of for loss in found.losses} == {
        "TFJob flat (document 1)", "TFJob flat (document 2)", "TFJob (document 3)",
    }  # fmt: skip


def test_a_job_whose_name_is_yet_to_be_made_has_a_runtime_by_its_beginning():
    """The API server makes the name of the TrainJob; that of the runtime is referred to."""
    made = {**next(iter(convert(story("a TrainJob with PyTorch")).documents))}
    made["metadata"] = {"generateName": "train-"}
    runtime, train = convert([made], to_trainjob=True).documents
    assert runtime["metadata"]["name"] == train["spec"]["runtimeRef"]["name"] == "train-runtime"


ODD = (None, True, 7, 2**70, "", "odd", [], {}, [1], ["odd"], [{}], {"odd": 1}, {"name": 3}, [[1]],
       [{"name": ["odd"]}])  # fmt: skip


@given(st.data())
def test_no_value_of_another_type_is_too_odd(data):
    """Wherever it stands; the result can be written, and what was given stays as it was."""
    documents = deepcopy(data.draw(st.sampled_from(STORIES))["given"])
    to_trainjob = data.draw(st.booleans())
    if to_trainjob:
        documents = list(convert(documents).documents)
    for _ in range(data.draw(st.integers(1, 3))):
        inner = documents[data.draw(st.integers(0, len(documents) - 1))]
        *above, last = data.draw(st.sampled_from([path for path, _ in everywhere(inner) if path]))
        for part in above:
            inner = inner[part]
        inner[last] = deepcopy(data.draw(st.sampled_from(ODD)))
    before = deepcopy(documents)
    found = convert(documents, to_trainjob=to_trainjob)
    for output in ("yaml", "json"):
        assert command.written(found.documents, output) if found.documents else True
    assert all(str(loss) for loss in found.losses)
    list(command.problems(found))
    assert documents == before


def lost(about, change, *, to_trainjob=False):
    """Return what is lost more of a story for a change of its last document."""
    documents = story(about)
    if to_trainjob:
        documents = list(convert(documents).documents)
    before = convert(documents, to_trainjob=to_trainjob).losses
    documents[-1]["spec"] |= change
    after = convert(documents, to_trainjob=to_trainjob).losses
    return [loss.path for loss in after if loss not in before]


def test_what_says_something_that_nobody_understands_is_named():
    """A port that is none, an argument without a flag, who waits for whom, when a launcher is."""
    volcano, words = "Volcano with its plugin for PyTorch", ["odd", "--port=odd"]
    torch, begins = "spec.plugins.pytorch", {"launcherCreationPolicy": "Odd"}
    given_ = story(volcano)[0]["spec"]["plugins"]
    more, served = {**given_, "pytorch": [*given_["pytorch"], *words]}, {**given_, "svc": True}
    assert lost("the first PyTorchJobs", {"masterPort": "odd"}) == ["spec.masterPort"]
    assert lost(volcano, {"plugins": more}) == [torch, torch]
    assert lost(volcano, {"plugins": served}) == ["spec.plugins.svc"]
    assert lost("a TrainJob with MPI", begins, to_trainjob=True) == ["spec.launcherCreationPolicy"]


@pytest.mark.parametrize("name", ["odd", None])
def test_a_launcher_that_waits_for_others_is_named(name):
    """Only its workers it can wait for."""
    about = "Volcano with MPI by its plugins"
    tasks = story(about)[0]["spec"]["tasks"]
    next(task for task in tasks if "dependsOn" in task)["dependsOn"]["name"] = [name]
    (path,) = lost(about, {"tasks": tasks})
    assert path.endswith("dependsOn.name")
