# SPDX-License-Identifier: Apache-2.0
"""`muster bundle --redact-names`: no name is left, and the scheduler decides the same."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import cli
from muster.cluster import recording
from muster.commands import redaction
from muster.kube import client
from support.apiserver.read_only import job
from support.builders.recorded_decisions import RECORDED
from support.builders.scheduler import make_node
from support.rehearsal.bundles import written

SAMPLE = list(RECORDED)[::5]
MEANT = ("job", "space", "node", "zone", "queue", "class", "image", "label", "value", "variable",
         "claim", "container", "annotation", "other")  # fmt: skip
STRANGE = st.text("qxzjkv", min_size=7, max_size=9)
NAMES = st.lists(STRANGE, min_size=len(MEANT), max_size=len(MEANT), unique=True)
"""None is a part of any other text."""


@pytest.mark.parametrize("place", SAMPLE)
def test_what_was_decided_is_decided_again(place):
    """The same of everybody, by the names that stand for theirs."""
    found = redaction.without_names({"snapshot.json": RECORDED[place]})
    assert not found.complaints
    again, told = recording.load(found.parts["snapshot.json"])
    decided = again.decide()
    assert recording.decisions_text(decided) == told
    before = json.loads(RECORDED[place])["decided"]
    assert [each.verdict.state for each in decided] == [d["verdict"]["state"] for d in before]


def cluster(n):
    """Return the documents of a cluster in which everything has a name of its own."""
    document = job(n["job"], workers=2, cpu="3")
    document["metadata"] |= {
        "namespace": n["space"],
        "labels": {n["label"]: n["value"]},
        "annotations": {f"{n['annotation']}.com/x": n["value"]},
        "managedFields": [{"fieldsV1": {f"f:{n['other']}": {}}}],
    }
    policy = {"queue": n["queue"], "priorityClass": n["class"]}
    document["spec"]["runPolicy"] = {"schedulingPolicy": policy}
    template = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"labels": {n["label"]: n["value"]}}
    pod = template["spec"]
    pod["nodeSelector"] = {f"{n['label']}.com/zone": n["zone"]}
    pod["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": n["claim"]}}]
    pod["containers"][0] |= {"image": f"{n['image']}.com/a/{n['image']}:{n['other']}"}
    pod["containers"][0]["env"] = [{"name": n["variable"], "value": n["value"]}]
    wrong = {"limits": {"memory": n["other"]}}
    pod["containers"].append({"name": n["container"], "image": "i", "resources": wrong})
    why = f"0/2 placed behind TFJob/{n['space']}/{n['other']}"
    document["status"] = {"gang": {"state": "Queued", "summary": why, "message": why}}
    labels = {f"{n['label']}.com/zone": n["zone"], "kubernetes.io/hostname": n["node"]}
    node = {"kind": "Node", **make_node(name=n["node"], labels=labels)}
    shared = {"kind": "Queue", "metadata": {"name": n["queue"]}, "spec": {"weight": 2}}
    return node, shared, document


def running(n, snapshot):
    """Return what a running operator answers, by path."""
    gang = f"TFJob/{n['space']}/{n['job']}"
    verdict = {"state": "Waiting", "reason": "Fragmented", "message": f"of {n['other']}",
               "blocked_by": [f"queue/{n['queue']}"],
               "ruled_out": {f"no {n['zone']}": 1}}  # fmt: skip
    decision = {"at": "2026-11-23T03:00:00Z", "gang": gang, "pods": [f"{n['job']}-worker-0"],
                "placements": [{"role": "worker", "index": 0, "node": n["node"]}],
                "verdict": verdict}  # fmt: skip
    metrics = f"""# HELP muster_x What.
muster_x{{queue="{n["queue"]}",resource="nvidia.com/gpu"}} 3.0
volcano_job_retry_counts{{job_id="{n["space"]}/{n["job"]}"}} 1.0
"""
    return {"/debug/snapshot": snapshot, "/debug/decisions": json.dumps([decision]),
            "/metrics": metrics}  # fmt: skip


@settings(max_examples=6)
@given(NAMES)
def test_no_name_that_went_in_comes_out(tmp_path_factory, found):
    """Wherever it stood; which is which is in the file beside it, and the snapshots replay."""
    n, folder = dict(zip(MEANT, found, strict=True)), tmp_path_factory.mktemp("bundle")
    documents = cluster(n)
    _, plain = written(folder / "plain.tar.gz", *documents)
    answers = running(n, plain["snapshot.json"])

    async def fetch(url):
        return answers[url.removeprefix("http://operator")]

    with mock.patch.object(client, "fetch", fetch):
        words = ("--redact-names", "--from", "http://operator")
        code, parts = written(folder / "b.tar.gz", *documents, words=words)
        _, same = written(folder / "b.tar.gz", *documents, words=words)
    assert (code, parts["missing.txt"]) == (0, "")
    assert len(parts) == 9
    for name, text in parts.items():
        assert [each for each in found if each in text] == [], name
    beside = folder / "b.names.json"
    assert beside.stat().st_mode & 0o077 == 0
    known = json.loads(beside.read_text())
    assert {n[each] for each in ("job", "space", "node", "zone", "queue", "label")} <= {
        *known.values()
    }
    shown = {name: short for short, name in known.items()}
    metrics = parts["running-0-metrics"]
    assert f'job_id="{shown[n["space"]]}/{shown[n["job"]]}"' in metrics
    assert 'resource="nvidia.com/gpu"' in metrics
    (told_job,) = json.loads(parts["jobs.json"])
    assert told_job["metadata"]["name"] == shown[n["job"]]
    assert same["jobs.json"] == parts["jobs.json"]
    for part in ("snapshot.json", "running-0-debug-snapshot"):
        Path(folder / "saw.json").write_text(parts[part])
        assert cli.main(["simulate", "--replay", str(folder / "saw.json")]) == 0


def test_part_that_cannot_be_parsed_is_left_out():
    """A bundle leaves out parts whose names cannot be found, and reports them."""
    text = next(iter(RECORDED.values()))
    parts = {
        "running-0-debug-decisions": "not JSON, of mnist",
        "running-0-debug-snapshot": text,
        "snapshot.json": "{}",
    }
    found = redaction.without_names(parts)
    assert found.parts.keys() == {"running-0-debug-snapshot"}
    assert [told.partition(":")[0] for told in found.complaints] == [
        "running-0-debug-decisions", "snapshot.json",
    ]  # fmt: skip
