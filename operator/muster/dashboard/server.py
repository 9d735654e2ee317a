# SPDX-License-Identifier: Apache-2.0
"""The page: the resources of each gang, and the reasons why gangs wait. It is read-only.

Views are made in a thread, at most once a second, while somebody looks. The event loop, in which
the allocator works, hands over what its last cycle saw and sends what came of it.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import itertools
import logging
import math
import operator
import re
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from importlib import resources as packaged
from typing import Final

from aiohttp import web
from pydantic_core import from_json, to_json

from muster import frameworks
from muster.allocator import view
from muster.allocator.past import Past, seen_by
from muster.allocator.view import Seen, View
from muster.api import kueue
from muster.api.edge import mapping
from muster.api.model import Job, Json, PodView
from muster.frameworks.base import container_name
from muster.kube import resources, serving
from muster.kube.client import BROKEN, NOT_WRITTEN, ApiError, Kube
from muster.kube.resources import Resource
from muster.kube.tokens import ASKED_AT_ONCE, Bearers, Viewer
from muster.scheduler.model import namespace_of
from muster.store.store import Store

log = logging.getLogger(__name__)
PATH: Final = "/dashboard"
"""Users whose roles allow `get` of this path may open the dashboard."""
PAUSE: Final = 1.0
"""Seconds between two views at the least."""
SHARE: Final = 10
"""Pause after a view, as a multiple of its duration."""
IDLE: Final = 60.0
"""Seconds without a request after which views are forgotten."""
KEPT: Final = 32
"""Stored differences, for streams that open again."""
KEPT_BYTES: Final = 4 * 2**20
MOST_OF_VIEWER: Final = 4
"""Streams of one user from one address; the next one ends the oldest."""
MOST_GROUPS: Final = 16
"""Groups of viewers with different rights."""
SILENCE: Final = 15.0
"""Seconds after which an idle stream gets a comment."""
PATIENCE: Final = 30.0
"""Seconds for one write to a page, or one read for it."""
LINES: Final = 300
LOG_BYTES: Final = 2**20
"""Limits of a log: its last lines, and their bytes."""
MOST_EVENTS: Final = 200
"""Events of an object that are read."""
READ_AT_ONCE: Final = 4
"""Concurrent reads of logs and events, for all viewers."""
UNMADE: Final = "what was seen cannot be shown; the operator's log says why\n"
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
OURS: Final = frozenset({"same-origin", "none"})
"""Accepted values of Sec-Fetch-Site: the dashboard itself, or a typed address."""
ASSETS: Final = {
    "": ("index.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Source:
    """The data of a dashboard. All is called in the event loop."""

    seen: Callable[[], Seen | None]
    """What the last cycle saw; None: this process is no leader."""
    store: Store
    why: Callable[[str], Sequence[Json]] | None = None
    """The decisions on a gang, by its key."""
    read: Callable[[str, str, Mapping[str, str]], Awaitable[str]] | None = None
    """(authorization, path, parameters) -> text, read by the rights of the viewer."""
    past: Past = field(default_factory=Past)
    """Who held which device, cycle by cycle."""
    live: bool = True
    """False for a snapshot file."""
    words: str = ""
    """A note above all views."""


@dataclass(slots=True)
class _Group:
    """The viewers of the same namespaces."""

    visible: frozenset[str] | None
    source: View = field(default_factory=dict)
    """The complete view from which `shown` was made."""
    shown: View = field(default_factory=lambda: view.NOTHING)
    number: int = 0
    patches: deque[bytes] = field(default_factory=deque)
    """The differences that led to `number`, one each."""
    looked: float = 0.0
    whole: bytes = b""

    def take(self, whole: View, name: Callable[[str], str]) -> None:
        """Update the view of the group from a complete one."""
        shown = whole
        if self.visible is not None:
            shown = view.seen_by(whole, self.visible, name)
        if changed := view.difference(self.shown, shown):
            first = not self.source
            self.number, self.whole = self.number + 1, b""
            self.patches.append(b"" if first else to_json(changed))
            while len(self.patches) > KEPT or sum(map(len, self.patches)) > KEPT_BYTES:
                self.patches.popleft()
        self.source, self.shown = whole, shown

    def since(self, number: int) -> Sequence[bytes] | None:
        """Return the differences since a view; None if they are no longer stored."""
        count = self.number - number
        if not 0 <= count <= len(self.patches):
            return None
        found = list(itertools.islice(self.patches, len(self.patches) - count, None))
        return found if all(found) else None

    def text(self, about: Json) -> bytes:
        """Return the compressed response: the view and what is known `about` it."""
        if not self.whole:
            own = None if self.visible is None else sorted(self.visible)
            said = {**about, "namespaces": own, "view": self.shown}
            self.whole = gzip.compress(to_json(said), 1)
        return self.whole


@dataclass(eq=False, slots=True)
class _Stream:
    """A page that receives differences."""

    username: str
    """Empty without authentication."""
    address: str
    replaced: bool = False


class Dashboard:
    """Answers for the page."""

    def __init__(self, source: Source, kube: Kube | None = None) -> None:
        """Begin. `kube` authenticates viewers; without it each viewer is shown everything."""
        self._source = source
        self._bearers = None if kube is None else _viewers(kube)
        self._whole: View = view.NOTHING
        self._of: tuple[object, ...] = ()
        """What the view was made of."""
        self._listed: dict[str, tuple[int, Job | None]] = {}
        """By key a job that is shown, and the number of its last change."""
        self._due = self._looked = 0.0
        self._making, self._telling = asyncio.Lock(), asyncio.Lock()
        self._groups: dict[frozenset[str] | None, _Group] = {}
        self._streams: list[_Stream] = []
        """The oldest first."""
        self._reading = asyncio.Semaphore(READ_AT_ONCE)
        self._secret = secrets.token_bytes(16)
        self._began = secrets.token_hex(4)

    def routes(self) -> list[web.RouteDef]:
        """Return what is served."""
        return [
            *(web.get(f"/{path}", _asset(*asset)) for path, asset in ASSETS.items()),
            web.get("/api/view", self._view),
            web.get("/api/events", self._events),
            web.get("/api/gang", self._detail),
            web.get("/api/why", self._why),
            web.get("/api/past", self._ended),
            web.get("/api/log", self._log),
            web.get("/api/happened", self._happened),
            web.get("/api/workload", self._workload),
        ]

    async def _view(self, request: web.Request) -> web.Response:
        group = await self._group(request)
        # Concurrent requests share one response, and no view changes meanwhile.
        async with self._making:
            about = {
                "version": f"{self._began}-{group.number}",
                "words": self._source.words,
                "live": self._source.live,
                "keepsDecisions": self._source.why is not None,
                "reads": self._source.read is not None,
            }
            body = await asyncio.to_thread(group.text, about)
        return _packed(body)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send differences for as long as the page is open."""
        group = await self._group(request)
        viewer = await self._viewer(request)
        stream = self._opened(viewer.username if viewer else "", request.remote or "")
        at = self._known(request)
        response = web.StreamResponse(headers={**HEADERS, "X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        try:
            await response.prepare(request)
            await self._follow(request, response, group, at, stream)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            if not stream.replaced:
                self._streams.remove(stream)
        return response

    async def _viewer(self, request: web.Request) -> Viewer | None:
        """Return the viewer, None without authentication. Raises HTTPException."""
        if self._bearers is None:
            return None
        found = await self._bearers.find(request.headers.get("Authorization", ""))
        if isinstance(found, HTTPStatus):
            raise _refusal(found)
        return found

    def _opened(self, username: str, address: str) -> _Stream:
        """Return a new stream, which replaces the oldest if the viewer has too many."""
        stream = _Stream(username, address)
        # A user with a token that several persons share has streams of each address.
        own = [s for s in self._streams if (s.username, s.address) == (username, address)]
        if len(own) >= MOST_OF_VIEWER:
            self._streams.remove(own[0])
            own[0].replaced = True
        self._streams.append(stream)
        return stream

    def _known(self, request: web.Request) -> int:
        """Return the number of the view that the page has; -1: none of this process."""
        known = re.fullmatch(rf"{self._began}-([0-9]{{1,15}})", request.query.get("from", ""))
        return int(known[1]) if known else -1

    async def _follow(
        self,
        request: web.Request,
        response: web.StreamResponse,
        group: _Group,
        at: int,
        stream: _Stream,
    ) -> None:
        said = time.monotonic()
        while request.transport is not None and not request.transport.is_closing():
            if stream.replaced:
                await _send(response, b"event: replaced\ndata: {}\n\n")
                return
            found = group.since(at)
            try:  # the user may still see the same, and the page is not gone
                same = found is not None and await self._group(request) is group
            except web.HTTPException:
                same = False
            if found is None or not same:
                await _send(response, b"event: again\ndata: {}\n\n")
                return
            for patch in found:
                at += 1
                await _send(
                    response, b"id: %s-%d\ndata: %s\n\n" % (self._began.encode(), at, patch)
                )
            if not found and time.monotonic() - said < SILENCE:
                await asyncio.sleep(PAUSE)
                continue
            if not found:
                await _send(response, b": nothing new\n\n")
            said = time.monotonic()

    async def _detail(self, request: web.Request) -> web.Response:
        key = request.query.get("key", "")
        group = await self._allowed(request, key)
        seen, store = self._source.seen(), self._source.store
        gang = next((g for g in seen.snapshot.gangs if g.key == key), None) if seen else None
        job = store.jobs.get(key)
        if job is not None:
            pods = list(store.children.own_pods(job).values())
        else:
            pods = [pod for pod, _ in store.foreign.members(key)] if key in store.foreign else []
        nodes, discreet = seen.snapshot.nodes if seen else None, self._discretion(group)
        return await self._told(lambda: view.detail(job, pods, gang, nodes, discreet))

    async def _ended(self, request: web.Request) -> web.Response:
        """Tell who held what before, from behind what he knows already on."""
        group, known, past = await self._group(request), self._known(request), self._source.past

        def told() -> Json:
            rows = past.after(known)
            number = rows[-1][0] if rows else max(known, 0)
            shown = rows if group.visible is None else list(seen_by(rows, group.visible))
            since = None if past.since == math.inf else past.since
            return {"version": f"{self._began}-{number}", "since": since, "rows": shown}

        return await self._told(told)

    async def _why(self, request: web.Request) -> web.Response:
        key = request.query.get("key", "")
        group = await self._allowed(request, key)
        if (why := self._source.why) is None:
            raise web.HTTPNotFound(text="nobody has kept what was decided\n")
        discreet = self._discretion(group)
        return await self._told(lambda: view.decided(why(key), discreet))

    def _discretion(self, group: _Group) -> Callable[[str], str]:
        return str if group.visible is None else view.discretion(group.visible)

    async def _told(self, make: Callable[[], object]) -> web.Response:
        """Return what is made in a thread, one at a time: a gang may have thousands of pods."""
        async with self._telling:
            return _packed(await asyncio.to_thread(lambda: gzip.compress(to_json(make()), 1)))

    async def _log(self, request: web.Request) -> web.Response:
        """Tell the end of the log of a job's pod."""
        job, pod = await self._asked(request)
        if job is None or pod is None:
            raise web.HTTPNotFound(text="no such log is known here\n")
        asked = {"tailLines": str(LINES), "limitBytes": str(LOG_BYTES)}
        for replica in job.replicas:
            if replica.role == pod.role:
                asked["container"] = container_name(frameworks.of(job), replica)
        path = resources.PODS.path(pod.namespace, pod.name, "log")
        return web.Response(text=await self._read(request, path, asked), headers=HEADERS)

    async def _happened(self, request: web.Request) -> web.Response:
        """Tell the events of a job, or of a pod of it."""
        job, pod = await self._asked(request)
        one = pod if "pod" in request.query else job
        if one is None:
            raise web.HTTPNotFound(text="no such events are known here\n")
        asked = {"fieldSelector": f"involvedObject.uid={one.uid}", "limit": str(MOST_EVENTS)}
        text = await self._read(request, resources.EVENTS.path(one.namespace), asked)
        try:
            return await self._told(lambda: view.happened(mapping(from_json(text))))
        except ValueError as error:
            raise web.HTTPBadGateway(text="what came is no list of events\n") from error

    async def _workload(self, request: web.Request) -> web.Response:
        """Return the Workload of a job that MultiKueue dispatches."""
        job, _ = await self._asked(request)
        if job is None or not kueue.is_dispatched(job):
            raise web.HTTPNotFound(text="MultiKueue dispatches no such job\n")
        try:
            group = from_json(await self._read(request, f"/apis/{kueue.GROUP}", {}))
            resource = Resource(kueue.GROUP, kueue.version(group), kueue.WORKLOADS)
            asked = {"labelSelector": kueue.selector(job)}
            text = await self._read(request, resource.path(job.namespace), asked)
            return await self._told(lambda: view.workload(from_json(text)))
        except ValueError as error:
            raise web.HTTPBadGateway(text="the answer is no list of Workloads\n") from error

    async def _asked(self, request: web.Request) -> tuple[Job | None, PodView | None]:
        """Return the job that is asked about, and the pod of it."""
        key, name = request.query.get("key", ""), request.query.get("pod", "")
        await self._allowed(request, key)
        store = self._source.store
        job = store.jobs.get(key)
        pods = {} if job is None else {p.name: p for p in store.children.own_pods(job).values()}
        return job, pods.get(name)

    async def _read(self, request: web.Request, path: str, asked: Mapping[str, str]) -> str:
        """Return what is read for who asks, a few at a time: connections are for other work."""
        if self._source.read is None:
            raise web.HTTPNotFound(text="nothing is read here\n")
        who = request.headers.get("Authorization", "")
        try:
            async with self._reading, asyncio.timeout(PATIENCE):
                return await self._source.read(who, path, asked)
        except ApiError as error:
            raise web.HTTPBadGateway(text=f"{error.message}\n") from error
        except BROKEN as error:
            raise web.HTTPBadGateway(text="the API server gives no answer\n") from error

    async def _allowed(self, request: web.Request, key: str) -> _Group:
        """Return who asks. Raises HTTPNotFound, also where it is there, unless he may see it."""
        group = await self._group(request)
        hidden = group.visible is not None and namespace_of(key) not in group.visible
        known = key in group.shown["gangs"] or key in group.shown["jobs"]
        if key.count("/") != 2 or hidden or not known:
            raise web.HTTPNotFound(text="no such gang is known here\n")
        return group

    async def _group(self, request: web.Request) -> _Group:
        """Return the group of the viewer, with a fresh view. Raises HTTPException."""
        if self._bearers is None and re.sub(r":\d+$", "", request.host) not in LOOPBACK:
            # Otherwise a web page could read the dashboard by DNS rebinding.
            raise web.HTTPForbidden(text="call this page localhost\n")
        if request.headers.get("Sec-Fetch-Site", "none") not in OURS:
            # Otherwise another site could find out which jobs exist.
            raise web.HTTPForbidden(text="another page may not ask this one\n")
        viewer = await self._viewer(request)
        await self._refresh()
        visible = None if viewer is None else await self._visible(viewer)
        group = self._groups.get(visible) or self._begun(visible)
        group.looked = time.monotonic()
        # One at a time: two would take in the same difference twice.
        async with self._making:
            if group.source is not self._whole:
                started = time.monotonic()
                await asyncio.to_thread(group.take, self._whole, self._alias)
                # What is made for many of different rights takes no more than for one.
                took = time.monotonic() - started
                self._due = max(self._due, started) + SHARE * took
        return group

    def _begun(self, visible: frozenset[str] | None) -> _Group:
        """Return a new group, in the place of an unused one at the limit."""
        if len(self._groups) >= MOST_GROUPS:
            oldest = min(self._groups.values(), key=lambda group: group.looked)
            if time.monotonic() - oldest.looked < SILENCE:
                raise web.HTTPServiceUnavailable(text="too many of different rights look\n")
            del self._groups[oldest.visible]
        group = self._groups[visible] = _Group(visible)
        return group

    async def _visible(self, viewer: Viewer) -> frozenset[str] | None:
        spaces = {namespace_of(key) for part in ("gangs", "jobs") for key in self._whole[part]}
        try:
            return await viewer.visible(spaces)
        except NOT_WRITTEN as error:
            log.warning("nobody knows who may look into which namespace: %s", error)
            raise _refusal(HTTPStatus.SERVICE_UNAVAILABLE) from error

    async def _refresh(self) -> None:
        """Make a view, if it is time and there is something new. Raises HTTPException."""
        self._looked = time.monotonic()
        async with self._making:
            seen = self._source.seen()
            if seen is None:
                text = "this process is not at work: it starts, or another one leads\n"
                raise web.HTTPServiceUnavailable(text=text)
            if time.monotonic() < self._due:
                if self._whole is view.NOTHING:
                    raise web.HTTPServiceUnavailable(text=UNMADE)
                return
            jobs = await self._jobs()
            of = (seen, *jobs)
            if len(of) == len(self._of) and all(map(operator.is_, of, self._of)):
                return
            if not self._of:
                asyncio.get_running_loop().call_later(IDLE, self._forget)
                self._of = (seen,)
            started = time.monotonic()
            try:
                self._whole = await asyncio.to_thread(view.make, seen, jobs, self._whole)
            except Exception as error:
                log.exception("nobody sees anything on the page")
                raise web.HTTPServiceUnavailable(text=UNMADE) from error
            finally:
                took = time.monotonic() - started
                self._due = started + max(PAUSE, SHARE * took)
            self._of = of

    async def _jobs(self) -> list[Job]:
        """Return all jobs. Suspended jobs are parsed once per version and have no templates."""
        jobs, before, self._listed = self._source.store.jobs, self._listed, {}
        for key in jobs.all_keys():
            news, job = before.get(key, (0, None))
            if news != jobs.news(key):
                news, job = jobs.news(key), jobs.get(key)
                if job is not None and job.run_policy.suspend:
                    job = replace(job, replicas=(), annotations={})
                    await asyncio.sleep(0)
            self._listed[key] = news, job
        return [job for _, job in self._listed.values() if job is not None]

    async def remember(self, _app: web.Application) -> AsyncIterator[None]:
        """Record who held what, also without viewers, as long as the page is served."""
        noting = asyncio.create_task(self._note())
        yield
        noting.cancel()
        await asyncio.gather(noting, return_exceptions=True)

    async def _note(self) -> None:
        past, failed = self._source.past, False
        while True:
            await asyncio.sleep(PAUSE)
            try:
                await asyncio.to_thread(past.catch_up)
            except Exception:
                # Anew, so that it knows what it says that it knows. That is told once.
                past.forget()
                if not failed:
                    log.exception("nobody knows who held what before")
                failed = True

    def _forget(self) -> None:
        """Forget all views after IDLE seconds without a request."""
        left = self._looked + IDLE - time.monotonic()
        if left > 0:
            asyncio.get_running_loop().call_later(left, self._forget)
            return
        self._whole, self._of, self._due, self._listed = view.NOTHING, (), 0.0, {}
        self._groups.clear()

    def _alias(self, key: str) -> str:
        """Return the name of a gang for viewers who may not see it."""
        return f"~{hashlib.blake2b(key.encode(), key=self._secret, digest_size=6).hexdigest()}"


def _viewers(kube: Kube) -> Bearers[Viewer]:
    """Return the users that may get the page, as viewers of their namespaces."""
    few = asyncio.Semaphore(ASKED_AT_ONCE)
    return Bearers(kube, PATH, lambda user: Viewer(kube, user, few))


def _packed(body: bytes) -> web.Response:
    headers = {**HEADERS, "Content-Encoding": "gzip"}
    return web.Response(body=body, content_type="application/json", headers=headers)


def _refusal(status: HTTPStatus) -> web.HTTPException:
    kind = {
        HTTPStatus.UNAUTHORIZED: web.HTTPUnauthorized,
        HTTPStatus.FORBIDDEN: web.HTTPForbidden,
    }.get(status, web.HTTPServiceUnavailable)
    return kind(text=f"{status.phrase}\n")


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(PATIENCE):
        await response.write(data)


def _asset(name: str, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    body = packaged.files("muster.dashboard").joinpath("page", name).read_bytes()

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)

    return answer


async def serve(address: str, dashboard: Dashboard) -> serving.Server:
    """Serve the page, over TLS beyond this machine. Raises OSError for an address in use."""
    local = address.rpartition(":")[0] in LOOPBACK
    tls = None if local else await asyncio.to_thread(serving.own_context, "muster-dashboard")
    return await serving.start(address, dashboard.routes(), tls, beside=dashboard.remember)
