# SPDX-License-Identifier: Apache-2.0
"""Questions to a snapshot file: what is answered, and with which exit code."""

from __future__ import annotations

import asyncio
import json

import pytest
import yaml

from builders_scheduler import make_gang, make_pod, make_role
from muster import cli
from muster.runtime import questions, recording
from muster.runtime.settings import Settings
from seen import seen
from world import tfjob

WAITS = make_gang(key="TFJob/team/waits", roles=[make_role(replicas=1, cpu=9)])
RUNS = make_gang(key="TFJob/team/runs", roles=[make_role(held=[(0, "n1")], cpu=1)])


@pytest.fixture
def saved(tmp_path):
    """Return a snapshot file with a gang that waits and one that runs."""
    file = tmp_path / "saw.json"
    file.write_text(recording.dump(*seen(gangs=[WAITS, RUNS])))
    return str(file)


def explain(saved, what, **more):
    """Return the answer of `muster explain` on the file."""
    ask = questions.explain(Settings(), what, saved, "team", **({"as_json": False} | more))
    return asyncio.run(ask)


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        ("TFJob/waits", 1, "impossible as things are"),
        ("tfjobs/runs", 0, "placed, 1 pods on nodes"),
    ],
)
def test_a_gang_is_found_by_kind_and_name(saved, what, code, words):
    """In any case, and in the plural."""
    answer = explain(saved, what)
    assert answer.code == code
    assert words in answer.text


def test_a_gang_that_is_not_there(saved):
    """Is a complaint, not an answer."""
    answer = explain(saved, "pytorchjob/waits")
    assert (answer.code, answer.text) == (2, "")
    assert answer.complaint.startswith("pytorchjob/waits in namespace team: not there")


def test_the_start_of_a_gang_behind_the_first(tmp_path):
    """Is worked out, as nobody reserves anything for it; of one that can never start it is not."""
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
    assert lines["second"].endswith(
        "  starts: about 1970-01-01T00:21:00Z, if nothing else comes\n"
    )
    assert "starts" not in explain(str(file), "tfjob/waits").text


def test_programs_read_json(saved):
    """The decision as the recording has it."""
    (decision,) = json.loads(explain(saved, "tfjob/waits", as_json=True).text)
    assert decision["verdict"]["reason"] == "NoNodeLargeEnough"


@pytest.mark.parametrize(("workers", "code"), [(3, 0), (300, 1)])
def test_a_job_is_tried_on_the_file(saved, tmp_path, capsys, workers, code):
    """Through the command line: where it would go, or why not."""
    file = tmp_path / "job.yaml"
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}
    file.write_text(yaml.safe_dump(tfjob(Worker={"replicas": workers, "template": template})))
    assert cli.main(["simulate", "-f", str(file), "--cluster", saved]) == code
    told = capsys.readouterr().out
    assert told.startswith("TFJob/team/mnist: " + ("waiting" if code else "fits now"))


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
