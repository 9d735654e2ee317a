# SPDX-License-Identifier: Apache-2.0
"""What the probes say: trouble that a new start does not end makes nobody start anew."""

from types import SimpleNamespace

import pytest

from muster.kube.informer import Informer
from muster.kube.resources import PODS
from muster.runtime import health
from muster.runtime.health import unready, unwell

NOW = 1e12


def loop(**fields):
    """Return a loop that runs well but for these fields."""
    return SimpleNamespace(
        **{"failures": 0, "failing_since": 0.0, "problem": "", "busy_since": 0.0, **fields}
    )


def informer(plural="pods", problem="", *, since=0.0, beat=NOW):
    """Return who follows a collection."""
    kind = SimpleNamespace(plural=plural)
    return SimpleNamespace(resource=kind, problem=problem, failing_since=since, beat=beat)


@pytest.mark.parametrize(
    ("made", "ready", "well"),
    [
        (None, "", ""),
        (loop(), "", ""),
        (loop(failures=2, failing_since=NOW - 1e4), "", ""),
        (loop(failures=3, failing_since=NOW - 1, problem="x"), "3 scheduling cycles", ""),
        (
            loop(failures=9, failing_since=NOW - 301, problem="x"),
            "9 scheduling cycles",
            "301 s: x",
        ),
        (loop(busy_since=NOW - 100), "", ""),
        (loop(busy_since=NOW - 200), "a scheduling cycle takes 200 s", ""),
        (loop(busy_since=NOW - 901), "a scheduling cycle takes 901 s", "hangs since 901 s"),
        ([informer()], "", ""),
        ([informer(problem="no route", since=NOW - 5)], "", ""),
        ([informer(problem="no route", since=NOW - 21)], "cannot read pods: no route", ""),
        ([informer(problem="no route", since=NOW - 1e5)], "cannot read pods: no route", ""),
        ([informer(), informer("nodes", beat=NOW - health.STUCK_WATCH - 1)], "", "nodes"),
        # The operator waits for its permissions.
        ([Informer(None, PODS, None)], "", ""),
    ],
)
def test_probes(made, ready, well):
    """Failing or hanging cycles and watches restart the process, an outage of the server not."""
    parts = (None, made) if isinstance(made, list) else (made, ())
    for found, wanted in ((unready(*parts, NOW), ready), (unwell(*parts, NOW), well)):
        assert wanted in found
        assert bool(wanted) is bool(found)
