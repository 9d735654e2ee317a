# SPDX-License-Identifier: Apache-2.0
"""One pass: what it may look at, and the rules it goes by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from muster.api import names
from muster.api.model import Job
from muster.controller.model import Context, Observed, Refusal
from muster.controller.roster import Roster, roster_of
from muster.frameworks.base import Framework
from muster.gang import GangBackend, GangFacts
from muster.gang.demand import minimum

INVALID: Final = "Invalid"
"""The server's reason for refusing an object that no retry makes acceptable."""

_FOLLOWERS: Final = frozenset({"Service", names.AUTOSCALER})
"""Kinds of children that pods do not wait for."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything that the steps of one pass share."""

    observed: Observed
    framework: Framework
    backend: GangBackend
    context: Context
    roster: Roster
    facts: GangFacts

    @property
    def job(self) -> Job:
        """The job that this pass is about."""
        return self.observed.job

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.observed.now

    @property
    def minimum(self) -> int:
        """How many pods must run together."""
        return minimum(self.job, self.facts)

    @property
    def refusal(self) -> Refusal | None:
        """The server's refusal, as long as it holds; an invalid object is refused for good."""
        refusal = self.observed.refusal
        holds = refusal and (refusal.reason == INVALID or self.now < refusal.until)
        return refusal if holds else None

    @property
    def retry(self) -> float | None:
        """When what was refused may be tried again; None if it must be mended first."""
        refusal = self.refusal
        return refusal.until if refusal is not None and refusal.reason != INVALID else None

    @property
    def hindrance(self) -> Refusal | None:
        """The refusal, if it keeps pods from being created; what can follow them does not."""
        refusal = self.refusal
        return refusal if refusal is not None and refusal.kind not in _FOLLOWERS else None

    @property
    def fresh(self) -> bool:
        """Say whether the spec has not been looked at before, so that its notices are due."""
        return self.job.status.observed_generation != self.job.generation


def scope_of(
    observed: Observed, framework: Framework, backend: GangBackend, context: Context
) -> Scope:
    """Return the scope of one pass."""
    facts = GangFacts(
        operator_name=framework.operator_name,
        minimum=framework.minimum(observed.job),
        priorities=context.priorities,
        default_queue=context.default_queue,
        api_version=context.group_api_version,
    )
    roster = roster_of(observed, framework)
    return Scope(observed, framework, backend, context, roster, facts)
