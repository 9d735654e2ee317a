# SPDX-License-Identifier: Apache-2.0
"""What the tracker wants done, carried out: the one way from a gang's memory to the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from muster.api import names
from muster.api.model import PodView
from muster.runtime import tracker
from muster.runtime.binder import Binder
from muster.runtime.causes import RELEASE
from muster.runtime.cyclemetrics import CycleMetrics
from muster.runtime.members import Members
from muster.runtime.recorder import Recorder, pod_reference
from muster.runtime.tracker import Effect

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of gangs, and where it is written how they stand."""

    members: Members
    publish: Callable[[str], None]
    """Have written what is remembered of the gang of that key."""
    record: Callable[[str, Sequence[PodView]], None]
    """Record that these pods of a gang have come to their nodes."""


class Effects:
    """Carries out what is to be done. `wake(at)` asks for a cycle at that time."""

    def __init__(
        self,
        binder: Binder,
        recorder: Recorder,
        metrics: CycleMetrics,
        wake: Callable[[float], None],
    ) -> None:
        self._binder, self._recorder = binder, recorder
        self._metrics, self._wake = metrics, wake

    def carry_out(self, key: str, kind: Kind, effects: Iterable[Effect]) -> None:
        """Do all of it, in order. Writes go on in the background."""
        for effect in effects:
            match effect:
                case tracker.Wake(at):
                    self._wake(at)
                case tracker.Publish():
                    kind.publish(key)
                case tracker.Arrived(pods):
                    kind.record(key, pods)
                case tracker.Warn(sentence):
                    log.warning("%s", sentence)
                case tracker.Bind() | tracker.Evict() | tracker.Delete() | tracker.Mark():
                    self._write(effect)
                case _:
                    self._measure(effect)

    def _write(self, effect: tracker.Bind | tracker.Evict | tracker.Delete | tracker.Mark) -> None:
        match effect:
            case tracker.Bind(pod, node):
                self._binder.bind(pod, node)
            case tracker.Evict(pod, cause):
                self._binder.evict(pod, cause)
            case tracker.Delete(pod):
                self._binder.remove(pod)
            case tracker.Mark(pod, message, kept, record):
                self._binder.mark(pod, message, kept)
                if record:
                    event = names.Event.FAILED_SCHEDULING
                    self._recorder.emit(pod_reference(pod), "Warning", event, message)

    def _measure(self, effect: Effect) -> None:
        match effect:
            case tracker.Started(seconds):
                self._metrics.started(seconds)
            case tracker.Placed(waited):
                for seconds in waited:
                    self._metrics.placed(seconds)
            case tracker.Release(count, cause) if cause == RELEASE:
                # What goes for another gang is counted where that was decided.
                self._metrics.evictions.labels(RELEASE.action).inc(count)
            case _:
                pass
