# SPDX-License-Identifier: Apache-2.0
"""A collection holds what the server holds, whichever way and in whichever order it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from muster.api.model import Json
from muster.kube.collection import Collection
from muster.kube.informer import Informer
from muster.kube.resources import Resource

PODS = Resource("", "v1", "pods")


class Script:
    """A server that answers one list and one watch, then falls silent."""

    def __init__(self, items: Sequence[Json], version: int, events: Sequence[Json] = ()) -> None:
        """Remember what to answer."""
        self.page = {"metadata": {"resourceVersion": str(version)}, "items": list(items)}
        self.events = events
        self.shown = asyncio.Event()

    async def get(self, _path: str, **_params: str) -> Json:
        """Answer the list."""
        return self.page

    async def watch(self, _path: str, _params: object) -> AsyncIterator[Json]:
        """Tell the events, then nothing for ever."""
        for event in self.events:
            yield event
        self.shown.set()
        await asyncio.Event().wait()


def pod(name: str, version: int, uid: str = "u1") -> Json:
    """Return a pod at one version."""
    return {"metadata": {"name": name, "namespace": "a", "uid": uid,
                         "resourceVersion": str(version)}}  # fmt: skip


def after(script: Script, *written: Json) -> dict[str, int]:
    """Follow a script to its end, put in what was written; name -> version that is held."""

    async def follow() -> dict[str, int]:
        held = Collection(
            lambda document: int(document["metadata"]["resourceVersion"]),
            lambda _before, _after: None,
        )
        task = asyncio.create_task(Informer(script, PODS, held).run())
        await script.shown.wait()
        for document in written:
            held.apply(document)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return {name: version for (_, name), version in held.objects.items()}

    return asyncio.run(follow())


def test_list_and_watch() -> None:
    """What is listed is there, with what the watch tells later."""
    events = [
        {"type": "MODIFIED", "object": pod("one", 12)},
        {"type": "ADDED", "object": pod("two", 13)},
        {"type": "DELETED", "object": pod("three", 14)},
    ]
    assert after(Script([pod("one", 5), pod("three", 6)], 10, events)) == {"one": 12, "two": 13}


def test_a_write_is_known_before_the_watch_tells_of_it() -> None:
    """The newer version counts, on whichever way it came."""
    script = Script([pod("one", 5)], 10)
    assert after(script, pod("one", 11), pod("one", 7), pod("two", 12)) == {"one": 11, "two": 12}


def test_the_answer_to_a_deletion_brings_no_ghost() -> None:
    """The watch may tell of the end before the answer arrives, which shows the object."""
    events = [{"type": "DELETED", "object": pod("one", 11)}]
    assert after(Script([pod("one", 5)], 10, events), pod("one", 11)) == {}


def test_a_name_can_be_taken_anew() -> None:
    """After the end of one object, the answer to the creation of the next counts."""
    events = [{"type": "DELETED", "object": pod("one", 11)}]
    assert after(Script([pod("one", 5)], 10, events), pod("one", 12, "u2")) == {"one": 12}
