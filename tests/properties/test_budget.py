# SPDX-License-Identifier: Apache-2.0
"""Every search ends with a verdict, however little one cycle may search."""

from collections import Counter
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from muster.allocator.cells import Deferrals
from muster.api.reasons import Reason
from muster.scheduler import budget, policy
from support.builders import preemption
from support.builders.preemption import worlds

RULES = policy.parse({"actions": "reclaim, allocate, backfill, preempt"})


@given(dice=st.randoms(use_true_random=False), reclaims=st.booleans())
def test_deferred_gang_is_placed_if_victims_exist(dice, reclaims):
    """The search of the only waiting gang ends, and finds victims if any legal set is enough."""
    made = preemption.claim(dice, reclaims=reclaims)
    if made is None or made.claimant.admitted:
        # The search for lost members is not charged.
        return
    deferrals = Deferrals()
    with mock.patch.object(budget, "FIRST", 20_000):
        decision = made.decide()
        while deferrals.decided([decision], changed=True):
            decision = made.decide(deferrals.next)
    assert bool(decision.evictions) is (made.least is not None)
    if made.least is not None:
        assert preemption.lost_by(made.world, decision) >= made.least - 1e-4


@given(world=worlds(), first=st.integers(1, 50_000), share=st.integers(1, 8))
def test_each_of_several_gangs_gets_a_legal_verdict(world, first, share):
    """Each gang gets a verdict in turn, and what is evicted meanwhile leaves no partial gang."""
    deferrals, undecided = Deferrals(), {g.key for g in world.gangs.values() if g.roles[0].waiting}
    with (
        mock.patch.object(budget, "FIRST", first),
        mock.patch.object(budget, "CYCLE", first * share),
    ):
        for _ in range(3 * len(world.gangs)):
            decisions = world.decide(RULES, deferrals.next)
            deferrals.decided(decisions, changed=True)
            ended = {decision.gang: decision for decision in decisions if not decision.deferred}
            undecided -= ended.keys()
            assert all(d.verdict.reason is not Reason.DEFERRED for d in ended.values())
            lost = Counter(e.gang for d in decisions for e in d.evictions)
            for key, count in lost.items():
                left = len(world.gangs[key].roles[0].held) - count
                assert left == 0 or left >= world.gangs[key].min_member
    assert not undecided
