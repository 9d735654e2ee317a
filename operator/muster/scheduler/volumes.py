# SPDX-License-Identifier: Apache-2.0
"""Volumes as the scheduler knows them: those that claims are to get, and those that nodes have.

Letters in shapes: N nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

ENDLESS: Final = int(np.iinfo(np.int64).max // 4)
"""More volumes than anybody has."""


@dataclass(frozen=True, slots=True, eq=False)
class Want:
    """A claim of a shape's tasks that has no volume yet; they share it."""

    claim: str
    options: tuple[tuple[str, npt.NDArray[np.bool_]], ...]
    """(volume, (N,) where it can be had), the one to be preferred first."""
    made: npt.NDArray[np.bool_]
    """(N,): where a volume can be made for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Driver:
    """What attaches volumes to nodes, each of which takes only so many of them."""

    most: npt.NDArray[np.int64]
    """(N,): how many, ENDLESS where there is no limit."""
    users: Mapping[str, Mapping[int, int]]
    """Volume -> position of a node that has it -> pods there that use it."""
    going: Mapping[str, Mapping[int, int]]
    """The part of `users` that is being deleted."""
    volumes: Mapping[int, tuple[str, ...]]
    """Shape -> the volumes that its tasks share, each once."""
    own: Mapping[int, int] = field(default_factory=dict)
    """Shape -> how many volumes each of its tasks has for itself; they are in `users` too."""
