# SPDX-License-Identifier: Apache-2.0
"""What may be done is not told before what it is done to is known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from muster.api import names
from muster.frameworks.mpi_v2beta1 import MPI_V2BETA1
from muster.gang import SCHEDULER_PLUGINS
from muster.kube import access
from muster.runtime import permissions


class Slow:
    """A collection whose first list takes until it is allowed to come in."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.running = asyncio.Event()

    async def run(self) -> None:
        """Follow it for ever."""
        self.running.set()
        await asyncio.Event().wait()


def test_jobs_wait_until_their_batch_jobs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that runs is else taken for one that is gone, once the operator may see it."""
    asked = iter([["no"], []])

    async def missing(_kube: object, accesses: object) -> tuple[object, ...]:
        return tuple(accesses) if next(asked) else ()

    monkeypatch.setattr(access, "missing", missing)
    monkeypatch.setattr(permissions, "PAUSE", 0.0)
    jobs = Slow()
    informers = SimpleNamespace(
        store=SimpleNamespace(backend=SCHEDULER_PLUGINS, frameworks={}),
        grant=lambda kind: {names.BATCH_JOB: [jobs]}[kind],
    )

    async def story() -> None:
        rows = [MPI_V2BETA1]
        made = permissions.Grants(None, informers, rows, ())
        await made.look()
        assert "mpi" in "".join(made.lacking.values())
        following = asyncio.create_task(made.run())
        await jobs.running.wait()
        assert made.lacking
        jobs.synced.set()
        await asyncio.wait([following], timeout=0.1)
        assert not made.lacking
        following.cancel()

    asyncio.run(asyncio.wait_for(story(), 10))
