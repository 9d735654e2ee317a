# SPDX-License-Identifier: Apache-2.0
"""Every sort of job: the kinds, and of MPIJob each version, which have rules of their own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from muster.frameworks import FRAMEWORKS, Framework, rows
from support.apiserver.memory import of_kind
from support.builders.mpijobs import mpijob


def _name(framework: Framework) -> str:
    """Return the kind, with the version where that is not the one that is stored."""
    stored = FRAMEWORKS[framework.kind].version
    own = framework.version
    return framework.kind if own == stored else f"{framework.kind}-{own}"


SORTS = MappingProxyType({_name(framework): framework for framework in rows()})
"""Name of a sort, e.g. `TFJob`, `MPIJob` (of v1) or `MPIJob-v2beta1` -> its rules."""


def job_of(sort: str, workers: int = 2) -> dict[str, Any]:
    """Return a job of that sort with workers, and a master where the kind needs one."""
    framework = SORTS[sort]
    if framework.kind == "MPIJob":
        return mpijob(framework.version, workers=workers)
    leading = {"Master": 1} if framework.kind == "XGBoostJob" else {}
    return of_kind(framework.kind, Worker=workers, **leading)


def container(sort: str) -> str:
    """Return the name of the container that a job's program runs in."""
    return SORTS[sort].pods.container or "mpi"
