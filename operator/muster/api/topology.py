# SPDX-License-Identifier: Apache-2.0
"""Topology annotations of Muster and Kueue; a level is a node label, a domain one value of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from muster.api import edge, names

REQUIRED: Final = (names.TOPOLOGY_REQUIRED, names.KUEUE_REQUIRED_TOPOLOGY)
PREFERRED: Final = (names.TOPOLOGY_PREFERRED, names.KUEUE_PREFERRED_TOPOLOGY)
SLICES: Final = (names.TOPOLOGY_SLICE_REQUIRED, names.KUEUE_SLICE_TOPOLOGY)
SIZES: Final = (names.TOPOLOGY_SLICE_SIZE, names.KUEUE_SLICE_SIZE)
_ALL: Final = (*REQUIRED, *PREFERRED, *SLICES, *SIZES)
_ONE_OF: Final = ((*REQUIRED, *PREFERRED), SLICES, SIZES)
"""Of each of these one may be given."""
EXEMPT: Final = "none"
"""The value of `topology-required` on a role that its job's topology does not constrain."""
_LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_TEXT: Final = 'write the key of a node label, e.g. "topology.kubernetes.io/rack"'


def given(annotations: Mapping[str, Any]) -> Mapping[str, str]:
    """Return those of these annotations that are about topology."""
    if not annotations:
        return annotations
    return {key: edge.text(annotations[key]) for key in _ALL if key in annotations}


def label(text: str) -> str:
    """Return the key of a node label, empty if it is none."""
    return text if _LABEL.fullmatch(text) else ""


def problems(annotations: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (annotation, what is wrong with it)."""
    found = given(annotations)
    for key, text in found.items():
        if key in SIZES:
            if not edge.count(text):
                yield key, f'Invalid value: "{text}": write how many ranks are a slice, from 1 on'
        elif not _LABEL.fullmatch(text):
            yield key, f'Invalid value: "{text}": {_LABEL_TEXT}'
    for keys in _ONE_OF:
        first, *others = [key for key in keys if key in found] or [""]
        for key in others:
            yield key, f"Forbidden: {first} says it already; write one of them"
    for keys, missing in ((SLICES, SIZES), (SIZES, SLICES)):
        for key in keys:
            if key in found and not any(other in found for other in missing):
                yield key, f"Required value: {missing[0]} is to be given as well"
