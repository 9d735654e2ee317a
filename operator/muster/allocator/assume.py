# SPDX-License-Identifier: Apache-2.0
"""Assumed pods: the room of pods that were given a node is taken until they are seen there.

Which pods those are is remembered gang by gang, as values. Here the difference between two of
them is applied to the columns, so that room cannot be taken that nobody remembers to give back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from muster.allocator.tracker import Assumed
from muster.cluster.state import ClusterColumns

MAX_TERMS: Final = 4096
"""Maximum number of terms about other pods that are evaluated for the pods of one gang."""


def apply(
    columns: ClusterColumns,
    namespace: str,
    before: Mapping[str, Assumed],
    after: Mapping[str, Assumed],
    *,
    if_fits: bool = False,
    places: Collection[str] | None = None,
) -> bool:
    """Give back the room of pods that are not assumed any more, and take that of new ones.

    `if_fits`: change nothing, and return False, if there is no room for one of the new pods, or
    if pods that changed since the cycle concern more than MAX_TERMS terms of them.
    `places`: those alone at which the two may differ; None: any.
    """
    if before is after:
        return True
    if places is not None:
        before, after = ({p: it[p] for p in places if p in it} for it in (before, after))
    shapes = [it.shape for place, it in after.items() if before.get(place) is not it]
    once = {id(shape): shape for shape in shapes if if_fits}
    excluded = {key: columns.excluded(shape) for key, shape in once.items()}
    unknown = (shape for shape in shapes if excluded.get(id(shape), ()) is None)
    if sum(len(shape.ties) for shape in unknown) > MAX_TERMS:
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
