# SPDX-License-Identifier: Apache-2.0
"""Rules: one frozen value per framework; FRAMEWORKS is the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from muster.api.edge import mapping, text
from muster.api.model import Job
from muster.frameworks import mpi
from muster.frameworks.base import Framework
from muster.frameworks.jax import JAX
from muster.frameworks.loading import load
from muster.frameworks.mpi_v1 import MPI_V1
from muster.frameworks.mpi_v2beta1 import MPI_V2BETA1
from muster.frameworks.paddle import PADDLE
from muster.frameworks.pytorch import PYTORCH
from muster.frameworks.tensorflow import TENSORFLOW
from muster.frameworks.xgboost import XGBOOST


def _mpi(document: Mapping[str, Any]) -> Framework:
    """Return which MPIJob this is: what its status keeps, else by who gave it its defaults."""
    kept = text(mapping(document.get("status")).get(mpi.VERSION))
    if kept not in _MPI:
        newer = mapping(document.get("spec")).get(mpi.IMPLEMENTATION) is not None
        kept = MPI_V2BETA1.versions[0] if newer else MPI_V1.versions[0]
    return _MPI[kept]


_MPI: Final = {row.versions[0]: row for row in (MPI_V1, MPI_V2BETA1)}

FRAMEWORKS: Final = MappingProxyType(
    {
        row.kind: row
        for row in (TENSORFLOW, PYTORCH, replace(MPI_V1, choose=_mpi), XGBOOST, PADDLE, JAX)
    }
)
"""Kind -> framework, in the order in which they are documented."""

ROWS: Final = (*FRAMEWORKS.values(), MPI_V2BETA1)
"""Every set of rules; a kind with a choice has several."""

_BY_VERSION: Final = {(row.kind, row.api_version): row for row in ROWS}


def of(job: Job) -> Framework:
    """Return the rules by which a job was read."""
    return _BY_VERSION.get((job.kind, job.api_version)) or FRAMEWORKS[job.kind]


__all__ = ["FRAMEWORKS", "ROWS", "Framework", "load", "of"]
