# SPDX-License-Identifier: Apache-2.0
"""Assumed pods: the room of pods that were given a node is taken until they are seen there.

Which pods those are is remembered gang by gang, as values. Here the difference between two of
them is applied to the columns, so that room cannot be taken that nobody remembers to give back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from muster.allocator.tracker import Assumed
from muster.cluster.state import ClusterColumns


def apply(
    columns: ClusterColumns,
    namespace: str,
    before: Mapping[str, Assumed],
    after: Mapping[str, Assumed],
    *,
    if_fits: bool = False,
    places: Collection[str] | None = None,
) -> bool:
    """Release the resources of pods that are not assumed any more, and take those of new ones.

    `if_fits`: change nothing and return False if a new pod does not fit; terms about other pods
    count as in the cycle and in kube-scheduler. `places`: all that may differ; None: any.
    """
    if before is after:
        return True
    if places is not None:
        before, after = ({p: it[p] for p in places if p in it} for it in (before, after))
    held = dict(before)
    # Given back first: what is new may need just that room.
    for place, it in before.items():
        if after.get(place) is not it:
            columns.forget(namespace, place)
            del held[place]
    for place, it in after.items():
        if before.get(place) is not it:
            # One by one: pods of this gang may be after the same room.
            if if_fits and not columns.fits(it.node, it.shape):
                apply(columns, namespace, held, before)
                return False
            columns.assume(namespace, place, it.node, it.shape)
            held[place] = it
    return True
