# SPDX-License-Identifier: Apache-2.0
"""What the kinds of jobs differ in: one frozen value per framework, and the table of kinds.

Rule: differences are data. A new kind is a module and a row of FRAMEWORKS; whoever asks about
kinds asks the table, no module knows another kind's, and nothing outside branches on a kind's
name. Below is `api`; beside it, unknown to it, `gang`; above it `controller`, which reconciles
all kinds alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from muster.api.model import Job
from muster.frameworks import mpi
from muster.frameworks.base import Framework
from muster.frameworks.jax import JAX
from muster.frameworks.loading import DEFAULT_SITE, Site, load
from muster.frameworks.mpi_v1 import MPI_V1
from muster.frameworks.mpi_v2beta1 import MPI_V2BETA1
from muster.frameworks.paddle import PADDLE
from muster.frameworks.pytorch import PYTORCH
from muster.frameworks.tensorflow import TENSORFLOW
from muster.frameworks.xgboost import XGBOOST

FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {
        row.kind: row
        for row in (
            TENSORFLOW,
            PYTORCH,
            XGBOOST,
            PADDLE,
            JAX,
            replace(MPI_V1, choose=mpi.version, variants=(MPI_V2BETA1,)),
        )
    }
)
"""Kind -> framework, in the order in which they are documented."""


def rows() -> tuple[Framework, ...]:
    """Return every set of rules; a kind with a choice has several."""
    return (*FRAMEWORKS.values(), *(v for row in FRAMEWORKS.values() for v in row.variants))


def of(job: Job) -> Framework:
    """Return the rules by which a job was read."""
    return FRAMEWORKS[job.kind].of_version(job.api_version)


__all__ = ["DEFAULT_SITE", "FRAMEWORKS", "Framework", "Site", "load", "of", "rows"]
