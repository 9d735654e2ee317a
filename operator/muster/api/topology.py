# SPDX-License-Identifier: Apache-2.0
"""Where pods are to lie together, as annotations ask it: Muster's own, and those of Kueue.

A level is a node label, a domain the nodes with one value of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from muster.api import edge, names

REQUIRED: Final = (names.TOPOLOGY_REQUIRED, names.KUEUE_REQUIRED_TOPOLOGY)
PREFERRED: Final = (names.TOPOLOGY_PREFERRED, names.KUEUE_PREFERRED_TOPOLOGY)
_LEVELS: Final = (*REQUIRED, *PREFERRED)
_LABEL = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_TEXT: Final = 'write the key of a node label, e.g. "topology.kubernetes.io/rack"'


class Asked(NamedTuple):
    """What annotations ask."""

    level: str
    """The label of which one value is to hold all."""
    required: bool
    """Nothing else will do."""


def asked(annotations: Mapping[str, Any], *, kueue: bool = False) -> Asked | None:
    """Return what these annotations ask, as far as it can be read; None: they say nothing.

    `kueue`: it has the pods in a queue of its own, and sees itself to what its annotations say.
    """
    given = _given(annotations)
    for own, theirs, required in ((*REQUIRED, True), (*PREFERRED, False)):
        for key in (own,) if kueue else (own, theirs):
            if _LABEL.fullmatch(given.get(key, "")):
                return Asked(given[key], required)
    return None


def problems(annotations: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (annotation, what is wrong with it)."""
    given = _given(annotations)
    for key in _LEVELS:
        if key in given and not _LABEL.fullmatch(given[key]):
            yield key, f'Invalid value: "{given[key]}": {_LABEL_TEXT}'
    levels = [key for key in _LEVELS if key in given]
    for key in levels[1:]:
        yield key, f"Forbidden: {levels[0]} says it already; write one of them"


def _given(annotations: Mapping[str, Any]) -> Mapping[str, str]:
    if not annotations:
        return annotations
    return {key: edge.text(annotations[key]) for key in _LEVELS if key in annotations}
