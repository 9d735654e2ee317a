# SPDX-License-Identifier: Apache-2.0
"""Why a pod is evicted, in words for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """What it makes room for."""

    action: str
    """The scheduling action: preempt, reclaim, defragment."""
    claimant: str
    """Key of the gang that gets the room."""

    @property
    def sentence(self) -> str:
        """`preempt: evicted for TFJob team/large`."""
        kind, _, name = self.claimant.partition("/")
        return f"{self.action}: evicted for {kind} {name}"
