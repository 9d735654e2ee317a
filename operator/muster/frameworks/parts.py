# SPDX-License-Identifier: Apache-2.0
"""What a kind may need beside pods, and how it speaks: parts of a `Framework`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from muster.api import names
from muster.api.model import Job, Json, PodView


def _nothing(_job: Job, _domain: str, _pods: Sequence[PodView]) -> Json:
    return {}


def _no_fields(_job: Job) -> Json:
    return {}


def _always(_job: Job) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Companion:
    """An object of the job's own that its pods need before they run."""

    api_version: str
    kind: str
    suffix: str = ""
    """Follows the job's name in its own."""
    content: Callable[[Job, str, Sequence[PodView]], Json] = _nothing
    """(job, domain, its pods) -> the top-level fields that are kept true."""
    fixed: Callable[[Job], Json] = _no_fields
    """Fields that are written once and stay."""
    keys: tuple[str, ...] = ()
    """Of a Secret: the keys that it must have; the values are made outside of the core."""
    wanted: Callable[[Job], bool] = _always
    lasting: bool = False
    """It is there also while the job is suspended."""

    def name(self, job: Job) -> str:
        """Return the name of that object of a job."""
        return f"{names.flat(job.name)}{self.suffix}"


@dataclass(frozen=True, slots=True)
class Wording:
    """What is said of a job's life; `{kind}`, `{namespace}` and `{name}` are the job's."""

    created: str = "{kind} {name} is created."
    suspended: str = "{kind} {name} is suspended."
    stopped: str = "{kind} {name} is suspended."
    """Of Running=False while it is suspended."""
    resumed: str = "{kind} {name} is resumed."
    suspended_first: bool = False
    """Suspended is set before Running is taken back, also on a job that never ran."""
    never_ran: str = ""
    """Of Running=False on a job that ended without having been seen to run; empty: not said."""
    invalid_event: str = ""
    """Reason of the event about an invalid job; empty: `<Kind>FailedValidation`."""
    invalid: str = "{kind} failed validation because {why}"
    taken: str = 'Resource "{other}" of Kind "{of}" already exists and is not managed by {kind}'
    restart_policy: str = names.Event.SET_POD_TEMPLATE_RESTART_POLICY
    """Reason of the event about a restart policy in a template of one of these roles."""
    restart_policy_text: str = (
        "Restart policy in pod template will be overwritten by restart policy in replica spec"
    )
    restart_policy_of: tuple[str, ...] = ()
    """The roles of which it is told; empty: all."""

    def of(self, text: str, job: Job, **more: str) -> str:
        """Return one of these texts about a job."""
        named = {"kind": job.kind, "namespace": job.namespace, "name": job.name, **more}
        return text.format(**named)
