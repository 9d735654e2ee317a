# SPDX-License-Identifier: Apache-2.0
"""What can be placed at all: on small clusters found by trying everything, on others planted."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from support.builders.scheduler import make_gang, make_node, make_role, make_template

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def make_nodes(amounts):
    """Return the documents of these nodes."""
    return [
        make_node(name=f"n{i}", cpu=cpu, gpu=gpu, labels={HOST: f"n{i}", "zone": zone})
        for i, (cpu, gpu, zone) in enumerate(amounts)
    ]


def as_gang(roles, term=None, **fields):
    """Return a gang, the pods of whose roles each keep near to, or apart from, their like."""
    made = []
    for name, (count, cpu, gpu) in zip(("worker", "ps", "chief"), roles, strict=False):
        spec = {"cpu": cpu, "gpu": gpu, "labels": {"role": name, "gang": fields.get("key", "")}}
        if term:
            kind, key = term
            like = {"topologyKey": key, "labelSelector": {"matchLabels": spec["labels"]}}
            spec["affinity"] = {kind: {REQUIRED: [like]}}
        made.append(make_role(role=name, replicas=count, template=make_template(**spec)))
    return make_gang(roles=made, **fields)


def splits(count, limits):
    """Yield how many of so many equal tasks each node may get."""
    if not limits:
        if not count:
            yield ()
        return
    for first in range(min(count, limits[0]) + 1):
        for rest in splits(count - first, limits[1:]):
            yield (first, *rest)


def allowed(split, zones, term):
    """Say whether a role spread like this keeps to its term."""
    if term is None:
        return True
    kind, key = term
    groups = range(len(split)) if key == HOST else zones
    held = {}
    for group, count in zip(groups, split, strict=True):
        held[group] = held.get(group, 0) + count
    if kind == "podAffinity":
        return sum(count > 0 for count in held.values()) <= 1
    return all(count <= 1 for count in held.values())


def outcomes(free, zones, roles, term):
    """Yield what is free on the nodes after each way to place all of the gang."""
    if not roles:
        yield free
        return
    (count, cpu, gpu), *rest = roles
    limits = [min(c // cpu if cpu else count, g // gpu if gpu else count) for c, g in free]
    for split in splits(count, limits):
        if allowed(split, zones, term):
            left = tuple((c - n * cpu, g - n * gpu) for (c, g), n in zip(free, split, strict=True))
            yield from outcomes(left, zones, rest, term)


TERMS = (
    *[None] * 3,
    ("podAntiAffinity", HOST),
    ("podAffinity", "zone"),
    ("podAntiAffinity", "zone"),
)


@dataclass(frozen=True)
class Case:
    """A cluster, a gang that waits alone, and whether there is any way to place it."""

    parts: dict[str, Any]
    """Of a snapshot."""
    possible: bool
    amounts: list[tuple[int, int, str]]
    """(cpu, gpu, zone) of each node."""
    roles: list[tuple[int, int, int]]
    """(tasks, cpu, gpu) of each."""
    term: tuple[str, str] | None = None

    def lawful(self, decision):
        """Say whether a decision gives nothing to anybody that he cannot have."""
        held = Counter((p.role, int(p.node[1:])) for p in decision.placements)
        least = self.parts["gangs"][0].min_member
        if not held:
            return True
        left = [(cpu, gpu) for cpu, gpu, _ in self.amounts]
        zones = [zone for _, _, zone in self.amounts]
        for name, (count, cpu, gpu) in zip(("worker", "ps", "chief"), self.roles, strict=False):
            split = [held[name, i] for i in range(len(left))]
            left = [(c - n * cpu, g - n * gpu) for (c, g), n in zip(left, split, strict=True)]
            if sum(split) > count or not allowed(split, zones, self.term):
                return False
        return sum(held.values()) >= least and min(min(each) for each in left) >= 0


def small(seed):
    """Return a gang of up to three roles on up to five nodes, tried in every way.

    Of some gangs not all tasks are needed.
    """
    dice = random.Random(seed)
    amounts = [
        (dice.randint(0, 8), dice.randint(0, 4), dice.choice("ab"))
        for _ in range(dice.randint(1, 5))
    ]
    roles = [
        (dice.randint(1, 4), dice.randint(0, 4), dice.choice((0, 0, 1, 2)))
        for _ in range(dice.randint(1, 3))
    ]
    term = dice.choice(TERMS)
    total = sum(count for count, _, _ in roles)
    least = total if dice.random() < 0.8 else dice.randint(1, total)
    free, zones = [(cpu, gpu) for cpu, gpu, _ in amounts], [zone for _, _, zone in amounts]
    mixes = itertools.product(*(range(count + 1) for count, _, _ in roles))
    found = (
        next(outcomes(free, zones, _mixed(roles, mix), term), None)
        for mix in mixes
        if sum(mix) == least
    )
    possible = any(each is not None for each in found)
    gang = as_gang(roles, term, min_member=least)
    return Case({"nodes": make_nodes(amounts), "gangs": [gang]}, possible, amounts, roles, term)


def _mixed(roles, mix):
    return [(n, cpu, gpu) for n, (_, cpu, gpu) in zip(mix, roles, strict=True)]


def planted(seed, nodes):
    """Return a gang of three roles that fills exactly what is free of so many nodes."""
    dice = random.Random(seed)
    kinds = [(dice.randint(1, 8), dice.choice((0, 0, 1, 1, 2, 4))) for _ in range(3)]
    held = [Counter(dice.choices(range(3), k=dice.randint(1, 4))) for _ in range(nodes)]
    amounts = [
        (
            sum(n * kinds[k][0] for k, n in each.items()),
            sum(n * kinds[k][1] for k, n in each.items()),
            "a",
        )
        for each in held
    ]
    total = sum(held, Counter())
    roles = [(total[k], *kinds[k]) for k in range(3) if total[k]]
    parts = {"nodes": make_nodes(amounts), "gangs": [as_gang(roles)]}
    return Case(parts, possible=True, amounts=amounts, roles=roles)
