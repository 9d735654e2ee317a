# SPDX-License-Identifier: Apache-2.0
"""Plays the life of an operator with its schedules, and returns what became of each job."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from muster.local.handle import Cluster
from support.chaos import api_faults, invariants
from support.chaos.fault_schedules import Act, Life, Schedule, Story, is_run_again
from support.chaos.invariants import Onlooker
from support.e2e.harness import (
    OPERATOR_NAMESPACE,
    PATHS,
    SECRETS,
    Api,
    Json,
    Operator,
    Refused,
    account_config,
    condition,
    create_namespace,
    tfjob,
)

HOLD = 30.0
QUIET = 120.0
"""Seconds within which the next job ends once nothing goes wrong any more."""
SHORT_LEASE = (
    "--leader-elect-lease-duration=8s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=500ms",
)
"""Longer than an answer takes where three servers share two cores: who loses the lease over and
over gets nothing done.
"""
FLAGS = (f"--member-hold={HOLD:.0f}s", "--schedule-period=100ms")
SETTLING = 30.0
"""Seconds in which a lease passes on and a place that was lost is filled, beside the hold."""
KINDS = (
    "Pod", "Service", "ConfigMap", "Secret", "Job", "PodGroup", "Role", "RoleBinding",
    "ServiceAccount", "HorizontalPodAutoscaler", "Lease",
)  # fmt: skip
"""Of what a job may leave behind."""
ORDINARY = {"kube-root-ca.crt", "default", SECRETS["metadata"]["name"]}
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
NODES = tuple(f"ample-{index + 1}" for index in range(6))
CPUS = 8
_NUMBERS = itertools.count()
"""Of namespaces: what a restored server brings back is never met again."""


@dataclass(frozen=True, slots=True)
class End:
    """What became of a job, without names and times."""

    conditions: frozenset[tuple[str, str]]
    """Types and reasons of those that hold."""
    restarts: Mapping[str, int]
    """By role: as many as were counted."""
    left: frozenset[str]
    """What is still there of it, but for the job."""

    def unlike(self, quiet: End) -> list[str]:
        """Return in what it differs from the end of its like when nothing goes wrong.

        A job may be over before all was made for it, and pods that nobody waits for may have
        come further; more than in quiet there must never be.
        """
        found = []
        if self.conditions != quiet.conditions:
            found.append(f"{sorted(self.conditions)}, not {sorted(quiet.conditions)}")
        if more := self.left - quiet.left:
            found.append(f"left: {sorted(more)}")
        found += [
            f"{role}: {count} restarts, not {quiet.restarts.get(role, 0)}"
            for role, count in self.restarts.items()
            if count > quiet.restarts.get(role, 0)
        ]
        return found


@dataclass(slots=True)
class Outcome:
    """What became of all jobs of a life; `wrong`: what must never happen, in sentences."""

    ends: dict[tuple[str, Story], End] = field(default_factory=dict)
    """By namespace and story."""
    runs: Counter[invariants.Rank] = field(default_factory=Counter)
    refused: frozenset[str] = frozenset()
    """The namespaces in which the server has not let a pod be made."""
    wrong: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    memory: int = 0
    """Bytes of the operator at the end."""
    slowest: str = ""
    """The job that ended last."""
    seconds: float = 0.0
    """From the beginning until all jobs had ended."""


@dataclass
class Replicas:
    """The operators of one life, each started again when it has ended, as a Deployment does."""

    cluster: Cluster
    folder: Path
    proxy: api_faults.Proxy
    count: int
    flags: Sequence[str] = SHORT_LEASE
    wrong: list[str] = field(default_factory=list)
    all: list[Operator] = field(default_factory=list)
    _ending: set[int] = field(default_factory=set)
    _losses: Counter[int] = field(default_factory=Counter)
    """How often each has lost the lease, by its port."""

    def start(self) -> None:
        """Start all, the leader of the beginning first."""
        config = account_config(self.cluster, self.folder, "mpi")
        for index in range(self.count):
            log = self.folder / f"replica-{time.monotonic_ns()}-{index}.log"
            leads = ("--leader-elect", *self.flags) if self.count > 1 else ()
            made = Operator(self.proxy.config(config), log, (*FLAGS, *leads))
            made.start()
            self.all.append(made)
        self.settle()

    def leader(self) -> Operator:
        """Return the one that leads, or any if none does."""
        return self._holder() or self.all[0]

    def _holder(self) -> Operator | None:
        if self.count == 1:
            return self.all[0]
        lease = Api(self.cluster, OPERATOR_NAMESPACE).find("Lease", "muster") or {}
        holder = str(lease.get("spec", {}).get("holderIdentity") or "")
        found = re.search(r"_(\d+)_[0-9a-f]{8}$", holder)
        return {_pid(one): one for one in self.all}.get(int(found[1]) if found else 0)

    def mind(self) -> None:
        """Start again what has ended; to have lost the lease is a good reason, others are not."""
        for one in self.all:
            if one.running:
                continue
            assert one.process is not None
            one.process.join()
            said = one.log.read_text()
            losses = said.count("lost the lease")
            if _pid(one) not in self._ending and losses == self._losses[one.health]:
                self.wrong.append(f"the operator ended: {said[-3000:]}")
            self._losses[one.health] = losses
            one.start(ready=False)

    def end(self, one: Operator, number: signal.Signals) -> None:
        """Send one a signal that ends it."""
        self._ending.add(_pid(one))
        _send(_pid(one), number)
        if number == signal.SIGKILL:
            one.ended()

    def settle(self) -> None:
        """Return once all are there again, and one of them leads."""
        while any(not one.running for one in self.all):
            self.mind()
        for one in self.all:
            one.wait_ready()
        while (one := self._holder()) is None or not one.running:
            time.sleep(0.1)  # the lease has no event to wait for

    def stop(self) -> None:
        """End all, and look at what they have logged."""
        for one in self.all:
            if one.running:
                self._ending.add(_pid(one))
                one.stop()
            text = one.log.read_text()
            if "Traceback" in text:
                at = text.index("Traceback")
                self.wrong.append(f"logged: {text[max(0, at - 500) : at + 2500]}")

    @property
    def memory(self) -> int:
        """Bytes that the largest of them has."""
        sizes = (psutil.Process(_pid(one)).memory_info().rss for one in self.all if one.running)
        return max(sizes, default=0)


def _pid(one: Operator) -> int:
    assert one.process is not None
    assert one.process.pid is not None
    return one.process.pid


@dataclass
class Player:
    """Plays one life after the other on one cluster."""

    cluster: Cluster
    folder: Path
    proxy: api_faults.Proxy
    onlooker: Onlooker

    def play(
        self, life: Life, schedules: Sequence[Schedule], quiet: Mapping[Story, End] | None = None
    ) -> Outcome:
        """Play it, wait until all is quiet and every job has ended, and look at what is left.

        What is wrong is also what has not come to be as in `quiet` after some time.
        """
        replicas = Replicas(self.cluster, self.folder, self.proxy, life.replicas)
        played = _Played(self, life, schedules, replicas)
        replicas.start()
        try:
            played.trouble()
            played.quiet(quiet)
            played.clear()
        finally:
            self.proxy.choose = api_faults.none
            replicas.stop()
        played.outcome.wrong += replicas.wrong
        return played.outcome

    def namespace(self, seed: int) -> Api:
        """Return a new namespace."""
        made = Api(self.cluster, f"seed-{seed if seed >= 0 else 'quiet'}-{next(_NUMBERS)}")
        create_namespace(made)
        return made


class _Played:
    def __init__(
        self, player: Player, life: Life, schedules: Sequence[Schedule], replicas: Replicas
    ) -> None:
        self._player, self._life, self._replicas = player, life, replicas
        self._admin = Api(player.cluster, OPERATOR_NAMESPACE)
        self._apis = {plan.seed: player.namespace(plan.seed) for plan in schedules}
        self._plans = {self._apis[plan.seed].namespace: plan for plan in schedules}
        self._jobs = [
            (self._apis[plan.seed], story) for plan in schedules for story in plan.stories
        ]
        self._first = len(player.onlooker.seen)
        self._started = time.monotonic()
        self._bindings: list[Json] = []
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._mute = False
        self._over: set[tuple[str, Story]] = set()
        self._slowest = ""
        self.outcome = Outcome()

    def trouble(self) -> None:
        """Let the users act, and all go wrong that is to, until the last act."""
        user = [
            (act.at, self._user(self._apis[plan.seed], act))
            for plan in self._plans.values()
            for act in plan.acts
        ]
        fate = [(act.at, self._fate(act)) for act in self._life.acts]
        self._later = [*user, *fate]
        self._player.proxy.seen.clear()
        self._player.proxy.choose = self._choose
        self._started = time.monotonic()
        while self._later:
            self._later.sort(key=lambda due: due[0])
            at, act = self._later.pop(0)
            self._wait_until(at)
            act()
        self._player.proxy.choose = api_faults.none

    def quiet(self, like: Mapping[Story, End] | None) -> None:
        """Wait for the end of all jobs, and until each has left what its like has left."""
        self._pursue(self._unended, "not ended")
        self.outcome.seconds = time.monotonic() - self._started
        self.outcome.memory = self._replicas.memory
        self.outcome.faults = Counter(r.fault for r in self._player.proxy.seen if r.fault)
        self.outcome.refused = frozenset(
            r.path.split("/")[-2]
            for r in self._player.proxy.seen
            if (r.method, r.status) == ("POST", 403) and r.path.endswith("/pods")
        )
        self.outcome.slowest = self._slowest
        if like is None:
            self._rest()
        else:
            self._pursue(lambda: self._unlike(like), "not as in quiet")
        self._look()

    def _rest(self) -> None:
        """Wait until nothing changes any more."""
        before, after = None, self._note()
        while before != after:
            time.sleep(1.5)  # nobody tells that nothing happens
            before, after = after, self._note()

    def _unlike(self, like: Mapping[Story, End]) -> list[str]:
        return [
            f"{namespace}/{story.name}: {text}"
            for (namespace, story), end in self._note().items()
            for text in end.unlike(like[story])
        ]

    def _pursue(self, open_: Callable[[], list[str]], what: str) -> None:
        # What has gone wrong is told at once: it need not be waited for twice.
        patience = 5 if self.outcome.wrong else QUIET
        left, deadline = open_(), time.monotonic() + patience
        while left and time.monotonic() < deadline:
            self._player.onlooker.wait(lambda: not open_(), 0.2)
            self._replicas.mind()
            before, left = left, open_()
            if len(left) < len(before):
                deadline = time.monotonic() + patience
        self.outcome.wrong += [f"{what}: {one}" for one in left]

    def _unended(self) -> list[str]:
        found = []
        for api, story in self._jobs:
            if (api.namespace, story) in self._over:
                continue
            job = self._player.onlooker.find(story.kind, api.namespace, story.name)
            ended = job is None if not story.end else condition(job, story.end) == "True"
            if ended:
                self._over.add((api.namespace, story))
                self._slowest = f"{api.namespace}/{story.name}"
            else:
                status = (job or {}).get("status")
                found.append(f"{api.namespace}/{story.name}: {status}")
        return found

    def _wait_until(self, at: float) -> None:
        while (left := self._started + at - time.monotonic()) > 0:
            self._replicas.mind()
            time.sleep(min(left, 0.05))  # schedules are told by the clock

    # What is done to the jobs.

    def _user(self, api: Api, act: Act) -> Callable[[], None]:
        assert act.story is not None
        story, verb = act.story, act.verb

        def done() -> None:
            path = _path(api, story)
            with contextlib.suppress(Refused):
                if verb == "apply":
                    body = story.document
                    body["metadata"]["namespace"] = api.namespace
                    api.send("POST", path, body)
                elif verb == "delete":
                    api.send("DELETE", f"{path}/{story.name}", {"propagationPolicy": "Background"})
                elif verb == "lose":
                    api.delete("Pod", f"{story.name}-worker-1")
                else:
                    spec = {"spec": {"runPolicy": {"suspend": verb == "suspend"}}}
                    kind = "application/merge-patch+json"
                    api.send("PATCH", f"{path}/{story.name}", spec, kind)

        return done

    # What is done to the operator.

    def _fate(self, act: Act) -> Callable[[], None]:
        return lambda: getattr(self, f"_{act.verb}")(act.value)

    def _soon(self, seconds: float, act: Callable[[], None]) -> None:
        self._later.append((time.monotonic() - self._started + seconds, act))

    def _kill(self, _seconds: float) -> None:
        self._replicas.end(self._replicas.leader(), signal.SIGKILL)

    def _stop(self, _seconds: float) -> None:
        self._replicas.end(self._replicas.leader(), signal.SIGTERM)

    def _freeze(self, seconds: float) -> None:
        pid = _pid(self._replicas.leader())
        _send(pid, signal.SIGSTOP)
        self._soon(seconds, lambda: _send(pid, signal.SIGCONT))

    _sleep = _freeze

    def _rob(self, _seconds: float) -> None:
        """Give the lease to somebody who does not know of it."""
        with contextlib.suppress(Refused):
            self._admin.patch("Lease", "muster", {"spec": {"holderIdentity": "stranger"}})

    def _dumb(self, seconds: float) -> None:
        self._mute = True
        self._soon(seconds, self._hear)

    def _hear(self) -> None:
        self._mute = False

    def _cut(self, _seconds: float) -> None:
        self._player.proxy.cut_watches()

    def _deaf(self, seconds: float) -> None:
        self._player.proxy.freeze_watches(seconds)

    def _forbid(self, seconds: float) -> None:
        for found in self._admin.list(BINDINGS):
            if found["metadata"]["name"].startswith("muster"):
                self._bindings.append(found)
                self._admin.delete(BINDINGS, found["metadata"]["name"])
        self._soon(seconds, self._allow)

    def _allow(self) -> None:
        while self._bindings:
            found = self._bindings.pop()
            kept = {k: found["metadata"][k] for k in ("name", "labels") if k in found["metadata"]}
            self._admin.send("POST", BINDINGS, {**found, "metadata": kept})

    def _choose(self, request: api_faults.Request) -> str:
        if "/leases" in request.path:
            return "500" if self._mute else ""
        found = re.search(r"/namespaces/([^/]+)/", request.path)
        if found is None:
            return self._life.dice(request) if request.method == "GET" else ""
        plan = self._plans.get(found[1])
        return "" if plan is None else plan.dice(request)

    # What is left.

    def _look(self) -> None:
        """Note what has happened that must never happen."""
        seen = self._player.onlooker.seen[self._first :]
        here = [one for one in seen if one.namespace in self._plans]
        self.outcome.runs = invariants.runs(here)
        self.outcome.wrong += invariants.twins(here)
        self.outcome.wrong += invariants.overfull(seen, dict.fromkeys(NODES, CPUS))
        sizes = {(api.namespace, s.name): _size(s) for api, s in self._jobs}
        self.outcome.wrong += invariants.halves(here, sizes, HOLD + SETTLING)
        self.outcome.wrong += [
            text for rank, text in invariants.risen(here) if not is_run_again(*rank[1:])
        ]

    def _note(self) -> dict[tuple[str, Story], End]:
        """Return what has become of each job up to now."""
        left = self.left()
        for api, story in self._jobs:
            job = self._player.onlooker.find(story.kind, api.namespace, story.name) or {}
            kept = left.pop((api.namespace, story.name), [])
            # A job may end before the Services of its pods are created, which it does not await.
            services = {one.replace("Pod ", "Service ") for one in kept if one.startswith("Pod ")}
            kept = [one for one in kept if one not in services]
            if story.fate == "again":
                # Whether a rank runs once more before the one that leads has ended the job hangs
                # on when its node has let go of it.
                kept = [one for one in kept if not one.startswith("Pod ")]
            if story.fate == "lost":
                # On a busy machine the lost rank has succeeded before it is deleted, and is not
                # created again; its Service is there nevertheless.
                kept = [one for one in kept if one.partition(" ")[2] != "-worker-1"]
            self.outcome.ends[api.namespace, story] = _end(job, kept)
        return dict(self.outcome.ends)

    def left(self) -> dict[tuple[str, str], list[str]]:
        """Return what there is in the namespaces, by namespace and job."""
        names = sorted((s.name for _, s in self._jobs), key=len, reverse=True)
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for kind in KINDS:
            path = PATHS[kind].replace("/namespaces/{ns}", "")
            for one in self._admin.list(path):
                namespace, name = one["metadata"]["namespace"], one["metadata"]["name"]
                if namespace not in self._plans or name in ORDINARY:
                    continue
                job = next((n for n in names if name == n or name.startswith(f"{n}-")), name)
                found[namespace, job].append(f"{kind} {_told(name, job)}")
        return found

    def clear(self) -> None:
        """Delete all jobs; then nothing is left of them, and every node is free."""
        for api, story in self._jobs:
            with contextlib.suppress(Refused):
                api.send("DELETE", f"{_path(api, story)}/{story.name}", {})
        self._pursue(lambda: [f"{key} {names}" for key, names in self.left().items()], "left")
        # A place that is still assumed for somebody would be missing here.
        api = next(iter(self._apis.values()))
        api.create(tfjob("fills", workers=len(NODES), resources={"cpu": str(CPUS)}, run="0"))
        there = api.namespace, "fills"
        self._pursue(
            lambda: (
                []
                if condition(self._player.onlooker.find("TFJob", *there), "Succeeded")
                else ["not every node is free"]
            ),
            "room",
        )
        api.delete("TFJob", "fills")
        self._pursue(lambda: [f"{key} {names}" for key, names in self.left().items()], "left")


def _path(api: Api, story: Story) -> str:
    version = story.document["apiVersion"]
    return api.path(story.kind).replace("kubeflow.org/v1/", f"{version}/")


def _size(story: Story) -> int:
    document = story.document
    (roles,) = (v for v in document["spec"].values() if isinstance(v, dict) and "Worker" in v)
    return sum(role["replicas"] for role in roles.values())


def _end(job: Json, left: Iterable[str]) -> End:
    status = job.get("status") or {}
    conditions = frozenset(
        (c["type"], c.get("reason", ""))
        for c in status.get("conditions") or ()
        # Whether it was seen to run, or to run again, hangs on when somebody looked.
        if c["status"] == "True" and c["type"] not in ("Running", "Restarting")
    )
    told = status.get("replicaStatuses") or {}
    restarts = {role: int(of_role.get("restarts", 0)) for role, of_role in told.items()}
    return End(conditions, restarts, frozenset(left))


def _told(name: str, job: str) -> str:
    """Return the name without that of the job, and without what a batch Job has drawn."""
    return re.sub(r"(-launcher)-[a-z0-9]{5}$", r"\1-*", name.removeprefix(job))


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, number)
