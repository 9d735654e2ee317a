# SPDX-License-Identifier: Apache-2.0
"""What holds of every reservation, however jobs come and go."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.reasons import GangPhase
from muster.scheduler import cycle, policy
from support.builders.scheduler import make_node
from support.rehearsal.simulation import Cluster, Work


@st.composite
def clusters(draw, *, particular=True):
    """Return a small cluster and jobs that end when they said, or sooner.

    `particular`: some take a host port, or keep away from others.
    """
    nodes = [
        make_node(
            name=f"n{i}",
            gpu=draw(st.integers(1, 4)),
            cpu=draw(st.integers(1, 6)),
            labels={"zone": f"z{i // 2}"},
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    ports = (0, 0, 4791, 4792) if particular else (0,)
    groups = ("", "", "", "a") if particular else ("",)
    works = []
    for i in range(draw(st.integers(2, 12))):
        seconds = draw(st.integers(1, 40))
        asks = {"gpu": draw(st.integers(0, 2)), "cpu": draw(st.integers(0, 3))}
        works.append(
            Work(
                name=f"w{i:02}",
                arrives=float(draw(st.integers(0, 60))) + i / 100,
                replicas=draw(st.integers(1, 6)),
                seconds=float(seconds),
                estimate=float(seconds + draw(st.integers(0, 20))),
                asks=tuple(asks.items()),
                port=draw(st.sampled_from(ports)),
                alone=draw(st.sampled_from(groups)),
            )
        )
    return Cluster(nodes, works)


@given(cluster=clusters())
def test_who_passes_by_delays_nobody(cluster):
    """A gang with a reservation starts by the time it was told first, if the estimates hold.

    Shows S22.
    """
    told = {}
    for now, decisions in cluster.run():
        for decision in decisions:
            if decision.verdict.eta is not None:
                assert decision.verdict.state == GangPhase.RESERVED
                assert decision.verdict.eta > now
                told.setdefault(decision.gang, decision.verdict.eta)
                assert decision.verdict.eta <= told[decision.gang]
    for name, eta in told.items():
        assert cluster.starts[name] <= eta


@given(cluster=clusters())
def test_everybody_who_can_starts(cluster):
    """Whoever fits into the empty cluster has its turn; in one queue the eldest waits for none."""
    verdicts = {}
    for _, decisions in cluster.run():
        verdicts |= {decision.gang: decision.verdict for decision in decisions}
    for work in cluster.works:
        assert (work.name in cluster.ends) == verdicts[work.name].ever_possible


@settings(max_examples=settings().max_examples // 4)
@given(cluster=clusters(particular=False))
def test_what_is_foretold_comes_true(cluster):
    """Once the last job is there, and all end when they said: none starts later than it was told.

    A gang starts on the best nodes and not always on those that were reserved for it: others may
    then find room sooner.
    """
    cluster.works = [replace(work, estimate=work.seconds) for work in cluster.works]
    last, names = max(work.arrives for work in cluster.works), []
    told = None
    for now, decisions in cluster.run():
        if now >= last and told is None:
            names = [decision.gang for decision in decisions]
            told = cycle.forecast(cluster.seen, policy.DEFAULT, names)
    started = {name for name in names if name in cluster.starts}
    assert told.keys() == started
    assert all(cluster.starts[name] <= told[name] for name in started)
