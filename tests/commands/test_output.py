# SPDX-License-Identifier: Apache-2.0
"""What commands print cannot steer a terminal, reverse text or forge lines."""

import csv
import io
import json

import pytest
import yaml

from muster.commands import output, report
from muster.commands.accounting import Row, State
from muster.commands.output import Verbatim

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


def test_structured_output_keeps_every_character():
    """JSON and YAML escape what is not printed as it is."""
    for form, read in ((output.JSON, json.loads), (output.YAML, yaml.safe_load)):
        text = output.data({"queue": EVIL, "é": "é"}, form)
        assert output.plain_lines(text) == text
        assert read(text) == {"queue": EVIL, "é": "é"}


@pytest.mark.parametrize("queue", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_csv_cell_that_looks_like_a_formula_is_quoted(queue):
    """A spreadsheet shows the name in place of evaluating it."""
    rows = [Row({"queue": queue}, dict.fromkeys(State, 1.0), 9.0)]
    head, cells = csv.reader(io.StringIO(report._csv(rows)))
    assert dict(zip(head, cells, strict=True))["queue"] == f"'{queue}"
    assert set(cells[-len(State) - 1 : -1]) == {"1"}


def test_control_characters_of_a_cell_are_not_printed():
    """A cell cannot move the cursor of the terminal or add a line."""
    columns = [output.Column("NAME", str), output.Column("MORE", str.upper, wide=True)]
    assert output.table(columns, ["\x1b[2Jgone\nnext"]) == "NAME\n [2Jgone next\n"
