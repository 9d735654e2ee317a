# SPDX-License-Identifier: Apache-2.0
"""The files of the Helm chart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "muster"
LEFT_OUT: Final = frozenset((CHART / ".helmignore").read_text().splitlines()) | {".helmignore"}
"""Names of files."""


def files() -> Iterator[tuple[Path, Path]]:
    """Yield each file that the chart consists of, and its name there.

    CRDs and the manifests that need no template lie outside: links lead to them, as Helm goes.
    """
    for folder, _, names in os.walk(CHART, followlinks=True):
        for name in names:
            if name not in LEFT_OUT:
                path = Path(folder, name)
                yield path, path.relative_to(CHART)
