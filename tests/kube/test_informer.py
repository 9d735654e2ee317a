# SPDX-License-Identifier: Apache-2.0
"""A collection holds what the server holds, whichever way and in whichever order it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from muster.api.backoff import Backoff
from muster.api.model import Json
from muster.kube import informer
from muster.kube.client import ApiError
from muster.kube.collection import Collection
from muster.kube.informer import Informer
from muster.kube.resources import Resource

PODS = Resource("", "v1", "pods")


def pod(name: str, version: int, uid: str = "u1") -> Json:
    """Return a pod at one version."""
    return {"metadata": {"name": name, "namespace": "a", "uid": uid,
                         "resourceVersion": str(version)}}  # fmt: skip


def test_list_and_watch() -> None:
    """What is listed is there, with what the watch tells later."""
    events = [
        {"type": "MODIFIED", "object": pod("one", 12)},
        {"type": "ADDED", "object": pod("two", 13)},
        {"type": "DELETED", "object": pod("three", 14)},
    ]
    stage = Stage(10, [pod("one", 5), pod("three", 6)], events)
    assert played(stage) == {"one": 12, "two": 13}


async def test_a_list_that_a_watch_has_overtaken_brings_nothing_back() -> None:
    """Others follow the jobs, and what they show while a list is under way is newer."""
    held, stage = versions(), Stage(10, [pod("one", 5), pod("two", 6)])
    reader = Informer(stage, PODS, held)
    await reader.read()
    plain = stage.get

    async def slow(path: str, **params: str) -> Json:
        page = await plain(path, **params)
        held.remove(pod("one", 12))
        held.take(pod("two", 13))
        return page

    stage.get = slow  # type: ignore[method-assign]
    await reader.read()
    assert held.objects == {("a", "two"): 13}


class Stage:
    """A server that plays one scene after the other, a scene per watch; then it falls silent.

    A scene is a list of events; an exception in it is how the watch ends. A number is the version
    of the server from then on, and what it holds.
    """

    def __init__(self, version: int, items: Sequence[Json], *scenes: Sequence[object]) -> None:
        """Begin with that state."""
        self.version, self.items = version, list(items)
        self.scenes = list(scenes)
        self.asked: list[str] = []
        self.over = asyncio.Event()
        self.times_back = 0

    def set_back(self) -> None:
        """Count how often others are told to read anew."""
        self.times_back += 1

    async def get(self, _path: str, **params: str) -> Json:
        """Answer a list, or a look at the version."""
        self.asked.append("look" if params.get("limit") == "1" else "list")
        return {"metadata": {"resourceVersion": str(self.version)}, "items": self.items}

    async def watch(self, _path: str, params: Mapping[str, str]) -> AsyncIterator[Json]:
        """Play the next scene."""
        self.asked.append(params["resourceVersion"])
        if not self.scenes:
            self.over.set()
            await asyncio.Event().wait()
        for event in self.scenes.pop(0):
            if isinstance(event, Exception):
                raise event
            if isinstance(event, tuple):
                self.version, self.items = event
            else:
                yield event


def played(stage: Stage, collection: Collection[int] | None = None) -> dict[str, int]:
    """Follow a play to its end; name -> version that is held."""

    async def follow() -> dict[str, int]:
        held = collection or versions()
        task = asyncio.create_task(Informer(stage, PODS, held).run())
        try:
            await asyncio.wait_for(stage.over.wait(), 10)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return {name: version for (_, name), version in held.objects.items()}

    return asyncio.run(follow())


def versions(namespace: str = "") -> Collection[int]:
    """Return a collection that keeps the version of each object."""
    return Collection(
        lambda d: int(d["metadata"]["resourceVersion"]), lambda _before, _after: None, (namespace,)
    )


def shown(name: str, version: int) -> Json:
    """Return the event that shows a pod."""
    return {"type": "MODIFIED", "object": pod(name, version)}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a moment only."""
    monkeypatch.setattr(informer, "BACKOFF", Backoff(0.01, 0.05))


@pytest.mark.parametrize("code", [None, 0, 500, 504, 403])
def test_a_watch_goes_on_where_it_was(code: int | None) -> None:
    """After one that did not end in order it is looked whether the server is as far as that."""
    error = {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": "x"}}
    ends = [] if code is None else [error if code else OSError("cut off")]
    stage = Stage(6, [pod("one", 5)], [shown("one", 6), *ends], [shown("two", 7)])
    assert played(stage) == {"one": 6, "two": 7}
    assert stage.asked == ["list", "6", *["look"] * len(ends), "6", "7"]


async def test_watches_that_end_at_once_are_opened_with_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or a server in trouble would be asked a thousand times a second."""
    monkeypatch.setattr(informer, "BACKOFF", Backoff(0.05, 5.0))
    stage = Stage(5, [], *[[]] * 1000)
    task = asyncio.create_task(Informer(stage, PODS, versions()).run())
    await asyncio.sleep(0.4)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(stage.asked) < 6


@pytest.mark.parametrize("found", [pod("two", 8), pod("one", 5)])
def test_expired_version_is_listed_again(found: Json) -> None:
    """`etcdutl snapshot restore --bump-revision` leaves objects their versions."""
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
    stage = Stage(6, [], [shown("one", 6), (9, [found]), gone], [])
    about = found["metadata"]
    assert played(stage) == {about["name"]: int(about["resourceVersion"])}
    assert stage.asked == ["list", "6", "list", "9", "9"]


def test_a_server_that_was_set_back_is_believed() -> None:
    """What it holds counts, though what was known is newer by its number; all else is gone."""
    restored = (7, [pod("one", 5), pod("three", 7)])
    scenes = [[shown("one", 12), shown("two", 13), restored, OSError("cut")], [shown("four", 8)]]
    stage = Stage(11, [pod("one", 5)], *scenes)
    assert played(stage) == {"one": 5, "three": 7, "four": 8}
    assert stage.asked == ["list", "11", "look", "list", "7", "8"]
    assert stage.times_back == 1


def test_one_object_that_cannot_be_taken_in_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is told in the log, once for each cause."""

    def changed(_before: int | None, after: int | None) -> None:
        if after in (3, 6, 8):
            raise ZeroDivisionError("no such number")

    held = Collection(lambda document: int(document["metadata"]["resourceVersion"]), changed)
    scenes = [[shown("bad", 6), shown("one", 7), shown("bad", 8)]]
    stage = Stage(5, ["garbled", pod("bad-too", 3), pod("two", 4)], *scenes)
    assert played(stage, held) == {"two": 4, "one": 7, "bad": 8}
    assert len([r for r in caplog.records if r.levelname == "ERROR"]) == 2


@pytest.mark.parametrize("exists", [False, True])
async def test_collection_of_a_removed_namespace_is_emptied(exists: bool) -> None:
    """A list that is refused in an existing namespace leaves the stored pods."""
    stage, held = Stage(10, [pod("one", 5)]), versions("a")
    reader = Informer(stage, PODS, held, namespace="a")
    await reader.read()
    reader.synced.clear()
    stage.items = [{}] * exists
    refused = ApiError(403, "Forbidden", 'pods is forbidden: User "muster" cannot list', None)
    assert await reader.empty_removed_namespace(refused) is not exists
    assert (bool(held.objects), reader.synced.is_set()) == (exists, not exists)
