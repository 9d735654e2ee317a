# SPDX-License-Identifier: Apache-2.0
"""How many pods of which kind are on each node, for the terms that pods have about each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final

import numpy as np

from muster.cluster import nodes, tables
from muster.cluster.nodes import NodeColumns
from muster.cluster.podindex import Answer, PodIndex, TermIndex, required_labels
from muster.cluster.pods import PodShape, PodUse
from muster.cluster.selectors import Identity, Labels, PodAffinityTerm, Selection, chosen, unused
from muster.scheduler.budget import DEFERRED, MATCH, ROWS, TERM, Budget
from muster.scheduler.model import (
    AffinityTerm,
    BoolArray,
    Deferred,
    Gang,
    IntArray,
    Link,
    PodSet,
    Refusal,
)

IDLE: Final = 64
"""Total size of the shapes whose nodes are stored though no pod of theirs waits."""
Question = tuple[Selection, ...]
"""The pods that all of the selections match."""


@dataclass(slots=True)
class TermCounts:
    """Counts by node name."""

    spaces: dict[str, Labels] = field(default_factory=dict)
    """Namespace -> its labels."""
    holders: dict[PodAffinityTerm, Counter[str]] = field(default_factory=dict)
    """Term by which pods keep others away -> how many such pods a node has."""
    going: dict[PodAffinityTerm, Counter[str]] = field(default_factory=dict)
    """As `holders`, of pods that are being deleted."""
    held: TermIndex = field(default_factory=TermIndex)
    """The terms of `holders`."""
    changes: int = 0
    """Grows with every term that `holders` gains or loses."""
    space_changes: int = 0
    """Grows with every change of a namespace's labels."""
    _pods: PodIndex | None = None
    """None: no question was asked since the last index was dropped."""
    _answers: dict[Question, Answer] = field(default_factory=dict)
    """Those of this cycle."""

    def matches(self, selection: Selection, identity: Identity) -> bool:
        """Say whether a pod is meant by the selection."""
        # No selector at all means nobody, an empty one everybody: as in Kubernetes.
        if selection.pods is None or not chosen(selection.pods, identity.labels):
            return False
        if identity.namespace in selection.namespaces:
            return True
        if selection.spaces is None:
            return False
        return chosen(selection.spaces, self.spaces.get(identity.namespace, {}))

    def put(self, use: PodUse, sign: int) -> None:
        """Count a pod that came to its node (sign 1), or went (-1)."""
        for term in use.apart:
            self._hold(term, use.node, sign)
            # One that goes still keeps others away until it has gone; ahead it is taken off.
            if use.deleting:
                tables.count(self.going, term, use.node, sign)
        if self._pods is not None:
            self._pods.put(use, sign)
            if self._pods.is_stale:
                self._pods = None

    def _hold(self, term: PodAffinityTerm, node: str, sign: int) -> None:
        known = term in self.holders
        tables.count(self.holders, term, node, sign)
        if known != (term in self.holders):
            (self.held.remove if known else self.held.add)(term)
            self.changes += 1

    def ask(self, question: Question, pods: Iterable[PodUse]) -> Answer:
        """Return the number of pods that match; `pods` are read if there is no index of them."""
        if self._pods is None:
            self._pods = PodIndex(pods, self.spaces)
        if question not in self._answers:
            self._answers[question] = self._pods.ask(question)
        return self._answers[question]

    @property
    def numbers(self) -> Mapping[str, int]:
        """Node -> its number in answers."""
        return {} if self._pods is None else self._pods.numbers

    def forget(self) -> None:
        """Forget the answers: pods come and go."""
        self._answers.clear()

    def space_changed(self, name: str, labels: Labels | None) -> None:
        """Take in a namespace's labels; None: it is gone."""
        if self.spaces.get(name) == labels:
            return
        if labels is None:
            self.spaces.pop(name, None)
        else:
            self.spaces[name] = labels
        self.space_changes += 1
        if self._pods is not None:
            self._pods.spaces_changed()


MAX_COMPARISONS: Final = 64
"""Maximum number of terms that a pod that comes is compared with, to see if others may start."""
Profile = frozenset[PodAffinityTerm]
"""The terms, of whatever pods, that are about the pods of a role."""
TEXTS: Final = {
    Link.NEAR: nodes.NOT_NEAR,
    Link.APART: "node(s) didn't match pod anti-affinity rules",
    Link.EVEN: "node(s) didn't match pod topology spread constraints",
    Link.FOND: "",
}
KEPT_AWAY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"


class PodAffinity:
    """Makes the terms of the shapes that wait."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.counts: Final = TermCounts()
        self._nodes = nodes
        self._domains: dict[str, tuple[IntArray, int]] = {}
        """By label. No node has the empty label."""
        self._keys: frozenset[str] = frozenset()
        """The labels that any node has, where there are domains."""
        self._zeros: IntArray = np.zeros(0, np.int64)
        self._profiles = Profiles(self.counts)
        self._places: tuple[Mapping[str, int], Mapping[str, int], IntArray] = {}, {}, _NOBODY
        """The numbers and positions of nodes, and the position of the node of each number."""
        self._kept: dict[Profile, tuple[AffinityTerm, ...]] = {}
        """What terms of other pods came to in this cycle."""
        self._judged: dict[tuple[PodShape, tuple[bool, bool]], BoolArray] = {}
        self._terms: dict[int, tuple[AffinityTerm, ...]] = {}
        self._judging = 0
        self._made: dict[str, tuple[Gang, Gang]] = {}
        """By key: gangs that were resolved last, and what was made of them."""

    def nodes_changed(self) -> None:
        """Forget what depends on the labels and taints of nodes."""
        self._domains.clear()
        self._judged.clear()

    def matter(self, shapes: Iterable[PodShape]) -> bool:
        """Say whether any term concerns anybody at all."""
        self._terms = {}
        return bool(self.counts.holders) or any(shape.ties for shape in shapes)

    def idle(self) -> None:
        """Take in that no term concerns anybody at present."""
        self._made.clear()
        self.counts.forget()
        self._profiles = Profiles(self.counts)

    def is_friend(self, identity: Identity) -> bool:
        """Say whether pods that waited at the last look may start where such a one has come."""
        # A cycle without result is harmless; comparing each new pod with many terms is not.
        return any(
            count == MAX_COMPARISONS or self.counts.matches(term.who, identity)
            for count, term in enumerate(self._profiles.friends.candidates(identity))
        )

    def resolve(
        self,
        gangs: Iterable[Gang],
        shapes: Iterable[Sequence[PodShape]],
        id_of: Callable[[PodShape, Profile], int],
        pods: Collection[PodUse],
        cut: Collection[str],
        *,
        movable: bool = False,
    ) -> tuple[list[Gang], dict[int, PodShape], dict[int, PodShape]]:
        """Make the terms of all pod sets that wait, and give them shapes of their own if need be.

        `shapes`: by gang and pod set. `cut`: the `too_expensive` gangs. `movable`: as if waiting.
        Returns the gangs, and by id the shapes with terms, and those of deferred gangs, without.
        """
        made, known = [], dict[int, tuple[PodShape, Profile]]()
        wanted, rest = dict[int, PodShape](), dict[int, PodShape]()
        paired = [
            (gang, list(zip(gang.pod_sets, own, strict=True)))
            for gang, own in zip(gangs, shapes, strict=True)
        ]
        # `holders` has the terms of pods on nodes; others matter only for waiting or movable pods.
        self._profiles.follow(
            [
                shape
                for gang, own in paired
                for pod_set, shape in own
                if gang.key not in cut and _is_wanted(gang, pod_set, movable=movable)
            ]
        )
        before, self._made = self._made, {}
        for gang, own in paired:
            ids = [pod_set.shape for pod_set in gang.pod_sets]
            for i, (pod_set, shape) in enumerate(own):
                is_wanted = _is_wanted(gang, pod_set, movable=movable)
                # What pods that run mean to those that wait counts if they are evicted.
                if pod_set.held or (is_wanted and gang.key not in cut):
                    profile = self._profiles.of(shape)
                    ids[i] = id_of(shape, profile)
                    known[ids[i]] = shape, profile
                if is_wanted:
                    (rest if gang.key in cut else wanted)[ids[i]] = shape
            refusal = gang.refusal or (DEFERRED if gang.key in cut else None)
            made.append(self._with_shapes(gang, ids, refusal, before.get(gang.key)))
        self._make_terms(wanted, known, pods)
        return made, wanted, rest

    def _with_shapes(
        self,
        gang: Gang,
        ids: Sequence[int],
        refusal: Refusal | None,
        before: tuple[Gang, Gang] | None,
    ) -> Gang:
        """Return the gang with these shapes, as the same object while nothing changes."""
        # What is known of a gang is known by that; and each snapshot would keep gangs of its own.
        if _has(gang, ids, refusal):
            return gang
        if before is not None and before[0] is gang and _has(before[1], ids, refusal):
            made = before[1]
        else:
            pairs = zip(gang.pod_sets, ids, strict=True)
            pod_sets = tuple(replace(p, shape=id_) for p, id_ in pairs)
            made = replace(gang, pod_sets=pod_sets, refusal=refusal)
        self._made[gang.key] = gang, made
        return made

    def _make_terms(
        self,
        wanted: Iterable[int],
        known: Mapping[int, tuple[PodShape, Profile]],
        pods: Iterable[PodUse],
    ) -> None:
        self.counts.forget()
        meant: dict[PodAffinityTerm, list[int]] = {}
        owners: dict[PodAffinityTerm, list[int]] = {}
        ids_of: dict[Profile, list[int]] = {}
        for id_, (shape, profile) in known.items():
            ids_of.setdefault(profile, []).append(id_)
            for term in shape.ties:
                if term.link is Link.APART:
                    owners.setdefault(term, []).append(id_)
        # Shapes of one profile are gathered first: many terms may be about many shapes.
        for profile, ids in ids_of.items():
            for term in profile:
                meant.setdefault(term, []).extend(ids)
        self._judging = 0
        self._kept.clear()
        for id_ in wanted:
            shape, profile = known[id_]
            own = self._own(shape, profile, meant, pods)
            self._terms[id_] = (*own, *self._kept_away(profile, owners))
        for key in unused(self._judged, self._judging, IDLE, lambda judged: judged[0].size):
            del self._judged[key]

    def terms(self, id_: int) -> tuple[AffinityTerm, ...]:
        """Return the terms of a shape that was resolved."""
        return self._terms.get(id_, ())

    def _own(
        self,
        shape: PodShape,
        profile: Profile,
        meant: Mapping[PodAffinityTerm, Sequence[int]],
        pods: Iterable[PodUse],
    ) -> Iterator[AffinityTerm]:
        """Yield the shape's own terms, one per kind and topology key, or spread constraint."""
        groups: dict[object, list[PodAffinityTerm]] = {}
        for term in shape.ties:
            group = term if term.link is Link.EVEN else (term.link, term.key)
            groups.setdefault(group, []).append(term)
        near = tuple(term for term in shape.ties if term.link is Link.NEAR)
        # As kube-scheduler: required affinity counts pods that match all terms, others per term.
        company = self._company(near, profile, meant, pods) if near else None
        counting = dict(self._counting([t for t in shape.ties if t.link is Link.EVEN], shape))
        for term, *more in groups.values():
            found = company if company is not None and term.link is Link.NEAR else None
            if found is None:
                each = [self._company((one,), profile, meant, pods) for one in (term, *more)]
                found = _together(each, [one.weight or 1 for one in (term, *more)])
            counted = counting[_policies(term)] if term.link is Link.EVEN else None
            domain, size = self._domain(term.key)
            going = found.going
            yield AffinityTerm(
                link=term.link,
                domain=domain,
                counts=self._sum(self._at(found.there), domain, size, counted),
                text=TEXTS[term.link],
                adds=found.adds,
                itself=found.itself,
                counted=counted,
                skew=term.skew,
                least_domains=term.least_domains,
                going=None if going is None else self._sum(self._at(going), domain, size, counted),
            )

    def _company(
        self,
        parts: tuple[PodAffinityTerm, ...],
        profile: Profile,
        meant: Mapping[PodAffinityTerm, Sequence[int]],
        pods: Iterable[PodUse],
    ) -> _Company:
        """Return who counts for terms that are all of one kind, together."""
        who, itself = tuple(part.who for part in parts), int(profile.issuperset(parts))
        even = parts[0].link is Link.EVEN
        # As in kube-scheduler, an even spread over no labels sees the pod itself and no other.
        if even and not parts[0].who.pods:
            return _Company(_NOBODY, None, {}, itself)
        answer = self.counts.ask(who, pods)
        there, going = answer.there, answer.going if answer.going.any() else None
        if even and going is not None:
            there = there - going
        friends = frozenset.intersection(*(frozenset(meant.get(part, ())) for part in parts))
        return _Company(there, None if even else going, dict.fromkeys(friends, 1), itself)

    def _kept_away(
        self, profile: Profile, owners: Mapping[PodAffinityTerm, Sequence[int]]
    ) -> tuple[AffinityTerm, ...]:
        """Return what the terms of other pods make, one for each topology key."""
        if profile not in self._kept:
            by_key: dict[str, list[PodAffinityTerm]] = {}
            for term in profile:
                # Anti-affinity alone binds both ways: by running pods, and pods placed before.
                if term in owners or (term.link is Link.APART and term in self.counts.holders):
                    by_key.setdefault(term.key, []).append(term)
            self._kept[profile] = tuple(
                self._keep_away(key, by_key[key], owners) for key in sorted(by_key)
            )
        return self._kept[profile]

    def _keep_away(
        self,
        key: str,
        terms: Iterable[PodAffinityTerm],
        owners: Mapping[PodAffinityTerm, Iterable[int]],
    ) -> AffinityTerm:
        domain, size = self._domain(key)
        holders, leaving, adds = Counter[str](), Counter[str](), Counter[int]()
        for term in terms:
            holders.update(self.counts.holders.get(term, {}))
            leaving.update(self.counts.going.get(term, {}))
            adds.update(owners.get(term, ()))
        return AffinityTerm(
            Link.APART,
            domain,
            self._sum(self._named(holders), domain, size, None),
            KEPT_AWAY,
            adds,
            going=self._sum(self._named(leaving), domain, size, None) if leaving else None,
        )

    def _domain(self, key: str) -> tuple[IntArray, int]:
        """Return (N,) the number of the label's value on each node, and how many there are."""
        if not self._domains:
            views = self._nodes.views.values()
            self._keys = frozenset(label for view in views for label in view.labels)
            self._domains[""] = np.full(len(views), -1, np.int64), 1
        if key not in self._domains:
            # Users invent keys: those that no node has share one array.
            if key not in self._keys:
                return self._domains[""]
            names, _, _ = self._nodes.order()
            values = [self._nodes.views[name].labels.get(key) for name in names]
            numbers = {value: i for i, value in enumerate(dict.fromkeys(values) if values else ())}
            # A missing label is no value.
            domain = np.array([-1 if v is None else numbers[v] for v in values], np.int64)
            self._domains[key] = domain, max(len(numbers), 1)
        return self._domains[key]

    def _counting(
        self, even: Sequence[PodAffinityTerm], shape: PodShape
    ) -> Iterator[tuple[tuple[bool, bool], BoolArray]]:
        """Yield the policies of spread constraints, and (N,) the nodes whose pods count for those.

        A node must have the labels of all of the pod's constraints, or it counts for none.
        """
        keys = dict.fromkeys(term.key for term in even)
        for policies, term in {_policies(term): term for term in even}.items():
            marks: BoolArray = np.logical_and.reduce([self._domain(key)[0] >= 0 for key in keys])
            judged = self._judge(shape, term)
            yield policies, marks if judged is None else marks & judged

    def _judge(self, shape: PodShape, term: PodAffinityTerm) -> BoolArray | None:
        """Return (N,) the nodes that the policies of a spread constraint let count; None: all."""
        chosen = shape.selector or shape.affinity is not None
        if not (term.honours_taints or (term.honours_affinity and chosen)):
            return None
        key = shape, _policies(term)
        known = self._judged.pop(key, None)
        if known is None:
            names, _, _ = self._nodes.order()
            judged = [nodes.counts(shape, term, self._nodes.views[name]) for name in names]
            known = np.array(judged, np.bool_)
        self._judged[key] = known  # the last one is the youngest
        self._judging += 1
        return known

    def _named(self, by_node: Mapping[str, int]) -> _Places:
        """Return positions of nodes, and the amounts there, by the names of the nodes."""
        _, index, _ = self._nodes.order()
        found = [(index[node], amount) for node, amount in by_node.items() if node in index]
        nodes, amounts = zip(*found, strict=True) if found else ((), ())
        return np.array(nodes, np.int64), np.array(amounts, np.int64)

    def _at(self, by_number: IntArray) -> _Places:
        """Return the same by the numbers that nodes have in answers."""
        numbers, (_, index, _) = self.counts.numbers, self._nodes.order()
        of, known, places = self._places
        if of is not numbers or known is not index or len(places) != len(numbers):
            places = np.array([index.get(node, -1) for node in numbers], np.int64)
            self._places = numbers, index, places
        found = np.flatnonzero(by_number)
        found = found[places[found] >= 0]
        return places[found], by_number[found]

    def _sum(
        self,
        places: _Places,
        domain: IntArray,
        size: int,
        counted: BoolArray | None,
    ) -> IntArray:
        """Return (D,) the sum of the amounts in each domain."""
        nodes, amounts = places
        real = domain[nodes] >= 0 if counted is None else (domain[nodes] >= 0) & counted[nodes]
        if not real.any():
            return self._nothing(size)
        sums = np.zeros(size, np.int64)
        np.add.at(sums, domain[nodes][real], amounts[real])
        return sums

    def _nothing(self, size: int) -> IntArray:
        """Return (D,) zeros, the same for all: each of many terms is as long as the cluster."""
        if len(self._zeros) != size:
            self._zeros = np.zeros(size, np.int64)
            # Shared by all terms: whoever counted into it would count for all of them.
            self._zeros.flags.writeable = False
        return self._zeros


@dataclass(frozen=True, slots=True)
class _Company:
    """The pods that count for a term."""

    there: IntArray
    """By the number of a node: how many of them are on it."""
    going: IntArray | None
    """By the number of a node: how many of them are terminating; None: none, or not counted."""
    adds: Mapping[int, int]
    """Shapes whose own placements in this cycle change the counts, and by how much."""
    itself: int


def _together(each: Sequence[_Company], weights: Sequence[int]) -> _Company:
    """Return what counts for terms of which each counts by itself, with its weight."""
    if len(each) == 1 and weights[0] == 1:
        return each[0]
    adds = Counter[int]()
    for one, weight in zip(each, weights, strict=True):
        for id_, amount in one.adds.items():
            adds[id_] += amount * weight
    there = np.sum([one.there * w for one, w in zip(each, weights, strict=True)], axis=0)
    pairs = [(one.going, w) for one, w in zip(each, weights, strict=True)]
    going = [amounts * w for amounts, w in pairs if amounts is not None]
    return _Company(there, np.sum(going, axis=0) if going else None, adds, each[0].itself)


def _policies(term: PodAffinityTerm) -> tuple[bool, bool]:
    return term.honours_affinity, term.honours_taints


def _has(gang: Gang, ids: Sequence[int], refusal: Refusal | None) -> bool:
    """Return whether the gang has that refusal, and its pod sets have these shapes."""
    pairs = zip(gang.pod_sets, ids, strict=True)
    return gang.refusal is refusal and all(pod_set.shape == id_ for pod_set, id_ in pairs)


def _is_wanted(gang: Gang, pod_set: PodSet, *, movable: bool) -> bool:
    """Return whether the pod set waits for nodes, or has nodes and may be moved."""
    waits = bool(pod_set.waiting or pod_set.returning)
    return waits or (bool(pod_set.held) and gang.relocates(moves=movable))


Bound = Mapping[str, tuple[Gang, Mapping[int, PodShape]]]
"""By key: a gang, and those of its shapes that wait and have terms or volumes."""


def too_expensive(
    bound: Bound, prices: Prices, volumes: Callable[[PodShape], int], cycle: tuple[float, Deferred]
) -> Collection[str]:
    """Return the gangs whose terms and volumes cost more than their share; charge the others.

    Gangs with reserved capacity always pay first: otherwise other gangs would be placed there.
    `volumes`: the price of a shape's. `cycle`: its time, and what earlier cycles cut off.
    """
    now, deferred = cycle
    cut, paid = set[str](), set[int]()
    budget = Budget((gang.namespace for gang, _ in bound.values()), deferred)
    # Few terms first: gangs with many wait for what is left, or for a cycle of their own.
    kept = {key for key, (gang, _) in bound.items() if _is_kept(gang, now)}
    counts = {key: _term_count(terms.values()) for key, (_, terms) in bound.items()}
    for key in sorted(bound, key=lambda key: (key not in kept, counts[key], key)):
        new = [shape for id_, shape in bound[key][1].items() if id_ not in paid]
        # To find the price is linear in the terms, and charged as well.
        affords = budget.may_evaluate(key, MATCH * _term_count(new), at_least_one=False)
        if affords:
            units = sum(prices.of(shape) + volumes(shape) for shape in new)
            affords = budget.may_evaluate(key, units, at_least_one=False)
        if affords or key in kept:
            paid.update(bound[key][1])
        else:
            cut.add(key)
    return cut


def _term_count(shapes: Iterable[PodShape]) -> int:
    return sum(len(shape.ties) + len(shape.claims) + len(shape.scratch) for shape in shapes)


def _is_kept(gang: Gang, now: float) -> bool:
    """Return whether capacity is kept for members of the gang."""
    degraded = gang.admitted and gang.ready < gang.min_member and not gang.hold_expired(now)
    return degraded or gang.owed or gang.nominated or gang.told is not None


class Prices:
    """The units that the terms of a shape cost, by the pods and shapes they are compared with."""

    def __init__(self, identities: Sequence[Identity], pods: int) -> None:
        """Make the prices. `identities`: of all shapes. `pods`: the number of pods on nodes."""
        self._pods, self._all = pods, len(identities)
        self._labels = Counter(each for one in identities for each in one.labels.items())
        self._spaces = Counter(one.namespace for one in identities)

    def of(self, shape: PodShape) -> int:
        """Return the units that the terms of the shape cost."""
        return sum(map(self._of_term, shape.ties))

    def _of_term(self, term: PodAffinityTerm) -> int:
        requirements = 1 + len(term.who.pods or ())
        labels, compared = required_labels(term), self._all
        if labels is not None:
            compared = sum(self._labels[label] for label in labels)
        if term.who.spaces is None:
            compared = min(compared, sum(self._spaces[name] for name in term.who.namespaces))
        return TERM + requirements * self._pods // ROWS + MATCH * compared


class Profiles:
    """The terms that select the pods of shapes; each pair is compared once for all cycles."""

    def __init__(self, counts: TermCounts) -> None:
        self.friends = TermIndex()
        """Terms of shapes that waited or could move in the last cycle: new pods let them start."""
        self._rivals = TermIndex()
        """Their other terms."""
        self._counts = counts
        self._shapes: Sequence[PodShape] = ()
        self._own: dict[PodAffinityTerm, None] = {}
        self._terms: dict[PodAffinityTerm, None] = {}
        """All terms that the profiles are made of: of shapes, and of pods on nodes."""
        self._changes = -1, -1
        self._of: dict[int, tuple[PodShape, Profile]] = {}
        """By the identity of the shape, which is kept for that."""
        self._before: dict[int, tuple[PodShape, Profile]] = {}

    def follow(self, shapes: Sequence[PodShape]) -> None:
        """Update the profiles for the terms of these shapes, and of pods on nodes as they are."""
        # Of shapes that are gone no cycle asks any more.
        self._before, self._of = self._of, {}
        changes = self._counts.changes, self._counts.space_changes
        same = len(shapes) == len(self._shapes) and all(map(is_, shapes, self._shapes))
        if same and changes == self._changes:
            return
        own = dict.fromkeys(term for shape in shapes for term in shape.ties)
        for term in self._own.keys() - own.keys():
            self._index(term).remove(term)
        for term in own.keys() - self._own.keys():
            self._index(term).add(term)
        terms = own | dict.fromkeys(self._counts.holders)
        added, removed = terms.keys() - self._terms.keys(), self._terms.keys() - terms.keys()
        if changes[1] != self._changes[1]:
            self._before.clear()
        elif added or removed:
            new = TermIndex(added)
            for id_, (shape, profile) in self._before.items():
                more = self._matching(new, shape.identity)
                self._before[id_] = shape, frozenset((profile - removed).union(more))
        self._shapes, self._own, self._terms, self._changes = shapes, own, terms, changes

    def of(self, shape: PodShape) -> Profile:
        """Return the terms that select such pods, as of the last `follow`."""
        known = self._of.get(id(shape)) or self._before.get(id(shape))
        if known is None:
            indices = (self.friends, self._rivals, self._counts.held)
            found = (term for each in indices for term in self._matching(each, shape.identity))
            known = shape, frozenset(found)
        self._of[id(shape)] = known
        return known[1]

    def _index(self, term: PodAffinityTerm) -> TermIndex:
        return self.friends if term.link in _FRIENDS else self._rivals

    def _matching(self, index: TermIndex, identity: Identity) -> Iterator[PodAffinityTerm]:
        matches = self._counts.matches
        return (term for term in index.candidates(identity) if matches(term.who, identity))


_Places = tuple[IntArray, IntArray]
"""Positions of nodes, and an amount at each."""
_NOBODY: Final[IntArray] = np.zeros(0, np.int64)
_FRIENDS: Final = (Link.NEAR, Link.EVEN)
