# SPDX-License-Identifier: Apache-2.0
"""What is said to somebody who applies a job: what forbids it, and what is to be known."""

from __future__ import annotations

from dataclasses import dataclass

from muster.api.model import Job, Problem
from muster.frameworks.base import Framework
from muster.frameworks.loading import load

_MANAGED_BY = "spec.runPolicy.managedBy"


@dataclass(frozen=True, slots=True)
class Ruling:
    """The answer to one request."""

    problems: tuple[Problem, ...] = ()
    """Why it is refused; empty: it is not."""
    warnings: tuple[str, ...] = ()


def review(
    framework: Framework,
    document: object,
    before: object = None,
    domain: str = "",
    home: str = "",
) -> Ruling:
    """Return what is to be said of a new version of a job; `before` is the old one, if any.

    The rules are those by which the controller reads the job. What the old version breaks as
    well does not forbid the new one: a job stays writable when the rules grow, and nothing keeps
    a job that is being deleted. Never raises.
    """
    job = load(framework, document, domain, home)
    if job.deleting:
        return Ruling()
    warnings = tuple(notice.message for notice in job.notices if notice.type == "Warning")
    if before is None:
        return Ruling(job.problems, warnings)
    old = load(framework, before, domain, home)
    kept = tuple(problem for problem in job.problems if problem in old.problems)
    new = tuple(problem for problem in job.problems if problem not in kept)
    return Ruling((*_immutable(old, job), *new), (*map(str, kept), *warnings))


def _immutable(old: Job, new: Job) -> tuple[Problem, ...]:
    manager = new.run_policy.managed_by
    if manager == old.run_policy.managed_by:
        return ()
    shown = "null" if manager is None else f'"{manager}"'
    return (Problem(_MANAGED_BY, f"Invalid value: {shown}: field is immutable"),)
