# SPDX-License-Identifier: Apache-2.0
"""Nodes that do not answer, and the pods that are lost with them.

A pod on such a node may run on, whatever its object says. So it counts as lost after a while, but
makes place for a successor only when its object is gone, or its node is fenced and cannot run it,
and Kubernetes will not take the successor for it. That a watch shows a node no more is not enough
for that: whoever asks the server confirms it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from muster.api import names, tolerations
from muster.api.model import Job, PodView
from muster.cluster.nodes import NodeView
from muster.kube.clock import now
from muster.store.outages import CLUSTER, SHARE, Outage, Outages, Zone, zone_of

LOST_AFTER: Final = 60.0
"""Seconds after which an unreachable node is reported, and its pods may be treated as lost."""
EVICTION_SECONDS: Final = 5.0
"""Seconds after a change of a node's taints in which Kubernetes starts to evict its pods.

It deletes them by name, without their uid: a replacement created before would be deleted.
"""
EVICTION_SECONDS_PER_POD: Final = 0.2
"""The controller sends four requests for each pod, 20 a second."""
EVICTION_TIMEOUT_SECONDS: Final = 60.0
"""Seconds after which a pod that has not been deleted is not expected to be."""


@dataclass(frozen=True, slots=True)
class _Absence:
    """A node that is unreachable, fenced or gone."""

    since: float
    """When it became unreachable; `-inf` if it is not, but fenced."""
    zone: Zone
    fenced: bool
    seen: float
    """When this process first observed that it is unreachable."""
    evicted_at: float = -math.inf
    """When Kubernetes has evicted the pods there; `-inf`: it evicts none."""


_GONE: Final = _Absence(-math.inf, ("", ""), fenced=True, seen=-math.inf)


class AwayNodes:
    """Nodes that do not answer or were removed under their pods; not nodes never observed."""

    def __init__(
        self,
        inhabited: Callable[[str], Collection[object]] = lambda _node: (),
        lost_after: float = LOST_AFTER,
        lost_share: float = SHARE,
        clock: Callable[[], float] = now,
    ) -> None:
        """Begin. `inhabited` returns the pods on a node."""
        self._inhabited = inhabited
        self._lost_after = lost_after
        self._clock = clock
        self.outages = Outages(lost_share)
        self._nodes: dict[str, _Absence] = {}
        self.vanished: Callable[[str], None] = lambda _node: None
        """Called with a node with pods that a watch shows no more."""
        self.outage_changed: Callable[[Outage], None] = lambda _outage: None
        """Called with each outage that has begun or ended."""

    @property
    def silent(self) -> int:
        """The number of unreachable nodes."""
        return sum(it.since > -math.inf for it in self._nodes.values())

    def node_changed(
        self, before: NodeView | None, after: NodeView | None, *, complete: bool = True
    ) -> Collection[str]:
        """Handle a change of a node; return the nodes whose pods are to be evaluated again."""
        view = after or before
        assert view is not None
        found = {view.name} if self._absence_changed(before, after) else set()
        areas = self.outages.node_changed(view.name, after, self._clock(), complete=complete)
        if areas:
            everywhere = CLUSTER in areas
            found |= {n for n, it in self._nodes.items() if everywhere or it.zone in areas}
        for outage in map(self.outages.report, areas):
            if outage is not None:
                self.outage_changed(outage)
        return found

    def _absence_changed(self, before: NodeView | None, after: NodeView | None) -> bool:
        """Handle a change of a node; return whether its own pods are to be evaluated again."""
        if after is None:
            self._drop()
            if before is not None and self._inhabited(before.name):
                # Its state stays until the server has been asked: a list may have lacked it.
                self.vanished(before.name)
            elif before is not None:
                self._nodes.pop(before.name, None)
            return True
        known = self._nodes.pop(after.name, None)
        since, fenced = after.unreachable_since, after.out_of_service
        if since is not None or fenced:
            since = -math.inf if since is None else since
            seen = known.seen if known and known.since == since else self._clock()
            absence = _Absence(since, zone_of(after.labels), fenced=fenced, seen=seen)
            if after.evicts and known and before and before.evictions == after.evictions:
                absence = replace(absence, evicted_at=known.evicted_at)
            elif after.evicts:
                # Each change of these taints makes the controller evict all pods again.
                pods = len(self._inhabited(after.name))
                lasts = EVICTION_SECONDS + EVICTION_SECONDS_PER_POD * pods
                absence = replace(absence, evicted_at=self._clock() + lasts)
            self._nodes[after.name] = absence
        return self._nodes.get(after.name) != known

    def confirm(self, name: str) -> None:
        """Take in that the server has no node of that name."""
        self._nodes[name] = _GONE
        self._drop()

    def gone(self, name: str) -> bool:
        """Say whether it is sure that there is no such node, though there was one."""
        return self._nodes.get(name) is _GONE

    def _drop(self) -> None:
        there, known = self._inhabited, self._nodes
        self._nodes = {n: it for n, it in known.items() if it is not _GONE or there(n)}

    def __iter__(self) -> Iterator[str]:
        """Yield the names of those whose pods are unreachable or lost, now or later."""
        return iter(self._nodes)

    def loses(self, node: str) -> bool:
        """Return whether pods on a node may be lost."""
        found = self._nodes.get(node)
        return found is not None and (found.fenced or not self.outages.is_out(found.zone))

    def look(
        self, job: Job | None, pods: Mapping[str, PodView], now: float
    ) -> tuple[Mapping[str, PodView], float]:
        """Return the pods that are unreachable or lost, marked as such, and when that changes."""
        found: dict[str, PodView] = {}
        due = math.inf
        for key, pod in pods.items():
            absence = None if pod.terminal else self._nodes.get(pod.node)
            if absence is None:
                continue
            lost_at = self._lost_at(job, pod, absence)
            reported_at = absence.since + self._lost_after
            if now >= lost_at:
                # A batch Job creates no other pod before this one has ended, even if deleted.
                forced = job is not None and job.replaces_unreachable and not pod.maker
                free = _replaceable_at(job, pod, absence)
                due = min(due, free if free > now else math.inf)
                fenced = forced or (absence.fenced and now >= free)
                found[key] = replace(pod, unreachable=True, lost=True, fenced=fenced)
            elif now >= reported_at:
                found[key] = replace(pod, unreachable=True)
                due = min(due, lost_at)
            else:
                due = min(due, reported_at, lost_at)
        return found, due

    def _lost_at(self, job: Job | None, pod: PodView, absence: _Absence) -> float:
        """Return when the pod is treated as lost; `inf` without a time limit."""
        if absence.fenced:
            return -math.inf
        if self.outages.is_out(absence.zone):
            return math.inf
        ended = self.outages.ended_at(absence.zone)
        # An earlier leader may have seen an outage end: kubelets about to return would end pods.
        forced = job is not None and job.replaces_unreachable
        least = absence.seen + self._lost_after if forced else -math.inf
        if pod.deleting:
            # The pod waits for a kubelet that is unreachable. The kubelets of an outage that has
            # ended are about to return.
            return max(least, ended + self._lost_after if ended > absence.since else -math.inf)
        if job is None:
            return math.inf
        return max(least, max(absence.since, ended) + max(self._lost_after, _tolerated(job, pod)))


def _replaceable_at(job: Job | None, pod: PodView, absence: _Absence) -> float:
    """Return when the taint eviction controller no longer deletes a replacement of the pod."""
    if job is None or pod.tolerates.out_of_service:
        return -math.inf
    return absence.evicted_at + (0.0 if pod.deleting else EVICTION_TIMEOUT_SECONDS)


def _tolerated(job: Job, pod: PodView) -> float:
    """Return the seconds for which the pod tolerates that its node is unreachable."""
    if not job.replaces_unreachable:
        return pod.tolerates.unreachable
    # The API server adds a default of 300 seconds, which is longer than the job's author wants.
    template = next((each.template for each in job.replicas if each.role == pod.role), {})
    given = (template.get("spec") or {}).get("tolerations") or ()
    return tolerations.seconds(given, names.UNREACHABLE_TAINT) or 0.0
