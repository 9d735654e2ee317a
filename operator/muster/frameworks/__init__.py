# SPDX-License-Identifier: Apache-2.0
"""Rules: one frozen value per framework; FRAMEWORKS is the table."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from muster.frameworks.base import Framework
from muster.frameworks.parse import load
from muster.frameworks.tensorflow import TENSORFLOW

FRAMEWORKS: Final = MappingProxyType({row.kind: row for row in (TENSORFLOW,)})
"""Kind -> framework, in the order in which they are documented."""

__all__ = ["FRAMEWORKS", "Framework", "load"]
