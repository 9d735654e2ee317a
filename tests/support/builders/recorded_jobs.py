# SPDX-License-Identifier: Apache-2.0
"""Jobs in flight under the operators before, as they were recorded, for the stories about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "takeover"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
WITHOUT_OUR_LABELS = ("mpi-operator-0.3-mpijob", "tf-operator-1.0-tfjob")
"""Those whose pods have none of the labels by which Muster and the newer operators list them."""


def read(name: str) -> tuple[Json, list[Json]]:
    """Return the job of that recording, and all that there is of it."""
    job, *others = yaml.load_all(
        (FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
    )
    return job, others
