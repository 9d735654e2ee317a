# SPDX-License-Identifier: Apache-2.0
"""Find the programs of a control plane."""

from __future__ import annotations

import os
from pathlib import Path

from muster.local import components


class BinariesError(Exception):
    """The programs cannot be had; the message says what to install."""


def find(version: str) -> dict[str, list[str]]:
    folder = Path(os.environ["KUBEBUILDER_ASSETS"])
    return {name: [str(folder / name)] for name in components.PROGRAMS}
