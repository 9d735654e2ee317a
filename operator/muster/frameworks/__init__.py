# SPDX-License-Identifier: Apache-2.0
"""Rules: one frozen value per framework; FRAMEWORKS is the table."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from muster.frameworks.base import Framework
from muster.frameworks.jax import JAX
from muster.frameworks.paddle import PADDLE
from muster.frameworks.parse import load
from muster.frameworks.pytorch import PYTORCH
from muster.frameworks.tensorflow import TENSORFLOW
from muster.frameworks.xgboost import XGBOOST

FRAMEWORKS: Final = MappingProxyType(
    {row.kind: row for row in (TENSORFLOW, PYTORCH, XGBOOST, PADDLE, JAX)}
)
"""Kind -> framework, in the order in which they are documented."""

__all__ = ["FRAMEWORKS", "Framework", "load"]
