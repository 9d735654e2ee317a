# SPDX-License-Identifier: Apache-2.0
"""What holds of every reservation, however jobs come and go."""

from hypothesis import given
from hypothesis import strategies as st

from muster.api.reasons import GangPhase
from support.builders.scheduler import make_node
from support.rehearsal.simulation import Cluster, Work


@st.composite
def clusters(draw):
    """Return a small cluster and jobs that end when they said, or sooner.

    Some jobs take a host port or keep away from others.
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
                port=draw(st.sampled_from((0, 0, 4791, 4792))),
                alone=draw(st.sampled_from(("", "", "", "a"))),
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
