# SPDX-License-Identifier: Apache-2.0
"""Pods of a job that do not run as they should: one message each, for its status."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from muster.api import names
from muster.api.edge import format_time
from muster.api.model import ContainerEnd, PodView
from muster.controller import replacement
from muster.controller.jobpods import Member, PodFate, container_names, rejected
from muster.controller.policies import LONG_RUN
from muster.controller.scope import Scope
from muster.frameworks.base import container_name

MAX_PROBLEMS: Final = 3
"""Maximum number of pods in the status: many pods of a job have the same problem."""
START_SECONDS: Final = 120.0
"""Seconds after which a pod on a node that is not Ready is a problem."""
TERMINATION_SECONDS: Final = 60.0
"""Seconds beyond its grace period after which a pod that is being deleted is a problem."""
_IMAGE: Final = "has no image: correct its name, or what is needed to pull it"
_CONTAINER: Final = "cannot be created: correct the ConfigMap, Secret, user or command it names"
_REMEDIES: Final = {
    **dict.fromkeys(("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"), _IMAGE),
    **dict.fromkeys(("InvalidImageName", "ImageInspectError", "RegistryUnavailable"), _IMAGE),
    **dict.fromkeys(("CreateContainerConfigError", "CreateContainerError"), _CONTAINER),
    "RunContainerError": _CONTAINER,
}
"""Reason for which a container waits until its job is corrected -> what to correct.

The reason alternates with the attempts of the kubelet, the message does not.
"""


def found(scope: Scope) -> str:
    """Return the messages of the first pods that have a problem, in canonical order."""
    messages = (message for member in scope.roster.members for message in _of(scope, member))
    return " ".join(islice(messages, MAX_PROBLEMS))


def changes(scope: Scope) -> Iterator[float]:
    """Yield when time alone begins or ends a problem."""
    return (at for member in scope.roster.members for at in _times(member))


def _of(scope: Scope, member: Member) -> Iterator[str]:
    pod = member.pod
    if member.fate is PodFate.LOST and rejected(pod):
        yield replacement.rejection(pod)
    elif pod.unreachable or pod.lost:
        return  # the verdict reports more on its node
    elif pod.deletion:
        if scope.now >= pod.deletion + TERMINATION_SECONDS:
            since = format_time(pod.deletion)
            yield f"{_which(pod, '')} is Terminating; its grace period ended at {since}."
    elif member.fate is PodFate.STAYS and not pod.terminal:
        kinds = (_waits, _crashed, _ended_alone, _is_unready, _was_rejected)
        yield from islice((text for kind in kinds for text in kind(scope, member)), 1)


def _times(member: Member) -> Iterator[float]:
    pod = member.pod
    if pod.deletion:
        yield pod.deletion + TERMINATION_SECONDS
    elif not pod.terminal:
        if pod.unready is not None:
            yield pod.unready.since + START_SECONDS
        yield from (end.at + LONG_RUN for end in pod.past_failures)


def _is_unready(scope: Scope, member: Member) -> Iterator[str]:
    pod, unready = member.pod, member.pod.unready
    if unready is not None and scope.now >= unready.since + START_SECONDS:
        since = format_time(unready.since)
        yield f"{_which(pod, unready.container)} is in phase {unready.phase} since {since}."


def _waits(_scope: Scope, member: Member) -> Iterator[str]:
    """Yield the container that waits for a reason that the kubelet calls an error."""
    pod = member.pod
    last = {end.container: end for end in pod.past_failures}
    for end in pod.ends:
        if end.exit_code is not None:
            continue
        text = f"waits ({end.reason}).{_last_exit(pod, last.get(end.container))}"
        if end.reason in _REMEDIES:
            text = f"{_REMEDIES[end.reason]} (`kubectl describe pod {pod.name}` shows more)."
        yield f"{_which(pod, end.container)} {text}"


def _crashed(scope: Scope, member: Member) -> Iterator[str]:
    """Yield the container that failed and was started again less than 10 minutes ago."""
    pod = member.pod
    for end in pod.past_failures:
        if scope.now < end.at + LONG_RUN:
            yield f"{_which(pod, end.container)} restarted.{_last_exit(pod, end)}"


def _ended_alone(scope: Scope, member: Member) -> Iterator[str]:
    """Yield the container of the framework if it ended, and others keep its pod from ending."""
    pod, replica = member.pod, member.replica
    main = container_name(scope.framework, replica)
    code = pod.exit_code(main)
    # A container that failed under another policy is started again.
    once = (names.RestartPolicy.NEVER, names.RestartPolicy.EXIT_CODE)
    if code is None or (code and replica.restart_policy not in once):
        return
    ended = {end.container for end in pod.ends if end.exit_code is not None}
    left = [name for name in container_names(replica, "containers") if name not in ended]
    others = f"container {', '.join(left)} runs" if left else "another container runs"
    text = f"ended with exit code {code}, but its pod does not end: {others}."
    yield f"{_which(pod, main)} {text}"


def _was_rejected(_scope: Scope, member: Member) -> Iterator[str]:
    if member.pod.phase == "Pending" and member.pod.rejection:
        yield member.pod.rejection


def _which(pod: PodView, container: str) -> str:
    where = f" on node {pod.node}" if pod.node else ""
    what = f"Container {container} of pod" if container else "Pod"
    return f"{what} {pod.name}{where}"


def _last_exit(pod: PodView, end: ContainerEnd | None) -> str:
    if end is None:
        return ""
    why = "" if end.reason in ("", "Error") else f" ({end.reason})"
    count = f"{pod.restarts} container restart{'' if pod.restarts == 1 else 's'}"
    return f" The pod has {count}, and the last exit code is {end.exit_code}{why}."
