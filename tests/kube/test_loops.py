# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio

import pytest

from muster.kube import loops


def test_interrupt_before_the_loop_starts_is_a_keyboard_interrupt() -> None:
    """asyncio.run raises CancelledError if the signal arrives while it installs its handler."""

    async def canceled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(KeyboardInterrupt):
        loops.run(canceled())
