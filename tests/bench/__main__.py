# SPDX-License-Identifier: Apache-2.0
"""All benchmarks in one run: the scheduler core alone, then whole jobs on a control plane."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import ring

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("core.py")), run_name="__main__")
    asyncio.run(ring.main())
