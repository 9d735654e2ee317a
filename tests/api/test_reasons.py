# SPDX-License-Identifier: Apache-2.0
"""The words in which both cores say where a gang stands."""

from __future__ import annotations

import ast
from pathlib import Path

import reasondocs

import muster
from muster.api import reasons
from muster.api.reasons import Reason


def test_load_can_end_some_waits_and_not_others() -> None:
    """A missing queue stays missing whatever else finishes; no reason is false and empty."""
    assert Reason.NOT_ENOUGH_RESOURCES.ever_possible
    assert not Reason.QUEUE_NOT_FOUND.ever_possible
    assert Reason.NONE.ever_possible
    assert not Reason.NONE
    # Whoever adds nodes, or counts what a queue could use, would wait in vain.
    devices = Reason.DEVICES_ALLOCATED_BY_DRA
    assert (devices.ever_possible, devices.wants_room, devices.wants_nodes) == (True, False, False)


def test_every_reason_is_spelt_in_one_place() -> None:
    """Two lists of them had drifted apart: nobody writes one out but the module of reasons."""
    known = set(Reason) - {Reason.NONE}
    spelt = {
        f"{path.name}: {node.value}"
        for path in Path(muster.__file__).parent.rglob("*.py")
        if path != Path(reasons.__file__)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in known
    }
    assert spelt == set()


def test_reason_without_meaning_or_remedy_does_not_exist() -> None:
    """The docs state in sentences what each reason means and what to do."""
    assert list(reasondocs.ROWS) == [reason for reason in Reason if reason]
    for row in reasondocs.ROWS.values():
        assert row.meaning.endswith(".")
        assert row.remedy.endswith(".")


def test_page_of_reasons_names_every_reason() -> None:
    """The docs have one row for each reason."""
    page = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text()
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert rows == [reason for reason in Reason if reason]
