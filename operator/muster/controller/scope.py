# SPDX-License-Identifier: Apache-2.0
"""One pass: what it may look at, and the rules it goes by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from muster.api.model import GroupView, Job, ObjectView
from muster.controller.jobpods import JobPods, Member, PodFate, job_pods
from muster.controller.model import Context, Observed, Refusal
from muster.controller.replacement import backs_off
from muster.frameworks.base import Framework
from muster.gang import GangBackend, GangFacts, standing


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything that the steps of one pass share."""

    observed: Observed
    framework: Framework
    backend: GangBackend
    context: Context
    roster: JobPods
    facts: GangFacts
    run_ended: bool = False
    """The gang starts again, and members that succeeded are replaced with the others."""
    restart_at: float | None = None
    """When the gang restarts, as it lost members; None: it lost none, or has an allocator."""

    @property
    def job(self) -> Job:
        """The job that this pass is about."""
        return self.observed.job

    def owns(self, view: ObjectView | GroupView) -> bool:
        """Say whether the job is the controller of that object."""
        return view.owner == self.job.as_owner

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self.observed.now

    @property
    def minimum(self) -> int:
        """How many pods must run together."""
        return standing.minimum(self.job, self.facts)

    @property
    def rerun(self) -> tuple[Member, ...]:
        """Members that succeeded in a run that has ended: the next one creates them again."""
        done = (member for member in self.roster.members if member.pod.phase == "Succeeded")
        return tuple(done) if self.run_ended else ()

    @property
    def replaced_peers(self) -> tuple[Member, ...]:
        """Members that have not ended, and are replaced since another one failed or is lost."""
        found = self.roster.having(PodFate.COUNTED, PodFate.PEER_LOST)
        return tuple(member for member in found if not member.pod.terminal)

    @property
    def waiting(self) -> tuple[Member, ...]:
        """Members whose pod failed, is counted, and stays until its successor is created."""
        found = self.roster.having(PodFate.COUNTED, PodFate.LOST)
        job, framework = self.job, self.framework
        return tuple(m for m in found if backs_off(job, framework, m.replica, m.pod))

    @property
    def group_facts(self) -> GangFacts:
        """What a gang scheduler that counts pods goes by: completed indexes may have none."""
        gone = Counter(self.facts.unreplaced) + Counter(self.roster.removed)
        return self.facts if self.backend.embedded else replace(self.facts, unreplaced=gone)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The server's refusals that are in force."""
        found = (self.observed.refusal, self.observed.autoscaler_refusal)
        return tuple(refusal for refusal in found if refusal is not None)

    @property
    def lacking(self) -> str:
        """What the operator may not do for jobs of this sort, in a sentence, or nothing."""
        return self.context.lacking.get(self.framework.operator.name, "")

    @property
    def hindrance(self) -> Refusal | None:
        """The refusal, if it keeps pods from being created."""
        refusal = self.observed.refusal
        started = bool(self.roster.own) or standing.was_admitted(self.job)
        blocks = refusal is not None and refusal.blocks_pods(started=started)
        return refusal if blocks else None

    @property
    def fresh(self) -> bool:
        """Say whether the spec has not been looked at before, so that its notices are due."""
        return self.job.status.observed_generation != self.job.generation


def scope_of(
    observed: Observed, framework: Framework, backend: GangBackend, context: Context
) -> Scope:
    """Return the scope of one pass."""
    observed = _sorted(observed, framework)
    roster, job = job_pods(observed, framework), observed.job
    ended = roster.having(PodFate.STAYS, PodFate.PERMANENT)
    late = framework.gang.later(job)
    # Of the wanted pods that come after the others, the rest cannot exist yet.
    there = sum(m.replica.type in late and not m.pod.suspended for m in roster.members)
    # A failed batch Job is the end of the job.
    failed = (m.replica for m in ended if m.pod.phase == "Failed" and not m.replica.batch)
    facts = replace(
        context.gangs,
        operator_name=framework.operator.name,
        volcano_queue=job.annotations.get(framework.gang.volcano_queue, ""),
        unreplaced=Counter(replica.role for replica in failed),
        minimum=framework.gang.minimum(job),
        later=sum(role.replicas for role in job.replicas if role.type in late) - there,
    )
    return Scope(observed, framework, backend, context, roster, facts)


def _sorted(observed: Observed, framework: Framework) -> Observed:
    """Return what is observed with the companions apart from the children of pods."""
    job = observed.job
    wanted = {(part.kind, part.name(job)): part.wanted(job) for part in framework.companions}
    if not wanted:
        return observed
    kinds = (observed.services, observed.configs)
    services, configs = (
        tuple(view for view in views if (view.kind, view.name) not in wanted) for views in kinds
    )
    named = (v for views in kinds for v in views if (v.kind, v.name) in wanted)
    there = {view.uid: view for view in (*observed.companions, *named)}
    companions = tuple(
        view
        for view in there.values()
        # One of somebody else is in the way of what is wanted, and of nothing else.
        if wanted.get((view.kind, view.name), True) or view.owner == job.as_owner
    )
    return replace(observed, services=services, configs=configs, companions=companions)
