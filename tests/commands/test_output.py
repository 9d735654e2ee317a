# SPDX-License-Identifier: Apache-2.0
"""What commands print cannot steer a terminal, reverse text or forge lines."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

from muster import cli
from muster.cluster import recording
from muster.commands import output, report, tables
from muster.commands.accounting import Row, State
from muster.commands.output import Verbatim
from support.builders.scheduler import make_gang, make_queue, make_role
from support.builders.snapshots import seen

EVIL = "q\x1b[2J\u202eno\u2066\x9b1m\x07\r\n  starts: now"
STEERING = frozenset(EVIL) - frozenset("\n") - {c for c in EVIL if c.isprintable()}


@pytest.mark.parametrize("text", [EVIL, "\x7f", "\u200b", "\ufeff", "\U000e0001", "\u2028"])
def test_control_and_format_characters_become_spaces(text, capsys):
    """In one line and in text of several lines, on both streams."""
    assert output.plain(text) == "".join(c if c.isprintable() else " " for c in text)
    output.write(f"{text}\n")
    output.complain(text)
    told = capsys.readouterr()
    assert not STEERING & {*told.out, *told.err}
    assert told.err.count("\n") == 1
    output.write(Verbatim(text))
    assert capsys.readouterr().out == text


def test_lines_and_tabs_stay():
    """Letters of every script are printed unchanged."""
    assert output.plain_lines("a\tb\nñ 組 é\n") == "a\tb\nñ 組 é\n"


@pytest.fixture
def saved(tmp_path):
    """Return a snapshot of a gang whose queue has a hostile name."""
    file = tmp_path / "saw.json"
    gang = make_gang(key="TFJob/team/a", queue=EVIL, roles=[make_role(replicas=1, cpu=99)])
    gangs = [gang, make_gang(key="TFJob/team/b", queue=EVIL, roles=gang.roles)]
    queues = [make_queue(), make_queue(name=EVIL, state="Closed")]
    file.write_text(recording.dump(*seen(gangs=gangs, queues=queues)))
    return str(file)


@pytest.mark.parametrize("form", ["text", "wide", "json", "yaml"])
@pytest.mark.parametrize("what", [["tfjob/a"], ["-A"]])
def test_explain_prints_a_hostile_queue_name_safely(saved, capsys, form, what):
    """The name starts no line; programs read it unchanged."""
    assert cli.main(["explain", *what, "-n", "team", "--cluster", saved, "-o", form]) == 1
    told = capsys.readouterr().out
    assert "q [2J no" in told or form in ("json", "yaml")
    assert not STEERING & set(told)
    assert not any(line.startswith("  starts: now") for line in told.splitlines())


def test_structured_output_keeps_every_character():
    """JSON and YAML escape what is not printed as it is."""
    for form, read in ((tables.JSON, json.loads), (tables.YAML, yaml.safe_load)):
        text = tables.data({"queue": EVIL, "é": "é"}, form)
        assert output.plain_lines(text) == text
        assert read(text) == {"queue": EVIL, "é": "é"}


@pytest.mark.parametrize("queue", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_csv_cell_that_looks_like_a_formula_is_quoted(queue):
    """A spreadsheet shows the name in place of evaluating it."""
    rows = [Row("TFJob", "team", "mnist", queue, dict.fromkeys(State, 1.0))]
    head, cells = csv.reader(io.StringIO(report._csv(rows)))
    assert dict(zip(head, cells, strict=True))["queue"] == f"'{queue}"
    assert set(cells[-len(State) - 1 : -1]) == {"1"}


def test_report_prints_a_hostile_queue_name_in_one_line():
    """In the table and in CSV."""
    rows = [Row("TFJob", "team", "mnist", EVIL, dict.fromkeys(State, 1.0))]
    assert report._table(rows).count("\n") == 3
    assert report._csv(rows).count("\n") == 2
    assert not STEERING & {*report._table(rows), *report._csv(rows)}
