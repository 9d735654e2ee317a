# SPDX-License-Identifier: Apache-2.0
"""Assumed pods: the room of pods that were given a node is taken until they are seen there.

Which pods those are is remembered gang by gang, as values. Here the difference between two of
them is applied to the columns, so that room cannot be taken that nobody remembers to give back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from muster.allocator.tracker import Assumed
from muster.cluster.pods import PodShape
from muster.cluster.state import ClusterColumns

Excluded = Collection[tuple[str, str]] | None
MAX_TERMS: Final = 4096
"""Maximum number of terms about other pods that are evaluated for the pods of one gang."""


def apply(
    columns: ClusterColumns,
    namespace: str,
    before: Mapping[str, Assumed],
    after: Mapping[str, Assumed],
    *,
    if_fits: bool = False,
    trusts: bool = False,
    places: Collection[str] | None = None,
) -> bool:
    """Give back the room of pods that are not assumed any more, and take that of new ones.

    `if_fits`: change nothing, and return False, if there is no room for one of the new pods, or
    if pods that changed since the cycle concern more than MAX_TERMS terms of them. `trusts`: so
    many terms count as in the cycle, except for anti-affinity where such pods are known.
    `places`: those alone at which the two may differ; None: any.
    """
    if before is after:
        return True
    if places is not None:
        before, after = ({p: it[p] for p in places if p in it} for it in (before, after))
    shapes = [it.shape for place, it in after.items() if before.get(place) is not it]
    once = {id(shape): shape for shape in shapes if if_fits}
    excluded = _excluded(columns, shapes if if_fits else (), trusts=trusts)
    if excluded is None:
        return False
    held = dict(before)
    # Given back first: what is new may need just that room.
    for place, it in before.items():
        if after.get(place) is not it:
            columns.forget(namespace, place)
            del held[place]
    for place, it in after.items():
        if before.get(place) is not it:
            # One by one: pods of this gang may be after the same room.
            if if_fits and not columns.fits(it.node, it.shape, excluded[id(it.shape)]):
                # Pods that were decided to be near these have to be evaluated again.
                for shape in once.values():
                    columns.record(shape.use(namespace, place, it.node))
                apply(columns, namespace, held, before)
                return False
            columns.assume(namespace, place, it.node, it.shape)
            held[place] = it
    return True


def _excluded(
    columns: ClusterColumns, shapes: Collection[PodShape], *, trusts: bool
) -> dict[int, Excluded] | None:
    """Return shape id -> its excluded domains; None: too many terms have to be evaluated."""
    once = {id(shape): shape for shape in shapes}
    excluded = {key: columns.excluded(shape) for key, shape in once.items()}
    if sum(len(each.ties) for each in shapes if excluded[id(each)] is None) <= MAX_TERMS:
        return excluded
    if not trusts:
        return None
    return {key: columns.excluded(shape, trusts=True) for key, shape in once.items()}
