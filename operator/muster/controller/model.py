# SPDX-License-Identifier: Apache-2.0
"""What the controller core sees of one job, and what it can ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.api.model import BatchView, GroupView, Job, Json, ObjectView, PodView
from muster.api.reasons import DeletionReason
from muster.api.status import Verdict
from muster.frameworks.base import Waiting
from muster.gang import GangFacts


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server refused to create something of this job (quota, admission)."""

    kind: str
    name: str
    reason: str
    """`Forbidden`, `Invalid` … as in the server's Status."""
    message: str
    until: float
    """When it may be tried again."""

    def blocks_pods(self, *, started: bool) -> bool:
        """Return whether pods wait for the refused object: Services never do once `started`."""
        return not (started and self.kind == "Service")


@dataclass(frozen=True, slots=True)
class Context:
    """The settings of the operator that shape what a job becomes, and what the cluster grants."""

    cluster_domain: str = ""
    waiting: Waiting = field(default_factory=Waiting)
    """How pods wait for the pod that they must find."""
    placement: str = "create"
    """`create`: pods are created on their nodes; `bind`: they are bound afterwards."""
    gangs: GangFacts = field(default_factory=GangFacts)
    """What the gang backends need, without the facts of one job."""
    missing: str = ""
    """Why the gang scheduler's API cannot be used, in a sentence; empty if it can."""
    dropped: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Kind of a group -> fields of its spec that the API server leaves out."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Operator name of a framework -> what the operator's account may not do for its jobs."""


@dataclass(frozen=True, slots=True)
class Losses:
    """What is remembered of a gang that restarts as a whole, from one observation to the next."""

    stands: frozenset[str] = frozenset()
    """uids of the pods that run or start, on nodes that are reachable."""
    peers: frozenset[str] = frozenset()
    """uids of the pods that had not failed when a member was lost."""
    restart_at: float | None = None
    """From when the gang may restart, as it lost members that it needs; None: it lost none, or was
    replaced since."""
    ran: bool = False
    """All members that it needs ran together. The status shows that later."""
    had: int | None = None
    """How many it needed when all of them last ran; None: as the status says."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """Role -> how many pods were there then, and wanted at all times since."""
    unwanted: frozenset[str] = frozenset()
    """uids of pods that the job did not want at some time since the last reconcile began: they are
    no members, since requests may delete them although the job wants them again."""
    run: frozenset[str] = frozenset()
    """uids of the pods that were left by the first loss since then."""

    @property
    def restarted(self) -> bool:
        """Say whether nothing is left of the run that lost members."""
        return self.restart_at is not None and self.run.isdisjoint(self.stands)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything one pass over one job may look at."""

    job: Job
    now: float
    pods: tuple[PodView, ...] = ()
    """Pods that the job or a batch Job of its own controls, and same-named ones of others."""
    services: tuple[ObjectView, ...] = ()
    configs: tuple[ObjectView, ...] = ()
    batches: tuple[BatchView, ...] = ()
    """Batch Jobs that the job controls, and same-named ones that it does not."""
    companions: tuple[ObjectView, ...] = ()
    """What exists under the names of the kind's companions, whoever owns it."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Base64 values by key for a Secret that is to be made; empty if none is."""
    autoscalers: tuple[ObjectView, ...] = ()
    """HorizontalPodAutoscalers of the job, and one of its name that it does not control."""
    group: GroupView | None = None
    placements: Mapping[str, str] | None = None
    """Pod name -> node, for the pods that may be created now; a pod mapped to "" is created
    unbound. None: the gang scheduler does not decide before creation, all may be created."""
    verdict: Verdict | None = None
    """The embedded allocator's latest verdict on the gang, None if it has not looked yet."""
    refusal: Refusal | None = None
    autoscaler_refusal: Refusal | None = None
    """The refusal of the HorizontalPodAutoscaler, which nothing else waits for."""
    loses_at: float | None = None
    """When the next of the pods counts as lost, if its node stays away."""
    losses: Losses = Losses()


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object; that it exists already is no error."""

    kind: str
    name: str
    build: Callable[[], Json] = field(repr=False)
    """Returns the document. The documents of 10,000 pods would take hundreds of megabytes."""
    placed: bool = False
    """Whether the document is a pod that names a node."""

    @classmethod
    def of(cls, document: Json) -> Create:
        """Return the creation of a document that is small, or one of few."""
        return cls(document["kind"], document["metadata"]["name"], lambda: document)

    @property
    def doc(self) -> Json:
        """The document. It may hold a secret."""
        return self.build()


@dataclass(frozen=True, slots=True)
class DryRun:
    """Create a pod in a dry run. If it is refused, the actions after it are not done."""

    build: Callable[[], Json] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly the object with this uid; that it is gone is no error."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    reason: DeletionReason
    """Why the pods go that the object is or has. Built by `pods` alone, which asks the rule."""
    force: bool = False
    """At once: nobody is there to end it."""
    phase: str = ""
    """Of the pod, when its deletion was derived."""


View = PodView | ObjectView | GroupView


@dataclass(frozen=True, slots=True)
class Patch:
    """Apply a JSON merge patch to exactly the object with this uid, if it still exists."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    body: Json
    subresource: str = ""
    adopts: bool = False
    """It makes the job the owner: only if the job is still there and is not to go."""

    @classmethod
    def of(cls, view: View, body: Json, subresource: str = "", *, adopts: bool = False) -> Patch:
        """Return the patch of that object."""
        identity = view.api_version, view.kind, view.namespace, view.name, view.uid
        return cls(*identity, body, subresource, adopts)


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Replace the job's status. At most one per pass, after every other write."""

    status: Json


@dataclass(frozen=True, slots=True)
class Emit:
    """Say something about the job in an event. Counts only if the status write succeeded."""

    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str
    once: bool = False
    """Every pass may emit it, but it is to be recorded once."""
    about: str = ""
    """What else than the job it is about; once is then once of that, whatever the message."""
    group: GroupView | None = None
    """The job's group instead of the job; this is the first that is left out under load."""
    transition: str = ""
    """The condition that became true with it, where that is to be counted."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Look at the job again at that time at the latest."""

    at: float
    """Seconds since the epoch."""


Action = Create | DryRun | Delete | Patch | SetStatus | Emit | RequeueAfter
