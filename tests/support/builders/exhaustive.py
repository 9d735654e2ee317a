# SPDX-License-Identifier: Apache-2.0
"""Every way to place gangs on small clusters."""

from __future__ import annotations

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
