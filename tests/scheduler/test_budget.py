# SPDX-License-Identifier: Apache-2.0
"""The search budget of a cycle: its shares, its growth, and that every search ends."""

from __future__ import annotations

import dataclasses

import pytest

from muster.allocator.cells import Deferrals
from muster.api.reasons import Reason
from muster.scheduler import budget as units
from muster.scheduler import cycle, policy
from muster.scheduler.actions import reserve
from muster.scheduler.budget import CYCLE, EVALUATIONS, EVICTED, FIRST, Budget
from muster.scheduler.capacity import Fit
from muster.scheduler.model import Deferred
from muster.scheduler.session import Session
from support.builders.scheduler import make_columns, make_gang, make_node, make_queue, make_role

PREEMPT = policy.parse({"actions": "allocate, backfill, preempt"})


def spend(budget: Budget, key: str, most: int = CYCLE) -> int:
    """Return the units that the gang could spend, up to `most`."""
    budget.charge(key)
    spent = 0
    while spent < most and not budget.exhausted():
        budget.spend(FIRST // 8)
        spent += FIRST // 8
    return spent


def test_first_search_of_a_gang_is_cut_off_at_the_first_limit() -> None:
    """A search that was cut off is recorded, and another gang of the namespace may search."""
    budget = Budget(["a"], Deferred())
    assert spend(budget, "TFJob/a/one") == FIRST
    assert spend(budget, "TFJob/a/two", FIRST // 2) == FIRST // 2
    assert budget.cut == {"TFJob/a/one"}
    assert budget.spent("TFJob/a/one") == FIRST


def test_search_that_was_cut_off_may_cost_twice_as_much() -> None:
    """Each cycle doubles the limit, up to the budget of the cycle, after which it is final."""
    for count, limit in ((1, 2 * FIRST), (2, 4 * FIRST), (9, CYCLE)):
        budget = Budget(["a"], Deferred({"TFJob/a/one": count}))
        assert spend(budget, "TFJob/a/one", 2 * CYCLE) == limit
    assert not budget.cut


@pytest.mark.parametrize("spaces", [1, 2, 10, 50])
def test_namespaces_share_the_budget(spaces: int) -> None:
    """Each namespace gets its equal share at least, and all together at most twice the budget.

    The same holds for the evaluation of new shapes.
    """
    names = [f"n{i}" for i in range(spaces)]
    budget = Budget(names, Deferred())
    spent = [sum(spend(budget, f"TFJob/{n}/{i}") for i in range(20)) for n in names]
    assert min(spent) >= CYCLE // spaces
    assert sum(spent) <= 2 * CYCLE + spaces * FIRST // 8
    budget, spent, each = Budget(names, Deferred()), [], EVALUATIONS // 400
    for name in names:
        evaluated = [budget.may_evaluate(f"TFJob/{name}/{i}", each) for i in range(500)]
        spent.append(each * sum(evaluated))
    assert min(spent) > EVALUATIONS // spaces - each
    assert sum(spent) <= 2 * EVALUATIONS + spaces * each


def test_gang_that_searches_alone_evaluates_without_limit_and_is_not_charged() -> None:
    """Its search has a whole budget and ends; the gang is still tried on the free nodes once."""
    budget = Budget(["a"], Deferred({"TFJob/a/one": 1}, alone="TFJob/a/one"))
    assert budget.may_evaluate("TFJob/a/two", EVALUATIONS // 2)
    assert not budget.may_evaluate("TFJob/a/three", 1)
    assert budget.may_evaluate("TFJob/a/one", CYCLE)
    assert spend(budget, "TFJob/a/one", 2 * CYCLE) == CYCLE
    assert budget.spent("a") == 0
    assert not budget.cut
    assert budget.exhausted()
    assert not budget.defers()


def test_gangs_that_wait_longest_for_their_search_get_half_of_the_share() -> None:
    """Gangs that come first in the order cannot use up the share in each cycle."""
    budget = Budget(["a"], Deferred({"TFJob/a/late": 2}))
    assert sum(spend(budget, f"TFJob/a/{i}") for i in range(20)) == CYCLE // 2
    assert spend(budget, "TFJob/a/late") == 4 * FIRST


def test_uncharged_search_is_limited_and_charged_to_no_gang() -> None:
    """The gang that was charged before goes on as if nothing had happened."""
    budget = Budget(["a"], Deferred())
    budget.charge("TFJob/a/one")
    budget.spend(10)
    with budget.uncharged():
        assert spend(budget, "TFJob/a/two", CYCLE) == FIRST
    budget.spend(10)
    assert (budget.spent("TFJob/a/one"), budget.spent("TFJob/a/two")) == (20, 0)
    assert not budget.cut


class Cluster:
    """Gangs of several roles on nodes, cycle by cycle: evicted pods are gone at once."""

    def __init__(self, nodes, gangs, monkeypatch):
        """Begin with these gangs, whose `held` tasks run."""
        self.nodes, self.gangs = nodes, {gang.key: gang for gang in gangs}
        self.deferrals, self.now, self.budgets = Deferrals(), 1000.0, []
        record, made = self.budgets.append, Budget.__init__

        def init(budget, *args):
            record(budget)
            made(budget, *args)

        monkeypatch.setattr(Budget, "__init__", init)

    @property
    def spent(self):
        """The units that the last cycle cost."""
        return self.budgets[-1].spent("")

    def decide(self):
        """Return gang -> what one cycle decides, and carry it out."""
        columns = make_columns(nodes=self.nodes)
        for gang in self.gangs.values():
            for role in gang.roles:
                for index, node in role.held:
                    columns.assume("x", f"{gang.key}-{role.role}-{index}", node, role.shape)
        gangs, queues = list(self.gangs.values()), [make_queue()]
        seen = columns.snapshot(gangs, queues, self.now, None, self.deferrals.next)
        decisions = cycle.schedule(seen, PREEMPT)
        self.deferrals.decided(decisions, changed=True)
        self.now += 1
        for decision in decisions:
            for eviction in decision.evictions:
                self._change(eviction.gang, eviction.role, gone=eviction.index)
            for one in (*decision.placements, *decision.nominations):
                self._change(decision.gang, one.role, came=(one.index, one.node))
        return {decision.gang: decision for decision in decisions}

    def _change(self, key, name, gone=None, came=None):
        gang, roles = self.gangs[key], []
        for role in gang.roles:
            ours = role.role == name
            held = tuple(task for task in role.held if not ours or task[0] != gone)
            waiting = tuple(i for i in role.waiting if not ours or came is None or i != came[0])
            if ours and came is not None:
                held = (*held, came)
            roles.append(dataclasses.replace(role, held=held, waiting=waiting, started=()))
        self.gangs[key] = dataclasses.replace(gang, roles=tuple(roles))
        if not any(role.held or role.waiting for role in roles):
            del self.gangs[key]


def full(count, gpus=2, size=4):
    """Return nodes whose devices gangs of low priority fill, and these gangs."""
    nodes = [make_node(name=f"n{i:04}", cpu=32, gpu=gpus) for i in range(count)]
    gangs = []
    for i in range(gpus * count // size):
        held = tuple((j, f"n{(i * size + j) * 7 % count:04}") for j in range(size))
        starts = tuple([float(i * 37 % 500)] * size)
        role = make_role(gpu=1, cpu=2, held=held, started=starts)
        least = size if i % 3 else size // 2
        key = f"low/run{i:04}"
        gangs.append(make_gang(key=key, created=float(i), min_member=least, roles=[role]))
    return nodes, gangs


def preemptor(key, i, workers=3):
    """Return a gang of two roles that fits only where others are evicted."""
    roles = [
        make_role(role="ps", replicas=1, gpu=1, cpu=4),
        make_role(replicas=workers, gpu=1, cpu=2, memory=f"{i + 1}Mi"),
    ]
    return make_gang(key=key, created=1000.0 + i, priority=9, roles=roles)


def test_hundred_preempting_gangs_of_two_roles_are_decided_in_a_few_cycles(monkeypatch) -> None:
    """No cycle spends more than its budget, and all gangs get their nodes within 60 cycles."""
    nodes, running = full(1000, size=16)
    waiting = [preemptor(f"a/new{i:03}", i, 7) for i in range(100)]
    cluster, left = Cluster(nodes, [*running, *waiting], monkeypatch), {g.key for g in waiting}
    for _ in range(60):
        decisions = cluster.decide()
        assert cluster.spent <= CYCLE + FIRST
        left -= {key for key, one in decisions.items() if one.nominations or one.placements}
        if not left:
            break
    assert not left
    assert len(cluster.budgets) > 1


def test_large_gang_of_two_roles_is_decided_in_its_first_search(monkeypatch) -> None:
    """Sums show which victims are needed; a trial for each of 301 would cost a whole budget."""
    nodes, running = full(100, gpus=8, size=16)
    cluster = Cluster(nodes, [*running, preemptor("a/new", 0, workers=300)], monkeypatch)
    decision = cluster.decide()["a/new"]
    assert len(decision.nominations) == 301
    assert len(decision.evictions) < 320
    assert cluster.spent < FIRST


def test_trials_are_charged_by_the_number_of_their_victims(monkeypatch) -> None:
    """A trial that takes hundreds of gangs away costs more than one that takes a few."""
    taken, evict = [], Session.evict

    def count(session, ask, chosen, action):
        taken.append(int(chosen.sum()) if action is None else 0)
        evict(session, ask, chosen, action)

    monkeypatch.setattr(Session, "evict", count)
    nodes, running = full(300, size=1)
    cluster = Cluster(nodes, [*running, preemptor("a/new", 0, workers=400)], monkeypatch)
    assert cluster.decide()["a/new"].nominations
    assert max(taken) > 400
    assert cluster.spent > EVICTED * sum(taken)


def test_search_cut_off_twice_is_published_as_deferred(monkeypatch) -> None:
    """The first cycle publishes what it found; the search ends when it may go far enough."""
    monkeypatch.setattr(units, "FIRST", 10_000)
    nodes, running = full(100)
    cluster = Cluster(nodes, [*running, preemptor("a/new", 0)], monkeypatch)
    cluster.deferrals.decided = lambda decisions, **_: setattr(
        cluster.deferrals,
        "next",
        Deferred({d.gang: len(cluster.budgets) for d in decisions if d.deferred}),
    )
    reasons = []
    for _ in range(8):
        decision = cluster.decide()["a/new"]
        reasons.append(decision.verdict.reason)
        if decision.nominations:
            break
    assert reasons[0] is Reason.NOT_ENOUGH_RESOURCES
    assert set(reasons[1:-1]) == {Reason.DEFERRED}
    assert decision.evictions


def distinct(space, count, **requests):
    """Return gangs of one namespace, each with a shape of its own."""
    return [
        make_gang(
            key=f"{space}/{i:04}",
            created=float(i),
            roles=[make_role(replicas=2, memory=f"{i + 1}Mi", **requests)],
        )
        for i in range(count)
    ]


def test_gang_of_another_namespace_is_placed_in_its_first_cycle(monkeypatch) -> None:
    """Gangs of 1,300 shapes share the budget of their namespace, and each gets its verdict."""
    monkeypatch.setattr(units, "EVALUATIONS", 120_000)
    monkeypatch.setattr(units, "CYCLE", 120_000)
    rows, compute = [0], Fit._compute

    def counted(fit, nodes):
        rows[-1] += len(nodes)
        compute(fit, nodes)

    monkeypatch.setattr(Fit, "_compute", counted)
    nodes = [make_node(name=f"n{i}", cpu=8) for i in range(100)]
    cluster = Cluster(nodes, distinct("evil", 1300, cpu=9), monkeypatch)
    undecided = set(cluster.gangs)
    while undecided:
        new = make_gang(key=f"good/new{len(rows)}", created=2000.0)
        cluster.gangs[new.key] = new
        decisions = cluster.decide()
        assert decisions[new.key].placements
        undecided -= {key for key, decision in decisions.items() if not decision.deferred}
        rows.append(0)
    assert max(rows) < 70_000
    assert len(rows) < 8


def test_gangs_of_many_shapes_leave_the_budget_to_the_search_for_victims(monkeypatch) -> None:
    """To evaluate new shapes in each cycle costs a part of the budget, so that gangs progress."""
    monkeypatch.setattr(units, "EVALUATIONS", 2_000)
    monkeypatch.setattr(units, "CYCLE", 800_000)
    nodes, running = full(50, size=2)
    waiting = [preemptor(f"a/new{i}", i, workers=1) for i in range(30)]
    cluster, started = Cluster(nodes, [*running, *waiting], monkeypatch), []
    for _ in range(6):
        decisions = cluster.decide()
        started.append(sum(bool(one.nominations) for one in decisions.values()))
    assert sum(started) == 30
    assert max(started) < 15


def test_lost_members_are_placed_although_the_budget_is_spent(monkeypatch) -> None:
    """A running gang gets its members back in each cycle, whatever waits in its namespace."""
    monkeypatch.setattr(units, "CYCLE", 1)
    nodes = [make_node(name=f"n{i}", cpu=8 if i else 2) for i in range(4)]
    role = make_role(cpu=2, held=((0, "n0"),), waiting=(1, 2), previous={1: "n1", 2: "gone"})
    hurt = make_gang(
        key="team/hurt",
        admitted=True,
        hold_until=2000.0,
        roles=[role],
        shuns=("n1", "n2", "n3"),  # so that they are searched for twice
    )
    others = [*distinct("team", 20, cpu=9), *distinct("evil", 20, cpu=9)]
    decisions = Cluster(nodes, [hurt, *others], monkeypatch).decide()
    assert len(decisions["team/hurt"].placements) == 2
    assert sum(decision.deferred for decision in decisions.values()) > 30


def test_reservation_is_not_limited_by_the_first_search(monkeypatch) -> None:
    """The start is estimated although the roles need another order than the given one."""
    monkeypatch.setattr(units, "FIRST", 1)
    nodes = [make_node(name="n1", cpu=4), make_node(name="n2", cpu=3)]
    held = make_role(cpu=3, held=((0, "n1"), (1, "n2")))
    runs = make_gang(key="a/runs", started=900.0, duration=200.0, roles=[held])
    roles = [make_role(role="a", replicas=1, cpu=3), make_role(role="b", replicas=1, cpu=4)]
    cluster = Cluster(nodes, [runs, make_gang(key="a/new", roles=roles)], monkeypatch)
    assert cluster.decide()["a/new"].verdict.eta == 1100.0


def test_reservation_is_charged_to_no_gang(monkeypatch) -> None:
    """To estimate a start takes nothing from the searches of the gang's namespace."""
    nodes, running = full(50, size=2)
    roles = [make_role(role="a", replicas=1, gpu=2), make_role(role="b", replicas=3, gpu=1)]
    gangs = [dataclasses.replace(one, started=900.0, duration=200.0) for one in running]
    gangs.append(make_gang(key="a/new", roles=roles))
    spent = []
    for reserves in (True, False):
        if not reserves:
            monkeypatch.setattr(reserve._Search, "run", lambda *_, **__: None)
        cluster = Cluster(nodes, gangs, monkeypatch)
        assert (cluster.decide()["a/new"].verdict.eta is not None) == reserves
        spent.append(cluster.spent)
    assert spent[0] == spent[1]
