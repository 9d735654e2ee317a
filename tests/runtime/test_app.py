# SPDX-License-Identifier: Apache-2.0
"""The operator as a process: when it is to end, its parts end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest import mock

import pytest

from muster.runtime import app


@pytest.mark.parametrize("steps", range(4))
def test_the_audit_ends_though_jobs_were_just_listed(steps: int) -> None:
    """The cancellation comes some steps of the loop after the event that the audit waits for."""

    async def story() -> None:
        listed = asyncio.Event()
        parts = SimpleNamespace(
            _relisted=listed, frameworks=(), metrics=mock.Mock(), recorder=mock.Mock()
        )
        audit = asyncio.create_task(app.Operator._audit(parts))
        for _ in range(3):  # it waits now
            await asyncio.sleep(0)
        listed.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        audit.cancel()
        await asyncio.wait({audit}, timeout=10)
        assert audit.cancelled()

    asyncio.run(story())
