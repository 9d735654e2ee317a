# SPDX-License-Identifier: Apache-2.0
"""The one rule by which pods that may run are deleted or evicted.

Running work comes first: code that deletes a pod, or a job or batch Job with its pods, names a
reason, and `is_permitted` refuses a reason that does not hold for the observed pod.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Final

from muster.api import names
from muster.api.model import PodView
from muster.api.reasons import DeletionReason


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is observed of the job or gang of a pod. The defaults permit nothing."""

    suspended: bool = False
    finished: bool = False
    """The status records the end of the job."""
    invalid: bool = False
    """The spec has errors, so that it does not tell which indexes are wanted."""
    clean_pod_policy: str = names.CleanPodPolicy.NONE
    unwanted: Container[str] = ()
    """uids of pods whose index is not wanted or has another pod."""
    duplicates: Container[str] = ()
    """uids of the latter."""
    counted: Container[str] = ()
    """uids of pods whose restart is in the status."""
    restarts_whole: bool = False
    """The job has the annotation `restart: gang`."""
    run_ended: bool = False
    """Pods that succeeded run again with the others."""
    started: bool = True
    """The gang has run, or all members that it needs exist."""
    claimant: str = ""
    """Key of the gang that gets the capacity."""
    restartable: bool = False
    """Members are missing, and the gang is released when their hold expires."""
    may_run: bool = False
    """A member may still run: its node is unreachable and not fenced."""
    released: bool = False
    """The release of the whole gang has begun. It is completed, whatever changes."""


def is_permitted(reason: DeletionReason, seen: Evidence, pod: PodView | None = None) -> bool:
    """Return whether the reason permits to delete the pod. None: the job or gang as a whole."""
    if reason in _OF_GANG:
        return _OF_GANG[reason](seen)
    return pod is not None and reason in _OF_POD and _OF_POD[reason](seen, pod)


def _claimed(seen: Evidence) -> bool:
    return bool(seen.claimant)


def _released(seen: Evidence) -> bool:
    return seen.released or (seen.restartable and not seen.may_run)


_OF_GANG: Final[Mapping[DeletionReason, Callable[[Evidence], bool]]] = {
    DeletionReason.SUSPENDED: lambda seen: seen.suspended,
    DeletionReason.EXPIRED: lambda seen: seen.finished,
    DeletionReason.UNDONE: lambda seen: not seen.started,
    DeletionReason.PREEMPT: _claimed,
    DeletionReason.RECLAIM: _claimed,
    DeletionReason.DEFRAGMENT: _claimed,
    DeletionReason.DEADLOCK: _claimed,
    DeletionReason.RELEASE: _released,
    DeletionReason.HOLD_EXPIRED: _released,
    DeletionReason.RECORDED: lambda seen: seen.released,
}


def _is_surplus(seen: Evidence, pod: PodView) -> bool:
    ended = seen.finished and pod.terminal
    return pod.uid in seen.unwanted and not (seen.invalid or ended)


def _is_duplicate(seen: Evidence, pod: PodView) -> bool:
    return pod.uid in seen.duplicates and _is_surplus(seen, pod)


def _is_cleaned(seen: Evidence, pod: PodView) -> bool:
    if seen.clean_pod_policy == names.CleanPodPolicy.RUNNING:
        return seen.finished and not pod.terminal
    return seen.finished and seen.clean_pod_policy == names.CleanPodPolicy.ALL


def _is_restarted(seen: Evidence, pod: PodView) -> bool:
    return pod.uid in seen.counted and (pod.phase == "Failed" or seen.restarts_whole)


def _is_peer(seen: Evidence, pod: PodView) -> bool:
    return (seen.restarts_whole or seen.released) and not (pod.unreachable or pod.terminal)


_OF_POD: Final[Mapping[DeletionReason, Callable[[Evidence, PodView], bool]]] = {
    DeletionReason.SURPLUS: _is_surplus,
    DeletionReason.DUPLICATE: _is_duplicate,
    DeletionReason.FINISHED: _is_cleaned,
    DeletionReason.RESTARTED: _is_restarted,
    DeletionReason.REPLACED: lambda _seen, pod: pod.phase == "Failed",
    DeletionReason.FENCED: lambda _seen, pod: pod.fenced,
    DeletionReason.PEER_LOST: _is_peer,
    DeletionReason.NEW_RUN: lambda seen, pod: seen.run_ended and pod.phase == "Succeeded",
    DeletionReason.RECREATED: lambda _seen, pod: pod.suspended,
}
