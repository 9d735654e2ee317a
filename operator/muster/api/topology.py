# SPDX-License-Identifier: Apache-2.0
"""Where pods are to lie together, as annotations ask it: Muster's own, and those of Kueue.

A level is a node label, a domain the nodes with one value of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from muster.api import edge, names

_REQUIRED: Final = (names.TOPOLOGY_REQUIRED, names.KUEUE_REQUIRED_TOPOLOGY)
_PREFERRED: Final = (names.TOPOLOGY_PREFERRED, names.KUEUE_PREFERRED_TOPOLOGY)
_SLICES: Final = (names.TOPOLOGY_SLICE_REQUIRED, names.KUEUE_SLICE_TOPOLOGY)
_SIZES: Final = (names.TOPOLOGY_SLICE_SIZE, names.KUEUE_SLICE_SIZE)
_ALL: Final = (*_REQUIRED, *_PREFERRED, *_SLICES, *_SIZES)
_ONE_OF: Final = ((*_REQUIRED, *_PREFERRED), _SLICES, _SIZES)
"""Of each of these one may be given."""
EXEMPT: Final = "none"
"""The value of `topology-required` on a role that its job's topology does not constrain."""
_LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_TEXT: Final = 'write the key of a node label, e.g. "topology.kubernetes.io/rack"'


class Asked(NamedTuple):
    """What annotations ask."""

    level: str = ""
    """The label of which one value is to hold all; empty: none is named."""
    required: bool = False
    """Nothing else will do."""
    slice_level: str = ""
    """The label of which one value must hold each slice; empty: there are none."""
    slice_size: int = 0
    """How many consecutive ranks are a slice."""
    exempt: bool = False
    """The topology of the job, and that of the policy, do not apply."""


def asked(annotations: Mapping[str, Any], *, kueue: bool = False) -> Asked | None:
    """Return what these annotations ask, as far as it can be read; None: they say nothing.

    `kueue`: it has the pods in a queue of its own, and sees itself to what its annotations say.
    """
    given = _given(annotations)
    if not given:
        return None
    # Each pair has Muster's own name first, Kueue's second.
    most = 1 if kueue else 2
    required, preferred, level, size = (
        next((given[key] for key in keys[:most] if key in given), "")
        for keys in (_REQUIRED, _PREFERRED, _SLICES, _SIZES)
    )
    required, preferred, level = map(_label, (required, preferred, level))
    slices = (level, edge.count(size)) if level and edge.count(size) else ("", 0)
    if required == EXEMPT:
        return Asked(slice_level=slices[0], slice_size=slices[1], exempt=True)
    found = Asked(required or preferred, bool(required), *slices)
    return None if found == Asked() else found


def problems(annotations: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (annotation, what is wrong with it)."""
    given = _given(annotations)
    for key, text in given.items():
        if key in _SIZES:
            if not edge.count(text):
                yield key, f'Invalid value: "{text}": write how many ranks are a slice, from 1 on'
        elif not _LABEL.fullmatch(text):
            yield key, f'Invalid value: "{text}": {_LABEL_TEXT}'
    for keys in _ONE_OF:
        first, *others = [key for key in keys if key in given] or [""]
        for key in others:
            yield key, f"Forbidden: {first} says it already; write one of them"
    for keys, missing in ((_SLICES, _SIZES), (_SIZES, _SLICES)):
        for key in keys:
            if key in given and not any(other in given for other in missing):
                yield key, f"Required value: {missing[0]} is to be given as well"


def _label(text: str) -> str:
    return text if _LABEL.fullmatch(text) else ""


def _given(annotations: Mapping[str, Any]) -> Mapping[str, str]:
    if not annotations:
        return annotations
    return {key: edge.text(annotations[key]) for key in _ALL if key in annotations}
