# SPDX-License-Identifier: Apache-2.0
"""conformance: what belongs to the cluster itself is never evicted.

No action evicts yet, so there is nothing to answer; the name is known so that policy files with
it can be used.
"""

from __future__ import annotations

from muster.scheduler.arguments import Parsed
from muster.scheduler.hooks import Hooks
from muster.scheduler.session import Session


def answer(_session: Session, _arguments: Parsed) -> Hooks:
    """Have no opinion on placing."""
    return Hooks()
