# SPDX-License-Identifier: Apache-2.0
"""Questions to a snapshot file: what is answered, and with which exit code."""

import asyncio
import json

import pytest
import yaml

from muster import cli
from muster.cluster import recording
from muster.commands import explain as reporting
from muster.commands import questions
from muster.commands.arguments import Reference, reference
from muster.commands.live import RefusedError
from muster.commands.questions import Asked
from muster.kube import client
from muster.kube.client import ApiError
from muster.settings import Settings
from support.apiserver.read_only import OBJECTS, Served, job
from support.builders.scheduler import make_gang, make_node, make_pod, make_role
from support.builders.snapshots import seen
from support.rehearsal.commands import connected

WAITS = make_gang(key="TFJob/team/waits", roles=[make_role(replicas=1, cpu=9)])
RUNS = make_gang(key="TFJob/team/runs", roles=[make_role(held=[(0, "n1")], cpu=1)])


@pytest.fixture
def saved(tmp_path):
    """Return a snapshot file with a gang that waits and one that runs."""
    file = tmp_path / "saw.json"
    file.write_text(recording.dump(*seen(gangs=[WAITS, RUNS])))
    return str(file)


def explain(saved, what, namespace="team", **more):
    """Return the answer of `muster explain` on the file."""
    named = reference(what.split(), namespace) if what else None
    return asyncio.run(reporting.explain(Settings(), named, Asked(saved, namespace, **more)))


def test_name_of_several_gangs_is_refused(tmp_path):
    """The keys of all gangs with that name are printed; an exact kind selects one."""
    file = tmp_path / "saw.json"
    kinds = ("TFJob", "PodGroup", "PodGroup.scheduling.x-k8s.io")
    gangs = [make_gang(key=f"{kind}/team/twice", roles=RUNS.roles) for kind in kinds]
    file.write_text(recording.dump(*seen(gangs=gangs)))
    with pytest.raises(RefusedError) as refused:
        explain(str(file), "twice")
    assert all(gang.key in str(refused.value) for gang in gangs)
    for gang in gangs:
        kind = gang.key.partition("/")[0]
        assert explain(str(file), f"{kind.lower()}/twice").text.startswith(f"{gang.key}: ")


def test_all_gangs_are_told_one_line_each(saved, capsys):
    """Who waits first; of one namespace, or of all; as a table or for programs."""
    answer = explain(saved, "")
    assert answer.code == 1
    title, waits, runs = (line.split() for line in answer.text.splitlines())
    assert title == ["GANG", "STATE", "QUEUE", "POSITION", "STARTS", "STANDING"]
    assert waits[:4] == ["TFJob/team/waits", "Waiting", "default", "1"]
    assert "never as things are" in answer.text
    assert runs[:3] == ["TFJob/team/runs", "Running", "default"]
    assert explain(saved, "", namespace="other").text == "no gangs\n"
    assert "cpu" in explain(saved, "", output="wide").text.splitlines()[1]
    told = json.loads(explain(saved, "", output="json").text)
    assert [each["verdict"]["state"] for each in told] == ["Waiting", "Running"]
    assert yaml.safe_load(explain(saved, "", output="yaml").text) == told
    assert json.loads(explain(saved, "tfjob/runs", output="json").text) == told[1:]
    assert cli.main(["explain", "-A", "--cluster", saved]) == 1
    assert capsys.readouterr().out == answer.text
    assert cli.main(["explain", "tfjob/waits", "-A", "--cluster", saved]) == 2


def test_a_job_is_tried_among_all(saved, tmp_path, capsys):
    """Where everybody would stand with it there; the code is about the job alone."""
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(workers=1, cpu="2")))
    words = ["simulate", "-n", "team", "-f", str(file), "--cluster", saved]
    assert cli.main([*words, "-A"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["TFJob/team/waits", "Waiting"], ["TFJob/team/runs", "Running"],
        ["TFJob/team/mnist", "Placed"],
    ]  # fmt: skip
    assert cli.main([*words, "-o", "wide"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["TFJob/team/mnist", "Placed"],
    ]  # fmt: skip


def test_a_gang_that_is_not_there_or_a_selector_is_refused(saved):
    """Neither is an answer; a snapshot holds no labels of jobs."""
    with pytest.raises(RefusedError, match="--selector=app=a: a computation is of one name"):
        explain_live(selector="app=a", cluster=saved)
    told = "^the scheduler has no gang pytorchjob/waits in namespace team$"
    with pytest.raises(RefusedError, match=told):
        explain(saved, "pytorchjob/waits")


def test_the_start_of_a_gang_behind_the_first(tmp_path):
    """Is unknown, as no nodes are reserved for it; a gang that can never start has none."""
    file, ends = tmp_path / "saw.json", {"started": 900.0, "duration": 300.0}
    role = make_role(replicas=1, cpu=8)
    gangs = [
        make_gang(key="TFJob/team/runs", roles=[make_role(held=[(0, "n1")], cpu=1)], **ends),
        make_gang(key="TFJob/team/first", created=1, duration=60.0, roles=[role]),
        make_gang(key="TFJob/team/second", created=2, roles=[role]),
        WAITS,
    ]
    file.write_text(recording.dump(*seen(gangs=gangs, pods=[make_pod(name="runs-0", cpu=1)])))
    lines = {name: explain(str(file), f"tfjob/{name}").text for name in ("first", "second")}
    assert lines["first"].endswith("  starts: 1970-01-01T00:20:00Z\n")
    assert lines["second"].endswith("  starts: unknown\n")
    assert "starts" not in explain(str(file), "tfjob/waits").text


def test_a_file_that_decides_otherwise_is_told(saved, tmp_path, capsys):
    """Code 1 and a sentence, beside the decisions that come of it now."""
    assert cli.main(["simulate", "--replay", saved]) == 0
    told = capsys.readouterr().out
    text = (tmp_path / "saw.json").read_text()
    assert text.count('"NoNodeLargeEnough"') == 1
    (tmp_path / "saw.json").write_text(text.replace('"NoNodeLargeEnough"', '"Fragmented"'))
    assert cli.main(["simulate", "--replay", saved]) == 1
    again = capsys.readouterr()
    assert again.out == told
    assert "other decisions" in again.err


def test_what_cannot_be_read_is_a_sentence(tmp_path, capsys):
    """Code 2, for a file that is missing or is none of ours."""
    (tmp_path / "no.json").write_text("{}")
    for file, words in (("no.json", "not a snapshot"), ("gone.json", "No such file")):
        assert cli.main(["simulate", "--replay", str(tmp_path / file)]) == 2
        assert words in capsys.readouterr().err


# Of the live cluster.


@pytest.fixture
def live(monkeypatch):
    """Return a function that makes these documents the live cluster."""
    return lambda *documents: connected(monkeypatch, Served(*documents))


def answers(tmp_path, document, *cluster, live):
    """Return what explain, simulate and both on a snapshot say of a job beside a cluster."""
    file, saved = tmp_path / "job.yaml", tmp_path / "saw.json"
    file.write_text(yaml.safe_dump(document))
    settings, name = Settings(), Reference("TFJob", "team", document["metadata"]["name"])

    def ask(question):
        return asyncio.run(question)

    def simulated(where):
        return ask(questions.simulate(settings, [str(file)], Asked(where, "team", output="json")))

    live(*cluster)
    found = [simulated("live")]
    saved.write_text(ask(questions.snapshot(settings, "live")).text)
    found.append(simulated(str(saved)))
    live(*cluster, document)
    asked = Asked("live", "team", output="json", what_if=True)
    found.append(ask(reporting.explain(settings, name, asked)))
    saved.write_text(ask(questions.snapshot(settings, "live")).text)
    found.append(ask(reporting.explain(settings, name, Asked(str(saved), "team", output="json"))))
    assert questions.replay(str(saved)).code == 0
    verdicts = [json.loads(answer.text)[0]["verdict"] for answer in found]
    states = ((each["state"], each.get("reason", "")) for each in verdicts)
    return [(answer.code, *state) for answer, state in zip(found, states, strict=True)]


@pytest.mark.parametrize("path", ["", "/", "/debug/snapshot"])
def test_snapshot_of_a_running_operator_is_what_that_operator_serves(monkeypatch, path):
    """The recording is requested from its debug address."""

    async def fetch(url):
        return json.dumps({"url": url})

    monkeypatch.setattr(client, "fetch", fetch)
    answer = asyncio.run(questions.snapshot(Settings(), f"http://127.0.0.1:1{path}"))
    assert json.loads(answer.text) == {"url": "http://127.0.0.1:1/debug/snapshot"}


ROOMY = {"kind": "Node", **make_node()}


@pytest.mark.parametrize(
    ("hard", "used", "said"),
    [
        ("4", "0", (0, "Placed", "")),
        ("4", "2", (1, "Waiting", "NotEnoughResources")),
        ("2", "0", (1, "Waiting", "ExceedsResourceQuota")),
    ],
)
def test_a_quota_is_looked_at(live, tmp_path, hard, used, said):
    """As the operator does, of the live cluster and of a snapshot, before a job is there too."""
    counted = {"hard": {"pods": hard}, "used": {"pods": used}}
    few = {"kind": "ResourceQuota", "metadata": {"name": "few"}, "status": counted}
    cluster = [ROOMY, {**few, "spec": {"hard": {"pods": hard}}}]
    assert answers(tmp_path, job(workers=3), *cluster, live=live) == [said] * 4


def test_a_limit_range_is_looked_at(live, tmp_path):
    """Its defaults take room."""
    items = [{"type": "Container", "defaultRequest": {"memory": "20Gi"}}]
    limits = {"kind": "LimitRange", "metadata": {"name": "range"}, "spec": {"limits": items}}
    found = answers(tmp_path, job(workers=2), ROOMY, limits, live=live)
    assert found == [(1, "Waiting", "ExceedsCluster")] * 4


@pytest.mark.parametrize(
    ("age", "said"), [(60.0, (0, "Placed", "")), (3600.0, (1, "Waiting", "WaitingForReservation"))]
)
def test_a_reservation_is_looked_at(live, tmp_path, age, said):
    """A gang that has waited for longer than --reservation-after keeps its room from others."""
    nodes = [{"kind": "Node", **make_node(name=name, cpu=4)} for name in ("n1", "n2")]
    pods = [{"kind": "Pod", **make_pod(name=f"p-{n}", node=n, cpu=2)} for n in ("n1", "n2")]
    for pod in pods:
        pod["spec"]["schedulerName"] = "muster"
    large = job("large", workers=2, cpu="4", age=age)
    found = answers(tmp_path, job("small", workers=1), *nodes, *pods, large, live=live)
    assert found == [said] * 4


# Jobs that are no gangs.

DONE = {"conditions": [{"type": "Succeeded", "status": "True", "message": "It is done."}]}
JOBS = {
    "done": {**job("done", workers=1), "status": DONE},
    "broke": {**job("broke", workers=1), "status": {"conditions": [{**DONE["conditions"][0],
              "type": "Failed", "message": "It failed."}]}},
    "held": job("held", workers=1) | {"spec": {**job(workers=1)["spec"],
            "runPolicy": {"suspend": True}}},
    "wrong": job("wrong", workers=-1),
    "runs": job("runs", workers=1),
}  # fmt: skip


def explain_live(*words, **asked):
    """Return the answer of `muster explain` on the live cluster."""
    what = reference(words, selector=asked.pop("selector", ""))
    return asyncio.run(reporting.explain(Settings(), what, Asked(**asked)))


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("done", 0, "TFJob/team/done: succeeded"),
        ("broke", 1, "TFJob/team/broke: failed"),
        ("held", 1, "TFJob/team/held: suspended"),
        ("wrong", 1, "TFJob/team/wrong: invalid"),
        ("runs", 1, "TFJob/team/runs: created"),
    ],
)
@pytest.mark.parametrize("kind", [(), ("tfjob",)])
def test_every_job_gets_an_answer(live, name, code, line, kind):
    """Finished, suspended and invalid jobs are reported as gangs are."""
    live(ROOMY, *JOBS.values())
    answer = explain_live(*kind, name)
    assert (answer.code, answer.text.splitlines()[0]) == (code, line)
    (told,) = json.loads(explain_live(*kind, name, output="json").text)
    assert told["gang"] == f"TFJob/team/{name}"
    state = told["verdict"]["state"]
    assert state == line.rpartition(" ")[2].capitalize()
    assert explain_live(*kind, name, output="wide").text.splitlines()[1].split()[1] == state


def test_selector_reports_each_job_in_a_line(live):
    """All jobs that the API server returns for the selector, gangs or not."""
    live(ROOMY, *JOBS.values())
    answer = explain_live(selector="app=a")
    assert answer.code == 1
    rows = [line.split()[:2] for line in answer.text.splitlines()[1:]]
    assert rows == [
        ["TFJob/team/broke", "Failed"],
        ["TFJob/team/held", "Suspended"],
        ["TFJob/team/runs", "Created"],
        ["TFJob/team/wrong", "Invalid"],
        ["TFJob/team/done", "Succeeded"],
    ]
    told = json.loads(explain_live(selector="app=a", output="json").text)
    assert [each["verdict"]["state"] for each in told] == [state for _, state in rows]


def test_pod_names_its_job(live):
    """A pod of a job or of a foreign gang stands for its gang."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "runs", "uid": "1"}
    mine = make_pod(name="runs-worker-0", namespace="team", cpu=1)
    mine["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    own_group = make_pod(name="alone-x", namespace="team", node="", cpu=1)
    own_group["spec"]["schedulerName"] = "muster"
    pods = [{"kind": "Pod", **pod} for pod in (mine, own_group)]
    live(JOBS["runs"], ROOMY, *pods)
    assert explain_live("runs-worker-0").text.startswith("TFJob/team/runs: ")
    assert explain_live("po", "runs-worker-0").text.startswith("TFJob/team/runs: ")
    assert explain_live("pod/alone-x").text.startswith("Pod/team/alone-x: waiting")
    assert explain_live("pod/alone-x", what_if=True).text.startswith("Pod/team/alone-x: fits now")
    with pytest.raises(RefusedError, match=r"^job/alone-x in namespace team does"):
        explain_live("job/alone-x")


def test_pod_without_a_job_runs_if_it_runs(live):
    """The state of a gang without a PodGroup is that of its pods."""
    for phase, state in (("Running", "running"), ("Pending", "placed")):
        pod = make_pod(name="alone", namespace="team", cpu=1, phase=phase)
        pod["spec"]["schedulerName"] = "muster"
        live(ROOMY, {"kind": "Pod", **pod})
        assert explain_live("alone").text.startswith(f"Pod/team/alone: {state}, 1 pods on nodes")


def test_podgroup_of_a_job_names_the_job(live):
    """The PodGroup of a job stands for the job, as its pods do."""
    live(JOBS["runs"], ROOMY)
    for word in ("podgroup/runs", "pg/runs", "podgroups.scheduling.incubator.k8s.io/runs"):
        assert explain_live(word).text.startswith("TFJob/team/runs: ")
    assert explain_live("podgroup/runs", what_if=True).text.startswith("TFJob/team/runs: ")


def test_message_that_is_stored_twice_is_shown_once(live):
    """A refused pod is in the status as its reason and as the verdict's message."""
    told = 'Pod "runs-worker-0" is invalid'
    gang = {"scheduler": "muster", "state": "Waiting", "reason": "CreationRefused"}
    gang |= {"message": told, "summary": f"0/2 placed: {told}", "everPossible": True}
    live({**JOBS["runs"], "status": {"state": "Blocked", "reason": told, "gang": gang}}, ROOMY)
    assert explain_live("runs").text.splitlines()[1:] == [f"  {told}", f"  0/2 placed: {told}"]


def test_absent_object_is_an_error_that_says_what_to_write(monkeypatch):
    """The error names the kinds or the command that lists jobs, and claims no shown status."""
    connected(monkeypatch, Served(JOBS["runs"], failing={OBJECTS["Lease"]: None}))
    for words, message in [
        (["absent"], "no job absent in namespace team, nor in any other namespace; to list all"),
        (["tfj", "absent"], "no job tfj/absent in namespace team, nor in any other namespace"),
        (
            ["deployment/web"],
            "deployment/web: deployment is no kind of job or gang; the kinds are",
        ),
        (["podgroup/web"], "podgroup/web in namespace team does not exist, or belongs to no"),
    ]:
        with pytest.raises(RefusedError, match=f"^{message}") as refused:
            explain_live(*words)
        assert "is shown" not in str(refused.value)


# Jobs of Kueue.

KUEUE = "/apis/kueue.x-k8s.io"
WORKLOADS = f"{KUEUE}/v1beta2/workloads"
QUEUED = {"kueue.x-k8s.io/queue-name": "team-queue"}
RUNNING = {**DONE["conditions"][0], "type": "Running", "message": "It runs."}
FAR = job("far", workers=2) | {"status": {"conditions": [RUNNING]}}
FAR["metadata"]["labels"] = QUEUED
FAR["spec"]["runPolicy"] = {"managedBy": "kueue.x-k8s.io/multikueue"}
ASSIGNED = {
    "metadata": {"name": "tfjob-far-1"},
    "status": {
        "clusterName": "worker1",
        "conditions": [{"type": "Admitted", "status": "True", "message": "It is admitted."}],
    },
}


class Managed(Served):
    """The manager cluster of MultiKueue; `workloads`: a list, or the error in place of it."""

    def __init__(self, workloads, *documents):
        super().__init__(*documents)
        self.workloads, self.asked = workloads, {}

    async def get(self, path, **params):
        """Return Kueue's documents too."""
        if path == KUEUE:
            return {"preferredVersion": {"version": "v1beta2"}}
        if path.replace("/namespaces/team/", "/") == WORKLOADS:
            self.asked = params
            if isinstance(self.workloads, Exception):
                raise self.workloads
            return {"items": self.workloads}
        return await super().get(path, **params)


@pytest.mark.parametrize(
    ("workloads", "lines"),
    [
        (
            [ASSIGNED],
            ["  Workload tfjob-far-1, on cluster worker1", "  Admitted True: It is admitted."],
        ),
        ([], ["  Kueue has not created its Workload"]),
        (ApiError(404, "NotFound", "no", None), ["  the API of Kueue is not served here"]),
        (ApiError(403, "Forbidden", "no", None), ["  its Workload cannot be read: no"]),
    ],
)
def test_dispatched_job_names_its_workload_and_cluster(monkeypatch, workloads, lines):
    """On the manager cluster the job has no pods and no gang."""
    server = connected(monkeypatch, Managed(workloads, ROOMY, FAR))
    answer = explain_live("far")
    assert answer.code == 0
    assert answer.text.splitlines() == [
        "TFJob/team/far: running, dispatched by MultiKueue", *lines, "  It runs.",
    ]  # fmt: skip
    assert server.asked == {"labelSelector": "kueue.x-k8s.io/job-uid=2"}
    head, row = explain_live("far", output="wide").text.splitlines()
    cells = [row[head.index(title) :].split("  ")[0] for title in ("STATE", "QUEUE", "STANDING")]
    assert cells == ["Running", "team-queue", "dispatched by MultiKueue"]
    connected(monkeypatch, Managed(workloads, ROOMY, {**FAR, "status": {}}))
    assert "No operator has reported" not in explain_live("far").text


def test_job_that_kueue_holds_names_why_it_waits(monkeypatch):
    """Only Kueue knows: to Muster it is suspended."""
    held = job("far", workers=2) | {"status": {}}
    held["metadata"]["labels"] = QUEUED
    held["spec"]["runPolicy"] = {"suspend": True}
    connected(monkeypatch, Managed([ASSIGNED], ROOMY, held))
    told = explain_live("far").text.splitlines()
    assert told[1:3] == ["  Workload tfjob-far-1", "  Admitted True: It is admitted."]


def test_queue_of_a_gang_is_the_local_queue_of_its_job(live):
    """Jobs that Kueue admits and Muster places."""
    near = job("near", workers=1)
    near["metadata"]["labels"] = QUEUED
    live(ROOMY, near, job("other", workers=1))
    answer = asyncio.run(reporting.explain(Settings(), None, Asked(everywhere=True)))
    rows = {line.split()[0]: line.split()[2] for line in answer.text.splitlines()[1:]}
    assert rows == {"TFJob/team/near": "team-queue", "TFJob/team/other": "-"}


# Which rank of a job failed first.

ENDED = "2026-01-01T00:00:05Z"
AT = {"index": 1, "replicaType": "Worker", "failureTime": ENDED, "container": "tensorflow"}
KILLED = "container tensorflow ended with exit code 137 (SIGKILL, OOMKilled)"
FAILED = {"conditions": [{"type": "Failed", "status": "True"}], "state": "Failed"}


class Logged(Served):
    """The same with one pod and its log; none if it is gone."""

    def __init__(self, pod, log, *documents):
        super().__init__(*documents)
        self._pod, self._log, self.asked = pod, log, {}

    async def get(self, path, **params):
        """Return the pod too."""
        if not path.endswith("/namespaces/team/pods/mnist-worker-1"):
            return await super().get(path, **params)
        if self._pod is None:
            raise ApiError(404, "NotFound", 'pods "mnist-worker-1" not found', None)
        return self._pod

    async def text(self, path, **params):
        """Return the log."""
        assert path == "/api/v1/namespaces/team/pods/mnist-worker-1/log"
        self.asked = params
        if isinstance(self._log, Exception):
            raise self._log
        return self._log


def crashed(**states):
    """Return the pod, its container in these states."""
    statuses = [{"name": "tensorflow", **states}]
    return {
        "metadata": {"name": "mnist-worker-1", "namespace": "team", "uid": "u"},
        "status": {"phase": "Failed", "containerStatuses": statuses},
    }


def terminated(at=ENDED):
    """Return a state."""
    return {"terminated": {"exitCode": 137, "finishedAt": at}}


def asked_of(monkeypatch, server):
    """Return what explain says of the job that failed there."""
    connected(monkeypatch, server)
    return asyncio.run(reporting.explain(Settings(), reference(["tfjob/mnist"]), Asked()))


def failed_job(**first):
    """Return a job that failed, by its second worker first."""
    pod = {"pod": "mnist-worker-1", "node": "n1", "exitCode": 137, "reason": "OOMKilled"}
    return {**job(workers=2), "status": {**FAILED, "firstFailure": {**AT, **pod, **first}}}


@pytest.mark.parametrize(
    ("pod", "previous", "words"),
    [
        (crashed(state=terminated()), "false", "its log:"),
        (crashed(state={"running": {}}, lastState=terminated()), "true", "its log:"),
        (
            crashed(state=terminated("2026-01-01T00:01:00Z"), lastState=terminated()),
            "true",
            "its log:",
        ),
        (
            crashed(
                state=terminated("2026-01-01T00:02:00Z"),
                lastState=terminated("2026-01-01T00:01:00Z"),
            ),
            "false",
            "its log when it failed again at 2026-01-01T00:02:00Z:",
        ),
    ],
)
def test_which_rank_failed_first_is_told_with_the_end_of_its_log(
    monkeypatch, pod, previous, words
):
    """Of that run if there is one, without what steers a terminal."""
    log = "".join(f"step {i}\n" for i in range(30)) + "\x1b[31mout of memory\n"
    server = Logged(pod, log, failed_job(message="no\nmemory"))
    answer = asked_of(monkeypatch, server)
    assert answer.code == 1
    lines = answer.text.splitlines()
    assert lines[:7] == [
        "TFJob/team/mnist: failed",
        f"  The first to fail was pod mnist-worker-1 on node n1: {KILLED}.",
        f"  at {ENDED}",
        "  its message:",
        "    no",
        "    memory",
        f"  the end of {words}",
    ]
    assert (len(lines), lines[-1]) == (27, "     [31mout of memory")
    assert server.asked == {"container": "tensorflow", "tailLines": "20", "previous": previous}


@pytest.mark.parametrize(
    ("pod", "log", "words"),
    [
        (None, "", 'its log cannot be read: pods "mnist-worker-1" not found'),
        (crashed(state={"running": {}}), "", "its log is gone: the pod was made anew"),
        (
            crashed(state=terminated()),
            ApiError(403, "Forbidden", "no pods/log for you", None),
            "its log cannot be read: no pods/log for you",
        ),
    ],
)
def test_where_its_log_is_not_to_be_had_that_is_told(monkeypatch, pod, log, words):
    """The rest is in the job."""
    answer = asked_of(monkeypatch, Logged(pod, log, failed_job()))
    assert answer.text.splitlines()[-1] == f"  {words}"


def test_a_pod_that_failed_as_a_whole_has_no_log_to_tell_of(monkeypatch):
    """And a job of which no rank failed is no matter of this."""
    evicted = failed_job(container="", exitCode=None, reason="Evicted", message="low on memory")
    text = asked_of(monkeypatch, Logged(None, "", evicted)).text
    assert text.endswith(f"n1: Evicted.\n  at {ENDED}\n  its message:\n    low on memory\n")
    text = asked_of(monkeypatch, Served({**job(workers=2), "status": FAILED})).text
    assert text == "TFJob/team/mnist: failed\n"


def test_a_job_at_work_tells_it_beside_where_it_runs(monkeypatch):
    """It restarts."""
    again = failed_job()
    again["status"] = {"firstFailure": again["status"]["firstFailure"]}
    answer = asked_of(monkeypatch, Logged(None, "", ROOMY, again))
    assert answer.text.startswith("TFJob/team/mnist: created\n")
    assert "  The first to fail was pod mnist-worker-1" in answer.text
