# SPDX-License-Identifier: Apache-2.0
"""All benchmarks in one run: the scheduler core alone, then whole jobs on a control plane.

Arguments go to the second part; see `python tests/bench/ring.py --help`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import ring

if __name__ == "__main__":
    core = Path(__file__).with_name("core.py")
    subprocess.run([sys.executable, str(core)], check=True)
    asyncio.run(ring.main())
