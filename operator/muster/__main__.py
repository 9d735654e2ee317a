# SPDX-License-Identifier: Apache-2.0
"""`python -m muster`."""

import sys

from muster.cli import main

sys.exit(main())
