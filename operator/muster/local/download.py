# SPDX-License-Identifier: Apache-2.0
"""Download."""

from __future__ import annotations

from pathlib import Path

from muster.local import layout, nodes


def folder(version: str) -> Path:
    """Where the downloaded programs of a version are, or will be."""
    return layout.cache_root() / f"v{version}" / f"official-linux-{nodes.architecture()}"
