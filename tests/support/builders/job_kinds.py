# SPDX-License-Identifier: Apache-2.0
"""Every sort of job: the kinds, and of MPIJob each version, which have rules of their own."""

from __future__ import annotations

from types import MappingProxyType

from muster.frameworks import FRAMEWORKS, Framework, rows


def _name(framework: Framework) -> str:
    """Return the kind, with the version where that is not the one that is stored."""
    stored = FRAMEWORKS[framework.kind].version
    own = framework.version
    return framework.kind if own == stored else f"{framework.kind}-{own}"


SORTS = MappingProxyType({_name(framework): framework for framework in rows()})
"""Name of a sort, e.g. `TFJob`, `MPIJob` (of v1) or `MPIJob-v2beta1` -> its rules."""


def container(sort: str) -> str:
    """Return the name of the container that a job's program runs in."""
    return SORTS[sort].pods.container or "mpi"
