# SPDX-License-Identifier: Apache-2.0
"""How long a job takes from `kubectl apply` on."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from support.e2e.harness import Api, Json, condition, node_of, phase_of

PAGE = Path(__file__).parents[2] / "docs" / "real.md"
HEAD = "| example | pods | Muster | made | run | first line | Succeeded |\n"
ROW = re.compile(r"^\| `([\w-]+)` \|.*\n", re.MULTILINE)
SECONDS = 150.0


@dataclass(frozen=True)
class Times:
    """Seconds since the API server had the job."""

    began: float
    """By the clock, not seconds."""
    pods: int
    muster: float
    """Until the last of what Muster makes before anything runs."""
    made: float
    run: float
    ended: float

    def __str__(self) -> str:
        """Return them for people."""
        return (
            f"Muster's part done in {self.muster:.2f} s, {self.pods} pods made in "
            f"{self.made:.1f} s, running in {self.run:.1f} s, Succeeded in {self.ended:.1f} s"
        )


def count(job: Json) -> int:
    """Return how many pods a job has."""
    (roles,) = (value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    return sum(role.get("replicas", 1) for role in roles.values())


def follow(api: Api, job: Json, apply: Callable[[], object]) -> Times:
    """Apply a job, see when each of its pods is there and runs, and wait for its end.

    A launcher's pod is made by a batch Job, which Muster makes with the others or when they run.
    """
    name, wanted = job["metadata"]["name"], count(job)
    seen: dict[str, dict[str, float]] = {
        what: {} for what in ("began", "muster", "made", "run", "ended")
    }

    def note(what: str, names: Iterable[str]) -> int:
        for one in names:
            seen[what].setdefault(one, time.time())
        return len(seen[what])

    def pods(state: Mapping[str, Json]) -> bool:
        placed = {n: pod for n, pod in state.items() if node_of(pod)}
        note("made", placed)
        note("muster", (n for n, pod in placed.items() if maker(pod) == job["kind"]))
        running = (n for n, pod in state.items() if phase_of(pod) not in {"Pending", ""})
        return note("run", running) == wanted

    def jobs(state: Mapping[str, Json]) -> bool:
        note("began", state)
        over = ("Succeeded", "Failed")
        ended = (n for n, one in state.items() if any(condition(one, c) == "True" for c in over))
        return note("ended", ended) == 1

    def launchers(state: Mapping[str, Json]) -> bool:
        note("muster", state)
        return bool(state)

    asked: dict[str, Callable[[Mapping[str, Json]], bool]] = {"Pod": pods, job["kind"]: jobs}
    if job["apiVersion"] == "kubeflow.org/v2beta1":
        asked["MPIJob-v2beta1"] = asked.pop("MPIJob")
        if job["spec"].get("launcherCreationPolicy") != "WaitForWorkersReady":
            asked["Job"] = launchers
    with ThreadPoolExecutor(len(asked)) as pool:
        followed = [
            pool.submit(api.wait, kind, until, seconds=SECONDS, what=f"{kind} of {name}")
            for kind, until in asked.items()
        ]
        apply()
        for one in followed:
            one.result()
    began = seen.pop("began")[name]
    after = {what: max(times.values()) - began for what, times in seen.items()}
    return Times(began, wanted, **after)


def maker(pod: Json) -> str:
    """Return the kind of what has made a pod."""
    return str(pod["metadata"]["ownerReferences"][0]["kind"])


def spoken(text: str) -> float:
    """Return when the first line was printed."""
    stamp = text.split(maxsplit=1)[0]
    return dt.datetime.fromisoformat(re.sub(r"\.(\d{6})\d*", r".\1", stamp)).timestamp()


def write(name: str, times: Times, line: float) -> None:
    """Put a row into the table of the page, in place of that of an earlier run."""
    text = PAGE.read_text()
    cells = (times.made, times.run, line, times.ended)
    seconds = " | ".join([f"{times.muster:.2f}", *(f"{cell:.1f}" for cell in cells)])
    row = f"| `{name}` | {times.pods} | {seconds} |\n"
    head, mark, rest = text.partition(HEAD)
    assert mark, "the page has no table"
    rule, _, rest = rest.partition("\n")
    table = "".join(itertools.takewhile(ROW.match, rest.splitlines(keepends=True)))
    rows = {found[1]: found[0] for found in ROW.finditer(table)} | {name: row}
    ordered = "".join(rows[key] for key in sorted(rows))
    PAGE.write_text(f"{head}{mark}{rule}\n{ordered}{rest.removeprefix(table)}")
