# SPDX-License-Identifier: Apache-2.0
"""Leader election by a Lease: one process writes, standbys wait.

As in client-go, a holder renews every `retry` seconds and stops when it could not for `renew`
seconds; others take over after `duration` seconds without a renewal by their own clock. renew <
duration: a lost lease stops all writes before another process starts. A clean stop releases it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime

from muster.api import names
from muster.api.backoff import Backoff
from muster.api.edge import mapping
from muster.api.model import Json
from muster.kube import client, clock
from muster.kube.client import BROKEN, ApiError, Exactly, GarbledError, Kube
from muster.kube.flowcontrol import PriorityLevel
from muster.kube.loops import run_on
from muster.kube.resources import PODS, Resource

log = logging.getLogger(__name__)
LEASES = Resource("coordination.k8s.io", "v1", "leases")
AGAIN = Backoff(0.05, 1.0)
"""Seconds between two tries to give the lease back."""
LOOK = 0.5
"""Seconds between attempts of standbys, which take a released lease, or failing leaders."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds, as client-go names them."""

    duration: float = 15.0
    renew: float = 10.0
    retry: float = 2.0


class LeaderElector:
    """Competes for one Lease: `lead` works with it until it is lost, `release` gives it back."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        timings: Timings,
        *,
        fenced: Kube | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        responsive: Callable[[], bool] = lambda: True,
    ) -> None:
        """Compete for the Lease by requests of `kube`.

        `fenced`: the connection that writes only while this process is the leader, `kube` if None.
        `loop`: the event loop of `kube`, which renews the lease while another loop works; None:
        the loop that works. The lease is renewed only while the work is `responsive`.
        """
        self._kube, self._fenced = kube, fenced or kube
        self._loop, self._responsive = loop, responsive
        self._parent, self._path = LEASES.path(namespace), LEASES.path(namespace, name)
        self._namespace, self._name = namespace, name
        self._identity = identity
        self._timings = timings
        self._seen: tuple[str, float] = ("", 0.0)
        """resourceVersion of the lease, and when it was first seen here."""
        self._runs_out = 0.0
        self._wrote = False
        self._uid = ""
        self._held: Json | None = None
        """The lease as it was stored last; None: it has to be read."""

    @property
    def reference(self) -> Json:
        """The Lease as the object of an event."""
        return {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name, "uid": self._uid},
        }

    async def lead(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do the work while this process leads, then cancel it; raises what the work raises."""
        await run_on(self._loop, self.acquire())
        async with asyncio.TaskGroup() as tasks:
            # Beside it from the first moment on: to begin may take longer than a lease lasts.
            working = tasks.create_task(work())
            await run_on(self._loop, self.hold())
            working.cancel()

    async def acquire(self) -> None:
        """Return as soon as this process is the leader and may write."""
        log.info("waiting to lead: lease %s/%s", self._namespace, self._name)
        while not await self._attempt():  # noqa: ASYNC110 -- the lease has no event to wait for
            await asyncio.sleep(self._pause())
        log.info("leading as %s", self._identity)

    async def hold(self) -> None:
        """Renew until the lease is lost; returns then, and nothing may be written any more."""
        pause = self._timings.retry
        while (left := self._fenced.lease_until - clock.since_boot()) > 0:
            await asyncio.sleep(min(pause, left))
            left = self._fenced.lease_until - clock.since_boot()
            # A process or machine that was stopped for long must not renew.
            if left <= 0:
                break
            # Soon after a failure: a server that serves again in time is not to be missed.
            pause = min(LOOK, self._timings.retry)
            # A process whose work hangs must not lead forever.
            if not self._responsive():
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    if await self._attempt():
                        # From its start: a slow answer must not delay the next one.
                        left = self._fenced.lease_until - clock.since_boot()
                        pause = max(left - self._timings.renew + self._timings.retry, 0.0)
        log.error("lost the lease %s/%s", self._namespace, self._name)

    async def release(self) -> None:
        """Write nothing any more, and give the lease back so that a standby need not wait."""
        await run_on(self._loop, self._release())

    async def _release(self) -> None:
        # The fence first: a write that is still queued must not leave after the standby has begun.
        self._fenced.lease_until = 0.0
        if not self._wrote:
            return
        try:
            async with self._patience():
                await self._give_back()
        except (ApiError, *BROKEN) as error:
            log.warning("the lease was not released: %s", str(error) or type(error).__name__)

    async def _give_back(self) -> None:
        """Retry until the lease is released: a standby would have to wait until it expires."""
        for pause in AGAIN:
            try:
                await self._return()
            except (ApiError, *BROKEN) as error:
                # A conflict: the last renewal was still under way.
                if isinstance(error, ApiError) and error.code != 409 and not error.passing("PUT"):
                    raise
                log.info("the lease is given back once more: %s", error)
            else:
                return
            await asyncio.sleep(pause)

    async def _return(self) -> None:
        """Give the lease back if it is held here."""
        lease = await client.find(self._kube, self._path) or {}
        spec = mapping(lease.get("spec"))
        if self._identity == spec.get("holderIdentity"):
            # As client-go does: a standby that goes by the duration alone waits for a second.
            freed = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
            freed["renewTime"] = self._document(0)["spec"]["renewTime"]
            lease = {**lease, "spec": freed}
            await self._kube.replace(self._path, lease, PriorityLevel.LEADERSHIP)

    def _patience(self) -> asyncio.Timeout:
        """Return the bound of an attempt: one that gets no answer leaves time for another."""
        return asyncio.timeout(self._timings.renew / 2)

    def _pause(self) -> float:
        """Return the seconds to the next look, fewer if the lease runs out before."""
        left, usual = self._runs_out - clock.since_boot() + 0.01, min(LOOK, self._timings.retry)
        return left if 0 < left < usual else usual

    async def _attempt(self) -> bool:
        started = clock.since_boot()
        try:
            async with self._patience():
                if not await self._try():
                    # The clocks of a paused machine may have stood still: another process leads.
                    if self._fenced.lease_until < math.inf:
                        self._fenced.lease_until = 0.0
                    return False
        except (ApiError, *BROKEN) as error:
            if not isinstance(error, ApiError) or error.code not in (404, 409):
                why = str(error) or type(error).__name__
                log.warning("lease %s/%s: %s", self._namespace, self._name, why)
        else:
            # Time before the request: the fence must fall before another clock expires the lease.
            self._fenced.lease_until = started + self._timings.renew
            return True
        return False

    async def _try(self) -> bool:
        # No read before renewals: a slow etcd leaves no time for both.
        held, self._held = self._held, None
        if held is not None:
            with contextlib.suppress(ApiError):
                return await self._take(held)
        lease = await client.find(self._kube, self._path)
        if lease is None:
            self._wrote = True
            fresh = self._document(0)
            self._keep(await self._kube.create(self._parent, fresh, PriorityLevel.LEADERSHIP))
            return True
        if not mapping(lease.get("metadata")).get("resourceVersion"):
            raise GarbledError(f"no lease: {str(lease)[:100]}")
        holder = mapping(lease.get("spec")).get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._expired(lease):
            return False
        return await self._take(lease)

    async def _take(self, lease: Json) -> bool:
        """Write that this process holds the lease, if that is still as it was read."""
        spec = mapping(lease.get("spec"))
        holder = spec.get("holderIdentity") or ""
        changes = int(spec.get("leaseTransitions") or 0) + (holder != self._identity)
        fresh = self._document(changes)["spec"]
        if holder == self._identity:
            fresh["acquireTime"] = spec.get("acquireTime", fresh["acquireTime"])
        # With the read version: one of two wins, and a process that slept in between loses.
        self._wrote = True
        lease = {**lease, "spec": fresh}
        self._keep(await self._kube.replace(self._path, lease, PriorityLevel.LEADERSHIP))
        return True

    def _keep(self, stored: Json) -> None:
        """Record the lease as the server stored it for this process."""
        about = mapping(stored.get("metadata"))
        if about.get("resourceVersion"):
            self._held, self._uid = stored, about.get("uid", "")

    def _expired(self, lease: Json) -> bool:
        version = lease["metadata"]["resourceVersion"]
        # By our own clock since the last change that was seen: renewTime is of somebody else's.
        if version != self._seen[0]:
            self._seen = (version, clock.since_boot())
        spec = mapping(lease.get("spec"))
        duration = float(spec.get("leaseDurationSeconds") or self._timings.duration)
        self._runs_out = self._seen[1] + duration
        return clock.since_boot() >= self._runs_out

    def _document(self, changes: int) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(self._timings.duration),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": changes,
            },
        }


async def show(kube: Kube, namespace: str, lease: str) -> None:
    """Label only this process's pod with the Lease's name, by which a Service finds the leader.

    Without such a pod or permission this is logged; passing errors are retried.
    """
    pods, mine = PODS.path(namespace), socket.gethostname()

    async def write() -> None:
        # One that led may have come back in the same pod.
        led = await kube.get(pods, labelSelector=f"{names.LEADS}={lease}")
        for pod in led["items"]:
            if pod["metadata"]["name"] != mine:
                await _label(kube, pods, pod, None)
        await _label(kube, pods, await kube.get(f"{pods}/{mine}"), lease)

    await client.persist(write, f"the pod {namespace}/{mine} of the leader is not labelled")


async def _label(kube: Kube, pods: str, pod: Json, lease: str | None) -> None:
    about = pod["metadata"]
    body: Json = {"metadata": {"labels": {names.LEADS: lease}}}
    await kube.patch(f"{pods}/{about['name']}", Exactly(about["uid"]), body, PriorityLevel.SUPPORT)
