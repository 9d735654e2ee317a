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


class OutageReports:
    """Reports each outage once when it begins and once when it ends."""

    def __init__(
        self, away: AwayNodes, recorder: EventRecorder, lease: Callable[[], Json | None]
    ) -> None:
        self._away, self._recorder, self._lease = away, recorder, lease

    def begin(self) -> None:
        """Report the outages that have not ended, and from now on each change."""
        for outage in self._away.outages:
            # The previous leader may have reported it.
            self._report(outage, once=True)
        self._away.outage_changed = self._report

    def _report(self, outage: Outage, *, once: bool = False) -> None:
        log.warning("%s", outage.message)
        if (lease := self._lease()) is None:
            return
        kind, reason = "Warning", names.Event.NODE_OUTAGE_STARTED
        if outage.ended:
            kind, reason = "Normal", names.Event.NODE_OUTAGE_ENDED
        self._recorder.emit(lease, kind, reason, outage.message, of=outage.where, once=once)
