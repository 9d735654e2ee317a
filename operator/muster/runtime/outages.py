# SPDX-License-Identifier: Apache-2.0
"""Outages of many nodes, reported in the log and by events on the leader's Lease."""

from __future__ import annotations

import logging
from collections.abc import Callable

from muster.api import names
from muster.api.model import Json
from muster.kube.events import EventRecorder
from muster.store.away import AwayNodes
from muster.store.outages import Outage

log = logging.getLogger(__name__)


def report(away: AwayNodes, recorder: EventRecorder, lease: Callable[[], Json | None]) -> None:
    """Report the outages that have not ended, and from now on each that begins or ends."""

    def changed(outage: Outage, *, once: bool = False) -> None:
        log.warning("%s", outage.message)
        if (about := lease()) is None:
            return
        kind, reason = "Warning", names.Event.NODE_OUTAGE_STARTED
        if outage.ended:
            kind, reason = "Normal", names.Event.NODE_OUTAGE_ENDED
        recorder.emit(about, kind, reason, outage.message, of=outage.where, once=once)

    for outage in away.outages:
        # The previous leader may have reported it.
        changed(outage, once=True)
    away.outage_changed = changed
