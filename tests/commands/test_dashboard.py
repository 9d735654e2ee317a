# SPDX-License-Identifier: Apache-2.0
"""`muster dashboard` of a snapshot file: what is served, and what is told of other files."""

from __future__ import annotations

import asyncio
import re

import aiohttp

import halls
from muster import cli
from muster.cluster import recording
from muster.commands import dashboard
from muster.runtime.settings import Settings


def test_the_page_of_a_snapshot(tmp_path, capsys):
    """On this machine, with what it saw and when."""
    taken, seen = halls.small()
    file = tmp_path / "saw.json"
    file.write_text(recording.dump(taken, seen.decisions))

    async def story():
        serving = asyncio.create_task(dashboard.run(Settings(), str(file), 0))
        told = ""
        while "http" not in told:
            await asyncio.sleep(0.01)
            told += capsys.readouterr().out
        url = re.search(r"http://localhost:\d+/", told)[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(url + "api/view") as answer:
                shown = await answer.json()
            async with session.get(url) as answer:
                assert answer.status == 200
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return shown

    shown = asyncio.run(story())
    assert (shown["live"], shown["words"]) == (
        False, "A snapshot of 2026-09-21T14:13:20Z: time stands still.",
    )  # fmt: skip
    assert len(shown["view"]["nodes"]) == 24
    # The decisions are made again, as the file holds them.
    assert shown["view"]["gangs"]["PyTorchJob/language/rlhf-round-3"]["state"] == "Reserved"


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
