# SPDX-License-Identifier: Apache-2.0
"""What the stories of this folder need of the machine."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def free_port() -> int:
    """Return a port that nothing listens on, on any address."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
