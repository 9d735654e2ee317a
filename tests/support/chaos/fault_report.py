# SPDX-License-Identifier: Apache-2.0
"""What the runs of the schedules come to, as a table for the reader of docs/reliability.md."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.chaos.fault_player import Outcome
from support.chaos.fault_schedules import Life

BEGIN, END = (
    "<!-- written by `make faults FAULT_REPORT=yes` -->",
    "<!-- end of what is written -->",
)
SAID: Mapping[str, str] = {
    "kill": "kill -9 of the operator (with two: of the leader)",
    "stop": "SIGTERM",
    "freeze": "SIGSTOP for half a second, SIGCONT",
    "sleep": "SIGSTOP until another leads, SIGCONT",
    "rob": "the lease written over by a stranger",
    "dumb": "no answer to the lease's renewal but 500",
    "forbid": "all permissions taken away and given back",
    "deaf": "all watches half-open",
    "cut": "all watches broken",
}
LOST = "jobs that ended otherwise, ranks that ran twice, half gangs, objects left behind"


@dataclass
class Tally:
    """Counts what was tried and what was lost."""

    schedules: int = 0
    jobs: int = 0
    pods: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    takeovers: dict[str, list[float]] = field(default_factory=dict)
    quiet: int = 0
    memory: list[int] = field(default_factory=list)

    def add(self, life: Life, found: Outcome, wrong: Sequence[str]) -> None:
        """Take in one life."""
        self.schedules += len(life.seeds)
        self.jobs += len(found.ends)
        self.pods += found.runs.total()
        for fault, count in found.faults.items():
            self.requests[_kind(fault)] += count
        self.fates.update(act.verb for act in life.acts)
        self.lost += len(wrong)
        self.memory.append(found.memory)

    def write(self, page: Path) -> None:
        """Put the table into a page, between its marks."""
        text = page.read_text()
        before, rest = text.split(BEGIN)
        after = rest.split(END)[1]
        page.write_text(f"{before}{BEGIN}\n\n{self.table()}\n{END}{after}")

    def table(self) -> str:
        """Return the table, as Markdown."""
        rows = [
            ("random schedules", str(self.schedules)),
            ("jobs in them, of all kinds", str(self.jobs)),
            ("pods that ran", str(self.pods)),
            *((f"requests: {kind}", str(n)) for kind, n in sorted(self.requests.items())),
            *((SAID[verb], str(n)) for verb, n in sorted(self.fates.items())),
            (LOST, str(self.lost)),
        ]
        for signal, seconds in self.takeovers.items():
            text = f"{statistics.median(seconds):.1f} s, {max(seconds):.1f} s"
            rows.append((f"{signal} of the leader to the next job's pods, median and worst", text))
        if self.memory:
            share = statistics.median(self.memory) / self.quiet
            worst = max(self.memory) / self.quiet
            text = f"{share:.2f}, {worst:.2f}"
            rows.append(("memory, of the quiet run's, median and worst", text))
        lines = [f"| {what} | {result} |" for what, result in rows]
        return "\n".join(["| tried | result |", "|---|---|", *lines, ""])


def _kind(fault: str) -> str:
    """Return what a fault is, in words."""
    word, _, value = fault.rpartition(" ")
    if word in ("late", "hang"):
        return {"late": "answered late", "hang": "done, and silence"}[word]
    if word == "done":
        return f"done, and answered {_of_answer(value)}"
    if word == "event":
        return f"a watch that begins with the error {value}"
    said = {
        "cut": "connection cut before",
        "lose": "connection cut after it was done",
        "tear": "half an answer",
        "twice": "sent twice",
        "blank": "a watch with blank lines",
        "babble": "a watch with nonsense in it",
    }
    return said.get(value) or f"answered {_of_answer(value)}"


def _of_answer(value: str) -> str:
    return "nonsense with 200" if value == "page" else value
