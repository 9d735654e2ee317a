# SPDX-License-Identifier: Apache-2.0
"""The one door to the API server: requests, retries, order of urgency."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import re
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Final

import aiohttp
from pydantic_core import from_json, to_json

from muster.api.backoff import HOOK, Backoff
from muster.api.edge import cut, mapping, sequence, text
from muster.api.model import Json
from muster.kube import clock
from muster.kube.flowcontrol import LATE_MOST, FlowControl, PriorityLevel
from muster.kube.resources import NAMESPACES, namespace_of

log = logging.getLogger(__name__)
RETRIED = frozenset({429, 500, 502, 503, 504})
# 429 is sent before the server has done anything; with the others that is unknown.
FAILED = RETRIED - {429}
OUT = frozenset({502, 503, 504})
"""The server, or what stands before it, says that it cannot serve at present."""
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""Merges lists of built-in kinds by their keys, e.g. one condition among others."""
ATTEMPTS = 8
ONCE: Final = frozenset({PriorityLevel.LEADERSHIP, PriorityLevel.VIEW})
"""Writes without retries: the elector has its own pace and deadline; viewers ask again."""
LARGE, LARGE_SHARE = 64 * 1024, 16
"""Bytes from which on a document is large, and of how many places such ones may have one."""
CONNECTIONS = 64
"""Maximum number of connections for reads without watches. Writes have their own connections."""
BACKOFF = Backoff(0.1, 10.0)
PERSISTENT = Backoff(1.0, 60.0)
LONGEST_WAIT = 60.0
"""Seconds that the server may ask to wait; whoever asks for more is asked again."""
WATCH_SECONDS = 75
"""After which the server is asked to end each watch."""
SILENCE = 85.0
"""Seconds of silence after which a watch is a broken one: the server should have ended it."""
LONGEST_LINE = 2**16
MOST_READ = 8 * 2**20
"""Bytes of an answer that is passed on to who looks at the page."""
MAX_PAGE_BYTES = 32 * 2**20
"""Length of a page of a list: parsed, it may take ten times as much memory."""
MAX_DEPTH: Final = 100
"""Levels of objects and lists, of which the parser takes 200: a list adds some to an object."""
TOO_DEEP: Final = "recursion limit"
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]')
"""Strings, in which brackets have no meaning, and brackets."""
OPENING = 64
"""Watches that are being opened at once."""
OPENED: Final[Json] = {"type": "OPENED", "object": {}}
"""Not of the server: its answer has begun, so that it shows what happens from here on."""
UNCHECKED: Final[Mapping[str, str]] = MappingProxyType({"fieldValidation": "Ignore"})
"""The server need not look for fields that it does not know: that costs it as much as reading."""
DRY: Final[Mapping[str, str]] = MappingProxyType({**UNCHECKED, "dryRun": "All"})
BROKEN: Final = (aiohttp.ClientError, TimeoutError)
"""The connection broke, timed out, or was not HTTP. The request may have been served."""
WARMING = 10.0
"""Seconds after an outage in which a lack of permissions need not be true."""
NO_ROLE = ' is forbidden: User "'
"""So says a server when no role allows a request, and not when an admission plugin refuses it."""
BUDGET = "disruption budget"
"""So says a server that does not evict a pod; that may hold for hours."""
BUDGETS = "more than one PodDisruptionBudget"
"""The same, where several of them guard it."""
LEASE_PREFIX = "/apis/coordination.k8s.io/"
UNANSWERED: Final = "0"
"""Stands for the status of an answer that did not come."""


class ApiError(Exception):
    """The API server answered with an error.

    `code` is the HTTP status, `reason` that of the server's Status object (`NotFound`,
    `AlreadyExists`, `Forbidden` …), `retry_after` the seconds it asked to wait, if it did.
    `unsure`: the request was sent before, and may have been carried out then.
    """

    def __init__(self, code: int, reason: str, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.unsure = False

    @property
    def unpermitted(self) -> bool:
        """Whether no role allows what was asked."""
        return self.code == 403 and NO_ROLE in self.message

    @property
    def absent(self) -> bool:
        """Whether the object does not exist, by the API server and not by a proxy before it."""
        return self.code == 404 and self.reason == "NotFound"

    @property
    def by_budget(self) -> bool:
        """Whether a disruption budget does not let a pod be evicted."""
        return (self.code == 429 and BUDGET in self.message) or BUDGETS in self.message

    def passing(self, method: str) -> bool:
        """Say whether the same request may succeed a moment later.

        A conflict passes only for a creation (two at once met at a ResourceQuota); elsewhere
        it means that the object is not the one the request was made for.
        """
        # Both come with codes that are retried, and each try costs the server the same again.
        if self.by_budget or HOOK in self.message:
            return False
        return self.code in RETRIED or (method == "POST" and self.reason == "Conflict")


class FencedError(Exception):
    """This process may not write: it is not, or no longer, the leader."""


class UnwantedError(Exception):
    """What may have been carried out is not tried again: it is not wanted any more."""


NOT_WRITTEN: Final = (ApiError, FencedError, UnwantedError, *BROKEN)
"""A write did not go through, for whatever reason outside of this process."""


class GarbledError(aiohttp.ClientPayloadError):
    """What came is no answer of an API server: a proxy's page, say, or half a document."""


class LargePageError(Exception):
    """A page of a list is longer than MAX_PAGE_BYTES."""


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    document: Json | None
    urgency: PriorityLevel | None = None
    """None: a read."""
    content_type: str = "application/json"
    params: Mapping[str, str] | None = None
    wanted: Callable[[], Awaitable[bool]] | None = None
    """Says whether it is to be tried again once it may have been carried out; None: it is."""
    still: Callable[[], bool] | None = None
    """Returns whether to send the request after it waited for its turn; None: always."""


@dataclass(frozen=True, slots=True)
class Exactly:
    """For which object a write is meant: another one of its name is to be left alone."""

    uid: str = ""
    version: str = ""
    """The resourceVersion that it has to have; empty: any."""

    def __post_init__(self) -> None:
        if not (self.uid or self.version):
            raise ValueError("a write has to say for which object it is meant")

    @property
    def metadata(self) -> Json:
        """What it says in the metadata of a patch."""
        asked = {"uid": self.uid, "resourceVersion": self.version}
        return {key: value for key, value in asked.items() if value}


class Kube:
    """One API server; each watch has its own connection.

    Writes pass `flow_control` in their order of urgency, each attempt again; reads do not. Writes
    after `lease_until` raise `FencedError`. Transient errors are retried up to `attempts` times.
    """

    def __init__(
        self,
        host: str,
        new_session: Callable[[int], aiohttp.ClientSession],
        namespace: str,
        width: int,
        attempts: int = ATTEMPTS,
        bare: Callable[[], aiohttp.ClientSession] = aiohttp.ClientSession,
    ) -> None:
        """Begin. `bare` makes a session that shows nobody's credentials."""
        self.host = host.rstrip("/")
        self.new_session = new_session
        """Makes a session of at most so many connections (0: of any number), for another loop."""
        writes = width * (1 + LATE_MOST)
        self.session, self._watching = new_session(CONNECTIONS + writes), new_session(0)
        self._bare = bare
        self._opening = asyncio.Semaphore(OPENING)
        self.namespace = namespace
        """Namespace this process runs in, or that the kubeconfig's context names."""
        self.flow_control = FlowControl(width)
        self._large = FlowControl(max(1, width // LARGE_SHARE))
        """Flow control of large documents: each keeps the server busy like dozens of others."""
        self._attempts = attempts
        # Also for standbys, which request permissions and publish certificates without a lease.
        self.lease_until = math.inf
        """`clock.since_boot()` up to which this process is sure to be the leader."""
        self.recovered: Callable[[], None] = lambda: None
        """Called when the server serves again after it could not be reached."""
        self.denied: Callable[[str], None] = lambda _message: None
        """Called with the message when no role allows what this process has asked for."""
        self.set_back: Callable[[], None] = lambda: None
        """Called when the server is found at an earlier state: restored from a copy, say."""
        self._broken, self._warm = False, 0.0
        self._recovers_at = 0.0
        """By the loop's clock: when `recovered` is called for an outage soon after another one."""
        self.requests: Counter[tuple[str, ...]] = Counter()
        """How often the server was asked, each try, by verb and status; `0`: no answer came."""

    async def close(self) -> None:
        """Close all connections."""
        await self.session.close()
        await self._watching.close()

    async def get(self, path: str, **params: str) -> Json:
        """Read one document. Raises ApiError."""
        return await self._retried(_Request("GET", path, None, params=params))

    async def text(self, path: str, **params: str) -> str:
        """Read once what is no document, such as a log. Raises ApiError, connection errors."""
        return await _text(self.session.get(self.host + path, params=params))

    async def text_for(self, authorization: str, path: str, params: Mapping[str, str]) -> str:
        """Read once by the rights of who has sent that header, by none of this process's own.

        Raises ApiError, connection errors, also where it is longer than MOST_READ.
        """
        sent = {"Authorization": authorization}
        async with (
            self._bare() as session,
            # A token goes to the server that it is of, and to nobody who that one names.
            session.get(
                self.host + path, params=params, headers=sent, allow_redirects=False
            ) as response,
        ):
            content = await _bounded(response, MOST_READ)
            if content is None:
                raise GarbledError(f"longer than {MOST_READ} bytes")
            if response.status >= 300:
                raise _error(response, content)
            return content.decode(errors="replace")

    async def clock(self) -> float | None:
        """Return the time by the server's clock, in whole seconds; None if it does not tell.

        Raises ApiError, connection errors.
        """
        async with self.session.get(f"{self.host}/version") as response:
            await _check(response)
            told = response.headers.get("Date")
        return parsedate_to_datetime(told).timestamp() if told else None

    async def lines(self, path: str, **params: str) -> AsyncGenerator[str, None]:
        """Yield a log's lines, long ones in parts. Raises ApiError and connection errors."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with self._watching.get(
            self.host + path, params=params, timeout=timeout
        ) as response:
            await _check(response)
            async for line in lines_of(response.content.iter_any(), LONGEST_LINE):
                yield line.removesuffix(b"\n").decode(errors="replace")

    async def create(
        self,
        path: str,
        body: Json,
        urgency: PriorityLevel,
        wanted: Callable[[], Awaitable[bool]] | None = None,
        still: Callable[[], bool] | None = None,
    ) -> Json:
        """Create the object and return it as stored. Raises ApiError, FencedError, UnwantedError.

        The API server has validated its source. If the response to an attempt is lost, the object
        may have been created and deleted: `wanted` returns whether to create another. `still`
        returns, once flow control admits the request, whether to send it.
        """
        return await self._retried(
            _Request("POST", path, body, urgency, params=UNCHECKED, wanted=wanted, still=still)
        )

    async def dry_run(self, path: str, body: Json, urgency: PriorityLevel) -> Json:
        """Return the object as it would be stored. Raises ApiError, FencedError."""
        return await self._retried(_Request("POST", path, body, urgency, params=DRY))

    async def patch(
        self,
        path: str,
        exactly: Exactly,
        body: Json,
        urgency: PriorityLevel,
        content_type: str = MERGE_PATCH,
    ) -> Json | None:
        """Patch exactly that object and return it as stored; None if it is gone.

        The status of a custom resource needs a version: the API server ignores the uid there.
        Raises ApiError, of code 409 if it has another version by now, and FencedError.
        """
        metadata = {**body.get("metadata", {}), **exactly.metadata}
        try:
            return await self._retried(
                _Request("PATCH", path, {**body, "metadata": metadata}, urgency, content_type)
            )
        except ApiError as error:
            # A uid in a patch is no precondition: another object's is an immutable field.
            replaced = error.code == 422 and f'metadata.uid: Invalid value: "{exactly.uid}"'
            if error.absent or (replaced and replaced in error.message):
                return None
            raise

    async def apply(self, path: str, body: Json, urgency: PriorityLevel) -> Json:
        """Make the object be as it is said, whichever it is. Raises ApiError, FencedError."""
        return await self._retried(_Request("PATCH", path, body, urgency, APPLY_PATCH))

    async def replace(self, path: str, body: Json, urgency: PriorityLevel) -> Json:
        """Replace the object if it has the version that the body names; return it as stored.

        Raises ApiError, FencedError, and ValueError if no version is named.
        """
        if not body["metadata"].get("resourceVersion"):
            raise ValueError("a replacement has to say of which version")
        return await self._retried(_Request("PUT", path, body, urgency))

    async def delete(
        self,
        path: str,
        uid: str,
        urgency: PriorityLevel,
        *,
        grace: int | None = None,
        version: str = "",
        still: Callable[[], bool] | None = None,
    ) -> Json | None:
        """Delete exactly the object with that uid; None if it was gone already.

        A `version` is the resourceVersion that it has to have, `still` as in `create`. Raises
        ApiError, FencedError, UnwantedError.
        """
        options: Json = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        if version:
            options["preconditions"]["resourceVersion"] = version
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            return await self._retried(_Request("DELETE", path, options, urgency, still=still))
        except ApiError as error:
            if error.absent:
                return None
            if error.code == 409:
                # The conflict is about the uid, or a concurrent write that left the object.
                found = await find(self, path)
                if found is None or found["metadata"]["uid"] != uid:
                    return None
            raise

    async def watch(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[Json, None]:
        """Yield `OPENED`, then the events of one watch request until the server ends it.

        Raises ApiError, and connection errors, also after silence beyond the requested time.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE)
        asked = {**params, "watch": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        async with contextlib.AsyncExitStack() as stack:
            async with self._opening:
                request = self._watching.get(self.host + path, params=asked, timeout=timeout)
                response = await stack.enter_async_context(request)
            self.requests["WATCH", str(response.status)] += 1
            if response.status >= 400:
                raise self._noted(_error(response, await response.read()))
            yield OPENED
            async for line in lines_of(response.content.iter_any()):
                # A line cut off is no event; the next watch begins before it.
                if line.endswith(b"\n") and not line.isspace():
                    yield _event(line)

    async def _retried(self, request: _Request) -> Json:
        attempts, unsure = 1 if request.urgency in ONCE else self._attempts, False
        for attempt in itertools.count(1):
            if unsure and request.wanted is not None and not await request.wanted():
                break
            try:
                return await self._send(request)
            except (ApiError, *BROKEN) as error:
                if isinstance(error, ApiError):
                    error.unsure = unsure
                unsure |= is_unsure(error)
                if attempt == attempts or not self._passing(request.method, error):
                    raise
                pause = _pause(error, attempt)
            await asyncio.sleep(pause)
        raise UnwantedError(f"not wanted any more: {request.method} {request.path}")

    async def _send(self, request: _Request) -> Json:
        if request.urgency is None:
            return await self._exchange(request)
        # Here, not around all tries: who waits for the next one keeps no place that others need.
        turn = request.urgency, namespace_of(request.path)
        # Written once more in its turn: to go through its parts takes ten times as long.
        large = len(to_json(request.document)) > LARGE
        async with (
            # In this order: large ones that wait here hold no place of small ones.
            self._large.enter(*turn) if large else contextlib.nullcontext(),
            self.flow_control.enter(*turn),
        ):
            if request.still is not None and not request.still():
                raise UnwantedError(f"not wanted any more: {request.method} {request.path}")
            return await self._exchange(request)

    async def _exchange(self, request: _Request) -> Json:
        headers, method, path, body = {}, request.method, request.path, None
        timeout = self.session.timeout
        # A single object is as long as it is.
        pages = (request.params or {}).get("limit", "1") != "1"
        most = MAX_PAGE_BYTES if pages else math.inf
        if request.document is not None:
            # Here, after the queue and before each try: what waited may have outlived the lease.
            if not path.startswith(LEASE_PREFIX):
                timeout = self._within_lease(timeout, f"{method} {path}")
            headers["Content-Type"] = request.content_type
            # Not before its turn: hundreds that wait would take a megabyte each.
            body = to_json(request.document)
        try:
            async with self.session.request(
                method,
                self.host + path,
                data=body,
                headers=headers,
                params=request.params,
                timeout=timeout,
            ) as response:
                content = await _bounded(response, most)
        except BROKEN:
            self._broken = True
            self.requests[method, UNANSWERED] += 1
            raise
        self.requests[method, str(response.status)] += 1
        if response.status in OUT:
            self._broken = True
        elif self._broken:
            # The first answer after an outage. Failed passes pause for minutes by now, and the
            # server may still be reading its roles: hurry those, and believe no 403 for a while.
            self._broken = False
            loop, soon = asyncio.get_running_loop(), self._warm - time.monotonic()
            self._warm = time.monotonic() + WARMING
            # Of several servers one may fail: no back-off would last until it is repaired.
            if soon <= 0:
                self.recovered()
            elif self._recovers_at <= loop.time():
                self._recovers_at = loop.call_later(soon, self.recovered).when()
        if content is None:
            raise LargePageError
        if response.status >= 400:
            raise self._noted(_error(response, content))
        return _answer(path, content)

    def _within_lease(self, usual: aiohttp.ClientTimeout, what: str) -> aiohttp.ClientTimeout:
        """Return time limits by which a write leaves before the lease ends. Raises FencedError."""
        left = self.lease_until - clock.since_boot()
        if left == math.inf:
            return usual
        if left <= 0:
            raise FencedError(f"not the leader any more: {what}")
        # To wait for a connection, or to make one, may take longer than that.
        return aiohttp.ClientTimeout(usual.total, connect=left, sock_connect=usual.sock_connect)

    def _noted(self, error: ApiError) -> ApiError:
        if error.unpermitted and time.monotonic() >= self._warm:
            self.denied(error.message)
        return error

    def _passing(self, method: str, error: BaseException) -> bool:
        if isinstance(error, ApiError):
            # A server that has just started knows nobody's permissions yet.
            early = error.unpermitted and time.monotonic() < self._warm
            return error.passing(method) or early
        return isinstance(error, BROKEN)


async def find(kube: Kube, path: str, **params: str) -> Json | None:
    """Read one document; return None if it does not exist. Raises ApiError."""
    try:
        return await kube.get(path, **params)
    except ApiError as error:
        if error.code != 404:
            raise
    return None


async def is_namespace_removed(kube: Kube, namespace: str) -> bool:
    """Return whether a namespace does not exist; False for an empty name and without an answer."""
    # The roles grant `list`, not `get`.
    name = f"metadata.name={namespace}"
    try:
        found = await kube.get(NAMESPACES.path(), fieldSelector=name) if namespace else None
    except (ApiError, *BROKEN):
        return False
    return found is not None and not found.get("items")


async def served(kube: Kube, versions: Iterable[str]) -> set[tuple[str, str]]:
    """Return each served (apiVersion, kind). Raises ApiError and connection errors."""
    found: set[tuple[str, str]] = set()
    for version in versions:
        # None: not served. No other error, such as that of a busy server, shows that.
        listing = await find(kube, f"/apis/{version}") or {}
        kinds = (text(mapping(one).get("kind")) for one in sequence(listing.get("resources")))
        found |= {(version, kind) for kind in kinds}
    return found


async def persist(write: Callable[[], Awaitable[None]], failed: str) -> None:
    """Call `write` until success, 403 or 404. Each error is logged after the text `failed`."""
    for pause in PERSISTENT:
        try:
            await write()
        except NOT_WRITTEN as error:
            log.warning("%s: %s", failed, error)
            if isinstance(error, ApiError) and error.code in (403, 404):
                return
            await asyncio.sleep(pause)
        else:
            return


def _document(content: bytes) -> Json:
    try:
        document = from_json(content)
    except ValueError as error:
        if TOO_DEEP in str(error):
            return _document(_shallow(content))
        raise GarbledError(f"not JSON: {content[:100]!r}") from error
    if not isinstance(document, dict):
        raise GarbledError(f"no document: {content[:100]!r}")
    return document


def _shallow(content: bytes) -> bytes:
    """Return a document with null for what is nested too deeply to be parsed.

    Open CRD schemas allow any depth, and one such object would make every list of it unreadable.
    """
    kept, depth, end = list[bytes](), 0, 0
    for token in _BRACKETS.finditer(content):
        opens, closes = token[0] in b"[{", token[0] in b"]}"
        depth += opens
        if opens and depth == MAX_DEPTH:
            kept.append(content[end : token.start()] + b"null")
            # Of one that is cut short nothing follows.
            end = len(content)
        elif closes and depth == MAX_DEPTH:
            end = token.end()
        depth -= closes
    return b"".join((*kept, content[end:]))


def _answer(path: str, content: bytes) -> Json:
    document = _document(content)
    # All that the server says of objects tells of which kind; a proxy's own JSON does not.
    if path.startswith("/api") and "kind" not in document:
        raise GarbledError(f"no object: {content[:100]!r}")
    return document


async def lines_of(
    chunks: AsyncIterable[bytes], longest: float = math.inf
) -> AsyncIterator[bytes]:
    """Yield lines with their ends, the last even without, those above `longest` in parts."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        for line in lines:
            yield line + b"\n"
        if len(rest) > longest:
            yield rest
            rest = b""
    if rest:
        yield rest


def _event(line: bytes) -> Json:
    event = _document(line)
    if not (isinstance(event.get("type"), str) and isinstance(event.get("object"), dict)):
        raise GarbledError(f"no event of a watch: {line[:100]!r}")
    return event


def is_unsure(error: BaseException) -> bool:
    """Say whether the server may have carried the request out all the same."""
    return not isinstance(error, ApiError) or error.code in FAILED or error.unsure


async def fetch(url: str) -> str:
    """Return what another process of ours serves at a URL. Raises ApiError, OSError."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        try:
            return await _text(session.get(url))
        except aiohttp.InvalidURL as error:
            raise OSError(f"{url} is not a URL: write http://HOST:PORT") from error


async def _text(request: AbstractAsyncContextManager[aiohttp.ClientResponse]) -> str:
    async with request as response:
        await _check(response)
        return (await response.read()).decode(errors="replace")


async def _bounded(response: aiohttp.ClientResponse, most: float) -> bytes | None:
    """Return what was answered; None if it is longer than `most`, without reading the rest."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > most:
            return None
    return bytes(content)


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status >= 400:
        raise _error(response, await response.read())


def _error(response: aiohttp.ClientResponse, content: bytes) -> ApiError:
    status: Mapping[str, object] = {}
    with contextlib.suppress(ValueError):
        status = mapping(from_json(content))
    after = response.headers.get("Retry-After")
    message = str(status.get("message") or content[:500].decode(errors="replace"))
    return ApiError(
        response.status,
        str(status.get("reason") or response.reason or ""),
        # It has a sentence for each wrong field of a template; logs and memory repeat it.
        cut(message),
        float(after) if after is not None and after.isdigit() else None,
    )


def _pause(error: BaseException | None, attempt: int) -> float:
    """Return the seconds to wait: what the server asked for, else those of the back-off."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return min(asked, LONGEST_WAIT) if asked is not None else BACKOFF.pause(attempt)
