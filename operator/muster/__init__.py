# SPDX-License-Identifier: Apache-2.0
"""Muster: distributed training jobs on Kubernetes, with a gang scheduler inside."""

from __future__ import annotations

from pathlib import Path


def version() -> str:
    """Return the version that is installed; of a bare tree nobody knows it."""
    # Here, as every start of the program would pay for it.
    from importlib import metadata  # noqa: PLC0415

    try:
        return metadata.version("muster")
    except metadata.PackageNotFoundError:
        return "unknown"


def shipped(folder: str) -> Path | None:
    """Find a folder of the repository, or its copy in an installed package."""
    here = Path(__file__).resolve().parent
    places = (here / "local" / Path(folder).name, here.parents[1] / folder)
    return next((place for place in places if place.is_dir()), None)
