# SPDX-License-Identifier: Apache-2.0
"""How many pods of which kind are on each node, for the terms that pods have about each other.

A question is answered by looking at every pod once, and kept up to date while it is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from muster.cluster import hostports, nodes
from muster.cluster.nodes import NodeColumns
from muster.cluster.pods import PodShape, PodUse
from muster.cluster.selectors import Identity, Labels, Selection, Tie, chosen
from muster.scheduler.affinity import AffinityState
from muster.scheduler.model import AffinityTerm, BoolArray, Gang, IntArray, Link, PodSet

IDLE: Final = 64
"""How many questions that nobody asks at present are kept up to date."""


@dataclass(frozen=True, slots=True)
class Question:
    """Which pods count: those in all of the selections."""

    who: tuple[Selection, ...]
    staying: bool = False
    """Pods that are being deleted do not count."""


@dataclass(slots=True)
class Census:
    """Counts by node name."""

    spaces: dict[str, Labels] = field(default_factory=dict)
    """Namespace -> its labels."""
    holders: dict[Tie, Counter[str]] = field(default_factory=dict)
    """Term by which pods keep others away -> how many such pods a node has."""
    going: dict[Tie, Counter[str]] = field(default_factory=dict)
    """As `holders`, of pods that are being deleted."""
    ending: int = 0
    """How many pods are being deleted."""
    _answers: dict[Question, Counter[str]] = field(default_factory=dict)

    def matches(self, selection: Selection, identity: Identity) -> bool:
        """Say whether a pod is meant by the selection."""
        if selection.pods is None or not chosen(selection.pods, identity.labels):
            return False
        if identity.namespace in selection.namespaces:
            return True
        if selection.spaces is None:
            return False
        return chosen(selection.spaces, self.spaces.get(identity.namespace, {}))

    def put(self, use: PodUse, sign: int) -> None:
        """Count a pod that came to its node (sign 1), or went (-1)."""
        self.ending += sign * use.deleting
        for table in (self.holders, self.going) if use.deleting else (self.holders,):
            for tie in use.apart:
                hostports.count(table, tie, use.node, sign)
        for question, answer in self._answers.items():
            if self._counts(question, use):
                answer[use.node] += sign

    def ask(self, question: Question, pods: Iterable[PodUse]) -> Mapping[str, int]:
        """Return node -> how many of the pods count; `pods` is read for a new question only."""
        answer = self._answers.pop(question, None)
        if answer is None:
            answer = Counter(use.node for use in pods if self._counts(question, use))
        self._answers[question] = answer  # the last one is the youngest
        return answer

    def forget(self, asked: int) -> None:
        """Drop old questions; so many have been asked of late."""
        for question in list(self._answers)[: -asked - IDLE]:
            del self._answers[question]

    def space_changed(self, name: str, labels: Labels | None) -> None:
        """Take in a namespace's labels; None: it is gone."""
        if labels is None:
            self.spaces.pop(name, None)
        else:
            self.spaces[name] = labels
        for question in list(self._answers):
            if any(who.spaces for who in question.who):
                del self._answers[question]

    def _counts(self, question: Question, use: PodUse) -> bool:
        if question.staying and use.deleting:
            return False
        identity = Identity(use.namespace, use.labels)
        return all(self.matches(selection, identity) for selection in question.who)


Profile = frozenset[Tie]
"""The terms, of whatever pods, that are about the pods of a role."""
TEXTS: Final = {
    Link.NEAR: nodes.NOT_NEAR,
    Link.APART: "node(s) didn't match pod anti-affinity rules",
    Link.EVEN: "node(s) didn't match pod topology spread constraints",
    Link.FOND: "",
}
KEPT_AWAY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"


class Neighbours:
    """Makes the terms of the shapes that wait."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.census: Final = Census()
        self._nodes = nodes
        self._domains: dict[str, tuple[IntArray, int]] = {}
        self._index: dict[tuple[str, str], list[Tie]] = {}
        self._loose: list[Tie] = []
        self._judged: dict[tuple[PodShape, Tie], BoolArray] = {}
        self._terms: dict[int, tuple[AffinityTerm, ...]] = {}
        self._asked = 0

    def put(self, use: PodUse, sign: int) -> None:
        """Count a pod that came to its node (sign 1), or went (-1)."""
        self.census.put(use, sign)

    def nodes_changed(self) -> None:
        """Forget what depends on the labels and taints of nodes."""
        self._domains.clear()
        self._judged.clear()

    def matter(self, shapes: Iterable[PodShape]) -> bool:
        """Say whether any term concerns anybody at all."""
        self._terms = {}
        return bool(self.census.holders) or any(shape.ties for shape in shapes)

    def hear(self, shapes: Iterable[PodShape]) -> None:
        """Take in the terms of these shapes; those of pods on nodes are known."""
        ties = {tie for shape in shapes for tie in shape.ties}
        self._index, self._loose = {}, []
        for tie in [*ties, *(tie for tie in self.census.holders if tie not in ties)]:
            equal = next((e for e in tie.who.pods or () if e.operator == "In"), None)
            if equal is None:
                self._loose.append(tie)
            else:
                for value in equal.values:
                    self._index.setdefault((equal.key, value), []).append(tie)

    def profile(self, identity: Identity) -> Profile:
        """Return the terms that are about such pods."""
        found = list(self._loose)
        for label in identity.labels.items():
            found += self._index.get(label, ())
        return frozenset(tie for tie in found if self.census.matches(tie.who, identity))

    def settle(
        self,
        gangs: Iterable[Gang],
        shapes: Iterable[Sequence[PodShape]],
        id_of: Callable[[PodShape, Profile], int],
        pods: Iterable[PodUse],
        *,
        movable: bool = False,
    ) -> tuple[list[Gang], dict[int, PodShape]]:
        """Make the terms of all pod sets that wait, and give them shapes of their own if need be.

        `shapes`: of the pod sets of each gang. `movable`: what may be moved is as what waits.
        Returns the gangs, and the shapes of those pod sets by id.
        """
        made, known = [], dict[int, tuple[PodShape, Profile]]()
        wanted: dict[int, PodShape] = {}
        told = [
            (gang, list(zip(gang.pod_sets, own, strict=True)))
            for gang, own in zip(gangs, shapes, strict=True)
        ]
        self.hear(shape for _, own in told for pod_set, shape in own if _waits(pod_set))
        for gang, own in told:
            pod_sets, changed = list(gang.pod_sets), False
            for i, (pod_set, shape) in enumerate(own):
                # What pods that run mean to those that wait counts if they are evicted.
                if _waits(pod_set) or pod_set.held:
                    profile = self.profile(shape.identity)
                    id_ = id_of(shape, profile)
                    known[id_] = shape, profile
                    changed |= pod_set.shape != id_
                    pod_sets[i] = replace(pod_set, shape=id_) if pod_set.shape != id_ else pod_set
                    if _waits(pod_set) or (movable and gang.movable):
                        wanted[id_] = shape
            made.append(replace(gang, pod_sets=tuple(pod_sets)) if changed else gang)
        self._tie(wanted, known, pods)
        return made, wanted

    def _tie(
        self,
        wanted: Iterable[int],
        known: Mapping[int, tuple[PodShape, Profile]],
        pods: Iterable[PodUse],
    ) -> None:
        meant: dict[Tie, list[int]] = {}
        owners: dict[Tie, list[int]] = {}
        for id_, (shape, profile) in known.items():
            for tie in profile:
                meant.setdefault(tie, []).append(id_)
            for tie in shape.ties:
                owners.setdefault(tie, []).append(id_)
        self._asked = 0
        for id_ in wanted:
            shape, profile = known[id_]
            own = self._own(shape, profile, meant, pods)
            self._terms[id_] = (*own, *self._kept_away(profile, owners))
        self.census.forget(self._asked)
        if len(self._judged) > self._asked + IDLE:
            self._judged.clear()

    def terms(self, id_: int) -> tuple[AffinityTerm, ...]:
        """Return the terms of a shape that was settled."""
        return self._terms.get(id_, ())

    def allow(self, node: str, shape: PodShape, pods: Iterable[PodUse]) -> bool:
        """Say whether the pods on the nodes let one of that shape go there at this moment."""
        if not shape.ties and not self.census.holders:
            return True
        self.hear([shape])
        profile = self.profile(shape.identity)
        terms = (*self._own(shape, profile, {}, pods), *self._kept_away(profile, {}))
        allowed = AffinityState({0: terms}).open(0)
        _, index, _ = self._nodes.order()
        return allowed is None or bool(allowed[index[node]])

    def _own(
        self,
        shape: PodShape,
        profile: Profile,
        meant: Mapping[Tie, Sequence[int]],
        pods: Iterable[PodUse],
    ) -> Iterator[AffinityTerm]:
        """Yield the terms that the shape's own terms make."""
        near = tuple(tie for tie in shape.ties if tie.link is Link.NEAR)
        for tie in shape.ties:
            parts = near if tie.link is Link.NEAR else (tie,)
            # As in kube-scheduler, an even spread over no labels sees the pod itself and no other.
            alone = tie.link is Link.EVEN and not tie.who.pods
            counted = self._counted(shape, tie) if tie.link is Link.EVEN else None
            domain, size = self._domain(tie.key)
            counts = np.zeros(size, np.int64)
            going: IntArray | None = None
            friends: set[int] = set()
            if not alone:
                who = tuple(part.who for part in parts)
                staying = tie.link is Link.EVEN
                answer = self._ask(Question(who, staying=staying), pods)
                counts = self._sum(answer, domain, size, counted) * (tie.weight or 1)
                if self.census.ending and not staying:
                    answer = self._ask(Question(who, staying=True), pods)
                    going = counts - self._sum(answer, domain, size, counted) * (tie.weight or 1)
                friends = set.intersection(*(set(meant.get(part, ())) for part in parts))
            yield AffinityTerm(
                link=tie.link,
                domain=domain,
                counts=counts,
                text=TEXTS[tie.link],
                adds=dict.fromkeys(friends, tie.weight or 1),
                itself=int(profile.issuperset(parts)),
                counted=counted,
                skew=tie.skew,
                least_domains=tie.least_domains,
                going=going,
            )

    def _ask(self, question: Question, pods: Iterable[PodUse]) -> Mapping[str, int]:
        self._asked += 1
        return self.census.ask(question, pods)

    def _kept_away(
        self, profile: Profile, owners: Mapping[Tie, Sequence[int]]
    ) -> Iterator[AffinityTerm]:
        """Yield the terms that terms of other pods make."""
        for tie in profile:
            holders: Mapping[str, int] = self.census.holders.get(tie, {})
            if tie.link is Link.APART and (holders or owners.get(tie)):
                domain, size = self._domain(tie.key)
                counts = self._sum(holders, domain, size, None)
                adds = dict.fromkeys(owners.get(tie, ()), 1)
                leaving = self.census.going.get(tie)
                going = None if leaving is None else self._sum(leaving, domain, size, None)
                yield AffinityTerm(Link.APART, domain, counts, KEPT_AWAY, adds, going=going)

    def _domain(self, key: str) -> tuple[IntArray, int]:
        """Return (N,) the number of the label's value on each node, and how many there are."""
        if key not in self._domains:
            names, _, _ = self._nodes.order()
            values = [self._nodes.views[name].labels.get(key) for name in names]
            numbers = {value: i for i, value in enumerate(dict.fromkeys(values) if values else ())}
            # A missing label is no value.
            domain = np.array([-1 if v is None else numbers[v] for v in values], np.int64)
            self._domains[key] = domain, max(len(numbers), 1)
        return self._domains[key]

    def _counted(self, shape: PodShape, tie: Tie) -> BoolArray:
        """Return (N,) the nodes whose pods count for a spread constraint."""
        others = (t for t in shape.ties if t.link is Link.EVEN)
        marks: BoolArray = np.logical_and.reduce([self._domain(t.key)[0] >= 0 for t in others])
        chosen = shape.selector or shape.affinity is not None
        if not (tie.honours_taints or (tie.honours_affinity and chosen)):
            return marks
        key = (shape, tie)
        if key not in self._judged:
            names, _, _ = self._nodes.order()
            judged = [nodes.counts(shape, tie, self._nodes.views[name]) for name in names]
            self._judged[key] = np.array(judged, np.bool_)
        marks &= self._judged[key]
        return marks

    def _sum(
        self, by_node: Mapping[str, int], domain: IntArray, size: int, counted: BoolArray | None
    ) -> IntArray:
        _, index, _ = self._nodes.order()
        places = [(index[node], amount) for node, amount in by_node.items() if node in index]
        nodes = np.array([node for node, _ in places], np.int64)
        amounts = np.array([amount for _, amount in places], np.int64)
        real = domain[nodes] >= 0 if counted is None else (domain[nodes] >= 0) & counted[nodes]
        sums = np.zeros(size, np.int64)
        np.add.at(sums, domain[nodes][real], amounts[real])
        return sums


def _waits(pod_set: PodSet) -> bool:
    return bool(pod_set.waiting or pod_set.returning)
