# SPDX-License-Identifier: Apache-2.0
"""`muster dashboard` of a snapshot file: what is served, and what is told of other files."""

import asyncio
import json
import re
from contextlib import asynccontextmanager

import aiohttp
import pytest

from muster import cli
from muster.cluster import recording
from muster.commands import dashboard
from muster.dashboard import server as page
from muster.kube.client import OPENED, ApiError
from muster.settings import Settings
from support.apiserver.memory import tfjob
from support.apiserver.read_only import OBJECTS, PATHS, Served
from support.builders import sample_clusters
from support.builders.scheduler import make_node
from support.rehearsal.commands import connected


@asynccontextmanager
async def served(cluster, capsys):
    """Run the command; give a function that asks for a path."""
    serving = asyncio.create_task(dashboard.run(Settings(), str(cluster), 0))
    told = ""
    while "http" not in told:
        await asyncio.sleep(0.01)
        told += capsys.readouterr().out
        assert not serving.done(), serving.exception()
    url = re.search(r"http://localhost:\d+/", told)[0]
    async with aiohttp.ClientSession() as session:

        async def ask(path=""):
            async with session.get(url + path) as answer:
                return answer.status, await answer.text()

        yield ask
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
def file(tmp_path):
    """Return a snapshot file of the small hall."""
    taken, seen = sample_clusters.small()
    made = tmp_path / "saw.json"
    made.write_text(recording.dump(taken, seen.decisions))
    return made


def job(workers, gpu="8", name="fresh"):
    """Return a job as people write one."""
    resources = {"limits": {"nvidia.com/gpu": gpu}}
    container = {"name": "tensorflow", "image": "i", "resources": resources}
    template = {"spec": {"containers": [container]}}
    return tfjob(name=name, Worker={"replicas": workers, "template": template})


async def test_the_page_of_a_snapshot(file, capsys):
    """On this machine, with what it saw and when; the decisions are made again."""
    async with served(file, capsys) as ask:
        assert (await ask())[0] == 200
        shown = json.loads((await ask("api/view"))[1])
    assert (shown["live"], shown["words"]) == (
        False, "A snapshot of 2026-09-21T14:13:20Z: time stands still.",
    )  # fmt: skip
    assert (shown["reads"], shown["keepsDecisions"]) == (False, False)
    assert len(shown["view"]["nodes"]) == 24
    assert shown["view"]["gangs"]["PyTorchJob/language/rlhf-round-3"]["state"] == "Reserved"


class Cluster(Served):
    """Shows what comes, and a log."""

    def __init__(self, *documents, failing):
        """Begin with these."""
        super().__init__(*documents, failing=failing)
        self.comes = asyncio.Queue()
        self.asked = []

    async def watch(self, path, _params):
        """Yield what comes of the jobs; nothing of others does."""
        yield OPENED
        while path == PATHS["TFJob"]:
            yield await self.comes.get()
        await asyncio.Event().wait()

    async def text(self, path, **params):
        """Return a log."""
        self.asked.append((path, params))
        if path.endswith("/one-worker-0/log"):
            return "step 1\n"
        raise ApiError(403, "Forbidden", "you may not read logs", None)


async def test_the_page_of_a_cluster(monkeypatch, capsys):
    """Follows it, and reads logs by one's own rights."""
    monkeypatch.setattr(dashboard, "PAUSE", 0.01)
    monkeypatch.setattr(page, "PAUSE", 0.01)
    monkeypatch.setattr(page, "SHARE", 0)
    metadata = {"name": "one", "uid": "9", "generation": 1}
    first = job(1, gpu="1", name="one")
    first["metadata"] |= metadata
    second = job(9, gpu="1", name="two")
    second["metadata"] |= {"uid": "10", "resourceVersion": "2", "generation": 1}
    owner = {"kind": "TFJob", "name": "one", "uid": "9", "controller": True,
             "apiVersion": "kubeflow.org/v1"}  # fmt: skip
    labels = {"training.kubeflow.org/replica-type": "worker",
              "training.kubeflow.org/replica-index": "0"}  # fmt: skip
    pods = [
        {"kind": "Pod", "metadata": {"name": name, "labels": labels, "ownerReferences": [owner]},
         "spec": {"nodeName": "n1", "containers": first["spec"]["tfReplicaSpecs"]["Worker"][
             "template"]["spec"]["containers"]}, "status": {"phase": "Running"}}
        for name in ("one-worker-0",)
    ]  # fmt: skip
    forbidden = ApiError(403, "Forbidden", "no", None)
    failing = dict.fromkeys(OBJECTS.values(), forbidden)
    node = {"kind": "Node", **make_node(gpu=4)}
    cluster = connected(monkeypatch, Cluster(node, first, *pods, failing=failing))
    async with served("live", capsys) as ask:
        shown = {}
        while not shown:
            status, text = await ask("api/view")
            shown = json.loads(text) if status == 200 else {}
            await asyncio.sleep(0.01)
        assert shown["words"].endswith(
            " ConfigMap muster-system/muster-policy: no; the built-in policy is used."
            " It is unknown whether the operator runs: no."
        )
        assert shown["view"]["nodes"]["n1"]["held"][0][:4] == [
            "TFJob/team/one", "worker", "0", 1.0,
        ]  # fmt: skip
        cluster.comes.put_nowait({"type": "ADDED", "object": second})
        while "TFJob/team/two" not in shown["view"]["gangs"]:
            shown = json.loads((await ask("api/view"))[1])
            await asyncio.sleep(0.01)
        assert shown["view"]["gangs"]["TFJob/team/two"]["state"] == "Waiting"
        past = json.loads((await ask("api/past"))[1])
        while past["since"] is None:
            past = json.loads((await ask("api/past"))[1])
        log = "api/log?key=TFJob/team/one&pod="
        assert await ask(log + "one-worker-0") == (200, "step 1\n")
        assert cluster.asked[-1][1]["container"] == "tensorflow"
        # A name of a pod that is not the job's is asked of nobody.
        assert (await ask(log + "other"))[0] == 404
        assert len(cluster.asked) == 1


def test_cluster_that_may_not_be_read_is_an_error(monkeypatch, capsys):
    """A page without pods would stay empty."""
    refused = ApiError(403, "Forbidden", "no pods for you", None)
    connected(monkeypatch, Served(failing={"/api/v1/pods": refused}))
    assert cli.main(["dashboard", "--port=0"]) == 2
    assert capsys.readouterr().err == "muster: no pods for you\n"


def test_what_cannot_be_shown_is_a_sentence(tmp_path, capsys):
    """Code 2, for a file that is missing or none of ours, and for flags that nobody knows."""
    (tmp_path / "no.json").write_text("{}")
    for words, told in (
        (["--cluster", str(tmp_path / "no.json")], "not a snapshot"),
        (["--cluster", str(tmp_path / "gone.json")], "No such file"),
        (["--kubeconfig", str(tmp_path / "gone")], "no connection to a cluster"),
        (["--colour=red"], "unknown flag --colour"),
    ):
        assert cli.main(["dashboard", *words]) == 2
        assert told in capsys.readouterr().err
