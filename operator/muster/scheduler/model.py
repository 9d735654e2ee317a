# SPDX-License-Identifier: Apache-2.0
"""The scheduler's values: a snapshot of the cluster as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from muster.api.reasons import QueuePhase, Reason

RESOURCE_CLAIMS: Final = "resourceClaims"
"""The constraint of pods that request devices by ResourceClaims."""
ENDLESS: Final = int(np.iinfo(np.int64).max // 4)
"""More volumes than anybody has."""


@dataclass(frozen=True, slots=True, eq=False)
class Want:
    """A claim of a shape's tasks that has no volume yet; they share it."""

    claim: str
    options: tuple[tuple[str, npt.NDArray[np.bool_]], ...]
    """(volume, (N,) where it can be had), the one to be preferred first."""
    made: npt.NDArray[np.bool_]
    """(N,): where a volume can be made for it."""
    domain: npt.NDArray[np.int64] | None = None
    """(N,): nodes with the same number reach a volume that is made for one of them; None: all."""


@dataclass(frozen=True, slots=True, eq=False)
class Driver:
    """What attaches volumes to nodes, each of which takes only so many of them."""

    most: npt.NDArray[np.int64]
    """(N,): how many, ENDLESS where there is no limit."""
    users: Mapping[str, Mapping[int, int]]
    """Volume -> position of a node that has it -> pods there that use it."""
    going: Mapping[str, Mapping[int, int]]
    """The part of `users` that is being deleted."""
    volumes: Mapping[int, tuple[str, ...]]
    """Shape -> the volumes that its tasks share, each once."""
    own: Mapping[int, int] = field(default_factory=dict)
    """Shape -> how many volumes each of its tasks has for itself; they are in `users` too."""


IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int16]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
BASE_RESOURCES: Final = ("pods", "cpu", "memory")
"""The columns every snapshot begins with."""
PODS, CPU, MEMORY = range(3)
SLOT: Final = 1000
"""What one pod takes of the column `pods`."""
UNLIMITED: Final = float("inf")
CEILING: Final = 2**60
"""The cap of what pods take of a node: beyond any node, and a few such sums fit 64 bits."""
FREED: Final = float(CEILING // 16)
"""The same for what pods would give back, of which there are more sums."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason for machines and a sentence for people."""

    reason: Reason
    sentence: str
    nodes: Mapping[str, int] = field(default_factory=dict)
    """What rules nodes out, in the words of the sentence -> how many."""
    blocked_by: tuple[str, ...] = ()
    """Up to 3 gangs, `queue/<name>` or `resourcequota/<namespace>/<name>` in the way."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port that a pod takes on its node."""

    protocol: str
    address: str
    """An IP address, or `*`, which meets every other."""
    port: int

    @property
    def number(self) -> tuple[str, int]:
        """Its protocol and port: others meet it on these alone."""
        return self.protocol, self.port

    def meets(self, addresses: Collection[str]) -> bool:
        """Return whether it cannot be on one node with ports of its number at these addresses."""
        return self.address in addresses or "*" in addresses or self.address == "*"


def addresses(ports: Iterable[HostPort]) -> dict[tuple[str, int], set[str]]:
    """Return the addresses by port number: a lookup, as pods may request thousands of ports."""
    found: dict[tuple[str, int], set[str]] = {}
    for port in ports:
        found.setdefault(port.number, set()).add(port.address)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The nodes, sorted by name."""

    names: tuple[str, ...]
    index: Mapping[str, int]
    """Name -> position in `names`."""
    allocatable: IntArray
    """(N, R)"""
    used: IntArray
    """(N, R): requests of the pods of each node that have not ended, with any scheduler."""
    releasing: IntArray
    """(N, R): the part of `used` that belongs to pods being deleted."""
    load: IntArray
    """(N, 2), cpu and memory: as `used`, but a container without a request counts a little, so
    that scores can tell a node with many such pods from an empty one."""
    usable: BoolArray
    """(N,): ready, schedulable, no taint against everybody. Totals count these only."""
    pressure: BoolArray
    """(N, 3): of memory, disk, process ids."""
    labels: tuple[Mapping[str, str], ...] = ()
    """N, for policies that go by them; empty where nobody knows."""

    @property
    def shared(self) -> FloatArray:
        """(R,): what queues share; of unusable nodes what is used, which queues are charged."""
        # A node that shrank may hold more than it has; the surplus is nobody's to share.
        used = np.minimum(self.used, self.allocatable)
        each = np.where(self.usable[:, None], self.allocatable, used)
        total: FloatArray = each.sum(axis=0, dtype=np.float64)
        return total


def times(counts: IntArray | int, amounts: IntArray) -> IntArray:
    """Return so many times the amounts, at most CEILING."""
    # Capped before the product, which would wrap around and make a full node look free.
    product: IntArray = np.minimum(amounts, CEILING // np.maximum(counts, 1)) * counts
    return product


def sums(rows: IntArray, amounts: np.ndarray, count: int) -> FloatArray:
    """Return (count, C) the sums of (M, C) amounts by (M,) row."""
    # Column by column: bincount is many times faster than adding at rows.
    columns = [np.bincount(rows, column, count) for column in amounts.T]
    return np.stack(columns, axis=1).astype(np.float64, copy=False)


class Link(StrEnum):
    """How pods in one domain go together."""

    NEAR = "near"
    """Only where there is one that counts, in the domain of every such term; anywhere for the
    first of pods that count for each other."""
    APART = "apart"
    """Only where there is none."""
    EVEN = "even"
    """Only where there are at most `skew` more than in the domain with the fewest."""
    FOND = "fond"
    """Rather where the sum is large."""


@dataclass(frozen=True, slots=True, eq=False)
class AffinityTerm:
    """What pods elsewhere mean for one shape. D domains: nodes with one value of some label."""

    link: Link
    domain: IntArray
    """(N,): the node's domain, -1 if it has none."""
    counts: IntArray
    """(D,): pods that count, or the sum of their weights, before the cycle."""
    text: str
    """Why a node is barred."""
    adds: Mapping[int, int] = field(default_factory=dict)
    """Shape -> what one task of it adds to its domain."""
    itself: int = 0
    """EVEN, NEAR: 1 if a task of the shape counts for the next one."""
    counted: BoolArray | None = None
    """EVEN: (N,) nodes whose pods count."""
    skew: int = 1
    least_domains: int = 1
    """EVEN: with fewer domains than this, the fewest are taken to be 0."""
    going: IntArray | None = None
    """(D,): the part of `counts` that belongs to pods being deleted; None: nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What the tasks made of one template have in common."""

    request: IntArray
    """(R,), the pod slot included."""
    load: IntArray
    """(2,), as `Nodes.load`."""
    barred: CodeArray
    """(N,): 0 where the node suits the constraints, else 1 + the position in `texts`."""
    texts: tuple[str, ...]
    """Why nodes are barred, in kube-scheduler's words: `node(s) were unschedulable`."""
    preferred: FloatArray | None = None
    """(N,): share of the preferred terms that the node matches, 0 - 100; None: no such terms."""
    ports: frozenset[HostPort] = frozenset()
    taken: IntArray | None = None
    """(N,): how many ports pods hold there that meet one of its own; None: none anywhere."""
    ending: IntArray | None = None
    """(N,): the part of `taken` that belongs to pods being deleted; None: nothing."""
    affinity: tuple[AffinityTerm, ...] = ()
    wants: tuple[Want, ...] = ()
    """In the order in which they are served."""
    drivers: tuple[Driver, ...] = ()
    """Of its tasks' volumes; those of which a node takes only so many."""
    selected: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Node label -> the values of which a node must have one."""
    refusal: Refusal | None = None
    """Why its tasks cannot be placed anywhere at present."""
    unsupported: str = ""
    """A constraint that nobody here understands, in words."""

    @property
    def tied(self) -> bool:
        """Whether it matters to a task where others have gone."""
        return bool(self.affinity or self.wants or self.drivers)


@dataclass(frozen=True, slots=True)
class Topology:
    """Where tasks are to lie together: on nodes with one value of a label."""

    level: str = ""
    """The label; empty: none is named."""
    required: bool = False
    """Nothing else will do; else it is what is tried first."""
    slice_level: str = ""
    """The label of which one value must hold each slice; empty: there are no slices."""
    slice_size: int = 0
    """How many consecutive ranks are a slice."""
    exempt: bool = False
    """The topology of the gang, and that of the policy, do not apply."""


@dataclass(frozen=True, slots=True, eq=False)
class BasePodSet:
    """The tasks of one replica role: same shape, same priority, distinguished by an index."""

    role: str
    priority: int = 0
    waiting: Sequence[int] = ()
    """Indices of tasks that want a node now; a `range` does."""
    returning: Sequence[int] = ()
    """Indices that are wanted while the pod before them is still ending."""
    gated: int = 0
    """How many tasks have scheduling gates."""
    held: Sequence[tuple[int, str]] = ()
    """(index, node) of the tasks that have a node, promised ones included."""
    started: Sequence[float] = ()
    """When each of `held` began to run, in their order; empty: with the gang."""
    leaving: Sequence[tuple[int, str]] = ()
    """(index, node) of the tasks among `returning` whose pod is about to be taken away."""
    succeeded: int = 0
    previous: Mapping[int, str] = field(default_factory=dict)
    """Index -> the node that the task's last pod had."""
    nominated: Mapping[int, str] = field(default_factory=dict)
    """Index -> the node that is kept for the task since others were evicted for its gang."""
    charge: Mapping[str, int] = field(default_factory=dict)
    """Key into `Snapshot.quotas` -> what a new pod takes of it."""
    absent: frozenset[int] = frozenset()
    """Indices of waiting tasks whose pods are still to be created, and to be charged."""
    topology: Topology | None = None
    """The topology constraint of the role, added to the one of its gang; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet(BasePodSet):
    """The tasks of one replica role, as the scheduler core reads them."""

    shape: int
    """Key into `Snapshot.shapes`; where all tasks have nodes, what terms know them by."""
    request: IntArray = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)
    """(R,) what one task takes, its slot included."""
    ports: frozenset[HostPort] = frozenset()
    """What each of `held` and `leaving` holds of its node's ports."""

    @property
    def total(self) -> int:
        """The number of tasks."""
        wanted = len(self.waiting) + len(self.returning) + self.gated
        return wanted + len(self.held) + self.succeeded

    @property
    def coming(self) -> FloatArray:
        """(R,): what the tasks take that want a node now or later."""
        amount: FloatArray = (len(self.waiting) + len(self.returning)) * self.request.astype(
            np.float64
        )
        return amount


def namespace_of(gang: str) -> str:
    """Return the namespace in the key of a gang."""
    return gang.rsplit("/", 2)[-2:][0]


@dataclass(frozen=True, slots=True, eq=False)
class BaseGang:
    """A group of tasks that starts whole: `min_member` of them or none."""

    key: str
    """kind/namespace/name"""
    uid: str
    queue: str
    created: float
    """A gang that is queued again keeps its age."""
    min_member: int
    priority: int = 0
    priority_class: str = ""
    admitted: bool = False
    """It was whole before, so its missing members come first."""
    hold_until: float | None = None
    """When that right ends; None: with the admission."""
    refusal: Refusal | None = None
    """It must not be placed, for a reason found outside."""
    critical: bool = False
    """It is part of what keeps the cluster itself at work."""
    guarded: bool = False
    """A disruption budget forbids to take its tasks away."""
    unevictable: bool = False
    """The API server refused to evict one of its pods a short time ago: it is no victim."""
    movable: bool = False
    """It may be started again elsewhere: only room, labels and taints say where it can run."""
    restartable: bool = False
    """Every role of the job may be restarted."""
    restarts_from: float = UNLIMITED
    """When it may restart whole as needed members are lost; UNLIMITED: none, or replaced alone."""
    moving: bool = False
    """It is moved or restarts, and keeps its nominated nodes until it is placed."""
    owed: bool = False
    """It was promised room on unknown nodes, maybe after evictions: it goes before all others."""
    polite: bool = False
    """Nobody is evicted for it."""
    leasts: Mapping[str, int] = field(default_factory=dict)
    """Role -> its minimum, of gangs that set it role by role; `min_member` is their sum."""
    shuns: frozenset[str] = frozenset()
    """Nodes that may be at fault: missing members are placed there only as a last resort."""
    topology: Topology | None = None
    """The constraint of all roles that are not exempt, together; None: the policy decides."""
    duration: float = UNLIMITED
    """Seconds that it is expected to run, once started; UNLIMITED: nobody knows."""
    deadline: float = UNLIMITED
    """When it is stopped, wherever it stands then."""
    started: float | None = None
    """Since when it has its nodes; None: since this moment, or not yet."""
    drains_from: float = UNLIMITED
    """From when nodes are kept free for it although nobody knows when there will be enough."""
    told: float | None = None
    """The start time that was published; None: there is none that still holds."""
    misled: bool = False
    """The times that it was told were not kept: they are so from now on, whatever others say."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Gang(BaseGang):
    """A gang as the scheduler core reads it."""

    pod_sets: tuple[PodSet, ...]
    """In the order of the roles."""
    allocated: IntArray
    """(R,): requests of the tasks that have a node."""
    min_resources: IntArray
    """(R,): the gang waits while the usable cluster is smaller than this."""
    ready: int
    """Tasks that have a node or have succeeded."""
    missing: int
    """Tasks that wait, return or are gated."""

    @property
    def lies(self) -> bool:
        """Whether it says for itself where it is to lie."""
        return self.topology is not None or any(p.topology is not None for p in self.pod_sets)

    @property
    def is_incomplete(self) -> bool:
        """Whether it lacks tasks that it wants, or members of its minimum."""
        return self.missing > 0 or self.ready < self.min_member

    @property
    def nominated(self) -> bool:
        """Whether nodes are kept for any of its tasks."""
        return any(pod_set.nominated for pod_set in self.pod_sets)

    def relocates(self, *, moves: bool) -> bool:
        """Return whether a cycle may find other nodes for its pods; `moves`: for movable gangs."""
        return self.restarts_from < UNLIMITED or (moves and self.movable)

    def hold_expired(self, now: float) -> bool:
        """Return whether the member hold has expired, so that no capacity is kept any more."""
        return self.hold_until is not None and self.hold_until <= now

    def overran(self, now: float) -> bool:
        """Return whether it has its nodes for longer than it was expected to run."""
        return self.started is not None and self.started + max(self.duration, 1.0) <= now

    @property
    def namespace(self) -> str:
        """Whose it is."""
        return namespace_of(self.key)

    def ends(self, now: float) -> float:
        """Return when its nodes come free if it has started or starts now; UNLIMITED: unknown."""
        # A duration of 0 is a valid document, and doubling 0 would never end.
        start, length = now if self.started is None else self.started, max(self.duration, 1.0)
        while start + length <= now:
            length *= 2
        return max(min(start + length, self.deadline), now)


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """What a gang has on which nodes: D rows."""

    gang: Gang
    nodes: IntArray
    """(D,): positions."""
    amounts: IntArray
    """(D, R)"""

    @classmethod
    def of(cls, gang: Gang, index: Mapping[str, int]) -> Holding:
        """Return what the gang has on the nodes of the index, which gives their positions."""
        nodes, amounts = list[int](), [np.zeros((0, len(gang.allocated)), np.int64)]
        for pod_set in gang.pod_sets:
            # By node, so that a gang of thousands of tasks on a few nodes is a few rows.
            counts = Counter(index[node] for _, node in pod_set.held if node in index)
            nodes += counts
            column = np.array(list(counts.values()), np.int64)[:, None]
            amounts.append(times(column, pod_set.request))
        return cls(gang, np.array(nodes, np.int64), np.concatenate(amounts))


@dataclass(frozen=True, slots=True, eq=False)
class Stake:
    """What a queue has of its parent beside its weight. Each (R,), UNLIMITED where not set."""

    guarantee: FloatArray
    """What it gets before all others; 0 where not set."""
    deserved: FloatArray
    """What is its own; where not set, the weight decides."""
    borrowing: FloatArray
    """How much more than its own it may hold."""
    lending: FloatArray
    """How much of its own others may hold."""


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """What happened in a queue before the cycle; times are 0 if unknown."""

    last_start: float = 0.0
    """The time at which a gang of the queue last started."""
    head: str = ""
    """The uid of the head, the first waiting gang of the queue."""
    head_since: float = 0.0
    """The time since when that gang is the head."""


@dataclass(frozen=True, slots=True, eq=False)
class BaseQueue:
    """A queue."""

    name: str
    weight: int = 1
    spent: frozenset[str] = frozenset()
    """The namespaces for which room was kept for as long as it may be."""
    state: QueuePhase = QueuePhase.OPEN
    min_runtime: float = 0.0
    """Seconds that its gangs run before they may be evicted."""
    priority_classes: frozenset[str] = frozenset()
    """The classes of the gangs that it lets in; none: all."""
    reclaimable: bool = True
    """Other queues may have back what it holds above its due."""
    usage: float = 0.0
    """Seconds of the whole cluster that its own gangs used; they decay by a half-life."""
    fairshare: bool = True
    """Whether its usage lowers what it deserves."""
    history: QueueHistory = field(default=QueueHistory(), compare=False)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Queue(BaseQueue):
    """A queue, and what its gangs hold and want."""

    capability: FloatArray
    """(R,), UNLIMITED where not set."""
    allocated: FloatArray
    """(R,)"""
    request: FloatArray
    """(R,): allocated and wanted."""
    refusal: Refusal | None = None
    """Why it lets nobody in."""
    barred: frozenset[str] = frozenset()
    """The namespaces whose gangs it does not let in."""
    reservable: FloatArray | None = None
    """(R,): the most that is kept free for waiting gangs of one namespace; None: no limit."""
    parent: str = ""
    """The division of which it is a part; none: of the cluster."""
    displaced: bool = False
    """Its parent does not exist, so that shares would be compared at the wrong place."""
    stake: Stake | None = None
    """None: nothing but its weight counts."""

    @property
    def open(self) -> bool:
        """Whether it admits new gangs, and lets those that run grow."""
        return self.state is QueuePhase.OPEN


@dataclass(frozen=True, slots=True)
class Quota:
    """One resource of a namespace's quota; amounts in the resource's unit."""

    name: str
    """namespace/name"""
    resource: str
    """As the quota spells it: `pods`, `requests.cpu`."""
    hard: int
    used: int
    """Pods that are about to be created included."""


@dataclass(frozen=True, slots=True, eq=False)
class Nomination:
    """Room that another scheduler keeps for a pod, from which it may have evicted others."""

    priority: int
    node: int
    """Position."""
    amount: IntArray
    """(R,)"""


@dataclass(frozen=True, slots=True)
class PastMove:
    """A gang that was moved so that another one fits."""

    gang: str
    """Its key."""
    claimant: str
    """Key of the gang that got the room."""
    at: float


@dataclass(frozen=True, slots=True)
class Deferred:
    """The searches that earlier cycles cut off."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Gang key -> the number of cycles in a row."""
    alone: str = ""
    """The gang that may spend a whole budget of its own in this cycle; its search then ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All that a cycle knows."""

    now: float
    resources: tuple[str, ...]
    """R names, beginning with BASE_RESOURCES."""
    nodes: Nodes
    shapes: Mapping[int, Shape]
    """Of every pod set with tasks that wait or return, and of those that may be moved."""
    gangs: tuple[Gang, ...]
    queues: Mapping[str, Queue]
    """Those in which gangs wait, by name."""
    holdings: tuple[Holding, ...] = ()
    """Of the gangs that have nodes; empty if no gang waits, because no cycle reads it then."""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    device_resources: frozenset[str] = frozenset()
    """Extended resources that DeviceClasses offer beside the nodes."""
    nominations: tuple[Nomination, ...] = ()
    moves: tuple[PastMove, ...] | None = None
    """The moves of the last hour; None: nobody asks for moves in this cycle."""
    deferred: Deferred = field(default_factory=Deferred)
    topologies: bool = True
    """Whether any gang or role says for itself where it is to lie."""
    divisions: Mapping[str, Queue] = field(default_factory=dict)
    """Parent queues by name. Usage and requests are those of their parts. Gangs that name a parent
    queue wait in a part with its name."""

    def lineage(self, queue: str) -> Iterator[Queue]:
        """Yield the queue of that name, if there is one, and the divisions above it."""
        found = self.queues.get(queue)
        while found is not None:
            yield found
            found = self.divisions.get(found.parent)

    def spared_until(self, gang: Gang) -> float:
        """Return until when nothing of the gang may be evicted, by what its queue says."""
        started, until = self.now if gang.started is None else gang.started, self.now
        for queue in self.lineage(gang.queue):
            if queue.state is QueuePhase.DRAINING:
                return UNLIMITED
            until = max(until, started + queue.min_runtime)
        return until

    def overcommitted(self) -> dict[str, int]:
        """Return, by resource, the number of nodes whose pods ask for more than there is."""
        counts = (self.nodes.used > self.nodes.allocatable).sum(axis=0).tolist()
        return {name: n for name, n in zip(self.resources, counts, strict=True) if n}
