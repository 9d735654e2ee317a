# SPDX-License-Identifier: Apache-2.0
"""Muster: distributed training jobs on Kubernetes, with a gang scheduler inside."""

from __future__ import annotations


def version() -> str:
    """Return the version that is installed; of a bare tree nobody knows it."""
    # Here, as every start of the program would pay for it.
    from importlib import metadata  # noqa: PLC0415

    try:
        return metadata.version("muster")
    except metadata.PackageNotFoundError:
        return "unknown"
