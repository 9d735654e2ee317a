# SPDX-License-Identifier: Apache-2.0
"""Why a pod is evicted, in words for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LATE: Final = "members were missing for too long; it starts anew"


@dataclass(frozen=True, slots=True)
class Cause:
    """What it makes room for."""

    action: str
    """The scheduling action: preempt, reclaim, defragment; or release."""
    claimant: str = ""
    """Key of the gang that gets the room; empty: its own gang could not be made whole."""

    @property
    def sentence(self) -> str:
        """`preempt: evicted for TFJob team/large`."""
        if not self.claimant:
            return f"{self.action}: {LATE}"
        kind, _, name = self.claimant.partition("/")
        return f"{self.action}: evicted for {kind} {name}"


RELEASE: Final = Cause("release")
"""A gang begins anew, as its members were not made whole in time."""
