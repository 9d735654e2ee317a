# SPDX-License-Identifier: Apache-2.0
"""All benchmarks in one run: the scheduler core, then whole jobs.

Arguments go to the second part; see `python tests/bench/ring.py --help`.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import ring

if __name__ == "__main__":
    here = Path(__file__).parent
    subprocess.run([sys.executable, str(here / "core.py")], check=True)
    asyncio.run(ring.main())
