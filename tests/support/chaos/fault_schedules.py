# SPDX-License-Identifier: Apache-2.0
"""Random schedules: from a seed the jobs that are applied, and what goes wrong meanwhile.

`WIDTH` schedules, each with a namespace and a proxy's faults of its own, share the life of an
operator, and with it what happens to that. Nothing here depends on a clock or on the order in
which requests come in, so that the same number gives the same trouble again.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from support.builders.job_kinds import SORTS
from support.chaos import api_faults
from support.e2e.harness import Json
from support.e2e.kinds import LAUNCHED, job

WIDTH = 8
JOBS = 4
"""Of one schedule."""
WINDOW = 3.0
"""Seconds in which jobs are applied and things go wrong."""

FATES: Mapping[str, tuple[dict[str, Any], str]] = {
    "done": ({"exits": "0"}, "Succeeded"),
    "wide": ({"exits": "0", "workers": 5}, "Succeeded"),
    "broken": ({"exits": "3", "backoffLimit": 0}, "Failed"),
    "again": ({"exits": "137,0", "restart_policy": "ExitCode"}, "Succeeded"),
    "late": ({"run": "forever", "activeDeadlineSeconds": 2}, "Failed"),
    "brief": ({"exits": "0", "ttlSecondsAfterFinished": 0}, ""),
    "tidy": ({"exits": "0", "cleanPodPolicy": "All"}, "Succeeded"),
    "doomed": ({"run": "forever"}, ""),
    "paused": ({"run": "2"}, "Succeeded"),
    "lost": ({"run": "3", "restart_policy": "OnFailure"}, "Succeeded"),
}
"""What happens to a job -> how it is made, and the condition that it must come to; an empty
string: it is gone."""
ACTS: Mapping[str, tuple[tuple[float, str], ...]] = {
    "doomed": ((1.5, "delete"),),
    "paused": ((1.0, "suspend"), (2.0, "resume")),
    "lost": ((1.0, "lose"),),
}
"""Fate -> what its user does so many seconds after it was applied."""


def runs_at_most(job: str, role: str, index: str) -> int:
    """Return how many pods of a rank may run: by its user's acts, or as its first one fails."""
    return 2 if job.partition("-")[0] == "again" or is_run_again(job, role, index) else 1


def is_run_again(job: str, role: str, index: str) -> bool:
    """Say whether a rank runs again by what its user does.

    It may have succeeded by then, where the machine is so busy that he comes late; so may a pod
    in its grace period.
    """
    fate = job.partition("-")[0]
    return fate == "paused" or (fate, role, index) == ("lost", "worker", "1")


@dataclass(frozen=True, slots=True, order=True)
class Story:
    """What sort of job, and what happens to it: as it ends quietly it ends in trouble."""

    sort: str
    fate: str

    @property
    def name(self) -> str:
        """Name of its job: a namespace has one of each at the most."""
        return f"{self.fate}-{self.sort.lower()}"

    @property
    def kind(self) -> str:
        """Kind of its job."""
        return SORTS[self.sort].kind

    @property
    def end(self) -> str:
        """The condition that the job must come to, or an empty string: it is gone."""
        # As with mpi-operator, the TTL of an MPIJob of v2beta1 deletes its launcher's Job alone.
        stays = (self.sort, self.fate) == ("MPIJob-v2beta1", "brief")
        return "Succeeded" if stays else FATES[self.fate][1]

    @property
    def document(self) -> Json:
        """The job."""
        # What would run on for ever takes no nodes from those that are late.
        stays = self.fate == "late" or self.sort in LAUNCHED
        policy = {"cleanPodPolicy": "Running"} if stays else {}
        fields = {"run": "1", "cpu": "1", **policy, **FATES[self.fate][0]}
        return job(self.sort, self.name, **fields)


def stories() -> list[Story]:
    """Return all stories there are."""
    # The workers of a launcher serve until they are taken away: none of them is ever missed.
    return [
        Story(sort, fate)
        for sort, fate in product(SORTS, FATES)
        if not (fate == "lost" and sort in LAUNCHED)
    ]


@dataclass(frozen=True, slots=True)
class Act:
    """What somebody does, so many seconds after the beginning."""

    at: float
    verb: str
    story: Story | None = None
    value: float = 0.0


WRITES = (
    "409", "429", "500", "503", "504", "cut", "lose", "tear", "twice", "late 0.4", "hang 1",
    "done 500", "done 504", "page", "done page",
)  # fmt: skip
READS = ("429", "500", "504", "cut", "tear", "late 0.4", "hang 1", "page")
WATCHES = ("429", "500", "event 410", "event 500", "cut", "blank", "babble", "page", "hang 1")


@dataclass(slots=True)
class Dice:
    """Says for each request what goes wrong, by the seed, the request and its number alone."""

    seed: str
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    share: float
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __call__(self, request: api_faults.Request) -> str:
        """Return the fault of a request, mostly none."""
        kinds = self.reads if request.method == "GET" else self.writes
        key = request.method, re.sub(r".*/namespaces/[^/]*", "", request.path)
        self.asked[key] += 1
        text = f"{self.seed} {key} {self.asked[key]}"
        dice = random.Random(hashlib.sha256(text.encode()).digest())
        share = self.share if request.method != "GET" else self.share / 2
        return dice.choice(kinds) if kinds and dice.random() < share else ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The jobs of one namespace, and how its requests fare."""

    seed: int
    acts: tuple[Act, ...]
    dice: Dice

    @property
    def stories(self) -> list[Story]:
        """Its jobs."""
        return [act.story for act in self.acts if act.verb == "apply" and act.story]


def schedule(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    dice = random.Random(f"schedule {seed}")
    drawn = dice.sample(stories(), JOBS)
    writes = tuple(dice.sample(WRITES, dice.randint(1, 5)))
    reads = tuple(dice.sample(READS, dice.randint(0, 3)))
    acts = [a for story in drawn for a in applied(story, dice.uniform(0, WINDOW * 2 / 3))]
    trouble = Dice(f"requests {seed}", writes, reads, dice.choice((0.1, 0.25, 0.4)))
    return Schedule(seed, tuple(acts), trouble)


def applied(story: Story, at: float) -> Iterator[Act]:
    """Yield what the user of a job does."""
    yield Act(at, "apply", story)
    for after, verb in ACTS.get(story.fate, ()):
        yield Act(at + after, verb, story)


@dataclass(frozen=True, slots=True)
class Life:
    """What happens to the operator of some schedules."""

    number: int
    acts: tuple[Act, ...]
    replicas: int
    dice: Dice
    """For requests of no namespace: lists and watches."""

    @property
    def seeds(self) -> range:
        """The schedules that share it."""
        return range(self.number * WIDTH, (self.number + 1) * WIDTH)


def _killed(dice: random.Random) -> Iterator[tuple[str, float]]:
    """One operator, which dies, stands still, is told to go."""
    yield "kill", 0.0
    yield from ((verb, 0.5) for verb in dice.sample(("kill", "freeze", "stop", "kill"), 2))


def _succeeded(dice: random.Random) -> Iterator[tuple[str, float]]:
    """Two, of which the leader dies or is told to go."""
    yield dice.choice(("kill", "stop")), 0.0
    yield dice.choice(("kill", "freeze", "dumb")), 0.5


def _displaced(dice: random.Random) -> Iterator[tuple[str, float]]:
    """Two, of which the leader loses its lease: it sleeps through it, or it is taken away."""
    yield dice.choice(("sleep", "rob", "dumb")), 10.0
    yield dice.choice(("rob", "freeze", "stop")), 0.5


def _forbidden(dice: random.Random) -> Iterator[tuple[str, float]]:
    """One, which may not work for a moment, and sees nothing for another."""
    yield "forbid", dice.uniform(0.3, 1.5)
    yield dice.choice(("deaf", "cut", "freeze")), 1.0


LIVES: tuple[tuple[int, Callable[[random.Random], Iterator[tuple[str, float]]]], ...] = (
    (1, _killed),
    (2, _succeeded),
    (1, _forbidden),
    (2, _displaced),
)
"""How many operators, and what happens to them: verb and seconds."""


def life(number: int) -> Life:
    """Return the life of an operator by its number."""
    dice = random.Random(f"life {number}")
    replicas, happens = LIVES[number % len(LIVES)]
    fate = list(happens(dice))
    at = sorted(dice.uniform(0.3, WINDOW) for _ in fate)
    acts = [Act(t, verb, None, seconds) for t, (verb, seconds) in zip(at, fate, strict=True)]
    acts += [Act(dice.uniform(0.2, WINDOW), "cut") for _ in range(dice.randint(0, 3))]
    watches = tuple(dice.sample(WATCHES, dice.randint(1, 4)))
    trouble = Dice(f"watches {number}", (), watches, dice.choice((0.2, 0.6)))
    return Life(number, tuple(acts), replicas, trouble)


def seeds(text: str) -> list[int]:
    """Read `17`, `0-31`, or several of them, comma-separated."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def lives(wanted: Iterable[int]) -> list[int]:
    """Return the numbers of the lives that these seeds are part of."""
    return sorted({seed // WIDTH for seed in wanted})


QUIET = Life(-1, (), 1, Dice("quiet", (), (), 0.0))
"""Nothing happens in it."""


def quiet(drawn: Iterable[int]) -> Schedule:
    """Return a schedule of all stories of some others, in which nothing goes wrong."""
    told = {story for seed in drawn for story in schedule(seed).stories}
    # So many a moment that they do not wait for nodes; first those that must not.
    ordered = sorted(told, key=lambda story: (story.fate not in ("late", "doomed"), story))
    acts = [a for number, story in enumerate(ordered) for a in applied(story, number * 0.12)]
    return Schedule(-1, tuple(acts), QUIET.dice)
